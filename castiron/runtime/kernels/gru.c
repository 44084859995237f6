/* GRU with ONNX's gates z r h: h = (1 - z) * g + z * h, where r weighs h before the recurrent product of g,
   or (linear_before_reset) the product itself. */
#include "recurrent.h"

#ifdef CI_LADDER
/* The plain form: one step of one sequence. x: its gates, h: [hidden], updated; work: 3 * hidden. */
void CI(gru_plain)(const ci_recurrent *p, const float *x, double *h, double *work)
{
    const int64_t hidden = p->hidden;
    double *z = work, *r = work + hidden, *weighed = work + 2 * hidden;
    for (int64_t j = 0; j < hidden; j++) {
        z[j] = ci_plain_activation(p->activations[0], p->clip, x[j] + ci_plain_product(p, j, h));
        r[j] = ci_plain_activation(p->activations[0], p->clip, x[hidden + j] + ci_plain_product(p, hidden + j, h));
        weighed[j] = r[j] * h[j];
    }
    for (int64_t j = 0; j < hidden; j++) {
        const double bias = p->recurrent_bias ? p->recurrent_bias[j] : 0;
        r[j] = p->linear_before_reset ? r[j] * (ci_plain_product(p, 2 * hidden + j, h) + bias)
                                      : ci_plain_product(p, 2 * hidden + j, weighed);
    }
    for (int64_t j = 0; j < hidden; j++) {
        const double g = ci_plain_activation(p->activations[1], p->clip, x[2 * hidden + j] + r[j]);
        h[j] = (1 - z[j]) * g + z[j] * h[j];
    }
}
#endif

/* The gates z and r of one sequence, from products to activated. */
static void ci_gru_gates(const ci_recurrent *p, const float *restrict x, float *restrict z)
{
    for (int64_t j = 0; j < 2 * p->hidden; j++) z[j] += x[j];
    ci_activate(p->activations[0], p->clip, z, 2 * p->hidden);
}

/* The new h of one sequence; product: z, r (both activated), and the recurrent part of g. */
static void ci_gru_cell(const ci_recurrent *p, const float *restrict x, float *restrict product, float *restrict h)
{
    const int64_t hidden = p->hidden;
    const float *z = product, *r = product + hidden;
    float *g = product + 2 * hidden;
    if (p->linear_before_reset)
        for (int64_t j = 0; j < hidden; j++) g[j] = r[j] * (p->recurrent_bias ? g[j] + p->recurrent_bias[j] : g[j]);
    for (int64_t j = 0; j < hidden; j++) g[j] += x[2 * hidden + j];
    ci_activate(p->activations[1], p->clip, g, hidden);
    for (int64_t j = 0; j < hidden; j++) h[j] = (1 - z[j]) * g[j] + z[j] * h[j];
}

static void ci_gru_step(const ci_recurrent *p, const ci_state *state, int64_t step)
{
    const int64_t hidden = p->hidden, width = 3 * hidden;
    float *weighed = state->c;
    ci_recurrent_product(p, state, state->h, 0, p->linear_before_reset ? width : 2 * hidden);
    for (int64_t n = 0; n < p->batch; n++) {
        const int64_t time = ci_time(p, n, step);
        float *z = state->product + n * width;
        if (time >= 0) ci_gru_gates(p, p->gates + (time * p->batch + n) * width, z);
        for (int64_t j = 0; !p->linear_before_reset && j < hidden; j++)
            weighed[n * hidden + j] = z[hidden + j] * state->h[n * hidden + j];
    }
    if (!p->linear_before_reset) ci_recurrent_product(p, state, weighed, 2 * hidden, width);
    for (int64_t n = 0; n < p->batch; n++) {
        const int64_t time = ci_time(p, n, step);
        if (time < 0) continue;
        float *h = state->h + n * hidden;
        ci_gru_cell(p, p->gates + (time * p->batch + n) * width, state->product + n * width, h);
        if (p->y) memcpy(ci_state_out(p, time, n), h, hidden * sizeof *h);
    }
}

void CI(gru)(const ci_run *run, const ci_recurrent *p)
{
    (void)run;
    const ci_state state = ci_recurrent_begin(p, 3);
    for (int64_t step = 0; step < p->steps; step++) ci_gru_step(p, &state, step);
    ci_recurrent_end(p, &state);
}
