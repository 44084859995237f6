#include "measure.h"

#include "../core/steps.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "12.345", or to the nanosecond where it is less than 0.1, right-aligned */
static void put_milliseconds(ci_text *out, int64_t ns, int width)
{
    char text[CI_NUMBER_ROOM];
    int length = ci_print_int(text, ns / 1000000);
    int64_t rest = ns % 1000000;
    int places = ns < 100000 ? 6 : 3;
    text[length++] = '.';
    for (int i = 0; i < places; i++, rest = rest % 100000 * 10) text[length++] = (char)('0' + rest / 100000);
    text[length] = 0;
    ci_put_padded(out, text, -width);
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

static void put_times(ci_text *out, const int64_t *sorted, int64_t count)
{
    ci_put(out, "%" PRId64 " runs: min ", count);
    put_milliseconds(out, sorted[0], 0);
    ci_put_text(out, " ms, median ");
    put_milliseconds(out, sorted[count / 2], 0);
    ci_put_text(out, " ms, max ");
    put_milliseconds(out, sorted[count - 1], 0);
    ci_put_text(out, " ms\n");
}

int ci_repeat(ci_session *session, const ci_model *model, const ci_array *inputs, ci_array *outputs, int64_t count, ci_text *out,
              ci_error *error)
{
    int64_t *times = malloc((size_t)count * sizeof *times);
    if (!times) return ci_no_memory(error, count * (int64_t)sizeof *times);
    int status = CI_OK;
    for (int64_t i = 0; i < count && !status; i++) {
        memset(outputs, 0, (size_t)model->output_count * sizeof *outputs);
        int64_t start = ci_now_ns();
        status = ci_session_run(session, inputs, outputs, error);
        times[i] = ci_now_ns() - start;
    }
    if (!status) {
        sort(times, count);
        put_times(out, times, count);
    }
    free(times);
    return status;
}

static void widen(int *width, const char *cell)
{
    if (*width < (int)strlen(cell)) *width = (int)strlen(cell);
}

static void put_row(ci_text *out, const char *name, const char *op, const int *widths, int64_t runs, int64_t ns, int64_t all)
{
    char calls[CI_NUMBER_ROOM];
    int64_t tenths = all ? (int64_t)((double)ns / (double)all * 1000 + 0.5) : 0;
    ci_text text = ci_text_in(calls, sizeof calls);
    ci_put_padded(out, name, widths[0]);
    ci_put_text(out, "  ");
    ci_put_padded(out, op, widths[1]);
    ci_put(&text, "%" PRId64, runs);
    ci_put_padded(out, calls, -9);
    put_milliseconds(out, ns, 14);
    text = ci_text_in(calls, sizeof calls);
    ci_put(&text, "%" PRId64 ".%d\n", tenths / 10, (int)(tenths % 10));
    ci_put_padded(out, calls, -8);
}

void ci_profile(const ci_session *session, int64_t runs, ci_text *out)
{
    const ci_code *code = ci_session_code(session);
    const ci_step *steps = code->forward;
    int widths[] = {4, 2};
    int64_t all = 0;
    for (int32_t i = 0; i < code->forward_count; i++) {
        all += ci_session_step_ns(session, i);
        widen(&widths[0], steps[i].name);
        widen(&widths[1], steps[i].op);
    }
    ci_put_padded(out, "step", widths[0]);
    ci_put_text(out, "  ");
    ci_put_padded(out, "op", widths[1]);
    ci_put_text(out, "    calls      total ms      %\n");
    for (int32_t i = 0; i < code->forward_count; i++)
        put_row(out, steps[i].name, steps[i].op, widths, runs, ci_session_step_ns(session, i), all);
    put_row(out, "all", "", widths, runs, all, all);
}
