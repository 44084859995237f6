/* Matmul of bytes with packed panels: acc[b0][b1][b2][m][n] = sum over k of rows * panels, modulo 2^32. */
#include "integer.h"

#ifdef CI_LADDER
/* The plain form: what the kernel means. sums: [b0][b1][b2][m][n]. */
void ci_matmul_integer_plain(const ci_matmul_integer *p, int32_t *sums)
{
    for (int64_t b0 = 0; b0 < p->b0; b0++)
        for (int64_t b1 = 0; b1 < p->b1; b1++)
            for (int64_t b2 = 0; b2 < p->b2; b2++)
                for (int64_t m = 0; m < p->m; m++)
                    for (int64_t n = 0; n < p->n; n++) {
                        const uint8_t *a = p->rows + b0 * p->rows_b0 + b1 * p->rows_b1 + b2 * p->rows_b2 + m * p->rows_m;
                        const int8_t *b = p->panels + b0 * p->panels_b0 + b1 * p->panels_b1 + b2 * p->panels_b2;
                        uint32_t sum = 0;
                        for (int64_t k = 0; k < p->k; k++) {
                            const int64_t four = n / CI_PANEL * (p->k / CI_FOUR) + k / CI_FOUR;
                            sum += (uint32_t)(a[k] * b[(four * CI_PANEL + n % CI_PANEL) * CI_FOUR + k % CI_FOUR]);
                        }
                        *sums++ = (int32_t)sum;
                    }
}
#endif

/* Rows of an item: those of `rows` stay in the second cache while the panels pass by. */
#define CI_CHUNK_BYTES (256 * 1024)
#define CI_CHUNK_ROWS 96
/* With threads there are at least so many items, where there are rows enough. */
#define CI_ITEMS 64

typedef struct ci_integer_job {
    const ci_matmul_integer *p;
    const ci_integer_shape *shapes;
    int64_t panels, group, groups; /* panels of 16 columns, those of one item, and items beside each other */
    int64_t chunk, chunks;
} ci_integer_job;

/* The smallest shape that covers the rows left, or the largest there are rows for; no wider than need be. */
static const ci_integer_shape *ci_integer_choose(const ci_integer_shape *shape, int64_t left, int64_t rows, int64_t panels)
{
    const ci_integer_shape *best = 0;
    for (; shape->sum; shape++)
        if (shape->rows <= rows && shape->panels >= panels && (!best || shape->rows == best->rows || best->rows > left))
            best = shape;
    return best;
}

/* Rows `row` to `end` of one group of panels, tile by tile. */
static void ci_integer_sweep(const ci_run *run, const ci_integer_job *job, const int64_t *outer, const uint8_t *a,
                             const int8_t *b, int64_t row, int64_t end, int64_t group)
{
    _Alignas(64) int32_t tile[CI_MOST_TILE_SUMS];
    const ci_matmul_integer *p = job->p;
    const int64_t first = group * job->group, panels = ci_least(job->group, job->panels - first);
    const int64_t cols = ci_least(panels * CI_PANEL, p->n - first * CI_PANEL);
    while (row < end) {
        const ci_integer_shape *shape = ci_integer_choose(job->shapes, end - row, p->m, panels);
        const int64_t start = ci_least(row, p->m - shape->rows), stride = shape->panels * CI_PANEL;
        const int64_t rows = ci_least(shape->rows - (row - start), end - row);
        const int8_t *from[CI_MOST_PANELS];
        for (int64_t i = 0; i < shape->panels; i++) /* one after the last does not exist and is read as the last */
            from[i] = b + (first + ci_least(i, panels - 1)) * p->k * CI_PANEL;
        shape->sum(a + start * p->rows_m, p->rows_m, p->k / CI_FOUR, from, tile);
        p->tile(run, outer, row, rows, first * CI_PANEL, cols, tile + (row - start) * stride, stride);
        row += rows;
    }
}

static void ci_integer_items(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    const ci_integer_job *job = argument;
    const ci_matmul_integer *p = job->p;
    for (int64_t item = begin; item < end; item++) {
        const int64_t group = item % job->groups, rest = item / job->groups;
        const int64_t row = rest % job->chunks * job->chunk, batch = rest / job->chunks;
        const int64_t outer[3] = {batch / p->b2 / p->b1, batch / p->b2 % p->b1, batch % p->b2};
        const uint8_t *a = p->rows + outer[0] * p->rows_b0 + outer[1] * p->rows_b1 + outer[2] * p->rows_b2;
        const int8_t *b = p->panels + outer[0] * p->panels_b0 + outer[1] * p->panels_b1 + outer[2] * p->panels_b2;
        ci_integer_sweep(run, job, outer, a, b, row, ci_least(row + job->chunk, p->m), group);
    }
}

static int64_t ci_integer_chunk(const ci_run *run, const ci_matmul_integer *p, int64_t rows, int64_t items_per_chunk)
{
    int64_t tiles = ci_most(CI_CHUNK_ROWS, CI_CHUNK_BYTES / ci_most(p->k, 1)) / rows;
    tiles = ci_least(tiles, (p->m + rows - 1) / rows);
    while (run->pool && tiles > 1 && (p->m / (tiles * rows) + 1) * items_per_chunk < CI_ITEMS) tiles = (tiles + 1) / 2;
    return tiles * rows;
}

void ci_matmul_integer_tiled(const ci_run *run, const ci_matmul_integer *p, const ci_integer_tiles *tiles)
{
    const int64_t batches = p->b0 * p->b1 * p->b2;
    if (batches * p->m * p->n == 0) return;
    const bool faster = tiles->is_faster && tiles->is_faster();
    ci_integer_job job = {.p = p, .shapes = faster ? tiles->faster : tiles->shapes};
    const ci_integer_shape *widest = job.shapes;
    while (p->m == 1 && widest->rows > 1) widest++;
    job.panels = (p->n + CI_PANEL - 1) / CI_PANEL, job.group = widest->panels;
    job.groups = (job.panels + job.group - 1) / job.group;
    job.chunk = ci_integer_chunk(run, p, job.shapes[0].rows, batches * job.groups);
    job.chunks = (p->m + job.chunk - 1) / job.chunk;
    const int64_t elements = ci_least(job.chunk, p->m) * job.group * CI_PANEL;
    ci_parallel(run, ci_integer_items, &job, batches * job.chunks * job.groups, elements * (p->k + 1) / 32);
}
