#!/bin/sh
# build.sh PYTHON SAFETENSORS HERE [--random]: the program, in HERE.
set -e
source=$(dirname "$0")
"$1" "$source/weights_h.py" "$2" "$3/weights.h" $4
"$1" -m ziglang cc -target "$(uname -m)-linux-musl" -Os -fPIC -I"$3" "$source/mlp.c" -o "$3/mlp"
