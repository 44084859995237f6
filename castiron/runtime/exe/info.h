/* --info: the model as JSON. */
#ifndef CASTIRON_EXE_INFO_H
#define CASTIRON_EXE_INFO_H

#include "../api.h"
#include "io.h"

/* `session` may be NULL, where the weights cannot be loaded. */
void ci_info(const ci_model *model, const ci_session *session, ci_text *out);

#endif
