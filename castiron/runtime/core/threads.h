/* The threads of a session. */
#ifndef CI_THREADS_H
#define CI_THREADS_H

#include "../castiron.h"

typedef struct ci_pool ci_pool;

/* threads counts the caller; 0: as many as this process may use. None starts before work is worth it. NULL: no memory. */
ci_pool *ci_pool_new(int threads);
void ci_pool_free(ci_pool *pool);

#endif
