#include "options.h"

#include "arrays.h"
#include "number.h"

#include <stdlib.h>
#include <string.h>

enum { FLAG, TEXT, NUMBER, INPUT };

typedef struct option {
    char name[15];
    uint8_t kind, field; /* where it is in ci_options */
} option;

static const option table[] = {
    {"--input", INPUT, 0},
    {"--output", TEXT, offsetof(ci_options, output)},
    {"--stream", FLAG, offsetof(ci_options, stream)},
    {"--weights", TEXT, offsetof(ci_options, weights)},
    {"--save-weights", TEXT, offsetof(ci_options, save_weights)},
    {"--threads", NUMBER, offsetof(ci_options, threads)},
    {"--repeat", NUMBER, offsetof(ci_options, repeat)},
    {"--profile", FLAG, offsetof(ci_options, profile)},
    {"--info", FLAG, offsetof(ci_options, info)},
    {"--selftest", FLAG, offsetof(ci_options, selftest)},
    {"--version", FLAG, offsetof(ci_options, version)},
    {"--help", FLAG, offsetof(ci_options, help)},
};
enum { COUNT = sizeof table / sizeof *table };

/* Edits that make one text the other (Levenshtein), for texts of up to 31 characters. */
static int distance(const char *a, size_t length, const char *b)
{
    int row[32];
    size_t columns = strlen(b);
    for (size_t j = 0; j <= columns; j++) row[j] = (int)j;
    for (size_t i = 0; i < length; i++) {
        int diagonal = row[0];
        row[0] = (int)i + 1;
        for (size_t j = 0; j < columns; j++) {
            int above = row[j + 1], best = diagonal + (a[i] != b[j]);
            if (above + 1 < best) best = above + 1;
            if (row[j] + 1 < best) best = row[j] + 1;
            diagonal = above;
            row[j + 1] = best;
        }
    }
    return row[columns];
}

static int unknown(const char *text, size_t length, ci_error *error)
{
    const option *best = NULL;
    int least = 4;
    for (int i = 0; i < COUNT && length < 32; i++) {
        int edits = distance(text, length, table[i].name);
        if (edits < least) least = edits, best = &table[i];
    }
    if (best) return ci_refuse(error, "unknown option '%.*s'; did you mean %s?", (int)length, text, best->name);
    return ci_refuse(error, "unknown option '%.*s'; see --help", (int)length, text);
}

static const option *find(const char *text, size_t length)
{
    if (length == 2 && text[1] == 'o') text = "--output", length = 8;
    if (length == 2 && text[1] == 'h') text = "--help", length = 6;
    for (int i = 0; i < COUNT; i++)
        if (ci_same(text, length, table[i].name)) return &table[i];
    return NULL;
}

static int set_input(ci_options *options, const char *value, ci_error *error)
{
    const char *equals = strchr(value, '=');
    if (!equals || !equals[1]) return ci_refuse(error, "--input takes NAME=FILE, not '%s'", value);
    options->given[options->given_count++] = (ci_given){value, equals + 1, (size_t)(equals - value)};
    return CI_OK;
}

static int set(ci_options *options, const option *o, const char *value, ci_error *error)
{
    enum { MOST = 1000000 };
    char *field = (char *)options + o->field;
    uint64_t number;
    if (o->kind == INPUT) return set_input(options, value, error);
    if (o->kind == TEXT) {
        if (!*value) return ci_refuse(error, "%s takes a file, not an empty name", o->name);
        memcpy(field, &value, sizeof value);
        return CI_OK;
    }
    if (!ci_parse_uint(value, value + strlen(value), MOST, &number))
        return ci_refuse(error, "%s takes a number from 0 to %d, not '%s'", o->name, MOST, value);
    memcpy(field, &number, sizeof number);
    return CI_OK;
}

static int check(const ci_options *o, ci_error *error)
{
    bool device = o->output && (!strcmp(o->output, "-") || !strncmp(o->output, "/dev/", 5));
    bool known = o->output && (ci_ends(o->output, ".npz") || ci_ends(o->output, ".npy") || ci_ends(o->output, ".json"));
    if (o->output && !device && !known) return ci_refuse(error, "-o %s: the name must end in .npz, .npy or .json", o->output);
    if (o->stream && (o->given_count || o->output || o->repeat || o->profile))
        return ci_refuse(error, "--stream takes no files, -o, --repeat or --profile");
    return CI_OK;
}

/* One argument that begins with a dash, and the next one where that is its value. */
static int parse_option(ci_options *options, char **arguments, int *at, ci_error *error)
{
    const char *argument = arguments[*at], *equals = strchr(argument, '='), *value = equals ? equals + 1 : NULL;
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    const option *o = find(argument, length);
    if (!o) return unknown(argument, length, error);
    if (o->kind == FLAG) {
        if (value) return ci_refuse(error, "%s takes no value", o->name);
        *((bool *)((char *)options + o->field)) = true;
        return CI_OK;
    }
    if (!value) value = arguments[++*at];
    if (!value) return ci_refuse(error, "%s needs a value; see --help", o->name);
    return set(options, o, value, error);
}

int ci_options_parse(ci_options *options, int count, char **arguments, ci_error *error)
{
    bool only_files = false;
    *options = (ci_options){.given = malloc(((size_t)count + 1) * sizeof(ci_given))};
    if (!options->given) return ci_no_memory(error, count);
    for (int i = 1; i < count; i++) {
        const char *argument = arguments[i];
        int status = CI_OK;
        if (!only_files && !strcmp(argument, "--")) only_files = true;
        else if (!only_files && argument[0] == '-' && argument[1]) status = parse_option(options, arguments, &i, error);
        else options->given[options->given_count++] = (ci_given){NULL, argument, 0};
        if (status) return status;
    }
    return check(options, error);
}

static void list_ports(ci_text *out, const char *title, const ci_model *model, const ci_port *ports, int32_t count)
{
    ci_put_text(out, title);
    for (int32_t i = 0; i < count; i++) {
        ci_put_text(out, "  ");
        ci_put_padded(out, ports[i].name, 16);
        ci_put(out, " %s ", ci_type_name(ports[i].type));
        ci_put_shape(out, ports[i].rank, ports[i].dims, model->sizes);
        ci_put_text(out, "\n");
    }
}

void ci_options_help(ci_text *out, const ci_model *model)
{
    ci_put(out,
           "Usage: %s [OPTION...] [FILE...]\n"
           "Runs the model on the inputs and prints its outputs as JSON.\n"
           "\n"
           "FILE is .npy, .npz or JSON (nested lists, or an object of inputs by name), whatever its name;\n"
           "- is standard input, read too where no FILE is given. Arrays without a name are the inputs\n"
           "in order.\n",
           model->name);
    list_ports(out, "\nInputs:\n", model, model->inputs, model->input_count);
    list_ports(out, "Outputs:\n", model, model->outputs, model->output_count);
    ci_put_text(out, "\n"
                     "  --input NAME=FILE    one input, by name\n"
                     "  -o, --output FILE    write .npz, .npy (one output) or .json; whole, or not at all;\n"
                     "                       -: .npy (several outputs: .npz) to standard output\n"
                     "  --stream             answer each line of JSON with one\n"
                     "  --weights FILE       other weights: packed, .safetensors or .bpk\n"
                     "  --save-weights FILE  write the weights, packed, and stop\n"
                     "  --threads N          threads; 0, the default: all this process may use\n"
                     "  --repeat N           run N times after a first one, times on standard error\n"
                     "  --profile            time of each step, on standard error\n"
                     "  --info               the model as JSON\n"
                     "  --selftest           compare with outputs recorded at build\n"
                     "  --version, -h, --help\n"
                     "\n"
                     "Exit status: 1 the self-test found a difference; 2 usage, input or output; 3 weights;\n"
                     "4 out of memory.\n");
}
