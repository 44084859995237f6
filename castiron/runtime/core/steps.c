#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "steps.h"

#include "error.h"

#include <inttypes.h>
#include <time.h>

/* In ci_fault.extent: an index into a dimension without elements, where 0 would mean that there is no fault. */
#define EMPTY_EXTENT INT64_MIN

int64_t ci_index(const ci_run *run, int64_t index, int64_t extent)
{
    int64_t found = index < 0 ? index + extent : index;
    if (found >= 0 && found < extent) return found;
    int64_t none = 0, bad = extent > 0 ? extent : EMPTY_EXTENT;
    ci_fault *fault = run->fault;
    if (__atomic_compare_exchange_n(&fault->extent, &none, bad, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        fault->index = index; /* only the thread that came first gets here */
    return 0;
}

int64_t ci_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int ci_run_steps(ci_run *run, const ci_step *steps, int32_t count, int64_t *ns, int status, ci_error *error)
{
    ci_fault fault = {0};
    run->fault = &fault;
    int64_t before = ns ? ci_now_ns() : 0;
    for (int32_t i = 0, next; i < count && !fault.extent && !fault.reason; i = next) {
        const ci_step *step = &steps[i];
        next = i + 1;
        fault.step = i;
        if (step->run) step->run(run);
        else if (!step->test || !step->test(run)) next = step->jump;
        if (!ns) continue;
        int64_t after = ci_now_ns();
        ns[i] += after - before;
        before = after;
    }
    run->fault = NULL;
    const ci_step *step = &steps[fault.step];
    if (fault.reason)
        return ci_fail(error, status == CI_BAD_INPUT ? fault.status : status, "step '%s' (%s): %s", step->name, step->op,
                       fault.reason);
    if (!fault.extent) return CI_OK;
    int64_t extent = fault.extent == EMPTY_EXTENT ? 0 : fault.extent;
    return ci_fail(error, status, "step '%s' (%s): index %" PRId64 " is outside [%" PRId64 ", %" PRId64 ")", step->name, step->op,
                   fault.index, -extent, extent);
}
