/* Text to values, strictly. Numbers never follow the locale. */
#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int parse_int64(const char *s, int64_t *ret)
{
	const char *p = s + (*s == '+' || *s == '-');
	char *end;
	long long v;

	if (*p < '0' || *p > '9')
		return -EINVAL;
	errno = 0;
	v = strtoll(s, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno)
		return -ERANGE;
	*ret = v;
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

int parse_int_py(const char *s, size_t n, int64_t *ret)
{
	bool negative = false, digit = false;
	uint64_t v = 0;

	while (n && is_blank(*s))
		s++, n--;
	while (n && is_blank(s[n - 1]))
		n--;
	if (n && (*s == '+' || *s == '-')) {
		negative = *s == '-';
		s++, n--;
	}
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '_' && digit && i + 1 < n) {
			digit = false;
			continue;
		}
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		digit = true;
		if (v > (INT64_MAX - 9) / 10)
			return -ERANGE;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	if (!digit)
		return -EINVAL;
	*ret = negative ? -(int64_t)v : (int64_t)v;
	return 0;
}

int parse_double(const char *s, double *ret)
{
	const char *p = s + (*s == '+' || *s == '-');
	char *end;
	double v;

	/* strtod would take hexadecimal, "inf" and "nan" as well; LC_NUMERIC is never set, so '.' is the point. */
	if (!((*p >= '0' && *p <= '9') || (*p == '.' && p[1] >= '0' && p[1] <= '9')) ||
		p[1] == 'x' || p[1] == 'X')
		return -EINVAL;
	errno = 0;
	v = strtod(s, &end);
	if (*end)
		return -EINVAL;
	if (!isfinite(v))
		return -ERANGE;
	*ret = v;
	return 0;
}

/* digits[.digits] at the start of s: its value, and how many bytes it took (0: none). */
static size_t take_number(const char *s, size_t n, double *ret)
{
	char text[64];
	size_t i = 0, dot;

	while (i < n && s[i] >= '0' && s[i] <= '9')
		i++;
	if (!i)
		return 0;
	dot = i;
	if (i < n && s[i] == '.') {
		i++;
		while (i < n && s[i] >= '0' && s[i] <= '9')
			i++;
		if (i == dot + 1)
			i = dot;
	}
	if (i >= sizeof(text))
		return 0;
	memcpy(text, s, i);
	text[i] = '\0';
	*ret = strtod(text, NULL);
	return i;
}

static bool unit_is(const char *s, size_t n, const char *unit)
{
	return strlen(unit) == n && !strncasecmp(s, unit, n);
}

int parse_size_mib(const char *s, size_t n, int64_t *ret_mib)
{
	double v;
	size_t used = take_number(s, n, &v);

	if (!used)
		return -EINVAL;
	s += used;
	n -= used;
	if (unit_is(s, n, "g") || unit_is(s, n, "gb") || unit_is(s, n, "gib"))
		v *= 1024;
	else if (n && !unit_is(s, n, "m") && !unit_is(s, n, "mb") && !unit_is(s, n, "mib"))
		return -EINVAL;
	v = rint(v); /* half to even, as the default rounding mode has it */
	if (v < 1 || v > 1e15)
		return -ERANGE;
	*ret_mib = (int64_t)v;
	return 0;
}

int parse_duration_ms(const char *s, size_t n, int64_t *ret_ms)
{
	double v;
	size_t used = take_number(s, n, &v);

	if (!used || n - used > 1)
		return -EINVAL;
	switch (n == used ? 's' : tolower((unsigned char)s[used])) {
	case 's':
		break;
	case 'm':
		v *= 60;
		break;
	case 'h':
		v *= 3600;
		break;
	case 'd':
		v *= 86400;
		break;
	default:
		return -EINVAL;
	}
	if (v <= 0 || v > 1e12)
		return -ERANGE;
	/* Up by hand: ceil() would make libm the agent's third library. */
	v *= 1000;
	*ret_ms = (int64_t)v + ((double)(int64_t)v < v);
	return 0;
}
