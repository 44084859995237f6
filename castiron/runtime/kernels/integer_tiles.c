/* The sums of tiles of bytes, once an instruction set.

   A byte of a, at most 255, times one of b, at least -128, fits 16 bits. Bytes are widened to lanes of 16 bits, the even ones
   of a four and the odd ones apart, so that nothing is shuffled: each lane of 32 bits is one column's all the way. */
#include "integer.h"

#include "../vector.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define CI_PANEL_VECTORS (CI_PANEL / CI_LANES)

typedef int32_t ci_ints __attribute__((vector_size(4 * CI_LANES)));
typedef int32_t ci_ints_unaligned __attribute__((vector_size(4 * CI_LANES), aligned(1), may_alias));
typedef int16_t ci_shorts __attribute__((vector_size(4 * CI_LANES)));
typedef uint16_t ci_unsigned_shorts __attribute__((vector_size(4 * CI_LANES)));

/* Products of lanes of 16 bits, two neighbours added to a lane of 32. */
CI_INLINE ci_ints ci_pairs(ci_shorts a, ci_shorts b)
{
#if CI_LANES == 16 && defined(__AVX512BW__)
    return (ci_ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif CI_LANES == 8 && defined(__AVX2__)
    return (ci_ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif CI_LANES == 4 && defined(__SSE2__)
    return (ci_ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#elif CI_LANES == 4 && defined(__aarch64__)
    return (ci_ints)vpaddlq_s16((int16x8_t)(a * b));
#else
    const ci_ints products = (ci_ints)(a * b);
    return (products >> 16) + (products << 16 >> 16);
#endif
}

/* acc + the products of four bytes of a and four of b in each lane. The order makes no difference. */
CI_INLINE ci_ints ci_add_fours(ci_ints acc, ci_ints a, ci_ints b, const bool faster)
{
#if CI_LANES == 16
    if (faster) {
        __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
        return acc;
    }
#endif
    (void)faster;
    const ci_shorts even_a = (ci_shorts)(a & 0x00ff00ff), odd_a = (ci_shorts)((ci_unsigned_shorts)a >> 8);
    const ci_shorts even_b = (ci_shorts)((ci_unsigned_shorts)b << 8) >> 8, odd_b = (ci_shorts)b >> 8;
    return acc + ci_pairs(even_a, even_b) + ci_pairs(odd_a, odd_b);
}

CI_INLINE ci_ints ci_broadcast_four(const uint8_t *a)
{
    int32_t four;
    __builtin_memcpy(&four, a, sizeof four);
    return four - (ci_ints){0};
}

CI_INLINE void ci_integer_sum_tile(const uint8_t *a, int64_t row, int64_t fours, const int8_t *const *b, int32_t *sums,
                                   const int rows, const int panels, const bool faster)
{
    const int vectors = panels * CI_PANEL_VECTORS;
    ci_ints acc[CI_MOST_TILE_SUMS / CI_LANES];
    CI_UNROLL
    for (int i = 0; i < rows * vectors; i++) acc[i] = (ci_ints){0};
    for (int64_t at = 0; at < fours; at++) {
        ci_ints columns[CI_MOST_PANELS * CI_PANEL_VECTORS];
        CI_UNROLL
        for (int v = 0; v < vectors; v++)
            columns[v] = *(const ci_ints_unaligned *)(b[v / CI_PANEL_VECTORS] +
                                                      (at * CI_PANEL + v % CI_PANEL_VECTORS * CI_LANES) * CI_FOUR);
        CI_UNROLL
        for (int i = 0; i < rows; i++) {
            const ci_ints x = ci_broadcast_four(a + i * row + at * CI_FOUR);
            CI_UNROLL
            for (int v = 0; v < vectors; v++) acc[i * vectors + v] = ci_add_fours(acc[i * vectors + v], x, columns[v], faster);
        }
    }
    CI_UNROLL
    for (int i = 0; i < rows * vectors; i++) *(ci_ints_unaligned *)(sums + i * CI_LANES) = acc[i];
}

#define CI_INTEGER_INSTANCE(rows, panels, name, faster)                                                             \
    static void ci_##name##_##rows##x##panels(const uint8_t *a, int64_t row, int64_t fours, const int8_t *const *b, \
                                              int32_t *sums)                                                        \
    {                                                                                                               \
        ci_integer_sum_tile(a, row, fours, b, sums, rows, panels, faster);                                          \
    }
#define CI_INTEGER_SHAPE(rows, panels, name) {rows, panels, ci_##name##_##rows##x##panels}

#if CI_LANES == 16
#define CI_INTEGER_SHAPES(name, faster)      \
    CI_INTEGER_INSTANCE(12, 2, name, faster) \
    CI_INTEGER_INSTANCE(12, 1, name, faster) \
    CI_INTEGER_INSTANCE(6, 2, name, faster)  \
    CI_INTEGER_INSTANCE(3, 2, name, faster)  \
    CI_INTEGER_INSTANCE(1, 4, name, faster)
#define CI_INTEGER_LIST(name)                                                                                                  \
    {CI_INTEGER_SHAPE(12, 2, name), CI_INTEGER_SHAPE(12, 1, name), CI_INTEGER_SHAPE(6, 2, name), CI_INTEGER_SHAPE(3, 2, name), \
     CI_INTEGER_SHAPE(1, 4, name)}
CI_INTEGER_SHAPES(integer, false)
CI_INTEGER_SHAPES(vnni, true)

/* Asking the processor takes microseconds in a virtual machine: once. The level has been checked, so registers are saved. */
static bool ci_has_vnni(void)
{
    enum { UNKNOWN, NO, YES };
    static int known = UNKNOWN;
    int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (found == UNKNOWN) {
        uint32_t a = 7, b, c = 0, d;
        __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        found = c >> 11 & 1 ? YES : NO;
        __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    }
    return found == YES;
}
const ci_integer_tiles CI(integer_tiles) = {CI_INTEGER_LIST(integer), CI_INTEGER_LIST(vnni), ci_has_vnni};
#else
#if CI_LANES == 8 || defined(__aarch64__)
CI_INTEGER_INSTANCE(4, 1, integer, false)
CI_INTEGER_INSTANCE(2, 1, integer, false)
CI_INTEGER_INSTANCE(1, 2, integer, false)
#define CI_INTEGER_LIST {CI_INTEGER_SHAPE(4, 1, integer), CI_INTEGER_SHAPE(2, 1, integer), CI_INTEGER_SHAPE(1, 2, integer)}
#else
CI_INTEGER_INSTANCE(2, 1, integer, false)
CI_INTEGER_INSTANCE(1, 1, integer, false)
#define CI_INTEGER_LIST {CI_INTEGER_SHAPE(2, 1, integer), CI_INTEGER_SHAPE(1, 1, integer)}
#endif
const ci_integer_tiles CI(integer_tiles) = {.shapes = CI_INTEGER_LIST};
#endif
