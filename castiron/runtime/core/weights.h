/* Loaded weights, for the other files of the core. */
#ifndef CI_WEIGHTS_H
#define CI_WEIGHTS_H

#include "../api.h"
#include "memory.h"

#include <stdatomic.h>

#define CI_PACKED_MAGIC "CASTIRON"
enum { CI_PACKED_VERSION = 1, CI_PACKED_HEADER = 128 };

/* The header of a packed weights file, little-endian. */
typedef struct ci_packed_header {
    char magic[8];
    uint32_t version, header_bytes;
    char hash[64];
    uint64_t packed_bytes;
    char zeros[40];
} ci_packed_header;

struct ci_weights {
    const ci_model *model;
    const ci_code *code;
    const char *packed; /* what forward reads; where it lies: in the executable, the caller's memory, or `memory` */
    ci_block memory;    /* a mapped packed file, or what prepare has written */
    atomic_int owners;  /* the caller and the sessions: whoever leaves last frees */
};

void ci_weights_share(ci_weights *weights);

/* Runs `prepare` over raw weights (one pointer for each of model->weights) into memory of `weights`. */
int ci_prepare(ci_weights *weights, const void *const *raw, ci_error *error);

#endif
