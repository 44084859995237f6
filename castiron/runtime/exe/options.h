/* The command line. */
#ifndef CASTIRON_EXE_OPTIONS_H
#define CASTIRON_EXE_OPTIONS_H

#include "io.h"

/* An input file; `name` is NULL for one that stands alone. */
typedef struct ci_given {
    const char *name, *path;
    size_t name_length;
} ci_given;

typedef struct ci_options {
    const char *weights, *save_weights, *output;
    int64_t threads, repeat;
    bool stream, profile, info, selftest, version, help;
    ci_given *given;
    int given_count;
} ci_options;

int ci_options_parse(ci_options *options, int count, char **arguments, ci_error *error);
void ci_options_help(ci_text *out, const ci_model *model);

#endif
