#define _POSIX_C_SOURCE 200809L

#include "arrays.h"
#include "info.h"
#include "json.h"
#include "measure.h"
#include "npy.h"
#include "npz.h"
#include "options.h"
#include "selftest.h"
#include "stream.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const ci_model *const ci_main_model;

/* Reading inputs --------------------------------------------------------------------------------------------------- */

/* Named files first: the others then take the inputs that are left. */
static CI_APART int read_given(ci_inputs *inputs, const ci_options *options, ci_error *error)
{
    int status = CI_OK;
    for (int named = 1; named >= 0; named--)
        for (int i = 0; i < options->given_count && !status; i++) {
            const ci_given *given = &options->given[i];
            int index = -1;
            if ((given->name != NULL) != named) continue;
            if (named) status = ci_inputs_find(inputs, given->name, given->name_length, "--input", &index, error);
            if (!status) status = ci_inputs_read(inputs, given->path, index, error);
        }
    return status;
}

static int read_inputs(ci_inputs *inputs, const ci_options *options, ci_error *error)
{
    int status;
    if (options->given_count || !inputs->model->input_count) {
        status = read_given(inputs, options, error);
    } else {
        if (isatty(STDIN_FILENO)) return ci_refuse(error, "no input: give files, or JSON on standard input; see --help");
        status = ci_inputs_read(inputs, "-", -1, error);
    }
    return status ? status : ci_inputs_complete(inputs, error);
}

/* Writing outputs -------------------------------------------------------------------------------------------------- */

static int write_npy(ci_text *out, const ci_model *model, const ci_array *outputs, ci_error *error)
{
    char header[CI_NPY_HEADER];
    if (model->output_count != 1)
        return ci_refuse(error, "-o: a .npy holds one array and the model gives %d; use .npz", model->output_count);
    ci_put_bytes(out, header, ci_npy_header(header, outputs));
    return ci_npy_data(out, outputs, NULL, error);
}

static int write_outputs(const char *path, const ci_model *model, const ci_array *outputs, ci_error *error)
{
    ci_file file;
    bool json = !path || ci_ends(path, ".json"), named = path && (ci_ends(path, ".npy") || ci_ends(path, ".npz"));
    bool npy = named ? ci_ends(path, ".npy") : model->output_count == 1;
    int status = ci_file_create(&file, path ? path : "-", error);
    if (status) return status;
    if (json) status = ci_json_write(&file.out.text, model, outputs, error);
    else if (npy) status = write_npy(&file.out.text, model, outputs, error);
    else status = ci_npz_write(&file.out.text, model, outputs, error);
    return ci_file_close(&file, status, error);
}

/* What the options ask for ----------------------------------------------------------------------------------------- */

static int run(ci_session *session, const ci_options *options, ci_inputs *inputs, ci_array *outputs, ci_error *error)
{
    ci_out log;
    ci_out_open(&log, STDERR_FILENO);
    int status = read_inputs(inputs, options, error);
    ci_session_profile(session, options->profile && !options->repeat);
    if (!status) status = ci_session_run(session, inputs->arrays, outputs, error);
    if (!status && options->repeat) {
        ci_session_profile(session, options->profile);
        status = ci_repeat(session, inputs->model, inputs->arrays, outputs, options->repeat, &log.text, error);
    }
    if (!status && options->profile) ci_profile(session, options->repeat ? options->repeat : 1, &log.text);
    ci_out_flush(&log);
    return status ? status : write_outputs(options->output, inputs->model, outputs, error);
}

static int run_or_stream(ci_session *session, const ci_options *options, ci_out *out, ci_error *error)
{
    const ci_model *model = ci_main_model;
    ci_inputs inputs;
    ci_array *outputs = calloc((size_t)model->output_count + 1, sizeof *outputs);
    int status = ci_inputs_new(&inputs, model, error);
    if (!status && !outputs) status = ci_no_memory(error, model->output_count * (int64_t)sizeof *outputs);
    if (!status && options->stream) status = ci_stream(session, &inputs, outputs, out, error);
    else if (!status) status = run(session, options, &inputs, outputs, error);
    ci_inputs_free(&inputs);
    free(outputs);
    return status;
}

static int with_session(const ci_options *options, ci_out *out, ci_error *error)
{
    ci_weights *weights = NULL;
    ci_session *session = NULL;
    int status = ci_load(ci_main_model, options->weights, &weights, error);
    if (!status && options->save_weights) {
        status = ci_weights_save(weights, options->save_weights, error);
    } else {
        if (!status) status = ci_session_new(weights, (int)options->threads, &session, error);
        /* without its weights file, a model still says what it is */
        if (options->info && !options->weights) status = CI_OK;
        if (!status && options->info) ci_info(ci_main_model, session, &out->text);
        else if (!status && options->selftest) status = ci_selftest(ci_main_model, session, &out->text, error);
        else if (!status) status = run_or_stream(session, options, out, error);
    }
    ci_session_free(session);
    ci_weights_free(weights);
    return status;
}

static CI_APART int act(const ci_options *options, ci_error *error)
{
    ci_out out;
    int status = CI_OK;
    ci_out_open(&out, STDOUT_FILENO);
    if (options->help) ci_options_help(&out.text, ci_main_model);
    else if (options->version) ci_put(&out.text, "%s (castiron %s)\n", ci_main_model->name, ci_main_model->version);
    else status = with_session(options, &out, error);
    ci_out_flush(&out);
    int written = ci_out_status(&out, "standard output", error);
    return written ? written : status;
}

/* A reader that has gone is an error to report, not a sudden death. */
static void block_pipe_signal(void)
{
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe, NULL);
}

int main(int count, char **arguments)
{
    ci_options options;
    ci_error error = {""};
    block_pipe_signal();
    int status = ci_options_parse(&options, count, arguments, &error);
    if (!status) status = act(&options, &error);
    free(options.given);
    if (status) {
        ci_out log;
        ci_out_open(&log, STDERR_FILENO);
        ci_put(&log.text, "%s: %s\n", ci_main_model->name, error.text);
        ci_out_flush(&log);
    }
    return status;
}
