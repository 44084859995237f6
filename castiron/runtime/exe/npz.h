/* NumPy's .npz format: a zip of .npy files, stored or deflated, with or without zip64 records. */
#ifndef CASTIRON_EXE_NPZ_H
#define CASTIRON_EXE_NPZ_H

#include "arrays.h"

/* Reads every array into the input of its name; index >= 0: the only array, or the one of the input's name, into
   that. */
int ci_npz_read(const ci_bytes *file, const char *where, ci_inputs *inputs, int index, ci_error *error);
/* Writes the model's outputs, stored. */
int ci_npz_write(ci_text *out, const ci_model *model, const ci_array *outputs, ci_error *error);

#endif
