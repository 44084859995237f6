/* Types of 8 bits and fewer: floats, and integers of 4 and 2 bits. An element takes a byte in memory, its value in the
   lower bits. Included by cast.h.

   In registers the floats are float, as 16-bit floats are. ci_store_* rounds to nearest even; what is beyond the largest
   number becomes infinity, NaN where the type has no infinity, or the largest number where it has neither (saturating
   before is the caller's). FLOAT4E2M1 makes 0 of NaN, as onnx.reference does.
   Formats and casts: docs of ONNX, technical details, "Float stored in 8 bits", "Float stored in 4 bits", "4 bit integer". */
#ifndef CASTIRON_SMALL_H
#define CASTIRON_SMALL_H

#include "scalar.h"

/* A float of MANTISSA bits behind an exponent biased by BIAS. In codes: SIGN bit, LARGEST number, what lies BEYOND it,
   NOT_A_NUMBER. `zero`: whether -0 exists. */
#define CI_SMALL_FLOAT(s, MANTISSA, BIAS, SIGN, LARGEST, BEYOND, NOT_A_NUMBER, zero)                                         \
    CI_INLINE float ci_load_##s(uint8_t code)                                                                                \
    {                                                                                                                        \
        uint32_t magnitude = code & (SIGN - 1u);                                                                             \
        float size = ci_of_bits_f32(magnitude << (23 - MANTISSA)) * ci_of_bits_f32((254u - BIAS) << 23);                     \
        size = magnitude > LARGEST ? (BEYOND != NOT_A_NUMBER && magnitude == BEYOND ? CI_INFINITY : CI_NAN) : size;          \
        size = !zero && code == SIGN ? CI_NAN : size;                                                                        \
        return ci_of_bits_f32(ci_bits_f32(size) | (uint32_t)(code & SIGN) * (0x80000000u / SIGN));                           \
    }                                                                                                                        \
    CI_INLINE uint8_t ci_store_##s(float x)                                                                                  \
    {                                                                                                                        \
        const uint32_t shift = 23 - MANTISSA, magic = (uint32_t)(151 - BIAS - MANTISSA) << 23;                               \
        float size = ci_abs_f32(x);                                                                                          \
        uint32_t bits = ci_bits_f32(size);                                                                                   \
        uint32_t normal = ((bits + (1u << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift) - ((127u - BIAS) << MANTISSA);   \
        uint32_t small = ci_bits_f32(size + ci_of_bits_f32(magic)) - magic; /* the last place of `magic` is a subnormal's */ \
        uint32_t code = size < ci_of_bits_f32((128u - BIAS) << 23) ? small : normal;                                         \
        code = code > LARGEST ? BEYOND : code;                                                                               \
        code = size == size ? code : NOT_A_NUMBER;                                                                           \
        uint32_t sign = (ci_bits_f32(x) >> 31) * SIGN;                                                                       \
        return (uint8_t)(code | ((zero || code) ? sign : 0));                                                                \
    }                                                                                                                        \
    CI_INLINE float ci_round_##s(float x) { return ci_load_##s(ci_store_##s(x)); }                                           \
    CI_INLINE float ci_cast_f64_##s(double x) { return ci_round_##s(ci_narrow_to_odd(x)); }

CI_SMALL_FLOAT(e4m3fn, 3, 7, 0x80, 0x7e, 0x7f, 0x7f, 1)
CI_SMALL_FLOAT(e4m3fnuz, 3, 8, 0x80, 0x7f, 0x80, 0x80, 0)
CI_SMALL_FLOAT(e5m2, 2, 15, 0x80, 0x7b, 0x7c, 0x7e, 1)
CI_SMALL_FLOAT(e5m2fnuz, 2, 16, 0x80, 0x7f, 0x80, 0x80, 0)
CI_SMALL_FLOAT(e2m1, 1, 1, 0x8, 0x7, 0x7, 0x0, 1)

/* Integers: the lower bits, of floats after rounding to the nearest integer, halves to even. */
#define CI_LOW_BITS(x) (x > -0x1p31 && x < 0x1p31 ? (uint8_t)(int32_t)x : 0)
#define CI_SMALL_INTEGER(s, T, low_bits)                         \
    CI_INLINE T ci_wrap_##s(uint8_t x) { return (T)(low_bits); } \
    CI_INLINE T ci_cast_f32_##s(float x)                         \
    {                                                            \
        x = ci_round_f32(x);                                     \
        return ci_wrap_##s(CI_LOW_BITS(x));                      \
    }                                                            \
    CI_INLINE T ci_cast_f64_##s(double x)                        \
    {                                                            \
        x = ci_round_f64(x);                                     \
        return ci_wrap_##s(CI_LOW_BITS(x));                      \
    }

CI_SMALL_INTEGER(i4, int8_t, (int8_t)(x << 4) >> 4)
CI_SMALL_INTEGER(u4, uint8_t, x & 15)
CI_SMALL_INTEGER(i2, int8_t, (int8_t)(x << 6) >> 6)
CI_SMALL_INTEGER(u2, uint8_t, x & 3)

#endif
