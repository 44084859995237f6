/* Reductions of up to 256 terms in one fixed order on every instruction set: 16 lanes, then lane l joins lane l + 8, 4, 2, 1.
   Lanes without a term keep the operation's neutral. */
#ifndef CASTIRON_REDUCE_H
#define CASTIRON_REDUCE_H

#include <stdint.h>

#define CI_SUM_LANES 16

/* Defines `type ci_lanes_NAME(const type *x, int64_t n)`; `join(a, b)` is the operation. */
#define CI_DEFINE_LANES(name, type, neutral, join)                       \
    static inline type ci_lanes_##name(const type *x, int64_t n)         \
    {                                                                    \
        type lane[CI_SUM_LANES];                                             \
        for (int l = 0; l < CI_SUM_LANES; l++)                               \
            lane[l] = neutral;                                           \
        int64_t i = 0;                                                   \
        for (; i + CI_SUM_LANES <= n; i += CI_SUM_LANES)                         \
            for (int l = 0; l < CI_SUM_LANES; l++)                           \
                lane[l] = join(lane[l], x[i + l]);                       \
        for (int l = 0; l < n - i; l++)                                  \
            lane[l] = join(lane[l], x[i + l]);                           \
        for (int step = CI_SUM_LANES / 2; step; step /= 2)                   \
            for (int l = 0; l < step; l++)                               \
                lane[l] = join(lane[l], lane[l + step]);                 \
        return lane[0];                                                  \
    }

#define CI_ADD_(a, b) ((a) + (b))
#define CI_MUL_(a, b) ((a) * (b))
#define CI_MAX_(a, b) ((b) > (a) || (b) != (b) ? (b) : (a)) /* NaN wins */
#define CI_MIN_(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))

CI_DEFINE_LANES(sum_f32, float, 0.0f, CI_ADD_)
CI_DEFINE_LANES(prod_f32, float, 1.0f, CI_MUL_)
CI_DEFINE_LANES(max_f32, float, -__builtin_inff(), CI_MAX_)
CI_DEFINE_LANES(min_f32, float, __builtin_inff(), CI_MIN_)
CI_DEFINE_LANES(sum_f64, double, 0.0, CI_ADD_)
CI_DEFINE_LANES(prod_f64, double, 1.0, CI_MUL_)
CI_DEFINE_LANES(max_f64, double, -__builtin_inf(), CI_MAX_)
CI_DEFINE_LANES(min_f64, double, __builtin_inf(), CI_MIN_)

#undef CI_ADD_
#undef CI_MUL_
#undef CI_MAX_
#undef CI_MIN_

#endif
