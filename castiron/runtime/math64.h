/* Mathematical functions of doubles. No fma but in ci_product_error, which is exact with and without the instruction: so
   the bits do not depend on it. Errors measured (tests/test_math.py) are below 1 ulp unless said otherwise.

   Polynomials are near-minimax on the interval named beside them, in ascending order of their arguments' powers. */
#ifndef CASTIRON_MATH64_H
#define CASTIRON_MATH64_H

#include "scalar.h"

#define CI_ROUNDER 0x1.8p52 /* adding it leaves the nearest integer in the last bits */
#define CI_LN2_HIGH 0x1.62e42fefa4000p-1  /* few bits: its product with an exponent is exact */
#define CI_LN2_LOW -0x1.8432a1b0e2634p-43
#define CI_HALF_PI 0x1.921fb54442d18p+0
#define CI_HALF_PI_LOW 0x1.1a62633145c07p-54

#define CI_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* c[0] + c[1]*x + … by Horner's rule; unrolled, since n is a constant. */
CI_INLINE double ci_polynomial_f64(double x, const double *c, int n)
{
    double sum = c[n - 1];
    for (int i = n - 2; i >= 0; i--) sum = sum * x + c[i];
    return sum;
}
#define CI_POLYNOMIAL_F64(x, ...) ci_polynomial_f64(x, (const double[]){__VA_ARGS__}, CI_COUNT(((const double[]){__VA_ARGS__})))

/* Exponentials ---------------------------------------------------------------------------------------------------------- */

/* 2^n for an integer n in [-1022, 1023]. */
CI_INLINE double ci_exp2_of_integer_f64(double n) { return ci_of_bits_f64(ci_bits_f64(n + (CI_ROUNDER + 1023)) << 52); }

/* x * 2^n in two steps: rounds once, to subnormals and infinity too. */
CI_INLINE double ci_scale_f64(double x, double n)
{
    double half = (n * 0.5 + CI_ROUNDER) - CI_ROUNDER;
    return x * ci_exp2_of_integer_f64(half) * ci_exp2_of_integer_f64(n - half);
}

/* exp(x + low) = (1 + result) * 2^n, |result| < 0.42. The clamp loses nothing: cosh overflows at 710.48. */
CI_INLINE double ci_exp_parts_f64(double x, double low, double *n)
{
    x = x > 711 ? 711 : x;
    x = x < -746 ? -746 : x;
    *n = (x * 0x1.71547652b82fep+0 + CI_ROUNDER) - CI_ROUNDER;
    double r = ((x - *n * CI_LN2_HIGH) - *n * CI_LN2_LOW) + low;
    double q = CI_POLYNOMIAL_F64(r, 0x1p-1, 0x1.5555555555556p-3, 0x1.5555555553d37p-5, 0x1.11111111109a6p-7, /* ±ln2/2 */
                                 0x1.6c16c1789d1d7p-10, 0x1.a01a01a7cebcdp-13, 0x1.a019b8ca26fcfp-16, 0x1.71de0d85293b8p-19,
                                 0x1.2891d4ffbb0f9p-22, 0x1.af390ba7e6f47p-26);
    return r + r * r * q;
}

CI_INLINE double ci_exp_f64(double x)
{
    double n, q = ci_exp_parts_f64(x, 0, &n);
    return ci_scale_f64(1 + q, n);
}

/* exp(x) - 1 for x in [0, 44] */
CI_INLINE double ci_expm1_positive_f64(double x)
{
    double n, q = ci_exp_parts_f64(x, 0, &n), power = ci_exp2_of_integer_f64(n);
    return power * q + (power - 1);
}

/* Both tails keep their accuracy: exp(-|x|) never overflows. Error below 2 ulp. */
CI_INLINE double ci_sigmoid_f64(double x)
{
    double e = ci_exp_f64(-ci_abs_f64(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* Error below 2 ulp, as that of sinh and cosh. */
CI_INLINE double ci_tanh_f64(double x)
{
    double size = ci_abs_f64(x);
    double e = ci_expm1_positive_f64(size > 22 ? 44 : 2 * size);
    return ci_copysign_f64(e / (e + 2), x);
}

CI_INLINE double ci_sinh_f64(double x)
{
    double size = ci_abs_f64(x), n, q = ci_exp_parts_f64(size, 0, &n);
    double half = ci_scale_f64(1 + q, n - 1);
    double e = ci_expm1_positive_f64(size < 1 ? size : 1);
    double small = (e + e / (e + 1)) * 0.5;
    return ci_copysign_f64(size < 1 ? small : half - 0.25 / half, x);
}

CI_INLINE double ci_cosh_f64(double x)
{
    double n, q = ci_exp_parts_f64(ci_abs_f64(x), 0, &n), half = ci_scale_f64(1 + q, n - 1);
    return half + 0.25 / half;
}

/* Logarithms ------------------------------------------------------------------------------------------------------------ */

/* x = m * 2^n with m in [sqrt(1/2), sqrt(2)), x positive and finite. */
CI_INLINE double ci_log_parts_f64(double x, double *n)
{
    const uint64_t root_half = 0x3fe6a09e667f3bcd, bias = (uint64_t)1023 << 52;
    double normal = x < 0x1p-1022 ? x * 0x1p54 : x;
    uint64_t above = ci_bits_f64(normal) - root_half + bias;
    double biased = ci_of_bits_f64(above >> 52 | ci_bits_f64(0x1p52));
    *n = biased - (0x1p52 + 1023) - (x < 0x1p-1022 ? 54 : 0);
    return ci_of_bits_f64((above & (((uint64_t)1 << 52) - 1)) + root_half);
}

/* What log gives where x is not positive and finite. */
CI_INLINE double ci_log_ends_f64(double x, double log)
{
    double end = x == 0 ? -CI_INFINITY : CI_NAN;
    return x > 0 ? (x == CI_INFINITY ? x : log) : end;
}

CI_INLINE double ci_log_f64(double x)
{
    double n, f = ci_log_parts_f64(x, &n) - 1, s = f / (2 + f), z = s * s, half_square = 0.5 * f * f;
    double rest = z * CI_POLYNOMIAL_F64(z, 0x1.5555555555555p-1, 0x1.9999999999a38p-2, /* [0, 0.0295] */
                                        0x1.2492492476cccp-2, 0x1.c71c720159177p-3, 0x1.745cf9048dd95p-3, 0x1.3b1c355a8f7a2p-3,
                                        0x1.0fbe95d71602p-3, 0x1.0c039c49989c6p-3);
    double log = n * CI_LN2_HIGH - ((half_square - (s * (half_square + rest) + n * CI_LN2_LOW)) - f);
    return ci_log_ends_f64(x, log);
}

/* log(1 + x) for x > -1: what 1 + x has lost comes back as a correction. */
CI_INLINE double ci_log1p_f64(double x)
{
    double sum = 1 + x, lost = sum > 2 ? 1 - (sum - x) : x - (sum - 1);
    return ci_log_f64(sum) + (sum < CI_INFINITY ? lost / sum : 0);
}

/* Errors of asinh, acosh and atanh are below 2 ulp. */
CI_INLINE double ci_asinh_f64(double x)
{
    double size = ci_abs_f64(x), far = size > 0x1p28 ? 1 : 0, near = far ? 1 : size, square = near * near;
    double sum = near + square / (1 + ci_sqrt_f64(1 + square));
    double result = far ? ci_log_f64(size) + 0x1.62e42fefa39efp-1 : ci_log1p_f64(sum);
    return ci_copysign_f64(result, x);
}

CI_INLINE double ci_acosh_f64(double x)
{
    double above = x - 1, root = ci_sqrt_f64(above * (2 + above));
    double result = x > 0x1p28 ? ci_log_f64(x) + 0x1.62e42fefa39efp-1 : ci_log1p_f64(above + root);
    return x < 1 ? CI_NAN : result;
}

CI_INLINE double ci_atanh_f64(double x)
{
    double size = ci_abs_f64(x), twice = 2 * size, result = 0.5 * ci_log1p_f64(twice + twice * size / (1 - size));
    return ci_copysign_f64(size > 1 ? CI_NAN : result, x);
}

/* The error function ---------------------------------------------------------------------------------------------------- */

CI_INLINE double ci_erf_f64(double x)
{
    double size = ci_abs_f64(x), square = x * x;
    double small = size + size * CI_POLYNOMIAL_F64(square, 0x1.06eba8214db69p-3, -0x1.812746b0379e6p-2, /* [0, 1] */
                                                   0x1.ce2f21a042b3p-4, -0x1.b82ce31284ep-6, 0x1.565bcd0dbaa38p-8,
                                                   -0x1.c02db3dac435fp-11, 0x1.f9a321d5b8e1ep-14, -0x1.f4d1e3183f7aep-17,
                                                   0x1.b9df224ca4b97p-20, -0x1.5f1ecb6f0764cp-23, 0x1.f7b4bf3b13964p-27,
                                                   -0x1.389d4f2641625p-30, 0x1.05ffd737fb32ep-34);
    double t = size > 6 ? 6 : size, n, q = ci_exp_parts_f64(-t * t, 0, &n);
    double scaled = CI_POLYNOMIAL_F64((t - 3) / (t + 3), /* exp(t*t) * erfc(t), t in [1, 6] */
                                      0x1.6e9827d229d2dp-3, -0x1.4e102b9cf8513p-2, 0x1.f6ff204105975p-3, -0x1.336ffbef08b0fp-3,
                                      0x1.258b13b017985p-4, -0x1.8fa58eb5e306bp-6, 0x1.17c838eeb5b45p-8, 0x1.73101ea5e281ap-11,
                                      -0x1.39084c70651afp-11, 0x1.7ba0cacc11e6cp-15, 0x1.0cac32e6a0233p-14,
                                      -0x1.af7cb88efaaf8p-17, -0x1.0bae4d56ed7fep-17, 0x1.1b88f2616d326p-19,
                                      0x1.4e542dadc6dfdp-20, -0x1.21a1caba35926p-22, -0x1.b570796264701p-23);
    double big = 1 - (1 + q) * ci_exp2_of_integer_f64(n) * scaled;
    return ci_copysign_f64(size < 1 ? small : big, x);
}

/* Powers ---------------------------------------------------------------------------------------------------------------- */

/* What pow gives by C's rules (annex F) where its power exp(y log|x|) does not say it. */
CI_INLINE double ci_pow_ends_f64(double x, double y, double power)
{
    double size = ci_abs_f64(x), half = y * 0.5;
    int whole = ci_floor_f64(y) == y, odd = whole & (ci_floor_f64(half) != half);
    double grows = (size > 1) == (y > 0) ? CI_INFINITY : 0;
    power = ((size == 0) | (size == CI_INFINITY) | (ci_abs_f64(y) == CI_INFINITY)) ? grows : power;
    power = size == 1 ? 1 : power;
    power = ((x < 0) & (size < CI_INFINITY) & !whole) ? CI_NAN : power;
    power = odd ? ci_copysign_f64(power, x) : power;
    power = ((x != x) | (y != y)) ? x + y : power;
    return ((x == 1) | (y == 0)) ? 1 : power;
}

/* The logarithm of a positive x as high + low, good to about 2^-64 of it. */
CI_STATIC double ci_log_pair_f64(double x, double *low)
{
    double n, f = ci_log_parts_f64(x, &n) - 1, d = 2 + f, d_low = f - (d - 2);
    double s = f / d, product = s * d; /* log(1 + f) = 2 atanh(s + s_low) */
    double s_low = (((f - product) - ci_product_error(s, d, product)) - s * d_low) / d;
    double z = s * s, z_low = ci_product_error(s, s, z) + 2 * s * s_low;
    double rest = z * CI_POLYNOMIAL_F64(z, 0x1.999999999999ap-2, 0x1.2492492492491p-2, 0x1.c71c71c71cfd7p-3, /* [0, 0.0295] */
                                        0x1.745d17451376fp-3, 0x1.3b13b1bc64d9dp-3, 0x1.1110dfb2433c1p-3, 0x1.e1f7f8b33879dp-4,
                                        0x1.ac4ab12e9f86p-4, 0x1.b8d2ce0baf5e8p-4);
    const double third = 0x1.5555555555555p-1, third_low = 0x1.5555555555555p-55; /* of 2 */
    double r = third + rest, r_low = (rest - (r - third)) + third_low;
    double cube = z * s, cube_low = ci_product_error(z, s, cube) + (z * s_low + z_low * s);
    double tail = cube * r, tail_low = ci_product_error(cube, r, tail) + (cube * r_low + cube_low * r);
    double a = n * CI_LN2_HIGH, b = a + 2 * s, b_low = n != 0 ? (a - b) + 2 * s : 0;
    double high = b + tail;
    *low = ((b - high) + tail) + (b_low + 2 * s_low + tail_low + n * CI_LN2_LOW);
    return high;
}

/* Error below 1.1 ulp. */
CI_STATIC double ci_pow_f64(double x, double y)
{
    double low, high = ci_log_pair_f64(ci_abs_f64(x), &low), bounded = y;
    bounded = bounded > 0x1p65 ? 0x1p65 : bounded; /* beyond, every x but 1 over- or underflows anyway */
    bounded = bounded < -0x1p65 ? -0x1p65 : bounded;
    double product = bounded * high, n;
    low = ci_product_error(bounded, high, product) + bounded * low;
    double q = ci_exp_parts_f64(product, ci_abs_f64(product) < 1024 ? low : 0, &n);
    return ci_pow_ends_f64(x, y, ci_scale_f64(1 + q, n));
}

#include "trig64.h"

#endif
