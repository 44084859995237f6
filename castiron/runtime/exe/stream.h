/* --stream: a line of JSON in, a line of JSON out. */
#ifndef CASTIRON_EXE_STREAM_H
#define CASTIRON_EXE_STREAM_H

#include "arrays.h"

/* Answers every line of standard input. A line that cannot be answered gives {"error": "..."}, and in the end
   CI_BAD_INPUT. */
int ci_stream(ci_session *session, ci_inputs *inputs, ci_array *outputs, ci_out *out, ci_error *error);

#endif
