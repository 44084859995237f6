/* Checks the runtime's kernels against their plain forms in double, prints one hash of all output bits, or times them.

   Built once an instruction set with the kernels compiled for it under -DCI_LADDER. The hashes of all instruction sets with
   fused multiply-add must agree, and so must those of all without. `ladder`: check and hash; `ladder --time`: GFLOP/s beside the peak of fused multiply-add. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../castiron/runtime/castiron.h"
#include "../../castiron/runtime/vector.h"
#include "shared.h"

void ci_matmul_plain(const ci_matmul *p, double *sums);
void ci_conv_plain(const ci_conv *p, double *sums);
void CI(rnn_plain)(const ci_recurrent *p, const float *x, double *h, double *work);
void CI(lstm_plain)(const ci_recurrent *p, const float *x, double *h, double *c, double *work);
void CI(gru_plain)(const ci_recurrent *p, const float *x, double *h, double *work);

static float *noise(int64_t count)
{
    float *x = aligned_alloc(64, (size_t)(count * 4 + 127) / 64 * 64);
    for (int64_t i = 0; i < count; i++) x[i] = (float)draw(-1000000, 1000000) * 1e-6f;
    return x;
}

static void hashed(const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        hash = (hash ^ (isnan(x[i]) ? 0x7fc00000u : bits)) * 1099511628211u;
    }
}

static void checked(const char *what, const float *got, const double *wanted, int64_t count, double tolerance)
{
    for (int64_t i = 0; i < count; i++) {
        const bool same = isnan(wanted[i])   ? isnan(got[i])
                          : isinf(wanted[i]) ? wanted[i] == got[i]
                                             : fabs(got[i] - wanted[i]) <= tolerance * (1 + fabs(wanted[i]));
        if (same) continue;
        printf("%s: element %lld of %lld is %.9g, not %.9g\n", what, (long long)i, (long long)count, got[i], wanted[i]);
        failures++;
        return;
    }
    hashed(got, count);
}

/* Where epilogues put their tiles: [outer...][row][col]; each element exactly once, so `out` starts as a marker. */
static struct {
    float *out;
    int64_t rank, extents[4], rows, cols;
} target;
static const float marker = 12345.0f;

static void store(const ci_run *run, const int64_t *outer, int64_t row, int64_t rows, int64_t col, int64_t cols,
                  const float *tile, int64_t stride)
{
    (void)run;
    int64_t index = 0;
    for (int64_t i = 0; i < target.rank; i++) index = index * target.extents[i] + outer[i];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float *out = target.out + (index * target.rows + row + i) * target.cols + col + j;
            failures += *out != marker || row + i >= target.rows || col + j >= target.cols;
            *out = tile[i * stride + j];
        }
}

static void nothing(const ci_run *run, const int64_t *outer, int64_t row, int64_t rows, int64_t col, int64_t cols,
                    const float *tile, int64_t stride)
{
    (void)run, (void)outer, (void)row, (void)rows, (void)col, (void)cols, (void)tile, (void)stride;
}

static int64_t marked(int64_t count)
{
    target.out = malloc((size_t)count * 4 + 4);
    for (int64_t i = 0; i < count; i++) target.out[i] = marker;
    return count;
}

/* Runs `kernel` with items in one range and in odd pieces, with and without threads; all must give the same bits. */
#define RUN(kernel, p, count)                                                    \
    do {                                                                         \
        const ci_run alone = {0}, threads = {.pool = (struct ci_pool *)&target}; \
        piece = 0;                                                               \
        marked(count);                                                           \
        kernel(&alone, p);                                                       \
        float *first = target.out;                                               \
        piece = draw(1, 3);                                                      \
        marked(count);                                                           \
        kernel(&threads, p);                                                     \
        if (memcmp(first, target.out, (size_t)(count) * 4)) {                    \
            printf(#kernel ": the split changes the bits\n");                    \
            failures++;                                                          \
        }                                                                        \
        free(first);                                                             \
    } while (0)

static void poison(float *x, int64_t count)
{
    const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-40f, 1e30f};
    for (size_t i = 0; i < sizeof values / sizeof *values && count; i++) x[draw(0, count - 1)] = values[i];
}

static void check_matmul(int64_t m, int64_t n, int64_t k, bool special)
{
    ci_matmul p = {.m = m, .n = n, .k = k, .tile = store};
    p.b0 = draw(1, 2);
    p.b1 = draw(1, 2);
    p.b2 = draw(1, 3);
    const int64_t panels = (n + 15) / 16, gap = draw(0, 3), batches = p.b0 * p.b1 * p.b2;
    const bool transposed = draw(0, 3) == 0;
    p.a_k = transposed ? m + gap : draw(1, 2);
    p.a_m = transposed ? 1 : k * p.a_k + gap;
    p.a_b2 = m * k * 2 + (m + k) * 3 + gap;
    p.a_b1 = draw(0, 1) * p.b2 * p.a_b2;
    p.a_b0 = p.b1 * p.b2 * p.a_b2;
    p.b_b2 = draw(0, 1) * panels * k * 16;
    p.b_b1 = p.b2 * panels * k * 16;
    p.b_b0 = p.b1 * p.b_b1;
    float *a = noise(batches * p.a_b2);
    float *b = noise(batches * panels * k * 16);
    if (special) {
        poison(a, batches * p.a_b2);
        poison(b, batches * panels * k * 16);
    }
    p.a = a, p.b = b;
    target.rank = 3, target.rows = m, target.cols = n;
    memcpy(target.extents, (int64_t[]){p.b0, p.b1, p.b2}, 24);
    const int64_t count = batches * m * n;
    double *wanted = malloc((size_t)count * 8 + 8);
    ci_matmul_plain(&p, wanted);
    RUN(CI(matmul), &p, count);
    checked("matmul", target.out, wanted, count, special ? INFINITY : 1e-7 * (double)(k + 1));
    free(a), free(b), free(wanted), free(target.out);
}

static void check_conv(bool channels_last)
{
    ci_conv p = {.tile = store};
    const int64_t most[] = {2, 2, 2, 5, 30, 70, 2, 3, 4, draw(0, 3) ? 9 : 150};
    int64_t *extents[] = {&p.n, &p.g, &p.d, &p.h, &p.w, &p.o, &p.kd, &p.kh, &p.kw, &p.c};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) *extents[i] = draw(1, most[i]);
    const int64_t sw = draw(1, 2), dw = draw(1, 2), pad = draw(0, 1);
    const int64_t width = (p.w - 1) * sw + (p.kw - 1) * dw + 1 + pad, height = p.h + p.kh, depth = p.d + p.kd;
    const int64_t channels = p.g * p.c, pixels = width * height * depth;
    const int64_t pixel = channels_last ? channels : 1;
    p.x_c = channels_last ? 1 : pixels;
    p.x_g = p.c * p.x_c;
    p.x_w = sw * pixel, p.x_kw = dw * pixel;
    p.x_h = p.x_kh = width * pixel;
    p.x_d = p.x_kd = height * width * pixel;
    p.x_n = pixels * channels;
    const int64_t terms = p.kd * p.kh * p.kw * p.c;
    p.filter_g = (p.o + 15) / 16 * 16 * terms;
    float *x = noise(p.n * p.x_n);
    float *filter = noise(p.g * p.filter_g);
    p.x = x, p.filter = filter;
    target.rank = 4, target.rows = p.w, target.cols = p.o;
    memcpy(target.extents, (int64_t[]){p.n, p.g, p.d, p.h}, 32);
    const int64_t count = p.n * p.g * p.d * p.h * p.w * p.o;
    double *wanted = malloc((size_t)count * 8);
    ci_conv_plain(&p, wanted);
    RUN(CI(conv), &p, count);
    checked("conv", target.out, wanted, count, 1e-7 * (double)(terms + 1));
    free(x), free(filter), free(wanted), free(target.out);
}

/* Rows of the matrices that take filters to points; `to_points` of program/winograd.py. */
static const double into2[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};

static double into_point(int64_t m, int64_t i, int64_t tap)
{
    const double values[] = {0, 5.0 / 8, -5.0 / 8, 3.0 / 2, -3.0 / 2};
    double scale = 1;
    if (m == 2 || i == 5) return m == 2 ? into2[i][tap] : tap == 2;
    for (int64_t j = 0; j < 5; j++) scale *= j == i ? 1 : values[i] - values[j];
    return pow(values[i], (double)tap) / scale;
}

/* filter: [o/16][3][3][c][16] -> [points][o/16][c][16]. */
static float *to_points(const float *filter, int64_t m, int64_t c, int64_t o)
{
    const int64_t panels = (o + 15) / 16, size = m + 2;
    float *points = noise(size * size * panels * c * 16), *to = points;
    for (int64_t i = 0; i < size * size; i++)
        for (int64_t panel = 0; panel < panels; panel++)
            for (int64_t at = 0; at < c * 16; at++) {
                double sum = 0;
                for (int64_t tap = 0; tap < 9; tap++)
                    sum += into_point(m, i / size, tap / 3) * into_point(m, i % size, tap % 3) *
                           filter[(panel * 9 + tap) * c * 16 + at];
                *to++ = (float)sum;
            }
    return points;
}

static void check_winograd(int64_t m, bool channels_last)
{
    ci_conv p = {.n = draw(1, 2),
                 .h = draw(1, 30),
                 .w = draw(1, 70),
                 .o = draw(1, 70),
                 .c = draw(0, 3) ? draw(1, 40) : draw(60, 330),
                 .g = 1,
                 .d = 1,
                 .kd = 1,
                 .kh = 3,
                 .kw = 3,
                 .tile = store};
    const int64_t gap = draw(0, 3), pixel = channels_last ? p.c + gap : 1, pixels = (p.h + 2) * (p.w + 2 + gap);
    p.x_c = channels_last ? 1 : pixels;
    p.x_w = p.x_kw = pixel;
    p.x_h = p.x_kh = (p.w + 2 + gap) * pixel;
    p.x_n = channels_last ? pixels * pixel : pixels * p.c;
    float *x = noise(p.n * p.x_n);
    float *filter = noise((p.o + 15) / 16 * 16 * 9 * p.c);
    p.x = x, p.filter = filter;
    target.rank = 4, target.rows = p.w, target.cols = p.o;
    memcpy(target.extents, (int64_t[]){p.n, 1, 1, p.h}, 32);
    const int64_t count = p.n * p.h * p.w * p.o;
    double *wanted = malloc((size_t)count * 8);
    ci_conv_plain(&p, wanted);
    float *points = to_points(filter, m, p.c, p.o);
    p.filter = points;
    p.scratch = noise(CI_WINOGRAD_SCRATCH((m + 2) * (m + 2), p.c));
    if (m == 2) RUN(CI(winograd2), &p, count);
    else RUN(CI(winograd4), &p, count);
    checked(m == 2 ? "winograd2" : "winograd4", target.out, wanted, count, (m == 2 ? 1e-7 : 1e-6) * (double)(9 * p.c + 1));
    free(x), free(filter), free(points), free(p.scratch), free(wanted), free(target.out);
}

enum layer { RNN, LSTM, GRU };

/* The whole layer by its plain step. y, yh, yc as in ci_recurrent. */
static void plain_layer(enum layer layer, const ci_recurrent *p, double *y, double *yh, double *yc)
{
    const int64_t gates = layer == RNN ? 1 : layer == LSTM ? 4 : 3, hidden = p->hidden;
    double *work = malloc((size_t)hidden * 24);
    for (int64_t n = 0; n < p->batch; n++) {
        const int64_t row = p->direction * p->batch + n, length = p->lengths ? p->lengths[n] : p->steps;
        double *h = yh + row * hidden, *c = yc + row * hidden;
        for (int64_t j = 0; j < hidden; j++) {
            h[j] = p->h0 ? p->h0[row * hidden + j] : 0;
            c[j] = p->c0 ? p->c0[row * hidden + j] : 0;
        }
        for (int64_t step = 0; step < length; step++) {
            const int64_t time = p->reverse ? length - 1 - step : step;
            const float *x = p->gates + (time * p->batch + n) * gates * hidden;
            if (layer == RNN) CI(rnn_plain)(p, x, h, work);
            else if (layer == LSTM) CI(lstm_plain)(p, x, h, c, work);
            else CI(gru_plain)(p, x, h, work);
            memcpy(y + (time * p->directions * p->batch + row) * hidden, h, (size_t)hidden * 8);
        }
    }
    free(work);
}

static void check_recurrent(enum layer layer)
{
    ci_recurrent p = {.steps = draw(0, 5), .batch = draw(1, draw(0, 1) ? 1 : 16), .hidden = draw(1, 40), .directions = 2};
    p.direction = draw(0, 1);
    p.reverse = draw(0, 1);
    p.input_forget = draw(0, 1);
    p.linear_before_reset = draw(0, 1);
    p.clip = draw(0, 2) ? 0 : 0.5f;
    const int64_t gates = layer == RNN ? 1 : layer == LSTM ? 4 : 3, state = p.batch * p.hidden;
    const int64_t panels = (gates * p.hidden + 15) / 16, count = p.steps * 2 * state;
    for (int i = 0; i < 3; i++)
        p.activations[i] = (ci_activation_of){draw(0, 1) ? i > 0 : (int32_t)draw(0, CI_SOFTPLUS), 0.5f, 0.25f};
    const int64_t sizes[] = {p.steps * gates * state + 1, panels * 16 * p.hidden, p.hidden, 2 * state, 2 * state, 3 * p.hidden};
    float *operands[6];
    for (int i = 0; i < 6; i++) operands[i] = noise(sizes[i]);
    for (int64_t i = 0; i < sizes[1]; i++) /* a layer that damps: errors do not grow from step to step */
        operands[1][i] *= 0.25f;
    p.gates = operands[0], p.recurrent = operands[1];
    p.recurrent_bias = draw(0, 1) ? operands[2] : NULL;
    p.h0 = draw(0, 1) ? operands[3] : NULL;
    p.c0 = draw(0, 1) ? operands[4] : NULL;
    p.peephole = draw(0, 1) ? operands[5] : NULL;
    int32_t lengths[16];
    for (int i = 0; i < 16; i++) lengths[i] = (int32_t)draw(0, p.steps);
    p.lengths = draw(0, 1) ? lengths : NULL;
    p.y = calloc((size_t)count + 4 * (size_t)state, 4);
    p.yh = p.y + count, p.yc = layer == LSTM ? p.yh + 2 * state : NULL;
    for (int64_t time = 0; time < p.steps; time++) /* what the kernel must clear */
        for (int64_t i = 0; i < state; i++) p.y[(time * 2 + p.direction) * state + i] = marker;
    p.scratch = noise(CI_RECURRENT_SCRATCH(gates, p.batch, p.hidden));
    double *wanted = calloc((size_t)count + 4 * (size_t)state, 8);
    const ci_run run = {0};
    (layer == RNN ? CI(rnn) : layer == LSTM ? CI(lstm) : CI(gru))(&run, &p);
    plain_layer(layer, &p, wanted, wanted + count, wanted + count + 2 * state);
    checked(layer == RNN ? "rnn" : layer == LSTM ? "lstm" : "gru", p.y, wanted, count + (layer == LSTM ? 4 : 2) * state, 1e-5);
    for (int i = 0; i < 6; i++) free(operands[i]);
    free(p.y), free(p.scratch), free(wanted);
}

/* Hashes are printed kernel by kernel: where they part, that kernel is at fault. */
static void report(const char *kernel) { printf("%s %016llx\n", kernel, (unsigned long long)hash); }

static void check(void)
{
    for (int64_t m = 1; m <= 32; m++) check_matmul(m, draw(1, 70), 37, false);
    const int64_t depths[] = {0, 1, 2, 63, 64, 65, 127, 128, 129, 257, 600};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) check_matmul(17, draw(1, 70), depths[i], false);
    check_matmul(120, 33, 70, false);
    check_matmul(0, 5, 3, false);
    check_matmul(5, 0, 3, false);
    for (int i = 0; i < 8; i++) check_matmul(1 + 4 * i, 23, draw(1, 300), true);
    report("matmul");
    for (int i = 0; i < 24; i++) check_conv(i % 2);
    report("conv");
    for (int i = 0; i < 30; i++) check_recurrent(RNN);
    report("rnn");
    for (int i = 0; i < 30; i++) check_recurrent(LSTM);
    report("lstm");
    for (int i = 0; i < 30; i++) check_recurrent(GRU);
    report("gru");
    for (int i = 0; i < 24; i++) check_winograd(2 + i % 4 / 2 * 2, i % 2);
    report("winograd");
    for (int i = 0; i < 24; i++) check_matmul(29, 40, 1024, i % 3 == 0); /* among them rows of 4,096 bytes */
    report("rows that collide");
}

#include "timing.h"

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "--time")) {
        time_all();
        return 0;
    }
    check();
    return failures != 0;
}
