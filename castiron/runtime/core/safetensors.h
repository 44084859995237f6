/* A strict reader of the safetensors format (u64 length of a JSON header, the header, the data). */
#ifndef CI_SAFETENSORS_H
#define CI_SAFETENSORS_H

#include "../castiron.h"

/* Finds every weight of the model in `bytes` and points raw[i] at weight i. Each must be there once with its exact type
   and shape. Further tensors are refused, but for *.num_batches_tracked: the counters that PyTorch's batch norms keep
   for training and that no forward pass reads. `path` is for messages. */
int ci_safetensors_read(const ci_model *model, const char *path, const void *bytes, size_t size, const void **raw,
                        ci_error *error);

#endif
