/* Tiles of sums of products: what matmul, convolution and recurrent layers share.

   A tile is some rows of `a` times some panels of `b` (16 columns each). For each term the vectors of b are loaded once and
   a's element of each row is broadcast; the sums stay in registers, so only the number of rows and panels is fixed in the
   code, all sizes and strides are run-time values.

   The law of bits: an element's terms are taken in order, in blocks of 256; a block is one fma chain from 0, and blocks are
   added up in order. No element depends on the tile it is in, so the shape of tiles is free. */
#ifndef CASTIRON_TILE_H
#define CASTIRON_TILE_H

#include "../castiron.h"
#include "../vector.h"

#define CI_BLOCK 256
#define CI_PANEL 16
#define CI_PANEL_VECTORS (CI_PANEL / CI_LANES)

/* The tile that fills the registers, and the panels of a tile of one row, which needs more of them to hide fma's latency. */
#if CI_LANES == 16
#define CI_ROWS 14
#define CI_PANELS 2
#define CI_WIDE 4
#elif !defined(CI_SOFTWARE_FMA)
#define CI_ROWS 6
#define CI_PANELS 1
#define CI_WIDE 4
#else
#define CI_ROWS 1
#define CI_PANELS 1
#define CI_WIDE 1
#endif
#define CI_TILE_FLOATS (CI_ROWS * CI_PANELS * CI_PANEL)
#define CI_ACCUMULATORS (CI_TILE_FLOATS / CI_LANES)

static inline int64_t ci_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ci_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Where the terms of an element are: four nested loops over a, outermost first; b has them one after the other. */
typedef struct ci_sums {
    int64_t kd, kh, kw, c;
    int64_t a_kd, a_kh, a_kw, a_c;
    int64_t rows, a_row; /* rows there are, the stride from one to the next */
    int64_t panel;       /* floats of a panel: 16 for each term */
} ci_sums;

/* Adds the sums of a block to the totals in `out` and starts the next block. */
CI_INLINE void ci_end_block(ci_vector *acc, float *out, const int count)
{
    CI_UNROLL
    for (int i = 0; i < count; i++) {
        ci_store(out + i * CI_LANES, ci_load(out + i * CI_LANES) + acc[i]);
        acc[i] = (ci_vector){0};
    }
}

/* acc += a * b over `terms` neighbouring terms. */
CI_INLINE void ci_add_terms(ci_vector *acc, const float *a, int64_t row, int64_t step, const float *const *b, int64_t at,
                            int64_t terms, const int rows, const int panels)
{
    for (; terms > 0; terms--, a += step, at += CI_PANEL) {
        ci_vector columns[CI_ACCUMULATORS];
        CI_UNROLL
        for (int v = 0; v < panels * CI_PANEL_VECTORS; v++)
            columns[v] = ci_load(b[v / CI_PANEL_VECTORS] + at + v % CI_PANEL_VECTORS * CI_LANES);
        CI_UNROLL
        for (int i = 0; i < rows; i++) {
            const ci_vector x = ci_broadcast(a[i * row]);
            CI_UNROLL
            for (int v = 0; v < panels * CI_PANEL_VECTORS; v++) {
                ci_vector *sum = acc + i * panels * CI_PANEL_VECTORS + v;
                *sum = ci_fma(x, columns[v], *sum);
            }
        }
    }
}

/* out[rows][panels * 16] = the sums. A panel after `last` does not exist and is read as the last one. */
CI_INLINE void ci_sum_tile(const ci_sums *s, const float *a, const float *b, int64_t last, float *out, const int rows,
                           const int panels)
{
    const int count = rows * panels * CI_PANEL_VECTORS;
    const float *from[CI_WIDE > CI_PANELS ? CI_WIDE : CI_PANELS];
    CI_UNROLL
    for (int p = 0; p < panels; p++)
        from[p] = b + ci_least(p, last) * s->panel;

    /* -0 is the neutral element of addition: the first block's sum becomes the total, the sign of zero included. */
    const ci_vector neutral = ci_broadcast(s->panel ? -0.0f : 0.0f);
    ci_vector acc[CI_ACCUMULATORS];
    CI_UNROLL
    for (int i = 0; i < count; i++) {
        acc[i] = (ci_vector){0};
        ci_store(out + i * CI_LANES, neutral);
    }
    int64_t room = CI_BLOCK, at = 0;
    for (int64_t d = 0; d < s->kd; d++)
        for (int64_t h = 0; h < s->kh; h++)
            for (int64_t w = 0; w < s->kw; w++)
                for (int64_t c = 0; c < s->c;) {
                    const float *x = a + d * s->a_kd + h * s->a_kh + w * s->a_kw + c * s->a_c;
                    const int64_t terms = ci_least(s->c - c, room);
                    ci_add_terms(acc, x, s->a_row, s->a_c, from, at, terms, rows, panels);
                    c += terms, room -= terms, at += terms * CI_PANEL;
                    if (room == 0 || at == s->panel) {
                        ci_end_block(acc, out, count);
                        room = CI_BLOCK;
                    }
                }
}

/* The instances. Remainders of rows are computed by the smallest that covers them, overlapping rows already done. */
typedef void ci_sum_function(const ci_sums *s, const float *a, const float *b, int64_t last, float *out);

#define CI_SUM_INSTANCE(rows, panels)                                                                             \
    static __attribute__((noinline)) void ci_sum_##rows##x##panels(const ci_sums *s, const float *a, const float *b, \
                                                                   int64_t last, float *out)                      \
    {                                                                                                             \
        ci_sum_tile(s, a, b, last, out, rows, panels);                                                            \
    }
#define CI_SUM_SHAPE(rows, panels) {rows, panels, ci_sum_##rows##x##panels}

typedef struct ci_shape {
    int32_t rows, panels;
    ci_sum_function *sum;
} ci_shape;

#if CI_LANES == 16
CI_SUM_INSTANCE(14, 2)
CI_SUM_INSTANCE(14, 1)
CI_SUM_INSTANCE(7, 2)
CI_SUM_INSTANCE(4, 2)
CI_SUM_INSTANCE(1, 4)
static const ci_shape ci_shapes[] = {CI_SUM_SHAPE(14, 2), CI_SUM_SHAPE(14, 1), CI_SUM_SHAPE(7, 2), CI_SUM_SHAPE(4, 2),
                                     CI_SUM_SHAPE(1, 4)};
#elif !defined(CI_SOFTWARE_FMA)
CI_SUM_INSTANCE(6, 1)
CI_SUM_INSTANCE(4, 1)
CI_SUM_INSTANCE(2, 1)
CI_SUM_INSTANCE(1, 4)
static const ci_shape ci_shapes[] = {CI_SUM_SHAPE(6, 1), CI_SUM_SHAPE(4, 1), CI_SUM_SHAPE(2, 1), CI_SUM_SHAPE(1, 4)};
#else /* arithmetic in software gains nothing from larger tiles */
CI_SUM_INSTANCE(1, 1)
static const ci_shape ci_shapes[] = {CI_SUM_SHAPE(1, 1)};
#endif

/* The panels that one tile takes of a matrix of this many rows. */
static inline int64_t ci_group(int64_t rows)
{
    return rows == 1 ? CI_WIDE : CI_PANELS;
}

/* The smallest shape that covers the rows left, alone or twice, or the largest there are rows for; `panels` are at most
   ci_group(rows). */
static inline const ci_shape *ci_choose(int64_t left, int64_t rows, int64_t panels)
{
    const ci_shape *best = 0;
    for (size_t i = 0; i < sizeof ci_shapes / sizeof *ci_shapes; i++) {
        const ci_shape *shape = ci_shapes + i;
        const bool fits = shape->rows <= rows && shape->panels >= panels;
        if (fits && (!best || shape->rows >= ci_least(left, best->rows) ||
                     (left > best->rows && left <= 2 * shape->rows)))
            best = shape;
    }
    return best;
}

/* Sums of a finished tile: `rows` rows, `stride` floats apart. */
typedef struct ci_done {
    const float *sums;
    int64_t rows, stride;
} ci_done;

/* Computes the next tile at `row`, of the rows up to `end`, in `tile`. `a` is at row 0, `b` at the first of the panels. */
static inline ci_done ci_next_tile(const ci_sums *s, const float *a, const float *b, int64_t panels, int64_t row,
                                   int64_t end, float *tile)
{
    const ci_shape *shape = ci_choose(end - row, s->rows, panels);
    const int64_t start = ci_least(row, s->rows - shape->rows), stride = shape->panels * CI_PANEL;
    shape->sum(s, a + start * s->a_row, b, panels - 1, tile);
    return (ci_done){tile + (row - start) * stride, ci_least(shape->rows - (row - start), end - row), stride};
}

/* Work is split in items: some rows of one matrix times one group of panels. */
typedef struct ci_columns {
    int64_t count, panels, group, groups;
} ci_columns;

static inline ci_columns ci_columns_of(int64_t columns, int64_t rows)
{
    const int64_t panels = (columns + CI_PANEL - 1) / CI_PANEL, group = ci_group(rows);
    return (ci_columns){columns, panels, group, (panels + group - 1) / group};
}

/* All tiles of rows `row` to `end` of one group of columns, each handed on. `b` is at panel 0. */
static inline void ci_sweep(const ci_run *run, const ci_sums *s, ci_tile *emit, const int64_t *outer, const float *a,
                            const float *b, int64_t row, int64_t end, const ci_columns *columns, int64_t group)
{
    _Alignas(64) float tile[CI_TILE_FLOATS];
    const int64_t first = group * columns->group, col = first * CI_PANEL;
    const int64_t panels = ci_least(columns->group, columns->panels - first);
    const int64_t cols = ci_least(panels * CI_PANEL, columns->count - col);
    while (row < end) {
        const ci_done done = ci_next_tile(s, a, b + first * s->panel, panels, row, end, tile);
        emit(run, outer, row, done.rows, col, cols, done.sums, done.stride);
        row += done.rows;
    }
}

/* Cycles of so many elements, roughly: what ci_parallel wants to know. */
static inline int64_t ci_cycles(int64_t elements, const ci_sums *s)
{
    return elements * (s->panel / CI_PANEL + 1) / 16;
}

#endif
