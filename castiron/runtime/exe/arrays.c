#include "arrays.h"

#include "json.h"
#include "npy.h"
#include "npz.h"

#include <stdlib.h>
#include <string.h>

size_t ci_io_bytes(int32_t type) { return *ci_type_code(type) ? (size_t)ci_type_bytes(type) : 0; }

bool ci_is_float(int32_t type) { return type == CI_FLOAT || type == CI_DOUBLE || type == CI_FLOAT16 || type == CI_BFLOAT16; }

bool ci_is_signed(int32_t type) { return type == CI_INT8 || type == CI_INT16 || type == CI_INT32 || type == CI_INT64; }

int64_t ci_array_count(const ci_array *array)
{
    int64_t count = 1;
    for (int i = 0; i < array->rank; i++)
        if (array->dims[i] == 0) return 0;
    for (int i = 0; i < array->rank; i++) count *= array->dims[i];
    return count;
}

/* Inputs ----------------------------------------------------------------------------------------------------------- */

int ci_inputs_new(ci_inputs *inputs, const ci_model *model, ci_error *error)
{
    size_t count = (size_t)model->input_count + 1;
    inputs->model = model;
    inputs->arrays = calloc(count, sizeof *inputs->arrays);
    inputs->memory = calloc(count, sizeof *inputs->memory);
    if (inputs->arrays && inputs->memory) return CI_OK;
    return ci_no_memory(error, (int64_t)(count * sizeof *inputs->arrays));
}

void ci_inputs_clear(ci_inputs *inputs)
{
    for (int32_t i = 0; i < inputs->model->input_count; i++) {
        free(inputs->memory[i]);
        inputs->memory[i] = NULL;
    }
}

void ci_inputs_free(ci_inputs *inputs)
{
    if (inputs->memory) ci_inputs_clear(inputs);
    free(inputs->memory);
    free(inputs->arrays);
}

int ci_inputs_find(const ci_inputs *inputs, const char *name, size_t length, const char *where, int *index, ci_error *error)
{
    const ci_model *model = inputs->model;
    for (*index = 0; *index < model->input_count; ++*index) {
        const char *input = model->inputs[*index].name;
        if (!ci_same(name, length, input)) continue;
        if (!inputs->memory[*index]) return CI_OK;
        return ci_refuse(error, "%s: input '%s' is given twice", where, input);
    }
    ci_text text = ci_message(error);
    ci_put(&text, "%s: the model has no input '%.*s'; its inputs: ", where, (int)length, name);
    for (int32_t i = 0; i < model->input_count; i++) ci_put(&text, i ? ", %s" : "%s", model->inputs[i].name);
    return CI_BAD_INPUT;
}

static int next_input(const ci_inputs *inputs)
{
    for (int32_t i = 0; i < inputs->model->input_count; i++)
        if (!inputs->memory[i]) return i;
    return -1;
}

int ci_inputs_place(const ci_inputs *inputs, const char *where, int *index, ci_error *error)
{
    if (*index < 0) *index = next_input(inputs);
    if (*index >= 0) return CI_OK;
    return ci_refuse(error, "%s: one array too many, the model takes %d", where, inputs->model->input_count);
}

int ci_inputs_complete(const ci_inputs *inputs, ci_error *error)
{
    int index = next_input(inputs);
    if (index < 0) return CI_OK;
    const char *name = inputs->model->inputs[index].name;
    return ci_refuse(error, "input '%s' is missing: give it with --input %s=FILE or by name in JSON or .npz", name, name);
}

/* Files ------------------------------------------------------------------------------------------------------------ */

static bool begins(const ci_bytes *bytes, const char *signature, size_t length)
{
    return bytes->size >= length && !memcmp(bytes->data, signature, length);
}

int ci_inputs_read(ci_inputs *inputs, const char *path, int index, ci_error *error)
{
    ci_bytes bytes = {0};
    const char *where = strcmp(path, "-") ? path : "standard input";
    int status = ci_read_all(path, &bytes, error);
    bool npy = !status && begins(&bytes, "\x93NUMPY", 6);
    bool npz = !status && (begins(&bytes, "PK\3\4", 4) || begins(&bytes, "PK\5\6", 4) || begins(&bytes, "PK\6\6", 4));
    if (!status) {
        if (ci_ends(path, ".npy") && !npy) status = ci_refuse(error, "%s: not a .npy file, or cut off", path);
        else if (ci_ends(path, ".npz") && !npz) status = ci_refuse(error, "%s: not a .npz file, or cut off", path);
        else if (npy) status = ci_npy_input(&bytes, where, inputs, index, error);
        else if (npz) status = ci_npz_read(&bytes, where, inputs, index, error);
        else status = ci_json_read(bytes.data, bytes.size, where, 1, inputs, index, error);
    }
    free(bytes.data);
    return status;
}
