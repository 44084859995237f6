#include "sizes.h"

#include "error.h"
#include "types.h"

#include <inttypes.h>

/* "input 'y': expected float32[batch,4] with batch = 3, got float32[5,4]". size -1: no size to tell the value of. */
static CI_COLD int fail_input(const ci_model *model, const ci_port *port, const ci_array *array, int32_t size, int64_t value,
                              ci_error *error)
{
    ci_text text = ci_message(error);
    ci_put(&text, "input '%s': expected %s", port->name, ci_type_name(port->type));
    ci_put_shape(&text, port->rank, port->dims, model->sizes);
    if (size >= 0) ci_put(&text, " with %s = %" PRId64, model->sizes[size].name, value);
    ci_put(&text, ", got %s", ci_type_name(array->type));
    if (array->rank < 0 || array->rank > CI_MAX_RANK) ci_put(&text, " of rank %d", array->rank);
    else ci_put_shape(&text, array->rank, array->dims, NULL);
    return CI_BAD_INPUT;
}

static int check_kinds(const ci_model *model, const ci_array *inputs, ci_error *error)
{
    for (int32_t i = 0; i < model->input_count; ++i) {
        const ci_port *port = &model->inputs[i];
        if (inputs[i].type != port->type || inputs[i].rank != port->rank)
            return fail_input(model, port, &inputs[i], -1, 0, error);
        if (ci_array_bytes(inputs[i].type, inputs[i].rank, inputs[i].dims) < 0)
            return ci_fail(error, CI_BAD_INPUT, "input '%s': its dimensions are negative or too large to exist", port->name);
    }
    return CI_OK;
}

static int check_dims(const ci_model *model, const ci_array *inputs, const int64_t *sizes, ci_error *error)
{
    for (int32_t i = 0; i < model->input_count; ++i) {
        const ci_port *port = &model->inputs[i];
        for (int32_t d = 0; d < port->rank; ++d) {
            int32_t size = port->dims[d] < 0 ? (int32_t)(-1 - port->dims[d]) : -1;
            int64_t expected = size < 0 ? port->dims[d] : sizes[size];
            if (inputs[i].dims[d] != expected) return fail_input(model, port, &inputs[i], size, expected, error);
        }
    }
    return CI_OK;
}

int ci_sizes_of(const ci_model *model, const ci_array *inputs, int64_t *sizes, ci_error *error)
{
    int status = check_kinds(model, inputs, error);
    if (status) return status;
    for (int32_t k = 0; k < model->size_count; ++k) {
        const ci_size *size = &model->sizes[k];
        sizes[k] = size->input < 0 ? 0 : inputs[size->input].dims[size->dim];
    }
    const double most = 0x1p62; /* an integer beyond is no size of any memory */
    if (model->largest && !(model->largest(sizes) < most))
        return ci_fail(error, CI_NO_MEMORY, "these input shapes make model '%s' larger than any memory", model->name);
    if (model->derive) model->derive(sizes);
    status = check_dims(model, inputs, sizes, error);
    const char *misfit = status || !model->misfit ? NULL : model->misfit(sizes);
    return misfit ? ci_fail(error, CI_BAD_INPUT, "these input shapes do not fit the model: %s", misfit) : status;
}

bool ci_is_late(const ci_array *output)
{
    for (int32_t d = 0; d < output->rank; ++d)
        if (output->dims[d] < 0) return true;
    return false;
}

int ci_outputs_of(const ci_model *model, const int64_t *sizes, int32_t known, ci_array *outputs, ci_error *error)
{
    for (int32_t i = 0; i < model->output_count; ++i) {
        const ci_port *port = &model->outputs[i];
        outputs[i].type = port->type;
        outputs[i].rank = port->rank;
        for (int32_t d = 0; d < port->rank; ++d)
            outputs[i].dims[d] = port->dims[d] >= 0 ? port->dims[d] : -1 - port->dims[d] < known ? sizes[-1 - port->dims[d]] : -1;
        if (known < model->size_count && ci_is_late(&outputs[i])) continue;
        if (ci_array_bytes(port->type, port->rank, outputs[i].dims) >= 0) continue;
        ci_text text = ci_message(error);
        ci_put(&text, "these input shapes would give output '%s' the impossible shape ", port->name);
        ci_put_shape(&text, port->rank, outputs[i].dims, NULL);
        return CI_BAD_INPUT;
    }
    return CI_OK;
}
