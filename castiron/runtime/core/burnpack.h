/* A strict reader of the burnpack format (10 bytes of header, CBOR that describes the tensors, the data). */
#ifndef CI_BURNPACK_H
#define CI_BURNPACK_H

#include "tensors.h"

bool ci_is_burnpack(const void *bytes, size_t size);

/* Finds every weight of the model in `bytes`; `tensors` says what for (model, raw, path, error). */
int ci_burnpack_read(ci_tensors tensors, const void *bytes, size_t size);

#endif
