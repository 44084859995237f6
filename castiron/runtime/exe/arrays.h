/* The model's inputs, as files and text bring them. */
#ifndef CASTIRON_EXE_ARRAYS_H
#define CASTIRON_EXE_ARRAYS_H

#include "../api.h"
#include "../core/json_reader.h"
#include "../core/types.h"
#include "io.h"

size_t ci_io_bytes(int32_t type); /* of an element; 0 for types that text and files here do not hold */
bool ci_is_float(int32_t type);
bool ci_is_signed(int32_t type); /* an integer that can be negative */
int64_t ci_array_count(const ci_array *array);
uint16_t ci_bfloat16_of(uint32_t bits); /* of a float32, to the nearest, ties to even */

typedef struct ci_inputs {
    const ci_model *model;
    ci_array *arrays;
    char **memory; /* what the arrays' data lies in; NULL: this input is not given yet */
} ci_inputs;

int ci_inputs_new(ci_inputs *inputs, const ci_model *model, ci_error *error);
void ci_inputs_clear(ci_inputs *inputs); /* forgets the arrays given so far */
void ci_inputs_free(ci_inputs *inputs);

/* Number of the input of this name, which must not be given yet. `where` is the file, for messages. */
int ci_inputs_find(const ci_inputs *inputs, const char *name, size_t length, const char *where, int *index, ci_error *error);
/* Where an array without a name goes: `index` itself, or for -1 the first input that is not given yet. */
int ci_inputs_place(const ci_inputs *inputs, const char *where, int *index, ci_error *error);
/* Reads a file into input `index`; index -1: into the inputs it names, or the next one where it names none. */
int ci_inputs_read(ci_inputs *inputs, const char *path, int index, ci_error *error);
int ci_inputs_complete(const ci_inputs *inputs, ci_error *error);

#endif
