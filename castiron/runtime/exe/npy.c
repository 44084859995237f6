#include "npy.h"

#include "inflate.h"
#include "number.h"

#include <stdlib.h>
#include <string.h>

/* Header ----------------------------------------------------------------------------------------------------------- */

/* What is left of the header's dictionary, a Python literal. */
typedef struct text {
    const char *at, *end;
} text;

static bool skip(text *t, char wanted)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t' || *t->at == '\n' || *t->at == '\r')) t->at++;
    if (t->at == t->end || *t->at != wanted) return false;
    t->at++;
    return true;
}

static bool read_string(text *t, const char **start, size_t *length)
{
    char quote = skip(t, '\'') ? '\'' : '"';
    if (quote == '"' && !skip(t, '"')) return false;
    *start = t->at;
    while (t->at < t->end && *t->at != quote) t->at++;
    *length = (size_t)(t->at - *start);
    return skip(t, quote);
}

static bool read_word(text *t, const char *word)
{
    size_t length = strlen(word);
    skip(t, 0);
    if ((size_t)(t->end - t->at) < length || memcmp(t->at, word, length)) return false;
    t->at += length;
    return true;
}

static bool read_shape(text *t, ci_array *array)
{
    if (!skip(t, '(')) return false;
    for (array->rank = 0; !skip(t, ')'); array->rank++) {
        uint64_t extent;
        const char *start = t->at;
        if (array->rank == CI_MAX_RANK) return false;
        while (t->at < t->end && *t->at >= '0' && *t->at <= '9') t->at++;
        if (!ci_parse_uint(start, t->at, INT64_MAX, &extent)) return false;
        array->dims[array->rank] = (int64_t)extent;
        skip(t, 'L'); /* Python 2 */
        if (!skip(t, ',') && !(skip(t, ')') && array->rank > 0 && t->at--)) return false;
    }
    return true;
}

typedef struct header {
    const char *type;
    size_t type_length;
    bool fortran, has_type, has_order, has_shape;
} header;

static bool same(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && !memcmp(text, word, length);
}

static bool read_dictionary(text *t, header *h, ci_array *array)
{
    if (!skip(t, '{')) return false;
    while (!skip(t, '}')) {
        const char *key;
        size_t length;
        if (!read_string(t, &key, &length) || !skip(t, ':')) return false;
        if (same(key, length, "descr")) {
            h->has_type = true;
            const char *start = t->at;
            if (!read_string(t, &h->type, &h->type_length)) { /* fields: a list */
                h->type = start;
                h->type_length = (size_t)(t->end - start);
                return true;
            }
        } else if (same(key, length, "fortran_order")) {
            h->has_order = true;
            h->fortran = read_word(t, "True");
            if (!h->fortran && !read_word(t, "False")) return false;
        } else if (same(key, length, "shape")) {
            h->has_shape = read_shape(t, array);
            if (!h->has_shape) return false;
        } else {
            return false;
        }
        skip(t, ',');
    }
    return h->has_type && h->has_order && h->has_shape;
}

/* Type ------------------------------------------------------------------------------------------------------------- */

/* The type of a descr like "<f4", or NULL. */
static const ci_type_info *type_of(const header *h, bool *big_endian)
{
    static const int32_t types[] = {CI_FLOAT, CI_DOUBLE, CI_FLOAT16, CI_INT64, CI_INT32, CI_INT16, CI_INT8,
                                    CI_UINT64, CI_UINT32, CI_UINT16, CI_UINT8, CI_BOOL};
    if (h->type_length != 3) return NULL;
    *big_endian = *h->type == '>';
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const ci_type_info *info = ci_type_info_of(types[i]);
        if (!memcmp(info->code + 1, h->type + 1, 2)) return info;
    }
    return NULL;
}

static int check_type(const header *h, const ci_port *port, const char *where, const ci_type_info **info,
                      bool *big_endian, ci_error *error)
{
    const ci_type_info *wanted = ci_type_info_of(port->type);
    const char *name = port->type == CI_BFLOAT16 ? "float32" : wanted->name;
    *info = type_of(h, big_endian);
    if (!*info)
        return ci_refuse(error, CI_BAD_INPUT, "input '%s': %s holds elements of NumPy type '%q', the model takes %s",
                         port->name, where, h->type_length, h->type, wanted->name);
    if (strcmp((*info)->name, name))
        return ci_refuse(error, CI_BAD_INPUT,
                         "input '%s': %s holds %s, the model takes %s; convert it first (numpy: x.astype('%s'))",
                         port->name, where, (*info)->name, wanted->name, name);
    return CI_OK;
}

/* Data ------------------------------------------------------------------------------------------------------------- */

static void swap_bytes(char *data, int64_t count, int size)
{
    for (; count > 0; count--, data += size)
        for (int i = 0; i < size / 2; i++) {
            char byte = data[i];
            data[i] = data[size - 1 - i];
            data[size - 1 - i] = byte;
        }
}

/* Column-major `from` to row-major `to`, walking `to` in order. */
static void transpose(char *to, const char *from, const ci_array *array, size_t size)
{
    int64_t index[CI_MAX_RANK] = {0}, strides[CI_MAX_RANK], stride = 1;
    int64_t count = ci_array_count(array), offset = 0;
    for (int i = 0; i < array->rank; i++) {
        strides[i] = stride;
        stride *= array->dims[i];
    }
    for (; count > 0; count--, to += size) {
        memcpy(to, from + (size_t)offset * size, size);
        for (int i = array->rank - 1; i >= 0; i--) {
            offset += strides[i];
            if (++index[i] < array->dims[i]) break;
            offset -= strides[i] * array->dims[i];
            index[i] = 0;
        }
    }
}

static int reorder(ci_bytes *bytes, const ci_array *array, size_t size, ci_error *error)
{
    char *memory = malloc(bytes->size + 1);
    if (!memory) return ci_no_memory(error, (int64_t)bytes->size);
    transpose(memory, bytes->data, array, size);
    free(bytes->data);
    bytes->data = memory;
    return CI_OK;
}

uint16_t ci_bfloat16_of(uint32_t bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* stays a NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void narrow_to_bfloat16(char *data, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t wide;
        memcpy(&wide, data + 4 * i, 4);
        uint16_t narrow = ci_bfloat16_of(wide);
        memcpy(data + 2 * i, &narrow, 2);
    }
}

/* Bytes of the elements, or -1 where they do not fit any memory. */
static int64_t data_bytes(const ci_array *array, int64_t size)
{
    bool empty = false;
    for (int i = 0; i < array->rank; i++) {
        empty |= array->dims[i] == 0;
        if (!empty && __builtin_mul_overflow(size, array->dims[i], &size)) return -1;
    }
    return empty ? 0 : size;
}

static int read_header(const ci_bytes *bytes, const char *where, header *h, ci_array *array, size_t *start,
                       ci_error *error)
{
    const uint8_t *data = (const uint8_t *)bytes->data;
    size_t prefix = bytes->size > 6 && data[6] == 1 ? 10 : 12;
    if (bytes->size < prefix || memcmp(data, "\x93NUMPY", 6))
        return ci_refuse(error, CI_BAD_INPUT, "%s: not a .npy file, or cut off", where);
    if (data[6] < 1 || data[6] > 3)
        return ci_refuse(error, CI_BAD_INPUT, "%s: .npy version %d is not known (1, 2 and 3 are)", where,
                         (int64_t)data[6]);
    size_t length = data[8] | (size_t)data[9] << 8;
    if (prefix == 12) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > bytes->size - prefix)
        return ci_refuse(error, CI_BAD_INPUT, "%s: cut off inside the .npy header", where);
    text t = {bytes->data + prefix, bytes->data + prefix + length};
    *start = prefix + length;
    if (read_dictionary(&t, h, array)) return CI_OK;
    return ci_refuse(error, CI_BAD_INPUT, "%s: the .npy header is damaged near '%q'", where, (size_t)(t.end - t.at),
                     t.at);
}

int ci_npy_read(ci_bytes *bytes, const ci_port *port, const char *where, ci_array *array, ci_error *error)
{
    header h = {0};
    size_t start = 0;
    bool big_endian = false;
    const ci_type_info *info;
    int status = read_header(bytes, where, &h, array, &start, error);
    if (!status) status = check_type(&h, port, where, &info, &big_endian, error);
    if (status) return status;
    int64_t wanted = data_bytes(array, info->size), held = (int64_t)(bytes->size - start);
    if (wanted < 0 || wanted > held)
        return ci_refuse(error, CI_BAD_INPUT, "%s: cut off, %d bytes of elements are fewer than its shape needs", where,
                         held);
    if (wanted < held)
        return ci_refuse(error, CI_BAD_INPUT, "%s: %d bytes too many after the array", where, held - wanted);
    int64_t count = wanted / info->size;
    memmove(bytes->data, bytes->data + start, (size_t)wanted);
    bytes->size = (size_t)wanted;
    if (big_endian) swap_bytes(bytes->data, count, info->size);
    if (h.fortran && array->rank > 1) status = reorder(bytes, array, (size_t)info->size, error);
    if (port->type == CI_BFLOAT16) narrow_to_bfloat16(bytes->data, count);
    array->type = port->type;
    array->data = bytes->data;
    return status;
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

static size_t join(char *to, size_t at, const char *from)
{
    size_t length = strlen(from);
    memcpy(to + at, from, length);
    return at + length;
}

size_t ci_npy_header(char *header, const ci_array *array)
{
    size_t at = join(header, 10, "{'descr': '");
    at = join(header, at, ci_type_info_of(array->type)->code);
    at = join(header, at, "', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < array->rank; i++) {
        at += (size_t)ci_print_int(header + at, array->dims[i]);
        if (i + 1 < array->rank || i == 0) header[at++] = ',';
        if (i + 1 < array->rank) header[at++] = ' ';
    }
    at = join(header, at, "), }");
    while (at % 64 != 63) header[at++] = ' ';
    header[at++] = '\n';
    memcpy(header, "\x93NUMPY\1", 8);
    header[8] = (char)((at - 10) & 255);
    header[9] = (char)((at - 10) >> 8);
    return at;
}

int64_t ci_npy_bytes(const ci_array *array)
{
    return ci_array_count(array) * (array->type == CI_BFLOAT16 ? 4 : ci_type_info_of(array->type)->size);
}

static void pass(ci_out *out, uint32_t *crc, const void *data, size_t size)
{
    if (crc) *crc = ci_crc32(*crc, data, size);
    if (out) ci_out_put(out, data, size);
}

int ci_npy_data(ci_out *out, const ci_array *array, uint32_t *crc, ci_error *error)
{
    const ci_type_info *info = ci_type_info_of(array->type);
    if (!info->size)
        return ci_refuse(error, CI_BAD_INPUT, "outputs of type %s cannot be written to a file", info->name);
    if (array->type != CI_BFLOAT16) {
        pass(out, crc, array->data, (size_t)ci_npy_bytes(array));
        return CI_OK;
    }
    const uint16_t *values = array->data;
    for (int64_t i = ci_array_count(array); i > 0; i--) {
        uint32_t wide = (uint32_t)*values++ << 16;
        pass(out, crc, &wide, sizeof wide);
    }
    return CI_OK;
}
