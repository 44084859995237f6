#define _POSIX_C_SOURCE 200809L

#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Messages --------------------------------------------------------------------------------------------------------- */

CI_NO_FLOATS int ci_refuse(ci_error *error, const char *format, ...)
{
    ci_text text = ci_message(error);
    va_list list;
    va_start(list, format);
    ci_put_all(&text, format, list);
    va_end(list);
    return CI_BAD_INPUT;
}

int ci_no_memory(ci_error *error, int64_t bytes)
{
    return ci_fail(error, CI_NO_MEMORY, "out of memory: cannot get %" PRId64 " bytes", bytes);
}

bool ci_ends(const char *text, const char *ending)
{
    size_t length = strlen(text), wanted = strlen(ending);
    return length >= wanted && !strcmp(text + length - wanted, ending);
}

bool ci_same(const char *text, size_t length, const char *word) { return length == strlen(word) && !memcmp(text, word, length); }

/* Writing ---------------------------------------------------------------------------------------------------------- */

static void write_all(ci_out *out, const char *data, size_t size)
{
    if (!out->code && !ci_write_all(out->fd, data, size)) out->code = errno;
}

void ci_out_flush(ci_out *out)
{
    write_all(out, out->buffer, (size_t)(out->text.at - out->buffer));
    out->text.at = out->buffer;
}

static void write_through(ci_text *text, const void *data, size_t size)
{
    ci_out *out = (ci_out *)text;
    ci_out_flush(out);
    if (size < sizeof out->buffer) ci_put_bytes(text, data, size);
    else write_all(out, data, size);
}

void ci_out_open(ci_out *out, int fd)
{
    out->text = ci_text_in(out->buffer, sizeof out->buffer);
    out->text.write = write_through;
    out->fd = fd;
    out->code = 0;
}

void ci_put_padded(ci_text *text, const char *string, int width)
{
    int spaces = (width < 0 ? -width : width) - (int)strlen(string);
    if (width > 0) ci_put_text(text, string);
    for (int i = 0; i < spaces; i++) ci_put_text(text, " ");
    if (width <= 0) ci_put_text(text, string);
}

int ci_out_status(ci_out *out, const char *path, ci_error *error)
{
    if (!out->code) return CI_OK;
    return ci_refuse(error, "%s: cannot write (%s)", path, ci_reason(out->code));
}

/* Files ------------------------------------------------------------------------------------------------------------ */

int ci_file_create(ci_file *file, const char *path, ci_error *error)
{
    struct stat status;
    bool standard = !strcmp(path, "-"), device = !standard && !stat(path, &status) && !S_ISREG(status.st_mode);
    file->path = standard ? "standard output" : path;
    *file->temporary = 0;
    ci_out_open(&file->out, STDOUT_FILENO);
    if (standard) return CI_OK;
    if (device) file->out.fd = open(path, O_WRONLY);
    else file->out.fd = ci_open_beside(path, file->temporary, sizeof file->temporary);
    return file->out.fd >= 0 ? CI_OK : ci_refuse(error, "%s: cannot create (%s)", path, ci_reason(errno));
}

int ci_file_close(ci_file *file, int status, ci_error *error)
{
    ci_out_flush(&file->out);
    if (file->out.fd != STDOUT_FILENO && close(file->out.fd) && !file->out.code) file->out.code = errno;
    bool moves = *file->temporary;
    if (moves && !status && !file->out.code && rename(file->temporary, file->path)) file->out.code = errno;
    if (!status) status = ci_out_status(&file->out, file->path, error);
    if (moves && status) unlink(file->temporary);
    return status;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

bool ci_reserve(ci_bytes *bytes, size_t more)
{
    if (more <= bytes->room - bytes->size) return true;
    size_t room = bytes->room * 2 > bytes->size + more ? bytes->room * 2 : bytes->size + more;
    char *data = more < SIZE_MAX / 4 && room >= more ? realloc(bytes->data, room) : NULL;
    if (!data) return false;
    bytes->data = data;
    bytes->room = room;
    return true;
}

int ci_read_all(const char *path, ci_bytes *bytes, ci_error *error)
{
    struct stat status;
    bool standard = !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY), code = 0;
    ssize_t count = 1;
    if (fd < 0) return ci_refuse(error, "%s: cannot open (%s)", name, ci_reason(errno));
    /* one byte more than the file, so that its end is seen without growing */
    size_t step = !fstat(fd, &status) && S_ISREG(status.st_mode) ? (size_t)status.st_size + 1 : 4096;
    bool fits = true;
    while (count > 0 && (fits = ci_reserve(bytes, bytes->size < bytes->room ? 1 : step))) {
        size_t room = bytes->room - bytes->size;
        count = read(fd, bytes->data + bytes->size, room < 1u << 30 ? room : 1u << 30);
        if (count < 0 && errno == EINTR) count = 1;
        else if (count < 0) code = errno;
        else bytes->size += (size_t)count;
        step = 4096;
    }
    if (!standard) close(fd);
    if (!fits) return ci_no_memory(error, (int64_t)(bytes->size + step));
    return code ? ci_refuse(error, "%s: cannot read (%s)", name, ci_reason(code)) : CI_OK;
}
