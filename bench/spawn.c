/* Starts a command many times and says what each run took: a line "wall_ns status" a run, then "peak_kib" of one more run.

   A program of its own because starting a child from Python costs more than the child. The memory of the last run is read at
   its exit from its page tables (smaps_rollup): the counters that wait4 reports are kept in batches and show 0 for a process
   as small as these. Usage: spawn RUNS COMMAND... */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *const empty[] = {NULL};

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long line_of(pid_t child, const char *file, const char *title) {
    char path[64], line[256];
    long value = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", (int)child, file);
    FILE *stream = fopen(path, "r");
    if (!stream) return 0;
    while (fgets(line, sizeof line, stream))
        if (!strncmp(line, title, strlen(title))) value = atol(line + strlen(title));
    fclose(stream);
    return value;
}

/* KiB resident at exit, or the highest the kernel has counted, whichever is more. */
static long peak(char **command) {
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), 1);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execve(command[0], command, empty);
        _exit(127);
    }
    int status;
    long most = 0;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(long)PTRACE_O_TRACEEXIT);
    while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) {
            long rolled = line_of(child, "smaps_rollup", "Rss:"), counted = line_of(child, "status", "VmHWM:");
            most = rolled > counted ? rolled : counted;
        }
        int signal = WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
        ptrace(PTRACE_CONT, child, NULL, (void *)(long)signal);
        if (waitpid(child, &status, 0) < 0) break;
    }
    return most;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    for (long run = atol(arguments[1]); run > 0; run--) {
        pid_t child;
        int status;
        long long start = now();
        if (posix_spawn(&child, arguments[2], &actions, NULL, arguments + 2, empty)) return 3;
        if (waitpid(child, &status, 0) < 0) return 3;
        printf("%lld %d\n", now() - start, status);
    }
    printf("%ld\n", peak(arguments + 2));
    return 0;
}
