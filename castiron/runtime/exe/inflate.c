#include "inflate.h"

#include "../core/error.h"

uint32_t ci_crc32(uint32_t crc, const void *data, size_t size)
{
    static uint32_t table[256];
    const uint8_t *bytes = data;
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
            table[i] = value;
        }
    crc = ~crc;
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc;
}

typedef struct stream {
    const uint8_t *in;
    size_t left;
    uint32_t hold;
    int held;
    uint8_t *out;
    size_t made, size;
    bool bad;
} stream;

/* A canonical Huffman code: symbols in order of their codes, and how many codes there are of each length. */
typedef struct code {
    uint16_t counts[16], symbols[288];
} code;

static uint32_t take(stream *s, int count)
{
    while (s->held < count) {
        if (!s->left) return s->bad = true, 0;
        s->hold |= (uint32_t)*s->in++ << s->held;
        s->left--;
        s->held += 8;
    }
    uint32_t value = s->hold & ((1u << count) - 1);
    s->hold >>= count;
    s->held -= count;
    return value;
}

static CI_APART void emit(stream *s, uint8_t byte)
{
    if (s->made < s->size) s->out[s->made++] = byte;
    else s->bad = true;
}

static void build(stream *s, code *c, const uint8_t *lengths, int count)
{
    uint16_t start[16] = {0};
    int room = 1;
    for (int i = 0; i < 16; i++) c->counts[i] = 0;
    for (int i = 0; i < count; i++) c->counts[lengths[i]]++;
    c->counts[0] = 0;
    for (int i = 1; i < 16; i++) {
        room = 2 * room - c->counts[i];
        start[i] = (uint16_t)(start[i - 1] + c->counts[i - 1]);
        if (room < 0) {
            s->bad = true;
            return;
        }
    }
    for (int i = 0; i < count; i++)
        if (lengths[i]) c->symbols[start[lengths[i]]++] = (uint16_t)i;
}

static int decode(stream *s, const code *c)
{
    int value = 0, first = 0, index = 0;
    for (int length = 1; length < 16 && !s->bad; length++) {
        value |= (int)take(s, 1);
        if (value - first < c->counts[length]) return c->symbols[index + value - first];
        index += c->counts[length];
        first = (first + c->counts[length]) * 2;
        value *= 2;
    }
    s->bad = true;
    return 0;
}

static void copy_back(stream *s, size_t distance, int length)
{
    if (distance > s->made) s->bad = true;
    while (length-- && !s->bad) emit(s, s->out[s->made - distance]);
}

static void codes_block(stream *s, const code *literals, const code *distances)
{
    while (!s->bad) {
        int symbol = decode(s, literals);
        if (symbol == 256) return;
        if (symbol < 256) {
            if (!s->bad) emit(s, (uint8_t)symbol);
            continue;
        }
        symbol -= 257;
        if (symbol > 28) break;
        int extra = symbol < 8 || symbol == 28 ? 0 : symbol / 4 - 1;
        int base = symbol < 8 ? symbol : symbol == 28 ? 255 : (4 + symbol % 4) << extra;
        int length = 3 + base + (int)take(s, extra);
        symbol = decode(s, distances);
        if (symbol > 29) break;
        extra = symbol < 4 ? 0 : symbol / 2 - 1;
        size_t distance = (size_t)(symbol < 4 ? symbol : (2 + symbol % 2) << extra) + 1;
        copy_back(s, distance + take(s, extra), length);
    }
    s->bad = true;
}

static void stored_block(stream *s)
{
    s->hold = 0;
    s->held = 0;
    uint32_t length = take(s, 16), complement = take(s, 16);
    if ((length ^ complement) != 0xffff) s->bad = true;
    while (length-- && !s->bad) {
        uint8_t byte = (uint8_t)take(s, 8);
        if (!s->bad) emit(s, byte);
    }
}

static void fixed_block(stream *s)
{
    code literals, distances;
    uint8_t lengths[288];
    for (int i = 0; i < 288; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    build(s, &literals, lengths, 288);
    for (int i = 0; i < 30; i++) lengths[i] = 5;
    build(s, &distances, lengths, 30);
    codes_block(s, &literals, &distances);
}

/* The lengths of both codes, themselves run-length coded. */
static void read_lengths(stream *s, const code *c, uint8_t *lengths, int count)
{
    for (int i = 0; i < count && !s->bad;) {
        int symbol = decode(s, c), repeat = 1;
        uint8_t value = symbol < 16 ? (uint8_t)symbol : 0;
        if (symbol == 16) {
            if (i == 0) s->bad = true;
            else value = lengths[i - 1];
            repeat = 3 + (int)take(s, 2);
        }
        if (symbol == 17) repeat = 3 + (int)take(s, 3);
        if (symbol == 18) repeat = 11 + (int)take(s, 7);
        if (repeat > count - i) s->bad = true;
        while (repeat-- && !s->bad) lengths[i++] = value;
    }
}

static void dynamic_block(stream *s)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    code literals, distances;
    uint8_t lengths[288 + 32] = {0};
    int literal_count = 257 + (int)take(s, 5), distance_count = 1 + (int)take(s, 5), length_count = 4 + (int)take(s, 4);
    if (literal_count > 286) s->bad = true;
    for (int i = 0; i < length_count; i++) lengths[order[i]] = (uint8_t)take(s, 3);
    build(s, &literals, lengths, 19);
    if (!s->bad) read_lengths(s, &literals, lengths, literal_count + distance_count);
    if (s->bad) return;
    build(s, &literals, lengths, literal_count);
    build(s, &distances, lengths + literal_count, distance_count);
    if (!s->bad) codes_block(s, &literals, &distances);
}

bool ci_inflate(const uint8_t *in, size_t in_size, uint8_t *out, size_t size)
{
    stream s = {.in = in, .left = in_size, .out = out, .size = size};
    for (bool last = false; !last && !s.bad;) {
        last = take(&s, 1);
        uint32_t kind = take(&s, 2);
        if (s.bad || kind == 3) return false;
        if (kind == 0) stored_block(&s);
        if (kind == 1) fixed_block(&s);
        if (kind == 2) dynamic_block(&s);
    }
    return !s.bad && s.made == size;
}
