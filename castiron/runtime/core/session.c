#include "error.h"
#include "memory.h"
#include "sizes.h"
#include "steps.h"
#include "threads.h"
#include "types.h"
#include "weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ci_session {
    ci_weights *weights;
    const ci_model *model;
    ci_pool *pool;           /* NULL: one thread */
    bool planned, profiled;
    int64_t arena_bytes;     /* of the plan for `sizes` */
    ci_block arena;
    ci_block blank;          /* zeros, read in the place of inputs without elements: a refused index reads element 0 */
    ci_block *results;       /* memory of outputs that the caller left to the session */
    ci_block *arenas, *states; /* as in ci_run */
    const void **inputs;
    void **outputs;
    int64_t *sizes, *fresh;  /* those planned for, and those of the inputs at hand */
    int64_t *offsets;
    int64_t *ns;             /* time in each forward step */
};

static CI_COLD int no_memory(ci_error *error, const char *what, const char *name, int64_t bytes)
{
    return ci_fail(error, CI_NO_MEMORY, "no memory for %s%s: %" PRId64 " bytes needed", what, name, bytes);
}

/* The session and its lists, in one piece. */
static ci_session *new_session(const ci_model *model, const ci_code *code)
{
    size_t inputs = (size_t)model->input_count, outputs = (size_t)model->output_count, sizes = (size_t)model->size_count;
    size_t offsets = (size_t)model->offset_count, steps = (size_t)code->forward_count;
    size_t stages = (size_t)model->stage_count, states = (size_t)model->state_count;
    ci_session *s = calloc(1, sizeof *s + outputs * (sizeof(ci_block) + sizeof(void *)) + inputs * sizeof(void *) +
                                  (stages + states) * sizeof(ci_block) + (2 * sizes + offsets + steps) * sizeof(int64_t));
    if (!s) return NULL;
    s->model = model;
    s->sizes = (int64_t *)(s + 1);
    s->fresh = s->sizes + sizes;
    s->offsets = s->fresh + sizes;
    s->ns = s->offsets + offsets;
    s->results = (ci_block *)(s->ns + steps);
    s->arenas = s->results + outputs;
    s->states = s->arenas + stages;
    s->outputs = (void **)(s->states + states);
    s->inputs = (const void **)(s->outputs + outputs);
    return s;
}

int ci_session_new(const ci_weights *weights, int threads, ci_session **session, ci_error *error)
{
    *session = NULL;
    if (threads < 0) return ci_fail(error, CI_BAD_INPUT, "threads: expected 0 (as many as there are) or more, got %d", threads);
    ci_session *s = new_session(weights->model, weights->code);
    ci_pool *pool = s && threads != 1 ? ci_pool_new(threads) : NULL;
    if (!s || (threads != 1 && !pool)) {
        free(s);
        return ci_fail(error, CI_NO_MEMORY, "no memory for a session of model '%s'", weights->model->name);
    }
    s->pool = pool;
    s->weights = (ci_weights *)weights; /* what they hold is constant, the count of their owners is not */
    ci_weights_share(s->weights);
    *session = s;
    return CI_OK;
}

void ci_session_free(ci_session *s)
{
    if (!s) return;
    ci_pool_free(s->pool);
    ci_block_free(&s->arena);
    ci_block_free(&s->blank);
    const ci_model *model = s->model;
    const int32_t blocks = model->output_count + model->stage_count + model->state_count; /* one list after the other */
    for (int32_t i = 0; i < blocks; ++i) ci_block_free(&s->results[i]);
    ci_weights_free(s->weights);
    free(s);
}

/* Makes the plan and the arena fit the fresh sizes. */
static int plan(ci_session *s, ci_error *error)
{
    const ci_model *model = s->model;
    const size_t bytes = (size_t)(model->size_count - model->late_count) * sizeof *s->sizes;
    if (s->planned && (!bytes || !memcmp(s->sizes, s->fresh, bytes))) return CI_OK;
    s->planned = false;
    if (bytes) memcpy(s->sizes, s->fresh, bytes);
    int64_t needed = model->plan ? model->plan(s->sizes, s->offsets) : 0;
    if (needed < 0)
        return ci_fail(error, CI_BAD_INPUT,
                       "these input shapes are too small for model '%s': a value inside it would have a "
                       "negative size",
                       model->name);
    if (!ci_block_grow(&s->arena, needed)) return no_memory(error, "intermediate values", "", needed);
    s->arena_bytes = needed;
    s->planned = true;
    return CI_OK;
}

static int place_inputs(ci_session *s, const ci_array *inputs, ci_error *error)
{
    for (int32_t i = 0; i < s->model->input_count; ++i) {
        const ci_array *array = &inputs[i];
        s->inputs[i] = array->data;
        if (ci_array_bytes(array->type, array->rank, array->dims)) {
            if (!array->data) return ci_fail(error, CI_BAD_INPUT, "input '%s': its data is NULL", s->model->inputs[i].name);
            continue;
        }
        ci_array filled = *array;
        for (int32_t d = 0; d < filled.rank; ++d)
            if (!filled.dims[d]) filled.dims[d] = 1;
        int64_t bytes = ci_array_bytes(filled.type, filled.rank, filled.dims);
        if (!ci_block_grow(&s->blank, bytes)) return no_memory(error, "empty input ", s->model->inputs[i].name, bytes);
    }
    for (int32_t i = 0; i < s->model->input_count; ++i) /* now that the blank has its place */
        if (!ci_array_bytes(inputs[i].type, inputs[i].rank, inputs[i].dims)) s->inputs[i] = s->blank.data;
    return CI_OK;
}

static int place_outputs(ci_session *s, ci_array *outputs, ci_error *error)
{
    for (int32_t i = 0; i < s->model->output_count; ++i) {
        ci_array *array = &outputs[i];
        if (ci_is_late(array)) { /* a step will place it */
            if (array->data && array->data != s->results[i].data)
                return ci_fail(error, CI_BAD_INPUT, "output '%s': only the run tells its sizes, so leave its data NULL",
                               s->model->outputs[i].name);
            s->outputs[i] = NULL;
            continue;
        }
        /* An array that still points here from an earlier run is the session's own: its memory may have to grow. */
        if (!array->data || array->data == s->results[i].data) {
            int64_t bytes = ci_array_bytes(array->type, array->rank, array->dims);
            array->data = NULL;
            if (!ci_block_grow(&s->results[i], bytes ? bytes : 1))
                return no_memory(error, "output ", s->model->outputs[i].name, bytes);
            array->data = s->results[i].data;
        }
        s->outputs[i] = array->data;
    }
    return CI_OK;
}

/* What the run has told of the outputs. */
static int settle_outputs(ci_session *s, ci_array *outputs, ci_error *error)
{
    if (s->model->derive) s->model->derive(s->sizes);
    for (int32_t i = 0; i < s->model->output_count; ++i)
        if (ci_is_late(&outputs[i])) outputs[i].data = s->outputs[i];
    return ci_outputs_of(s->model, s->sizes, s->model->size_count, outputs, error);
}

int ci_session_shape(ci_session *s, const ci_array *inputs, ci_array *outputs, ci_error *error)
{
    int status = ci_sizes_of(s->model, inputs, s->fresh, error);
    return status ? status : ci_outputs_of(s->model, s->fresh, s->model->size_count - s->model->late_count, outputs, error);
}

int ci_session_run(ci_session *s, const ci_array *inputs, ci_array *outputs, ci_error *error)
{
    int status = ci_session_shape(s, inputs, outputs, error);
    if (!status) status = place_inputs(s, inputs, error);
    if (!status) status = plan(s, error);
    if (!status) status = place_outputs(s, outputs, error);
    if (status) return status;
    const ci_code *code = s->weights->code;
    ci_run run = {.sizes = s->sizes,
                  .arena = s->arena.data,
                  .offsets = s->offsets,
                  .inputs = s->inputs,
                  .outputs = s->outputs,
                  .constants = s->model->constants,
                  .packed = (char *)s->weights->packed,
                  .pool = s->pool,
                  .arenas = s->arenas,
                  .states = s->states,
                  .results = s->results};
    status = ci_run_steps(&run, code->forward, code->forward_count, s->profiled ? s->ns : NULL, CI_BAD_INPUT, error);
    return status || !s->model->late_count ? status : settle_outputs(s, outputs, error);
}

void ci_session_profile(ci_session *s, bool on)
{
    s->profiled = on;
    if (on) memset(s->ns, 0, sizeof *s->ns * (size_t)s->weights->code->forward_count);
}

int64_t ci_session_step_ns(const ci_session *s, int32_t step)
{
    return step >= 0 && step < s->weights->code->forward_count ? s->ns[step] : 0;
}

const ci_code *ci_session_code(const ci_session *s) { return s->weights->code; }
int64_t ci_session_arena_bytes(const ci_session *s) { return s->arena_bytes; }
