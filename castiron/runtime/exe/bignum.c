#include "bignum.h"

void ci_big_set(ci_big *a, uint64_t value)
{
    a->count = 0;
    for (; value; value >>= 32) a->words[a->count++] = (uint32_t)value;
}

void ci_big_multiply(ci_big *a, uint32_t factor, uint32_t add)
{
    uint64_t carry = add;
    for (int i = 0; i < a->count; i++) {
        carry += (uint64_t)a->words[i] * factor;
        a->words[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) a->words[a->count++] = (uint32_t)carry;
}

void ci_big_power5(ci_big *a, int exponent)
{
    for (; exponent >= 13; exponent -= 13) ci_big_multiply(a, 1220703125, 0);
    for (; exponent > 0; exponent--) ci_big_multiply(a, 5, 0);
}

void ci_big_shift(ci_big *a, int bits)
{
    int whole = bits / 32;
    if (a->count == 0) return;
    ci_big_multiply(a, 1u << (bits % 32), 0);
    if (whole == 0) return;
    for (int i = a->count; i-- > 0;) a->words[i + whole] = a->words[i];
    for (int i = 0; i < whole; i++) a->words[i] = 0;
    a->count += whole;
}

static int64_t word(const ci_big *a, int i) { return i < a->count ? a->words[i] : 0; }

void ci_big_subtract(ci_big *a, const ci_big *b)
{
    int64_t borrow = 0;
    for (int i = 0; i < a->count; i++) {
        borrow += a->words[i] - word(b, i);
        a->words[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    while (a->count && a->words[a->count - 1] == 0) a->count--;
}

int ci_big_compare(const ci_big *a, const ci_big *b, const ci_big *c)
{
    int64_t rest = 0;
    bool differ = false;
    for (int i = 0; i < a->count || i < b->count || i < c->count; i++) {
        rest += word(a, i) + word(b, i) - word(c, i);
        differ |= (uint32_t)rest != 0;
        rest >>= 32;
    }
    return rest < 0 ? -1 : differ || rest > 0;
}

int ci_big_width(const ci_big *a) { return a->count ? 32 * a->count - __builtin_clz(a->words[a->count - 1]) : 0; }
