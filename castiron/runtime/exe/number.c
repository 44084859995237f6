#include "number.h"

#include "bignum.h"

#include <string.h>

typedef unsigned __int128 uint128;

/* value = mantissa * 2^exponent, mantissa < 2^precision, exponent >= least */
typedef struct format {
    int16_t type, precision, least, exponent_bits;
} format;

static CI_APART const format *format_of(int32_t type)
{
    static const format formats[] = {
        {CI_FLOAT, 24, -149, 8}, {CI_FLOAT16, 11, -24, 5}, {CI_BFLOAT16, 8, -133, 8}, {CI_DOUBLE, 53, -1074, 11}};
    const format *f = formats;
    while (f->type != type) f++;
    return f;
}

static uint64_t infinity_of(const format *f) { return ((1ull << f->exponent_bits) - 1) << (f->precision - 1); }

static ci_big none; /* 0; a constant would take its whole size in the file */

/* Printing --------------------------------------------------------------------------------------------------------- */

/* A float taken apart. `narrow`: the gap below is half the gap above. `even`: both midpoints round to it. */
typedef struct binary {
    uint64_t mantissa;
    int exponent;
    bool narrow, even;
} binary;

/* Digits d1 d2 ..., standing for 0.d1d2... * 10^point. */
typedef struct digits {
    int count, point;
    char text[20];
} digits;

/* At most the true point, at least one less: floor(log10) of the power of two below the value. */
static int least_point(const binary *b)
{
    int width = 64 - __builtin_clzll(b->mantissa);
    return (int)(((int64_t)(b->exponent + width - 1) * 1292913986) >> 32);
}

/* Both generators follow Burger and Dybvig: value = r / s, half gaps below and above `low` / s and `high` / s; digits are
   taken off until what is left is within a half gap. This one, for nearly all numbers of models, is four times faster;
   it needs -110 <= exponent <= 60 to stay in 128 bits. */
static void shortest_small(const binary *b, digits *out)
{
    int narrow = b->narrow, up = b->exponent > 0 ? b->exponent : 0, down = b->exponent < 0 ? -b->exponent : 0;
    uint128 r = (uint128)b->mantissa << (1 + narrow + up), s = (uint128)1 << (1 + narrow + down);
    uint128 low = (uint128)1 << up;
    out->point = least_point(b);
    for (int i = 0; i < out->point; i++) s *= 10;
    for (int i = 0; i > out->point; i--) r *= 10, low *= 10;
    while (r + (low << narrow) + b->even > s) s *= 10, out->point++;
    for (out->count = 0;;) {
        int digit = 0;
        r *= 10, low *= 10;
        for (; r >= s; r -= s) digit++;
        bool below = low + b->even > r, above = r + (low << narrow) + b->even > s;
        if (below && above) above = r * 2 > s || (r * 2 == s && digit % 2);
        out->text[out->count++] = (char)('0' + digit + above);
        if (below || above) return;
    }
}

static void shortest_big(const binary *b, digits *out)
{
    ci_big r, s, low, high;
    int narrow = b->narrow, up = b->exponent > 0 ? b->exponent : 0, down = b->exponent < 0 ? -b->exponent : 0;
    int point = least_point(b), tens = point < 0 ? -point : 0, reached = b->even ? 0 : 1;
    ci_big_set(&low, 1);
    ci_big_power5(&low, tens);
    ci_big_shift(&low, up + tens);
    high = low;
    ci_big_shift(&high, narrow);
    ci_big_set(&r, b->mantissa);
    ci_big_power5(&r, tens);
    ci_big_shift(&r, 1 + narrow + up + tens);
    ci_big_set(&s, 1);
    ci_big_power5(&s, point > 0 ? point : 0);
    ci_big_shift(&s, 1 + narrow + down + (point > 0 ? point : 0));
    for (; ci_big_compare(&r, &high, &s) >= reached; point++) ci_big_multiply(&s, 10, 0);
    out->point = point;
    for (out->count = 0;;) {
        int digit = 0;
        ci_big_multiply(&r, 10, 0), ci_big_multiply(&low, 10, 0), ci_big_multiply(&high, 10, 0);
        for (; ci_big_compare(&r, &none, &s) >= 0; digit++) ci_big_subtract(&r, &s);
        bool below = ci_big_compare(&r, &none, &low) <= -reached, above = ci_big_compare(&r, &high, &s) >= reached;
        if (below && above) {
            int half = ci_big_compare(&r, &r, &s);
            above = half > 0 || (half == 0 && digit % 2);
        }
        out->text[out->count++] = (char)('0' + digit + above);
        if (below || above) return;
    }
}

static int print_exponent(char *text, int exponent)
{
    int length = 0;
    text[length++] = 'e';
    text[length++] = exponent < 0 ? '-' : '+';
    if (exponent < 0) exponent = -exponent;
    if (exponent < 10) text[length++] = '0';
    return length + ci_print_uint(text + length, (uint64_t)exponent);
}

static int spell(char *text, const digits *d)
{
    int length = 0, point = d->point;
    bool scientific = point <= -4 || point > 16;
    int before = scientific ? 1 : point; /* digits before the decimal point */
    if (before <= 0) text[length++] = '0', text[length++] = '.';
    for (int i = before; i < 0; i++) text[length++] = '0';
    for (int i = 0; i < d->count || i < before; i++) {
        if (i == before && i > 0) text[length++] = '.';
        text[length++] = i < d->count ? d->text[i] : '0';
    }
    if (scientific) return length + print_exponent(text + length, point - 1);
    if (before >= d->count) text[length++] = '.', text[length++] = '0';
    return length;
}

static uint64_t sign_of(const format *f) { return 1ull << (f->precision - 1 + f->exponent_bits); }

/* Of the bits of a finite number without its sign. */
static binary take_apart(const format *f, uint64_t bits)
{
    uint64_t hidden = 1ull << (f->precision - 1);
    int field = (int)(bits / hidden);
    binary b = {bits % hidden + (field ? hidden : 0), f->least + (field ? field - 1 : 0), false, bits % 2 == 0};
    b.narrow = b.mantissa == hidden && field > 1;
    return b;
}

int ci_print_float(char *text, uint64_t bits, int32_t type)
{
    const format *f = format_of(type);
    bool negative = bits & sign_of(f);
    bits &= sign_of(f) - 1;
    if (bits > infinity_of(f)) return memcpy(text, "NaN", 3), 3;
    if (negative) *text++ = '-';
    if (bits == infinity_of(f)) return memcpy(text, "Infinity", 8), 8 + negative;
    if (bits == 0) return memcpy(text, "0.0", 3), 3 + negative;
    binary b = take_apart(f, bits);
    digits d;
    (b.exponent >= -110 && b.exponent <= 60 ? shortest_small : shortest_big)(&b, &d);
    return spell(text, &d) + negative;
}

/* Values --------------------------------------------------------------------------------------------------------- */

static double power_of_2(int64_t exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double ci_widen(uint64_t bits, int32_t type)
{
    const format *f = format_of(type);
    uint64_t magnitude = bits & (sign_of(f) - 1);
    double value;
    if (type == CI_DOUBLE) return memcpy(&value, &bits, sizeof value), value;
    binary b = take_apart(f, magnitude);
    value = (double)(int64_t)b.mantissa * power_of_2(b.exponent);
    if (magnitude >= infinity_of(f)) value = magnitude > infinity_of(f) ? __builtin_nan("") : __builtin_inf();
    return bits & sign_of(f) ? -value : value;
}

double ci_unit_of(double value, int32_t type)
{
    const format *f = format_of(type);
    int64_t bits, least = type == CI_DOUBLE ? -1022 : f->least;
    memcpy(&bits, &value, sizeof bits);
    int64_t exponent = (bits >> 52) - 1023 - (f->precision - 1);
    return power_of_2(exponent > least ? exponent : least);
}

uint64_t ci_special(int32_t type, bool infinite)
{
    const format *f = format_of(type);
    return infinity_of(f) | (uint64_t)!infinite << (f->precision - 2);
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

bool ci_parse_uint(const char *text, const char *end, uint64_t limit, uint64_t *value)
{
    *value = 0;
    if (text == end) return false;
    for (; text < end; text++) {
        uint64_t digit = (uint64_t)(unsigned char)*text - '0';
        if (digit > 9 || *value > limit / 10 || *value * 10 > limit - digit || digit > limit) return false;
        *value = *value * 10 + digit;
    }
    return true;
}

/* Decimal text: significant digits times 10^exponent. */
typedef struct decimal {
    const char *text, *end; /* of the digits, with at most one point */
    uint64_t head;          /* the first 19 significant digits */
    int head_count;
    bool more;              /* digits other than 0 follow the head */
    int64_t exponent;       /* of the head's last digit */
} decimal;

static int64_t read_exponent(const char *text, const char *end)
{
    int64_t value = 0;
    bool negative = text < end && *text == '-';
    if (text < end && (*text == '-' || *text == '+')) text++;
    for (; text < end; text++)
        if (value < 1000000000000) value = value * 10 + (*text - '0');
    return negative ? -value : value;
}

static decimal read_decimal(const char *text, const char *end)
{
    decimal d = {text, text, 0, 0, false, 0};
    bool point = false;
    for (; d.end < end && *d.end != 'e' && *d.end != 'E'; d.end++) {
        int digit = *d.end - '0';
        if (*d.end == '.') {
            point = true;
        } else if (d.head_count < 19) {
            d.head = d.head * 10 + (uint64_t)digit;
            d.head_count += d.head != 0;
            d.exponent -= point;
        } else {
            d.more |= digit != 0;
            d.exponent += !point;
        }
    }
    if (d.end < end) d.exponent += read_exponent(d.end + 1, end);
    return d;
}

/* Rounds mantissa * 2^exponent, and a little more where `sticky`, once. mantissa < 2^127. */
static bool round_to(const format *f, uint128 mantissa, int exponent, bool sticky, uint64_t *bits)
{
    uint64_t high = (uint64_t)(mantissa >> 64), low = (uint64_t)mantissa;
    int width = high ? 128 - __builtin_clzll(high) : 64 - __builtin_clzll(low);
    int drop = width - f->precision > f->least - exponent ? width - f->precision : f->least - exponent;
    if (drop > 127) return *bits = 0, true;
    if (drop > 0) {
        uint128 half = (uint128)1 << (drop - 1), rest = mantissa & (2 * half - 1);
        mantissa >>= drop;
        mantissa += rest > half || (rest == half && (sticky || mantissa % 2));
    } else {
        mantissa <<= -drop;
    }
    /* the mantissa's leading bit, and a carry out of rounding, add to the exponent's field */
    uint64_t field = (uint64_t)(exponent + drop - f->least);
    *bits = (field << (f->precision - 1)) + (uint64_t)mantissa;
    return field < (1ull << f->exponent_bits) && *bits < infinity_of(f);
}

/* Heads of 64 bits times or over 5^27 are exact in 128 bits; the C library's division of them would be larger than this
   one, bit by bit. */
static bool parse_small(const format *f, uint64_t head, int exponent, uint64_t *bits)
{
    uint64_t power = 1;
    for (int i = exponent < 0 ? -exponent : exponent; i > 0; i--) power *= 5;
    if (exponent >= 0) return round_to(f, (uint128)head * power, exponent, false, bits);
    int up = __builtin_clzll(head), down = __builtin_clzll(power);
    uint128 rest = head << up, divisor = power << down, quotient = 0;
    for (int i = 0; i < 66; i++, rest *= 2) {
        quotient *= 2;
        if (rest >= divisor) rest -= divisor, quotient++;
    }
    return round_to(f, quotient, exponent + down - up - 65, rest != 0, bits);
}

/* All digits up to the 780th; a later one only matters by not being zero, and a final 1 says so. */
static int64_t read_digits(const decimal *d, ci_big *number)
{
    int count = 0;
    int64_t exponent = d->exponent;
    bool rest = false;
    int64_t seen = 0; /* significant digits */
    ci_big_set(number, 0);
    for (const char *at = d->text; at < d->end; at++) {
        if (*at == '.' || (seen == 0 && *at == '0')) continue;
        seen++;
        if (count < 780) ci_big_multiply(number, 10, (uint32_t)(*at - '0')), count++;
        else rest |= *at != '0';
    }
    exponent -= count - d->head_count;
    if (rest) ci_big_multiply(number, 10, 1), exponent--;
    return exponent;
}

static bool parse_big(const format *f, const decimal *d, uint64_t *bits)
{
    ci_big number, divisor;
    int exponent = (int)read_digits(d, &number);
    ci_big_set(&divisor, 1);
    ci_big_power5(exponent < 0 ? &divisor : &number, exponent < 0 ? -exponent : exponent);
    int excess = ci_big_width(&number) - ci_big_width(&divisor);
    ci_big_shift(excess > 0 ? &divisor : &number, excess > 0 ? excess : -excess);
    uint128 quotient = 0;
    for (int i = 0; i < 66; i++) {
        quotient *= 2;
        if (ci_big_compare(&number, &none, &divisor) >= 0) {
            ci_big_subtract(&number, &divisor);
            quotient++;
        }
        ci_big_shift(&number, 1);
    }
    return round_to(f, quotient, exponent + excess - 65, number.count != 0, bits);
}

bool ci_parse_float(const char *text, const char *end, int32_t type, uint64_t *bits)
{
    const format *f = format_of(type);
    bool negative = *text == '-', fits = true;
    decimal d = read_decimal(text + negative, end);
    int64_t magnitude = d.head_count + d.exponent; /* value < 10^magnitude */
    if (d.head == 0 || magnitude < -330) *bits = 0;
    else if (magnitude > 310) fits = false;
    else if (!d.more && d.exponent >= -27 && d.exponent <= 27) fits = parse_small(f, d.head, (int)d.exponent, bits);
    else fits = parse_big(f, &d, bits);
    if (negative) *bits |= sign_of(f);
    return fits;
}
