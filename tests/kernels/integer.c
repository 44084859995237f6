/* Checks the matmul of bytes against its plain form, prints a hash of all sums, or times it.

   Built like ladder.c. Sums are exact: the hashes of all instruction sets must agree. `integer --time`: GOP/s. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../castiron/runtime/kernels/integer.h"
#include "shared.h"

void ci_matmul_integer_plain(const ci_matmul_integer *p, int32_t *sums);

/* Bytes of the whole type, or its ends alone, which make the largest sums. The last one ends where the memory does. */
static void *bytes(int64_t count, bool ends)
{
    uint8_t *x = malloc((size_t)count + 1);
    for (int64_t i = 0; i < count; i++) x[i] = ends ? (draw(0, 1) ? 0xff : 0x80) : (uint8_t)draw(0, 255);
    return x;
}

static struct {
    int32_t *out;
    bool *stored;
    int64_t extents[3], rows, cols;
} target;

static void store(const ci_run *run, const int64_t *outer, int64_t row, int64_t rows, int64_t col, int64_t cols,
                  const int32_t *tile, int64_t stride)
{
    (void)run;
    const int64_t index = (outer[0] * target.extents[1] + outer[1]) * target.extents[2] + outer[2];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const int64_t at = (index * target.rows + row + i) * target.cols + col + j;
            failures += target.stored[at] || row + i >= target.rows || col + j >= target.cols;
            target.stored[at] = true;
            target.out[at] = tile[i * stride + j];
        }
}

static void nothing(const ci_run *run, const int64_t *outer, int64_t row, int64_t rows, int64_t col, int64_t cols,
                    const int32_t *tile, int64_t stride)
{
    (void)run, (void)outer, (void)row, (void)rows, (void)col, (void)cols, (void)tile, (void)stride;
}

/* One run must store every element once, and what is wanted. */
static void compare(const char *what, const ci_matmul_integer *p, const ci_run *run, const ci_integer_tiles *tiles,
                    const int32_t *wanted, int64_t count)
{
    target.out = calloc((size_t)count + 1, 4);
    target.stored = calloc((size_t)count + 1, 1);
    ci_matmul_integer_tiled(run, p, tiles);
    for (int64_t i = 0; i < count; i++)
        if (!target.stored[i] || target.out[i] != wanted[i]) {
            printf("%s, %lldx%lldx%lld: element %lld is %d, not %d\n", what, (long long)p->m, (long long)p->n, (long long)p->k,
                   (long long)i, target.out[i], wanted[i]);
            failures++;
            break;
        }
    free(target.out), free(target.stored);
}

static void check(int64_t m, int64_t n, int64_t fours, bool ends)
{
    ci_matmul_integer p = {.m = m, .n = n, .k = fours * 4, .tile = store};
    p.b0 = draw(1, 2), p.b1 = draw(1, 2), p.b2 = draw(1, 3);
    const int64_t panels = (n + 15) / 16 * 16 * p.k, batches = p.b0 * p.b1 * p.b2;
    p.rows_m = p.k + draw(0, 3);
    p.rows_b2 = m * p.rows_m, p.rows_b1 = draw(0, 1) * p.b2 * p.rows_b2, p.rows_b0 = p.b1 * p.b2 * p.rows_b2;
    p.panels_b2 = draw(0, 1) * panels, p.panels_b1 = p.b2 * panels, p.panels_b0 = p.b1 * p.panels_b1;
    uint8_t *a = bytes(batches * p.rows_b2, ends);
    int8_t *b = bytes(batches * panels, ends);
    p.rows = a, p.panels = b;
    memcpy(target.extents, (int64_t[]){p.b0, p.b1, p.b2}, 24);
    target.rows = m, target.cols = n;
    const int64_t count = batches * m * n;
    int32_t *wanted = malloc((size_t)count * 4 + 4);
    ci_matmul_integer_plain(&p, wanted);
    for (int64_t i = 0; i < count; i++) hash = (hash ^ (uint32_t)wanted[i]) * 1099511628211u;
    const ci_run alone = {0}, threads = {.pool = (struct ci_pool *)&target};
    ci_integer_tiles plain = CI(integer_tiles);
    plain.is_faster = 0;
    piece = 0;
    compare("plain", &p, &alone, &plain, wanted, count);
    compare("fastest", &p, &alone, &CI(integer_tiles), wanted, count);
    piece = draw(1, 3);
    compare("split", &p, &threads, &CI(integer_tiles), wanted, count);
    free(a), free(b), free(wanted);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void timed(int64_t m, int64_t n, int64_t k, bool faster)
{
    uint8_t *a = bytes(m * k, false);
    int8_t *b = bytes((n + 15) / 16 * 16 * k, false);
    const ci_matmul_integer p = {1, 1, 1, m, n, k, a, 0, 0, 0, k, b, 0, 0, 0, nothing};
    const ci_run run = {0};
    ci_integer_tiles tiles = CI(integer_tiles);
    if (!faster) tiles.is_faster = 0;
    double best = 1e9;
    for (double start = now(); now() - start < 0.15;) {
        const double begin = now();
        ci_matmul_integer_tiled(&run, &p, &tiles);
        const double took = now() - begin;
        best = took < best ? took : best;
    }
    printf("%lldx%lldx%lld %s %8.1f GOP/s\n", (long long)m, (long long)n, (long long)k, faster ? "fastest" : "plain  ",
           2.0 * (double)(m * n * k) / best / 1e9);
    free(a), free(b);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "--time")) {
        const int64_t sizes[][3] = {{384, 384, 384}, {128, 1536, 384}, {128, 384, 1536}, {1, 1024, 1024}, {16, 1024, 512}};
        for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
            timed(sizes[i / 2][0], sizes[i / 2][1], sizes[i / 2][2], i % 2);
        return 0;
    }
    for (int64_t m = 1; m <= 30; m++) check(m, draw(1, 70), draw(1, 20), m % 2);
    const int64_t depths[] = {0, 1, 2, 15, 16, 64, 150};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) check(17, draw(1, 70), depths[i], true);
    check(200, 33, 18, false);
    check(0, 5, 3, false);
    check(5, 0, 3, false);
    printf("integer %016llx\n", (unsigned long long)hash);
    return failures != 0;
}
