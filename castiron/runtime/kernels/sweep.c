/* From sums of tiles to sweeps over matrices: the same for all instruction sets. */
#include "tile.h"

int64_t ci_group(const ci_tiles *tiles, int64_t rows)
{
    const ci_shape *shape = tiles->shapes;
    while (rows == 1 && shape->rows > 1) shape++;
    return shape->panels;
}

/* The smallest shape that covers the rows left, alone or twice, or the largest there are rows for; `panels` are at most
   ci_group(rows). */
static const ci_shape *ci_choose(const ci_tiles *tiles, int64_t left, int64_t rows, int64_t panels)
{
    const ci_shape *best = 0;
    for (const ci_shape *shape = tiles->shapes; shape->sum; shape++) {
        const bool fits = shape->rows <= rows && shape->panels >= panels;
        if (fits && (!best || shape->rows >= ci_least(left, best->rows) || (left > best->rows && left <= 2 * shape->rows)))
            best = shape;
    }
    return best;
}

/* The place in the four loops over a. */
typedef struct ci_place {
    int64_t d, h, w, c;
} ci_place;

/* The terms from `place` on that lie a stride apart, at most `room`; `place` moves behind them. */
static ci_terms ci_take(const ci_sums *s, const float *a, ci_place *place, int64_t room)
{
    const float *first = a + place->d * s->a_kd + place->h * s->a_kh + place->w * s->a_kw + place->c * s->a_c;
    const int64_t count = ci_least(s->c - place->c, room);
    place->c += count;
    if (place->c == s->c) place->c = 0, place->w++;
    if (place->w == s->kw) place->w = 0, place->h++;
    if (place->h == s->kh) place->h = 0, place->d++;
    return (ci_terms){first, count};
}

/* Whether the rows of a tile are so far apart that their lines meet in one set of the first cache, which holds eight. */
static bool ci_collide(const ci_shape *shape, const ci_sums *s) { return shape->rows > 8 && s->a_row % 1024 == 0 && s->a_c == 1; }

/* The runs of a block, copied together as one. */
static ci_terms ci_copied(const ci_tiles *tiles, const ci_shape *shape, const ci_sums *s, const ci_terms *runs,
                          const ci_terms *end, float *copy)
{
    int64_t terms = 0;
    for (; runs < end; terms += runs->count, runs++) tiles->copy(runs->a, s->a_row, shape->rows, runs->count, copy + terms);
    return (ci_terms){copy, terms};
}

/* out[rows][panels * 16] = the sums, block by block. A panel after `last` does not exist and is read as the last one. */
static void ci_sum_blocks(const ci_tiles *tiles, const ci_shape *shape, const ci_sums *s, const float *a, const float *b,
                          int64_t last, float *out)
{
    const float *from[CI_MOST_PANELS];
    _Alignas(64) float copy[CI_MOST_ROWS * CI_COPIED];
    ci_terms runs[CI_BLOCK], *end;
    ci_place place = {0};
    int64_t at = 0; /* in the panels */
    const bool collide = ci_collide(shape, s);
    do {
        const bool first = at == 0;
        int64_t room = ci_least(CI_BLOCK, (s->panel - at) / CI_PANEL), row = s->a_row;
        for (int64_t p = 0; p < shape->panels; p++) from[p] = b + ci_least(p, last) * s->panel + at;
        at += room * CI_PANEL;
        for (end = runs; room > 0; end++) {
            *end = ci_take(s, a, &place, room);
            room -= end->count;
        }
        if (collide) {
            *runs = ci_copied(tiles, shape, s, runs, end, copy);
            end = runs + 1, row = CI_COPIED;
        }
        shape->sum(runs, end, row, s->a_c, from, out, !first);
    } while (at < s->panel);
}

ci_done ci_next_tile(const ci_tiles *tiles, const ci_sums *s, const float *a, const float *b, int64_t panels, int64_t row,
                     int64_t end, float *tile)
{
    const ci_shape *shape = ci_choose(tiles, end - row, s->rows, panels);
    const int64_t start = ci_least(row, s->rows - shape->rows), stride = shape->panels * CI_PANEL;
    ci_sum_blocks(tiles, shape, s, a + start * s->a_row, b, panels - 1, tile);
    return (ci_done){tile + (row - start) * stride, ci_least(shape->rows - (row - start), end - row), stride};
}

ci_columns ci_columns_of(const ci_tiles *tiles, int64_t columns, int64_t rows)
{
    const int64_t panels = (columns + CI_PANEL - 1) / CI_PANEL, group = ci_group(tiles, rows);
    return (ci_columns){columns, panels, group, (panels + group - 1) / group};
}

void ci_sweep(const ci_tiles *tiles, const ci_run *run, const ci_sums *s, ci_tile *emit, const int64_t *outer, const float *a,
              const float *b, int64_t row, int64_t end, const ci_columns *columns, int64_t group)
{
    _Alignas(64) float tile[CI_MOST_TILE_FLOATS];
    const int64_t first = group * columns->group, col = first * CI_PANEL;
    const int64_t panels = ci_least(columns->group, columns->panels - first);
    const int64_t cols = ci_least(panels * CI_PANEL, columns->count - col);
    while (row < end) {
        const ci_done done = ci_next_tile(tiles, s, a, b + first * s->panel, panels, row, end, tile);
        emit(run, outer, row, done.rows, col, cols, done.sums, done.stride);
        row += done.rows;
    }
}

int64_t ci_cycles(int64_t elements, const ci_sums *s) { return elements * (s->panel / CI_PANEL + 1) / 16; }
