/* Memory straight from the system: page-aligned, zeroed at first, and gone at once when freed. */
#ifndef CI_MEMORY_H
#define CI_MEMORY_H

#include "../castiron.h"

/* Makes the block hold at least `size` bytes; its contents are lost where it grows. False: no memory, the block is empty. */
bool ci_block_grow(ci_block *block, int64_t size);
void ci_block_seal(ci_block *block); /* read-only from here on */
void ci_block_free(ci_block *block);

/* Maps a regular file, read-only. Failures are those of a weights file. */
int ci_file_map(const char *path, ci_block *block, ci_error *error);

/* The folder of the file this code runs from, its last '/' included: the executable, or (CI_SHARED) the shared library. */
bool ci_own_folder(char *folder, size_t size);

#endif
