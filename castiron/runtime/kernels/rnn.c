/* The plain recurrent layer: h = f(x W^T + h R^T + bias). */
#include "recurrent.h"

#ifdef CI_LADDER
/* The plain form: one step of one sequence. x: its gates, h: [hidden], updated. */
void CI(rnn_plain)(const ci_recurrent *p, const float *x, double *h, double *work)
{
    for (int64_t j = 0; j < p->hidden; j++)
        work[j] = ci_plain_activation(p->activations[0], p->clip, x[j] + ci_plain_product(p, j, h));
    memcpy(h, work, p->hidden * sizeof *h);
}
#endif

void CI(rnn)(const ci_run *run, const ci_recurrent *p)
{
    (void)run;
    const int64_t hidden = p->hidden;
    const ci_state state = ci_recurrent_begin(p, 1);
    for (int64_t step = 0; step < p->steps; step++) {
        ci_recurrent_product(p, &state, state.h, 0, hidden);
        for (int64_t n = 0; n < p->batch; n++) {
            const int64_t time = ci_time(p, n, step);
            if (time < 0) continue;
            const float *x = p->gates + (time * p->batch + n) * hidden, *product = state.product + n * hidden;
            float *h = state.h + n * hidden;
            for (int64_t j = 0; j < hidden; j++) h[j] = x[j] + product[j];
            ci_activate(p->activations[0], p->clip, h, hidden);
            if (p->y) memcpy(ci_state_out(p, time, n), h, hidden * sizeof *h);
        }
    }
    ci_recurrent_end(p, &state);
}
