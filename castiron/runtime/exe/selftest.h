/* The self-test: inputs and outputs recorded when the model was built (docs/architecture.md has the format). */
#ifndef CASTIRON_EXE_SELFTEST_H
#define CASTIRON_EXE_SELFTEST_H

#include "../api.h"
#include "io.h"

/* Runs the recorded inputs and prints a line for each output. Gives CI_MISMATCH, with a message, where they differ. */
int ci_selftest(const ci_model *model, ci_session *session, ci_text *out, ci_error *error);

#endif
