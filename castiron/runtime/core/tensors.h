/* Raw weights: what the readers of files of named tensors have in common. Each finds the tensors in its header and adds
   them here, where they meet the weights of the model. */
#ifndef CI_TENSORS_H
#define CI_TENSORS_H

#include "../castiron.h"
#include "json_reader.h"

typedef struct ci_span {
    int64_t begin, end;
} ci_span;

/* A tensor as a header describes it. */
typedef struct ci_tensor {
    ci_slice name, type;  /* type: as ci_type_code calls it */
    int32_t rank;
    int64_t dims[CI_MAX_RANK];
    ci_span bytes;        /* of the data */
} ci_tensor;

typedef struct ci_tensors {
    const ci_model *model;
    const char *path;     /* for messages */
    ci_error *error;
    bool (*is)(ci_slice name, const char *text); /* how the file spells names and types */
    const char *data;
    int64_t data_size, align; /* a tensor begins where the one before it ends, or at the next multiple of `align` */
    const void **raw;     /* raw[i]: where weight i of the model is */
    ci_span *spans;       /* of all tensors so far */
    int64_t count;
    ci_slice extra;       /* the first tensor that is no weight of the model, and how many there are */
    int64_t extra_count;
    int32_t next;         /* weight whose name is compared first */
} ci_tensors;

/* Room for `most` tensors. */
int ci_tensors_begin(ci_tensors *tensors, size_t most);

/* The keys that describe a tensor, and which of them `text` is; CI_KEYS: none. */
enum { CI_TYPE_KEY, CI_SHAPE_KEY, CI_OFFSETS_KEY, CI_KEYS };
int ci_tensor_key(const ci_tensors *tensors, ci_slice text);

/* Takes in one tensor, of which these keys (bits) were there. A weight must be there once, with its exact type and shape. */
int ci_tensors_add(ci_tensors *tensors, const ci_tensor *tensor, unsigned keys);

/* After the last one, or after a failure, of which `status` tells: every weight must have been there, and the tensors must
   cover the data without overlap. Further tensors are refused, but for *.num_batches_tracked: the counters that PyTorch's
   batch norms keep for training and that no forward pass reads. */
int ci_tensors_end(ci_tensors *tensors, int status);

/* "tensor 'NAME' ..." in a message on the file; gives CI_BAD_WEIGHTS. */
int ci_tensor_fail(const ci_tensors *tensors, ci_slice name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What was expected at a byte of a file of some `kind`, within its header. */
int ci_header_fail(const ci_tensors *tensors, const char *kind, const char *expected, int64_t byte);

#endif
