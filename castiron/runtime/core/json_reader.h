/* As much of JSON as a safetensors header needs: no recursion, so no depth to limit. Readers give false at what is not
   valid JSON (or not of that kind) and leave `at` there. */
#ifndef CI_JSON_READER_H
#define CI_JSON_READER_H

#include "../castiron.h"

typedef struct ci_json {
    const char *at, *end;
} ci_json;

/* What stands between the quotes, escapes as they are written. */
typedef struct ci_slice {
    const char *at;
    size_t size;
} ci_slice;

bool ci_json_take(ci_json *json, char token);          /* white space, then this character */
bool ci_json_word(ci_json *json, const char *word);    /* the same */
bool ci_json_string(ci_json *json, ci_slice *string);  /* valid: escapes are known, no control characters */
bool ci_json_integer(ci_json *json, int64_t *number);  /* 0 .. 2^62, without sign, fraction or exponent */
bool ci_json_ended(ci_json *json);                     /* nothing but white space is left */

/* Takes one character off the front of a valid string, as up to 4 bytes of UTF-8, and gives their number; a lone half of
   a surrogate pair makes bytes that no name has. */
size_t ci_slice_next(ci_slice *rest, char *character);

/* Whether the string's text, escapes resolved, is `text`. */
bool ci_slice_equal(ci_slice string, const char *text);

#endif
