#define _POSIX_C_SOURCE 200809L

#include "io.h"

#include "number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef O_BINARY
#define O_BINARY 0
#endif

/* Messages --------------------------------------------------------------------------------------------------------- */

static size_t append(ci_error *error, size_t at, const char *text, size_t length)
{
    size_t room = sizeof error->text - 1 - at;
    if (length > room) length = room;
    memcpy(error->text + at, text, length);
    return at + length;
}

static size_t append_foreign(ci_error *error, size_t at, const char *text, size_t length)
{
    enum { LONGEST = 60 };
    for (size_t i = 0; i < length && i < LONGEST; i++) {
        char c = text[i] < ' ' || text[i] > '~' ? '?' : text[i];
        at = append(error, at, &c, 1);
    }
    return length > LONGEST ? append(error, at, "...", 3) : at;
}

int ci_refuse(ci_error *error, int status, const char *format, ...)
{
    va_list list;
    char number[CI_NUMBER_ROOM];
    size_t at = 0;
    va_start(list, format);
    for (; *format; format++) {
        if (*format != '%') {
            at = append(error, at, format, 1);
        } else if (*++format == 's') {
            const char *text = va_arg(list, const char *);
            at = append(error, at, text, strlen(text));
        } else if (*format == 'd') {
            at = append(error, at, number, (size_t)ci_print_int(number, va_arg(list, int64_t)));
        } else {
            size_t length = va_arg(list, size_t);
            at = append_foreign(error, at, va_arg(list, const char *), length);
        }
    }
    va_end(list);
    error->text[at] = 0;
    return status;
}

int ci_no_memory(ci_error *error, int64_t bytes)
{
    return ci_refuse(error, CI_NO_MEMORY, "out of memory: cannot get %d bytes", bytes);
}

bool ci_ends(const char *text, const char *ending)
{
    size_t length = strlen(text), wanted = strlen(ending);
    return length >= wanted && !strcmp(text + length - wanted, ending);
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

void ci_out_open(ci_out *out, int fd)
{
    out->fd = fd;
    out->code = 0;
    out->used = 0;
}

static void write_all(ci_out *out, const char *data, size_t size)
{
    while (size && !out->code) {
        ssize_t count = write(out->fd, data, size < 1u << 30 ? size : 1u << 30);
        if (count < 0 && errno != EINTR) out->code = errno;
        if (count > 0) data += count, size -= (size_t)count;
    }
}

void ci_out_flush(ci_out *out)
{
    write_all(out, out->buffer, out->used);
    out->used = 0;
}

void ci_out_put(ci_out *out, const void *data, size_t size)
{
    if (size > sizeof out->buffer - out->used) ci_out_flush(out);
    if (size > sizeof out->buffer) {
        write_all(out, data, size);
        return;
    }
    memcpy(out->buffer + out->used, data, size);
    out->used += size;
}

void ci_out_text(ci_out *out, const char *text)
{
    ci_out_put(out, text, strlen(text));
}

void ci_out_int(ci_out *out, int64_t value)
{
    char text[CI_NUMBER_ROOM];
    ci_out_put(out, text, (size_t)ci_print_int(text, value));
}

void ci_out_padded(ci_out *out, const char *text, int width)
{
    int spaces = (width < 0 ? -width : width) - (int)strlen(text);
    if (width > 0) ci_out_text(out, text);
    for (int i = 0; i < spaces; i++) ci_out_put(out, " ", 1);
    if (width <= 0) ci_out_text(out, text);
}

int ci_out_status(ci_out *out, const char *path, ci_error *error)
{
    if (!out->code) return CI_OK;
    return ci_refuse(error, CI_BAD_INPUT, "%s: cannot write (%s)", path, ci_reason(out->code));
}

/* Files ------------------------------------------------------------------------------------------------------------ */

static char *beside(const char *path)
{
    char number[CI_NUMBER_ROOM];
    size_t length = strlen(path), digits = (size_t)ci_print_int(number, getpid());
    char *name = malloc(length + digits + 6);
    if (!name) return NULL;
    memcpy(name, path, length);
    memcpy(name + length, ".part", 5);
    memcpy(name + length + 5, number, digits);
    name[length + 5 + digits] = 0;
    return name;
}

int ci_file_create(ci_file *file, const char *path, ci_error *error)
{
    struct stat status;
    bool standard = !strcmp(path, "-"), device = !standard && !stat(path, &status) && !S_ISREG(status.st_mode);
    file->path = standard ? "standard output" : path;
    file->temporary = NULL;
    ci_out_open(&file->out, STDOUT_FILENO);
    if (standard) return CI_OK;
    if (!device && !(file->temporary = beside(path))) return ci_no_memory(error, (int64_t)strlen(path));
    int flags = device ? O_WRONLY | O_BINARY : O_WRONLY | O_CREAT | O_TRUNC | O_BINARY;
    file->out.fd = open(device ? path : file->temporary, flags, 0666);
    if (file->out.fd >= 0) return CI_OK;
    free(file->temporary);
    return ci_refuse(error, CI_BAD_INPUT, "%s: cannot create (%s)", path, ci_reason(errno));
}

int ci_file_close(ci_file *file, int status, ci_error *error)
{
    ci_out_flush(&file->out);
    if (file->out.fd != STDOUT_FILENO && close(file->out.fd) && !file->out.code) file->out.code = errno;
    if (!file->temporary) return status ? status : ci_out_status(&file->out, file->path, error);
    if (!status && !file->out.code && rename(file->temporary, file->path)) file->out.code = errno;
    if (!status) status = ci_out_status(&file->out, file->path, error);
    if (status) unlink(file->temporary);
    free(file->temporary);
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
    int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_BINARY), code = 0;
    ssize_t count = 1;
    if (fd < 0) return ci_refuse(error, CI_BAD_INPUT, "%s: cannot open (%s)", name, ci_reason(errno));
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
    return code ? ci_refuse(error, CI_BAD_INPUT, "%s: cannot read (%s)", name, ci_reason(code)) : CI_OK;
}
