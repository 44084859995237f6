/* Threads for static executables, in place of the C library's: these can only be joined, and are a tenth of their size.
   Workers call no function of the C library but syscall. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "thread_area.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    STACK_BYTES = 1 << 17, /* as the C library's */
    GUARD_BYTES = 1 << 16, /* a page of any machine */
    FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
        CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID
};

/* At the upper end of a thread's pages; its stack grows down from here to the guard, whose touch ends the process. */
typedef struct thread {
    ci_thread_area area;
    atomic_int id; /* the kernel makes it 0 at the end of the thread, and wakes who waits for that */
    size_t size;
    void *(*function)(void *);
    void *argument, *result;
} thread;

/* What the C library's clone calls; gives the thread's id, or an error's number below 0. */
int __clone(int (*function)(void *), void *stack, int flags, void *argument, void *id, void *self, void *cleared);

static int run(void *argument)
{
    thread *t = argument;
    t->result = t->function(t->argument);
    return 0;
}

int pthread_create(pthread_t *created, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    size_t size = GUARD_BYTES + (attributes ? *(const size_t *)attributes : STACK_BYTES);
    char *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return EAGAIN;
    thread *t = (thread *)(pages + size) - 1;
    t->area.self = &t->area.self;
    t->size = size;
    t->function = function;
    t->argument = argument;
    *created = (pthread_t)t;
    int id = (int)syscall(SYS_mprotect, pages, GUARD_BYTES, PROT_NONE); /* the C library's rounds to the largest pages */
    if (!id) id = __clone(run, t, FLAGS, t, &t->id, t->area.self, &t->id);
    if (id > 0) return 0;
    munmap(pages, size);
    return EAGAIN;
}

int pthread_join(pthread_t joined, void **result)
{
    thread *t = (thread *)joined;
    for (int id; (id = atomic_load(&t->id));) syscall(SYS_futex, &t->id, FUTEX_WAIT, id, NULL);
    if (result) *result = t->result;
    return munmap((char *)(t + 1) - t->size, t->size);
}

int pthread_attr_init(pthread_attr_t *attributes) { return pthread_attr_setstacksize(attributes, STACK_BYTES); }

int pthread_attr_setstacksize(pthread_attr_t *attributes, size_t size)
{
    *(size_t *)attributes = size; /* all there is to choose */
    return 0;
}

int pthread_attr_destroy(pthread_attr_t *attributes)
{
    (void)attributes;
    return 0;
}
