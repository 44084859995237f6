#include "safetensors.h"

#include "error.h"
#include "json_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_ENTRY = 48 }; /* bytes of `"":{"dtype":"I8","shape":[],"data_offsets":[0,0]}`, at least */

typedef struct span {
    int64_t begin, end;
} span;

/* A tensor as the header describes it. */
typedef struct entry {
    ci_slice name, type;
    int32_t rank;
    int64_t dims[CI_MAX_RANK];
    span bytes;
} entry;

typedef struct reader {
    const ci_model *model;
    const char *path, *header, *data;
    int64_t data_size;
    const void **raw;
    span *spans;          /* of all tensors read so far */
    int64_t count;
    ci_slice extra;       /* the first tensor that is no weight of the model, and how many there are */
    int64_t extra_count;
    bool metadata;
    ci_json json;
    ci_error *error;
} reader;

/* A name cut to a length that leaves room for the rest of a message, as arguments of %.*s. */
#define NAME(slice) (int)((slice).size < 120 ? (slice).size : 120), (slice).at

static CI_COLD int fail_json(reader *r, const char *expected) {
    return ci_weights_fail(r->error, r->path, "the header is not that of a safetensors file: expected %s at byte %lld",
                           expected, (long long)(r->json.at - r->header) + 8);
}

static int read_shape(reader *r, entry *e) {
    if (!ci_json_take(&r->json, '[')) return fail_json(r, "'['");
    if (ci_json_take(&r->json, ']')) return CI_OK;
    do {
        if (e->rank == CI_MAX_RANK)
            return ci_weights_fail(r->error, r->path, "tensor '%.*s' has more than %d dimensions", NAME(e->name),
                                   CI_MAX_RANK);
        if (!ci_json_integer(&r->json, &e->dims[e->rank++])) return fail_json(r, "a dimension");
    } while (ci_json_take(&r->json, ','));
    return ci_json_take(&r->json, ']') ? CI_OK : fail_json(r, "',' or ']'");
}

static int read_offsets(reader *r, entry *e) {
    ci_json *json = &r->json;
    bool read = ci_json_take(json, '[') && ci_json_integer(json, &e->bytes.begin) && ci_json_take(json, ',') &&
                ci_json_integer(json, &e->bytes.end) && ci_json_take(json, ']');
    return read ? CI_OK : fail_json(r, "[begin, end]");
}

static int read_entry(reader *r, entry *e) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    unsigned seen = 0;
    if (!ci_json_take(&r->json, '{')) return fail_json(r, "'{'");
    do {
        ci_slice key;
        unsigned k = 0;
        if (!ci_json_string(&r->json, &key) || !ci_json_take(&r->json, ':')) return fail_json(r, "a key and ':'");
        while (k < 3 && !ci_slice_equal(key, keys[k])) ++k;
        if (k == 3 || seen & 1u << k)
            return ci_weights_fail(r->error, r->path, "tensor '%.*s' has an unknown or repeated key '%.*s'", NAME(e->name),
                                   NAME(key));
        seen |= 1u << k;
        int status = CI_OK;
        if (k == 0 && !ci_json_string(&r->json, &e->type)) status = fail_json(r, "a type");
        if (k == 1) status = read_shape(r, e);
        if (k == 2) status = read_offsets(r, e);
        if (status) return status;
    } while (ci_json_take(&r->json, ','));
    if (!ci_json_take(&r->json, '}')) return fail_json(r, "',' or '}'");
    if (seen != 7)
        return ci_weights_fail(r->error, r->path, "tensor '%.*s' lacks a dtype, shape or data_offsets", NAME(e->name));
    return CI_OK;
}

static int read_metadata(reader *r) {
    ci_slice text;
    if (r->metadata) return ci_weights_fail(r->error, r->path, "__metadata__ appears twice");
    r->metadata = true;
    if (!ci_json_take(&r->json, '{')) return fail_json(r, "'{'");
    if (ci_json_take(&r->json, '}')) return CI_OK;
    do {
        bool read = ci_json_string(&r->json, &text) && ci_json_take(&r->json, ':') && ci_json_string(&r->json, &text);
        if (!read) return fail_json(r, "a key, ':' and a string");
    } while (ci_json_take(&r->json, ','));
    return ci_json_take(&r->json, '}') ? CI_OK : fail_json(r, "',' or '}'");
}

static bool is_ignored(ci_slice name) {
    static const char ignored[] = "num_batches_tracked";
    const size_t size = sizeof ignored - 1;
    if (name.size < size || memcmp(name.at + name.size - size, ignored, size)) return false;
    return name.size == size || name.at[name.size - size - 1] == '.';
}

/* The weight of that name, or -1. Files mostly keep the model's order: the search goes on where the last one ended. */
static int32_t find_weight(const reader *r, ci_slice name, int32_t *next) {
    int32_t count = r->model->weight_count;
    for (int32_t i = 0; i < count; ++i, ++*next) {
        if (*next >= count) *next = 0;
        if (ci_slice_equal(name, r->model->weights[*next].name)) return (*next)++;
    }
    return -1;
}

static int check_weight(const reader *r, const entry *e, const ci_port *weight) {
    const char *type = ci_type_safetensors(weight->type);
    if (!ci_slice_equal(e->type, type))
        return ci_weights_fail(r->error, r->path, "tensor '%.*s' has type %.*s, expected %s", NAME(e->name), NAME(e->type),
                               type);
    if (e->rank == weight->rank && !memcmp(e->dims, weight->dims, sizeof *e->dims * (size_t)e->rank)) return CI_OK;
    char found[160], expected[160];
    ci_text found_text = ci_text_in(found, sizeof found), expected_text = ci_text_in(expected, sizeof expected);
    ci_put_shape(&found_text, e->rank, e->dims, NULL);
    ci_put_shape(&expected_text, weight->rank, weight->dims, NULL);
    return ci_weights_fail(r->error, r->path, "tensor '%.*s' has shape %s, expected %s", NAME(e->name), found, expected);
}

/* Takes in one tensor: `next` is where its name is looked for first. */
static int add_tensor(reader *r, const entry *e, int32_t *next) {
    if (e->bytes.begin > e->bytes.end || e->bytes.end > r->data_size)
        return ci_weights_fail(r->error, r->path,
                               "tensor '%.*s' is at bytes %" PRId64 " to %" PRId64 " of the data, which has %" PRId64
                               ": the file is cut off or damaged",
                               NAME(e->name), e->bytes.begin, e->bytes.end, r->data_size);
    r->spans[r->count++] = e->bytes;
    int32_t i = find_weight(r, e->name, next);
    if (i < 0) {
        if (is_ignored(e->name)) return CI_OK;
        if (!r->extra_count++) r->extra = e->name;
        return CI_OK;
    }
    const ci_port *weight = &r->model->weights[i];
    if (r->raw[i]) return ci_weights_fail(r->error, r->path, "tensor '%.*s' appears twice", NAME(e->name));
    int status = check_weight(r, e, weight);
    if (status) return status;
    int64_t size = e->bytes.end - e->bytes.begin, expected = ci_array_bytes(weight->type, weight->rank, weight->dims);
    if (size != expected)
        return ci_weights_fail(r->error, r->path, "tensor '%.*s' has %" PRId64 " bytes, its shape and type need %" PRId64,
                               NAME(e->name), size, expected);
    r->raw[i] = r->data + e->bytes.begin;
    return CI_OK;
}

static int read_header(reader *r) {
    int32_t next = 0;
    if (*r->json.at != '{' || !ci_json_take(&r->json, '{')) return fail_json(r, "'{'");
    if (!ci_json_take(&r->json, '}')) {
        do {
            entry e = {0};
            if (!ci_json_string(&r->json, &e.name) || !ci_json_take(&r->json, ':')) return fail_json(r, "a name and ':'");
            bool metadata = ci_slice_equal(e.name, "__metadata__");
            int status = metadata ? read_metadata(r) : read_entry(r, &e);
            if (!status && !metadata) status = add_tensor(r, &e, &next);
            if (status) return status;
        } while (ci_json_take(&r->json, ','));
        if (!ci_json_take(&r->json, '}')) return fail_json(r, "',' or '}'");
    }
    return ci_json_ended(&r->json) ? CI_OK : fail_json(r, "the end");
}

static bool is_before(const span *a, const span *b) {
    return a->begin < b->begin || (a->begin == b->begin && a->end < b->end);
}

/* Shell's sort: files have their tensors in order or nearly so, and qsort would be a tenth of the runtime. */
static void sort(span *spans, int64_t count) {
    int64_t gap = 1;
    while (gap < count / 3) gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int64_t i = gap; i < count; ++i) {
            span moved = spans[i];
            int64_t j = i;
            for (; j >= gap && is_before(&moved, &spans[j - gap]); j -= gap) spans[j] = spans[j - gap];
            spans[j] = moved;
        }
}

/* As the format demands, the tensors cover the data without gap or overlap. */
static int check_cover(const reader *r) {
    int64_t end = 0;
    sort(r->spans, r->count);
    for (int64_t i = 0; i < r->count; ++i) {
        if (r->spans[i].begin != end)
            return ci_weights_fail(r->error, r->path, "the data has %s at byte %" PRId64,
                                   r->spans[i].begin < end ? "tensors that overlap" : "a gap", end);
        end = r->spans[i].end;
    }
    if (end == r->data_size) return CI_OK;
    return ci_weights_fail(r->error, r->path, "the data has %" PRId64 " bytes behind the last tensor", r->data_size - end);
}

static int check_names(const reader *r) {
    const ci_model *model = r->model;
    for (int32_t i = 0; i < model->weight_count; ++i) {
        if (r->raw[i]) continue;
        const ci_port *weight = &model->weights[i];
        char shape[160];
        ci_text text = ci_text_in(shape, sizeof shape);
        ci_put_shape(&text, weight->rank, weight->dims, NULL);
        return ci_weights_fail(r->error, r->path, "tensor '%s' is missing, expected %s%s", weight->name,
                               ci_type_name(weight->type), shape);
    }
    if (!r->extra_count) return CI_OK;
    return ci_weights_fail(r->error, r->path, "tensor '%.*s' is no weight of model '%s' (%" PRId64 " such tensors)",
                           NAME(r->extra), model->name, r->extra_count);
}

int ci_safetensors_read(const ci_model *model, const char *path, const void *bytes, size_t size, const void **raw,
                        ci_error *error) {
    uint64_t header_size;
    if (size < 8 + sizeof "{}" - 1)
        return ci_weights_fail(error, path, "has %lld bytes, too few for a weights file", (long long)size);
    memcpy(&header_size, bytes, 8);
    if (header_size < 2 || header_size > size - 8)
        return ci_weights_fail(error, path, "is no packed weights and no safetensors file, or is cut off in its header");
    const char *header = (const char *)bytes + 8, *data = header + header_size;
    reader r = {.model = model, .path = path, .header = header, .data = data, .raw = raw, .error = error,
                .data_size = (int64_t)(size - 8 - header_size), .json = {header, data}};
    r.spans = calloc(header_size / SMALLEST_ENTRY + 1, sizeof *r.spans);
    if (!r.spans) return ci_fail(error, CI_NO_MEMORY, "no memory to read the header of the weights");
    for (int32_t i = 0; i < model->weight_count; ++i) raw[i] = NULL;
    int status = read_header(&r);
    if (!status) status = check_cover(&r);
    if (!status) status = check_names(&r);
    free(r.spans);
    return status;
}
