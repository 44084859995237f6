/* Loads every file named on the command line with the fake model and prints "STATUS MESSAGE" a line; before, for --mutate
   FILE, every truncation of the file and every single-byte change to its header must be refused or leave it usable. */
#include "../../castiron/runtime/api.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const ci_model *fake_model(const char *name);

static int try_bytes(const char *bytes, size_t size)
{
    ci_error error = {"unset"};
    ci_weights *weights = (ci_weights *)1;
    char *copy = malloc(size ? size : 1); /* of the exact size, so that the address sanitizer sees a byte too far */
    memcpy(copy, bytes, size);
    int status = ci_load_bytes(fake_model("file"), copy, size, &weights, &error);
    if (status ? weights != NULL || !*error.text || !strcmp(error.text, "unset") : !weights) abort();
    if (status && status != CI_BAD_WEIGHTS) abort();
    ci_weights_free(weights);
    free(copy);
    return status;
}

static void mutate(char *bytes, size_t size, size_t header)
{
    static const char values[] = {0,   1,   ' ', '"', '\\', '{', '}',        '[',        ']',       ',',
                                  ':', '-', '9', 'u', 127,  -1,  (char)0x9b, (char)0xa4, (char)0xbb};
    long refused = 0, tried = 0;
    if (try_bytes(bytes, size)) abort();
    for (size_t cut = 0; cut < size; ++cut)
        if (!try_bytes(bytes, cut)) abort();
    for (size_t i = 0; i < header; ++i) {
        char before = bytes[i];
        for (size_t v = 0; v < sizeof values; ++v) {
            bytes[i] = values[v];
            refused += try_bytes(bytes, size) != 0;
            ++tried;
        }
        bytes[i] = before;
    }
    printf("%ld of %ld refused\n", refused, tried);
}

int main(int count, char **arguments)
{
    for (int i = 1; i < count; ++i) {
        if (!strcmp(arguments[i], "--mutate")) {
            static char bytes[1 << 16];
            int file = open(arguments[++i], O_RDONLY);
            size_t size = (size_t)read(file, bytes, sizeof bytes);
            uint64_t header;
            memcpy(&header, bytes, 8);
            mutate(bytes, size, header < size ? header + 8 : size);
            close(file);
            continue;
        }
        ci_weights *weights;
        ci_error error = {""};
        int status = ci_load(fake_model("file"), strcmp(arguments[i], "-") ? arguments[i] : NULL, &weights, &error);
        printf("%d %s\n", status, error.text);
        ci_weights_free(weights);
    }
    return 0;
}
