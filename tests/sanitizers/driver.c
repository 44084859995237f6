/* Runs a model over many sizes and prints a hash of each output, so that two builds can be compared by what they print.

       driver THREADS SEED RUN...      RUN: "batch=2,length=5,ints=50"; sizes not named are 1; integers are in [low, ints)

   Everything that is handed to the runtime lies in memory of exactly its size: inputs, outputs, weights, constants. Each
   RUN goes through a session that lives as long as the process, and through fresh ones (users=3: of so many threads at
   once); all must agree. */
#include "api.h"
#include "core/types.h"
#include "core/weights.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const ci_model *const ci_main_model;

static void stop(const char *why)
{
    fprintf(stderr, "driver: %s\n", why);
    exit(1);
}

static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* "name=value" in a list, or `other`. */
static int64_t setting(const char *run, const char *name, int64_t other)
{
    const size_t length = strlen(name);
    for (const char *at = run; at; at = strchr(at, ',')) {
        if (*at == ',') ++at;
        if (!strncmp(at, name, length) && at[length] == '=') return strtoll(at + length + 1, NULL, 10);
    }
    return other;
}

/* `bytes` bytes whose end is the end of the allocation, aligned no more than elements of `size` bytes need. */
static char *exact(int64_t bytes, int64_t size, void **block)
{
    *block = malloc((size_t)(bytes + size));
    if (!*block) stop("no memory");
    return (char *)*block + size;
}

static uint16_t half_in_one(void) { return (uint16_t)(next_random() % 0x3c00 | (next_random() & 0x8000)); }

static void fill(char *data, int32_t type, int64_t bytes, int64_t low, int64_t high)
{
    const int32_t size = ci_type_bytes(type);
    for (int64_t at = 0; at < bytes; at += size) {
        const int64_t integer = low + (int64_t)(next_random() % (uint64_t)(high - low));
        const double real = (double)(int64_t)(next_random() >> 11) / (double)(INT64_C(1) << 52) - 1;
        const float single = (float)real;
        const uint16_t half = half_in_one();
        const int64_t bit = integer & 1;
        const void *from = type == CI_FLOAT                            ? (const void *)&single
                           : type == CI_DOUBLE                         ? (const void *)&real
                           : type == CI_FLOAT16 || type == CI_BFLOAT16 ? (const void *)&half
                           : type == CI_BOOL                           ? (const void *)&bit
                                                                       : (const void *)&integer;
        memcpy(data + at, from, (size_t)size); /* little-endian */
    }
}

static uint64_t hash_of(const char *data, int64_t bytes)
{
    uint64_t hash = 14695981039346656037u;
    for (int64_t i = 0; i < bytes; ++i) hash = (hash ^ (unsigned char)data[i]) * 1099511628211u;
    return hash;
}

static void set_dims(ci_array *array, const ci_port *port, const char *run)
{
    array->type = port->type;
    array->rank = port->rank;
    for (int32_t d = 0; d < port->rank; ++d)
        array->dims[d] = port->dims[d] >= 0 ? port->dims[d] : setting(run, ci_main_model->sizes[-1 - port->dims[d]].name, 1);
}

static int64_t bytes_of(const ci_array *array) { return ci_array_bytes(array->type, array->rank, array->dims); }

/* Runs with outputs of the caller, exactly as large as they must be, or of the session. The hash of them all in `hash`. */
static int run_once(ci_session *session, const ci_array *inputs, bool own, uint64_t *hash, ci_error *error)
{
    const int32_t count = ci_main_model->output_count;
    ci_array *outputs = calloc((size_t)count + 1, sizeof *outputs);
    void **blocks = calloc((size_t)count + 1, sizeof *blocks);
    int status = ci_session_shape(session, inputs, outputs, error);
    for (int32_t i = 0; i < count && own && !status; ++i)
        outputs[i].data = exact(bytes_of(&outputs[i]), ci_type_bytes(outputs[i].type), &blocks[i]);
    if (!status) status = ci_session_run(session, inputs, outputs, error);
    *hash = 0;
    for (int32_t i = 0; i < count && !status; ++i)
        *hash =
            *hash * 31 + hash_of(outputs[i].data, bytes_of(&outputs[i])) + hash_of((char *)outputs[i].dims, 8 * outputs[i].rank);
    for (int32_t i = 0; i < count; ++i) free(blocks[i]);
    free(blocks);
    free(outputs);
    return status;
}

/* What one of several users of the same weights does, and what came of it. */
typedef struct user {
    const ci_weights *weights;
    const ci_array *inputs;
    int threads, status;
    uint64_t hash;
    ci_error error;
    pthread_t thread;
} user;

static void *use(void *argument)
{
    user *u = argument;
    ci_session *session;
    if (ci_session_new(u->weights, u->threads, &session, &u->error)) stop(u->error.text);
    u->status = run_once(session, u->inputs, false, &u->hash, &u->error);
    ci_session_free(session);
    return NULL;
}

static void compare(const ci_weights *weights, ci_session *old, const ci_array *inputs, int threads, const char *text)
{
    enum { MOST = 16 };
    user users[MOST] = {{0}};
    const int64_t count = setting(text, "users", 1);
    for (int64_t i = 0; i < count && i < MOST; ++i) {
        users[i] = (user){.weights = weights, .inputs = inputs, .threads = threads};
        if (pthread_create(&users[i].thread, NULL, use, &users[i])) stop("no thread");
    }
    ci_error error = {""};
    uint64_t hash;
    const int status = run_once(old, inputs, true, &hash, &error);
    for (int64_t i = 0; i < count && i < MOST; ++i) {
        pthread_join(users[i].thread, NULL);
        if (users[i].status != status) stop("sessions differ in what they refuse");
        if (users[i].hash != hash) stop("a session that has run other sizes gives other bits than a fresh one");
    }
    printf("%s: %d %016" PRIx64 " %s\n", text, status, hash, error.text);
}

static void run(const ci_weights *weights, ci_session *old, int threads, const char *text)
{
    const ci_model *model = ci_main_model;
    ci_array *inputs = calloc((size_t)model->input_count + 1, sizeof *inputs);
    void **blocks = calloc((size_t)model->input_count + 1, sizeof *blocks);
    for (int32_t i = 0; i < model->input_count; ++i) {
        set_dims(&inputs[i], &model->inputs[i], text);
        const int64_t bytes = bytes_of(&inputs[i]);
        if (bytes < 0) stop("an impossible input");
        inputs[i].data = exact(bytes, ci_type_bytes(inputs[i].type), &blocks[i]);
        fill(inputs[i].data, inputs[i].type, bytes, setting(text, "low", 0), setting(text, "ints", 2));
    }
    compare(weights, old, inputs, threads, text);
    for (int32_t i = 0; i < model->input_count; ++i) free(blocks[i]);
    free(blocks);
    free(inputs);
}

static const char *copied(const char *from, int64_t bytes)
{
    if (!from) return NULL;
    void *to;
    if (posix_memalign(&to, CI_ALIGN, (size_t)bytes)) stop("no memory");
    return memcpy(to, from, (size_t)bytes);
}

/* What prepare makes of random weights, each in memory of its own. */
static void prepare(const ci_model *model, const ci_code *code)
{
    ci_weights weights = {.model = model, .code = code};
    ci_error error = {""};
    const void **raw = calloc((size_t)model->weight_count + 1, sizeof *raw);
    void **blocks = calloc((size_t)model->weight_count + 1, sizeof *blocks);
    for (int32_t i = 0; i < model->weight_count; ++i) {
        const ci_port *port = &model->weights[i];
        const int64_t bytes = ci_array_bytes(port->type, port->rank, port->dims);
        char *data = exact(bytes, ci_type_bytes(port->type), &blocks[i]);
        fill(data, port->type, bytes, 0, 2);
        raw[i] = data;
    }
    if (ci_prepare(&weights, raw, &error)) stop(error.text);
    printf("prepare: %016" PRIx64 "\n", hash_of(weights.packed, model->packed_bytes));
    ci_block_free(&weights.memory);
    for (int32_t i = 0; i < model->weight_count; ++i) free(blocks[i]);
    free(blocks);
    free(raw);
}

int main(int count, char **arguments)
{
    if (count < 3) stop("usage: driver THREADS SEED RUN...");
    const int threads = atoi(arguments[1]);
    state = strtoull(arguments[2], NULL, 10) * 2654435761u + 1;
    ci_model model = *ci_main_model;
    model.constants = copied(model.constants, model.constant_bytes);
    model.packed = copied(model.packed, model.packed_bytes);
    ci_weights *weights;
    ci_session *session;
    ci_error error = {""};
    if (ci_load(&model, NULL, &weights, &error) || ci_session_new(weights, threads, &session, &error)) stop(error.text);
    if (model.packed_bytes) prepare(&model, weights->code);
    for (int i = 3; i < count; ++i) run(weights, session, threads, arguments[i]);
    ci_session_free(session);
    ci_weights_free(weights);
    free((void *)model.constants);
    free((void *)model.packed);
    return 0;
}
