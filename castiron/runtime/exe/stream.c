#define _POSIX_C_SOURCE 200809L

#include "stream.h"

#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What was read and not answered yet. */
typedef struct lines {
    ci_bytes bytes;
    size_t begin, seen; /* of the current line; how far no newline is */
    int64_t number;     /* of the current line */
    bool ended;
} lines;

static int read_more(lines *l, ci_error *error)
{
    if (l->begin) { /* at most once a read, and the rest of one line: linear */
        memmove(l->bytes.data, l->bytes.data + l->begin, l->bytes.size - l->begin);
        l->bytes.size -= l->begin;
        l->begin = 0;
    }
    l->seen = l->bytes.size;
    if (!ci_reserve(&l->bytes, 4096)) return ci_no_memory(error, (int64_t)l->bytes.size * 2);
    ssize_t count = read(STDIN_FILENO, l->bytes.data + l->bytes.size, l->bytes.room - l->bytes.size);
    if (count < 0 && errno != EINTR) return ci_refuse(error, "standard input: cannot read (%s)", ci_reason(errno));
    if (count > 0) l->bytes.size += (size_t)count;
    l->ended = count == 0;
    return CI_OK;
}

/* The next line, without its newline; *line is NULL at the end. */
static int next_line(lines *l, const char **line, size_t *size, ci_error *error)
{
    for (;;) {
        char *newline = l->bytes.size > l->seen ? memchr(l->bytes.data + l->seen, '\n', l->bytes.size - l->seen) : NULL;
        if (newline || l->ended) {
            size_t end = newline ? (size_t)(newline - l->bytes.data) : l->bytes.size;
            *line = newline || end > l->begin ? l->bytes.data + l->begin : NULL;
            *size = end - l->begin;
            l->begin = l->seen = newline ? end + 1 : end;
            l->number++;
            return CI_OK;
        }
        int status = read_more(l, error);
        if (status) return status;
    }
}

static bool blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static int answer(const char *line, size_t size, int64_t number, ci_session *session, ci_inputs *inputs, ci_array *outputs,
                  ci_out *out, ci_error *error)
{
    const ci_model *model = inputs->model;
    memset(outputs, 0, (size_t)model->output_count * sizeof *outputs);
    int status = ci_json_read(line, size, "standard input", number, inputs, -1, error);
    if (!status) status = ci_inputs_complete(inputs, error);
    if (!status) status = ci_session_run(session, inputs->arrays, outputs, error);
    if (!status) status = ci_json_write(&out->text, model, outputs, error);
    ci_inputs_clear(inputs);
    return status;
}

int ci_stream(ci_session *session, ci_inputs *inputs, ci_array *outputs, ci_out *out, ci_error *error)
{
    lines l = {0};
    const char *line;
    size_t size;
    int64_t failures = 0;
    int status;
    while (!(status = next_line(&l, &line, &size, error)) && line && !out->code) {
        if (blank(line, size)) continue;
        if (answer(line, size, l.number, session, inputs, outputs, out, error)) {
            failures++;
            ci_put_text(&out->text, "{\"error\": ");
            ci_json_write_string(&out->text, error->text);
            ci_put_text(&out->text, "}\n");
        }
        ci_out_flush(out);
    }
    free(l.bytes.data);
    if (!status && failures) status = ci_refuse(error, "%" PRId64 " lines could not be answered", failures);
    return status;
}
