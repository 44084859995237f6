/* Where flags are set: the first step of NonZero and Compress. */
#include "../castiron.h"

void ci_select(const ci_run *run, const ci_select_of *p)
{
    (void)run;
    int64_t found = 0;
    for (int64_t i = 0; i < p->n; ++i) {
        p->positions[found] = i; /* without a branch: whether flags are set is hard to guess */
        found += p->flags[i];
    }
    *p->count = found;
}
