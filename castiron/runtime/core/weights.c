#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "weights.h"

#include "burnpack.h"
#include "cpu.h"
#include "error.h"
#include "safetensors.h"
#include "steps.h"
#include "types.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static CI_COLD int no_memory(ci_error *error, const char *what, int64_t bytes)
{
    return ci_fail(error, CI_NO_MEMORY, "no memory for %s: %" PRId64 " bytes needed", what, bytes);
}

/* raw[i] as a pointer that may be read as its element type: files of tensors promise no alignment. */
static int align_raw(const ci_model *model, const void **raw, ci_block *copies, ci_error *error)
{
    int64_t bytes = 0;
    for (int32_t pass = 0; pass < 2; ++pass) { /* count, then copy */
        char *out = copies->data;
        for (int32_t i = 0; i < model->weight_count; ++i) {
            const ci_port *weight = &model->weights[i];
            if ((uintptr_t)raw[i] % (uintptr_t)ci_type_bytes(weight->type) == 0) continue;
            int64_t size = ci_array_bytes(weight->type, weight->rank, weight->dims);
            if (pass) {
                memcpy(out, raw[i], (size_t)size);
                raw[i] = out;
                out += (size + 7) & -8;
            } else {
                bytes += (size + 7) & -8;
            }
        }
        if (!pass && !ci_block_grow(copies, bytes)) return no_memory(error, "the raw weights", bytes);
    }
    return CI_OK;
}

int ci_prepare(ci_weights *weights, const void *const *raw, ci_error *error)
{
    const ci_model *model = weights->model;
    ci_block arena = {0};
    if (!ci_block_grow(&weights->memory, model->packed_bytes)) return no_memory(error, "the weights", model->packed_bytes);
    if (!ci_block_grow(&arena, model->prepare_arena)) return no_memory(error, "preparing the weights", model->prepare_arena);
    ci_run run = {.arena = arena.data, .inputs = raw, .constants = model->constants, .packed = weights->memory.data};
    int status = ci_run_steps(&run, weights->code->prepare, weights->code->prepare_count, NULL, CI_BAD_WEIGHTS, error);
    ci_block_free(&arena);
    ci_block_seal(&weights->memory);
    weights->packed = weights->memory.data;
    return status;
}

static int load_raw(ci_weights *weights, const char *path, const void *bytes, size_t size, ci_error *error)
{
    const ci_model *model = weights->model;
    const void **raw = calloc((size_t)model->weight_count + 1, sizeof *raw);
    if (!raw) return no_memory(error, "the list of weights", (int64_t)sizeof *raw * model->weight_count);
    ci_block copies = {0};
    ci_tensors tensors = {.model = model, .raw = raw, .path = path, .error = error};
    int status = ci_is_burnpack(bytes, size) ? ci_burnpack_read(tensors, bytes, size) : ci_safetensors_read(tensors, bytes, size);
    if (!status && model->packed_bytes) status = align_raw(model, raw, &copies, error);
    if (!status && model->packed_bytes) status = ci_prepare(weights, raw, error);
    ci_block_free(&copies);
    free(raw);
    return status;
}

static int check_packed(const ci_model *model, const char *path, const void *bytes, size_t size, ci_error *error)
{
    const int shown = 12;
    ci_packed_header header;
    if (size < sizeof header)
        return ci_weights_fail(error, path, "is cut off: %lld bytes, expected %lld", (long long)size,
                               (long long)model->packed_bytes + CI_PACKED_HEADER);
    memcpy(&header, bytes, sizeof header);
    if (header.version != CI_PACKED_VERSION || header.header_bytes != CI_PACKED_HEADER)
        return ci_weights_fail(error, path, "is packed in format %lld, expected format %d: pack the weights again",
                               (long long)header.version, CI_PACKED_VERSION);
    if (memcmp(header.hash, model->hash, sizeof header.hash))
        return ci_weights_fail(error, path, "is of another model: its hash is %.*s..., model '%s' has %.*s...", shown,
                               header.hash, model->name, shown, model->hash);
    if (header.packed_bytes != (uint64_t)model->packed_bytes || size - sizeof header != (uint64_t)model->packed_bytes)
        return ci_weights_fail(error, path, "has %lld bytes, expected %lld: it is cut off or damaged", (long long)size,
                               (long long)model->packed_bytes + CI_PACKED_HEADER);
    return CI_OK;
}

static bool is_packed(const void *bytes, size_t size) { return size >= 8 && !memcmp(bytes, CI_PACKED_MAGIC, 8); }

static int load_bytes(ci_weights *weights, const void *bytes, size_t size, ci_error *error)
{
    if (!bytes || !size) return ci_weights_fail(error, NULL, "there are none (0 bytes)");
    if (!is_packed(bytes, size)) return load_raw(weights, NULL, bytes, size, error);
    int status = check_packed(weights->model, NULL, bytes, size, error);
    if (status) return status;
    if ((uintptr_t)bytes % CI_ALIGN) return ci_weights_fail(error, NULL, "packed bytes must be aligned to %d", CI_ALIGN);
    weights->packed = (const char *)bytes + CI_PACKED_HEADER;
    return CI_OK;
}

static int load_file(ci_weights *weights, const char *path, ci_error *error)
{
    ci_block file = {0};
    int status = ci_file_map(path, &file, error);
    if (status) return status;
    if (is_packed(file.data, file.size)) {
        status = check_packed(weights->model, path, file.data, file.size, error);
        weights->memory = file;
        weights->packed = file.data + CI_PACKED_HEADER;
        return status;
    }
    status = load_raw(weights, path, file.data, file.size, error);
    ci_block_free(&file);
    return status;
}

/* From where the model says: inside, or a file beside this executable or library. Never the current folder. */
static int load_default(ci_weights *weights, ci_error *error)
{
    const ci_model *model = weights->model;
    weights->packed = model->packed;
    if (model->packed || !model->packed_bytes) return CI_OK;
    if (!model->weights_file)
        return ci_fail(error, CI_BAD_WEIGHTS, "model '%s' carries no weights: give it a weights file", model->name);
    char path[PATH_MAX];
    if (!ci_own_folder(path, sizeof path))
        return ci_fail(error, CI_BAD_WEIGHTS, "the folder of this program is not known, where '%s' should be: give its path",
                       model->weights_file);
    size_t folder = strlen(path), name = strlen(model->weights_file);
    if (folder + name >= sizeof path) return ci_weights_fail(error, model->weights_file, "its path is too long");
    memcpy(path + folder, model->weights_file, name + 1);
    if (access(path, F_OK))
        return ci_weights_fail(error, path, "is not there: copy it beside this program, or give another by its path");
    return load_file(weights, path, error);
}

static ci_weights *new_weights(const ci_model *model, int *status, ci_error *error)
{
    ci_weights *weights = calloc(1, sizeof *weights);
    if (!weights) {
        *status = no_memory(error, "the weights", sizeof *weights);
        return NULL;
    }
    weights->model = model;
    atomic_init(&weights->owners, 1);
    *status = ci_pick_code(model, &weights->code, error);
    return weights;
}

/* Hands over what has been loaded, or nothing. */
static int finish(ci_weights *loaded, int status, ci_weights **weights)
{
    if (status) ci_weights_free(loaded);
    *weights = status ? NULL : loaded;
    return status;
}

int ci_load(const ci_model *model, const char *path, ci_weights **weights, ci_error *error)
{
    int status;
    ci_weights *loaded = new_weights(model, &status, error);
    if (!status) status = path ? load_file(loaded, path, error) : load_default(loaded, error);
    return finish(loaded, status, weights);
}

int ci_load_bytes(const ci_model *model, const void *bytes, size_t size, ci_weights **weights, ci_error *error)
{
    int status;
    ci_weights *loaded = new_weights(model, &status, error);
    if (!status) status = load_bytes(loaded, bytes, size, error);
    return finish(loaded, status, weights);
}

void ci_weights_share(ci_weights *weights) { atomic_fetch_add(&weights->owners, 1); }

void ci_weights_free(ci_weights *weights)
{
    if (!weights || atomic_fetch_sub(&weights->owners, 1) > 1) return;
    ci_block_free(&weights->memory);
    free(weights);
}

const ci_model *ci_weights_model(const ci_weights *weights) { return weights->model; }
