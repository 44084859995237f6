/* Loops over the runtime's scalar functions, one exported symbol each: what test_math.py loads. */
#include "math.h"
#include "scalar.h"

#define EXPORT __attribute__((visibility("default")))

#define UNARY(name, s, T)                                                       \
    EXPORT void run_##name##_##s(const T *restrict x, T *restrict y, int64_t n) \
    {                                                                           \
        for (int64_t i = 0; i < n; i++) y[i] = ci_##name##_##s(x[i]);           \
    }
#define BINARY(name, s, T)                                                                           \
    EXPORT void run_##name##_##s(const T *restrict x, const T *restrict z, T *restrict y, int64_t n) \
    {                                                                                                \
        for (int64_t i = 0; i < n; i++) y[i] = ci_##name##_##s(x[i], z[i]);                          \
    }
#define ROUNDING(to)                                                                  \
    EXPORT void run_round_##to(const float *restrict x, float *restrict y, int64_t n) \
    {                                                                                 \
        for (int64_t i = 0; i < n; i++) y[i] = ci_round_##to(x[i]);                   \
    }
#define TERNARY(name, s, T)                                                                                               \
    EXPORT void run_##name##_##s(const T *restrict x, const T *restrict z, const T *restrict w, T *restrict y, int64_t n) \
    {                                                                                                                     \
        for (int64_t i = 0; i < n; i++) y[i] = ci_##name##_##s(x[i], z[i], w[i]);                                         \
    }

UNARY(exp, f32, float)
UNARY(log, f32, float)
UNARY(erf, f32, float)
UNARY(tanh, f32, float)
UNARY(sigmoid, f32, float)
UNARY(sin, f32, float)
UNARY(cos, f32, float)
UNARY(tan, f32, float)
UNARY(asin, f32, float)
UNARY(acos, f32, float)
UNARY(atan, f32, float)
UNARY(sinh, f32, float)
UNARY(cosh, f32, float)
UNARY(asinh, f32, float)
UNARY(acosh, f32, float)
UNARY(atanh, f32, float)
UNARY(sqrt, f32, float)
UNARY(floor, f32, float)
UNARY(ceil, f32, float)
UNARY(round, f32, float)
UNARY(trunc, f32, float)
UNARY(sign, f32, float)
ROUNDING(f16)
ROUNDING(bf16)
BINARY(pow, f32, float)
BINARY(min, f32, float)
BINARY(max, f32, float)
BINARY(fmod, f32, float)
BINARY(mod, f32, float)
TERNARY(fma, f32, float)

#define DOUBLES(of)                                                                                                             \
    of(exp) of(log) of(erf) of(tanh) of(sigmoid) of(sin) of(cos) of(tan) of(asin) of(acos) of(atan) of(sinh) of(cosh) of(asinh) \
        of(acosh) of(atanh) of(sqrt) of(floor) of(ceil) of(round) of(trunc) of(sign)
#define UNARY_F64(name) UNARY(name, f64, double)
DOUBLES(UNARY_F64)
BINARY(pow, f64, double)
BINARY(min, f64, double)
BINARY(max, f64, double)
BINARY(fmod, f64, double)
BINARY(mod, f64, double)
TERNARY(fma, f64, double)

#define INTEGER(s, T)      \
    UNARY(neg, s, T)       \
    UNARY(abs, s, T)       \
    UNARY(sign, s, T)      \
    BINARY(min, s, T)      \
    BINARY(max, s, T)      \
    BINARY(div, s, T)      \
    BINARY(floordiv, s, T) \
    BINARY(mod, s, T) BINARY(fmod, s, T) BINARY(shl, s, T) BINARY(shr, s, T) BINARY(pow, s, T) TERNARY(fma, s, T)
INTEGER(i8, int8_t)
INTEGER(i16, int16_t)
INTEGER(i32, int32_t)
INTEGER(i64, int64_t)
INTEGER(u8, uint8_t)
INTEGER(u16, uint16_t)
INTEGER(u32, uint32_t)
INTEGER(u64, uint64_t)

#ifdef CI_MAIN /* for machines that are emulated: floats from stdin, all unary functions of them to stdout */
#include <stdio.h>

typedef void run(const float *restrict, float *restrict, int64_t);

int main(void)
{
    static run *const runs[] = {run_exp_f32,   run_log_f32,   run_erf_f32,   run_tanh_f32,  run_sigmoid_f32, run_sin_f32,
                                run_cos_f32,   run_tan_f32,   run_asin_f32,  run_acos_f32,  run_atan_f32,    run_sinh_f32,
                                run_cosh_f32,  run_asinh_f32, run_acosh_f32, run_atanh_f32, run_floor_f32,   run_ceil_f32,
                                run_round_f32, run_trunc_f32, run_round_f16, run_round_bf16};
    static float x[1 << 16], y[1 << 16];
    size_t n = fread(x, sizeof *x, sizeof x / sizeof *x, stdin);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        runs[i](x, y, (int64_t)n);
        if (fwrite(y, sizeof *y, n, stdout) != n) return 1;
    }
    return 0;
}
#endif
