/* Messages for users, without stdio: its formatter alone would be half of a small executable's runtime. */
#ifndef CI_ERROR_H
#define CI_ERROR_H

#include "../castiron.h"

#include <stdarg.h>

/* Of functions that are called where something has failed: one copy, out of the way. */
#define CI_COLD __attribute__((cold, noinline))

/* Of variadic functions that take no floats: without room for the registers of floats. */
#if defined __x86_64__
#define CI_NO_FLOATS __attribute__((target("general-regs-only")))
#else
#define CI_NO_FLOATS
#endif

/* Of functions that are larger inlined than called: there they push the caller's variables out of registers. */
#define CI_APART __attribute__((noinline))

/* Text that grows in a buffer. */
typedef struct ci_text {
    char *at, *end; /* end: the last byte, kept for the closing zero */
    void (*write)(struct ci_text *text, const void *bytes, size_t count); /* takes what does not fit; NULL: it is cut off */
    bool message;   /* no control characters, as names from files may have them, into terminals and logs */
} ci_text;

ci_text ci_text_in(char *buffer, size_t size);

/* The text of an error; what is put into that of none (NULL) vanishes. */
ci_text ci_message(ci_error *error);

/* The same, begun with "weights file 'PATH': ", or "weights in memory: " where `path` is NULL. */
ci_text ci_weights_message(ci_error *error, const char *path);

/* Append. The format is a subset of printf's: %s, %d, %ld and %lld (so also PRId64), and %.*s for text that someone else
   wrote, of which at most 100 bytes are shown. */
void ci_put_bytes(ci_text *text, const void *bytes, size_t count);
void ci_put_text(ci_text *text, const char *string);
void ci_put(ci_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ci_put_all(ci_text *text, const char *format, va_list arguments);

/* Appends "[batch,4]". dims[i] < 0 is printed by the name of size -1-dims[i] where `sizes` are given. */
void ci_put_shape(ci_text *text, int32_t rank, const int64_t *dims, const ci_size *sizes);

/* Digits of at most CI_NUMBER_ROOM characters, without a closing zero; their count. */
#define CI_NUMBER_ROOM 32
int ci_print_uint(char *text, uint64_t value);
int ci_print_int(char *text, int64_t value);

/* Fills in the message (`error` may be NULL) and gives `status`. */
int ci_fail(ci_error *error, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for weights; gives CI_BAD_WEIGHTS. */
int ci_weights_fail(ci_error *error, const char *path, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
