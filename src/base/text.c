/* UTF-8 and text for people. */
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <wchar.h>

/* Bytes of the well-formed sequence at s (RFC 3629), 0 when it's not one. */
static size_t sequence(const unsigned char *s, size_t n)
{
	size_t need;

	if (s[0] < 0x80)
		return 1;
	need = s[0] >= 0xc2 && s[0] <= 0xdf   ? 2
	       : (s[0] & 0xf0) == 0xe0	      ? 3
	       : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
					      : 0;
	if (!need || n < need)
		return 0;
	for (size_t i = 1; i < need; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
		(s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return need;
}

size_t utf8_valid_len(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n) {
		size_t k;

		/* What nearly everything is. */
		while (i < n && (unsigned char)s[i] < 0x80)
			i++;
		k = i < n ? sequence((const unsigned char *)s + i, n - i) : 0;
		if (!k)
			break;
		i += k;
	}
	return i;
}

size_t utf8_decode(const char *s, size_t n, uint32_t *ret_cp)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t k = sequence(p, n);

	if (k <= 1) {
		*ret_cp = k ? p[0] : 0xfffd;
		return 1;
	}
	*ret_cp = p[0] & (0xff >> (k + 1));
	for (size_t i = 1; i < k; i++)
		*ret_cp = *ret_cp << 6 | (p[i] & 0x3f);
	return k;
}

bool utf8_is_py_space(uint32_t cp)
{
	return (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
	       cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
	       cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

void utf8_trim(const char **s, size_t *n)
{
	uint32_t cp;

	while (*n) {
		size_t k = utf8_decode(*s, *n, &cp);

		if (!utf8_is_py_space(cp))
			break;
		*s += k;
		*n -= k;
	}
	while (*n) {
		size_t k = 1;

		while (k < *n && k < 4 && ((*s)[*n - k] & 0xc0) == 0x80)
			k++;
		utf8_decode(*s + *n - k, k, &cp);
		if (!utf8_is_py_space(cp))
			break;
		*n -= k;
	}
}

static bool is_unsafe(uint32_t cp)
{
	return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0x202a && cp <= 0x202e) ||
	       (cp >= 0x2066 && cp <= 0x2069) || cp == 0x200e || cp == 0x200f || cp == 0x61c ||
	       cp == 0x2028 || cp == 0x2029;
}

void text_put_clean(struct buf *b, const char *s, size_t n)
{
	size_t i = 0;

	while (i < n) {
		size_t k = sequence((const unsigned char *)s + i, n - i);
		uint32_t cp = 0xfffd;

		if (k)
			utf8_decode(s + i, k, &cp);
		if (!k || (is_unsafe(cp) && cp != '\t'))
			buf_puts(b, "\xef\xbf\xbd");
		else if (cp == '\t')
			buf_putc(b, ' ');
		else
			buf_put(b, s + i, k);
		i += k ? k : 1;
	}
}

void text_put_repr(struct buf *b, const char *s, size_t n)
{
	char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';

	buf_putc(b, quote);
	for (size_t i = 0; i < n;) {
		uint32_t cp;
		size_t k = utf8_decode(s + i, n - i, &cp);

		if (cp == (uint32_t)quote || cp == '\\')
			buf_printf(b, "\\%c", (char)cp);
		else if (cp == '\n' || cp == '\r' || cp == '\t')
			buf_printf(b, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
		else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa1))
			buf_printf(b, "\\x%02x", cp);
		else if (is_unsafe(cp))
			buf_printf(b, "\\u%04x", cp);
		else
			buf_put(b, s + i, k);
		i += k;
	}
	buf_putc(b, quote);
}

void text_put_float(struct buf *b, double v)
{
	char text[40], *e;
	int digits, exponent;

	if (!isfinite(v)) {
		buf_puts(b, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
		return;
	}
	for (digits = 1; digits < 17; digits++) {
		snprintf(text, sizeof(text), "%.*e", digits - 1, v);
		if (strtod(text, NULL) == v)
			break;
	}
	snprintf(text, sizeof(text), "%.*e", digits - 1, v);
	e = strchr(text, 'e');
	exponent = (int)strtol(e + 1, NULL, 10);
	if (exponent >= -4 && exponent < 16) {
		int decimals = digits - 1 - exponent;

		buf_printf(b, "%.*f", decimals > 0 ? decimals : 1, v);
	} else {
		*e = '\0';
		buf_printf(b, "%se%c%02d", text, exponent < 0 ? '-' : '+', abs(exponent));
	}
}

static void put_u16(struct buf *b, uint32_t v)
{
	buf_printf(b, "\\u%04x", v);
}

void text_put_json_ascii(struct buf *b, const char *s, size_t n)
{
	buf_putc(b, '"');
	for (size_t i = 0; i < n;) {
		size_t plain = i;
		uint32_t cp;

		while (plain < n && s[plain] >= ' ' && s[plain] < 0x7f && s[plain] != '"' &&
			s[plain] != '\\')
			plain++;
		buf_put(b, s + i, plain - i);
		i = plain;
		if (i == n)
			break;
		i += utf8_decode(s + i, n - i, &cp);
		if (cp == '"' || cp == '\\')
			buf_printf(b, "\\%c", (char)cp);
		else if (cp == '\n' || cp == '\r' || cp == '\t' || cp == '\b' || cp == '\f')
			buf_printf(b, "\\%c",
				cp == '\n'   ? 'n'
				: cp == '\r' ? 'r'
				: cp == '\t' ? 't'
				: cp == '\b' ? 'b'
					     : 'f');
		else if (cp >= 0x10000) {
			put_u16(b, 0xd800 + ((cp - 0x10000) >> 10));
			put_u16(b, 0xdc00 + ((cp - 0x10000) & 0x3ff));
		} else
			put_u16(b, cp);
	}
	buf_putc(b, '"');
}

void text_put_int(struct buf *b, int64_t v)
{
	char digits[20];
	size_t at = sizeof(digits);
	uint64_t rest = v < 0 ? -(uint64_t)v : (uint64_t)v;

	do
		digits[--at] = (char)('0' + rest % 10);
	while (rest /= 10);
	if (v < 0)
		buf_putc(b, '-');
	buf_put(b, digits + at, sizeof(digits) - at);
}

void text_put_mib(struct buf *b, int64_t mib)
{
	if (mib >= 1024 || mib <= -1024)
		buf_printf(b, "%.1f GiB", (double)mib / 1024);
	else
		buf_printf(b, "%lld MiB", (long long)mib);
}

void text_put_duration(struct buf *b, int64_t ms)
{
	long long s = ms / 1000;

	if (s < 60)
		buf_printf(b, "%llds", s);
	else if (s < 3600)
		buf_printf(b, "%lldm %02llds", s / 60, s % 60);
	else if (s < 86400)
		buf_printf(b, "%lldh %02lldm", s / 3600, s / 60 % 60);
	else
		buf_printf(b, "%lldd %02lldh", s / 86400, s / 3600 % 24);
}

/* Levenshtein's distance, both at most 31 bytes; longer words aren't near anything. */
static size_t distance(const char *a, const char *b)
{
	size_t na = strlen(a), nb = strlen(b), row[32];

	if (na > 31 || nb > 31)
		return 99;
	for (size_t j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; i <= na; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t up = row[j], best = diagonal + (a[i - 1] != b[j - 1]);

			if (up + 1 < best)
				best = up + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = up;
			row[j] = best;
		}
	}
	return row[nb];
}

const char *text_closest(const char *word, const char *const *names, size_t n)
{
	const char *best = NULL;
	size_t best_distance = 3;

	for (size_t i = 0; i < n; i++) {
		size_t d = distance(word, names[i]);

		if (d < best_distance && d < strlen(word)) {
			best = names[i];
			best_distance = d;
		}
	}
	return best;
}

size_t text_width(const char *s, size_t n)
{
	size_t cells = 0;

	for (size_t i = 0; i < n;) {
		uint32_t cp;
		int w;

		i += utf8_decode(s + i, n - i, &cp);
		w = wcwidth((wchar_t)cp);
		cells += w < 0 ? 1 : (size_t)w;
	}
	return cells;
}
