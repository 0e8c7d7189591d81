/* Digests by their published definitions (FIPS 180-4, IEEE 802.3), and random bytes. */
#include "base/hash.h"

#include "base/sys.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t rol(uint32_t v, unsigned n)
{
	return v << n | v >> (32 - n);
}

static uint32_t ror(uint32_t v, unsigned n)
{
	return v >> n | v << (32 - n);
}

static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_be32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static void sha1_block(uint32_t h[5], const uint8_t *p)
{
	static const uint32_t k[4] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
	uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

	for (int i = 0; i < 16; i++)
		w[i] = get_be32(p + 4 * i);
	for (int i = 16; i < 80; i++)
		w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	for (int i = 0; i < 80; i++) {
		uint32_t f = i < 20		 ? (b & c) | (~b & d)
			     : i < 40 || i >= 60 ? b ^ c ^ d
						 : (b & c) | (b & d) | (c & d);
		uint32_t t = rol(a, 5) + f + e + k[i / 20] + w[i];

		e = d;
		d = c;
		c = rol(b, 30);
		b = a;
		a = t;
	}
	h[0] += a;
	h[1] += b;
	h[2] += c;
	h[3] += d;
	h[4] += e;
}

/* The last one or two blocks of a Merkle-Damgard message: rest bytes, 0x80, zeros, 64-bit length. Returns how many. */
static size_t final_blocks(const uint8_t *rest, size_t n, uint64_t total, uint8_t ret[128])
{
	size_t blocks = n + 9 > 64 ? 2 : 1;

	memset(ret, 0, 128);
	if (n)
		memcpy(ret, rest, n);
	ret[n] = 0x80;
	put_be32(ret + blocks * 64 - 8, (uint32_t)(total >> 29));
	put_be32(ret + blocks * 64 - 4, (uint32_t)(total << 3));
	return blocks;
}

void sha1(const void *bytes, size_t n, uint8_t ret[20])
{
	uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	const uint8_t *p = bytes;
	uint8_t last[128];
	size_t whole = n / 64, blocks;

	for (size_t i = 0; i < whole; i++)
		sha1_block(h, p + 64 * i);
	blocks = final_blocks(n ? p + 64 * whole : NULL, n % 64, n, last);
	for (size_t i = 0; i < blocks; i++)
		sha1_block(h, last + 64 * i);
	for (int i = 0; i < 5; i++)
		put_be32(ret + 4 * i, h[i]);
}

static const uint32_t sha256_k[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
	0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6,
	0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d,
	0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
	0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585,
	0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa,
	0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void sha256_block(uint32_t h[8], const uint8_t *p)
{
	uint32_t w[64], s[8];

	for (int i = 0; i < 16; i++)
		w[i] = get_be32(p + 4 * i);
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] +
		       (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) +
		       (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(s, h, sizeof(s));
	for (int i = 0; i < 64; i++) {
		uint32_t t1 = s[7] + (ror(s[4], 6) ^ ror(s[4], 11) ^ ror(s[4], 25)) +
			      ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha256_k[i] + w[i];
		uint32_t t2 = (ror(s[0], 2) ^ ror(s[0], 13) ^ ror(s[0], 22)) +
			      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

		memmove(s + 1, s, 7 * sizeof(s[0]));
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		h[i] += s[i];
}

void sha256_init(struct sha256 *s)
{
	*s = (struct sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
				     0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_put(struct sha256 *s, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;

	while (n) {
		size_t have = s->n % 64, take = 64 - have < n ? 64 - have : n;

		memcpy(s->block + have, p, take);
		s->n += take;
		p += take;
		n -= take;
		if (s->n % 64 == 0)
			sha256_block(s->h, s->block);
	}
}

void sha256_end(struct sha256 *s, uint8_t ret[32])
{
	uint8_t last[128];
	size_t blocks = final_blocks(s->block, s->n % 64, s->n, last);

	for (size_t i = 0; i < blocks; i++)
		sha256_block(s->h, last + 64 * i);
	for (int i = 0; i < 8; i++)
		put_be32(ret + 4 * i, s->h[i]);
}

void sha256(const void *bytes, size_t n, uint8_t ret[32])
{
	struct sha256 s;

	sha256_init(&s);
	sha256_put(&s, bytes, n);
	sha256_end(&s, ret);
}

/* What each byte does to a sum of nothing. */
static void fill_crc_table(uint32_t table[256])
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
		table[byte] = crc;
	}
}

uint32_t crc32_ieee(const void *bytes, size_t n)
{
	static uint32_t table[256];
	const uint8_t *p = bytes;
	uint32_t crc = 0xffffffff;

	if (!table[255])
		fill_crc_table(table);
	while (n--)
		crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	return ~crc;
}

void hex_encode(const void *bytes, size_t n, char *ret)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = bytes;

	for (size_t i = 0; i < n; i++) {
		ret[2 * i] = digits[p[i] >> 4];
		ret[2 * i + 1] = digits[p[i] & 15];
	}
	ret[2 * n] = '\0';
}

static int from_urandom(uint8_t *p, size_t n)
{
	int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
	size_t got = 0;

	while (fd >= 0 && got < n) {
		ssize_t r = read(fd, p + got, n - got);

		if (r <= 0)
			break;
		got += (size_t)r;
	}
	if (fd >= 0)
		close(fd);
	return got == n ? 0 : -1;
}

void random_bytes(void *ret, size_t n)
{
	if (sys_getrandom(ret, n) < 0 && from_urandom(ret, n) < 0)
		abort();
}

void random_hex(size_t n, char *ret)
{
	uint8_t bytes[64];

	if (n > sizeof(bytes))
		abort();
	random_bytes(bytes, n);
	hex_encode(bytes, n, ret);
}
