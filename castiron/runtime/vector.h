/* Vectors of floats over a lane count that the instruction set gives: GNU vector extensions, so that kernels are written once.

   Fused multiply-add is exact everywhere: where the machine has none, software does it (scalar.h). */
#ifndef CASTIRON_VECTOR_H
#define CASTIRON_VECTOR_H

#include "scalar.h"

#if defined(__AVX512F__)
#define CI_LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
#define CI_LANES 8
#elif defined(__aarch64__) && defined(__ARM_NEON)
#define CI_LANES 4
#else
#define CI_LANES 4
#define CI_SOFTWARE_FMA 1
#endif

/* Before a loop of known length whose body must become straight code, for its arrays to become registers. */
#if defined(__clang__)
#define CI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CI_UNROLL _Pragma("GCC unroll 32")
#endif

typedef float ci_vector __attribute__((vector_size(4 * CI_LANES)));
typedef float ci_vector_unaligned __attribute__((vector_size(4 * CI_LANES), aligned(4), may_alias));

CI_INLINE ci_vector ci_load(const float *from)
{
    return *(const ci_vector_unaligned *)from;
}

CI_INLINE void ci_store(float *to, ci_vector x)
{
    *(ci_vector_unaligned *)to = x;
}

/* x in every lane. Subtracting +0 changes no value, -0 included; adding it would. */
CI_INLINE ci_vector ci_broadcast(float x)
{
    return x - (ci_vector){0};
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_fma)
#define CI_ELEMENTWISE_FMA 1
#endif
#endif

/* a * b + c, rounded once. */
#if defined(CI_SOFTWARE_FMA)
typedef double ci_wide __attribute__((vector_size(8 * CI_LANES)));
typedef uint64_t ci_wide_bits __attribute__((vector_size(8 * CI_LANES)));

/* What ci_fma_f32 of scalar.h does, a vector at a time. The product is exact in double; the sum is rounded to odd (towards
   zero, then the last bit set where it was inexact), so that rounding to float afterwards is the only one that counts. */
CI_INLINE ci_vector ci_fma(ci_vector a, ci_vector b, ci_vector c)
{
    const ci_wide product = __builtin_convertvector(a, ci_wide) * __builtin_convertvector(b, ci_wide);
    const ci_wide addend = __builtin_convertvector(c, ci_wide), sum = product + addend, of_addend = sum - product;
    const ci_wide error = (product - (sum - of_addend)) + (addend - of_addend);
    const ci_wide_bits inexact = (ci_wide_bits)((error < 0) | (error > 0)) >> 63; /* 1; not where error is NaN */
    const ci_wide_bits away = ((ci_wide_bits)error ^ (ci_wide_bits)sum) >> 63 & inexact;
    const ci_wide_bits odd = ((ci_wide_bits)sum - away) | inexact;
    return __builtin_convertvector((ci_wide)odd, ci_vector);
}
#elif defined(CI_ELEMENTWISE_FMA)
CI_INLINE ci_vector ci_fma(ci_vector a, ci_vector b, ci_vector c)
{
    return __builtin_elementwise_fma(a, b, c);
}
#elif defined(__aarch64__)
#include <arm_neon.h>
CI_INLINE ci_vector ci_fma(ci_vector a, ci_vector b, ci_vector c)
{
    return vfmaq_f32(c, a, b);
}
#else
#include <immintrin.h>
CI_INLINE ci_vector ci_fma(ci_vector a, ci_vector b, ci_vector c)
{
#if CI_LANES == 16
    return _mm512_fmadd_ps(a, b, c);
#else
    return _mm256_fmadd_ps(a, b, c);
#endif
}
#endif

#endif
