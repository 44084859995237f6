#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "error.h"
#include "reason.h"
#include "weights.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool write_all(int file, const char *bytes, size_t size) {
    const size_t most = 1 << 30; /* the system writes no more than 2 GB a call */
    while (size) {
        ssize_t count = write(file, bytes, size < most ? size : most);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        bytes += count;
        size -= (size_t)count;
    }
    return true;
}

static bool write_packed(int file, const ci_weights *weights) {
    const ci_model *model = weights->model;
    ci_packed_header header = {.version = CI_PACKED_VERSION, .header_bytes = CI_PACKED_HEADER,
                               .packed_bytes = (uint64_t)model->packed_bytes};
    memcpy(header.magic, CI_PACKED_MAGIC, sizeof header.magic);
    memcpy(header.hash, model->hash, sizeof header.hash);
    return write_all(file, (const char *)&header, sizeof header) &&
           write_all(file, weights->packed, (size_t)model->packed_bytes) && !fsync(file);
}

/* A new file beside `path`; its name is in `name`. */
static int open_beside(const char *path, char *name, size_t size) {
    int file = -1;
    errno = ENAMETOOLONG;
    if (strlen(path) + 32 > size) return file;
    for (int attempt = 0; attempt < 100; ++attempt) {
        ci_text text = ci_text_in(name, size);
        ci_put(&text, "%s.%d-%d", path, (int)getpid(), attempt);
        file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0 || errno != EEXIST) break;
    }
    return file;
}

int ci_weights_save(const ci_weights *weights, const char *path, ci_error *error) {
    char name[PATH_MAX];
    int file = open_beside(path, name, sizeof name);
    if (file < 0) return ci_weights_fail(error, path, "cannot be written: %s", ci_reason(errno));
    bool written = write_packed(file, weights);
    int problem = errno;
    if (close(file) && written) {
        written = false;
        problem = errno;
    }
    if (written && !rename(name, path)) return CI_OK;
    if (written) problem = errno;
    unlink(name);
    return ci_weights_fail(error, path, "cannot be written: %s", ci_reason(problem));
}
