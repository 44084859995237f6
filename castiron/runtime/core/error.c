#include "error.h"

#include <string.h>

ci_text ci_text_in(char *buffer, size_t size)
{
    *buffer = 0;
    return (ci_text){.at = buffer, .end = buffer + size - 1};
}

ci_text ci_message(ci_error *error)
{
    ci_text text = {0};
    if (error) text = ci_text_in(error->text, sizeof error->text);
    text.message = true;
    return text;
}

ci_text ci_weights_message(ci_error *error, const char *path)
{
    const size_t shown = 200; /* of a long path, so that the message itself is not what gets cut off */
    ci_text text = ci_message(error);
    size_t length = path ? strlen(path) : 0;
    if (!path) ci_put_text(&text, "weights in memory: ");
    else if (length > shown) ci_put(&text, "weights file '...%s': ", path + length - shown);
    else ci_put(&text, "weights file '%s': ", path);
    return text;
}

void ci_put_bytes(ci_text *text, const void *bytes, size_t count)
{
    size_t room = (size_t)(text->end - text->at);
    if (!text->at) return;
    if (count > room && text->write) {
        text->write(text, bytes, count);
        return;
    }
    if (count > room) count = room;
    memcpy(text->at, bytes, count);
    if (text->message)
        for (char *c = text->at; c < text->at + count; ++c)
            if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    text->at += count;
    *text->at = 0;
}

void ci_put_text(ci_text *text, const char *string) { ci_put_bytes(text, string, strlen(string)); }

int ci_print_uint(char *text, uint64_t value)
{
    char digits[20], *first = digits + sizeof digits;
    do {
        *--first = (char)('0' + value % 10);
    } while (value /= 10);
    int count = (int)(digits + sizeof digits - first);
    memcpy(text, first, (size_t)count);
    return count;
}

int ci_print_int(char *text, int64_t value)
{
    if (value >= 0) return ci_print_uint(text, (uint64_t)value);
    *text = '-';
    return 1 + ci_print_uint(text + 1, 0 - (uint64_t)value);
}

static void put_number(ci_text *text, int64_t value)
{
    char digits[CI_NUMBER_ROOM];
    ci_put_bytes(text, digits, (size_t)ci_print_int(digits, value));
}

static void put_foreign(ci_text *text, size_t length, const char *string)
{
    const size_t most = 100;
    ci_put_bytes(text, string, length < most ? length : most);
    if (length > most) ci_put_text(text, "...");
}

void ci_put_all(ci_text *text, const char *format, va_list arguments)
{
    for (const char *plain = format;; plain = ++format) {
        while (*format && *format != '%') ++format;
        ci_put_bytes(text, plain, (size_t)(format - plain));
        if (!*format) return;
        bool wide = false;
        while (*++format == 'l') wide = true;
        if (*format == 's') {
            ci_put_text(text, va_arg(arguments, const char *));
        } else if (*format == 'd') {
            put_number(text, wide ? va_arg(arguments, int64_t) : va_arg(arguments, int));
        } else { /* .*s */
            size_t length = (unsigned)va_arg(arguments, int);
            put_foreign(text, length, va_arg(arguments, const char *));
            format += 2;
        }
    }
}

CI_NO_FLOATS void ci_put(ci_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    ci_put_all(text, format, arguments);
    va_end(arguments);
}

void ci_put_shape(ci_text *text, int32_t rank, const int64_t *dims, const ci_size *sizes)
{
    ci_put_text(text, "[");
    for (int32_t i = 0; i < rank; ++i) {
        if (i) ci_put_text(text, ",");
        if (dims[i] < 0 && sizes) ci_put_text(text, sizes[-1 - dims[i]].name);
        else put_number(text, dims[i]);
    }
    ci_put_text(text, "]");
}

CI_NO_FLOATS int ci_fail(ci_error *error, int status, const char *format, ...)
{
    ci_text text = ci_message(error);
    va_list arguments;
    va_start(arguments, format);
    ci_put_all(&text, format, arguments);
    va_end(arguments);
    return status;
}

CI_NO_FLOATS int ci_weights_fail(ci_error *error, const char *path, const char *format, ...)
{
    ci_text text = ci_weights_message(error, path);
    va_list arguments;
    va_start(arguments, format);
    ci_put_all(&text, format, arguments);
    va_end(arguments);
    return CI_BAD_WEIGHTS;
}
