#include "info.h"

#include "arrays.h"
#include "json.h"

static void member(ci_out *out, const char *name)
{
    ci_out_text(out, ",\n ");
    ci_json_write_string(out, name);
    ci_out_text(out, ": ");
}

static void text_member(ci_out *out, const char *name, const char *value)
{
    member(out, name);
    if (value) ci_json_write_string(out, value);
    else ci_out_text(out, "null");
}

static void ports(ci_out *out, const char *name, const ci_model *model, const ci_port *list, int32_t count)
{
    member(out, name);
    ci_out_text(out, "[");
    for (int32_t i = 0; i < count; i++) {
        ci_out_text(out, i ? ",\n  {\"name\": " : "\n  {\"name\": ");
        ci_json_write_string(out, list[i].name);
        ci_out_text(out, ", \"type\": ");
        ci_json_write_string(out, ci_type_info_of(list[i].type)->name);
        ci_out_text(out, ", \"shape\": [");
        for (int32_t d = 0; d < list[i].rank; d++) {
            if (d) ci_out_text(out, ", ");
            if (list[i].dims[d] < 0) ci_json_write_string(out, model->sizes[-1 - list[i].dims[d]].name);
            else ci_out_int(out, list[i].dims[d]);
        }
        ci_out_text(out, "]}");
    }
    ci_out_text(out, "]");
}

static void weights(ci_out *out, const ci_model *model)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < model->weight_count; i++) {
        int64_t size = ci_type_info_of(model->weights[i].type)->size;
        for (int32_t d = 0; d < model->weights[i].rank; d++) size *= model->weights[i].dims[d];
        bytes += size;
    }
    member(out, "weights");
    ci_out_text(out, "{\"count\": ");
    ci_out_int(out, model->weight_count);
    ci_out_text(out, ", \"bytes\": ");
    ci_out_int(out, bytes);
    ci_out_text(out, ", \"packed_bytes\": ");
    ci_out_int(out, model->packed_bytes);
    ci_out_text(out, ", \"source\": ");
    bool embedded = model->packed || !model->packed_bytes;
    ci_json_write_string(out, embedded ? "embed" : "file");
    if (!embedded && model->weights_file) {
        ci_out_text(out, ", \"file\": ");
        ci_json_write_string(out, model->weights_file);
    }
    ci_out_text(out, "}");
}

static void instruction_sets(ci_out *out, const ci_model *model, const ci_session *session)
{
    text_member(out, "isa", session ? ci_session_code(session)->isa : NULL);
    member(out, "isas");
    for (const ci_code *const *code = model->codes; *code; code++) {
        ci_out_text(out, code == model->codes ? "[" : ", ");
        ci_json_write_string(out, (*code)->isa);
    }
    ci_out_text(out, "]");
}

void ci_info(const ci_model *model, const ci_session *session, ci_out *out)
{
    int64_t arena = session ? ci_session_arena_bytes(session) : 0;
    ci_out_text(out, "{\"name\": ");
    ci_json_write_string(out, model->name);
    text_member(out, "castiron", model->version);
    text_member(out, "hash", model->hash);
    instruction_sets(out, model, session);
    ports(out, "inputs", model, model->inputs, model->input_count);
    ports(out, "outputs", model, model->outputs, model->output_count);
    weights(out, model);
    ports(out, "parameters", model, model->weights, model->weight_count);
    member(out, "constant_bytes");
    ci_out_int(out, model->constant_bytes);
    if (arena > 0) {
        member(out, "arena_bytes");
        ci_out_int(out, arena);
    }
    member(out, "selftest");
    ci_out_text(out, model->selftest ? "true" : "false");
    if (model->info && *model->info) {
        ci_out_text(out, ",\n ");
        ci_out_text(out, model->info);
    }
    ci_out_text(out, "}\n");
}
