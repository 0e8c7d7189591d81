/*
 * The attribute block of a line: tokens to fields, and what is wrong with each in words. One table holds the attributes;
 * the "known:" list of the error is made of it. Whether names and numbers exist is jobsfile_after.c's question.
 */
#include "run/jobsfile_inner.h"

#include "base/cleanup.h"
#include "base/parse.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#define GPUS_MAX 100000

struct token {
	char *key, *value; /* NUL-terminated */
	size_t key_len, value_len;
	bool has_value;
};

/* Returns false, having said why, when the value is no good. */
typedef bool attr_set_fn(struct jobsfile *f, struct jobline *l, const struct token *t);

static bool refuse(struct jobsfile *f, uint32_t lineno, const char *before, const struct token *t,
	const char *after)
{
	CLEANUP(buf_done) struct buf shown = {0};

	text_put_repr(&shown, t->value, t->value_len);
	jobsfile_error(f, lineno, "%s%s%s", before, buf_str(&shown), after);
	return false;
}

/* A figure that was refused as out of range: too large, or rounded to nothing? */
static bool is_huge(const char *digits)
{
	digits += strspn(digits, "0_+-");
	return *digits >= '1' && *digits <= '9';
}

static bool set_vram(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	int r = parse_size_mib(t->value, t->value_len, &l->vram_mib);

	if (r == -ERANGE && is_huge(t->value))
		return refuse(f, l->lineno, "vram is larger than any GPU, got ", t, "");
	if (r == -ERANGE)
		return refuse(f, l->lineno, "vram must be positive, got ", t, "");
	if (r < 0)
		return refuse(f, l->lineno, "cannot parse vram value ", t,
			" (use MiB or a G/GiB suffix)");
	return true;
}

static bool set_timeout(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	int r = parse_duration_ms(t->value, t->value_len, &l->timeout_ms);

	if (r == -ERANGE && is_huge(t->value))
		return refuse(f, l->lineno, "timeout is too long, got ", t, "");
	if (r == -ERANGE)
		return refuse(f, l->lineno, "timeout must be positive, got ", t, "");
	if (r < 0)
		return refuse(f, l->lineno, "cannot parse duration ", t, " (use s/m/h/d)");
	return true;
}

/* An integer from 0 to max. */
static bool set_count(
	struct jobsfile *f, uint32_t lineno, const struct token *t, int64_t max, int64_t *ret)
{
	int64_t v;
	int r = parse_int_py(t->value, t->value_len, &v);

	if (r == -EINVAL) {
		CLEANUP(buf_done) struct buf before = {0};
		buf_printf(&before, "%s must be an integer, got ", t->key);
		return refuse(f, lineno, buf_str(&before), t, "");
	}
	if (r == 0 && v < 0) {
		jobsfile_error(f, lineno, "%s must be >= 0, got %" PRId64, t->key, v);
		return false;
	}
	if (r < 0 || v > max) {
		jobsfile_error(
			f, lineno, "%s must be at most %" PRId64 ", got %s", t->key, max, t->value);
		return false;
	}
	*ret = v;
	return true;
}

static bool set_gpus(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	int64_t v;

	if (!set_count(f, l->lineno, t, GPUS_MAX, &v))
		return false;
	l->gpus = (uint32_t)v;
	return true;
}

static bool set_retries(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	return set_count(f, l->lineno, t, INT32_MAX, &l->retries);
}

static bool set_cancel(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	l->cancel = true;
	return true;
}

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!is_name_char(s[i]))
			return false;
	return n > 0;
}

static bool is_number(const char *s, size_t n)
{
	return n > 0 && strspn(s, "0123456789") >= n;
}

static bool set_name(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	if (!is_name(t->value, t->value_len))
		return refuse(
			f, l->lineno, "name takes letters, digits, '_', '-' and '.', got ", t, "");
	if (is_number(t->value, t->value_len))
		return refuse(f, l->lineno, "name must not be a number alone, got ", t,
			" (after= would take it for a job's number)");
	l->name = t->value;
	return true;
}

/* Do all items of a comma-separated list pass? An empty item never does. */
static bool is_list_of(const char *list, bool (*is_item)(const char *, size_t))
{
	for (;;) {
		size_t n = strcspn(list, ",");
		if (!is_item(list, n))
			return false;
		if (!list[n])
			return true;
		list += n + 1;
	}
}

static bool set_after(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	if (!is_list_of(t->value, is_name))
		return refuse(f, l->lineno, "after must list names or job numbers, got ", t, "");
	l->after = t->value;
	return true;
}

/* nvidia-smi's index, or what its UUIDs look like; whether the card exists is known when cards are. */
static bool is_gpu(const char *s, size_t n)
{
	const char *colon = memchr(s, ':', n);

	if (is_number(s, n))
		return n <= 9;
	/* A MIG instance: 0:1, or 0:1:2. */
	if (colon && colon > s && colon - s <= 9)
		return n <= 30 && strspn(s, "0123456789:") >= n && s[n - 1] != ':' &&
		       !memmem(s, n, "::", 2);
	return n > 4 && (strncmp(s, "GPU-", 4) == 0 || strncmp(s, "MIG-", 4) == 0) && is_name(s, n);
}

static bool set_gpu(struct jobsfile *f, struct jobline *l, const struct token *t)
{
	if (!is_list_of(t->value, is_gpu))
		return refuse(f, l->lineno, "gpu must list indices or UUIDs, got ", t, "");
	l->gpu = t->value;
	return true;
}

static const struct attr {
	const char *key;
	bool has_value;
	attr_set_fn *set;
} attrs[] = {
	{"vram", true, set_vram},
	{"gpus", true, set_gpus},
	{"timeout", true, set_timeout},
	{"retries", true, set_retries},
	{"cancel", false, set_cancel},
	{"name", true, set_name},
	{"after", true, set_after},
	{"gpu", true, set_gpu},
};

static bool refuse_unknown(struct jobsfile *f, uint32_t lineno, const struct token *t)
{
	CLEANUP(buf_done) struct buf text = {0};

	buf_puts(&text, "unknown attribute ");
	text_put_repr(&text, t->key, t->key_len);
	buf_puts(&text, " (known: ");
	for (size_t i = 0; i < ARRAY_LEN(attrs); i++)
		buf_printf(&text, "%s%s", i ? ", " : "", attrs[i].key);
	buf_puts(&text, ")");
	jobsfile_error(f, lineno, "%s", buf_str(&text));
	return false;
}

static bool refuse_malformed(struct jobsfile *f, uint32_t lineno, const struct token *t)
{
	CLEANUP(buf_done) struct buf text = {0};

	buf_puts(&text, "malformed attribute ");
	text_put_repr(&text, t->key, t->key_len);
	buf_puts(&text, " (expected key=value, or bare 'cancel')");
	jobsfile_error(f, lineno, "%s", buf_str(&text));
	return false;
}

static bool take_token(struct jobsfile *f, struct jobline *l, struct token *t)
{
	if (!t->has_value && strcasecmp(t->key, "cancel") != 0)
		return refuse_malformed(f, l->lineno, t);
	for (size_t i = 0; i < t->key_len; i++)
		t->key[i] = (char)tolower((unsigned char)t->key[i]);
	for (size_t i = 0; i < ARRAY_LEN(attrs); i++)
		if (attrs[i].has_value == t->has_value && strcmp(attrs[i].key, t->key) == 0)
			return attrs[i].set(f, l, t);
	return refuse_unknown(f, l->lineno, t);
}

/* Bytes of the white space, or of what isn't, at the start of s. */
static size_t span(const char *s, size_t n, bool is_space)
{
	size_t at = 0;
	uint32_t cp;

	while (at < n) {
		if ((unsigned char)s[at] > ' ' && (unsigned char)s[at] < 0x80) {
			if (is_space)
				break;
			at++;
			continue;
		}
		size_t len = utf8_decode(s + at, n - at, &cp);
		if (utf8_is_py_space(cp) != is_space)
			break;
		at += len;
	}
	return at;
}

size_t jobsfile_parse_block(struct jobsfile *f, char *block, size_t n, struct jobline *l)
{
	size_t at = 0, n_bad = 0;

	for (;;) {
		at += span(block + at, n - at, true);
		if (at == n)
			return n_bad;
		struct token t = {.key = block + at};
		t.key_len = span(block + at, n - at, false);
		size_t gap = span(t.key + t.key_len, n - at - t.key_len, true);
		at += t.key_len + gap;
		t.key[t.key_len] = '\0';
		char *equals = memchr(t.key, '=', t.key_len);
		if (equals) {
			*equals = '\0';
			t.has_value = true;
			t.value = equals + 1;
			t.value_len = t.key_len - (size_t)(t.value - t.key);
			t.key_len = (size_t)(equals - t.key);
		}
		n_bad += !take_token(f, l, &t);
	}
}
