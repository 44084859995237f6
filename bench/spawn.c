/* Starts a command many times and says what each run took: a line "wall_ns maxrss_kib status" a run.

   A program of its own because the measuring process must be tiny: Linux counts the memory that a process had before exec
   towards its child's peak, and starting a child from Python costs more than the child. Usage: spawn RUNS COMMAND… */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    char *empty[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    for (long run = atol(arguments[1]); run > 0; run--) {
        pid_t child;
        int status;
        struct rusage usage;
        long long start = now();
        if (posix_spawn(&child, arguments[2], &actions, NULL, arguments + 2, empty)) return 3;
        if (wait4(child, &status, 0, &usage) < 0) return 3;
        printf("%lld %ld %d\n", now() - start, usage.ru_maxrss, status);
    }
    return 0;
}
