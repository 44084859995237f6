/* Vectors of floats over a lane count that the instruction set gives: GNU vector extensions, so that kernels are written once.

   ci_multiply_add is where the law of bits parts machines with fused multiply-add from those without: doing it in software
   (scalar.h) costs a hundred times the speed, and the sums are as good without. */
#ifndef CASTIRON_VECTOR_H
#define CASTIRON_VECTOR_H

#include "scalar.h"

#if defined(__AVX512F__)
#define CI_LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
#define CI_LANES 8
#else
#define CI_LANES 4
#endif

/* Before a loop of known length whose body must become straight code, for its arrays to become registers. */
#if defined(__clang__)
#define CI_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CI_UNROLL _Pragma("GCC unroll 32")
#endif

typedef float ci_vector __attribute__((vector_size(4 * CI_LANES)));
typedef float ci_vector_unaligned __attribute__((vector_size(4 * CI_LANES), aligned(4), may_alias));

CI_INLINE ci_vector ci_load(const float *from) { return *(const ci_vector_unaligned *)from; }

CI_INLINE void ci_store(float *to, ci_vector x) { *(ci_vector_unaligned *)to = x; }

/* x in every lane. Subtracting +0 changes no value, -0 included; adding it would. */
CI_INLINE ci_vector ci_broadcast(float x) { return x - (ci_vector){0}; }

#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_fma)
#define CI_ELEMENTWISE_FMA 1
#endif
#endif

/* a * b + c: rounded once where the machine can, else twice. */
#if !CI_FMA
CI_INLINE ci_vector ci_multiply_add(ci_vector a, ci_vector b, ci_vector c) { return a * b + c; }
#elif defined(CI_ELEMENTWISE_FMA)
CI_INLINE ci_vector ci_multiply_add(ci_vector a, ci_vector b, ci_vector c) { return __builtin_elementwise_fma(a, b, c); }
#elif defined(__aarch64__)
#include <arm_neon.h>
CI_INLINE ci_vector ci_multiply_add(ci_vector a, ci_vector b, ci_vector c) { return vfmaq_f32(c, a, b); }
#else
#include <immintrin.h>
CI_INLINE ci_vector ci_multiply_add(ci_vector a, ci_vector b, ci_vector c)
{
#if CI_LANES == 16
    return _mm512_fmadd_ps(a, b, c);
#elif CI_LANES == 8
    return _mm256_fmadd_ps(a, b, c);
#else
    return _mm_fmadd_ps(a, b, c);
#endif
}
#endif

#endif
