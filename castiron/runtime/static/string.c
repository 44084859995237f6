/* Searches for static executables, in place of the C library's, which look at several characters at once: names and lines
   are short. */
#include <string.h>

void *memchr(const void *data, int c, size_t size)
{
    for (const unsigned char *at = data; size; ++at, --size)
        if (*at == (unsigned char)c) return (void *)at;
    return NULL;
}

char *strchr(const char *text, int c)
{
    for (; *text != (char)c; ++text)
        if (!*text) return NULL;
    return (char *)text;
}

int strncmp(const char *a, const char *b, size_t size)
{
    for (; size; --size, ++a, ++b)
        if (*a != *b || !*a) return (unsigned char)*a - (unsigned char)*b;
    return 0;
}
