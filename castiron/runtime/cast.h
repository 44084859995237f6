/* Casts between all pairs of element types, by ONNX's rules, and the 16-bit floats. Included by scalar.h.

   ci_cast_<from>_<to>(x): floats to integers truncate and saturate, NaN gives 0; integers to integers wrap around; to bool
   is x != 0. FLOAT16 and BFLOAT16 are floats in registers, here as everywhere: to them means rounded once to their values;
   ci_load_* and ci_store_* go from and to the 16 bits in memory. */
#ifndef CASTIRON_CAST_H
#define CASTIRON_CAST_H

#include "scalar.h"

/* 16-bit floats: nearest even, subnormals, infinities, NaN stays NaN ------------------------------------------------------ */

#define CI_F16_NORMAL 0x1p-14f  /* least normal number */
#define CI_F16_OVER 65520.0f    /* from here up rounds to infinity */

CI_INLINE float ci_load_f16(uint16_t half)
{
    uint32_t size = (uint32_t)(half & 0x7fff) << 13;
    uint32_t wide = ci_bits_f32(ci_of_bits_f32(size) * 0x1p112f); /* corrects the bias, and subnormals too */
    wide = size >= 0x0f800000 ? size | 0x7f800000 : wide;
    return ci_of_bits_f32(wide | (uint32_t)(half & 0x8000) << 16);
}

CI_INLINE float ci_round_f16(float x)
{
    float size = ci_abs_f32(x);
    uint32_t bits = ci_bits_f32(size);
    float normal = ci_of_bits_f32((bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff);
    float small = (size + 0.5f) - 0.5f; /* 0.5f's last place is a subnormal half's */
    float rounded = size < CI_F16_NORMAL ? small : normal;
    rounded = size >= CI_F16_OVER ? CI_INFINITY : rounded;
    return ci_copysign_f32(size == size ? rounded : size, x);
}

CI_INLINE uint16_t ci_store_f16(float x)
{
    float size = ci_abs_f32(x);
    uint32_t bits = ci_bits_f32(size);
    uint32_t normal = (bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13;
    uint32_t small = ci_bits_f32(size + 0.5f) - 0x3f000000;
    uint32_t half = size < CI_F16_NORMAL ? small : normal;
    half = size >= CI_F16_OVER ? 0x7c00 : half;
    half = size == size ? half : (0x7e00 | (bits >> 13 & 0x1ff));
    return (uint16_t)(half | (ci_bits_f32(x) >> 16 & 0x8000));
}

CI_INLINE float ci_load_bf16(uint16_t half) { return ci_of_bits_f32((uint32_t)half << 16); }

CI_INLINE uint16_t ci_store_bf16(float x)
{
    uint32_t bits = ci_bits_f32(x);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(x == x ? rounded : (bits >> 16 | 0x40));
}

CI_INLINE float ci_round_bf16(float x) { return ci_load_bf16(ci_store_bf16(x)); }

/* The float on the way to a 16-bit one: rounded to odd, so that the second rounding is the only one that counts. */
CI_INLINE float ci_narrow_to_odd(double x)
{
    float near = (float)x;
    uint32_t bits = ci_bits_f32(near);
    double beyond = near - x;
    uint32_t toward = (beyond < 0) == (x > 0) ? 1 : (uint32_t)-1;
    int even_and_inexact = ((beyond < 0) | (beyond > 0)) & !(bits & 1);
    return ci_of_bits_f32(bits + (even_and_inexact ? toward : 0));
}

/* The pairs ------------------------------------------------------------------------------------------------------------- */

#define CI_CAST(from, F, to, T, expression) \
    CI_INLINE T ci_cast_##from##_##to(F x) { return expression; }

#define CI_CAST_TO_INTEGER(from, F, to, T, end, least, most) \
    CI_CAST(from, F, to, T, x >= (F)end ? most : x >= (F)least ? (T)x : x < 0 ? least : 0)

#define CI_CASTS_OF_FLOAT(from, F)                                          \
    CI_CAST_TO_INTEGER(from, F, i8, int8_t, 0x1p7, INT8_MIN, INT8_MAX)      \
    CI_CAST_TO_INTEGER(from, F, i16, int16_t, 0x1p15, INT16_MIN, INT16_MAX) \
    CI_CAST_TO_INTEGER(from, F, i32, int32_t, 0x1p31, INT32_MIN, INT32_MAX) \
    CI_CAST_TO_INTEGER(from, F, i64, int64_t, 0x1p63, INT64_MIN, INT64_MAX) \
    CI_CAST_TO_INTEGER(from, F, u8, uint8_t, 0x1p8, 0, UINT8_MAX)           \
    CI_CAST_TO_INTEGER(from, F, u16, uint16_t, 0x1p16, 0, UINT16_MAX)       \
    CI_CAST_TO_INTEGER(from, F, u32, uint32_t, 0x1p32, 0, UINT32_MAX)       \
    CI_CAST_TO_INTEGER(from, F, u64, uint64_t, 0x1p64, 0, UINT64_MAX)       \
    CI_CAST(from, F, b8, uint8_t, x != 0)                                   \
    CI_CAST(from, F, f32, float, (float)x)                                  \
    CI_CAST(from, F, f64, double, (double)x)

#define CI_CASTS_OF_INTEGER(from, F)                     \
    CI_CAST(from, F, i8, int8_t, (int8_t)x)              \
    CI_CAST(from, F, i16, int16_t, (int16_t)x)           \
    CI_CAST(from, F, i32, int32_t, (int32_t)x)           \
    CI_CAST(from, F, i64, int64_t, (int64_t)x)           \
    CI_CAST(from, F, u8, uint8_t, (uint8_t)x)            \
    CI_CAST(from, F, u16, uint16_t, (uint16_t)x)         \
    CI_CAST(from, F, u32, uint32_t, (uint32_t)x)         \
    CI_CAST(from, F, u64, uint64_t, (uint64_t)x)         \
    CI_CAST(from, F, b8, uint8_t, x != 0)                \
    CI_CAST(from, F, f32, float, (float)x)               \
    CI_CAST(from, F, f64, double, (double)x)             \
    CI_CAST(from, F, f16, float, ci_round_f16((float)x)) \
    CI_CAST(from, F, bf16, float, ci_round_bf16((float)x))

CI_CASTS_OF_FLOAT(f32, float)
CI_CAST(f32, float, f16, float, ci_round_f16(x))
CI_CAST(f32, float, bf16, float, ci_round_bf16(x))
CI_CASTS_OF_FLOAT(f64, double)
CI_CAST(f64, double, f16, float, ci_round_f16(ci_narrow_to_odd(x)))
CI_CAST(f64, double, bf16, float, ci_round_bf16(ci_narrow_to_odd(x)))
CI_CASTS_OF_FLOAT(f16, float)
CI_CAST(f16, float, f16, float, x)
CI_CAST(f16, float, bf16, float, ci_round_bf16(x))
CI_CASTS_OF_FLOAT(bf16, float)
CI_CAST(bf16, float, f16, float, ci_round_f16(x))
CI_CAST(bf16, float, bf16, float, x)
CI_CASTS_OF_INTEGER(i8, int8_t)
CI_CASTS_OF_INTEGER(i16, int16_t)
CI_CASTS_OF_INTEGER(i32, int32_t)
CI_CASTS_OF_INTEGER(i64, int64_t)
CI_CASTS_OF_INTEGER(u8, uint8_t)
CI_CASTS_OF_INTEGER(u16, uint16_t)
CI_CASTS_OF_INTEGER(u32, uint32_t)
CI_CASTS_OF_INTEGER(u64, uint64_t)
CI_CASTS_OF_INTEGER(b8, uint8_t)

#include "small.h"

#endif
