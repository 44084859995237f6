/* Running the steps of prepare or forward. */
#ifndef CI_STEPS_H
#define CI_STEPS_H

#include "../castiron.h"

int64_t ci_now_ns(void);

/* Runs the steps in order and stops behind one that met an index out of bounds: then gives `status` and says so.
   `ns`, where it is not NULL, is increased by the time each step takes. Sets run->fault for the time of the call. */
int ci_run_steps(ci_run *run, const ci_step *steps, int32_t count, int64_t *ns, int status, ci_error *error);

#endif
