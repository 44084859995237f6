/* Files and messages by system calls alone: stdio would be a third of a small executable. */
#ifndef CASTIRON_EXE_IO_H
#define CASTIRON_EXE_IO_H

#include "../castiron.h"
#include "../core/reason.h"

enum { CI_MISMATCH = 1 }; /* exit status of a self-test that fails, beside those of ci_status */

/* Fills in the message and gives `status`. In `format`: %s text, %d an int64_t, %q a size_t and as many characters that
   someone else wrote, which are cut and made printable. */
int ci_refuse(ci_error *error, int status, const char *format, ...);
int ci_no_memory(ci_error *error, int64_t bytes);
bool ci_ends(const char *text, const char *ending);

/* A buffered writer. The first failure is kept in `code` (an errno) and silences the rest. */
typedef struct ci_out {
    int fd, code;
    size_t used;
    char buffer[4096];
} ci_out;

void ci_out_open(ci_out *out, int fd);
void ci_out_put(ci_out *out, const void *data, size_t size);
void ci_out_text(ci_out *out, const char *text);
void ci_out_int(ci_out *out, int64_t value);
void ci_out_padded(ci_out *out, const char *text, int width); /* right-aligned where the width is negative */
void ci_out_flush(ci_out *out);
int ci_out_status(ci_out *out, const char *path, ci_error *error); /* after a flush */

/* A file that appears whole or not at all: written under another name beside `path`. Devices are written directly. */
typedef struct ci_file {
    const char *path;
    char *temporary; /* NULL: written directly */
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
