/* System calls for static executables as the kernel has them, in place of the C library's, which also serve kernels without
   them, threads that may be cancelled, and locks among processes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int fstat(int file, struct stat *status) { return (int)syscall(SYS_fstat, file, status); }

int stat(const char *path, struct stat *status) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0); }

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}

int munmap(void *data, size_t size) { return (int)syscall(SYS_munmap, data, size); }

void *mremap(void *data, size_t size, size_t wanted, int flags, ...) { /* never to a place of the caller's choice */
    return (void *)syscall(SYS_mremap, data, size, wanted, flags);
}
