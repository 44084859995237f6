#ifndef CI_START_H
#define CI_START_H

extern const char *ci_kernel_functions; /* the library that the kernel maps into each process, or NULL */

#endif
