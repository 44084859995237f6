/* malloc for static executables, in place of the C library's, which is made for programs of many threads: this one is a
   seventh of its size and starts without a system call. Only the thread of main allocates.

   Blocks are powers of two, those that are free wait in a list for each; larger ones are pages of their own. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALLEST = 5, LARGEST = 16, CHUNK = 1 << LARGEST }; /* blocks are 2^5 to 2^16 bytes */

typedef struct block {
    size_t size; /* with this header */
    struct block *next;
} block;

static _Alignas(32) char first[8192];
static char *fresh = first;
static size_t left = sizeof first;
static block *spare[LARGEST + 1];

static void *pages(size_t size)
{
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

static int power_of(size_t size)
{
    int power = SMALLEST;
    while ((size_t)1 << power < size) power++;
    return power;
}

static block *small(int power)
{
    block *b = spare[power];
    size_t size = (size_t)1 << power;
    if (b) {
        spare[power] = b->next;
        return b;
    }
    if (left < size) {
        char *chunk = pages(CHUNK);
        if (!chunk) return NULL;
        fresh = chunk;
        left = CHUNK;
    }
    b = (block *)fresh;
    fresh += size;
    left -= size;
    b->size = size;
    return b;
}

static void *allocate(size_t size)
{
    if (size > PTRDIFF_MAX - sizeof(block)) {
        errno = ENOMEM;
        return NULL;
    }
    size += sizeof(block);
    block *b = size > CHUNK ? pages(size) : small(power_of(size));
    if (!b) return NULL;
    if (size > CHUNK) b->size = size;
    return b + 1;
}

void *malloc(size_t size) { return allocate(size); }

void *calloc(size_t count, size_t each)
{
    size_t size;
    void *data = allocate(__builtin_mul_overflow(count, each, &size) ? SIZE_MAX : size);
    return data && size <= CHUNK ? memset(data, 0, size) : data; /* pages are zero */
}

void free(void *data)
{
    if (!data) return;
    block *b = (block *)data - 1;
    if (b->size > CHUNK) {
        munmap(b, b->size);
        return;
    }
    int power = power_of(b->size);
    b->next = spare[power];
    spare[power] = b;
}

void *realloc(void *data, size_t size)
{
    if (!data) return allocate(size);
    block *b = (block *)data - 1;
    size_t room = b->size - sizeof(block);
    if (size <= room && b->size <= CHUNK) return data;
    if (size <= PTRDIFF_MAX - sizeof(block) && size + sizeof(block) > CHUNK && b->size > CHUNK) {
        block *moved = mremap(b, b->size, size + sizeof(block), MREMAP_MAYMOVE);
        if (moved == MAP_FAILED) return NULL;
        moved->size = size + sizeof(block);
        return moved + 1;
    }
    void *copy = allocate(size);
    if (!copy) return NULL;
    memcpy(copy, data, size < room ? size : room);
    free(data);
    return copy;
}
