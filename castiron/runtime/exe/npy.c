#include "npy.h"

#include "inflate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Header ----------------------------------------------------------------------------------------------------------- */

/* A string of the header's dictionary, which is a Python literal. */
static bool read_string(ci_json *text, ci_slice *string)
{
    char quote = ci_json_take(text, '\'') ? '\'' : '"';
    if (quote == '"' && !ci_json_take(text, '"')) return false;
    const char *end = memchr(text->at, quote, (size_t)(text->end - text->at));
    if (!end) return false;
    *string = (ci_slice){text->at, (size_t)(end - text->at)};
    text->at = end + 1;
    return true;
}

static bool read_shape(ci_json *text, ci_array *array)
{
    if (!ci_json_take(text, '(')) return false;
    for (array->rank = 0; !ci_json_take(text, ')'); array->rank++) {
        if (array->rank == CI_MAX_RANK || !ci_json_integer(text, &array->dims[array->rank])) return false;
        ci_json_take(text, 'L'); /* Python 2 */
        if (ci_json_take(text, ',')) continue;
        if (array->rank == 0 || text->at == text->end || *text->at != ')') return false;
    }
    return true;
}

typedef struct header {
    ci_slice type;
    bool fortran;
} header;

static bool read_dictionary(ci_json *text, header *h, ci_array *array)
{
    enum { TYPE = 1, ORDER = 2, SHAPE = 4 };
    int seen = 0;
    if (!ci_json_take(text, '{')) return false;
    while (!ci_json_take(text, '}')) {
        ci_slice key;
        if (!read_string(text, &key) || !ci_json_take(text, ':')) return false;
        if (ci_same(key.at, key.size, "descr")) {
            seen |= TYPE;
            const char *start = text->at;
            if (!read_string(text, &h->type)) { /* fields: a list */
                h->type = (ci_slice){start, (size_t)(text->end - start)};
                return true;
            }
        } else if (ci_same(key.at, key.size, "fortran_order")) {
            seen |= ORDER;
            h->fortran = ci_json_word(text, "True");
            if (!h->fortran && !ci_json_word(text, "False")) return false;
        } else if (ci_same(key.at, key.size, "shape")) {
            seen |= SHAPE;
            if (!read_shape(text, array)) return false;
        } else {
            return false;
        }
        ci_json_take(text, ',');
    }
    return seen == (TYPE | ORDER | SHAPE);
}

/* Type ------------------------------------------------------------------------------------------------------------- */

/* NumPy knows no bfloat16: such arrays travel as float32. */
static int32_t carrier_of(int32_t type) { return type == CI_BFLOAT16 ? CI_FLOAT : type; }

/* Of a type that files hold: "<f4", without closing zero. */
static void put_code(char *code, int32_t type)
{
    int32_t size = ci_type_bytes(carrier_of(type));
    code[0] = size > 1 ? '<' : '|';
    code[1] = *ci_type_code(carrier_of(type)) | 0x20;
    code[2] = (char)('0' + size);
}

/* The type of a descr like "<f4", or 0. */
static CI_APART int32_t type_of(const header *h)
{
    char code[3];
    for (int32_t type = CI_FLOAT; type <= CI_UINT64 && h->type.size == 3; type++) {
        put_code(code, type);
        if (ci_io_bytes(type) && !memcmp(code + 1, h->type.at + 1, 2)) return type;
    }
    return 0;
}

static int check_type(const header *h, const ci_port *port, const char *where, int32_t *type, ci_error *error)
{
    int32_t wanted = carrier_of(port->type);
    *type = type_of(h);
    if (!*type)
        return ci_refuse(error, "input '%s': %s holds NumPy type '%.*s', the model takes %s", port->name, where,
                         (int)h->type.size, h->type.at, ci_type_name(port->type));
    if (*type == wanted) return CI_OK;
    return ci_refuse(error, "input '%s': %s holds %s, the model takes %s; convert it first (numpy: x.astype('%s'))", port->name,
                     where, ci_type_name(*type), ci_type_name(port->type), ci_type_name(wanted));
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

static int read_header(const ci_bytes *bytes, const char *where, header *h, ci_array *array, size_t *start, ci_error *error)
{
    const char *data = bytes->data;
    size_t prefix = bytes->size > 6 && data[6] == 1 ? 10 : 12;
    uint32_t length = 0;
    if (bytes->size < prefix || memcmp(data, "\x93NUMPY", 6)) return ci_refuse(error, "%s: not a .npy file, or cut off", where);
    if (data[6] < 1 || data[6] > 3)
        return ci_refuse(error, "%s: .npy version %d is not known (1, 2 and 3 are)", where, (uint8_t)data[6]);
    memcpy(&length, data + 8, prefix - 8);
    if (length > bytes->size - prefix) return ci_refuse(error, "%s: cut off inside the .npy header", where);
    ci_json text = {data + prefix, data + prefix + length};
    *start = prefix + length;
    if (read_dictionary(&text, h, array)) return CI_OK;
    return ci_refuse(error, "%s: the .npy header is damaged near '%.*s'", where, (int)(text.end - text.at), text.at);
}

int ci_npy_input(ci_bytes *bytes, const char *where, ci_inputs *inputs, int index, ci_error *error)
{
    header h = {0};
    size_t start = 0;
    int32_t type;
    int status = ci_inputs_place(inputs, where, &index, error);
    if (status) return status;
    const ci_port *port = &inputs->model->inputs[index];
    ci_array *array = &inputs->arrays[index];
    status = read_header(bytes, where, &h, array, &start, error);
    if (!status) status = check_type(&h, port, where, &type, error);
    if (status) return status;
    int64_t wanted = ci_array_bytes(type, array->rank, array->dims), held = (int64_t)(bytes->size - start);
    if (wanted < 0 || wanted > held)
        return ci_refuse(error, "%s: cut off, %" PRId64 " bytes are fewer than its shape needs", where, held);
    if (wanted < held) return ci_refuse(error, "%s: %" PRId64 " bytes too many after the array", where, held - wanted);
    size_t size = (size_t)ci_type_bytes(type);
    int64_t count = wanted / (int64_t)size;
    bool swapped = *h.type.at == '>';
    memmove(bytes->data, bytes->data + start, (size_t)wanted);
    bytes->size = (size_t)wanted;
    if (swapped) swap_bytes(bytes->data, count, (int)size);
    if (h.fortran && array->rank > 1) status = reorder(bytes, array, size, error);
    if (port->type == CI_BFLOAT16) narrow_to_bfloat16(bytes->data, count);
    array->type = port->type;
    array->data = inputs->memory[index] = bytes->data;
    bytes->data = NULL;
    return status;
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

size_t ci_npy_header(char *header, const ci_array *array)
{
    char code[4] = "";
    put_code(code, array->type);
    ci_text text = ci_text_in(header, CI_NPY_HEADER);
    ci_put(&text, "\x93NUMPY\1...{'descr': '%s', 'fortran_order': False, 'shape': (", code);
    for (int i = 0; i < array->rank; i++)
        ci_put(&text, i + 1 < array->rank ? "%" PRId64 ", " : i ? "%" PRId64 : "%" PRId64 ",", array->dims[i]);
    ci_put_text(&text, "), }");
    while ((text.at - header) % 64 != 63) ci_put_text(&text, " ");
    ci_put_text(&text, "\n");
    uint16_t length = (uint16_t)(text.at - header - 10);
    memcpy(header + 7, (char[]){0, (char)length, (char)(length >> 8)}, 3);
    return length + 10u;
}

int64_t ci_npy_bytes(const ci_array *array) { return ci_array_bytes(carrier_of(array->type), array->rank, array->dims); }

static void pass(ci_text *out, uint32_t *crc, const void *data, size_t size)
{
    if (crc) *crc = ci_crc32(*crc, data, size);
    if (out) ci_put_bytes(out, data, size);
}

int ci_npy_data(ci_text *out, const ci_array *array, uint32_t *crc, ci_error *error)
{
    if (!ci_io_bytes(array->type))
        return ci_refuse(error, "outputs of type %s cannot be written to a file", ci_type_name(array->type));
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
