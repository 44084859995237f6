/* A model written by hand, as castiron would generate it, for the tests of the runtime's core:

       y[batch, 3] = x[batch, 4] @ w[4, 3] + b[3],   picked[n] = table[index[n]],   doubled[2 * n] = zeros

   `prepare` transposes w into the packed bytes and copies b and the table behind it. */
#include "../../castiron/runtime/api.h"

#include <stdlib.h>
#include <string.h>

enum { IN = 4, OUT = 3, TABLE = 5, PACKED_FLOATS = 32 };

static const int64_t x_dims[] = {-1, IN}, scale_dims[] = {-1}, index_dims[] = {-2}, y_dims[] = {-1, OUT}, picked_dims[] = {-2},
                     doubled_dims[] = {-3}, shrunk_dims[] = {-4}, w_dims[] = {IN, OUT}, b_dims[] = {OUT}, table_dims[] = {TABLE};
static const ci_port inputs[] = {
    {"x", CI_FLOAT, 2, x_dims}, {"scale", CI_FLOAT, 1, scale_dims}, {"index", CI_INT64, 1, index_dims}};
static const ci_port outputs[] = {{"y", CI_FLOAT, 2, y_dims},
                                  {"picked", CI_INT32, 1, picked_dims},
                                  {"doubled", CI_UINT8, 1, doubled_dims},
                                  {"shrunk", CI_UINT8, 1, shrunk_dims}};
static const ci_port weights[] = {{"fc1.weight", CI_FLOAT, 2, w_dims},
                                  {"fc1.bias", CI_FLOAT, 1, b_dims},
                                  {"t\xc3\xa4"
                                   "ble",
                                   CI_INT32, 1, table_dims}};
static const ci_size sizes[] = {{"batch", 0, 0}, {"n", 2, 0}, {"2*n", -1, 0}, {"100 - n", -1, 0}};

static void derive(int64_t *size)
{
    size[2] = 2 * size[1];
    size[3] = 100 - size[1];
}

static int64_t plan(const int64_t *size, int64_t *offsets)
{
    static const ci_life lives[] = {{0, 1}, {1, 2}};
    const int64_t bytes[] = {size[0] * OUT * 4, size[1] * 8};
    return ci_plan(lives, bytes, 2, offsets);
}

static void transpose(const ci_run *run)
{
    const float *w = run->inputs[0];
    float *out = (float *)run->packed, *spare = (float *)run->arena;
    for (int i = 0; i < IN * OUT; ++i) spare[i] = w[i];
    for (int i = 0; i < IN; ++i)
        for (int j = 0; j < OUT; ++j) out[j * IN + i] = spare[i * OUT + j];
    memcpy(out + IN * OUT, run->inputs[1], OUT * sizeof(float));
    memcpy(out + IN * OUT + OUT, run->inputs[2], TABLE * sizeof(int32_t));
}

static void rows(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    const float *x = run->inputs[0], *w = (const float *)run->packed;
    float *out = (float *)(run->arena + run->offsets[0]);
    (void)argument;
    for (int64_t i = begin; i < end; ++i)
        for (int j = 0; j < OUT; ++j) {
            float sum = 0, value;
            for (int k = 0; k < IN; ++k) {
                memcpy(&value, (const char *)x + 4 * (i * IN + k), 4); /* inputs need no alignment */
                sum += value * w[j * IN + k];
            }
            out[i * OUT + j] = sum + w[IN * OUT + j];
        }
}

static void matmul(const ci_run *run) { ci_parallel(run, rows, NULL, run->sizes[0], 20000); }

static void copy_range(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    (void)argument;
    memcpy((float *)run->outputs[0] + begin * OUT, run->arena + run->offsets[0] + begin * OUT * 4,
           (size_t)(end - begin) * OUT * 4);
}

/* A range that calls ci_parallel itself. */
static void copy_outer(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    (void)argument;
    for (int64_t i = begin; i < end; ++i)
        if (i == 0) ci_parallel(run, copy_range, NULL, run->sizes[0], 1000000);
}

static void copy(const ci_run *run) { ci_parallel(run, copy_outer, NULL, 8, 1000000); }

static void gather_range(const ci_run *run, const void *argument, int64_t begin, int64_t end)
{
    const int32_t *table = (const int32_t *)run->packed + IN * OUT + OUT;
    const int64_t *index = run->inputs[2];
    int32_t *out = run->outputs[1];
    (void)argument;
    for (int64_t i = begin; i < end; ++i) out[i] = table[ci_index(run, index[i], TABLE)];
}

static void gather(const ci_run *run)
{
    ci_parallel(run, gather_range, NULL, run->sizes[1], 20000);
    memset(run->outputs[2], 0, (size_t)run->sizes[2]);
    memset(run->outputs[3], 1, (size_t)run->sizes[3]);
}

/* Reads scale[-1], which does not exist where the batch is empty. */
static void last(const ci_run *run)
{
    volatile float kept = ((const float *)run->inputs[1])[ci_index(run, -1, run->sizes[0])];
    (void)kept;
}

static const ci_step prepare_steps[] = {{"fc1.weight_packed", "Transpose", .run = transpose}};
static const ci_step forward_steps[] = {{"fc1", "Gemm", .run = matmul},
                                        {"copy", "Identity", .run = copy},
                                        {"gather_3", "Gather", .run = gather},
                                        {"last", "Slice", .run = last}};

#define CODE(id, isa) static const ci_code id = {isa, prepare_steps, forward_steps, 1, 4}
CODE(v9, "x86-64-v9"); /* of no processor: to be passed over, and to be refused when it is forced */
CODE(v2, "x86-64-v2");
CODE(arm, "arm64");
CODE(generic, "generic");
static const ci_code *const codes[] = {&v9, &v2, &arm, &generic, NULL};
static const ci_code *const no_codes[] = {&v9, NULL};

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define MODEL                                                                                                           \
    .name = "fake", .hash = HASH, .version = "0", .info = "", .inputs = inputs, .outputs = outputs, .weights = weights, \
    .input_count = 3, .output_count = 4, .weight_count = 3, .sizes = sizes, .size_count = 4, .offset_count = 2,         \
    .derive = derive, .plan = plan, .prepare_arena = 4096, .packed_bytes = PACKED_FLOATS * 4, .codes = codes

static _Alignas(64) const float embedded[PACKED_FLOATS] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 10, 20, 30};
static const ci_model file_model = {MODEL, .weights_file = "fake.weights"};
static const ci_model embedded_model = {MODEL, .packed = (const char *)embedded};
static const ci_model bare_model = {MODEL};
static const ci_model foreign_model = {.name = "foreign", .hash = HASH, .codes = no_codes};
static const ci_model empty_model = {.name = "empty", .hash = HASH, .codes = codes + 1};

/* A gigantic prepare_arena and packed_bytes: what there is no memory for. */
static const ci_model huge_model = {
    .name = "huge", .hash = HASH, .weights = weights, .weight_count = 3, .packed_bytes = (int64_t)1 << 60, .codes = codes};

const ci_model *fake_model(const char *name)
{
    const ci_model *models[] = {&file_model, &embedded_model, &bare_model, &foreign_model, &empty_model, &huge_model};
    const char *names[] = {"file", "embedded", "bare", "foreign", "empty", "huge"};
    for (int i = 0; i < 6; ++i)
        if (!strcmp(name, names[i])) return models[i];
    return NULL;
}
