/* Tiles of sums of products of bytes, unsigned times signed. The sums are exact, so that their order and the shape of tiles
   are free, and every instruction set gives the same.

   Terms come in fours: a row of `a` holds four neighbouring ones in four bytes, a panel of `b` the same four of each of its
   16 columns in 64 bytes. */
#ifndef CASTIRON_INTEGER_H
#define CASTIRON_INTEGER_H

#include "tile.h"

#define CI_FOUR 4
#define CI_MOST_TILE_SUMS (12 * 2 * CI_PANEL)

/* sums[rows][panels * 16], over so many fours; `row`: bytes from one row of a to the next. */
typedef void ci_integer_sum(const uint8_t *a, int64_t row, int64_t fours, const int8_t *const *b, int32_t *sums);

/* The shapes, largest first; the last one has one row, and the most panels. Rows that are left are computed by the smallest
   shape that covers them, overlapping rows already done. */
typedef struct ci_integer_shape {
    int64_t rows, panels;
    ci_integer_sum *sum; /* NULL ends the list */
} ci_integer_shape;

/* `faster`: the same shapes for processors that have more than the instruction set asks for, where `is_faster`; or NULL. */
struct ci_integer_tiles {
    ci_integer_shape shapes[6], faster[6];
    bool (*is_faster)(void);
};

#endif
