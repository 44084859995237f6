/* Sizes known at run time: from the shapes of the inputs to the shapes of the outputs. */
#ifndef CI_SIZES_H
#define CI_SIZES_H

#include "../api.h"

/* Fills in `sizes` from the inputs and checks every input's type, rank and dimensions against them. */
int ci_sizes_of(const ci_model *model, const ci_array *inputs, int64_t *sizes, ci_error *error);

/* Fills in type, rank and dims of the outputs; a dim is -1 where it follows from a size that is not among the first `known`. */
int ci_outputs_of(const ci_model *model, const int64_t *sizes, int32_t known, ci_array *outputs, ci_error *error);

/* Whether only the run tells a dimension. */
bool ci_is_late(const ci_array *output);

#endif
