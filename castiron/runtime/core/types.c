#include "types.h"

#include <string.h>

/* Numbered as in ci_type, one zero byte behind each. */
static const char names[] = "unknown\0float32\0uint8\0int8\0uint16\0int16\0int32\0int64\0string\0bool\0float16\0float64\0"
                            "uint32\0uint64\0complex64\0complex128\0bfloat16\0float8_e4m3fn\0float8_e4m3fnuz\0"
                            "float8_e5m2\0float8_e5m2fnuz\0uint4\0int4\0float4_e2m1\0float8_e8m0\0uint2\0int2";
static const char codes[] = "\0F32\0U8\0I8\0U16\0I16\0I32\0I64\0\0BOOL\0F16\0F64\0U32\0U64\0\0\0BF16";
static const uint8_t bytes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 0, 0, 2, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1};

static const char *pick(const char *list, int32_t type, int32_t last)
{
    for (int32_t i = type < 0 || type > last ? 0 : type; i > 0; --i) list += strlen(list) + 1;
    return list;
}

const char *ci_type_name(int32_t type) { return pick(names, type, CI_INT2); }
const char *ci_type_code(int32_t type) { return pick(codes, type, CI_BFLOAT16); }
int32_t ci_type_bytes(int32_t type) { return type < 0 || type > CI_INT2 ? 0 : bytes[type]; }

int64_t ci_array_bytes(int32_t type, int32_t rank, const int64_t *dims)
{
    const int64_t most = (int64_t)1 << 47;
    int64_t size = ci_type_bytes(type), extent = size;
    for (int32_t i = 0; i < rank; ++i) {
        /* Dimensions beside a zero are held to the same bound: what is derived from them must not overflow either. */
        int64_t dim = dims[i] ? dims[i] : 1;
        if (dim < 0 || extent > most / dim) return -1;
        extent *= dim;
        size *= dims[i];
    }
    return size;
}
