/* Random allocations, each filled with a pattern of its own: nobody else may write there, calloc's must be zero. Fills,
   copies and searches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64, TURNS = 100000, STRIDE = 97 };

static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static unsigned seed = 1;

static unsigned draw(unsigned below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static int intact(unsigned k, size_t size) {
    for (size_t i = 0; i < size; i += STRIDE)
        if (blocks[k][i] != (unsigned char)(k + i)) return 0;
    return 1;
}

static int turn(unsigned k, size_t size) {
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
static int fills_and_copies(size_t at, size_t size) {
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

int main(void) {
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
