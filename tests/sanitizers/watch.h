/* Included before the core's own files where a sanitizer watches: memory mapped by the runtime ends exactly where its size
   says, buffers of the arena stand apart from each other, and a run starts with an arena that holds nothing. */
#ifndef CI_WATCH_H
#define CI_WATCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

void *watch_mmap(void *at, size_t size, int protection, int flags, int file, long offset);
int watch_munmap(void *data, size_t size);

#ifndef WATCH_ITSELF
#define mmap watch_mmap
#define munmap watch_munmap
#define ci_plan watch_plan
#ifdef WATCH_STEPS
#define ci_run_steps watch_run_steps
#endif
#endif

#endif
