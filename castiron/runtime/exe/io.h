/* Files and messages by system calls alone: stdio would be a third of a small executable. */
#ifndef CASTIRON_EXE_IO_H
#define CASTIRON_EXE_IO_H

#include "../castiron.h"
#include "../core/error.h"
#include "../core/reason.h"
#include "../core/write.h"

enum { CI_MISMATCH = 1 }; /* exit status of a self-test that fails, beside those of ci_status */

/* Fills in the message and gives CI_BAD_INPUT. */
int ci_refuse(ci_error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
int ci_no_memory(ci_error *error, int64_t bytes);
bool ci_ends(const char *text, const char *ending);
bool ci_same(const char *text, size_t length, const char *word);
void ci_put_padded(ci_text *text, const char *string, int width); /* right-aligned where the width is negative */

/* A file that is written through a buffer. The first failure is kept in `code` (an errno) and silences the rest. */
typedef struct ci_out {
    ci_text text; /* puts into the file; the functions that print take its address */
    int fd, code;
    char buffer[4096];
} ci_out;

void ci_out_open(ci_out *out, int fd);
void ci_out_flush(ci_out *out);
int ci_out_status(ci_out *out, const char *path, ci_error *error); /* after a flush */

/* A file that appears whole or not at all: written under another name beside `path`. Devices are written directly. */
typedef struct ci_file {
    const char *path;
    char temporary[CI_PATH_ROOM]; /* "": written directly */
    ci_out out;
} ci_file;

int ci_file_create(ci_file *file, const char *path, ci_error *error);
/* Ends the file: keeps it where `status` is CI_OK and everything was written, else removes it. */
int ci_file_close(ci_file *file, int status, ci_error *error);

/* Bytes that grow. */
typedef struct ci_bytes {
    char *data;
    size_t size, room;
} ci_bytes;

bool ci_reserve(ci_bytes *bytes, size_t more);
/* All of a file ("-": stdin). The caller frees the bytes, also after a failure. */
int ci_read_all(const char *path, ci_bytes *bytes, ci_error *error);

#endif
