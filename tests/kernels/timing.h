/* `ladder --time`: the kernels on shapes of well-known models. Included by ladder.c, which makes the operands. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The best of some runs, in GFLOP/s. */
#define TIMED(name, flops, call)                                             \
    do {                                                                     \
        double best = 1e9;                                                   \
        for (double start = now(); now() - start < 0.15;) {                  \
            const double begin = now();                                      \
            call;                                                            \
            best = fmin(best, now() - begin);                                \
        }                                                                    \
        printf("%-32s %8.1f GFLOP/s\n", name, (double)(flops) / best / 1e9); \
    } while (0)

/* Independent chains of fused multiply-add in registers: all the machine can do. */
__attribute__((noinline)) static float peak(int64_t turns)
{
    enum { CHAINS = CI_LANES == 16 ? 24 : 12 };
    ci_vector sums[CHAINS], x = ci_broadcast(0.999f), total = {0};
    CI_UNROLL
    for (int j = 0; j < CHAINS; j++) sums[j] = ci_broadcast((float)j); /* chains that differ: compilers join equal ones */
    for (int64_t i = 0; i < turns; i++) {
        CI_UNROLL
        for (int j = 0; j < CHAINS; j++) sums[j] = ci_multiply_add(sums[j], x, x);
        __asm__ volatile("" : "+r"(turns));
    }
    CI_UNROLL
    for (int j = 0; j < CHAINS; j++) total += sums[j];
    return total[0];
}

static void time_matmul(int64_t m, int64_t n, int64_t k)
{
    const int64_t panels = (n + 15) / 16;
    float *a = noise(m * k), *b = noise(panels * k * 16);
    const ci_matmul p = {1, 1, 1, m, n, k, a, 0, 0, 0, k, 1, b, 0, 0, 0, nothing};
    const ci_run run = {0};
    char name[64];
    snprintf(name, sizeof name, "matmul %lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
    TIMED(name, 2 * m * n * k, CI(matmul)(&run, &p));
    free(a), free(b);
}

enum form { PLAIN, WINOGRAD2, WINOGRAD4 };

static void time_conv(enum form form, int64_t size, int64_t c, int64_t o)
{
    const int64_t line = (size + 2) * c, points = form == PLAIN ? 9 : form == WINOGRAD2 ? 16 : 36;
    float *x = noise((size + 2) * line), *filter = noise((o + 15) / 16 * 16 * points * c);
    float *scratch = noise(CI_WINOGRAD_SCRATCH(points, c));
    const ci_conv p = {1, 1, 1, size, size, o, 1, 3, 3, c, x, 0, 0, 0, line, c, 0, line, c, 1, filter, 0, nothing, scratch};
    const ci_run run = {0};
    char name[64];
    snprintf(name, sizeof name, "%s 3x3 %lldx%lld %lld>%lld", (const char *[]){"conv", "F(2x2)", "F(4x4)"}[form], (long long)size,
             (long long)size, (long long)c, (long long)o);
    if (form == PLAIN) TIMED(name, 18 * size * size * c * o, CI(conv)(&run, &p));
    else if (form == WINOGRAD2) TIMED(name, 18 * size * size * c * o, CI(winograd2)(&run, &p));
    else TIMED(name, 18 * size * size * c * o, CI(winograd4)(&run, &p));
    free(x), free(filter), free(scratch);
}

static void time_all(void)
{
    volatile float kept;
    const int64_t turns = 1000000 / CI_LANES, chains = CI_LANES == 16 ? 24 : 12;
    TIMED("peak", 2 * turns * chains * CI_LANES, kept = peak(turns));
    (void)kept;
    const int64_t matmuls[][3] = {{384, 384, 384},  {768, 768, 768}, {120, 768, 768}, {120, 3072, 768}, {784, 64, 576},
                                  {12, 1024, 1024}, {1, 1024, 1024}, {3136, 256, 64}, {49, 2048, 512}};
    for (size_t i = 0; i < sizeof matmuls / sizeof *matmuls; i++) time_matmul(matmuls[i][0], matmuls[i][1], matmuls[i][2]);
    const int64_t convs[][3] = {{56, 64, 64},  {28, 128, 128}, {14, 256, 256}, {7, 512, 512}, {112, 3, 64},
                                {256, 32, 32}, {64, 128, 128}, {28, 64, 64},   {16, 32, 32}};
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
        for (enum form form = PLAIN; form <= WINOGRAD4; form++) time_conv(form, convs[i][0], convs[i][1], convs[i][2]);
    TIMED("peak again", 2 * turns * chains * CI_LANES, kept = peak(turns));
}
