/* Natural numbers of up to 2816 bits: enough for every float64 with 800 decimal digits. */
#ifndef CASTIRON_EXE_BIGNUM_H
#define CASTIRON_EXE_BIGNUM_H

#include "../castiron.h"

typedef struct ci_big {
    int count; /* words in use, the last one not zero */
    uint32_t words[88];
} ci_big;

void ci_big_set(ci_big *a, uint64_t value);
void ci_big_multiply(ci_big *a, uint32_t factor, uint32_t add);
void ci_big_power5(ci_big *a, int exponent); /* a *= 5^exponent */
void ci_big_shift(ci_big *a, int bits);      /* a *= 2^bits */
void ci_big_subtract(ci_big *a, const ci_big *b); /* b <= a */
int ci_big_compare(const ci_big *a, const ci_big *b, const ci_big *c); /* a + b with c: -1, 0 or 1 */
int ci_big_width(const ci_big *a); /* in bits */

#endif
