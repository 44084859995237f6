#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "error.h"
#include "reason.h"
#include "weights.h"
#include "write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool write_packed(int file, const ci_weights *weights)
{
    const ci_model *model = weights->model;
    ci_packed_header header = {
        .version = CI_PACKED_VERSION, .header_bytes = CI_PACKED_HEADER, .packed_bytes = (uint64_t)model->packed_bytes};
    memcpy(header.magic, CI_PACKED_MAGIC, sizeof header.magic);
    memcpy(header.hash, model->hash, sizeof header.hash);
    return ci_write_all(file, (const char *)&header, sizeof header) &&
           ci_write_all(file, weights->packed, (size_t)model->packed_bytes) && !fsync(file);
}

int ci_weights_save(const ci_weights *weights, const char *path, ci_error *error)
{
    char name[CI_PATH_ROOM];
    int file = ci_open_beside(path, name, sizeof name);
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
