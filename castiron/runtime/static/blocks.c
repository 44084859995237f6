/* Filling and copying for static executables, in place of the C library's, which at this size goes byte by byte: compilers
   make calls of these from the loops of models. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t ci_chunk __attribute__((vector_size(16), aligned(1), may_alias));

void *memset(void *to, int value, size_t size)
{
    uint8_t *out = to;
    if (size < sizeof(ci_chunk)) {
        for (; size; --size) *out++ = (uint8_t)value;
        return to;
    }
    const ci_chunk chunk = (ci_chunk){0} + (uint8_t)value;
    uint8_t *last = out + size - sizeof chunk; /* overlaps what has been done, where sizes are no multiples */
    for (; out < last; out += sizeof chunk) *(ci_chunk *)out = chunk;
    *(ci_chunk *)last = chunk;
    return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t size)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    if (size < sizeof(ci_chunk)) {
        for (; size; --size) *out++ = *in++;
        return to;
    }
    uint8_t *last = out + size - sizeof(ci_chunk);
    const ci_chunk end = *(const ci_chunk *)(in + size - sizeof(ci_chunk));
    for (; out < last; out += sizeof(ci_chunk), in += sizeof(ci_chunk)) *(ci_chunk *)out = *(const ci_chunk *)in;
    *(ci_chunk *)last = end;
    return to;
}
