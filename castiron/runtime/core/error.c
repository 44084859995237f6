#include "error.h"

#include <stdarg.h>
#include <string.h>

ci_text ci_text_in(char *buffer, size_t size) {
    *buffer = 0;
    return (ci_text){buffer, buffer + size - 1};
}

static void put_bytes(ci_text *text, const char *bytes, size_t count) {
    size_t room = (size_t)(text->end - text->at);
    if (count > room) count = room;
    for (; count; --count, ++bytes) /* names come from files: no control characters into terminals and logs */
        *text->at++ = (unsigned char)*bytes < 0x20 || *bytes == 0x7f ? '?' : *bytes;
    *text->at = 0;
}

static void put_number(ci_text *text, long long value) {
    char digits[20];
    size_t first = sizeof digits;
    unsigned long long rest = value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value;
    do {
        digits[--first] = (char)('0' + rest % 10);
    } while (rest /= 10);
    if (value < 0) put_bytes(text, "-", 1);
    put_bytes(text, digits + first, sizeof digits - first);
}

static void put_all(ci_text *text, const char *format, va_list arguments) {
    for (; *format; ++format) {
        if (*format != '%') {
            put_bytes(text, format, 1);
            continue;
        }
        int width = -1, longs = 0;
        if (format[1] == '.') {
            width = va_arg(arguments, int);
            format += 2;
        }
        for (; format[1] == 'l'; ++format) ++longs;
        ++format;
        if (*format == 's') {
            const char *string = va_arg(arguments, const char *);
            int length = 0;
            while (length != width && string[length]) ++length;
            put_bytes(text, string, (size_t)length);
        } else if (*format == 'd') {
            if (longs > 1) put_number(text, va_arg(arguments, long long));
            else put_number(text, longs ? va_arg(arguments, long) : va_arg(arguments, int));
        } else {
            put_bytes(text, format, 1);
        }
    }
}

void ci_put(ci_text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    put_all(text, format, arguments);
    va_end(arguments);
}

void ci_put_shape(ci_text *text, int32_t rank, const int64_t *dims, const ci_size *sizes) {
    put_bytes(text, "[", 1);
    for (int32_t i = 0; i < rank; ++i) {
        if (i) put_bytes(text, ",", 1);
        if (dims[i] < 0 && sizes) ci_put(text, "%s", sizes[-1 - dims[i]].name);
        else put_number(text, dims[i]);
    }
    put_bytes(text, "]", 1);
}

int ci_fail(ci_error *error, int status, const char *format, ...) {
    if (error) {
        ci_text text = ci_text_in(error->text, sizeof error->text);
        va_list arguments;
        va_start(arguments, format);
        put_all(&text, format, arguments);
        va_end(arguments);
    }
    return status;
}

int ci_weights_fail(ci_error *error, const char *path, const char *format, ...) {
    const size_t shown = 200; /* of a long path, so that the message itself is not what gets cut off */
    if (!error) return CI_BAD_WEIGHTS;
    ci_text text = ci_text_in(error->text, sizeof error->text);
    size_t length = path ? strlen(path) : 0;
    if (!path) ci_put(&text, "weights in memory: ");
    else ci_put(&text, "weights file '%s%s': ", length > shown ? "..." : "", path + (length > shown ? length - shown : 0));
    va_list arguments;
    va_start(arguments, format);
    put_all(&text, format, arguments);
    va_end(arguments);
    return CI_BAD_WEIGHTS;
}

typedef struct type_row {
    char name[16], safetensors[5];
    uint8_t bytes;
} type_row;

static const type_row types[] = {
    [CI_FLOAT] = {"float32", "F32", 4},    [CI_UINT8] = {"uint8", "U8", 1},      [CI_INT8] = {"int8", "I8", 1},
    [CI_UINT16] = {"uint16", "U16", 2},    [CI_INT16] = {"int16", "I16", 2},     [CI_INT32] = {"int32", "I32", 4},
    [CI_INT64] = {"int64", "I64", 8},      [CI_BOOL] = {"bool", "BOOL", 1},      [CI_FLOAT16] = {"float16", "F16", 2},
    [CI_DOUBLE] = {"float64", "F64", 8},   [CI_UINT32] = {"uint32", "U32", 4},   [CI_UINT64] = {"uint64", "U64", 8},
    [CI_BFLOAT16] = {"bfloat16", "BF16", 2},
    [CI_FLOAT8E4M3FN] = {"float8_e4m3fn", "", 1},     [CI_FLOAT8E4M3FNUZ] = {"float8_e4m3fnuz", "", 1},
    [CI_FLOAT8E5M2] = {"float8_e5m2", "", 1},         [CI_FLOAT8E5M2FNUZ] = {"float8_e5m2fnuz", "", 1},
    [CI_FLOAT4E2M1] = {"float4_e2m1", "", 1},         [CI_UINT4] = {"uint4", "", 1},
    [CI_INT4] = {"int4", "", 1},                      [CI_UINT2] = {"uint2", "", 1},
    [CI_INT2] = {"int2", "", 1},
};

static const type_row *row(int32_t type) {
    static const type_row unknown = {"unknown", "", 0};
    bool known = type >= 0 && type < (int32_t)(sizeof types / sizeof *types) && types[type].bytes;
    return known ? &types[type] : &unknown;
}

const char *ci_type_name(int32_t type) { return row(type)->name; }
int32_t ci_type_bytes(int32_t type) { return row(type)->bytes; }
const char *ci_type_safetensors(int32_t type) { return row(type)->safetensors; }

int64_t ci_array_bytes(int32_t type, int32_t rank, const int64_t *dims) {
    const int64_t most = (int64_t)1 << 47;
    int64_t bytes = ci_type_bytes(type), extent = bytes;
    for (int32_t i = 0; i < rank; ++i) {
        /* Dimensions beside a zero are held to the same bound: what is derived from them must not overflow either. */
        int64_t dim = dims[i] ? dims[i] : 1;
        if (dim < 0 || extent > most / dim) return -1;
        extent *= dim;
        bytes *= dims[i];
    }
    return bytes;
}
