/* What the C library keeps for each thread (errno): around the thread pointer, behind it on x86-64, where it begins with its
   own address, before it on arm64. */
#ifndef CI_THREAD_AREA_H
#define CI_THREAD_AREA_H

typedef struct ci_thread_area {
    char before[1024];
    _Alignas(64) void *self;
    char behind[1024];
} ci_thread_area;

#endif
