/* What went wrong in a system call, in words. */
#ifndef CI_REASON_H
#define CI_REASON_H

const char *ci_reason(int code); /* of an errno; strerror would bring all its texts along */

#endif
