/*
 * A reader by descent: one function for each kind of value. It owns what it has made until that's part of something larger;
 * the bytes are never changed, and strings without escapes are taken from them as they are.
 */
#include "core/json_read.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define KEY_SMALL 64

struct reader {
	const char *begin, *at, *end;
	struct buf text; /* of a string with escapes */
	unsigned depth;
	bool has_failed;
	struct err *e;
};

static json_t *read_value(struct reader *r);

static void *fail(struct reader *r, const char *why)
{
	if (!r->has_failed)
		err_set(r->e, -EBADMSG, "%s (byte %zu)", why, (size_t)(r->at - r->begin));
	r->has_failed = true;
	return NULL;
}

/* The next byte that isn't blank, or 0, which no text has outside of strings. */
static char peek(struct reader *r)
{
	while (r->at < r->end &&
		(*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
		r->at++;
	return r->at < r->end ? *r->at : '\0';
}

static bool take(struct reader *r, char c)
{
	if (peek(r) != c)
		return false;
	r->at++;
	return true;
}

/* ---- strings ---- */

/* Four hex digits at *r, or -1. */
static int32_t read_hex(struct reader *r)
{
	int32_t v = 0;

	for (int i = 0; i < 4; i++, r->at++) {
		char c = r->at < r->end ? *r->at : '\0';
		int32_t digit = c >= '0' && c <= '9'   ? c - '0'
				: c >= 'a' && c <= 'f' ? c - 'a' + 10
				: c >= 'A' && c <= 'F' ? c - 'A' + 10
						       : -1;

		if (digit < 0)
			return -1;
		v = v << 4 | digit;
	}
	return v;
}

static void put_utf8(struct buf *b, int32_t cp)
{
	if (cp < 0x80) {
		buf_putc(b, (char)cp);
	} else if (cp < 0x800) {
		buf_putc(b, (char)(0xc0 | cp >> 6));
		buf_putc(b, (char)(0x80 | (cp & 0x3f)));
	} else if (cp < 0x10000) {
		buf_putc(b, (char)(0xe0 | cp >> 12));
		buf_putc(b, (char)(0x80 | (cp >> 6 & 0x3f)));
		buf_putc(b, (char)(0x80 | (cp & 0x3f)));
	} else {
		buf_putc(b, (char)(0xf0 | cp >> 18));
		buf_putc(b, (char)(0x80 | (cp >> 12 & 0x3f)));
		buf_putc(b, (char)(0x80 | (cp >> 6 & 0x3f)));
		buf_putc(b, (char)(0x80 | (cp & 0x3f)));
	}
}

/* Behind "\u": one character, of two halves where the first is one of a pair. */
static bool read_unicode(struct reader *r)
{
	int32_t cp = read_hex(r), low;

	if (cp >= 0xd800 && cp < 0xdc00) {
		if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
			return false;
		r->at += 2;
		low = read_hex(r);
		if (low < 0xdc00 || low > 0xdfff)
			return false;
		cp = 0x10000 + ((cp - 0xd800) << 10 | (low - 0xdc00));
	} else if (cp >= 0xdc00 && cp <= 0xdfff) {
		return false;
	}
	/* NUL would be the end of the text for everybody else. */
	if (cp <= 0)
		return false;
	put_utf8(&r->text, cp);
	return true;
}

/* Behind a backslash. */
static bool read_escape(struct reader *r)
{
	static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
	char c = r->at < r->end ? *r->at++ : '\0';
	const char *at = c ? strchr(names, c) : NULL;

	if (c == 'u')
		return read_unicode(r);
	if (at)
		buf_putc(&r->text, means[at - names]);
	return at != NULL;
}

/*
 * Behind the opening quote, to behind the closing one. *ret_text lies in the bytes, or in r->text until the next string.
 * False: it has failed.
 */
static bool read_text(struct reader *r, const char **ret_text, size_t *ret_n)
{
	const char *from = r->at;
	unsigned char seen = 0;
	bool has_escapes = false;

	buf_clear(&r->text);
	for (;;) {
		const char *at = r->at;

		while (at < r->end && *at != '"' && *at != '\\' && (unsigned char)*at >= ' ')
			seen |= (unsigned char)*at++;
		r->at = at;
		if (at == r->end || (*at != '"' && *at != '\\'))
			return fail(r, "a text has no end, or a control character in it");
		if (*at == '"' && !has_escapes)
			break;
		buf_put(&r->text, from, (size_t)(at - from));
		if (*at == '"')
			break;
		has_escapes = true;
		r->at++;
		if (!read_escape(r))
			return fail(r, "no such escape in a text");
		from = r->at;
	}
	*ret_text = has_escapes ? buf_str(&r->text) : from;
	*ret_n = has_escapes ? r->text.len : (size_t)(r->at - from);
	r->at++;
	if (seen & 0x80 && utf8_valid_len(*ret_text, *ret_n) != *ret_n)
		return fail(r, "a text isn't valid UTF-8");
	return true;
}

static json_t *read_string(struct reader *r)
{
	const char *text;
	size_t n;

	r->at++;
	return read_text(r, &text, &n) ? json_stringn_nocheck(text, n) : NULL;
}

/* ---- numbers and words ---- */

static bool is_digit(const struct reader *r)
{
	return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

/* One with a point or an exponent: they are rare here, and jansson knows how the C library wants them. */
static json_t *read_real(struct reader *r, const char *from)
{
	json_t *v;

	while (is_digit(r) || (r->at < r->end && *r->at && strchr("+-.eE", *r->at)))
		r->at++;
	v = json_loadb(from, (size_t)(r->at - from), JSON_DECODE_ANY, NULL);
	return v ? v : fail(r, "no number, or one that's too large");
}

static json_t *read_number(struct reader *r)
{
	const char *from = r->at;
	bool is_negative = *r->at == '-', fits = true;
	int64_t v = 0;

	r->at += is_negative;
	if (!is_digit(r))
		return fail(r, "no number");
	if (*r->at == '0') {
		r->at++;
		if (is_digit(r))
			return fail(r, "a number begins with 0");
	}
	for (; is_digit(r); r->at++) {
		int64_t digit = *r->at - '0';

		fits = fits && !__builtin_mul_overflow(v, (int64_t)10, &v) &&
		       !__builtin_sub_overflow(v, digit, &v);
	}
	if (r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E'))
		return read_real(r, from);
	/* Counted downwards, as there's one more below 0 than above. */
	if (!fits || (!is_negative && v == INT64_MIN))
		return fail(r, "a number that's too large");
	return json_integer(is_negative ? v : -v);
}

static json_t *read_word(struct reader *r)
{
	static const char *const words[] = {"true", "false", "null"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		size_t n = strlen(words[i]);

		if ((size_t)(r->end - r->at) < n || memcmp(r->at, words[i], n) != 0)
			continue;
		r->at += n;
		return i == 2 ? json_null() : json_boolean(i == 0);
	}
	return fail(r, "no value");
}

/* ---- lists and objects ---- */

static bool read_items(struct reader *r, json_t *list)
{
	if (take(r, ']'))
		return true;
	do {
		json_t *v = read_value(r);

		if (!v || json_array_append_new(list, v))
			return false;
	} while (take(r, ','));
	return take(r, ']') || fail(r, "',' or ']' expected");
}

static bool read_member(struct reader *r, json_t *o)
{
	char small[KEY_SMALL], *key = small;
	CLEANUP_FREE char *large = NULL;
	size_t n, before = json_object_size(o);
	const char *text;
	json_t *v;

	if (!take(r, '"'))
		return fail(r, "a name expected");
	if (!read_text(r, &text, &n))
		return false;
	if (n >= sizeof(small))
		key = large = xmalloc(n + 1);
	memcpy(key, text, n);
	key[n] = '\0';
	if (!take(r, ':'))
		return fail(r, "':' expected");
	v = read_value(r);
	if (!v || json_object_set_new_nocheck(o, key, v))
		return false;
	return json_object_size(o) > before || fail(r, "a name stands twice in one object");
}

static bool read_members(struct reader *r, json_t *o)
{
	if (take(r, '}'))
		return true;
	do {
		if (!read_member(r, o))
			return false;
	} while (take(r, ','));
	return take(r, '}') || fail(r, "',' or '}' expected");
}

static json_t *read_nested(struct reader *r, bool is_object)
{
	json_t *v = is_object ? json_object() : json_array();
	bool ok;

	r->at++;
	ok = ++r->depth <= JSON_READ_DEPTH || fail(r, "too many levels");
	ok = ok && (is_object ? read_members(r, v) : read_items(r, v));
	r->depth--;
	if (ok)
		return v;
	json_decref(v);
	return NULL;
}

static json_t *read_value(struct reader *r)
{
	char c = peek(r);

	switch (c) {
	case '{':
	case '[':
		return read_nested(r, c == '{');
	case '"':
		return read_string(r);
	case 't':
	case 'f':
	case 'n':
		return read_word(r);
	default:
		return c == '-' || (c >= '0' && c <= '9') ? read_number(r) : fail(r, "no value");
	}
}

json_t *json_read(const char *bytes, size_t n, struct err *e)
{
	struct reader r = {.begin = bytes, .at = bytes, .end = bytes + n, .e = e};
	json_t *v = read_value(&r);

	peek(&r);
	if (v && r.at < r.end) {
		json_decref(v);
		v = fail(&r, "more than one value");
	}
	buf_done(&r.text);
	return v;
}
