#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cpu.h"
#include "error.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

/* The beginning of a small file as a string; false where it cannot be read. */
static bool read_text(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t count = read(file, text, size - 1);
    close(file);
    text[count > 0 ? count : 0] = 0;
    return count > 0;
}

/* The number at `*at`, which moves behind it; 0 where there is none: "max", and -1, mean no quota. */
static long long number(const char **at)
{
    long long value = 0;
    while (**at == ' ') ++*at;
    for (; **at >= '0' && **at <= '9' && value < LLONG_MAX / 10 - 1; ++*at) value = value * 10 + (**at - '0');
    return value;
}

static int whole_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return INT_MAX;
    long long cpus = (quota - 1) / period + 1;
    return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

/* The quota that one control group itself sets. */
static int group_cpus(const char *folder, bool unified)
{
    char path[PATH_MAX], text[64];
    const char *at = text;
    ci_text name = ci_text_in(path, sizeof path);
    ci_put(&name, "%s/%s", folder, unified ? "cpu.max" : "cpu.cfs_quota_us");
    if (!read_text(path, text, sizeof text)) return INT_MAX;
    long long quota = number(&at);
    if (unified) return whole_cpus(quota, number(&at));
    name = ci_text_in(path, sizeof path);
    ci_put(&name, "%s/cpu.cfs_period_us", folder);
    at = text;
    return read_text(path, text, sizeof text) ? whole_cpus(quota, number(&at)) : INT_MAX;
}

/* The tightest quota on the way from the group `path` up to the root of its hierarchy. Inside a container the path may be
   the host's and not exist; the root is the container's own group then. */
static int hierarchy_cpus(const char *mount, const char *path, bool unified)
{
    char folder[PATH_MAX];
    ci_text text = ci_text_in(folder, sizeof folder);
    ci_put(&text, "%s%s", mount, unified ? "" : "/cpu");
    char *root = text.at;
    ci_put(&text, "%s", path);
    int least = INT_MAX;
    for (;;) {
        int cpus = group_cpus(folder, unified);
        if (cpus < least) least = cpus;
        while (text.at > root && *text.at != '/') --text.at;
        if (text.at == root && *root != '/') return least;
        *text.at = 0;
    }
}

static bool lists_cpu(const char *controllers)
{
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        if (*at == ',') ++at;
        if (!strncmp(at, "cpu", 3) && (at[3] == ',' || !at[3])) return true;
    }
    return false;
}

int ci_cgroup_cpus(const char *membership, const char *mount)
{
    char text[4096];
    int least = INT_MAX;
    if (!read_text(membership, text, sizeof text)) return least;
    for (char *line = text, *next; line && *line; line = next) { /* "0::/path" or "4:cpu,cpuacct:/path" */
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        bool unified = !controllers[1];
        if (!unified && !lists_cpu(controllers + 1)) continue;
        int cpus = hierarchy_cpus(mount, path, unified);
        if (cpus < least) least = cpus;
    }
    return least;
}

static int affinity_cpus(void)
{
    unsigned long mask[128] = {0};
    int cpus = 0;
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask)) return 1;
    for (size_t i = 0; i < sizeof mask / sizeof *mask; ++i) cpus += __builtin_popcountl(mask[i]);
    return cpus > 0 ? cpus : 1;
}

int ci_usable_cpus(void)
{
    int cpus = affinity_cpus();
    int quota = cpus > 1 ? ci_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup") : cpus;
    return quota < cpus ? quota : cpus;
}
