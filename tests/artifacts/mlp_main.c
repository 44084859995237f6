/* Runs the MLP of a library on x[k] = 0.1 k - 0.7 and prints the bits of its output, a number a line. */
#include "mlp.h"

#include <stdio.h>
#include <string.h>

#ifdef WITH_CONV
#include "conv.h"
#endif

static void print_bits(const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        printf("%08x\n", (unsigned)bits);
    }
}

static int run_mlp(void)
{
    static float x[20];
    mlp_error error;
    mlp_weights *weights;
    mlp_session *session;
    mlp_array inputs[MLP_INPUTS] = {{0}}, outputs[MLP_OUTPUTS] = {{0}};
    for (int k = 0; k < 20; k++) x[k] = (float)(0.1 * k - 0.7);
    if (mlp_load(NULL, &weights, &error)) return fprintf(stderr, "%s\n", error.text), 1;
    if (mlp_session_new(weights, 2, &session, &error)) return fprintf(stderr, "%s\n", error.text), 1;
    inputs[MLP_INPUT_X] = (mlp_array){x, 1, 2, {5, 4}};
    if (mlp_session_run(session, inputs, outputs, &error)) return fprintf(stderr, "%s\n", error.text), 1;
    if (strcmp(mlp_input_name(0), "x") || mlp_input_name(1) || mlp_output_name(-1)) return 1;
    print_bits(outputs[MLP_OUTPUT_Y].data, outputs[MLP_OUTPUT_Y].dims[0] * outputs[MLP_OUTPUT_Y].dims[1]);
    inputs[MLP_INPUT_X].dims[1] = 3;
    if (mlp_session_run(session, inputs, outputs, &error) != MLP_BAD_INPUT || !strstr(error.text, "'x'")) return 1;
    mlp_session_free(session);
    mlp_weights_free(weights);
    return 0;
}

#ifdef WITH_CONV
static int run_conv(void)
{
    static float x[3 * 6 * 6], y[4 * 4 * 4];
    conv_error error;
    conv_weights *weights;
    conv_session *session;
    conv_array inputs[CONV_INPUTS] = {{0}}, outputs[CONV_OUTPUTS] = {{0}};
    for (int k = 0; k < 3 * 6 * 6; k++) x[k] = (float)(0.1 * k - 0.7);
    inputs[0] = (conv_array){x, 1, 4, {1, 3, 6, 6}};
    outputs[0].data = y;
    if (conv_load(NULL, &weights, &error)) return fprintf(stderr, "%s\n", error.text), 1;
    if (conv_session_new(weights, 0, &session, &error)) return fprintf(stderr, "%s\n", error.text), 1;
    if (conv_session_run(session, inputs, outputs, &error)) return fprintf(stderr, "%s\n", error.text), 1;
    print_bits(y, 4 * 4 * 4);
    conv_session_free(session);
    conv_weights_free(weights);
    return 0;
}
#endif

int main(void)
{
    if (run_mlp()) return 1;
#ifdef WITH_CONV
    if (run_conv()) return 1;
#endif
    return 0;
}
