/* Weights and sessions: what NAME.h offers under the model's own prefix, by these functions. */
#ifndef CASTIRON_API_H
#define CASTIRON_API_H

#include "castiron.h"

typedef struct ci_weights ci_weights; /* loaded, immutable, shared by any number of sessions and threads */
typedef struct ci_session ci_session; /* one caller's memory and threads */

/* An array of the caller: row-major and dense. For outputs `data` may be NULL: then ci_session_run points it at memory
   of the session, valid until the next run, and fills in the shape. */
typedef struct ci_array {
    void *data;
    int32_t type, rank;
    int64_t dims[CI_MAX_RANK];
} ci_array;

/* Weights from where the model says (path NULL), or from a packed or raw (.safetensors, .bpk) file. */
int ci_load(const ci_model *model, const char *path, ci_weights **weights, ci_error *error);
/* The same from memory, which stays the caller's; packed bytes must be 64-byte aligned and outlive the weights. */
int ci_load_bytes(const ci_model *model, const void *bytes, size_t size, ci_weights **weights, ci_error *error);
void ci_weights_free(ci_weights *weights);
/* Writes the packed form to `path`, whole or not at all. */
int ci_weights_save(const ci_weights *weights, const char *path, ci_error *error);
const ci_model *ci_weights_model(const ci_weights *weights);

/* threads 0: as many as this process may use. */
int ci_session_new(const ci_weights *weights, int threads, ci_session **session, ci_error *error);
void ci_session_free(ci_session *session);
/* Fills in type, rank and dims of the outputs for these inputs, without running; -1 for a dimension that only the run tells:
   such an output keeps `data` NULL and lies in memory of the session. */
int ci_session_shape(ci_session *session, const ci_array *inputs, ci_array *outputs, ci_error *error);
/* Checks the inputs, plans memory where sizes are new, runs. Allocates nothing while sizes stay, those that data tell
   included: their memory grows when it must. */
int ci_session_run(ci_session *session, const ci_array *inputs, ci_array *outputs, ci_error *error);

/* Profiling: nanoseconds each forward step took in all runs since the session was made or reset. */
void ci_session_profile(ci_session *session, bool on);
int64_t ci_session_step_ns(const ci_session *session, int32_t step);
const ci_code *ci_session_code(const ci_session *session);
int64_t ci_session_arena_bytes(const ci_session *session);

#endif
