#include "json.h"

#include "number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where reading is. */
typedef struct reader {
    ci_json json;
    const char *start, *where;
    int64_t line; /* number of the first one */
    const ci_port *port; /* the input being read, or NULL */
    ci_error *error;
} reader;

static int refuse(const reader *r, const char *at, const char *what)
{
    int64_t line = r->line, column = 1;
    for (const char *c = r->start; c < at; c++) {
        column++;
        if (*c == '\n') line++, column = 1;
    }
    ci_text text = ci_message(r->error);
    if (r->port) ci_put(&text, "input '%s': ", r->port->name);
    ci_put(&text, "%s: line %" PRId64 ", column %" PRId64 ": %s", r->where, line, column, what);
    return CI_BAD_INPUT;
}

static bool accept(reader *r, char wanted) { return ci_json_take(&r->json, wanted); }

/* Elements --------------------------------------------------------------------------------------------------------- */

static bool is_digit(const reader *r) { return r->json.at < r->json.end && *r->json.at >= '0' && *r->json.at <= '9'; }

static bool digits(reader *r)
{
    if (!is_digit(r)) return false;
    while (is_digit(r)) r->json.at++;
    return true;
}

/* Passes a number as JSON writes it. */
static bool number(reader *r, bool *integer)
{
    const char *start = r->json.at;
    if (r->json.at < r->json.end && *r->json.at == '-') r->json.at++;
    const char *first = r->json.at;
    if (!digits(r) || (*first == '0' && r->json.at - first > 1)) return false;
    if (r->json.at < r->json.end && *r->json.at == '.') {
        r->json.at++;
        if (!digits(r)) return false;
    }
    *integer = r->json.at > start && !memchr(start, '.', (size_t)(r->json.at - start));
    if (r->json.at < r->json.end && (*r->json.at == 'e' || *r->json.at == 'E')) {
        *integer = false;
        r->json.at++;
        if (r->json.at < r->json.end && (*r->json.at == '-' || *r->json.at == '+')) r->json.at++;
        return digits(r);
    }
    return true;
}

static int read_float(reader *r, uint64_t *bits)
{
    const char *start = r->json.at;
    int32_t type = r->port->type;
    bool integer;
    if (ci_json_word(&r->json, "NaN")) return *bits = ci_special(type, false), CI_OK;
    if (ci_json_word(&r->json, "Infinity")) return *bits = ci_special(type, true), CI_OK;
    if (ci_json_word(&r->json, "-Infinity")) {
        *bits = ci_special(type, true) | 1ull << (8 * ci_type_bytes(type) - 1);
        return CI_OK;
    }
    if (!number(r, &integer)) return refuse(r, start, "a number was expected");
    if (ci_parse_float(start, r->json.at, type, bits)) return CI_OK;
    return refuse(r, start, "too large for the input's type (write Infinity if that is meant)");
}

static int read_integer(reader *r, uint64_t *bits)
{
    const char *start = r->json.at;
    int32_t type = r->port->type;
    bool integer, negative = r->json.at < r->json.end && *r->json.at == '-';
    bool is_signed = ci_is_signed(type);
    if (!number(r, &integer)) return refuse(r, start, "an integer was expected");
    if (!integer) return refuse(r, start, "an integer was expected, not a fraction or exponent");
    uint64_t limit = UINT64_MAX >> (64 - 8 * ci_type_bytes(type));
    if (is_signed) limit = limit / 2 + negative;
    if (!is_signed && negative) limit = 0;
    if (!ci_parse_uint(start + negative, r->json.at, limit, bits))
        return refuse(r, start, "out of the range of the input's type");
    if (negative) *bits = 0 - *bits;
    return CI_OK;
}

static int read_bool(reader *r, uint64_t *bits)
{
    *bits = ci_json_word(&r->json, "true") || ci_json_word(&r->json, "1");
    if (!*bits && !ci_json_word(&r->json, "false") && !ci_json_word(&r->json, "0"))
        return refuse(r, r->json.at, "true, false, 0 or 1 was expected");
    return is_digit(r) ? refuse(r, r->json.at - 1, "true, false, 0 or 1 was expected") : CI_OK;
}

static int read_element(reader *r, uint64_t *bits)
{
    if (r->port->type == CI_BOOL) return read_bool(r, bits);
    return ci_is_float(r->port->type) ? read_float(r, bits) : read_integer(r, bits);
}

/* Nested lists ----------------------------------------------------------------------------------------------------- */

typedef struct list {
    ci_bytes bytes;
    int64_t dims[CI_MAX_RANK]; /* -1: not known yet */
    int depth, leaf;           /* deepest list so far; lists around an element, -1: none seen */
} list;

static CI_APART int push(reader *r, list *l)
{
    uint64_t bits;
    int status = read_element(r, &bits);
    size_t size = ci_io_bytes(r->port->type);
    if (status) return status;
    if (!ci_reserve(&l->bytes, size)) return ci_no_memory(r->error, (int64_t)l->bytes.room * 2);
    memcpy(l->bytes.data + l->bytes.size, &bits, size); /* little-endian machines alone are targets */
    l->bytes.size += size;
    return CI_OK;
}

static int read_value(reader *r, list *l, int depth);

static int read_list(reader *r, list *l, int depth)
{
    const char *start = r->json.at - 1;
    int64_t count = 0;
    if (l->leaf >= 0 && depth >= l->leaf) return refuse(r, start, "a list where a number was expected");
    if (depth == CI_MAX_RANK) return refuse(r, start, "more than 16 lists inside each other");
    if (depth >= l->depth) l->depth = depth + 1;
    while (!accept(r, ']')) {
        if (count && !accept(r, ',')) return refuse(r, r->json.at, "',' or ']' was expected");
        int status = read_value(r, l, depth + 1);
        if (status) return status;
        count++;
    }
    if (l->dims[depth] >= 0 && l->dims[depth] != count) return refuse(r, start, "this list differs in length from its siblings");
    l->dims[depth] = count;
    return CI_OK;
}

static int read_value(reader *r, list *l, int depth)
{
    if (accept(r, '[')) return read_list(r, l, depth);
    if (r->json.at == r->json.end) return refuse(r, r->json.at, "the text ends here, inside a value");
    if (l->leaf < 0 ? depth < l->depth : depth != l->leaf) return refuse(r, r->json.at, "a list was expected");
    l->leaf = depth;
    return push(r, l);
}

/* [] says nothing of the dimensions inside: those come from the model where it knows them. */
static void complete_shape(const ci_port *port, ci_array *array)
{
    if (array->rank == 0 || array->dims[array->rank - 1] != 0) return;
    for (; array->rank < port->rank; array->rank++) {
        int64_t extent = port->dims[array->rank];
        array->dims[array->rank] = extent > 0 ? extent : 0;
    }
}

static int read_array(reader *r, ci_inputs *inputs, int index)
{
    list l = {.leaf = -1};
    ci_array *array = &inputs->arrays[index];
    r->port = &inputs->model->inputs[index];
    for (int i = 0; i < CI_MAX_RANK; i++) l.dims[i] = -1;
    if (!ci_io_bytes(r->port->type))
        return ci_refuse(r->error, "input '%s': %s is a type that cannot be given here", r->port->name,
                         ci_type_name(r->port->type));
    int status = ci_reserve(&l.bytes, 8) ? read_value(r, &l, 0) : ci_no_memory(r->error, 8);
    if (status) {
        free(l.bytes.data);
        return status;
    }
    array->type = r->port->type;
    array->rank = l.leaf >= 0 ? l.leaf : l.depth;
    memcpy(array->dims, l.dims, sizeof l.dims);
    complete_shape(r->port, array);
    array->data = inputs->memory[index] = l.bytes.data;
    r->port = NULL;
    return CI_OK;
}

/* Strings and objects ---------------------------------------------------------------------------------------------- */

/* A name of up to 1,000 bytes; what is longer is cut off, and so names no input. */
typedef struct name {
    char text[1008];
    size_t length;
} name;

static int read_name(reader *r, name *n)
{
    ci_slice string;
    if (!accept(r, '"')) return refuse(r, r->json.at, "the name of an input, in double quotes, was expected");
    const char *start = r->json.at--;
    if (!ci_json_string(&r->json, &string)) {
        if (r->json.at == r->json.end) return refuse(r, start, "this string has no end");
        if (*r->json.at == '\\') return refuse(r, r->json.at, "an escape that JSON does not have");
        return refuse(r, r->json.at, "a control character inside a string");
    }
    for (n->length = 0; string.size;) {
        char character[4];
        size_t length = ci_slice_next(&string, character);
        if (n->length + sizeof character >= sizeof n->text) continue;
        memcpy(n->text + n->length, character, length);
        n->length += length;
    }
    return CI_OK;
}

static CI_APART int read_object(reader *r, ci_inputs *inputs)
{
    name n;
    for (bool first = true; !accept(r, '}'); first = false) {
        int index;
        if (!first && !accept(r, ',')) return refuse(r, r->json.at, "',' or '}' was expected");
        int status = read_name(r, &n);
        if (!status && !accept(r, ':')) status = refuse(r, r->json.at, "':' was expected");
        if (!status) status = ci_inputs_find(inputs, n.text, n.length, r->where, &index, r->error);
        if (!status) status = read_array(r, inputs, index);
        if (status) return status;
    }
    return CI_OK;
}

static int read_inputs(reader *r, ci_inputs *inputs, int index)
{
    if (accept(r, '{')) {
        if (index < 0) return read_object(r, inputs);
        return refuse(r, r->json.at - 1, "an object, where the array of one input was expected");
    }
    if (r->json.at == r->json.end) return refuse(r, r->json.at, "empty, where JSON was expected");
    int status = ci_inputs_place(inputs, r->where, &index, r->error);
    return status ? status : read_array(r, inputs, index);
}

int ci_json_read(const char *text, size_t size, const char *where, int64_t line, ci_inputs *inputs, int index, ci_error *error)
{
    reader r = {{text, text + size}, text, where, line, NULL, error};
    if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) r.json.at += 3; /* the byte order mark of Windows */
    int status = read_inputs(&r, inputs, index);
    return !status && !ci_json_ended(&r.json) ? refuse(&r, r.json.at, "more text after the value") : status;
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at `text`, 0 where it is none. */
static int utf8_length(const unsigned char *text)
{
    int length = *text < 0x80 ? 1 : *text < 0xc2 ? 0 : *text < 0xe0 ? 2 : *text < 0xf0 ? 3 : *text < 0xf5 ? 4 : 0;
    for (int i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    return length;
}

void ci_json_write_string(ci_text *out, const char *text)
{
    ci_put_text(out, "\"");
    while (*text) {
        static const char hex[] = "0123456789abcdef";
        unsigned char c = (unsigned char)*text;
        char escaped[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        int length = utf8_length((const unsigned char *)text);
        if (c == '"' || c == '\\') ci_put_text(out, "\\");
        if (length == 0) ci_put_text(out, "?");
        else if (c < ' ') ci_put_bytes(out, escaped, sizeof escaped);
        else ci_put_bytes(out, text, (size_t)length);
        text += length ? length : 1;
    }
    ci_put_text(out, "\"");
}

static void write_element(ci_text *out, const char *data, int32_t type, size_t size)
{
    char text[CI_NUMBER_ROOM];
    uint64_t bits = 0;
    memcpy(&bits, data, size);
    int unused = 64 - 8 * (int)size, length;
    if (type == CI_BOOL) {
        ci_put_text(out, bits ? "true" : "false");
        return;
    }
    if (ci_is_float(type)) length = ci_print_float(text, bits, type);
    else if (ci_is_signed(type)) length = ci_print_int(text, (int64_t)(bits << unused) >> unused);
    else length = ci_print_uint(text, bits);
    ci_put_bytes(out, text, (size_t)length);
}

/* Gives where the next element is. */
static const char *write_lists(ci_text *out, const ci_array *array, int depth, const char *data, size_t size)
{
    if (depth == array->rank) {
        write_element(out, data, array->type, size);
        return data + size;
    }
    ci_put_text(out, "[");
    for (int64_t i = 0; i < array->dims[depth]; i++) {
        if (i) ci_put_text(out, ", ");
        data = write_lists(out, array, depth + 1, data, size);
    }
    ci_put_text(out, "]");
    return data;
}

int ci_json_write(ci_text *out, const ci_model *model, const ci_array *outputs, ci_error *error)
{
    for (int32_t i = 0; i < model->output_count; i++)
        if (!ci_io_bytes(outputs[i].type))
            return ci_refuse(error, "output '%s': %s is a type that cannot be printed", model->outputs[i].name,
                             ci_type_name(outputs[i].type));
    ci_put_text(out, "{");
    for (int32_t i = 0; i < model->output_count; i++) {
        if (i) ci_put_text(out, ", ");
        ci_json_write_string(out, model->outputs[i].name);
        ci_put_text(out, ": ");
        write_lists(out, &outputs[i], 0, outputs[i].data, ci_io_bytes(outputs[i].type));
    }
    ci_put_text(out, "}\n");
    return CI_OK;
}
