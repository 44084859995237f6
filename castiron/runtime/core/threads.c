#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "threads.h"

#include "cpu.h"
#include "memory.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    PART_CYCLES = 40000,  /* work below which a further thread costs more than it gives */
    SPINS = 2000,         /* rounds of waiting awake, tens of microseconds: steps follow each other closely */
    STACK_BYTES = 1 << 20,
    MOST_THREADS = 1024
};

/* A number that one thread waits for and another sets. */
typedef struct gate {
    _Alignas(64) atomic_uint value;
    atomic_bool asleep;
} gate;

typedef struct worker {
    gate start, finish; /* numbers of the last job begun and ended */
    unsigned jobs;      /* given to it so far; the caller's */
    int number;
    ci_pool *pool;
    pthread_t thread;
} worker;

struct ci_pool {
    int threads;        /* as asked for */
    int running;        /* workers beside the caller; -1: not started yet */
    pid_t process;      /* whose threads the workers are */
    bool busy, stop;
    worker *workers;    /* in `memory` */
    ci_block memory;
    const ci_run *run;  /* the job at hand */
    ci_range *range;
    const void *argument;
    int64_t count;
    int parts;
};

static void pause_spin(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb");
#endif
}

static void futex(gate *g, int operation, unsigned argument)
{
    syscall(SYS_futex, &g->value, operation, argument, NULL, NULL, 0);
}

/* Either the waiter sees the new value or the setter sees it asleep: both store first and then load, in one total order. */
static void gate_set(gate *g, unsigned value)
{
    atomic_store(&g->value, value);
    if (atomic_load(&g->asleep)) futex(g, FUTEX_WAKE_PRIVATE, 1);
}

static void gate_wait(gate *g, unsigned value)
{
    for (int spin = 0; spin < SPINS; ++spin) {
        if (atomic_load_explicit(&g->value, memory_order_acquire) == value) return;
        pause_spin();
    }
    atomic_store(&g->asleep, true);
    for (unsigned found; (found = atomic_load(&g->value)) != value;) futex(g, FUTEX_WAIT_PRIVATE, found);
    atomic_store(&g->asleep, false);
}

static void run_part(const ci_pool *pool, int part)
{
    int64_t each = pool->count / pool->parts, rest = pool->count % pool->parts;
    int64_t begin = each * part + (part < rest ? part : rest);
    pool->range(pool->run, pool->argument, begin, begin + each + (part < rest));
}

static void *work(void *argument)
{
    worker *self = argument;
    for (unsigned job = 1;; ++job) {
        gate_wait(&self->start, job);
        if (self->pool->stop) return NULL;
        run_part(self->pool, self->number);
        gate_set(&self->finish, job);
    }
}

ci_pool *ci_pool_new(int threads)
{
    ci_pool *pool = calloc(1, sizeof *pool);
    if (pool) {
        pool->threads = threads;
        pool->running = -1;
    }
    return pool;
}

/* Starts as many workers as it can; having fewer, or none, is no error. Signals stay with the threads of the caller. */
static void start(ci_pool *pool)
{
    int threads = pool->threads ? pool->threads : ci_usable_cpus();
    size_t most = threads < MOST_THREADS ? (size_t)threads - 1 : MOST_THREADS - 1;
    pool->running = 0;
    pool->process = getpid();
    ci_block_free(&pool->memory); /* after a fork: what the parent's workers wrote */
    if (!most || !ci_block_grow(&pool->memory, (int64_t)(most * sizeof(worker)))) return;
    pool->workers = (worker *)pool->memory.data;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (size_t i = 0; i < most; ++i) {
        worker *w = &pool->workers[i];
        w->pool = pool;
        w->number = (int)i + 1;
        if (pthread_create(&w->thread, &attributes, work, w)) break;
        ++pool->running;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* A child of fork has the memory of the pool but none of its threads. */
static bool is_ours(const ci_pool *pool) { return pool->running >= 0 && pool->process == getpid(); }

void ci_pool_free(ci_pool *pool)
{
    if (!pool) return;
    if (is_ours(pool)) {
        pool->stop = true;
        for (int i = 0; i < pool->running; ++i) gate_set(&pool->workers[i].start, pool->workers[i].jobs + 1);
        for (int i = 0; i < pool->running; ++i) pthread_join(pool->workers[i].thread, NULL);
    }
    ci_block_free(&pool->memory);
    free(pool);
}

/* Into how many parts a job is worth being split. */
static int parts_of(ci_pool *pool, int64_t count, int64_t work)
{
    if (!pool || pool->busy || pool->threads == 1 || count < 2) return 1;
    if (work < 1) work = 1;
    int64_t worth = count > INT64_MAX / work ? INT64_MAX : count * work / PART_CYCLES;
    if (worth < 2) return 1;
    if (!is_ours(pool)) start(pool);
    int64_t parts = pool->running + 1;
    if (parts > worth) parts = worth;
    return (int)(parts < count ? parts : count);
}

void ci_parallel(const ci_run *run, ci_range *range, const void *argument, int64_t count, int64_t work)
{
    ci_pool *pool = run->pool;
    if (count <= 0) return;
    int parts = parts_of(pool, count, work);
    if (parts == 1) {
        range(run, argument, 0, count);
        return;
    }
    pool->run = run;
    pool->range = range;
    pool->argument = argument;
    pool->count = count;
    pool->parts = parts;
    pool->busy = true; /* a range that calls ci_parallel itself does that work alone */
    for (int i = 0; i < parts - 1; ++i) gate_set(&pool->workers[i].start, ++pool->workers[i].jobs);
    run_part(pool, 0);
    for (int i = 0; i < parts - 1; ++i) gate_wait(&pool->workers[i].finish, pool->workers[i].jobs);
    pool->busy = false;
}
