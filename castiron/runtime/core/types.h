/* Element types: what they are called and how large they are. */
#ifndef CI_TYPES_H
#define CI_TYPES_H

#include "../castiron.h"

/* "float32", as NumPy and ONNX name it; "unknown" for what is no type. */
const char *ci_type_name(int32_t type);

/* Bytes of an element; 0 for types that arrays cannot have here. */
int32_t ci_type_bytes(int32_t type);

/* "F32", as safetensors and burnpack files name it; "" for types they do not have. */
const char *ci_type_code(int32_t type);

/* Bytes of a dense array; -1 where a dimension is negative or the array could not exist in an address space. */
int64_t ci_array_bytes(int32_t type, int32_t rank, const int64_t *dims);

#endif
