#include "json_reader.h"

#include <string.h>

static void skip_space(ci_json *json)
{
    while (json->at < json->end && memchr(" \t\r\n", *json->at, 4)) ++json->at;
}

bool ci_json_take(ci_json *json, char token)
{
    skip_space(json);
    if (json->at == json->end || *json->at != token) return false;
    ++json->at;
    return true;
}

bool ci_json_word(ci_json *json, const char *word)
{
    size_t length = strlen(word);
    skip_space(json);
    if ((size_t)(json->end - json->at) < length || memcmp(json->at, word, length)) return false;
    json->at += length;
    return true;
}

bool ci_json_ended(ci_json *json)
{
    skip_space(json);
    return json->at == json->end;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Bytes of the escape that begins at `at`, 0 if it is none. */
static size_t escape_size(const char *at, const char *end)
{
    if (end - at < 2) return 0;
    if (at[1] != 'u') return memchr("\"\\/bfnrt", at[1], 8) ? 2 : 0;
    if (end - at < 6) return 0;
    for (int i = 2; i < 6; ++i)
        if (hex_digit(at[i]) < 0) return 0;
    return 6;
}

bool ci_json_string(ci_json *json, ci_slice *string)
{
    if (!ci_json_take(json, '"')) return false;
    string->at = json->at;
    while (json->at < json->end && *json->at != '"') {
        size_t size = *json->at == '\\' ? escape_size(json->at, json->end) : (unsigned char)*json->at >= 0x20;
        if (!size) return false;
        json->at += size;
    }
    string->size = (size_t)(json->at - string->at);
    return ci_json_take(json, '"');
}

bool ci_json_integer(ci_json *json, int64_t *number)
{
    const int64_t most = (int64_t)1 << 62;
    skip_space(json);
    const char *first = json->at;
    *number = 0;
    for (; json->at < json->end && *json->at >= '0' && *json->at <= '9'; ++json->at) {
        int digit = *json->at - '0';
        if (*number > (most - digit) / 10) return false;
        *number = *number * 10 + digit;
    }
    return json->at > first && (*first != '0' || json->at == first + 1);
}

static uint32_t hex4(const char *at)
{
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i) unit = unit << 4 | (uint32_t)hex_digit(at[i]);
    return unit;
}

static size_t utf8(uint32_t code, char *out)
{
    if (code < 0x80) return out[0] = (char)code, 1;
    size_t more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    for (size_t i = more; i > 0; --i, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xff00 >> (more + 1)) | code);
    return more + 1;
}

size_t ci_slice_next(ci_slice *rest, char *out)
{
    static const char plain[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *at = rest->at, *end = at + rest->size;
    size_t taken = 1, size = 1;
    *out = *at;
    if (*at == '\\') {
        taken = escape_size(at, end);
        if (taken == 2) {
            *out = meant[(const char *)memchr(plain, at[1], 8) - plain];
        } else {
            uint32_t code = hex4(at + 2);
            bool pair = code >> 10 == 0x36 && escape_size(at + 6, end) == 6 && at[6] == '\\' && hex4(at + 8) >> 10 == 0x37;
            if (pair) code = 0x10000 + ((code & 0x3ff) << 10 | (hex4(at + 8) & 0x3ff));
            taken = pair ? 12 : 6;
            size = utf8(code, out);
        }
    }
    rest->at += taken;
    rest->size -= taken;
    return size;
}

bool ci_slice_equal(ci_slice string, const char *text)
{
    size_t left = strlen(text);
    char character[4];
    while (string.size) {
        size_t size = ci_slice_next(&string, character);
        if (size > left || memcmp(character, text, size)) return false;
        text += size;
        left -= size;
    }
    return !left;
}
