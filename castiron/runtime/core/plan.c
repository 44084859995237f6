#include "../castiron.h"

#include <stdlib.h>

/* Larger buffers first, among equals the earlier in the list. Not the fastest sort, but placing them takes as long. */
static void by_size(const int64_t *bytes, int32_t n, int32_t *order)
{
    for (int32_t i = 0; i < n; ++i) {
        int32_t at = i;
        for (; at > 0 && bytes[order[at - 1]] < bytes[i]; --at) order[at] = order[at - 1];
        order[at] = i;
    }
}

static int64_t aligned(int64_t bytes) { return (bytes + CI_ALIGN - 1) & -(int64_t)CI_ALIGN; }

/* The smallest gap that holds `size` bytes between the buffers alive together with `life`, the lowest among equals; else
   behind the last of them. `placed` is in order of offsets. */
static int64_t best_gap(ci_life life, int64_t size, const ci_life *lives, const int64_t *bytes, const int64_t *offsets,
                        const int32_t *placed, int32_t count)
{
    int64_t end = 0, best = -1, best_size = INT64_MAX;
    for (int32_t i = 0; i < count; ++i) {
        int32_t other = placed[i];
        if (lives[other].first > life.last || life.first > lives[other].last) continue;
        int64_t gap = offsets[other] - end;
        if (gap >= size && gap < best_size) {
            best = end;
            best_size = gap;
        }
        int64_t other_end = offsets[other] + aligned(bytes[other]);
        if (other_end > end) end = other_end;
    }
    return best >= 0 ? best : end;
}

int64_t ci_plan(const ci_life *lives, const int64_t *bytes, int32_t n, int64_t *offsets)
{
    const int64_t too_much = INT64_MAX, most = INT64_MAX / 4;
    for (int32_t i = 0; i < n; ++i)
        if (bytes[i] < 0) return -1;
    int32_t *placed = malloc(2 * sizeof *placed * (size_t)(n > 0 ? n : 1)), *order = placed + n;
    if (!placed) return too_much;
    by_size(bytes, n, order);
    int64_t total = 0;
    for (int32_t k = 0; k < n && total < most; ++k) {
        int32_t i = order[k], at = k;
        if (bytes[i] > most) {
            total = too_much;
            break;
        }
        offsets[i] = best_gap(lives[i], aligned(bytes[i]), lives, bytes, offsets, placed, k);
        int64_t end = offsets[i] + aligned(bytes[i]);
        if (end > total) total = end;
        for (; at > 0 && offsets[placed[at - 1]] > offsets[i]; --at) placed[at] = placed[at - 1];
        placed[at] = i;
    }
    free(placed);
    return total < most ? total : too_much;
}
