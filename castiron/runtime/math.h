/* Mathematical functions of floats (those of doubles are in math64.h, which this includes). At most 2 ulp from the exact
   value for every float, subnormals included; the errors beside functions are the largest among four million floats, evenly
   spread over all 2^32. Special values are those of C's libm. Free of branches and tables: a loop `y[i] = ci_exp_f32(x[i])` vectorizes.

   What models spend time in (exp, log, tanh, erf, sigmoid) is computed in float; the others in double and rounded.
   Include it by its quoted name: the system's <math.h> is another file. */
#ifndef CASTIRON_MATH_H
#define CASTIRON_MATH_H

#include "math64.h"
#include "scalar.h"

#define CI_ROUNDER_F32 0x1.8p23f /* adding it leaves the nearest integer in the last bits */

/* c[0] + c[1]*x + … by Horner's rule, fused; unrolled, since n is a constant. */
CI_INLINE float ci_polynomial_f32(float x, const float *c, int n)
{
    float sum = c[n - 1];
    for (int i = n - 2; i >= 0; i--) sum = ci_fma_f32(sum, x, c[i]);
    return sum;
}
#define CI_POLYNOMIAL_F32(x, ...) ci_polynomial_f32(x, (const float[]){__VA_ARGS__}, CI_COUNT(((const float[]){__VA_ARGS__})))

/* Exponentials ---------------------------------------------------------------------------------------------------------- */

/* 2^n for an integer n in [-126, 127]. */
CI_INLINE float ci_exp2_of_integer_f32(float n) { return ci_of_bits_f32(ci_bits_f32(n + (CI_ROUNDER_F32 + 127)) << 23); }

/* exp(x) = result * 2^n, result in about [0.7, 1.42]; x in [-105, 89]. */
CI_INLINE float ci_exp_parts_f32(float x, float *n)
{
    *n = ci_fma_f32(x, 0x1.715476p+0f, CI_ROUNDER_F32) - CI_ROUNDER_F32;
    float r = ci_fma_f32(*n, -0x1.7f7d1cp-20f, ci_fma_f32(*n, -0x1.62e4p-1f, x)); /* x - n ln 2 */
    return CI_POLYNOMIAL_F32(r, 1, 1, 0x1p-1f, 0x1.5554dcp-3f, 0x1.555518p-5f, 0x1.120be2p-7f, 0x1.6d117cp-10f);
}

/* 0.87 ulp */
CI_INLINE float ci_exp_f32(float x)
{
    x = x > 89 ? 89 : x; /* overflows all the same */
    x = x < -105 ? -105 : x;
    float n, result = ci_exp_parts_f32(x, &n);
    float half = ci_fma_f32(n, 0.5f, CI_ROUNDER_F32) - CI_ROUNDER_F32; /* in two steps: subnormals round once */
    return result * ci_exp2_of_integer_f32(half) * ci_exp2_of_integer_f32(n - half);
}

/* exp of an x for which neither it nor its scale is subnormal: [-87, 88] */
CI_INLINE float ci_exp_bounded_f32(float x)
{
    float n, result = ci_exp_parts_f32(x, &n);
    return result * ci_exp2_of_integer_f32(n);
}

/* Both tails keep their accuracy: exp(-|x|) never overflows. 1.64 ulp */
CI_INLINE float ci_sigmoid_f32(float x)
{
    float e = ci_exp_f32(-ci_abs_f32(x));
    float tail = ci_fma_f32(-e, e / (1 + e), e); /* = e / (1 + e) without the rounding of 1 + e */
    return x < 0 ? tail : 1 - tail;
}

/* 1.25 ulp */
CI_INLINE float ci_tanh_f32(float x)
{
    float size = ci_abs_f32(x), square = x * x, bounded = size > 10 ? 10 : size;
    float small = ci_fma_f32(size,
                             square * CI_POLYNOMIAL_F32(square, -0x1.555552p-2f, 0x1.110d22p-3f, /* [0, 0.65^2] */
                                                        -0x1.b8ec9ap-5f, 0x1.55fda4p-6f, -0x1.8437a2p-8f),
                             size);
    float big = 1 - 2 / (1 + ci_exp_bounded_f32(2 * bounded));
    return ci_copysign_f32(size < 0.625f ? small : big, x);
}

/* 1.00 ulp */
CI_INLINE float ci_erf_f32(float x)
{
    float size = ci_abs_f32(x), square = x * x, t = size > 4 ? 4 : size;
    float small = ci_fma_f32(size,
                             CI_POLYNOMIAL_F32(square, 0x1.06eba8p-3f, -0x1.81273ep-2f, /* [0, 1] */
                                               0x1.ce2d1p-4f, -0x1.b7fabap-6f, 0x1.54127p-8f, -0x1.a45088p-11f, 0x1.4a569p-14f),
                             size);
    float log_erfc =
        CI_POLYNOMIAL_F32(t, 0x1.59b11ep-12f, -0x1.2159a4p+0f, -0x1.43752ap-1f, /* [0.98, 3.95] */
                          -0x1.c32ebap-4f, 0x1.b195f8p-6f, -0x1.38f5c4p-8f, 0x1.3abf1cp-11f, -0x1.86066ap-15f, 0x1.bda53cp-20f);
    float big = 1 - ci_exp_bounded_f32(log_erfc);
    return ci_copysign_f32(size < 1 ? small : big, x);
}

/* Logarithm ------------------------------------------------------------------------------------------------------------- */

/* 0.76 ulp */
CI_INLINE float ci_log_f32(float x)
{
    const uint32_t root_half = 0x3f3504f3, bias = (uint32_t)127 << 23;
    float normal = x < 0x1p-126f ? x * 0x1p23f : x; /* = m * 2^n with m in [sqrt(1/2), sqrt(2)) */
    uint32_t above = ci_bits_f32(normal) - root_half + bias;
    float n = (float)((int32_t)(above >> 23) - (x < 0x1p-126f ? 127 + 23 : 127));
    float f = ci_of_bits_f32((above & 0x7fffff) + root_half) - 1, square = f * f;
    float rest =
        f * CI_POLYNOMIAL_F32(f, 0x1.555554p-2f, -0x1.fffffcp-3f, 0x1.999d5ap-3f, /* [-0.293, 0.415] */
                              -0x1.555b4ap-3f, 0x1.23d21ap-3f, -0x1.fcf4c6p-4f, 0x1.dea282p-4f, -0x1.d635bcp-4f, 0x1.1d8ea6p-4f);
    rest = ci_fma_f32(rest, square, n * 0x1.7f7d1cp-20f);
    float log = ci_fma_f32(n, 0x1.62e4p-1f, f + ci_fma_f32(-0.5f, square, rest));
    float end = x == 0 ? -CI_INFINITY : CI_NAN;
    return x > 0 ? (x == CI_INFINITY ? x : log) : end;
}

/* Trigonometry: 0.52 ulp ------------------------------------------------------------------------------------------------ */

/* x = (quarter + result) * pi/2 modulo 2 pi for x >= 0, |result| <= 1/2, for every float. 2/pi is cut into pieces of 29
   bits, whose products with a float are exact in double; four of them matter: those before give multiples of four turns,
   those after less than 2^-60. Sums are exact where they cancel, by the distance of the pieces. */
CI_INLINE double ci_quarter_f32(double x, double *quarter)
{
    const double w0 = 0x145f306dp-29, w1 = 0x19391054p-58, w2 = 0x14fe13abp-87, w3 = 0x1d1f534dp-116, w4 = 0x1b81b6c5p-145,
                 w5 = 0x05664f10p-174, w6 = 0x1c820ff2p-203;
    int a = x >= 0x1p54, b = x >= 0x1p83, c = x >= 0x1p112;
    double first = ci_modulo_4(x * (c ? w3 : b ? w2 : a ? w1 : w0)), second = ci_modulo_4(x * (c ? w4 : b ? w3 : a ? w2 : w1));
    double third = x * (c ? w5 : b ? w4 : a ? w3 : w2), fourth = x * (c ? w6 : b ? w5 : a ? w4 : w3);
    *quarter = ci_round_f64(first + second + third);
    return (((first - *quarter) + second) + third) + fourth;
}

/* Of an angle in [-pi/4, pi/4], to about 2^-33. */
CI_INLINE double ci_sin_quarter_f32(double x)
{
    double z = x * x;
    return x +
           x * z *
               CI_POLYNOMIAL_F64(z, -0x1.555555545dd83p-3, 0x1.11110deeb33b2p-7, -0x1.a013a6edc8f34p-13, 0x1.6dbdd26f56d2dp-19);
}

CI_INLINE double ci_cos_quarter_f32(double x)
{
    double z = x * x;
    return 1 - 0.5 * z + z * z * CI_POLYNOMIAL_F64(z, 0x1.555554414e3a6p-5, -0x1.6c12d2887c343p-10, 0x1.9bd86445fb99bp-16);
}

/* sin(x + shift * pi/2), x >= 0 */
CI_INLINE float ci_sine_f32(double x, uint32_t shift)
{
    double quarter, angle = ci_quarter_f32(x, &quarter) * CI_HALF_PI;
    uint32_t turn = (uint32_t)ci_bits_f64(quarter + CI_ROUNDER) + shift;
    double value = turn & 1 ? ci_cos_quarter_f32(angle) : ci_sin_quarter_f32(angle);
    return (float)(turn & 2 ? -value : value);
}

CI_INLINE float ci_sin_f32(float x)
{
    uint32_t sign = ci_bits_f32(x) & 0x80000000;
    return ci_of_bits_f32(ci_bits_f32(ci_sine_f32(ci_abs_f32(x), 0)) ^ sign);
}

CI_INLINE float ci_cos_f32(float x) { return ci_sine_f32(ci_abs_f32(x), 1); }

CI_INLINE float ci_tan_f32(float x)
{
    double quarter, angle = ci_quarter_f32(ci_abs_f32(x), &quarter) * CI_HALF_PI;
    double sine = ci_sin_quarter_f32(angle), cosine = ci_cos_quarter_f32(angle);
    int odd = (int)(ci_bits_f64(quarter + CI_ROUNDER) & 1);
    float tangent = (float)((odd ? -cosine : sine) / (odd ? sine : cosine));
    return ci_of_bits_f32(ci_bits_f32(tangent) ^ (ci_bits_f32(x) & 0x80000000));
}

/* Through double: 0.50 ulp ---------------------------------------------------------------------------------------------- */

#define CI_THROUGH_F64(name) \
    CI_INLINE float ci_##name##_f32(float x) { return (float)ci_##name##_f64(x); }
CI_THROUGH_F64(asin)
CI_THROUGH_F64(acos)
CI_THROUGH_F64(atan)
CI_THROUGH_F64(sinh)
CI_THROUGH_F64(cosh)
CI_THROUGH_F64(asinh)
CI_THROUGH_F64(acosh)
CI_THROUGH_F64(atanh)

CI_INLINE float ci_pow_f32(float x, float y)
{
    double power = ci_exp_f64(y * ci_log_f64(ci_abs_f32(x)));
    return (float)ci_pow_ends_f64(x, y, power);
}

#endif
