/* A stand-in for runtime/core, to test the command line by itself.

   The environment picks the model: FAKE_TYPE=0, the default, is y = 2 * x of float32 [N,3]; FAKE_TYPE=-1 also has
   ids2 = ids + 1 of int64 [N]; else y = x of any shape and that ONNX type. FAKE_OFFSET is added to the first element of
   y, for the self-test to find. */
#include "../../castiron/runtime/api.h"

#include <stdlib.h>
#include <string.h>

struct ci_weights {
    const ci_model *model;
};

struct ci_session {
    const ci_model *model;
    bool profile;
    int64_t runs;
    void *results[2];
};

static const int64_t matrix[] = {-1, 3}, vector[] = {-1};
static const ci_size sizes[] = {{"N", 0, 0}};
static const ci_port inputs_two[] = {{"x", CI_FLOAT, 2, matrix}, {"ids", CI_INT64, 1, vector}};
static const ci_port outputs_two[] = {{"y", CI_FLOAT, 2, matrix}, {"ids2", CI_INT64, 1, vector}};
static ci_port input_type[] = {{"x", 0, 0, NULL}}, output_type[] = {{"y", 0, 0, NULL}};
static const ci_step steps[] = {{"y", "Mul", .run = NULL}, {"ids2", "Add", .run = NULL}};
static const ci_code code = {"x86-64-v3", NULL, steps, 0, 2};
static const ci_code *const codes[] = {&code, NULL};

static const struct {
    uint32_t magic, count;
    uint32_t in[4];
    uint64_t in_dims[2], in_bytes;
    uint64_t in_padding[2];
    float x[3];
    uint32_t out[4];
    uint32_t out_dims[4], out_bytes[2];
    uint32_t out_padding[3];
    float y[3];
    uint32_t tolerance[2]; /* 0.25 */
} selftest = {0x54534943, 2,   {0, 0, 1, 2}, {1, 3},         12, {0}, {1, 2, 3}, {1, 0, 1, 2}, {1, 0, 3, 0},
              {12, 0},    {0}, {2, 4, 6},    {0, 0x3fd00000}};

static const ci_model one = {.name = "fake",
                             .hash = "00ff",
                             .version = "0.1",
                             .info = "\"source\": \"test\"",
                             .inputs = inputs_two,
                             .outputs = outputs_two,
                             .input_count = 1,
                             .output_count = 1,
                             .sizes = sizes,
                             .size_count = 1,
                             .packed_bytes = 64,
                             .weights_file = "fake.weights",
                             .selftest = (const char *)&selftest,
                             .selftest_bytes = sizeof selftest,
                             .codes = codes};
static const ci_model two = {.name = "fake",
                             .hash = "00ff",
                             .version = "0.1",
                             .info = "",
                             .inputs = inputs_two,
                             .outputs = outputs_two,
                             .input_count = 2,
                             .output_count = 2,
                             .sizes = sizes,
                             .size_count = 1,
                             .codes = codes};
static const ci_model type = {.name = "fake",
                              .hash = "00ff",
                              .version = "0.1",
                              .info = "",
                              .inputs = input_type,
                              .outputs = output_type,
                              .input_count = 1,
                              .output_count = 1,
                              .codes = codes};
static ci_model chosen;
const ci_model *const ci_main_model = &chosen;

static int environment(const char *name)
{
    const char *value = getenv(name);
    return value ? atoi(value) : 0;
}

__attribute__((constructor)) static void choose(void)
{
    int kind = environment("FAKE_TYPE");
    input_type[0].type = output_type[0].type = kind;
    chosen = kind == 0 ? one : kind < 0 ? two : type;
}

static int fail(ci_error *error, int status, const char *text)
{
    strncpy(error->text, text, sizeof error->text - 1);
    return status;
}

int ci_load(const ci_model *model, const char *path, ci_weights **weights, ci_error *error)
{
    if (path && strcmp(path, "good.weights")) return fail(error, CI_BAD_WEIGHTS, "weights are of another model");
    *weights = calloc(1, sizeof **weights);
    (*weights)->model = model;
    return CI_OK;
}

void ci_weights_free(ci_weights *weights) { free(weights); }

int ci_weights_save(const ci_weights *weights, const char *path, ci_error *error)
{
    (void)weights;
    return strcmp(path, "saved.weights") ? fail(error, CI_BAD_WEIGHTS, "cannot write weights") : CI_OK;
}

int ci_session_new(const ci_weights *weights, int threads, ci_session **session, ci_error *error)
{
    (void)threads, (void)error;
    *session = calloc(1, sizeof **session);
    (*session)->model = weights->model;
    return CI_OK;
}

void ci_session_free(ci_session *session)
{
    if (!session) return;
    free(session->results[0]);
    free(session->results[1]);
    free(session);
}

static size_t bytes_of(const ci_array *array)
{
    size_t bytes = array->type == CI_FLOAT || array->type == CI_INT32 || array->type == CI_UINT32    ? 4
                   : array->type == CI_INT64 || array->type == CI_DOUBLE || array->type == CI_UINT64 ? 8
                   : array->type == CI_BOOL || array->type == CI_UINT8 || array->type == CI_INT8     ? 1
                                                                                                     : 2;
    for (int i = 0; i < array->rank; i++) bytes *= (size_t)array->dims[i];
    return bytes;
}

int ci_session_run(ci_session *session, const ci_array *inputs, ci_array *outputs, ci_error *error)
{
    const ci_model *model = session->model;
    if (model->size_count) {
        if (inputs[0].rank != 2 || inputs[0].dims[1] != 3) return fail(error, CI_BAD_INPUT, "input 'x': expected [N,3]");
        if (model->input_count == 2 && (inputs[1].rank != 1 || inputs[1].dims[0] != inputs[0].dims[0]))
            return fail(error, CI_BAD_INPUT, "input 'ids': expected [N]");
    }
    for (int32_t i = 0; i < model->output_count; i++) {
        size_t bytes = bytes_of(&inputs[i]);
        free(session->results[i]);
        session->results[i] = malloc(bytes + 1);
        memcpy(session->results[i], inputs[i].data, bytes);
        if (outputs[i].data) return fail(error, CI_BAD_INPUT, "outputs must be the session's");
        outputs[i] = inputs[i];
        outputs[i].data = session->results[i];
    }
    if (model->size_count) {
        float *y = session->results[0];
        for (size_t i = bytes_of(&inputs[0]) / 4; i-- > 0;) y[i] *= 2;
        if (inputs[0].dims[0]) y[0] += (float)environment("FAKE_OFFSET") * 0x1p-22f;
        int64_t *ids = session->results[1];
        for (size_t i = ids ? bytes_of(&inputs[1]) / 8 : 0; i-- > 0;) ids[i] = (int64_t)((uint64_t)ids[i] + 1);
    }
    session->runs += session->profile;
    return CI_OK;
}

void ci_session_profile(ci_session *session, bool on) { session->profile = on; }

int64_t ci_session_step_ns(const ci_session *session, int32_t step) { return session->runs * 1000 * (step + 1); }

const ci_code *ci_session_code(const ci_session *session)
{
    (void)session;
    return &code;
}

int64_t ci_session_arena_bytes(const ci_session *session)
{
    (void)session;
    return 4096;
}
