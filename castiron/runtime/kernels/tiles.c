/* The sums of tiles, once an instruction set: all of matmul and convolution that gains from wider vectors.

   For each term the vectors of b are loaded once and a's element of each row is broadcast; the sums stay in registers, so the
   number of rows and panels is fixed in the code, all sizes and strides are run-time values. */
#include "tile.h"

#include "../vector.h"

#define CI_PANEL_VECTORS (CI_PANEL / CI_LANES)

/* The sums of products over the runs, from 0 on, to sums[rows][panels * 16], which is added to or set. b: the panels, at the
   first term. */
CI_INLINE void ci_sum_tile(const ci_terms *runs, const ci_terms *end, int64_t row, int64_t step, const float *const *b,
                           float *sums, bool add, const int rows, const int panels)
{
    const int vectors = panels * CI_PANEL_VECTORS;
    ci_vector acc[CI_MOST_TILE_FLOATS / CI_LANES];
    CI_UNROLL
    for (int i = 0; i < rows * vectors; i++) acc[i] = (ci_vector){0};
    int64_t at = 0;
    for (; runs < end; runs++) {
        const float *a = runs->a;
        for (int64_t terms = runs->count; terms > 0; terms--, a += step, at += CI_PANEL) {
            ci_vector columns[CI_MOST_PANELS * CI_PANEL_VECTORS];
            CI_UNROLL
            for (int v = 0; v < vectors; v++)
                columns[v] = ci_load(b[v / CI_PANEL_VECTORS] + at + v % CI_PANEL_VECTORS * CI_LANES);
            CI_UNROLL
            for (int i = 0; i < rows; i++) {
                const ci_vector x = ci_broadcast(a[i * row]);
                CI_UNROLL
                for (int v = 0; v < vectors; v++) acc[i * vectors + v] = ci_multiply_add(x, columns[v], acc[i * vectors + v]);
            }
        }
    }
    if (add) {
        CI_UNROLL
        for (int i = 0; i < rows * vectors; i++) acc[i] = ci_load(sums + i * CI_LANES) + acc[i];
    }
    CI_UNROLL
    for (int i = 0; i < rows * vectors; i++) ci_store(sums + i * CI_LANES, acc[i]);
}

#define CI_SUM_INSTANCE(rows, panels)                                                                          \
    static void ci_sum_##rows##x##panels(const ci_terms *runs, const ci_terms *end, int64_t row, int64_t step, \
                                         const float *const *b, float *sums, bool add)                         \
    {                                                                                                          \
        ci_sum_tile(runs, end, row, step, b, sums, add, rows, panels);                                         \
    }
#define CI_SUM_SHAPE(rows, panels) {rows, panels, ci_sum_##rows##x##panels}

static void ci_copy_rows(const float *a, int64_t row, int64_t rows, int64_t count, float *to)
{
    for (; rows > 0; rows--, a += row, to += CI_COPIED) {
        int64_t i = 0;
        for (; i + CI_LANES <= count; i += CI_LANES) ci_store(to + i, ci_load(a + i));
        for (; i < count; i++) to[i] = a[i];
    }
}

/* The largest tile fills the registers; a tile of one row has more panels, to hide the latency of its chains. */
#if CI_LANES == 16
CI_SUM_INSTANCE(14, 2)
CI_SUM_INSTANCE(14, 1)
CI_SUM_INSTANCE(7, 2)
CI_SUM_INSTANCE(4, 2)
CI_SUM_INSTANCE(1, 4)
const ci_tiles CI(tiles) = {
    {CI_SUM_SHAPE(14, 2), CI_SUM_SHAPE(14, 1), CI_SUM_SHAPE(7, 2), CI_SUM_SHAPE(4, 2), CI_SUM_SHAPE(1, 4)}, ci_copy_rows};
#elif CI_FMA
CI_SUM_INSTANCE(6, 1)
CI_SUM_INSTANCE(4, 1)
CI_SUM_INSTANCE(2, 1)
CI_SUM_INSTANCE(1, 4)
const ci_tiles CI(tiles) = {{CI_SUM_SHAPE(6, 1), CI_SUM_SHAPE(4, 1), CI_SUM_SHAPE(2, 1), CI_SUM_SHAPE(1, 4)}, ci_copy_rows};
#else
CI_SUM_INSTANCE(2, 1)
CI_SUM_INSTANCE(1, 1)
const ci_tiles CI(tiles) = {{CI_SUM_SHAPE(2, 1), CI_SUM_SHAPE(1, 1)}, ci_copy_rows};
#endif
