/* The MLP of mlp.py by hand, as somebody's own way to ship it: mlp x.npy prints JSON.

   weights.h holds the numbers (row-major, as PyTorch has them), written from the model by the build command. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "weights.h"

enum { IN = 4, HIDDEN = 8, OUT = 3 };

static void forward(const float *x, float *y)
{
    float hidden[HIDDEN];
    for (int h = 0; h < HIDDEN; h++) {
        float sum = fc1_bias[h];
        for (int i = 0; i < IN; i++) sum += fc1_weight[h * IN + i] * x[i];
        hidden[h] = sum > 0 ? sum : 0;
    }
    for (int o = 0; o < OUT; o++) {
        y[o] = fc2_bias[o];
        for (int h = 0; h < HIDDEN; h++) y[o] += fc2_weight[o * HIDDEN + h] * hidden[h];
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int count, char **arguments)
{
    int repeat = count > 3 && !strcmp(arguments[1], "--repeat") ? atoi(arguments[2]) : 0;
    FILE *file = count > 1 ? fopen(arguments[count - 1], "rb") : NULL;
    unsigned char start[10];
    if (!file || fread(start, 1, 10, file) != 10) return fprintf(stderr, "mlp: give the input as .npy\n"), 2;
    fseek(file, start[8] | start[9] << 8, SEEK_CUR);
    float x[64][IN], y[64][OUT];
    int rows = (int)fread(x, sizeof x[0], 64, file);
    for (int row = 0; row < rows; row++) forward(x[row], y[row]);
    printf("{\"y\": [");
    for (int row = 0; row < rows; row++)
        printf("%s[%.9g, %.9g, %.9g]", row ? ", " : "", (double)y[row][0], (double)y[row][1], (double)y[row][2]);
    printf("]}\n");
    if (repeat) printf("{\"calls\": [");
    for (int call = 0; call < repeat; call++) {
        double before = now();
        for (int row = 0; row < rows; row++) forward(x[row], y[row]);
        printf("%s%.9f", call ? ", " : "", now() - before);
    }
    if (repeat) printf("]}\n");
    return 0;
}
