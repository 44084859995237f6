/* Tiles of sums of products: what matmul, convolution and recurrent layers share.

   A tile is some rows of `a` times some panels of `b` (16 columns each). What an instruction set brings is in tiles.c: sums
   of tiles of a few shapes. All else is the same code for all of them.

   The law of bits: an element's terms are taken in order, in blocks of 64; a block is one chain of multiply-adds from 0, and
   blocks are added up in order. No element depends on the tile it is in, so the shape of tiles is free. */
#ifndef CASTIRON_TILE_H
#define CASTIRON_TILE_H

#include "../castiron.h"

#define CI_BLOCK 64
#define CI_PANEL 16
#define CI_MOST_PANELS 4
#define CI_MOST_ROWS 14
#define CI_MOST_TILE_FLOATS (CI_MOST_ROWS * 2 * CI_PANEL)

/* Neighbouring terms: the first one's element in row 0 of a, and how many. */
typedef struct ci_terms {
    const float *a;
    int64_t count;
} ci_terms;

/* sums[rows][panels * 16] = the sums over the runs, or += where `add`. `row`, `step`: strides of a from row to row and from
   term to term. */
typedef void ci_sum(const ci_terms *runs, const ci_terms *end, int64_t row, int64_t step, const float *const *b, float *sums,
                    bool add);

/* The shapes, largest first; the last one has one row. Remainders of rows are computed by the smallest shape that covers
   them, overlapping rows already done. */
typedef struct ci_shape {
    int32_t rows, panels;
    ci_sum *sum; /* NULL ends the list */
} ci_shape;

/* to[rows][CI_COPIED] = `count` neighbouring floats of each row of a. */
typedef void ci_copy(const float *a, int64_t row, int64_t rows, int64_t count, float *to);
#define CI_COPIED (CI_BLOCK + CI_PANEL)

struct ci_tiles {
    ci_shape shapes[6];
    ci_copy *copy;
};

static inline int64_t ci_least(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t ci_most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Where the terms of an element are: four nested loops over a, outermost first; b has them one after the other. */
typedef struct ci_sums {
    int64_t kd, kh, kw, c;
    int64_t a_kd, a_kh, a_kw, a_c;
    int64_t rows, a_row; /* rows there are, the stride from one to the next */
    int64_t panel;       /* floats of a panel: 16 for each term */
} ci_sums;

/* Sums of a finished tile: `rows` rows, `stride` floats apart. */
typedef struct ci_done {
    const float *sums;
    int64_t rows, stride;
} ci_done;

/* The panels that one tile takes of a matrix of this many rows. */
int64_t ci_group(const ci_tiles *tiles, int64_t rows);

/* Computes the next tile at `row`, of the rows up to `end`, in `tile`, aligned to 64 bytes and of CI_MOST_TILE_FLOATS. `a` is
   at row 0, `b` at the first of the panels. */
ci_done ci_next_tile(const ci_tiles *tiles, const ci_sums *s, const float *a, const float *b, int64_t panels, int64_t row,
                     int64_t end, float *tile);

/* Work is split in items: some rows of one matrix times one group of panels. */
typedef struct ci_columns {
    int64_t count, panels, group, groups;
} ci_columns;

ci_columns ci_columns_of(const ci_tiles *tiles, int64_t columns, int64_t rows);

/* All tiles of rows `row` to `end` of one group of columns, each handed on. `b` is at panel 0. */
void ci_sweep(const ci_tiles *tiles, const ci_run *run, const ci_sums *s, ci_tile *emit, const int64_t *outer, const float *a,
              const float *b, int64_t row, int64_t end, const ci_columns *columns, int64_t group);

/* Cycles of so many elements, roughly: what ci_parallel wants to know. */
int64_t ci_cycles(int64_t elements, const ci_sums *s);

#endif
