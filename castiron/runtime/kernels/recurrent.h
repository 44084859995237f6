/* What the recurrent kernels share: state, the product with the recurrent weights, activations.

   Sequences of one batch go through a step together; a sequence that has ended keeps its state and gives zeros. */
#ifndef CASTIRON_RECURRENT_H
#define CASTIRON_RECURRENT_H

#include <string.h>

#include "../math.h"
#include "tile.h"

/* In scratch: h and c (GRU: r * h) of [batch][hidden], the product h R^T of [batch][gates * hidden]. */
typedef struct ci_state {
    int64_t gates;
    float *h, *c, *product;
} ci_state;

/* Steps of sequence n. */
static inline int64_t ci_length(const ci_recurrent *p, int64_t n)
{
    return p->lengths ? ci_most(0, ci_least(p->lengths[n], p->steps)) : p->steps;
}

/* Where in time sequence n is at a step of the loop; -1: it has ended. */
static inline int64_t ci_time(const ci_recurrent *p, int64_t n, int64_t step)
{
    const int64_t length = ci_length(p, n);
    return step >= length ? -1 : p->reverse ? length - 1 - step : step;
}

static inline float *ci_state_out(const ci_recurrent *p, int64_t time, int64_t n)
{
    return p->y + ((time * p->directions + p->direction) * p->batch + n) * p->hidden;
}

static inline void ci_begin_state(float *to, const float *from, const ci_recurrent *p)
{
    const int64_t count = p->batch * p->hidden;
    if (from) memcpy(to, from + p->direction * count, count * sizeof *to);
    else memset(to, 0, count * sizeof *to);
}

static inline void ci_end_state(float *to, const float *from, const ci_recurrent *p)
{
    const int64_t count = p->batch * p->hidden;
    if (to) memcpy(to + p->direction * count, from, count * sizeof *to);
}

/* The state before the first step; y beyond the ends of the sequences becomes zero. */
static inline ci_state ci_recurrent_begin(const ci_recurrent *p, int64_t gates)
{
    const int64_t count = p->batch * p->hidden;
    const ci_state state = {gates, p->scratch, p->scratch + count, p->scratch + 2 * count};
    ci_begin_state(state.h, p->h0, p);
    ci_begin_state(state.c, p->c0, p);
    for (int64_t n = 0; p->y && n < p->batch; n++)
        for (int64_t time = ci_length(p, n); time < p->steps; time++)
            memset(ci_state_out(p, time, n), 0, p->hidden * sizeof(float));
    return state;
}

static inline void ci_recurrent_end(const ci_recurrent *p, const ci_state *state)
{
    ci_end_state(p->yh, state->h, p);
    ci_end_state(p->yc, state->c, p);
}

/* Columns `begin` to `end` of x R^T into the product; x: [batch][hidden]. A panel may hold columns of two gates. */
static inline void ci_recurrent_product(const ci_recurrent *p, const ci_state *state, const float *x, int64_t begin, int64_t end)
{
    _Alignas(64) float tile[CI_MOST_TILE_FLOATS];
    const ci_sums s = {1, 1, 1, p->hidden, 0, 0, 0, 1, p->batch, p->hidden, p->hidden * CI_PANEL};
    const int64_t group = ci_group(&CI(tiles), p->batch), stop = (end + CI_PANEL - 1) / CI_PANEL,
                  width = state->gates * p->hidden;
    for (int64_t first = begin / CI_PANEL; first < stop; first += group) {
        const int64_t panels = ci_least(group, stop - first), column = first * CI_PANEL;
        const int64_t from = ci_most(begin, column), to = ci_least(end, column + panels * CI_PANEL);
        for (int64_t row = 0; row < p->batch;) {
            const ci_done done = ci_next_tile(&CI(tiles), &s, x, p->recurrent + first * s.panel, panels, row, p->batch, tile);
            for (int64_t i = 0; i < done.rows; i++)
                memcpy(state->product + (row + i) * width + from, done.sums + i * done.stride + from - column,
                       (to - from) * sizeof(float));
            row += done.rows;
        }
    }
}

/* The functions are long, with software fma very long: one copy in the code, a vector's only where that is short. */
#if defined(__clang__) && !CI_FMA
#define CI_ONE_COPY _Pragma("clang loop vectorize(disable) unroll(disable)")
#elif defined(__clang__)
#define CI_ONE_COPY _Pragma("clang loop interleave(disable) unroll(disable)")
#else
#define CI_ONE_COPY _Pragma("GCC unroll 1")
#endif

#define CI_EACH(expression)           \
    CI_ONE_COPY                       \
    for (int64_t i = 0; i < n; i++) { \
        const float v = x[i];         \
        x[i] = (expression);          \
    }                                 \
    break

/* x = activation(x), clipped before. Comparisons are such that NaN stays. */
static void ci_activate(ci_activation_of f, float clip, float *restrict x, int64_t n)
{
    const float alpha = f.alpha, beta = f.beta;
    for (int64_t i = 0; clip > 0 && i < n; i++) x[i] = x[i] > clip ? clip : x[i] < -clip ? -clip : x[i];
    switch (f.kind) {
    case CI_SIGMOID: CI_EACH(ci_sigmoid_f32(v));
    case CI_TANH: CI_EACH(ci_tanh_f32(v));
    case CI_RELU: CI_EACH(v < 0 ? 0 : v);
    case CI_AFFINE: CI_EACH(alpha * v + beta);
    case CI_LEAKY_RELU: CI_EACH(v < 0 ? alpha * v : v);
    case CI_THRESHOLDED_RELU: CI_EACH(v < alpha ? 0 : v);
    case CI_SCALED_TANH: CI_EACH(alpha * ci_tanh_f32(beta * v));
    case CI_HARD_SIGMOID: CI_EACH(alpha * v + beta < 0 ? 0 : alpha * v + beta > 1 ? 1 : alpha * v + beta);
    case CI_ELU: CI_EACH(v < 0 ? alpha * (ci_exp_f32(v) - 1) : v);
    case CI_SOFTSIGN: CI_EACH(v / (1 + (v < 0 ? -v : v)));
    case CI_SOFTPLUS: CI_EACH((v < 0 ? 0 : v) + ci_log_f32(1 + ci_exp_f32(v < 0 ? v : -v)));
    }
}

#ifdef CI_LADDER
#include <math.h>

static inline double ci_plain_activation(ci_activation_of f, double clip, double x)
{
    const double alpha = f.alpha, beta = f.beta, v = clip > 0 ? fmin(fmax(x, -clip), clip) : x;
    switch (f.kind) {
    case CI_SIGMOID: return 1 / (1 + exp(-v));
    case CI_TANH: return tanh(v);
    case CI_RELU: return fmax(v, 0);
    case CI_AFFINE: return alpha * v + beta;
    case CI_LEAKY_RELU: return v < 0 ? alpha * v : v;
    case CI_THRESHOLDED_RELU: return v < alpha ? 0 : v;
    case CI_SCALED_TANH: return alpha * tanh(beta * v);
    case CI_HARD_SIGMOID: return fmin(fmax(alpha * v + beta, 0), 1);
    case CI_ELU: return v < 0 ? alpha * expm1(v) : v;
    case CI_SOFTSIGN: return v / (1 + fabs(v));
    default: return log1p(exp(v));
    }
}

/* Row `column` of R times h. */
static inline double ci_plain_product(const ci_recurrent *p, int64_t column, const double *h)
{
    const float *r = p->recurrent + column / CI_PANEL * p->hidden * CI_PANEL + column % CI_PANEL;
    double sum = 0;
    for (int64_t k = 0; k < p->hidden; k++) sum += h[k] * r[k * CI_PANEL];
    return sum;
}
#endif

#endif
