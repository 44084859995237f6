/* Starts a command many times and says what each run took: a line "wall_ns status peak_kib" a run, then, where MEMORY is 1,
   "peak_kib private_kib shared_kib" of one more run at its exit.

   A program of its own because starting a child from Python costs more than the child, and because a child inherits the peak
   memory of the process that forks it. The memory of the last run is read at its exit from its page tables (smaps_rollup):
   the counters that wait4 reports are kept in batches and show 0 for a process as small as an executable of castiron.
   Usage: spawn OUTPUT RUNS MEMORY COMMAND...   the children's standard output goes to OUTPUT, a run over the other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long line_of(pid_t child, const char *file, const char *title)
{
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

/* Runs the command once and prints KiB at its exit: resident (or the highest the kernel has counted, whichever is more),
   private to the process, shared with others. The last two are 0 where the kernel does not tell. */
static int memory(const char *output, char **command)
{
    pid_t child = fork();
    if (child == 0) {
        dup2(open(output, O_WRONLY | O_CREAT | O_TRUNC, 0644), 1);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execvp(command[0], command);
        _exit(127);
    }
    int status;
    long peak = 0, private = 0, shared = 0;
    waitpid(child, &status, 0);
    ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(long)PTRACE_O_TRACEEXIT);
    while (!WIFEXITED(status) && !WIFSIGNALED(status)) {
        if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8)) {
            long rolled = line_of(child, "smaps_rollup", "Rss:"), counted = line_of(child, "status", "VmHWM:");
            peak = rolled > counted ? rolled : counted;
            private = line_of(child, "smaps_rollup", "Private_Clean:") + line_of(child, "smaps_rollup", "Private_Dirty:");
            shared = line_of(child, "smaps_rollup", "Shared_Clean:") + line_of(child, "smaps_rollup", "Shared_Dirty:");
        }
        int signal = WIFSTOPPED(status) && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0;
        ptrace(PTRACE_CONT, child, NULL, (void *)(long)signal);
        if (waitpid(child, &status, 0) < 0) break;
    }
    printf("%ld %ld %ld\n", peak, private, shared);
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 5) return 2;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, arguments[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (long run = atol(arguments[2]); run > 0; run--) {
        pid_t child;
        int status;
        struct rusage used;
        long long start = now();
        int failed = posix_spawnp(&child, arguments[4], &actions, NULL, arguments + 4, environ);
        if (failed) {
            fprintf(stderr, "%s: %s\n", arguments[4], strerror(failed));
            return 3;
        }
        if (wait4(child, &status, 0, &used) < 0) return 3;
        printf("%lld %d %ld\n", now() - start, status, used.ru_maxrss);
    }
    return atol(arguments[3]) ? memory(arguments[1], arguments + 4) : 0;
}
