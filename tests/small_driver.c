/* Loops over the functions of runtime/small.h: what test_small_types.py loads. */
#include "scalar.h"

#define EXPORT __attribute__((visibility("default")))
#define LOOP(name, X, Y, function)                                        \
    EXPORT void run_##name(const X *restrict x, Y *restrict y, int64_t n) \
    {                                                                     \
        for (int64_t i = 0; i < n; i++) y[i] = function(x[i]);            \
    }

#define FLOATS(s) LOOP(load_##s, uint8_t, float, ci_load_##s) LOOP(store_##s, float, uint8_t, ci_store_##s)
#define INTEGERS(s, T) LOOP(cast_f32_##s, float, T, ci_cast_f32_##s) LOOP(wrap_##s, uint8_t, T, ci_wrap_##s)

FLOATS(e4m3fn)
FLOATS(e4m3fnuz)
FLOATS(e5m2)
FLOATS(e5m2fnuz)
FLOATS(e2m1)
INTEGERS(i4, int8_t)
INTEGERS(u4, uint8_t)
INTEGERS(i2, int8_t)
INTEGERS(u2, uint8_t)
