/* Loops over all casts of the runtime between stored elements, as generated code does them: what test_casts.py loads. */
#include "scalar.h"

#define EXPORT __attribute__((visibility("default")))

#define PLAIN(x) (x)
#define CAST(from, F, load, to, T, store)                                                \
    EXPORT void run_cast_##from##_##to(const F *restrict x, T *restrict y, int64_t n)    \
    {                                                                                    \
        for (int64_t i = 0; i < n; i++) y[i] = store(ci_cast_##from##_##to(load(x[i]))); \
    }
#define CASTS(from, F, load)                  \
    CAST(from, F, load, f32, float, PLAIN)    \
    CAST(from, F, load, f64, double, PLAIN)   \
    CAST(from, F, load, i8, int8_t, PLAIN)    \
    CAST(from, F, load, i16, int16_t, PLAIN)  \
    CAST(from, F, load, i32, int32_t, PLAIN)  \
    CAST(from, F, load, i64, int64_t, PLAIN)  \
    CAST(from, F, load, u8, uint8_t, PLAIN)   \
    CAST(from, F, load, u16, uint16_t, PLAIN) \
    CAST(from, F, load, u32, uint32_t, PLAIN) \
    CAST(from, F, load, u64, uint64_t, PLAIN) \
    CAST(from, F, load, b8, uint8_t, PLAIN)   \
    CAST(from, F, load, f16, uint16_t, ci_store_f16) CAST(from, F, load, bf16, uint16_t, ci_store_bf16)
CASTS(f32, float, PLAIN)
CASTS(f64, double, PLAIN)
CASTS(f16, uint16_t, ci_load_f16)
CASTS(bf16, uint16_t, ci_load_bf16)
CASTS(i8, int8_t, PLAIN)
CASTS(i16, int16_t, PLAIN)
CASTS(i32, int32_t, PLAIN)
CASTS(i64, int64_t, PLAIN)
CASTS(u8, uint8_t, PLAIN)
CASTS(u16, uint16_t, PLAIN)
CASTS(u32, uint32_t, PLAIN)
CASTS(u64, uint64_t, PLAIN)
CASTS(b8, uint8_t, PLAIN)
