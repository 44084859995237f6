#include "tensors.h"

#include "error.h"
#include "types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static ci_text begin_message(const ci_tensors *t, ci_slice name)
{
    ci_text text = ci_weights_message(t->error, t->path);
    ci_put(&text, "tensor '%.*s' ", (int)name.size, name.at);
    return text;
}

CI_NO_FLOATS int ci_tensor_fail(const ci_tensors *t, ci_slice name, const char *format, ...)
{
    ci_text text = begin_message(t, name);
    va_list arguments;
    va_start(arguments, format);
    ci_put_all(&text, format, arguments);
    va_end(arguments);
    return CI_BAD_WEIGHTS;
}

int ci_header_fail(const ci_tensors *t, const char *kind, const char *expected, int64_t byte)
{
    return ci_weights_fail(t->error, t->path, "the header is not that of a %s file: expected %s at byte %" PRId64, kind, expected,
                           byte);
}

int ci_tensors_begin(ci_tensors *t, size_t most)
{
    for (int32_t i = 0; i < t->model->weight_count; ++i) t->raw[i] = NULL;
    t->spans = calloc(most + 1, sizeof *t->spans);
    return t->spans ? CI_OK : ci_fail(t->error, CI_NO_MEMORY, "no memory to read the header of the weights");
}

static bool is_ignored(ci_slice name)
{
    static const char ignored[] = ".num_batches_tracked";
    size_t size = sizeof ignored - 1;
    if (name.size == size - 1) --size;
    return name.size >= size && !memcmp(name.at + name.size - size, ignored + sizeof ignored - 1 - size, size);
}

/* The weight of that name, or -1. Files mostly keep the model's order: the search goes on where the last one ended. */
static int32_t find_weight(ci_tensors *t, ci_slice name)
{
    int32_t count = t->model->weight_count;
    for (int32_t i = 0; i < count; ++i, ++t->next) {
        if (t->next >= count) t->next = 0;
        if (t->is(name, t->model->weights[t->next].name)) return t->next++;
    }
    return -1;
}

static int check_weight(const ci_tensors *t, const ci_tensor *found, const ci_port *weight)
{
    const char *type = ci_type_code(weight->type);
    if (!t->is(found->type, type))
        return ci_tensor_fail(t, found->name, "has type %.*s, expected %s", (int)found->type.size, found->type.at, type);
    if (found->rank != weight->rank || memcmp(found->dims, weight->dims, sizeof *found->dims * (size_t)found->rank)) {
        ci_text text = begin_message(t, found->name);
        ci_put_text(&text, "has shape ");
        ci_put_shape(&text, found->rank, found->dims, NULL);
        ci_put_text(&text, ", expected ");
        ci_put_shape(&text, weight->rank, weight->dims, NULL);
        return CI_BAD_WEIGHTS;
    }
    int64_t size = found->bytes.end - found->bytes.begin, expected = ci_array_bytes(weight->type, weight->rank, weight->dims);
    if (size == expected) return CI_OK;
    return ci_tensor_fail(t, found->name, "has %" PRId64 " bytes, its shape and type need %" PRId64, size, expected);
}

int ci_tensor_key(const ci_tensors *t, ci_slice text)
{
    static const char keys[CI_KEYS][13] = {"dtype", "shape", "data_offsets"};
    int key = 0;
    while (key < CI_KEYS && !t->is(text, keys[key])) ++key;
    return key;
}

int ci_tensors_add(ci_tensors *t, const ci_tensor *found, unsigned seen)
{
    const unsigned all = (1u << CI_KEYS) - 1;
    if ((seen & all) != all) return ci_tensor_fail(t, found->name, "lacks a dtype, shape or data_offsets");
    if (found->bytes.begin > found->bytes.end || found->bytes.end > t->data_size)
        return ci_tensor_fail(t, found->name,
                              "is at bytes %" PRId64 " to %" PRId64 " of the data, which has %" PRId64
                              ": the file is cut off or damaged",
                              found->bytes.begin, found->bytes.end, t->data_size);
    t->spans[t->count++] = found->bytes;
    int32_t i = find_weight(t, found->name);
    if (i < 0) {
        if (!is_ignored(found->name) && !t->extra_count++) t->extra = found->name;
        return CI_OK;
    }
    if (t->raw[i]) return ci_tensor_fail(t, found->name, "appears twice");
    t->raw[i] = t->data + found->bytes.begin;
    return check_weight(t, found, &t->model->weights[i]);
}

static bool is_before(const ci_span *a, const ci_span *b)
{
    return a->begin < b->begin || (a->begin == b->begin && a->end < b->end);
}

/* Shell's sort: files have their tensors in order or nearly so, and qsort would be a tenth of the runtime. */
static void sort(ci_span *spans, int64_t count)
{
    int64_t gap = 1;
    while (gap < count / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int64_t i = gap; i < count; ++i) {
            ci_span moved = spans[i];
            int64_t j = i;
            for (; j >= gap && is_before(&moved, &spans[j - gap]); j -= gap) spans[j] = spans[j - gap];
            spans[j] = moved;
        }
}

static int check_cover(const ci_tensors *t)
{
    int64_t end = 0;
    sort(t->spans, t->count);
    for (int64_t i = 0; i < t->count; ++i) {
        int64_t begin = t->spans[i].begin, aligned = (end + t->align - 1) & -t->align;
        if (begin != end && begin != aligned)
            return ci_weights_fail(t->error, t->path, "the data has %s at byte %" PRId64,
                                   begin < end ? "tensors that overlap" : "a gap", end);
        end = t->spans[i].end;
    }
    if (end == t->data_size) return CI_OK;
    return ci_weights_fail(t->error, t->path, "the data has %" PRId64 " bytes behind the last tensor", t->data_size - end);
}

static int check_names(const ci_tensors *t)
{
    for (int32_t i = 0; i < t->model->weight_count; ++i) {
        if (t->raw[i]) continue;
        const ci_port *weight = &t->model->weights[i];
        ci_text text = ci_weights_message(t->error, t->path);
        ci_put(&text, "tensor '%s' is missing, expected %s", weight->name, ci_type_name(weight->type));
        ci_put_shape(&text, weight->rank, weight->dims, NULL);
        return CI_BAD_WEIGHTS;
    }
    if (!t->extra_count) return CI_OK;
    return ci_tensor_fail(t, t->extra, "is no weight of model '%s' (%" PRId64 " such tensors)", t->model->name, t->extra_count);
}

int ci_tensors_end(ci_tensors *t, int status)
{
    if (!status) status = check_cover(t);
    if (!status) status = check_names(t);
    free(t->spans);
    return status;
}
