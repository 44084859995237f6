/* Scalar functions of generated C: arithmetic, comparison, rounding; `cast.h` has the casts, `math.h` the mathematics.

   Names are ci_<stem>_<suffix>, stems and suffixes as castiron/program/scalar.py lists them. FLOAT16 and BFLOAT16 are
   computed as float and rounded by ci_round_f16 / ci_round_bf16 after each operation.

   The law of bits: a function gives the same bits on every instruction set (which NaN it gives is not a promise). Hence
   no libm, no contraction, and fma only where it is written. Everything the f32 functions use is free of branches and
   tables, so that a loop around them vectorizes. Compile with -ffp-contract=off -fno-math-errno -fwrapv. */
#ifndef CASTIRON_SCALAR_H
#define CASTIRON_SCALAR_H

#include <stdint.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
#if defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "castiron needs float arithmetic in float: on 32-bit x86 compile with -msse2 -mfpmath=sse"
#endif

#define CI_INLINE static inline __attribute__((always_inline, unused))
#define CI_STATIC static inline __attribute__((unused)) /* too long or too branchy to be worth a place in every loop */

#if defined(__FMA__) || defined(__aarch64__) || defined(__ARM_FEATURE_FMA)
#define CI_FMA 1
#else
#define CI_FMA 0
#endif
#if defined(__SSE4_1__) || defined(__aarch64__) || defined(__wasm__)
#define CI_ROUNDS 1 /* rounding to an integer is an instruction */
#else
#define CI_ROUNDS 0
#endif

#define CI_INFINITY __builtin_inff()
#define CI_NAN __builtin_nanf("")

/* Bits ------------------------------------------------------------------------------------------------------------------ */

CI_INLINE uint32_t ci_bits_f32(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

CI_INLINE float ci_of_bits_f32(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

CI_INLINE uint64_t ci_bits_f64(double x)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

CI_INLINE double ci_of_bits_f64(uint64_t bits)
{
    double x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

CI_INLINE float ci_abs_f32(float x) { return __builtin_fabsf(x); }
CI_INLINE double ci_abs_f64(double x) { return __builtin_fabs(x); }
CI_INLINE float ci_copysign_f32(float x, float sign) { return __builtin_copysignf(x, sign); }
CI_INLINE double ci_copysign_f64(double x, double sign) { return __builtin_copysign(x, sign); }

/* Fused multiply-add ---------------------------------------------------------------------------------------------------- */

/* a + b rounded to odd: where it is inexact, the neighbour whose last bit is set. A later rounding to a shorter format
   then gives what one rounding would have given. */
CI_INLINE double ci_add_to_odd(double a, double b)
{
    double sum = a + b, of_b = sum - a;
    double error = (a - (sum - of_b)) + (b - of_b);
    uint64_t bits = ci_bits_f64(sum);
    uint64_t toward = (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    int even_and_inexact = ((error < 0) | (error > 0)) & !(bits & 1);
    return ci_of_bits_f64(bits + (even_and_inexact ? toward : 0));
}

/* a*b - product, exactly, where product is a*b rounded and nothing over- or underflows. */
CI_INLINE double ci_product_error(double a, double b, double product)
{
#if CI_FMA
    return __builtin_fma(a, b, -product);
#else
    double big_a = a * 0x1.000002p27, high_a = big_a - (big_a - a), low_a = a - high_a;
    double big_b = b * 0x1.000002p27, high_b = big_b - (big_b - b), low_b = b - high_b;
    return low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b);
#endif
}

CI_INLINE float ci_fma_f32(float a, float b, float c)
{
#if CI_FMA
    return __builtin_fmaf(a, b, c);
#else
    return (float)ci_add_to_odd((double)a * b, c);
#endif
}

/* Without the instruction: the exact fma unless it, or a split of its operands, leaves the range of normal numbers; then
   a product and a sum. */
CI_INLINE double ci_fma_f64(double a, double b, double c)
{
#if CI_FMA
    return __builtin_fma(a, b, c);
#else
    double product = a * b, error = ci_product_error(a, b, product);
    double low = c + error, of_error = low - c, low_error = (c - (low - of_error)) + (error - of_error);
    double high = product + low, of_low = high - product;
    double high_error = (product - (high - of_low)) + (low - of_low);
    double fused = high + ci_add_to_odd(high_error, low_error);
    return fused - fused == 0 ? fused : product + c;
#endif
}

/* Rounding to an integer ------------------------------------------------------------------------------------------------ */

#if CI_ROUNDS
#define CI_ROUNDING(s, T, letter, one_is_the_ulp)                        \
    CI_INLINE T ci_round_##s(T x) { return __builtin_rint##letter(x); }  \
    CI_INLINE T ci_floor_##s(T x) { return __builtin_floor##letter(x); } \
    CI_INLINE T ci_ceil_##s(T x) { return __builtin_ceil##letter(x); }   \
    CI_INLINE T ci_trunc_##s(T x) { return __builtin_trunc##letter(x); }
#else
#define CI_ROUNDING(s, T, letter, one_is_the_ulp)                                   \
    CI_INLINE T ci_round_##s(T x)                                                   \
    {                                                                               \
        T size = ci_abs_##s(x), rounded = (size + one_is_the_ulp) - one_is_the_ulp; \
        return size < one_is_the_ulp ? ci_copysign_##s(rounded, x) : x;             \
    }                                                                               \
    CI_INLINE T ci_floor_##s(T x)                                                   \
    {                                                                               \
        T near = ci_round_##s(x);                                                   \
        return near > x ? near - 1 : near;                                          \
    }                                                                               \
    CI_INLINE T ci_ceil_##s(T x) { return -ci_floor_##s(-x); }                      \
    CI_INLINE T ci_trunc_##s(T x) { return ci_copysign_##s(ci_floor_##s(ci_abs_##s(x)), x); }
#endif
CI_ROUNDING(f32, float, f, 0x1p23f)
CI_ROUNDING(f64, double, , 0x1p52)

CI_INLINE float ci_sqrt_f32(float x) { return __builtin_sqrtf(x); }
CI_INLINE double ci_sqrt_f64(double x) { return __builtin_sqrt(x); }

/* Floats ---------------------------------------------------------------------------------------------------------------- */

/* a - n*b for the integer n that leaves the sign of a and less than |b|; exact. Long division, 11 bits at a time. */
CI_STATIC double ci_fmod_f64(double a, double b)
{
    double x = ci_abs_f64(a), y = ci_abs_f64(b);
    if (!(x < CI_INFINITY) || !(y > 0)) return CI_NAN;
    if (x < y) return a;
    uint64_t fraction = ((uint64_t)1 << 52) - 1, x_bits = ci_bits_f64(x), y_bits = ci_bits_f64(y);
    int x_exponent = (int)(x_bits >> 52), y_exponent = (int)(y_bits >> 52);
    uint64_t m = x_exponent ? (x_bits & fraction) | (fraction + 1) : x_bits;
    uint64_t n = y_exponent ? (y_bits & fraction) | (fraction + 1) : y_bits;
    int shift = (x_exponent ? x_exponent : 1) - (y_exponent ? y_exponent : 1);
    for (m %= n; shift > 0 && m; shift -= 11) m = (m << (shift < 11 ? shift : 11)) % n;
    /* m units of b's last place: below 2^53, so both factors and their product are exact */
    int unit = y_exponent ? y_exponent : 1;
    double scale = unit > 52 ? ci_of_bits_f64((uint64_t)(unit - 52) << 52) : ci_of_bits_f64((uint64_t)1 << (unit - 1));
    return ci_copysign_f64((double)m * scale, a);
}

CI_STATIC float ci_fmod_f32(float a, float b) { return (float)ci_fmod_f64(a, b); }

/* mod: the sign of the divisor, 0 where it is 0. */
#define CI_FLOAT_ARITHMETIC(s, T)                                                           \
    CI_INLINE T ci_div_##s(T a, T b) { return a / b; }                                      \
    CI_INLINE T ci_neg_##s(T a) { return -a; }                                              \
    CI_INLINE T ci_sign_##s(T a) { return a > 0 ? 1 : a < 0 ? -1 : a == 0 ? 0 : a; }        \
    CI_INLINE T ci_min_##s(T a, T b) { return ((a < b) | (a != a)) ? a : b; }               \
    CI_INLINE T ci_max_##s(T a, T b) { return ((a > b) | (a != a)) ? a : b; }               \
    CI_INLINE uint8_t ci_isnan_##s(T a) { return a != a; }                                  \
    CI_INLINE uint8_t ci_isinf_##s(T a) { return ci_abs_##s(a) == (T)CI_INFINITY; }         \
    CI_STATIC T ci_mod_##s(T a, T b)                                                        \
    {                                                                                       \
        if (b == 0) return 0;                                                               \
        T rest = ci_fmod_##s(a, b);                                                         \
        return rest == 0 ? ci_copysign_##s(0, b) : (rest < 0) != (b < 0) ? rest + b : rest; \
    }
CI_FLOAT_ARITHMETIC(f32, float)
CI_FLOAT_ARITHMETIC(f64, double)

/* Integers: everything wraps around, nothing traps ------------------------------------------------------------------------ */

/* x**n by squaring. Negative n: 1 and -1 have integer powers, all others round towards 0 (and 0 gives 0). */
#define CI_INTEGER_ARITHMETIC(s, T, U, bits)                                                  \
    CI_INLINE T ci_neg_##s(T a) { return (T)(0 - (U)a); }                                     \
    CI_INLINE T ci_min_##s(T a, T b) { return a < b ? a : b; }                                \
    CI_INLINE T ci_max_##s(T a, T b) { return a > b ? a : b; }                                \
    CI_INLINE T ci_fma_##s(T a, T b, T c) { return (T)((U)a * (U)b + (U)c); }                 \
    CI_INLINE T ci_shl_##s(T a, T n) { return (U)n < bits ? (T)((U)a << (U)n) : 0; }          \
    CI_STATIC T ci_pow_##s(T x, T n)                                                          \
    {                                                                                         \
        T negative = n < (T)1 && n != 0;                                                      \
        if (negative) return x == 1 ? 1 : x == (T) - 1 ? (T)(n & 1 ? -1 : 1) : 0;             \
        U result = 1, power = (U)x;                                                           \
        for (U rest = (U)n; rest; rest >>= 1, power *= power) result *= rest & 1 ? power : 1; \
        return (T)result;                                                                     \
    }

#define CI_SIGNED_ARITHMETIC(s, T, U, bits)                                                      \
    CI_INTEGER_ARITHMETIC(s, T, U, bits)                                                         \
    CI_INLINE T ci_abs_##s(T a) { return a < 0 ? (T)(0 - (U)a) : a; }                            \
    CI_INLINE T ci_sign_##s(T a) { return (T)((a > 0) - (a < 0)); }                              \
    CI_INLINE T ci_shr_##s(T a, T n) { return (T)(a >> ((U)n < bits ? n : bits - 1)); }          \
    CI_INLINE T ci_div_##s(T a, T b)                                                             \
    {                                                                                            \
        T quotient = (T)(a / (((b == 0) | (b == -1)) ? 1 : b)); /* the least by -1 would trap */ \
        return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : quotient;                                  \
    }                                                                                            \
    CI_INLINE T ci_fmod_##s(T a, T b) { return (T)(a % (((b == 0) | (b == -1)) ? 1 : b)); }      \
    CI_INLINE T ci_mod_##s(T a, T b)                                                             \
    {                                                                                            \
        T rest = ci_fmod_##s(a, b);                                                              \
        return ((rest != 0) & ((rest < 0) != (b < 0))) ? (T)(rest + b) : rest;                   \
    }                                                                                            \
    CI_INLINE T ci_floordiv_##s(T a, T b)                                                        \
    {                                                                                            \
        T rest = ci_fmod_##s(a, b);                                                              \
        return (T)(ci_div_##s(a, b) - ((rest != 0) & ((rest < 0) != (b < 0))));                  \
    }

#define CI_UNSIGNED_ARITHMETIC(s, T, U, bits)                                  \
    CI_INTEGER_ARITHMETIC(s, T, U, bits)                                       \
    CI_INLINE T ci_abs_##s(T a) { return a; }                                  \
    CI_INLINE T ci_sign_##s(T a) { return a != 0; }                            \
    CI_INLINE T ci_shr_##s(T a, T n) { return n < bits ? (T)(a >> n) : 0; }    \
    CI_INLINE T ci_div_##s(T a, T b) { return b ? (T)(a / (b ? b : 1)) : 0; }  \
    CI_INLINE T ci_fmod_##s(T a, T b) { return b ? (T)(a % (b ? b : 1)) : 0; } \
    CI_INLINE T ci_mod_##s(T a, T b) { return ci_fmod_##s(a, b); }             \
    CI_INLINE T ci_floordiv_##s(T a, T b) { return ci_div_##s(a, b); }

/* The second type does the arithmetic: unsigned, and as wide as int at least, so that no promotion makes it signed. */
CI_SIGNED_ARITHMETIC(i8, int8_t, uint32_t, 8)
CI_SIGNED_ARITHMETIC(i16, int16_t, uint32_t, 16)
CI_SIGNED_ARITHMETIC(i32, int32_t, uint32_t, 32)
CI_SIGNED_ARITHMETIC(i64, int64_t, uint64_t, 64)
CI_UNSIGNED_ARITHMETIC(u8, uint8_t, uint32_t, 8)
CI_UNSIGNED_ARITHMETIC(u16, uint16_t, uint32_t, 16)
CI_UNSIGNED_ARITHMETIC(u32, uint32_t, uint32_t, 32)
CI_UNSIGNED_ARITHMETIC(u64, uint64_t, uint64_t, 64)

CI_INLINE uint8_t ci_min_b8(uint8_t a, uint8_t b) { return a & b; }
CI_INLINE uint8_t ci_max_b8(uint8_t a, uint8_t b) { return a | b; }

#include "cast.h"

#endif
