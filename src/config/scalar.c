/* Plain scalars to values and back: see scalar.h. Pure. */
#include "config/scalar.h"

#include "base/text.h"

#include <string.h>
#include <strings.h>

static bool is_one_of(const char *s, const char *const *words)
{
	for (; *words; words++)
		if (strcmp(s, *words) == 0)
			return true;
	return false;
}

static const char *const null_words[] = {"", "~", "null", "Null", "NULL", NULL};
static const char *const true_words[] = {
	"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", NULL};
static const char *const false_words[] = {
	"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", NULL};

static bool is_plain(const struct doc_node *n)
{
	return n->kind == DOC_SCALAR && n->is_plain && strlen(n->text) == n->len;
}

bool scalar_is_null(const struct doc_node *n)
{
	return is_plain(n) && is_one_of(n->text, null_words);
}

int scalar_bool(const struct doc_node *n, bool *ret)
{
	bool yes = is_plain(n) && is_one_of(n->text, true_words);

	if (!yes && !(is_plain(n) && is_one_of(n->text, false_words)))
		return -EINVAL;
	*ret = yes;
	return 0;
}

static int digit_of(char c, int base)
{
	int d = c >= '0' && c <= '9'   ? c - '0'
		: c >= 'a' && c <= 'f' ? c - 'a' + 10
		: c >= 'A' && c <= 'F' ? c - 'A' + 10
				       : 99;

	return d < base ? d : -1;
}

static int parse_digits(const char *s, int base, int64_t *ret)
{
	int64_t v = 0;
	bool any = false;

	for (; *s; s++) {
		int d = digit_of(*s, base);

		if (*s == '_' && any)
			continue;
		if (d < 0)
			return -EINVAL;
		any = true;
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, d, &v))
			return -ERANGE;
	}
	*ret = v;
	return any ? 0 : -EINVAL;
}

/* 022 is octal and 1:30 counts in sixties, to YAML 1.1 alone. */
static bool is_read_otherwise(const char *s)
{
	size_t n = strspn(s, "0123456789_");

	if (s[0] == '0' && n > 1 && !s[n])
		return true;
	return s[0] >= '1' && s[0] <= '9' && s[n] == ':' && !s[n + strspn(s + n, "0123456789:")];
}

int scalar_int(const struct doc_node *n, int64_t *ret)
{
	const char *s = n->text;
	int64_t v;
	int base = 10, r;
	bool is_negative;

	if (!is_plain(n))
		return -EINVAL;
	is_negative = *s == '-';
	s += *s == '-' || *s == '+';
	if (is_read_otherwise(s))
		return -EDOM;
	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'b')) {
		base = s[1] == 'x' ? 16 : 2;
		s += 2;
	}
	r = parse_digits(s, base, &v);
	if (r < 0)
		return r;
	*ret = is_negative ? -v : v;
	return 0;
}

/* A number, a time or a part of one, to YAML 1.1 or 1.2; an IPv4 address isn't. */
static bool looks_like_number(const char *s)
{
	size_t dots = 0;

	for (const char *p = s; *p; p++)
		dots += *p == '.';
	return strspn(s, "0123456789abcdefABCDEFxXoO_.:+-") == strlen(s) &&
	       strpbrk(s, "0123456789") && dots < 3 &&
	       !(s[0] >= 'a' && s[0] <= 'f' && !strchr(s, ':')) &&
	       !(s[0] >= 'A' && s[0] <= 'F' && !strchr(s, ':'));
}

static bool is_safe_plain(const char *s)
{
	static const char *const others[] = {"y", "Y", "n", "N", ".inf", ".nan", NULL};
	static const char first[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_";
	static const char inner[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_.~@%+-:,=";
	size_t n = strlen(s);

	if (n == 0 || (!strchr(first, s[0]) && strncmp(s, "~/", 2) != 0) || strspn(s, inner) != n)
		return false;
	if (s[n - 1] == ':' || is_one_of(s, null_words) || is_one_of(s, true_words) ||
		is_one_of(s, false_words) || is_one_of(s, others))
		return false;
	return !looks_like_number(s);
}

/* What single quotes can hold: no control, no line break of any kind. */
static bool is_one_line(const char *s)
{
	for (size_t n = strlen(s); n > 0;) {
		uint32_t cp;
		size_t k = utf8_decode(s, n, &cp);

		if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029 ||
			cp == 0xfeff || cp >= 0xfffe)
			return false;
		s += k;
		n -= k;
	}
	return true;
}

static void put_double_quoted(struct buf *b, const char *s)
{
	buf_putc(b, '"');
	for (size_t n = strlen(s); n > 0;) {
		uint32_t cp;
		size_t k = utf8_decode(s, n, &cp);

		if (cp == '"' || cp == '\\')
			buf_printf(b, "\\%c", (char)cp);
		else if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
			buf_printf(b, "\\x%02x", cp);
		else if (cp == 0x2028 || cp == 0x2029 || cp == 0xfeff || cp == 0xfffe ||
			 cp == 0xffff)
			buf_printf(b, "\\u%04x", cp);
		else if (cp > 0xffff)
			buf_printf(b, "\\U%08x", cp);
		else
			buf_put(b, s, k);
		s += k;
		n -= k;
	}
	buf_putc(b, '"');
}

void scalar_put(struct buf *b, const char *text)
{
	if (is_safe_plain(text)) {
		buf_puts(b, text);
		return;
	}
	if (!is_one_line(text)) {
		put_double_quoted(b, text);
		return;
	}
	buf_putc(b, '\'');
	for (const char *p = text; *p; p++) {
		if (*p == '\'')
			buf_putc(b, '\'');
		buf_putc(b, *p);
	}
	buf_putc(b, '\'');
}
