#include "safetensors.h"

#include "error.h"
#include "tensors.h"

#include <string.h>

enum { SMALLEST_ENTRY = 48 }; /* bytes of `"":{"dtype":"I8","shape":[],"data_offsets":[0,0]}`, at least */

typedef struct reader {
    ci_tensors tensors;
    const char *start;
    ci_json json;
    bool metadata;
} reader;

static CI_COLD int fail(const reader *r, const char *expected)
{
    return ci_header_fail(&r->tensors, "safetensors", expected, r->json.at - r->start);
}

static int expect(reader *r, char token)
{
    char expected[] = "',' or ' '";
    const size_t either = sizeof "',' or " - 1;
    expected[either + 1] = token;
    return ci_json_take(&r->json, token) ? CI_OK : fail(r, token == ']' || token == '}' ? expected : expected + either);
}

static int read_shape(reader *r, ci_tensor *t)
{
    int status = expect(r, '[');
    if (status || ci_json_take(&r->json, ']')) return status;
    do {
        if (t->rank == CI_MAX_RANK) return ci_tensor_fail(&r->tensors, t->name, "has more than %d dimensions", CI_MAX_RANK);
        if (!ci_json_integer(&r->json, &t->dims[t->rank++])) return fail(r, "a dimension");
    } while (ci_json_take(&r->json, ','));
    return expect(r, ']');
}

static int read_offsets(reader *r, ci_tensor *t)
{
    ci_json *json = &r->json;
    bool read = ci_json_take(json, '[') && ci_json_integer(json, &t->bytes.begin) && ci_json_take(json, ',') &&
                ci_json_integer(json, &t->bytes.end) && ci_json_take(json, ']');
    return read ? CI_OK : fail(r, "[begin, end]");
}

static int read_key(reader *r, ci_slice *key, const char *what)
{
    return ci_json_string(&r->json, key) && ci_json_take(&r->json, ':') ? CI_OK : fail(r, what);
}

static CI_APART int read_tensor(reader *r, ci_tensor *t)
{
    unsigned seen = 0;
    int status = expect(r, '{');
    if (status) return status;
    do {
        ci_slice text;
        if ((status = read_key(r, &text, "a key and ':'"))) return status;
        int key = ci_tensor_key(&r->tensors, text);
        if (key == CI_KEYS || seen & 1u << key)
            return ci_tensor_fail(&r->tensors, t->name, "has an unknown or repeated key '%.*s'", (int)text.size, text.at);
        seen |= 1u << key;
        if (key == CI_TYPE_KEY && !ci_json_string(&r->json, &t->type)) status = fail(r, "a type");
        if (key == CI_SHAPE_KEY) status = read_shape(r, t);
        if (key == CI_OFFSETS_KEY) status = read_offsets(r, t);
        if (status) return status;
    } while (ci_json_take(&r->json, ','));
    status = expect(r, '}');
    return status ? status : ci_tensors_add(&r->tensors, t, seen);
}

static int read_metadata(reader *r)
{
    ci_slice text;
    if (r->metadata) return ci_weights_fail(r->tensors.error, r->tensors.path, "__metadata__ appears twice");
    r->metadata = true;
    int status = expect(r, '{');
    if (status || ci_json_take(&r->json, '}')) return status;
    do {
        const char expected[] = "a key, ':' and a string";
        status = read_key(r, &text, expected);
        if (!status && !ci_json_string(&r->json, &text)) status = fail(r, expected);
        if (status) return status;
    } while (ci_json_take(&r->json, ','));
    return expect(r, '}');
}

static CI_APART int read_header(reader *r)
{
    int status = *r->json.at == '{' ? expect(r, '{') : fail(r, "'{'");
    if (!status && !ci_json_take(&r->json, '}')) {
        do {
            ci_tensor t = {0};
            status = read_key(r, &t.name, "a name and ':'");
            if (!status) status = ci_slice_equal(t.name, "__metadata__") ? read_metadata(r) : read_tensor(r, &t);
            if (status) return status;
        } while (ci_json_take(&r->json, ','));
        status = expect(r, '}');
    }
    return status || ci_json_ended(&r->json) ? status : fail(r, "the end");
}

int ci_safetensors_read(ci_tensors tensors, const void *bytes, size_t size)
{
    uint64_t header_size;
    if (size < 8 + sizeof "{}" - 1)
        return ci_weights_fail(tensors.error, tensors.path, "has %lld bytes, too few for a weights file", (long long)size);
    memcpy(&header_size, bytes, 8);
    if (header_size < 2 || header_size > size - 8)
        return ci_weights_fail(tensors.error, tensors.path,
                               "is no packed weights, safetensors or burnpack file, or is cut off in its header");
    const char *header = (const char *)bytes + 8, *data = header + header_size;
    tensors.is = ci_slice_equal;
    tensors.data = data;
    tensors.data_size = (int64_t)(size - 8 - header_size);
    tensors.align = 1;
    reader r = {.tensors = tensors, .start = bytes, .json = {header, data}};
    int status = ci_tensors_begin(&r.tensors, header_size / SMALLEST_ENTRY);
    return ci_tensors_end(&r.tensors, status ? status : read_header(&r));
}
