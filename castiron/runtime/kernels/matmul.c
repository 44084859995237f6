/* Matmul with packed panels: acc[b0][b1][b2][m][n] = sum over k of a * b. */
#include "tile.h"

#ifdef CI_LADDER
/* The plain form: what the kernel means. sums: [b0][b1][b2][m][n]. */
void ci_matmul_plain(const ci_matmul *p, double *sums)
{
    for (int64_t b0 = 0; b0 < p->b0; b0++)
        for (int64_t b1 = 0; b1 < p->b1; b1++)
            for (int64_t b2 = 0; b2 < p->b2; b2++)
                for (int64_t m = 0; m < p->m; m++)
                    for (int64_t n = 0; n < p->n; n++) {
                        const float *a = p->a + b0 * p->a_b0 + b1 * p->a_b1 + b2 * p->a_b2 + m * p->a_m;
                        const float *b = p->b + b0 * p->b_b0 + b1 * p->b_b1 + b2 * p->b_b2;
                        double sum = 0;
                        for (int64_t k = 0; k < p->k; k++)
                            sum += (double)a[k * p->a_k] * b[(n / CI_PANEL * p->k + k) * CI_PANEL + n % CI_PANEL];
                        *sums++ = sum;
                    }
}
#endif

/* Rows of an item. Where all panels stay in the second cache, one tile's, so that its lines of `a` and of the output are
   met once. Else those of `a` stay there while the panels pass by; no fewer than 112, so that panels from memory do not
   hold the arithmetic up. */
#define CI_FEW_FLOATS (64 * 1024)
#define CI_CHUNK_FLOATS (128 * 1024)
#define CI_CHUNK_ROWS 112
/* With threads there are at least so many items, where there are rows enough. */
#define CI_ITEMS 64

typedef struct ci_matmul_job {
    const ci_matmul *p;
    const ci_tiles *tiles;
    ci_sums sums;
    ci_columns columns;
    int64_t chunk, chunks;
} ci_matmul_job;

static void ci_matmul_items(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    const ci_matmul_job *job = argument;
    const ci_matmul *p = job->p;
    for (int64_t item = begin; item < end; item++) {
        const int64_t group = item % job->columns.groups, rest = item / job->columns.groups;
        const int64_t row = rest % job->chunks * job->chunk, batch = rest / job->chunks;
        const int64_t outer[3] = {batch / p->b2 / p->b1, batch / p->b2 % p->b1, batch % p->b2};
        const float *a = p->a + outer[0] * p->a_b0 + outer[1] * p->a_b1 + outer[2] * p->a_b2;
        const float *b = p->b + outer[0] * p->b_b0 + outer[1] * p->b_b1 + outer[2] * p->b_b2;
        ci_sweep(job->tiles, run, &job->sums, p->tile, outer, a, b, row, ci_least(row + job->chunk, p->m), &job->columns, group);
    }
}

static int64_t ci_matmul_chunk(const ci_run *run, const ci_matmul *p, int64_t rows, int64_t items_per_chunk)
{
    if (p->k * p->n <= CI_FEW_FLOATS) return rows;
    int64_t tiles = ci_most(CI_CHUNK_ROWS, CI_CHUNK_FLOATS / ci_most(p->k, 1)) / rows;
    tiles = ci_least(tiles, (p->m + rows - 1) / rows);
    while (run->pool && tiles > 1 && (p->m / (tiles * rows) + 1) * items_per_chunk < CI_ITEMS) tiles = (tiles + 1) / 2;
    return tiles * rows;
}

void ci_matmul_tiled(const ci_run *run, const ci_matmul *p, const ci_tiles *tiles)
{
    const int64_t batches = p->b0 * p->b1 * p->b2;
    if (batches * p->m * p->n == 0) return;
    ci_matmul_job job = {.p = p, .tiles = tiles, .columns = ci_columns_of(tiles, p->n, p->m)};
    job.sums =
        (ci_sums){.kd = 1, .kh = 1, .kw = 1, .c = p->k, .a_c = p->a_k, .rows = p->m, .a_row = p->a_m, .panel = p->k * CI_PANEL};
    job.chunk = ci_matmul_chunk(run, p, tiles->shapes[0].rows, batches * job.columns.groups);
    job.chunks = (p->m + job.chunk - 1) / job.chunk;
    const int64_t elements = ci_least(job.chunk, p->m) * job.columns.group * CI_PANEL;
    ci_parallel(run, ci_matmul_items, &job, batches * job.chunks * job.columns.groups, ci_cycles(elements, &job.sums));
}
