/*
 * Values of the queue's keys: from YAML and text into struct queue_settings, and out again as JSON. Which keys there are
 * is queue_keys.c's. Pure.
 */
#include "config/queue_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "config/scalar.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SIZE_MAX_MIB (1LL << 30) /* 1 PiB */

enum { TEXT_MAX = 1024, CAUSES_MAX = 64, TEXTS_MAX = 16 };

/* --- text to numbers --- */

/* digits[.digits] and one unit, or none; *ret times the unit's factor, rounded to whole ones. */
struct unit {
	const char *names; /* " g gb gib " */
	double factor;
};

static int parse_with_unit(
	const char *s, const struct unit *units, size_t n_units, double limit, int64_t *ret)
{
	size_t n = strspn(s, "0123456789.");
	char number[32], word[8];
	double v;

	if (n == 0 || n >= sizeof(number) || s[0] == '.' || s[n - 1] == '.')
		return -EINVAL;
	memcpy(number, s, n);
	number[n] = '\0';
	if (parse_double(number, &v) < 0)
		return -EINVAL;
	s += n + (s[n] == ' ');
	if (s[-1] == ' ' && !*s)
		return -EINVAL;
	if (strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != strlen(s) ||
		(size_t)snprintf(word, sizeof(word), " %s ", s) >= sizeof(word))
		return -EINVAL;
	for (size_t i = 0; i < n_units; i++) {
		if (!strcasestr(units[i].names, word))
			continue;
		v = rint(v * units[i].factor);
		if (v > limit)
			return -ERANGE;
		*ret = (int64_t)v;
		return 0;
	}
	return -EINVAL;
}

/* "  " is no unit at all. */
int queue_parse_size_mib(const char *s, int64_t *ret)
{
	static const struct unit units[] = {
		{"  m mb mib ", 1}, {" g gb gib ", 1024}, {" t tb tib ", 1024 * 1024}};

	return parse_with_unit(s, units, ARRAY_LEN(units), (double)SIZE_MAX_MIB, ret);
}

int queue_parse_duration_ms(const char *s, int64_t *ret)
{
	static const struct unit units[] = {{"  s ", QUEUE_SECOND}, {" m ", 60 * QUEUE_SECOND},
		{" h ", 3600 * QUEUE_SECOND}, {" d ", QUEUE_DAY}};

	return parse_with_unit(s, units, ARRAY_LEN(units), (double)QUEUE_TIME_MAX, ret);
}

static int parse_clock(const char *s, char end, int *ret)
{
	if (strspn(s, "0123456789") != 2 || s[2] != ':' || strspn(s + 3, "0123456789") != 2 ||
		s[5] != end)
		return -EINVAL;
	*ret = ((s[0] - '0') * 10 + s[1] - '0') * 60 + (s[3] - '0') * 10 + s[4] - '0';
	return s[3] > '5' || *ret >= 24 * 60 ? -EINVAL : 0;
}

int queue_parse_quiet_hours(const char *s, int *ret_from, int *ret_to)
{
	int from, to;

	if (strlen(s) != 11 || parse_clock(s, '-', &from) < 0 ||
		parse_clock(s + 6, '\0', &to) < 0 || from == to)
		return -EINVAL;
	*ret_from = from;
	*ret_to = to;
	return 0;
}

static int parse_bytes(const char *s, int64_t *ret)
{
	static const struct unit units[] = {
		{"  b ", 1}, {" k kb kib ", 1024}, {" m mb mib ", 1024 * 1024}};

	return parse_with_unit(s, units, ARRAY_LEN(units), (double)(1LL << 40), ret);
}

static int parse_hours(const char *s, int64_t *ret)
{
	static const struct unit units[] = {{"  ", 3600 * QUEUE_SECOND}};

	return parse_with_unit(s, units, ARRAY_LEN(units), (double)QUEUE_TIME_MAX, ret);
}

static int parse_number(const struct queue_key *k, const char *s, int64_t *ret)
{
	int64_t v = 0, max = k->max ? k->max : SIZE_MAX_MIB;
	int r = -EINVAL;

	switch (k->kind) {
	case QUEUE_KEY_COUNT:
		r = parse_int64(s, &v);
		break;
	case QUEUE_KEY_SIZE:
	case QUEUE_KEY_VRAM:
		r = queue_parse_size_mib(s, &v);
		break;
	case QUEUE_KEY_BYTES:
		r = parse_bytes(s, &v);
		break;
	case QUEUE_KEY_TIME:
		r = queue_parse_duration_ms(s, &v);
		break;
	case QUEUE_KEY_HOURS:
		r = parse_hours(s, &v);
		break;
	default:
		break;
	}
	if (r < 0)
		return r;
	if (v < k->min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

/* --- text to members --- */

static void *member(const struct queue_key *k, struct queue_settings *s)
{
	return (char *)s + k->offset;
}

static const void *const_member(const struct queue_key *k, const struct queue_settings *s)
{
	return (const char *)s + k->offset;
}

static int set_word(const struct queue_key *k, const char *text, struct queue_settings *s)
{
	const char *word;

	for (unsigned i = 0; (word = k->word(i)); i++)
		if (*word && strcmp(word, text) == 0) {
			*(unsigned *)member(k, s) = i;
			return 0;
		}
	return -EINVAL;
}

static int set_share(const struct queue_key *k, const char *text, struct queue_settings *s)
{
	double v;

	if (parse_double(text, &v) < 0 || v < (double)k->min || v > (double)k->max)
		return -EINVAL;
	*(double *)member(k, s) = v;
	return 0;
}

bool queue_cause_is_retryable(enum job_cause c)
{
	return c != JOB_CAUSE_NONE && c != JOB_CAUSE_CANCELLED && c != JOB_CAUSE_DEPENDENCY &&
	       c != JOB_CAUSE_UNSCHEDULABLE;
}

static int add_cause(const char *text, size_t n, uint32_t *bits)
{
	CLEANUP_FREE char *word = xstrndup(text, n);
	enum job_cause c;

	if (job_cause_from_name(word, &c) < 0 || !queue_cause_is_retryable(c))
		return -EINVAL;
	*bits |= 1u << c;
	return 0;
}

static int set_causes(const struct queue_key *k, const char *text, struct queue_settings *s)
{
	uint32_t bits = 0;

	for (const char *p = text;; p += strspn(p, ", ")) {
		size_t n = strcspn(p, ", ");

		if (n == 0)
			break;
		if (add_cause(p, n, &bits) < 0)
			return -EINVAL;
		p += n;
	}
	*(uint32_t *)member(k, s) = bits;
	return 0;
}

static void set_text(const struct queue_key *k, const char *text, struct queue_settings *s)
{
	char **slot = member(k, s);

	free(*slot);
	*slot = text ? xstrdup(text) : NULL;
}

static int set_bool(const struct queue_key *k, const char *text, struct queue_settings *s)
{
	*(bool *)member(k, s) = strcmp(text, "true") == 0;
	return 0;
}

/* text is what's written, but for bools, which are "true" or "false" here. */
static int set(const struct queue_key *k, const char *text, struct queue_settings *s)
{
	switch (k->kind) {
	case QUEUE_KEY_BOOL:
		return set_bool(k, text, s);
	case QUEUE_KEY_WORD:
		return set_word(k, text, s);
	case QUEUE_KEY_TEXT:
	case QUEUE_KEY_TEXTS:
		set_text(k, text, s);
		return 0;
	case QUEUE_KEY_SHARE:
		return set_share(k, text, s);
	case QUEUE_KEY_CAUSES:
		return set_causes(k, text, s);
	case QUEUE_KEY_IGNORED:
		return 0;
	case QUEUE_KEY_VRAM:
		if (strcmp(text, "auto") == 0) {
			*(int64_t *)member(k, s) = -1;
			return 0;
		}
		break;
	default:
		break;
	}
	return parse_number(k, text, member(k, s));
}

static bool is_text(const struct queue_key *k)
{
	return k->kind == QUEUE_KEY_TEXT || k->kind == QUEUE_KEY_TEXTS;
}

void queue_key_reset(const struct queue_key *k, bool is_nvidb, struct queue_settings *s)
{
	const char *text = is_nvidb && k->nvidb_initial ? k->nvidb_initial : k->initial;

	if (text)
		(void)set(k, text, s);
	else if (is_text(k))
		set_text(k, NULL, s);
}

/* --- YAML to members --- */

static int bad_type(const struct queue_key *k, const char *name, const struct doc_node *n,
	const char *instead, struct err *e)
{
	CLEANUP(buf_done) struct buf key = {0}, right = {0};

	queue_key_put_name(k, &key);
	buf_puts(&right, "write ");
	queue_key_put_type(k, &right);
	return config_bad_value(name, buf_str(&key), n, instead ? instead : buf_str(&right), e);
}

static int read_bool(const struct queue_key *k, const char *name, const struct doc_node *n,
	struct queue_settings *s, struct err *e)
{
	bool yes = false;

	if (n->is_tagged || scalar_bool(n, &yes) < 0)
		return bad_type(k, name, n, NULL, e);
	return set(k, yes ? "true" : "false", s);
}

/* One text that may stand there. */
static int check_text(
	const struct queue_key *k, const char *name, const struct doc_node *n, struct err *e)
{
	const char *right = NULL;

	if (n->kind != DOC_SCALAR || n->is_tagged)
		return bad_type(k, name, n, "takes one value, not a list or a mapping", e);
	if (n->len > TEXT_MAX)
		return bad_type(k, name, n, "1024 bytes are the most", e);
	if (strlen(n->text) != n->len || !config_is_printable(n->text))
		return bad_type(k, name, n, "it holds control characters; write plain text", e);
	if ((int64_t)n->len < k->min)
		return bad_type(
			k, name, n, "it can't be empty; leave the key out for the default", e);
	if (k->check && k->check(n->text, &right) < 0)
		return bad_type(k, name, n, right, e);
	return 0;
}

static int read_text(const struct queue_key *k, const char *name, const struct doc_node *n,
	struct queue_settings *s, struct err *e)
{
	CLEANUP_FREE char *expanded = NULL;
	int r = check_text(k, name, n, e);

	if (r < 0)
		return r;
	if (k->is_local_path)
		expanded = home_expand(n->text);
	return set(k, expanded ? expanded : n->len ? n->text : NULL, s);
}

/* What may stand in a text has no line break, so one can stand between them. */
static int read_texts(const struct queue_key *k, const char *name, const struct doc_node *n,
	struct queue_settings *s, struct err *e)
{
	CLEANUP(buf_done) struct buf all = {0};
	int r = 0;

	if (n->kind != DOC_SEQUENCE)
		return read_text(k, name, n, s, e);
	if (n->is_tagged || n->n > TEXTS_MAX)
		return bad_type(k, name, n, NULL, e);
	for (size_t i = 0; r == 0 && i < n->n; i++) {
		const struct doc_node *item = &n->items[i];

		r = check_text(k, name, item, e);
		if (r == 0)
			buf_printf(&all, "%s%s", i ? "\n" : "", item->text);
	}
	return r < 0 ? r : set(k, all.len ? buf_str(&all) : NULL, s);
}

static int read_causes(const struct queue_key *k, const char *name, const struct doc_node *n,
	struct queue_settings *s, struct err *e)
{
	uint32_t bits = 0;

	if (n->kind != DOC_SEQUENCE || n->is_tagged || n->n > CAUSES_MAX)
		return bad_type(k, name, n, NULL, e);
	for (size_t i = 0; i < n->n; i++) {
		const struct doc_node *item = &n->items[i];

		if (item->kind != DOC_SCALAR || item->is_tagged ||
			strlen(item->text) != item->len ||
			add_cause(item->text, item->len, &bits) < 0)
			return bad_type(k, name, item, NULL, e);
	}
	*(uint32_t *)member(k, s) = bits;
	return 0;
}

/* Numbers may be in quotes, as nvidb has them; a bool or a list is none. */
static int read_number(const struct queue_key *k, const char *name, const struct doc_node *n,
	struct queue_settings *s, struct err *e)
{
	CLEANUP(buf_done) struct buf key = {0};
	const char *text = NULL;
	char space[24];
	int r;

	if (n->kind != DOC_SCALAR || n->is_tagged || strlen(n->text) != n->len)
		return bad_type(k, name, n, NULL, e);
	queue_key_put_name(k, &key);
	r = config_number_text(name, buf_str(&key), n, space, &text, e);
	if (r < 0)
		return r;
	return set(k, text, s) < 0 ? bad_type(k, name, n, NULL, e) : 0;
}

int queue_key_read(const struct queue_key *k, const char *name, const struct doc_node *n,
	bool is_nvidb, struct queue_settings *s, struct err *e)
{
	if (k->kind == QUEUE_KEY_IGNORED)
		return 0;
	if (scalar_is_null(n)) {
		queue_key_reset(k, is_nvidb, s);
		return 0;
	}
	switch (k->kind) {
	case QUEUE_KEY_BOOL:
		return read_bool(k, name, n, s, e);
	case QUEUE_KEY_TEXT:
		return read_text(k, name, n, s, e);
	case QUEUE_KEY_TEXTS:
		return read_texts(k, name, n, s, e);
	case QUEUE_KEY_CAUSES:
		return read_causes(k, name, n, s, e);
	default:
		return read_number(k, name, n, s, e);
	}
}

/* --- all of them --- */

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

void queue_settings_settle(struct queue_settings *s)
{
	int64_t least = larger(60 * QUEUE_SECOND, 2 * s->probe_timeout_ms + 30 * QUEUE_SECOND);

	least = larger(least, 2 * s->launch_timeout_ms + 60 * QUEUE_SECOND);
	s->lock_ttl_ms = larger(s->lock_ttl_ms, least);
}

void queue_settings_defaults(struct queue_settings *ret, bool is_nvidb)
{
	*ret = (struct queue_settings){0};
	for (size_t i = 0; i < queue_keys_n; i++)
		queue_key_reset(&queue_keys[i], is_nvidb, ret);
	queue_settings_settle(ret);
}

void queue_settings_done(struct queue_settings *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < queue_keys_n; i++)
		if (is_text(&queue_keys[i]))
			set_text(&queue_keys[i], NULL, s);
	*s = (struct queue_settings){0};
}

static json_t *scaled(int64_t v, int64_t unit)
{
	return v % unit == 0 ? json_integer(v / unit) : json_real((double)v / (double)unit);
}

static json_t *causes_json(uint32_t bits)
{
	json_t *list = json_array();

	for (unsigned c = 0; c < JOB_CAUSE_N; c++)
		if (bits >> c & 1)
			json_array_append_new(list, json_string(job_cause_name((enum job_cause)c)));
	return list;
}

/* One as text, several as a list. */
static json_t *texts_json(const char *text)
{
	json_t *list = json_array();

	if (!strchr(text, '\n')) {
		json_decref(list);
		return json_string(text);
	}
	for (size_t n; *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		json_array_append_new(list, json_stringn(text, n));
	}
	return list;
}

static json_t *value_json(const struct queue_key *k, const struct queue_settings *s)
{
	const void *m = const_member(k, s);
	const char *text;

	switch (k->kind) {
	case QUEUE_KEY_BOOL:
		return json_boolean(*(const bool *)m);
	case QUEUE_KEY_WORD:
		return json_string(k->word(*(const unsigned *)m));
	case QUEUE_KEY_TEXT:
		text = *(char *const *)m;
		return text ? json_string(text) : json_null();
	case QUEUE_KEY_TEXTS:
		text = *(char *const *)m;
		return text ? texts_json(text) : json_null();
	case QUEUE_KEY_SHARE:
		return json_real(*(const double *)m);
	case QUEUE_KEY_CAUSES:
		return causes_json(*(const uint32_t *)m);
	case QUEUE_KEY_TIME:
		return scaled(*(const int64_t *)m, QUEUE_SECOND);
	case QUEUE_KEY_HOURS:
		return scaled(*(const int64_t *)m, 3600 * QUEUE_SECOND);
	case QUEUE_KEY_VRAM:
		if (*(const int64_t *)m < 0)
			return json_string("auto");
		return json_integer(*(const int64_t *)m);
	default:
		return json_integer(*(const int64_t *)m);
	}
}

/* Of "notify.webhook" the object in the object, made if it isn't there. Borrowed. */
static json_t *section_json(json_t *all, const char *section)
{
	while (section && *section) {
		size_t n = strcspn(section, ".");
		CLEANUP_FREE char *word = xstrndup(section, n);
		json_t *into = json_object_get(all, word);

		if (!into) {
			into = json_object();
			json_object_set_new(all, word, into);
		}
		all = into;
		section += n + (section[n] == '.');
	}
	return all;
}

void queue_settings_json(const struct queue_settings *s, struct buf *ret)
{
	json_t *all = json_object();
	CLEANUP_FREE char *text = NULL;

	for (size_t i = 0; i < queue_keys_n; i++) {
		const struct queue_key *k = &queue_keys[i];

		if (k->kind != QUEUE_KEY_IGNORED)
			json_object_set_new(
				section_json(all, k->section), k->name, value_json(k, s));
	}
	text = json_dumps(all, JSON_COMPACT);
	buf_puts(ret, text ? text : "");
	json_decref(all);
}
