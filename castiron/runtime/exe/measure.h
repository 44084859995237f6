/* --repeat and --profile. */
#ifndef CASTIRON_EXE_MEASURE_H
#define CASTIRON_EXE_MEASURE_H

#include "../api.h"
#include "io.h"

/* Runs `count` times and prints the times. Outputs are those of the last run. */
int ci_repeat(ci_session *session, const ci_model *model, const ci_array *inputs, ci_array *outputs, int64_t count, ci_text *out,
              ci_error *error);
/* A row a step, in the order they run. */
void ci_profile(const ci_session *session, int64_t runs, ci_text *out);

#endif
