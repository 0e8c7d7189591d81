/* SHA-1 (an identifier of gpusched's keys, not security), SHA-256 (what the agent's file name vouches for), CRC-32. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sha256 {
	uint32_t h[8];
	uint64_t n;
	uint8_t block[64];
};

void sha1(const void *bytes, size_t n, uint8_t ret[20]);
void sha256_init(struct sha256 *s);
void sha256_put(struct sha256 *s, const void *bytes, size_t n);
void sha256_end(struct sha256 *s, uint8_t ret[32]);
void sha256(const void *bytes, size_t n, uint8_t ret[32]);
uint32_t crc32_ieee(const void *bytes, size_t n);
/* Lower-case hex of n bytes into ret[2n + 1]. */
void hex_encode(const void *bytes, size_t n, char *ret);
/* n random bytes from the kernel (getrandom by syscall, else /dev/urandom); dies if neither answers. */
void random_bytes(void *ret, size_t n);
/* 2n hex digits and a NUL. */
void random_hex(size_t n, char *ret);
