#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "write.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

bool ci_write_all(int file, const char *bytes, size_t size)
{
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

int ci_open_beside(const char *path, char *name, size_t size)
{
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
