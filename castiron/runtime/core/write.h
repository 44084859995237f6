/* Files that appear whole or not at all: written beside their place, then renamed. */
#ifndef CI_WRITE_H
#define CI_WRITE_H

#include "../castiron.h"

enum { CI_PATH_ROOM = 4096 }; /* bytes of the longest path that the system takes */

/* False, and errno, where not all could be written. */
bool ci_write_all(int file, const char *bytes, size_t size);

/* A new file beside `path`, whose name it puts into `name`; below 0, and errno, where there can be none. */
int ci_open_beside(const char *path, char *name, size_t size);

#endif
