#define _POSIX_C_SOURCE 200809L

#include "measure.h"

#include "number.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* "12.345", or to the nanosecond where it is less than 0.1 */
static void milliseconds(char *text, int64_t ns)
{
    int length = ci_print_int(text, ns / 1000000);
    int64_t rest = ns % 1000000;
    int places = ns < 100000 ? 6 : 3;
    text[length++] = '.';
    for (int i = 0; i < places; i++, rest = rest % 100000 * 10) text[length++] = (char)('0' + rest / 100000);
    text[length] = 0;
}

static void sort(int64_t *times, int64_t count)
{
    for (int64_t gap = count / 2; gap > 0; gap /= 2)
        for (int64_t i = gap; i < count; i++) {
            int64_t time = times[i], j = i;
            for (; j >= gap && times[j - gap] > time; j -= gap) times[j] = times[j - gap];
            times[j] = time;
        }
}

static void print_times(ci_out *out, const int64_t *sorted, int64_t count)
{
    char text[CI_NUMBER_ROOM];
    ci_out_int(out, count);
    ci_out_text(out, " runs: min ");
    milliseconds(text, sorted[0]);
    ci_out_text(out, text);
    ci_out_text(out, " ms, median ");
    milliseconds(text, sorted[count / 2]);
    ci_out_text(out, text);
    ci_out_text(out, " ms, max ");
    milliseconds(text, sorted[count - 1]);
    ci_out_text(out, text);
    ci_out_text(out, " ms\n");
}

int ci_repeat(ci_session *session, const ci_model *model, const ci_array *inputs, ci_array *outputs, int64_t count,
              ci_out *out, ci_error *error)
{
    int64_t *times = malloc((size_t)count * sizeof *times);
    if (!times) return ci_no_memory(error, count * (int64_t)sizeof *times);
    int status = CI_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        memset(outputs, 0, (size_t)model->output_count * sizeof *outputs);
        int64_t start = now();
        status = ci_session_run(session, inputs, outputs, error);
        times[i] = now() - start;
    }
    if (!status) {
        sort(times, count);
        print_times(out, times, count);
    }
    free(times);
    return status;
}

static int widest(const ci_code *code, bool op, const char *title)
{
    size_t width = strlen(title);
    for (int32_t i = 0; i < code->forward_count; i++) {
        size_t length = strlen(op ? code->forward[i].op : code->forward[i].name);
        if (length > width) width = length;
    }
    return (int)width;
}

static void row(ci_out *out, const char *const *cells, const int *widths)
{
    for (int i = 0; i < 5; i++) {
        if (i) ci_out_text(out, "  ");
        ci_out_padded(out, cells[i], widths[i]);
    }
    ci_out_text(out, "\n");
}

static void timed_row(ci_out *out, const char *name, const char *op, int64_t runs, int64_t ns, int64_t all,
                      const int *widths)
{
    char calls[CI_NUMBER_ROOM], total[CI_NUMBER_ROOM], share[CI_NUMBER_ROOM];
    calls[ci_print_int(calls, runs)] = 0;
    milliseconds(total, ns);
    int64_t tenths = all ? (int64_t)((double)ns / (double)all * 1000 + 0.5) : 0;
    int length = ci_print_int(share, tenths / 10);
    share[length] = '.';
    share[length + 1] = (char)('0' + tenths % 10);
    share[length + 2] = 0;
    row(out, (const char *const[]){name, op, calls, total, share}, widths);
}

void ci_profile(const ci_session *session, int64_t runs, ci_out *out)
{
    const ci_code *code = ci_session_code(session);
    int widths[] = {widest(code, false, "step"), widest(code, true, "op"), -7, -12, -5};
    int64_t all = 0;
    for (int32_t i = 0; i < code->forward_count; i++) all += ci_session_step_ns(session, i);
    row(out, (const char *const[]){"step", "op", "calls", "total ms", "%"}, widths);
    for (int32_t i = 0; i < code->forward_count; i++)
        timed_row(out, code->forward[i].name, code->forward[i].op, runs, ci_session_step_ns(session, i), all, widths);
    timed_row(out, "all", "", runs, all, all, widths);
}
