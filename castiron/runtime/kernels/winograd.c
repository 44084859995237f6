/* Convolution by a kernel of 3 x 3 moved one pixel at a time, in fewer products (Winograd; Lavin and Gray, 2015).

   The output is cut in tiles of m x m pixels. A tile's input, (m + 2) x (m + 2) pixels, becomes as many points of another
   basis; there the convolution is one product a point, for all tiles and channels at once a matmul a point; the products
   become the m x m sums. F(2x2) takes 16 products where the plain form takes 36, F(4x4) 36 where that takes 144.

   Tiles go in blocks whose points stay in the second cache. The law of bits: what a tile's elements go through does not
   depend on the block; sums over channels are as tile.h states. An infinity or NaN spoils all of the tiles that see it. */
#include "../vector.h"
#include "tile.h"

#define CI_MOST_POINTS 36
#define CI_LARGEST 4 /* m */

typedef struct ci_winograd_job {
    const ci_conv *p;
    ci_sums sums; /* of one point; rows are the tiles of the block */
    ci_columns columns;
    int64_t across, down;   /* tiles of an image */
    int64_t first, count;   /* the block */
    int64_t depth, point;   /* floats in scratch from tile to tile, from point to point */
    int64_t chunk, chunks;  /* tiles that go through the products together */
} ci_winograd_job;

/* One line of points in another basis. The points of F(4x4) are 0, +-5/8, +-3/2 and infinity: a third of the error that the
   usual 0, +-1, +-2 make. */
CI_INLINE void ci_into_points(const ci_vector *d, ci_vector *o, const int m)
{
    if (m == 2) {
        o[0] = d[0] - d[2];
        o[1] = d[1] + d[2];
        o[2] = d[2] - d[1];
        o[3] = d[1] - d[3];
        return;
    }
    const ci_vector a = ci_broadcast(5.0f / 8), b = ci_broadcast(3.0f / 2), aa = ci_broadcast(-25.0f / 64),
                    bb = ci_broadcast(-9.0f / 4), sum = ci_broadcast(-169.0f / 64), product = ci_broadcast(225.0f / 256);
    const ci_vector even_a = ci_multiply_add(bb, d[2], d[4]), odd_a = ci_multiply_add(bb, d[1], d[3]);
    const ci_vector even_b = ci_multiply_add(aa, d[2], d[4]), odd_b = ci_multiply_add(aa, d[1], d[3]);
    o[0] = ci_multiply_add(product, d[0], ci_multiply_add(sum, d[2], d[4]));
    o[1] = ci_multiply_add(a, odd_a, even_a);
    o[2] = ci_multiply_add(-a, odd_a, even_a);
    o[3] = ci_multiply_add(b, odd_b, even_b);
    o[4] = ci_multiply_add(-b, odd_b, even_b);
    o[5] = ci_multiply_add(product, d[1], ci_multiply_add(sum, d[3], d[5]));
}

/* One line of products back to m sums. */
CI_INLINE void ci_from_points(const ci_vector *p, ci_vector *o, const int m)
{
    if (m == 2) {
        o[0] = p[0] + p[1] + p[2];
        o[1] = p[1] - p[2] - p[3];
        return;
    }
    const ci_vector even_a = p[1] + p[2], odd_a = p[1] - p[2], even_b = p[3] + p[4], odd_b = p[3] - p[4];
    const ci_vector first = ci_broadcast(5.0f / 8) * odd_a, third = ci_broadcast(125.0f / 512) * odd_a;
    o[0] = p[0] + even_a + even_b;
    o[1] = ci_multiply_add(ci_broadcast(3.0f / 2), odd_b, first);
    o[2] = ci_multiply_add(ci_broadcast(9.0f / 4), even_b, ci_broadcast(25.0f / 64) * even_a);
    o[3] = ci_multiply_add(ci_broadcast(27.0f / 8), odd_b, third) + p[5];
}

/* A vector of channels of the pixels at x, `line` and `pixel` floats apart, to its points. */
CI_INLINE void ci_transform(const float *x, int64_t line, int64_t pixel, float *to, int64_t point, const int m)
{
    ci_vector half[CI_LARGEST + 2][CI_LARGEST + 2];
    CI_UNROLL
    for (int j = 0; j < m + 2; j++) {
        ci_vector column[CI_LARGEST + 2], out[CI_LARGEST + 2];
        CI_UNROLL
        for (int i = 0; i < m + 2; i++) column[i] = ci_load(x + i * line + j * pixel);
        ci_into_points(column, out, m);
        CI_UNROLL
        for (int i = 0; i < m + 2; i++) half[i][j] = out[i];
    }
    CI_UNROLL
    for (int i = 0; i < m + 2; i++) {
        ci_vector out[CI_LARGEST + 2];
        ci_into_points(half[i], out, m);
        CI_UNROLL
        for (int j = 0; j < m + 2; j++) ci_store(to + (i * (m + 2) + j) * point, out[j]);
    }
}

/* The pixels of a tile that there are, with zeros for others and for channels beyond the last. patch: [m + 2][m + 2][lanes]. */
static void ci_gather(const ci_conv *p, const float *x, int64_t lines, int64_t pixels, int64_t channels, float *patch, int size)
{
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++)
            for (int64_t c = 0; c < CI_LANES; c++)
                *patch++ = i < lines && j < pixels && c < channels ? x[i * p->x_kh + j * p->x_kw + c * p->x_c] : 0;
}

/* Tiles of the block into their points. */
CI_INLINE void ci_into_range(const ci_winograd_job *job, int64_t begin, int64_t end, const int m)
{
    const ci_conv *p = job->p;
    const int size = m + 2;
    for (int64_t t = begin; t < end; t++) {
        const int64_t tile = job->first + t, left = tile % job->across * m, top = tile / job->across % job->down * m;
        const int64_t lines = p->h + 2 - top, pixels = p->w + 2 - left;
        const float *x = p->x + tile / job->across / job->down * p->x_n + top * p->x_h + left * p->x_w;
        float *to = p->scratch + t * job->depth;
        const int64_t whole = lines >= size && pixels >= size && p->x_c == 1 ? p->c / CI_LANES * CI_LANES : 0;
        for (int64_t c = 0; c < whole; c += CI_LANES) ci_transform(x + c, p->x_kh, p->x_kw, to + c, job->point, m);
        for (int64_t c = whole; c < p->c; c += CI_LANES) {
            float patch[CI_MOST_POINTS * CI_LANES];
            ci_gather(p, x + c * p->x_c, lines, pixels, p->c - c, patch, size);
            ci_transform(patch, size * CI_LANES, CI_LANES, to + c, job->point, m);
        }
    }
}

/* The products of some tiles at all points, and what becomes of them. products: [points][CI_MOST_TILE_FLOATS]. */
typedef struct ci_products {
    float *products;
    int64_t tile, tiles; /* the first one's number, how many */
    int64_t stride;
    int64_t col, cols;
} ci_products;

/* All columns of products, in place: m of m + 2 lines of points are left. */
CI_INLINE void ci_halfway(const ci_products *d, const int m)
{
    for (int64_t at = 0; at < d->tiles * d->stride; at += CI_LANES) {
        CI_UNROLL
        for (int j = 0; j < m + 2; j++) {
            ci_vector column[CI_LARGEST + 2], out[CI_LARGEST];
            CI_UNROLL
            for (int i = 0; i < m + 2; i++) column[i] = ci_load(d->products + (i * (m + 2) + j) * CI_MOST_TILE_FLOATS + at);
            ci_from_points(column, out, m);
            CI_UNROLL
            for (int i = 0; i < m; i++) ci_store(d->products + (i * (m + 2) + j) * CI_MOST_TILE_FLOATS + at, out[i]);
        }
    }
}

/* Line `i` of neighbouring tiles, from halfway to out[tiles * m][stride]. */
CI_INLINE void ci_finish_line(const float *half, int64_t tiles, int64_t stride, float *out, const int m)
{
    for (int64_t t = 0; t < tiles; t++)
        for (int64_t at = 0; at < stride; at += CI_LANES) {
            ci_vector line[CI_LARGEST + 2], sums[CI_LARGEST];
            CI_UNROLL
            for (int j = 0; j < m + 2; j++) line[j] = ci_load(half + j * CI_MOST_TILE_FLOATS + t * stride + at);
            ci_from_points(line, sums, m);
            CI_UNROLL
            for (int j = 0; j < m; j++) ci_store(out + (t * m + j) * stride + at, sums[j]);
        }
}

/* Hands on the lines of the tiles. */
CI_INLINE void ci_finish(const ci_run *run, const ci_winograd_job *job, const ci_products *d, const int m)
{
    _Alignas(64) float out[CI_LARGEST * CI_MOST_TILE_FLOATS];
    const ci_conv *p = job->p;
    ci_halfway(d, m);
    for (int64_t t = 0, tiles; t < d->tiles; t += tiles) {
        const int64_t tile = d->tile + t, x = tile % job->across, y = tile / job->across % job->down;
        int64_t outer[4] = {tile / job->across / job->down, 0, 0, y * m};
        tiles = ci_least(d->tiles - t, job->across - x);
        for (int64_t i = 0; i < m && outer[3] < p->h; i++, outer[3]++) {
            ci_finish_line(d->products + i * (m + 2) * CI_MOST_TILE_FLOATS + t * d->stride, tiles, d->stride, out, m);
            p->tile(run, outer, x * m, ci_least(tiles * m, p->w - x * m), d->col, d->cols, out, d->stride);
        }
    }
}

/* Chunks of the block, times groups of columns, from points to output. */
CI_INLINE void ci_from_range(const ci_run *run, const ci_winograd_job *job, int64_t begin, int64_t end, const int m)
{
    _Alignas(64) float products[CI_MOST_POINTS * CI_MOST_TILE_FLOATS];
    const ci_columns *columns = &job->columns;
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = item / job->chunks * columns->group, col = first * CI_PANEL;
        const int64_t panels = ci_least(columns->group, columns->panels - first);
        const int64_t cols = ci_least(panels * CI_PANEL, columns->count - col);
        int64_t row = item % job->chunks * job->chunk;
        const int64_t stop = ci_least(row + job->chunk, job->count);
        while (row < stop) {
            ci_done done;
            for (int64_t point = (m + 2) * (m + 2) - 1; point >= 0; point--)
                done = ci_next_tile(&CI(tiles), &job->sums, job->p->scratch + point * job->point,
                                    job->p->filter + (point * columns->panels + first) * job->sums.panel, panels, row, stop,
                                    products + point * CI_MOST_TILE_FLOATS);
            ci_finish(run, job, &(ci_products){(float *)done.sums, job->first + row, done.rows, done.stride, col, cols}, m);
            row += done.rows;
        }
    }
}

static void ci_into_2(const ci_run *run, const void *job, int64_t begin, int64_t end)
{
    (void)run;
    ci_into_range(job, begin, end, 2);
}

static void ci_from_2(const ci_run *run, const void *job, int64_t begin, int64_t end) { ci_from_range(run, job, begin, end, 2); }

static void ci_into_4(const ci_run *run, const void *job, int64_t begin, int64_t end)
{
    (void)run;
    ci_into_range(job, begin, end, 4);
}

static void ci_from_4(const ci_run *run, const void *job, int64_t begin, int64_t end) { ci_from_range(run, job, begin, end, 4); }

/* Tiles of a chunk: all, but with threads so few that there is work for each of them. */
static int64_t ci_winograd_chunk(const ci_run *run, const ci_winograd_job *job)
{
    const int64_t rows = CI(tiles).shapes[0].rows;
    return run->pool && job->columns.groups < 16 ? ci_least(rows, job->count) : job->count;
}

static void ci_winograd(const ci_run *run, const ci_conv *p, int64_t m, ci_range *into, ci_range *from)
{
    const int64_t points = (m + 2) * (m + 2), most = CI_WINOGRAD_TILES(points, p->c);
    ci_winograd_job job = {.p = p, .across = (p->w + m - 1) / m, .down = (p->h + m - 1) / m};
    const int64_t tiles = p->n * job.across * job.down, blocks = (tiles + most - 1) / most;
    if (tiles * p->o == 0) return;
    const int64_t rows = CI(tiles).shapes[0].rows, even = (tiles + blocks - 1) / blocks;
    const int64_t block = ci_least(most, (even + rows - 1) / rows * rows);
    job.depth = CI_WINOGRAD_DEPTH(p->c);
    job.point = most * job.depth + CI_PANEL; /* points of a tile not all in one set of the cache */
    for (; job.first < tiles; job.first += job.count) {
        job.count = ci_least(block, tiles - job.first);
        job.columns = ci_columns_of(&CI(tiles), p->o, job.count);
        job.sums = (ci_sums){1, 1, 1, p->c, 0, 0, 0, 1, job.count, job.depth, p->c * CI_PANEL};
        job.chunk = ci_winograd_chunk(run, &job);
        job.chunks = (job.count + job.chunk - 1) / job.chunk;
        ci_parallel(run, into, &job, job.count, points * p->c / 4 + 1);
        ci_parallel(run, from, &job, job.columns.groups * job.chunks,
                    points * ci_cycles(job.chunk * job.columns.group * CI_PANEL, &job.sums));
    }
}

void CI(winograd2)(const ci_run *run, const ci_conv *p) { ci_winograd(run, p, 2, ci_into_2, ci_from_2); }

void CI(winograd4)(const ci_run *run, const ci_conv *p) { ci_winograd(run, p, 4, ci_into_4, ci_from_4); }
