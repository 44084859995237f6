#include "burnpack.h"

#include "error.h"

#include <inttypes.h>
#include <string.h>

enum { HEADER = 10, VERSION = 1, ALIGN = 256 };
enum { UNSIGNED = 0, BYTES = 2, TEXT = 3, ARRAY = 4, MAP = 5, TAG = 6 }; /* major types of CBOR (RFC 8949) */
enum { DEEPEST = 16 };

typedef struct reader {
    const uint8_t *at, *end, *start;
    ci_slice name;   /* of the tensor that is being read */
    int64_t count, largest; /* of the tensors: how many, and the end of the last one in the data */
    int status;      /* of a failure that has its message */
    bool adding;     /* the second time through */
    ci_tensors tensors;
} reader;

/* The head of an item: `major` type, and the number that is its value, length or count. Lengths are definite. */
static bool take(reader *r, int major, uint64_t *number)
{
    if (r->at == r->end || *r->at >> 5 != major) return false;
    int size = 0, small = *r->at & 31;
    if (small > 27) return false;
    if (small > 23) size = 1 << (small - 24);
    if (r->end - r->at <= size) return false;
    *number = size ? 0 : (uint64_t)small;
    for (++r->at; size > 0; --size) *number = *number << 8 | *r->at++;
    return true;
}

static bool take_text(reader *r, ci_slice *text)
{
    uint64_t size;
    if (!take(r, TEXT, &size) || size > (uint64_t)(r->end - r->at)) return false;
    *text = (ci_slice){(const char *)r->at, size};
    r->at += size;
    return true;
}

/* Passes any item, what is in it included. */
static bool skip(reader *r, int depth)
{
    uint64_t number;
    if (r->at == r->end || depth == DEEPEST) return false;
    int major = *r->at >> 5;
    if (!take(r, major, &number)) return false;
    if (major == TAG) number = 1;
    if (major >= BYTES && major <= MAP && number > (uint64_t)(r->end - r->at)) return false;
    if (major == BYTES || major == TEXT) r->at += number;
    if (major == MAP) number *= 2;
    for (; major >= ARRAY && major <= TAG && number; --number)
        if (!skip(r, depth + 1)) return false;
    return true;
}

static bool is(ci_slice text, const char *word) { return text.size == strlen(word) && !memcmp(text.at, word, text.size); }

/* "F32"; booleans as "Bool" or {"Bool": "Native"}. */
static CI_APART bool read_type(reader *r, ci_slice *type)
{
    uint64_t count = 1;
    ci_slice kind = {"U8", 2};
    bool nested = take(r, MAP, &count);
    if (!take_text(r, type)) return false;
    bool boolean = is(*type, "Bool");
    if (nested && !boolean)
        r->status = ci_tensor_fail(&r->tensors, r->name, "is stored as %.*s, which cannot be read: store it as plain numbers",
                                   (int)type->size, type->at);
    if (nested && (!boolean || count != 1 || !take_text(r, &kind))) return false;
    if (boolean && (is(kind, "U8") || is(kind, "Native"))) *type = (ci_slice){"BOOL", 4};
    return true;
}

static bool read_list(reader *r, int64_t *numbers, uint64_t most, uint64_t *count)
{
    if (!take(r, ARRAY, count) || *count > most) return false;
    for (uint64_t i = 0; i < *count; ++i) {
        uint64_t number;
        if (!take(r, UNSIGNED, &number) || number >> 62) return false;
        numbers[i] = (int64_t)number;
    }
    return true;
}

static bool read_value(reader *r, ci_tensor *t, int key)
{
    uint64_t count = 2;
    bool read;
    if (key == CI_TYPE_KEY) return read_type(r, &t->type);
    if (key == CI_KEYS) return skip(r, 0);
    if (key == CI_OFFSETS_KEY) return read_list(r, (int64_t *)&t->bytes, 2, &count) && count == 2;
    read = read_list(r, t->dims, CI_MAX_RANK, &count);
    t->rank = (int32_t)count;
    return read;
}

static bool read_tensor(reader *r)
{
    ci_tensor t = {0};
    uint64_t count;
    unsigned seen = 0;
    if (!take_text(r, &t.name)) return false;
    r->name = t.name;
    if (!take(r, MAP, &count)) return false;
    for (; count; --count) {
        ci_slice text;
        if (!take_text(r, &text)) return false;
        int key = ci_tensor_key(&r->tensors, text);
        if ((key < CI_KEYS && seen >> key & 1) || !read_value(r, &t, key)) return false;
        seen |= 1u << key;
    }
    if (r->adding) r->status = ci_tensors_add(&r->tensors, &t, seen);
    ++r->count;
    if (t.bytes.end > r->largest) r->largest = t.bytes.end;
    r->name.at = NULL;
    return !r->status;
}

static bool read_map(reader *r)
{
    uint64_t pairs, count = 0;
    bool seen = false;
    if (!take(r, MAP, &pairs)) return false;
    for (; pairs; --pairs) {
        ci_slice key;
        if (!take_text(r, &key)) return false;
        bool tensors = is(key, "tensors");
        if (tensors ? seen || !take(r, MAP, &count) : !skip(r, 0)) return false;
        seen |= tensors;
        for (; count; --count)
            if (!read_tensor(r)) return false;
    }
    return seen && r->at == r->end;
}

static int read_header(reader *r)
{
    r->at = r->start + HEADER;
    if (read_map(r) || r->status) return r->status;
    int64_t byte = r->at - r->start;
    if (!r->name.at) return ci_header_fail(&r->tensors, "burnpack", "a map of tensors", byte);
    return ci_tensor_fail(&r->tensors, r->name, "is not described as burnpack does it, at byte %" PRId64, byte);
}

bool ci_is_burnpack(const void *bytes, size_t size) { return size >= 4 && !memcmp(bytes, "NRUB", 4); }

int ci_burnpack_read(ci_tensors tensors, const void *bytes, size_t size)
{
    const uint8_t *start = bytes;
    struct __attribute__((packed)) {
        uint32_t magic;
        uint16_t version;
        uint32_t size;
    } header;
    memcpy(&header, bytes, size < HEADER ? 4 : HEADER);
    if (size < HEADER || header.size > size - HEADER)
        return ci_weights_fail(tensors.error, tensors.path, "is a burnpack file that is cut off in its header");
    if (header.version != VERSION)
        return ci_weights_fail(tensors.error, tensors.path, "is a burnpack file of version %d, expected %d", header.version,
                               VERSION);
    tensors.is = is;
    tensors.align = 1;
    reader r = {.tensors = tensors, .start = start, .end = start + HEADER + header.size};
    int status = read_header(&r);
    if (status) return status;
    /* Files of burn 0.19 have the data right behind the header, those of later ones at multiples of 256, each tensor too. */
    size_t data = HEADER + (size_t)header.size, aligned = (data + ALIGN - 1) & -(size_t)ALIGN;
    if (size - data != (size_t)r.largest || data == aligned) {
        r.tensors.align = ALIGN;
        data = aligned < size ? aligned : size;
    }
    r.tensors.data = (const char *)start + data;
    r.tensors.data_size = (int64_t)(size - data);
    r.adding = true;
    status = ci_tensors_begin(&r.tensors, (size_t)r.count);
    return ci_tensors_end(&r.tensors, status ? status : read_header(&r));
}
