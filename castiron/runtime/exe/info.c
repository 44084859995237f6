#include "info.h"

#include "arrays.h"
#include "json.h"

#include <inttypes.h>

static void member(ci_text *out, const char *name) { ci_put(out, ",\n \"%s\": ", name); }

static void text_member(ci_text *out, const char *name, const char *value)
{
    member(out, name);
    if (value) ci_json_write_string(out, value);
    else ci_put_text(out, "null");
}

static void ports(ci_text *out, const char *name, const ci_model *model, const ci_port *list, int32_t count)
{
    member(out, name);
    for (int32_t i = 0; i < count; i++) {
        ci_put_text(out, i ? ",\n  {\"name\": " : "[\n  {\"name\": ");
        ci_json_write_string(out, list[i].name);
        ci_put(out, ", \"type\": \"%s\", \"shape\": [", ci_type_name(list[i].type));
        for (int32_t d = 0; d < list[i].rank; d++) {
            if (d) ci_put_text(out, ", ");
            if (list[i].dims[d] < 0) ci_json_write_string(out, model->sizes[-1 - list[i].dims[d]].name);
            else ci_put(out, "%" PRId64, list[i].dims[d]);
        }
        ci_put_text(out, "]}");
    }
    ci_put_text(out, count ? "]" : "[]");
}

static void weights(ci_text *out, const ci_model *model)
{
    int64_t bytes = 0;
    for (const ci_port *weight = model->weights; weight < model->weights + model->weight_count; weight++)
        bytes += ci_array_bytes(weight->type, weight->rank, weight->dims);
    bool embedded = model->packed || !model->packed_bytes;
    member(out, "weights");
    ci_put(out, "{\"count\": %d, \"bytes\": %" PRId64 ", \"packed_bytes\": %" PRId64 ", \"source\": \"%s\"", model->weight_count,
           bytes, model->packed_bytes, embedded ? "embed" : "file");
    if (!embedded && model->weights_file) {
        ci_put_text(out, ", \"file\": ");
        ci_json_write_string(out, model->weights_file);
    }
    ci_put_text(out, "}");
}

static void instruction_sets(ci_text *out, const ci_model *model, const ci_session *session)
{
    text_member(out, "isa", session ? ci_session_code(session)->isa : NULL);
    member(out, "isas");
    for (const ci_code *const *code = model->codes; *code; code++)
        ci_put(out, code == model->codes ? "[\"%s\"" : ", \"%s\"", (*code)->isa);
    ci_put_text(out, "]");
}

void ci_info(const ci_model *model, const ci_session *session, ci_text *out)
{
    int64_t arena = session ? ci_session_arena_bytes(session) : 0;
    ci_put_text(out, "{\"name\": ");
    ci_json_write_string(out, model->name);
    text_member(out, "castiron", model->version);
    text_member(out, "hash", model->hash);
    instruction_sets(out, model, session);
    ports(out, "inputs", model, model->inputs, model->input_count);
    ports(out, "outputs", model, model->outputs, model->output_count);
    weights(out, model);
    ports(out, "parameters", model, model->weights, model->weight_count);
    ci_put(out, ",\n \"constant_bytes\": %" PRId64, model->constant_bytes);
    if (arena > 0) ci_put(out, ",\n \"arena_bytes\": %" PRId64, arena);
    member(out, "selftest");
    ci_put_text(out, model->selftest ? "true" : "false");
    if (*model->info) ci_put(out, ",\n %s", model->info);
    ci_put_text(out, "}\n");
}
