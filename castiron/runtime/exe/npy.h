/* NumPy's .npy format, versions 1.0 to 3.0. */
#ifndef CASTIRON_EXE_NPY_H
#define CASTIRON_EXE_NPY_H

#include "arrays.h"

/* Turns `bytes`, a whole .npy, into the input of this index (-1: the next one) and takes over their memory: row-major, of the byte order of
   the machine, aligned. `where` is the file, for messages. */
int ci_npy_input(ci_bytes *bytes, const char *where, ci_inputs *inputs, int index, ci_error *error);

enum { CI_NPY_HEADER = 640 };
size_t ci_npy_header(char *header, const ci_array *array);
/* Writes the elements as the header says. Also the CRC-32 where `crc` is not NULL, and nothing else where `out` is. */
int ci_npy_data(ci_text *out, const ci_array *array, uint32_t *crc, ci_error *error);
int64_t ci_npy_bytes(const ci_array *array);

#endif
