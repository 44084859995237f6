/* Decompression of DEFLATE (RFC 1951), and CRC-32. */
#ifndef CASTIRON_EXE_INFLATE_H
#define CASTIRON_EXE_INFLATE_H

#include "../castiron.h"

/* Gives false unless `in` decompresses to exactly `size` bytes. */
bool ci_inflate(const uint8_t *in, size_t in_size, uint8_t *out, size_t size);
uint32_t ci_crc32(uint32_t crc, const void *data, size_t size); /* starts from 0 */

#endif
