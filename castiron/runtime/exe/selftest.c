#include "selftest.h"

#include "arrays.h"
#include "number.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Reading the record ----------------------------------------------------------------------------------------------- */

typedef struct record {
    const char *data;
    uint64_t at, size;
    bool bad;
} record;

typedef struct entry {
    uint32_t role, port;
    ci_array array;
} entry;

static void read_bytes(record *r, void *to, uint64_t size)
{
    r->bad |= size > r->size - r->at;
    if (r->bad) {
        memset(to, 0, size);
        return;
    }
    memcpy(to, r->data + r->at, size);
    r->at += size;
}

static uint32_t read32(record *r)
{
    uint32_t value;
    read_bytes(r, &value, sizeof value);
    return value;
}

static entry read_entry(record *r)
{
    entry e = {.role = read32(r), .port = read32(r)};
    uint64_t bytes;
    e.array.type = (int32_t)read32(r);
    uint32_t rank = read32(r);
    r->bad |= rank > CI_MAX_RANK;
    e.array.rank = r->bad ? 0 : (int32_t)rank;
    for (int i = 0; i < e.array.rank; i++) read_bytes(r, &e.array.dims[i], sizeof e.array.dims[i]);
    read_bytes(r, &bytes, sizeof bytes);
    r->at = (r->at + 63) / 64 * 64;
    r->bad |= r->at > r->size || bytes > r->size - r->at;
    if (r->bad) return e;
    e.array.data = (void *)(uintptr_t)(r->data + r->at); /* inputs and expected outputs are only read */
    r->at += bytes;
    return e;
}

/* Comparing -------------------------------------------------------------------------------------------------------- */

/* The largest difference and the largest finite value recorded. */
typedef struct difference {
    double most, largest;
} difference;

static double value_of(const char *data, int32_t type, size_t size)
{
    uint64_t bits = 0;
    int unused = 64 - 8 * (int)size;
    memcpy(&bits, data, size);
    if (ci_is_float(type)) return ci_widen(bits, type);
    return ci_is_signed(type) ? (double)((int64_t)(bits << unused) >> unused) : (double)bits;
}

static difference compare(const ci_array *got, const ci_array *wanted)
{
    size_t size = (size_t)ci_type_bytes(got->type);
    const char *a = got->data, *b = wanted->data;
    difference found = {0, 0};
    for (int64_t i = ci_array_count(got); i > 0; i--, a += size, b += size) {
        double x = value_of(a, got->type, size), y = value_of(b, got->type, size), apart = x > y ? x - y : y - x;
        if (x == y || (x != x && y != y)) apart = 0;
        else if (apart != apart) apart = __builtin_inf();
        if (!ci_is_float(got->type)) { /* large integers that differ by little */
            if (!apart && memcmp(a, b, size)) apart = 1;
            y = 0;
        }
        if (y < 0) y = -y;
        if (y > found.largest && y < __builtin_inf()) found.largest = y;
        if (apart > found.most) found.most = apart;
    }
    return found;
}

static bool same_shape(const ci_array *a, const ci_array *b)
{
    if (a->type != b->type || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

static void print_number(ci_text *out, double value)
{
    char text[CI_NUMBER_ROOM];
    float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    ci_put_bytes(out, text, (size_t)ci_print_float(text, bits, CI_FLOAT));
}

/* Prints the line of one output, its difference also in units of the last place of the largest value; gives whether it is
   within its tolerance. */
static CI_APART bool report(ci_text *out, const char *name, const ci_array *got, const ci_array *wanted, double tolerance)
{
    if (!same_shape(got, wanted)) {
        ci_put(out, "%s: type or shape is not as recorded, MISMATCH\n", name);
        return false;
    }
    difference d = compare(got, wanted);
    ci_put(out, "%s: %" PRId64 " values, max|diff| ", name, ci_array_count(got));
    print_number(out, d.most);
    if (d.largest > 0) {
        ci_put_text(out, ", ulp ");
        print_number(out, d.most / ci_unit_of(d.largest, got->type));
    }
    ci_put_text(out, d.most <= tolerance ? ", OK\n" : ", MISMATCH\n");
    return d.most <= tolerance;
}

/* The test --------------------------------------------------------------------------------------------------------- */

static int read_inputs(record *r, uint32_t count, const ci_model *model, ci_array *inputs, ci_error *error)
{
    for (uint32_t i = 0; i < count && !r->bad; i++) {
        entry e = read_entry(r);
        if (e.role == 0 && e.port < (uint32_t)model->input_count) inputs[e.port] = e.array;
        else if (e.role != 1 || e.port >= (uint32_t)model->output_count) r->bad = true;
    }
    return r->bad ? ci_refuse(error, "the recorded self-test is damaged: build the model again") : CI_OK;
}

/* Goes over the entries once more; the tolerances of the outputs follow the last one. */
static int check_outputs(record r, record tolerances, uint32_t count, const ci_model *model, const ci_array *outputs,
                         ci_text *out, ci_error *error)
{
    bool same = true;
    for (uint32_t i = 0; i < count; i++) {
        double tolerance;
        entry e = read_entry(&r);
        if (e.role != 1) continue;
        read_bytes(&tolerances, &tolerance, sizeof tolerance);
        same &= report(out, model->outputs[e.port].name, &outputs[e.port], &e.array, tolerance);
    }
    if (same) return CI_OK;
    return ci_fail(error, CI_MISMATCH, "outputs differ from those recorded at build");
}

int ci_selftest(const ci_model *model, ci_session *session, ci_text *out, ci_error *error)
{
    record r = {model->selftest, 0, model->selftest ? (uint64_t)model->selftest_bytes : 0, false};
    if (!r.size) return ci_refuse(error, "this model was built without a self-test");
    size_t input_count = (size_t)model->input_count, count = input_count + (size_t)model->output_count;
    ci_array *arrays = calloc(count + 1, sizeof *arrays);
    if (!arrays) return ci_no_memory(error, (int64_t)(count * sizeof *arrays));
    r.bad = read32(&r) != 0x54534943; /* CIST */
    uint32_t entries = read32(&r);
    record first = r;
    int status = read_inputs(&r, entries, model, arrays, error);
    if (!status) status = ci_session_run(session, arrays, arrays + input_count, error);
    if (!status) status = check_outputs(first, r, entries, model, arrays + input_count, out, error);
    free(arrays);
    return status;
}
