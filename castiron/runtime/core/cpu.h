/* Which instruction set to run, and how many threads. */
#ifndef CI_CPU_H
#define CI_CPU_H

#include "../castiron.h"

/* The best code of the model for this processor, or the one that the environment's CASTIRON_CPU names. */
int ci_pick_code(const ci_model *model, const ci_code **code, ci_error *error);

/* Processors this process may use: its affinity, and the processor quota of its control groups; at least 1. */
int ci_usable_cpus(void);

/* The quota alone, rounded up to whole processors; INT_MAX where there is none. `membership` has the form of
   /proc/self/cgroup, `mount` of /sys/fs/cgroup. */
int ci_cgroup_cpus(const char *membership, const char *mount);

#endif
