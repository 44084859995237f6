/* Random allocations, each filled with a pattern of its own: nobody else may write there, calloc's must be zero. Fills,
   copies and searches; threads, clock and files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 64, TURNS = 100000, STRIDE = 97 };

static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static unsigned seed = 1;

static unsigned draw(unsigned below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static int intact(unsigned k, size_t size)
{
    for (size_t i = 0; i < size; i += STRIDE)
        if (blocks[k][i] != (unsigned char)(k + i)) return 0;
    return 1;
}

static int turn(unsigned k, size_t size)
{
    if (!intact(k, sizes[k])) return 0;
    if (draw(2)) {
        blocks[k] = realloc(blocks[k], size);
        if (!intact(k, sizes[k] < size ? sizes[k] : size)) return 0;
    } else {
        free(blocks[k]);
        blocks[k] = calloc(size, 1);
        for (size_t i = 0; i < size; i++)
            if (blocks[k][i]) return 0;
    }
    for (size_t i = 0; i < size; i += STRIDE) blocks[k][i] = (unsigned char)(k + i);
    sizes[k] = size;
    return (size_t)blocks[k] % 16 == 0;
}

/* Fills and copies of `size` bytes at `at`, and nothing beside them. */
static int fills_and_copies(size_t at, size_t size)
{
    unsigned char from[128], to[128];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 7 + 1), to[i] = 0;
    if (memcpy(to + at, from + 3, size) != to + at) return 0;
    for (size_t i = 0; i < sizeof to; i++)
        if (to[i] != (i >= at && i < at + size ? from[i - at + 3] : 0)) return 0;
    if (memset(to + at, 0x1a5, size) != to + at) return 0;
    for (size_t i = 0; i < sizeof to; i++)
        if (to[i] != (i >= at && i < at + size ? 0xa5 : 0)) return 0;
    return 1;
}

/* Fails in a system call of its own: errno is each thread's. */
static void *thread(void *argument)
{
    errno = 0;
    return (void *)(close(-1) == -1 && errno == EBADF ? (uintptr_t)argument : 0);
}

static int threads(void)
{
    pthread_t started[8];
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, 1 << 20)) return 0;
    for (uintptr_t i = 0; i < 8; i++)
        if (pthread_create(&started[i], &attributes, thread, (void *)(i + 1))) return 0;
    for (uintptr_t i = 0; i < 8; i++) {
        void *result;
        if (pthread_join(started[i], &result) || result != (void *)(i + 1)) return 0;
    }
    return !pthread_attr_destroy(&attributes);
}

static int clock_runs(void)
{
    struct timespec before, after;
    if (clock_gettime(CLOCK_MONOTONIC, &before) || clock_gettime(CLOCK_MONOTONIC, &after)) return 0;
    return after.tv_sec > before.tv_sec || (after.tv_sec == before.tv_sec && after.tv_nsec >= before.tv_nsec);
}

static int files(const char *path)
{
    struct stat by_name, opened;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &opened) || stat(path, &by_name) || close(file)) return 0;
    return S_ISREG(opened.st_mode) && opened.st_size > 0 && opened.st_ino == by_name.st_ino && open("/nowhere/at/all", 0) < 0;
}

int main(int count, char **arguments)
{
    if (!threads() || !clock_runs() || count < 1 || !files(arguments[0])) return 6;
    for (size_t size = 0; size < 70; size++)
        for (size_t at = 0; at < 18; at++)
            if (!fills_and_copies(at, size)) return 5;
    for (int i = 0; i < TURNS; i++)
        if (!turn(draw(BLOCKS), 1 + draw(draw(8) ? 300 : 300000))) return 1;
    if (malloc((size_t)-1) || calloc((size_t)1 << 40, (size_t)1 << 40) || realloc(NULL, (size_t)-1)) return 2;
    const char *text = "a,b";
    if (strchr(text, ',') != text + 1 || strchr(text, 0) != text + 3 || strchr(text, 'c')) return 3;
    if (memchr(text, 'b', 3) != text + 2 || memchr(text, 'b', 2)) return 4;
    return getenv("HOME_OF_NOBODY") != NULL || strcmp(getenv("SOMEWHERE"), "x=y") != 0;
}
