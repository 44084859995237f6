/* A strict reader of the safetensors format (u64 length of a JSON header, the header, the data). */
#ifndef CI_SAFETENSORS_H
#define CI_SAFETENSORS_H

#include "tensors.h"

/* Finds every weight of the model in `bytes`; `tensors` says what for (model, raw, path, error). */
int ci_safetensors_read(ci_tensors tensors, const void *bytes, size_t size);

#endif
