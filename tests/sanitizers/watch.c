#define WATCH_ITSELF
#include "watch.h"

#include "castiron.h"
#include "core/steps.h"

#include <stdlib.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WATCH_ADDRESSES 1
#elif __has_feature(memory_sanitizer)
#define WATCH_VALUES 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WATCH_ADDRESSES 1
#endif

#if defined(WATCH_ADDRESSES)
#include <sanitizer/asan_interface.h>
#define FORBID(data, size) __asan_poison_memory_region(data, size)
#define ALLOW(data, size) __asan_unpoison_memory_region(data, size)
#define FORGET(data, size) ((void)0)
#elif defined(WATCH_VALUES)
#include <sanitizer/msan_interface.h>
#define FORBID(data, size) ((void)0)
#define ALLOW(data, size) ((void)0)
#define FORGET(data, size) __msan_allocated_memory(data, size)
#else
#define FORBID(data, size) ((void)0)
#define ALLOW(data, size) ((void)0)
#define FORGET(data, size) ((void)0)
#endif

enum { PAGE = 4096, RED = 256 };

extern const ci_model *const ci_main_model;

static size_t whole_pages(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

void *watch_mmap(void *at, size_t size, int protection, int flags, int file, long offset)
{
    char *data = mmap(at, size, protection, flags, file, offset);
    if (data == MAP_FAILED) return data;
    FORBID(data + size, whole_pages(size) - size);
    if (file < 0) FORGET(data, size);
    return data;
}

int watch_munmap(void *data, size_t size)
{
    ALLOW(data, whole_pages(size));
    return munmap(data, size);
}

/* One place for each buffer, whatever their lives, and a red zone behind it. `ends`, where it is there: of the buffers. */
static int64_t apart(const int64_t *bytes, int32_t n, int64_t *offsets, int64_t *ends)
{
    int64_t at = 0;
    for (int32_t i = 0; i < n; ++i) {
        if (bytes[i] < 0) return -1;
        if (bytes[i] > INT64_MAX / 4 - at) return INT64_MAX;
        offsets[i] = at;
        if (ends) ends[i] = at + bytes[i];
        at += (bytes[i] + CI_ALIGN - 1) / CI_ALIGN * CI_ALIGN + RED;
    }
    return at;
}

static _Thread_local int64_t *wanted_ends;

int64_t watch_plan(const ci_life *lives, const int64_t *bytes, int32_t n, int64_t *offsets)
{
    (void)lives;
    return apart(bytes, n, offsets, wanted_ends);
}

int watch_run_steps(ci_run *run, const ci_step *steps, int32_t count, int64_t *ns, int status, ci_error *error)
{
    const ci_model *model = ci_main_model;
    const size_t n = (size_t)model->offset_count;
    if (!n || !run->offsets || steps != model->codes[0]->forward) /* literal offsets */
        return ci_run_steps(run, steps, count, ns, status, error);
    int64_t *offsets = malloc(2 * n * sizeof *offsets);
    wanted_ends = offsets + n;
    const int64_t size = model->plan(run->sizes, offsets);
    wanted_ends = NULL;
    const char *shorter = getenv("WATCH_SHORTER"); /* bytes: a test of the watch itself */
    FORGET(run->arena, (size_t)size);
    for (size_t i = 0; i < n; ++i) {
        const int64_t next = i + 1 < n ? offsets[i + 1] : size, end = offsets[n + i] - (shorter ? atoi(shorter) : 0);
        FORBID(run->arena + end, (size_t)(next - end));
    }
    const int found = ci_run_steps(run, steps, count, ns, status, error);
    ALLOW(run->arena, (size_t)size);
    free(offsets);
    return found;
}
