/* Messages for users, without stdio: its formatter alone would be half of a small executable's runtime. */
#ifndef CI_ERROR_H
#define CI_ERROR_H

#include "../castiron.h"

/* Of functions that are called where something has failed: one copy, out of the way. */
#define CI_COLD __attribute__((cold, noinline))

/* Text that grows in a buffer of fixed size; what does not fit is cut off. */
typedef struct ci_text {
    char *at, *end; /* end: the last byte, kept for the closing zero */
} ci_text;

ci_text ci_text_in(char *buffer, size_t size);

/* Appends. A subset of printf: %s, %.*s, %d, %ld, %lld (so also PRId64), %%. */
void ci_put(ci_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends "[batch,4]". dims[i] < 0 is printed by the name of size -1-dims[i] where `sizes` are given. */
void ci_put_shape(ci_text *text, int32_t rank, const int64_t *dims, const ci_size *sizes);

/* Fills in the message (`error` may be NULL) and gives `status`. */
int ci_fail(ci_error *error, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "weights file 'PATH': " and the message; "weights in memory: " where `path` is NULL. Gives CI_BAD_WEIGHTS. */
int ci_weights_fail(ci_error *error, const char *path, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "float32"; "unknown" for types that arrays cannot have here. */
const char *ci_type_name(int32_t type);

/* Bytes of an element; 0 for types that arrays cannot have here. */
int32_t ci_type_bytes(int32_t type);

/* What safetensors calls the type, or "". */
const char *ci_type_safetensors(int32_t type);

/* Bytes of a dense array; -1 where a dimension is negative or the array could not exist in an address space. */
int64_t ci_array_bytes(int32_t type, int32_t rank, const int64_t *dims);

#endif
