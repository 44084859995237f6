/* Reductions of up to 256 terms in one fixed order on every instruction set: 16 lanes, then lane l joins lane l + 8, 4, 2, 1.
   Lanes without a term join the operation's neutral, which changes no bit: no lane ever holds -0 in a sum.
   In GNU vectors, because compilers make lanes of compares out of arrays of 16 by twos. */
#ifndef CASTIRON_REDUCE_H
#define CASTIRON_REDUCE_H

#include <stdint.h>

#define CI_SUM_LANES 16

typedef float ci_lanes_f32 __attribute__((vector_size(4 * CI_SUM_LANES)));
typedef double ci_lanes_f64 __attribute__((vector_size(8 * CI_SUM_LANES)));
typedef int32_t ci_mask_f32 __attribute__((vector_size(4 * CI_SUM_LANES)));
typedef int64_t ci_mask_f64 __attribute__((vector_size(8 * CI_SUM_LANES)));
typedef ci_lanes_f32 ci_unaligned_f32 __attribute__((aligned(4), may_alias));
typedef ci_lanes_f64 ci_unaligned_f64 __attribute__((aligned(8), may_alias));

/* Defines `type ci_lanes_OP_s(const type *x, int64_t n)`. JOIN(s, a, b) on vectors and ONE(a, b) on scalars are the
   operation. */
#define CI_DEFINE_LANES(op, s, type, neutral, JOIN, ONE)                                     \
    static inline __attribute__((unused)) type ci_lanes_##op##_##s(const type *x, int64_t n) \
    {                                                                                        \
        ci_lanes_##s lane, next;                                                             \
        type rest[CI_SUM_LANES];                                                             \
        for (int l = 0; l < CI_SUM_LANES; l++) lane[l] = neutral;                            \
        int64_t i = 0;                                                                       \
        for (; i + CI_SUM_LANES <= n; i += CI_SUM_LANES) {                                   \
            next = *(const ci_unaligned_##s *)(x + i);                                       \
            lane = JOIN(s, lane, next);                                                      \
        }                                                                                    \
        if (i < n) {                                                                         \
            for (int l = 0; l < CI_SUM_LANES; l++) rest[l] = neutral;                        \
            for (int l = 0; l < n - i; l++) rest[l] = x[i + l];                              \
            next = *(const ci_unaligned_##s *)rest;                                          \
            lane = JOIN(s, lane, next);                                                      \
        }                                                                                    \
        *(ci_unaligned_##s *)rest = lane;                                                    \
        for (int step = CI_SUM_LANES / 2; step; step /= 2)                                   \
            for (int l = 0; l < step; l++) rest[l] = ONE(rest[l], rest[l + step]);           \
        return rest[0];                                                                      \
    }

#define CI_ADDS_(s, a, b) ((a) + (b))
#define CI_MULS_(s, a, b) ((a) * (b))
/* NaN wins */
#define CI_PICK_(s, mask, a, b) ((ci_lanes_##s)(((mask) & (ci_mask_##s)(b)) | (~(mask) & (ci_mask_##s)(a))))
#define CI_MAXS_(s, a, b) CI_PICK_(s, ((b) > (a)) | ((b) != (b)), a, b)
#define CI_MINS_(s, a, b) CI_PICK_(s, ((b) < (a)) | ((b) != (b)), a, b)
#define CI_ADD_(a, b) ((a) + (b))
#define CI_MUL_(a, b) ((a) * (b))
#define CI_MAX_(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define CI_MIN_(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))

CI_DEFINE_LANES(sum, f32, float, 0.0f, CI_ADDS_, CI_ADD_)
CI_DEFINE_LANES(prod, f32, float, 1.0f, CI_MULS_, CI_MUL_)
CI_DEFINE_LANES(max, f32, float, -__builtin_inff(), CI_MAXS_, CI_MAX_)
CI_DEFINE_LANES(min, f32, float, __builtin_inff(), CI_MINS_, CI_MIN_)
CI_DEFINE_LANES(sum, f64, double, 0.0, CI_ADDS_, CI_ADD_)
CI_DEFINE_LANES(prod, f64, double, 1.0, CI_MULS_, CI_MUL_)
CI_DEFINE_LANES(max, f64, double, -__builtin_inf(), CI_MAXS_, CI_MAX_)
CI_DEFINE_LANES(min, f64, double, __builtin_inf(), CI_MINS_, CI_MIN_)

#endif
