/* Numbers as text: floats by their bits in the format of an element type, without libc and without tables. */
#ifndef CASTIRON_EXE_NUMBER_H
#define CASTIRON_EXE_NUMBER_H

#include "../core/error.h"

/* The shortest decimal that reads back to `bits` of the float type, spelled as Python's repr spells it; NaN, Infinity
   and -Infinity as Python's json does. Gives the length; the text, of at most CI_NUMBER_ROOM characters, is not terminated. */
int ci_print_float(char *text, uint64_t bits, int32_t type);

/* Infinity, or a NaN. */
uint64_t ci_special(int32_t type, bool infinite);

/* The value of a float type's bits as float64. */
double ci_widen(uint64_t bits, int32_t type);
/* The unit of the last place of a positive value in a float type: of float64, the least that is a normal number. */
double ci_unit_of(double value, int32_t type);

/* Reads a JSON number, which the caller has checked to be one, rounded once to the nearest of the float type, ties to
   even. Gives false where it rounds to infinity. */
bool ci_parse_float(const char *text, const char *end, int32_t type, uint64_t *bits);
/* Reads decimal digits. Gives false for anything else and for more than `limit`. */
bool ci_parse_uint(const char *text, const char *end, uint64_t limit, uint64_t *value);

#endif
