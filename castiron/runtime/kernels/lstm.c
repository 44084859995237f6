/* LSTM with ONNX's gates i o f c: c = f * c + i * g, h = o * tanh(c). */
#include "recurrent.h"

#ifdef CI_LADDER
/* The plain form: one step of one sequence. x: its gates, h and c: [hidden], updated. */
void CI(lstm_plain)(const ci_recurrent *p, const float *x, double *h, double *c, double *work)
{
    const int64_t hidden = p->hidden;
    const ci_activation_of *f = p->activations;
    for (int64_t j = 0; j < hidden; j++) {
        double z[4], peephole[3] = {0};
        for (int64_t gate = 0; gate < 4; gate++) z[gate] = x[gate * hidden + j] + ci_plain_product(p, gate * hidden + j, h);
        for (int64_t gate = 0; p->peephole && gate < 3; gate++) peephole[gate] = p->peephole[gate * hidden + j];
        const double i = ci_plain_activation(f[0], p->clip, z[0] + peephole[0] * c[j]);
        const double forget = ci_plain_activation(f[0], p->clip, z[2] + peephole[2] * c[j]);
        const double g = ci_plain_activation(f[1], p->clip, z[3]);
        c[j] = (p->input_forget ? 1 - i : forget) * c[j] + i * g;
        const double o = ci_plain_activation(f[0], p->clip, z[1] + peephole[1] * c[j]);
        work[j] = o * ci_plain_activation(f[2], 0, c[j]);
    }
    memcpy(h, work, hidden * sizeof *h);
}
#endif

static void ci_add_peephole(const ci_recurrent *p, int64_t gate, const float *restrict c, float *restrict z)
{
    const float *weight = p->peephole + gate * p->hidden;
    for (int64_t j = 0; j < p->hidden; j++) z[j] += weight[j] * c[j];
}

/* One sequence: z holds h R^T and becomes the gates. */
static void ci_lstm_cell(const ci_recurrent *p, const float *restrict x, float *restrict z, float *restrict h, float *restrict c)
{
    const int64_t hidden = p->hidden;
    float *i = z, *o = z + hidden, *f = z + 2 * hidden, *g = z + 3 * hidden;
    for (int64_t j = 0; j < 4 * hidden; j++) z[j] += x[j];
    if (p->peephole) {
        ci_add_peephole(p, 0, c, i);
        ci_add_peephole(p, 2, c, f);
    }
    ci_activate(p->activations[0], p->clip, i, hidden);
    ci_activate(p->activations[0], p->clip, f, hidden);
    ci_activate(p->activations[1], p->clip, g, hidden);
    for (int64_t j = 0; j < hidden; j++) h[j] = c[j] = (p->input_forget ? 1 - i[j] : f[j]) * c[j] + i[j] * g[j];
    if (p->peephole) ci_add_peephole(p, 1, c, o);
    ci_activate(p->activations[0], p->clip, o, hidden);
    ci_activate(p->activations[2], 0, h, hidden);
    for (int64_t j = 0; j < hidden; j++) h[j] = o[j] * h[j];
}

void CI(lstm)(const ci_run *run, const ci_recurrent *p)
{
    (void)run;
    const int64_t hidden = p->hidden;
    const ci_state state = ci_recurrent_begin(p, 4);
    for (int64_t step = 0; step < p->steps; step++) {
        ci_recurrent_product(p, &state, state.h, 0, 4 * hidden);
        for (int64_t n = 0; n < p->batch; n++) {
            const int64_t time = ci_time(p, n, step);
            if (time < 0) continue;
            float *h = state.h + n * hidden;
            ci_lstm_cell(p, p->gates + (time * p->batch + n) * 4 * hidden, state.product + n * 4 * hidden, h,
                         state.c + n * hidden);
            if (p->y) memcpy(ci_state_out(p, time, n), h, hidden * sizeof *h);
        }
    }
    ci_recurrent_end(p, &state);
}
