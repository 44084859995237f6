#include "reason.h"

#include <errno.h>

const char *ci_reason(int code)
{
    switch (code) {
    case ENOENT: return "no such file or folder";
    case EACCES:
    case EPERM: return "permission denied";
    case EISDIR: return "it is a folder";
    case ENOTDIR: return "a part of its path is no folder";
    case ENAMETOOLONG: return "its path is too long";
    case ENOMEM: return "out of memory";
    case ENOSPC: return "no space left on the device";
    case EPIPE: return "the reader has gone";
    case EROFS: return "the file system is read-only";
    case EMFILE:
    case ENFILE: return "too many open files";
    default: return "input/output error";
    }
}
