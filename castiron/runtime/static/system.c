/* System calls for static executables as the kernel has them, in place of the C library's, which also serve kernels without
   them, threads that may be cancelled, and locks among processes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <asm/ioctls.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__ /* number and arguments each move up one register, the result goes through the C library to errno */
__asm__(".pushsection .text.syscall,\"ax\",@progbits\n"
        ".globl syscall\n"
        ".type syscall,@function\n"
        "syscall:\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %rsi\n"
        "mov %rcx, %rdx\n"
        "mov %r8, %r10\n"
        "mov %r9, %r8\n"
        "mov 8(%rsp), %r9\n"
        "syscall\n"
        "mov %rax, %rdi\n"
        "jmp __syscall_ret\n"
        ".popsection");
#endif

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    int mode = flags & O_CREAT ? va_arg(arguments, int) : 0;
    va_end(arguments);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int isatty(int file) {
    char settings[64]; /* struct termios of the kernel */
    return !syscall(SYS_ioctl, file, TCGETS, settings);
}

char *getenv(const char *name) {
    size_t length = strlen(name);
    for (char **at = environ; at && *at; ++at)
        if (!strncmp(*at, name, length) && (*at)[length] == '=') return *at + length + 1;
    return NULL;
}

int fstat(int file, struct stat *status) { return (int)syscall(SYS_fstat, file, status); }

int stat(const char *path, struct stat *status) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0); }

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}

int munmap(void *data, size_t size) { return (int)syscall(SYS_munmap, data, size); }

void *mremap(void *data, size_t size, size_t wanted, int flags, ...) { /* never to a place of the caller's choice */
    return (void *)syscall(SYS_mremap, data, size, wanted, flags);
}
