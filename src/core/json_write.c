/* The writer of JSON: one walk, what is plain goes out in one piece. */
#include "core/json_write.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <string.h>

static bool put_value(struct buf *b, const json_t *v, size_t flags, unsigned depth);

/* Of one that can't stand in a text as it is. */
static void put_escape(struct buf *b, char c)
{
	static const char names[] = "\"\\bfnrt", means[] = "\"\\\b\f\n\r\t";
	const char *at = c ? strchr(means, c) : NULL;

	if (at) {
		buf_putc(b, '\\');
		buf_putc(b, names[at - means]);
	} else {
		buf_printf(b, "\\u%04X", (unsigned)(unsigned char)c);
	}
}

static bool put_text(struct buf *b, const char *s, size_t n)
{
	buf_reserve(b, n + 2);
	buf_putc(b, '"');
	for (;;) {
		unsigned char seen = 0;
		size_t plain = 0;

		while (plain < n && (unsigned char)s[plain] >= ' ' && s[plain] != '"' &&
			s[plain] != '\\')
			seen |= (unsigned char)s[plain++];
		if (seen & 0x80 && utf8_valid_len(s, plain) != plain)
			return false;
		buf_put(b, s, plain);
		if (plain == n)
			break;
		put_escape(b, s[plain]);
		s += plain + 1;
		n -= plain + 1;
	}
	buf_putc(b, '"');
	return true;
}

/* They are rare, and jansson knows how the C library writes them. */
static bool put_real(struct buf *b, const json_t *v, size_t flags)
{
	CLEANUP_FREE char *text = json_dumps(v, flags | JSON_ENCODE_ANY);

	if (text)
		buf_puts(b, text);
	return text != NULL;
}

static bool put_list(struct buf *b, const json_t *list, size_t flags, unsigned depth)
{
	const char *comma = flags & JSON_COMPACT ? "," : ", ";
	const json_t *v;
	size_t i;

	buf_putc(b, '[');
	json_array_foreach(list, i, v)
	{
		if (i)
			buf_puts(b, comma);
		if (!put_value(b, v, flags, depth))
			return false;
	}
	buf_putc(b, ']');
	return true;
}

static bool put_object(struct buf *b, const json_t *o, size_t flags, unsigned depth)
{
	const char *comma = flags & JSON_COMPACT ? "," : ", ";
	const char *colon = flags & JSON_COMPACT ? ":" : ": ";
	void *at = json_object_iter((json_t *)(uintptr_t)o);

	buf_putc(b, '{');
	for (bool is_first = true; at; is_first = false) {
		const char *key = json_object_iter_key(at);

		if (!is_first)
			buf_puts(b, comma);
		if (!put_text(b, key, strlen(key)))
			return false;
		buf_puts(b, colon);
		if (!put_value(b, json_object_iter_value(at), flags, depth))
			return false;
		at = json_object_iter_next((json_t *)(uintptr_t)o, at);
	}
	buf_putc(b, '}');
	return true;
}

static bool put_value(struct buf *b, const json_t *v, size_t flags, unsigned depth)
{
	if (!v || depth >= JSON_WRITE_DEPTH)
		return false;
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return put_object(b, v, flags, depth + 1);
	case JSON_ARRAY:
		return put_list(b, v, flags, depth + 1);
	case JSON_STRING:
		return put_text(b, json_string_value(v), json_string_length(v));
	case JSON_INTEGER:
		text_put_int(b, json_integer_value(v));
		return true;
	case JSON_REAL:
		return put_real(b, v, flags);
	case JSON_TRUE:
		buf_puts(b, "true");
		return true;
	case JSON_FALSE:
		buf_puts(b, "false");
		return true;
	case JSON_NULL:
		buf_puts(b, "null");
		return true;
	}
	return false;
}

bool json_write(struct buf *b, const json_t *v, size_t flags)
{
	size_t before = b->len;

	if (put_value(b, v, flags, 0))
		return true;
	b->len = before;
	if (b->data)
		b->data[before] = '\0';
	return false;
}
