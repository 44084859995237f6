/* What the checks of kernels share: numbers to draw, the hash of all results, and a pool of one thread. Included after the
   runtime's headers. */
static uint64_t hash = 1469598103934665603u;
static uint32_t seed = 1;
static int failures;
static int64_t piece; /* ci_parallel: items of one range; 0: all in one */

/* Ranges run last to first, as threads might. */
void ci_parallel(const ci_run *run, ci_range *range, const void *argument, int64_t count, int64_t work)
{
    (void)work;
    const int64_t size = piece ? piece : count;
    for (int64_t begin = (count - 1) / size * size; begin >= 0; begin -= size)
        range(run, argument, begin, begin + size < count ? begin + size : count);
}

static int64_t draw(int64_t low, int64_t high)
{
    seed = seed * 1664525u + 1013904223u;
    return low + (int64_t)(seed >> 8) % (high - low + 1);
}
