/* Trigonometric functions of doubles, right for every argument; see math64.h, which includes this. Errors: sin and
   cos below 1 ulp; tan, asin, acos and atan below 2 ulp. */
#ifndef CASTIRON_TRIG64_H
#define CASTIRON_TRIG64_H

#include "math64.h"

/* 2/pi = sum of word i * 2^(-26 (i + 1)) */
static const uint32_t ci_two_over_pi[48] __attribute__((unused)) = {
    42722829, 48555073, 21659401, 56087029, 13858563, 28715353, 38736100, 4324945,  26128250, 62674459, 29957006, 37899730,
    58726692, 49193117, 6588223,  35515164, 46442140, 65964067, 24988590, 54822121, 41009306, 54917092, 5137525,  37323603,
    15192690, 4585659,  58608142, 52426903, 67074070, 25231090, 63202006, 34237727, 28629499, 15891632, 40752081, 37709470,
    25143477, 55737260, 33225084, 24853767, 15195689, 19476134, 50255852, 18845021, 2185228,  50622407, 47901436, 13614112};

/* x modulo 4, in [-2, 2], exactly. */
CI_INLINE double ci_modulo_4(double x) { return x - 4 * ci_round_f64(x * 0.25); }

/* x = (quarter + r) * pi/2 modulo 2 pi for x >= 0: gives r * pi/2 as result + low, |r| <= 1/2, and quarter modulo 4.
   Halves of x times 26-bit words of 2/pi are exact; words whose products are multiples of 4 turns are left out. */
CI_STATIC double ci_quarter_f64(double x, double *low, int *quarter)
{
    int exponent = (int)(ci_bits_f64(x) >> 52) - 1023;
    int first = exponent > 80 && x < CI_INFINITY ? (exponent - 54) / 26 : 0;
    x *= ci_of_bits_f64((uint64_t)(1023 - 26 * first) << 52);
    double x_high = ci_of_bits_f64(ci_bits_f64(x) & ~(((uint64_t)1 << 27) - 1)), x_low = x - x_high, unit = 1;
    double sum = 0, rest = 0; /* the turn is sum + rest */
    for (int i = 0; i < 8; i++) {
        unit *= 0x1p-26;
        double word = ci_two_over_pi[first + i];
        double terms[2] = {ci_modulo_4(x_high * unit * word), ci_modulo_4(x_low * unit * word)};
        for (int half = 0; half < 2; half++) {
            double next = sum + terms[half], of_term = next - sum;
            rest += (sum - (next - of_term)) + (terms[half] - of_term);
            sum = next;
        }
        sum = ci_modulo_4(sum);
    }
    double whole = ci_round_f64(sum + rest), turn = sum - whole, r = turn + rest, r_low = (turn - r) + rest;
    double angle = r * CI_HALF_PI;
    *low = ci_product_error(r, CI_HALF_PI, angle) + (r * CI_HALF_PI_LOW + r_low * CI_HALF_PI);
    *quarter = x < CI_INFINITY ? (int)whole & 3 : 0;
    return angle;
}

/* Of an angle in [-pi/4, pi/4]. */
CI_INLINE double ci_sin_quarter_f64(double x, double low)
{
    double z = x * x;
    double p = z * x *
               CI_POLYNOMIAL_F64(z, -0x1.5555555555555p-3, 0x1.111111111111p-7, -0x1.a01a01a019936p-13, 0x1.71de3a54605eep-19,
                                 -0x1.ae64541266378p-26, 0x1.61217ec01749dp-33, -0x1.ab17a79237a19p-41);
    return x + (p + low * (1 - 0.5 * z));
}

CI_INLINE double ci_cos_quarter_f64(double x, double low)
{
    double z = x * x, half = 0.5 * z, head = 1 - half;
    double p = z * z *
               CI_POLYNOMIAL_F64(z, 0x1.5555555555555p-5, -0x1.6c16c16c16966p-10, 0x1.a01a019f4e867p-16, -0x1.27e4fa17a41b4p-22,
                                 0x1.1eeb68b109173p-29, -0x1.907d7aebd5e3dp-37);
    return head + (((1 - head) - half) + (p - x * low));
}

/* sin(x + shift * pi/2), x >= 0 */
CI_STATIC double ci_sine_f64(double x, int shift)
{
    int quarter;
    double low, angle = ci_quarter_f64(x, &low, &quarter);
    double value = (quarter + shift) & 1 ? ci_cos_quarter_f64(angle, low) : ci_sin_quarter_f64(angle, low);
    return (quarter + shift) & 2 ? -value : value;
}

CI_STATIC double ci_sin_f64(double x)
{
    double size = ci_abs_f64(x), value = size < 0x1p-27 ? size : ci_sine_f64(size, 0);
    return x < 0 ? -value : x == 0 ? x : value;
}

CI_STATIC double ci_cos_f64(double x) { return ci_sine_f64(ci_abs_f64(x), 1); }

CI_STATIC double ci_tan_f64(double x)
{
    int quarter;
    double low, size = ci_abs_f64(x), angle = ci_quarter_f64(size, &low, &quarter);
    double sine = ci_sin_quarter_f64(angle, low), cosine = ci_cos_quarter_f64(angle, low);
    double value = quarter & 1 ? -cosine / sine : sine / cosine;
    value = size < 0x1p-27 ? size : value;
    return x < 0 ? -value : x == 0 ? x : value;
}

/* Inverses -------------------------------------------------------------------------------------------------------------- */

/* atan(|x|) = whole + atan(t): t = x, (x - 1) / (x + 1) or -1 / x, whichever is within tan(pi/8). */
CI_INLINE double ci_atan_f64(double x)
{
    double size = ci_abs_f64(x);
    int far = size > 0x1.3504f333f9de6p+1, middle = size > 0x1.a827999fcef32p-2;
    double t = (far ? -1 : middle ? size - 1 : size) / (far ? size : middle ? size + 1 : 1);
    double z = t * t;
    double p = t * z *
               CI_POLYNOMIAL_F64(z, -0x1.5555555555555p-2, 0x1.9999999999997p-3, -0x1.24924924920acp-3, 0x1.c71c71c6ddb13p-4,
                                 -0x1.745d173561aep-4, 0x1.3b13aea970e58p-4, -0x1.1110ceddb22d6p-4, 0x1.e1d8e89291b2fp-5,
                                 -0x1.aebd143c55a36p-5, 0x1.829c9a46152b5p-5, -0x1.503b1df32251dp-5, 0x1.f5ea203927f08p-6,
                                 -0x1.c807c7fd8901cp-7);
    double scale = far ? 1 : middle ? 0.5 : 0;
    return ci_copysign_f64(scale * CI_HALF_PI + (t + (p + scale * CI_HALF_PI_LOW)), x);
}

/* (asin(x) - x) / x for z = x*x in [0, 1/4] */
CI_INLINE double ci_asin_tail_f64(double z)
{
    return z * CI_POLYNOMIAL_F64(z, 0x1.5555555555556p-3, 0x1.3333333332ecap-4, 0x1.6db6db6e31f13p-5, 0x1.f1c71c1db0623p-6,
                                 0x1.6e8bb1c8209a2p-6, 0x1.1c4d35cf95421p-6, 0x1.c9cf07674736ap-7, 0x1.782651caa6547p-7,
                                 0x1.52420b04b37bep-7, 0x1.65a9c4dfcf8b2p-8, 0x1.1d189408314eep-6, -0x1.e6aaa8a0a04ccp-7,
                                 0x1.d72b2bc8155f8p-6);
}

/* Beyond 1/2: asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)); the same root serves acos. */
CI_INLINE double ci_asin_f64(double x)
{
    double size = ci_abs_f64(x), z = size > 0.5 ? (1 - size) * 0.5 : x * x, root = size > 0.5 ? ci_sqrt_f64(z) : size;
    double arc = root * ci_asin_tail_f64(z);
    double result = size > 0.5 ? CI_HALF_PI - (2 * root + (2 * arc - CI_HALF_PI_LOW)) : root + arc;
    return ci_copysign_f64(result, x);
}

CI_INLINE double ci_acos_f64(double x)
{
    double size = ci_abs_f64(x), z = size > 0.5 ? (1 - size) * 0.5 : x * x, root = size > 0.5 ? ci_sqrt_f64(z) : x;
    double arc = root * ci_asin_tail_f64(z);
    double near_zero = CI_HALF_PI - (root + (arc - CI_HALF_PI_LOW));
    double near_end = 2 * (root + arc);
    double far_end = 2 * (CI_HALF_PI - (root + (arc - CI_HALF_PI_LOW)));
    return size > 0.5 ? (x < 0 ? far_end : near_end) : near_zero;
}

#endif
