/* System calls for static executables as the kernel has them, in place of the C library's, which also serve kernels without
   them, threads that may be cancelled, and locks among processes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <asm/ioctls.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
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

/* Not variadic, unlike its declaration: callers pass a third argument in the same register. */
int ci_open(const char *path, int flags, int mode) __asm__("open");

int ci_open(const char *path, int flags, int mode) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); }

ssize_t read(int file, void *data, size_t size) { return syscall(SYS_read, file, data, size); }

ssize_t write(int file, const void *data, size_t size) { return syscall(SYS_write, file, data, size); }

int fsync(int file) { return (int)syscall(SYS_fsync, file); }

int close(int file) { return (int)syscall(SYS_close, file); }

int unlink(const char *path) { return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

int rename(const char *from, const char *to) { return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to); }

int access(const char *path, int mode) { return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode); }

ssize_t readlink(const char *restrict path, char *restrict target, size_t size)
{
    return syscall(SYS_readlinkat, AT_FDCWD, path, target, size);
}

int isatty(int file)
{
    char settings[64]; /* struct termios of the kernel */
    return !syscall(SYS_ioctl, file, TCGETS, settings);
}

char *getenv(const char *name)
{
    size_t length = strlen(name);
    for (char **at = environ; at && *at; ++at)
        if (!strncmp(*at, name, length) && (*at)[length] == '=') return *at + length + 1;
    return NULL;
}

int fstat(int file, struct stat *status) { return (int)syscall(SYS_fstat, file, status); }

int stat(const char *path, struct stat *status) { return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0); }

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}

int munmap(void *data, size_t size) { return (int)syscall(SYS_munmap, data, size); }

void *mremap(void *data, size_t size, size_t wanted, int flags, ...)
{ /* never to a place of the caller's choice */
    return (void *)syscall(SYS_mremap, data, size, wanted, flags);
}

int mprotect(void *data, size_t size, int protection) { return (int)syscall(SYS_mprotect, data, size, protection); }

int madvise(void *data, size_t size, int advice) { return (int)syscall(SYS_madvise, data, size, advice); }

pid_t getpid(void) { return (pid_t)syscall(SYS_getpid); }

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set)
{
    return syscall(SYS_sched_getaffinity, process, size, set) < 0 ? -1 : 0;
}

int sigprocmask(int how, const sigset_t *restrict set, sigset_t *restrict before)
{
    const size_t size = 8; /* of the kernel's set, which is smaller than the C library's */
    return (int)syscall(SYS_rt_sigprocmask, how, set, before, size);
}

int pthread_sigmask(int how, const sigset_t *restrict set, sigset_t *restrict before) { return sigprocmask(how, set, before); }

int sigaddset(sigset_t *set, int signal)
{
    *(unsigned long *)set |= 1ul << (signal - 1);
    return 0;
}
