/* JSON: inputs in, outputs out. */
#ifndef CASTIRON_EXE_JSON_H
#define CASTIRON_EXE_JSON_H

#include "arrays.h"

/* Reads one value: an object of inputs by name, or the array of the next input. index >= 0: the array of that input.
   `where` is the file and `line` the number of the text's first line, for messages. */
int ci_json_read(const char *text, size_t size, const char *where, int64_t line, ci_inputs *inputs, int index, ci_error *error);

void ci_json_write_string(ci_text *out, const char *text);
/* {"y": [[1.0, 2.0]]} and a newline. */
int ci_json_write(ci_text *out, const ci_model *model, const ci_array *outputs, ci_error *error);

#endif
