/* Convolution as an implicit matmul: the rows of a tile are neighbouring output pixels, a fixed stride apart in x, the terms
   are the kernel's taps times the channels. Nothing is copied; x holds its border. */
#include "tile.h"

#ifdef CI_LADDER
/* The plain form: what the kernel means. One element; `pixel` is x at its first tap. */
static double ci_conv_element(const ci_conv *p, const float *pixel, const float *filter)
{
    double sum = 0;
    for (int64_t kd = 0; kd < p->kd; kd++)
        for (int64_t kh = 0; kh < p->kh; kh++)
            for (int64_t kw = 0; kw < p->kw; kw++)
                for (int64_t c = 0; c < p->c; c++, filter += CI_PANEL)
                    sum += (double)pixel[kd * p->x_kd + kh * p->x_kh + kw * p->x_kw + c * p->x_c] * *filter;
    return sum;
}

/* sums: [n][g][d][h][w][o]. */
void ci_conv_plain(const ci_conv *p, double *sums)
{
    const int64_t terms = p->kd * p->kh * p->kw * p->c, count = p->n * p->g * p->d * p->h * p->w * p->o;
    for (int64_t i = 0; i < count; i++) {
        const int64_t o = i % p->o, w = i / p->o % p->w, h = i / p->o / p->w % p->h, d = i / p->o / p->w / p->h % p->d;
        const int64_t g = i / p->o / p->w / p->h / p->d % p->g, n = i / p->o / p->w / p->h / p->d / p->g;
        const float *filter = p->filter + g * p->filter_g + o / CI_PANEL * terms * CI_PANEL + o % CI_PANEL;
        sums[i] = ci_conv_element(p, p->x + n * p->x_n + g * p->x_g + d * p->x_d + h * p->x_h + w * p->x_w, filter);
    }
}
#endif

/* An item has as many lines of output as the second cache holds of x, and no fewer than pixels enough to hide the filter's
   way from memory. With threads there are at least CI_ITEMS items, where there are lines enough. */
#define CI_CHUNK_FLOATS (128 * 1024)
#define CI_CHUNK_PIXELS 112
#define CI_ITEMS 64

typedef struct ci_conv_job {
    const ci_conv *p;
    const ci_tiles *tiles;
    ci_sums sums;
    ci_columns columns;
    int64_t chunk, chunks;
} ci_conv_job;

static void ci_conv_items(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    const ci_conv_job *job = argument;
    const ci_conv *p = job->p;
    for (int64_t item = begin; item < end; item++) {
        const int64_t group = item % job->columns.groups, rest = item / job->columns.groups;
        const int64_t line = rest % job->chunks * job->chunk, stop = ci_least(line + job->chunk, p->h);
        const int64_t image = rest / job->chunks;
        int64_t outer[4] = {image / p->d / p->g, image / p->d % p->g, image % p->d, line};
        const float *x = p->x + outer[0] * p->x_n + outer[1] * p->x_g + outer[2] * p->x_d;
        const float *filter = p->filter + outer[1] * p->filter_g;
        for (; outer[3] < stop; outer[3]++)
            ci_sweep(job->tiles, run, &job->sums, p->tile, outer, x + outer[3] * p->x_h, filter, 0, p->w, &job->columns, group);
    }
}

/* Makes one loop of two where x goes on with the same stride from one to the next: the outer then has one turn. */
static void ci_fold(int64_t *outer, int64_t outer_stride, int64_t *inner, int64_t *inner_stride)
{
    if (*inner == 1) *inner_stride = outer_stride;
    if (*outer != 1 && outer_stride != *inner * *inner_stride) return;
    *inner *= *outer;
    *outer = 1;
}

static ci_sums ci_conv_sums(const ci_conv *p)
{
    ci_sums s = {p->kd, p->kh, p->kw, p->c, p->x_kd, p->x_kh, p->x_kw, p->x_c, p->w, p->x_w, 0};
    s.panel = s.kd * s.kh * s.kw * s.c * CI_PANEL;
    ci_fold(&s.kw, s.a_kw, &s.c, &s.a_c);
    if (s.kw == 1) ci_fold(&s.kh, s.a_kh, &s.c, &s.a_c);
    if (s.kw == 1 && s.kh == 1) ci_fold(&s.kd, s.a_kd, &s.c, &s.a_c);
    return s;
}

static int64_t ci_conv_chunk(const ci_run *run, const ci_conv *p, int64_t items_per_chunk)
{
    int64_t lines = ci_most(CI_CHUNK_PIXELS, CI_CHUNK_FLOATS / ci_most(p->c, 1)) / p->w;
    lines = ci_most(1, ci_least(lines, p->h));
    while (run->pool && lines > 1 && (p->h / lines + 1) * items_per_chunk < CI_ITEMS) lines = (lines + 1) / 2;
    return lines;
}

void ci_conv_tiled(const ci_run *run, const ci_conv *p, const ci_tiles *tiles)
{
    const int64_t images = p->n * p->g * p->d;
    if (images * p->h * p->w * p->o == 0) return;
    ci_conv_job job = {.p = p, .tiles = tiles, .sums = ci_conv_sums(p), .columns = ci_columns_of(tiles, p->o, p->w)};
    job.chunk = ci_conv_chunk(run, p, images * job.columns.groups);
    job.chunks = (p->h + job.chunk - 1) / job.chunk;
    const int64_t elements = job.chunk * p->w * job.columns.group * CI_PANEL;
    ci_parallel(run, ci_conv_items, &job, images * job.chunks * job.columns.groups, ci_cycles(elements, &job.sums));
}
