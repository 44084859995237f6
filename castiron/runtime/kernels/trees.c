/* Walks of decision trees: eight rows at a time go down one tree, so that their look-ups overlap. */
#include "../castiron.h"

enum { ROWS = 8 };

#define CI_HOLDS(T)                                                                               \
    static inline bool holds_##T(T value, T split, int32_t comparison)                            \
    {                                                                                             \
        if (value != value && comparison & CI_NAN_HOLDS) return true;                             \
        switch (comparison & ~CI_NAN_HOLDS) {                                                     \
        case CI_AT_MOST: return value <= split;                                                   \
        case CI_BELOW: return value < split;                                                      \
        case CI_AT_LEAST: return value >= split;                                                  \
        case CI_ABOVE: return value > split;                                                      \
        case CI_SAME: return value == split;                                                      \
        default: return value != split;                                                           \
        }                                                                                         \
    }                                                                                             \
    static void walk_##T(const ci_trees_of *p, int64_t row, int64_t rows, int64_t tree)           \
    {                                                                                             \
        const T *x = (const T *)p->x + row * p->features, *split = p->split;                      \
        int32_t at[ROWS];                                                                         \
        for (int64_t i = 0; i < rows; i++) at[i] = p->roots[tree];                                \
        for (bool going = p->roots[tree] >= 0; going;) {                                          \
            going = false;                                                                        \
            for (int64_t i = 0; i < rows; i++) {                                                  \
                if (at[i] < 0) continue;                                                          \
                const int32_t *node = p->nodes + 4 * (int64_t)at[i];                              \
                at[i] = node[1 + holds_##T(x[i * p->features + node[0]], split[at[i]], node[3])]; \
                going |= at[i] >= 0;                                                              \
            }                                                                                     \
        }                                                                                         \
        for (int64_t i = 0; i < rows; i++) p->leaf[(row + i) * p->trees + tree] = ~at[i];         \
    }

CI_HOLDS(float)
CI_HOLDS(double)

static void blocks(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    (void)run;
    const ci_trees_of *p = argument;
    for (int64_t tree = 0; tree < p->trees; tree++) /* a tree stays in the cache for all rows */
        for (int64_t row = begin * ROWS; row < end * ROWS && row < p->rows; row += ROWS) {
            const int64_t rows = p->rows - row < ROWS ? p->rows - row : ROWS;
            (p->wide ? walk_double : walk_float)(p, row, rows, tree);
        }
}

void ci_trees(const ci_run *run, const ci_trees_of *p)
{
    ci_parallel(run, blocks, p, (p->rows + ROWS - 1) / ROWS, p->trees * ROWS * 60);
}
