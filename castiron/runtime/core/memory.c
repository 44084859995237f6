#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memory.h"

#include "error.h"
#include "reason.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef CI_SHARED
#include <dlfcn.h>
#endif

enum { HUGE_FROM = 8 << 20 }; /* bytes from which huge pages save more page faults than they cost memory */

bool ci_block_grow(ci_block *block, int64_t size)
{
    if (size <= (int64_t)block->size) return true;
    ci_block_free(block);
    void *data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return false;
#ifdef MADV_HUGEPAGE
    if (size >= HUGE_FROM) madvise(data, (size_t)size, MADV_HUGEPAGE);
#endif
    *block = (ci_block){data, (size_t)size};
    return true;
}

void ci_block_seal(ci_block *block)
{
    if (block->size) mprotect(block->data, block->size, PROT_READ);
}

void ci_block_free(ci_block *block)
{
    if (block->size) munmap(block->data, block->size);
    *block = (ci_block){0};
}

static int map(int file, const char *path, ci_block *block, ci_error *error)
{
    struct stat about;
    if (fstat(file, &about)) return ci_weights_fail(error, path, "cannot be read: %s", ci_reason(errno));
    if (!S_ISREG(about.st_mode))
        return ci_weights_fail(error, path, "is %s, not a file", S_ISDIR(about.st_mode) ? "a folder" : "a device or pipe");
    if (about.st_size == 0) return ci_weights_fail(error, path, "is empty");
    void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED) return ci_weights_fail(error, path, "cannot be mapped: %s", ci_reason(errno));
    *block = (ci_block){data, (size_t)about.st_size};
    return CI_OK;
}

int ci_file_map(const char *path, ci_block *block, ci_error *error)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer must not hang the caller */
    if (file < 0) return ci_weights_fail(error, path, "cannot be opened: %s", ci_reason(errno));
    int status = map(file, path, block, error);
    close(file);
    return status;
}

bool ci_own_folder(char *folder, size_t size)
{
    size_t length = 0;
#ifdef CI_SHARED
    Dl_info about;
    if (dladdr((const void *)(uintptr_t)ci_own_folder, &about) && about.dli_fname) {
        length = strlen(about.dli_fname);
        if (length >= size) return false;
        memcpy(folder, about.dli_fname, length);
    }
#else
    ssize_t read = readlink("/proc/self/exe", folder, size);
    if (read > 0 && (size_t)read < size) length = (size_t)read;
#endif
    while (length && folder[length - 1] != '/') --length;
    if (length) folder[length] = 0;
    return length > 0;
}
