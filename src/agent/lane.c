/*
 * A lane's file, written and read (lane.h). Everything read from it is bounded and checked as a claim's spec is; what isn't
 * whole isn't a lane.
 */
#include "agent/lane.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"
#include "base/text.h"
#include "core/job.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DIR_NAME "lanes"
#define WORD_MAX 48 /* bytes of the name that stay readable */
#define FILE_NAME_LEN (ID_LEN + WORD_MAX + 20)
#define HEADER_MAX (1024 * 1024)
#define EMPTY_KEEP_MS ((int64_t)30 * 24 * 3600 * 1000)

static void entry_done(struct lane_entry *x)
{
	free(x->cards);
	free(x->needs);
	free(x->dir);
	free(x->text);
}

void lane_done(struct lane *l)
{
	for (size_t i = 0; i < l->n; i++)
		entry_done(&l->entries[i]);
	free(l->entries);
	free(l->left);
	*l = (struct lane){0};
}

bool lane_name_is_valid(const char *name, size_t n)
{
	if (!n || n > LANE_NAME_MAX || utf8_valid_len(name, n) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
			return false;
	return true;
}

ssize_t lane_find(const struct lane *l, const struct attempt_name *n)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->entries[i].name.job == n->job && attempt_name_equal(&l->entries[i].name, n))
			return (ssize_t)i;
	return -1;
}

size_t lane_size(const struct lane *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += l->entries[i].size;
	return n;
}

/* What of the name may stand in a file's name, and a hash that makes it one of its own. */
static void file_name(const char *queue, const char *name, char ret[FILE_NAME_LEN])
{
	char word[WORD_MAX + 1], hex[65];
	uint8_t sum[32];
	size_t n = 0;

	for (; n < WORD_MAX && name[n]; n++) {
		char c = name[n];
		bool is_plain =
			(c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

		word[n] = is_plain ? c : '_';
	}
	word[n] = '\0';
	sha256(name, strlen(name), sum);
	hex_encode(sum, sizeof(sum), hex);
	snprintf(ret, FILE_NAME_LEN, "%s-%s-%.16s", queue, word, hex);
}

static void lane_path(const char *queue, const char *name, char ret[FILE_NAME_LEN + 8])
{
	char file[FILE_NAME_LEN];

	file_name(queue, name, file);
	snprintf(ret, FILE_NAME_LEN + 8, DIR_NAME "/%s", file);
}

/* ---- an entry ---- */

static json_t *encode_needs(const struct lane_need *needs, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			a, json_pack("[I, I, s]", (json_int_t)needs[i].job,
				   (json_int_t)needs[i].attempt, needs[i].ok ? "ok" : "end"));
	return a;
}

static void copy_facts(
	struct lane_entry *x, const struct claim_spec *s, const struct lane_need *needs, size_t n)
{
	x->name = s->name;
	memcpy(x->token, s->token, ID_LEN);
	x->exclusive = s->policy.exclusive;
	x->grace_ms = s->grace_ms;
	x->dir = s->dir ? xstrdup(s->dir) : NULL;
	x->n_cards = s->n_cards;
	x->cards = xcalloc(s->n_cards + 1, sizeof(*x->cards));
	memcpy(x->cards, s->cards, s->n_cards * sizeof(*x->cards));
	x->n_needs = (uint32_t)n;
	x->needs = xcalloc(n + 1, sizeof(*x->needs));
	if (n)
		memcpy(x->needs, needs, n * sizeof(*needs));
}

static void append(struct lane *l, struct lane_entry *x)
{
	GROW(l->entries, l->n, l->cap);
	l->entries[l->n++] = *x;
}

int lane_add(struct lane *l, const struct claim_spec *s, const struct lane_need *needs, size_t n)
{
	struct lane_entry x = {0};
	CLEANUP(buf_done) struct buf b = {0};
	json_t *spec = claim_spec_encode(s), *o;
	char *text;

	if (!spec)
		return -EINVAL;
	o = json_object();
	json_object_set_new(o, "spec", spec);
	json_object_set_new(o, "needs", encode_needs(needs, n));
	json_object_set_new(o, "body", json_integer(s->body ? (json_int_t)strlen(s->body) : -1));
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	buf_puts(&b, text ? text : "");
	buf_putc(&b, '\n');
	buf_puts(&b, s->body ? s->body : "");
	buf_putc(&b, '\n');
	free(text);
	copy_facts(&x, s, needs, n);
	x.size = b.len;
	x.crc = crc32_ieee(b.data, b.len);
	x.text = buf_take(&b);
	append(l, &x);
	return 0;
}

static int decode_needs(const json_t *a, struct lane_need **ret, size_t *ret_n)
{
	size_t n = json_array_size(a);
	CLEANUP_FREE struct lane_need *needs = xcalloc(n + 1, sizeof(*needs));

	if (!json_is_array(a) || n > LANE_NEEDS_MAX)
		return -EBADMSG;
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(a, i);
		json_int_t job = json_integer_value(json_array_get(v, 0)),
			   attempt = json_integer_value(json_array_get(v, 1));
		const char *when = json_string_value(json_array_get(v, 2));

		if (job < 1 || attempt < 0 || attempt > UINT32_MAX || !when)
			return -EBADMSG;
		needs[i] = (struct lane_need){.job = (uint64_t)job,
			.attempt = (uint32_t)attempt,
			.ok = strcmp(when, "end") != 0};
	}
	*ret = TAKE_PTR(needs);
	*ret_n = n;
	return 0;
}

/* The record at the beginning of text: its spec, needs and length. */
static int decode_record(const char *text, size_t n, struct claim_spec *ret,
	struct lane_need **ret_needs, size_t *ret_n, size_t *ret_size)
{
	CLEANUP(claim_spec_done) struct claim_spec s = {0};
	const char *line_end = n ? memchr(text, '\n', n) : NULL;
	size_t line = line_end ? (size_t)(line_end - text) + 1 : 0;
	json_t *o = line ? json_loadb(text, line, JSON_REJECT_DUPLICATES, NULL) : NULL;
	json_t *size = json_object_get(o, "body");
	json_int_t body = json_is_integer(size) ? json_integer_value(size) : -2;
	size_t bytes = body > 0 ? (size_t)body : 0;
	int r = -EBADMSG;

	if (body >= -1 && body <= JOB_TEXT_MAX && n - line > bytes && text[line + bytes] == '\n' &&
		!memchr(text + line, '\0', bytes) &&
		!claim_spec_decode(json_object_get(o, "spec"), &s, NULL))
		r = decode_needs(json_object_get(o, "needs"), ret_needs, ret_n);
	json_decref(o);
	if (r)
		return r;
	if (body >= 0)
		s.body = xstrndup(text + line, bytes);
	*ret_size = line + bytes + 1;
	*ret = s;
	s = (struct claim_spec){0};
	return 0;
}

/* ---- reading a piece ---- */

static int read_record(struct root *r, const struct lane *l, size_t i, struct buf *b, struct err *e)
{
	const struct lane_entry *x = &l->entries[i];
	char path[FILE_NAME_LEN + 8];
	CLEANUP_CLOSE int fd = -1;
	size_t got = 0;

	if (x->text) {
		buf_put(b, x->text, x->size);
		return 0;
	}
	lane_path(l->queue, l->name, path);
	fd = openat(r->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, -errno, "cannot read %s/%s", r->path, path);
	buf_reserve(b, x->size + 1);
	while (got < x->size) {
		ssize_t n = pread(fd, b->data + b->len, x->size - got, (off_t)(x->at + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(e, -EBADMSG, "%s/%s is shorter than it was", r->path, path);
		got += (size_t)n;
		b->len += (size_t)n;
	}
	b->data[b->len] = '\0';
	return 0;
}

int lane_add_from(struct root *r, struct lane *l, const struct lane *from, size_t i, struct err *e)
{
	const struct lane_entry *x = &from->entries[i];
	CLEANUP(buf_done) struct buf b = {0};
	struct lane_entry copy = *x;
	int code = read_record(r, from, i, &b, e);

	if (code)
		return code;
	copy.cards = xcalloc(x->n_cards + 1, sizeof(*copy.cards));
	memcpy(copy.cards, x->cards, x->n_cards * sizeof(*copy.cards));
	copy.needs = xcalloc(x->n_needs + 1, sizeof(*copy.needs));
	memcpy(copy.needs, x->needs, x->n_needs * sizeof(*copy.needs));
	copy.dir = x->dir ? xstrdup(x->dir) : NULL;
	copy.text = buf_take(&b);
	append(l, &copy);
	return 0;
}

int lane_read_spec(
	struct root *r, const struct lane *l, size_t i, struct claim_spec *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP_FREE struct lane_need *needs = NULL;
	CLEANUP(claim_spec_done) struct claim_spec s = {0};
	size_t n, size;
	int code = read_record(r, l, i, &b, e);

	if (code)
		return code;
	if (decode_record(b.data, b.len, &s, &needs, &n, &size) ||
		strcmp(s.token, l->entries[i].token) != 0)
		return err_set(e, -EBADMSG, "what lane %s has of job %llu is damaged", l->name,
			(unsigned long long)l->entries[i].name.job);
	if (l->has_policy) {
		bool is_exclusive = s.policy.exclusive;

		s.policy = l->policy;
		s.policy.exclusive = is_exclusive;
	}
	*ret = s;
	s = (struct claim_spec){0};
	return 0;
}

/* ---- the file ---- */

static json_t *encode_left(const struct lane *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n_left; i++)
		json_array_append_new(
			a, json_pack("[I, I, s]", (json_int_t)l->left[i].name.job,
				   (json_int_t)l->left[i].name.attempt, l->left[i].token));
	return a;
}

static void put_header(const struct lane *l, struct buf *out)
{
	json_t *o = json_pack("{s:i, s:s, s:s, s:[I, I, I], s:I, s:i, s:b, s:I, s:o}", "version", 1,
		"queue", l->queue, "lane", l->name, "fence", (json_int_t)l->fence.v[0],
		(json_int_t)l->fence.v[1], (json_int_t)l->fence.v[2], "generation",
		(json_int_t)l->generation, "concurrency", (int)l->concurrency, "paused", l->paused,
		"n", (json_int_t)l->n, "left", encode_left(l));
	char *text;

	if (l->has_policy)
		json_object_set_new(o, "policy", claim_policy_encode(&l->policy));
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	buf_puts(out, text ? text : "");
	buf_putc(out, '\n');
	free(text);
}

void lane_copy_head(const struct lane *from, struct lane *ret)
{
	memcpy(ret->queue, from->queue, sizeof(ret->queue));
	memcpy(ret->name, from->name, sizeof(ret->name));
	ret->fence = from->fence;
	ret->generation = from->generation;
	ret->concurrency = from->concurrency;
	ret->paused = from->paused;
	ret->has_policy = from->has_policy;
	ret->policy = from->policy;
}

int lane_store(struct root *r, struct lane *l, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP_FREE size_t *at = xcalloc(l->n + 1, sizeof(*at));
	char path[FILE_NAME_LEN + 8];
	int code = 0;

	put_header(l, &out);
	for (size_t i = 0; !code && i < l->n; i++) {
		at[i] = out.len;
		code = read_record(r, l, i, &out, e);
	}
	if (code)
		return code;
	if (mkdirat(r->fd, DIR_NAME, 0700) < 0 && errno != EEXIST)
		return err_sys(e, -errno, "cannot make %s/" DIR_NAME, r->path);
	lane_path(l->queue, l->name, path);
	code = fault_point("agent.before-lane-stored");
	if (!code)
		code = fd_replace_at(r->fd, path, out.data, out.len, true);
	/* The directory may be as new as the file. */
	if (!code)
		code = fd_sync_dir_at(r->fd, ".");
	if (code)
		return err_sys(e, code, "cannot write %s/%s", r->path, path);
	for (size_t i = 0; i < l->n; i++) {
		l->entries[i].at = at[i];
		free(l->entries[i].text);
		l->entries[i].text = NULL;
	}
	return 0;
}

static int decode_left(const json_t *a, struct lane *l)
{
	for (size_t i = 0; i < json_array_size(a); i++) {
		const json_t *v = json_array_get(a, i);
		json_int_t job = json_integer_value(json_array_get(v, 0)),
			   attempt = json_integer_value(json_array_get(v, 1));
		const char *token = json_string_value(json_array_get(v, 2));
		struct lane_ref *x;

		if (job < 1 || attempt < 1 || attempt > UINT32_MAX || !token || !id_is_valid(token))
			return -EBADMSG;
		GROW(l->left, l->n_left, l->cap_left);
		x = &l->left[l->n_left++];
		*x = (struct lane_ref){
			.name = {.job = (uint64_t)job, .attempt = (uint32_t)attempt}};
		memcpy(x->name.queue, l->queue, ID_LEN);
		memcpy(x->token, token, ID_LEN);
	}
	return 0;
}

static int decode_fence(const json_t *f, struct fence *ret)
{
	for (size_t i = 0; i < 3; i++) {
		const json_t *v = json_array_get(f, i);

		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return -EBADMSG;
		ret->v[i] = (uint64_t)json_integer_value(v);
	}
	return 0;
}

static int decode_header(const json_t *o, struct lane *l, size_t *ret_n)
{
	const char *queue = json_string_value(json_object_get(o, "queue")),
		   *name = json_string_value(json_object_get(o, "lane"));
	json_int_t generation = json_integer_value(json_object_get(o, "generation")),
		   concurrency = json_integer_value(json_object_get(o, "concurrency")),
		   n = json_integer_value(json_object_get(o, "n"));

	if (!queue || !id_is_valid(queue) || !name || !lane_name_is_valid(name, strlen(name)) ||
		generation < 1 || concurrency < 1 || concurrency > LANE_CONCURRENCY_MAX || n < 0 ||
		n > LANE_ENTRIES_MAX)
		return -EBADMSG;
	memcpy(l->queue, queue, ID_LEN);
	memcpy(l->name, name, strlen(name) + 1);
	l->generation = (uint64_t)generation;
	l->concurrency = (uint32_t)concurrency;
	/* What can't be told from "no" starts nothing. */
	l->paused = !json_is_false(json_object_get(o, "paused"));
	*ret_n = (size_t)n;
	l->has_policy = json_object_get(o, "policy") != NULL;
	if (l->has_policy && claim_policy_decode(json_object_get(o, "policy"), &l->policy, NULL))
		return -EBADMSG;
	return decode_fence(json_object_get(o, "fence"), &l->fence)
		       ? -EBADMSG
		       : decode_left(json_object_get(o, "left"), l);
}

static int decode_entries(const struct buf *b, size_t at, size_t n, struct lane *l)
{
	for (size_t i = 0; i < n; i++) {
		CLEANUP(claim_spec_done) struct claim_spec s = {0};
		CLEANUP_FREE struct lane_need *needs = NULL;
		struct lane_entry x = {.at = at};
		size_t n_needs;

		if (decode_record(b->data + at, b->len - at, &s, &needs, &n_needs, &x.size) ||
			strcmp(s.name.queue, l->queue) != 0)
			return -EBADMSG;
		copy_facts(&x, &s, needs, n_needs);
		x.crc = crc32_ieee(b->data + at, x.size);
		append(l, &x);
		at += x.size;
	}
	return 0;
}

static int load_file(struct root *r, const char *path, struct lane *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct lane l = {0};
	size_t line = 0, n = 0;
	const char *end;
	json_t *o;
	int code = fd_read_file_at(r->fd, path, &b, LANE_BYTES_MAX + HEADER_MAX);

	if (code)
		return err_sys(e, code, "cannot read %s/%s", r->path, path);
	end = b.len ? memchr(b.data, '\n', b.len) : NULL;
	line = end ? (size_t)(end - b.data) + 1 : 0;
	o = line ? json_loadb(b.data, line, JSON_REJECT_DUPLICATES, NULL) : NULL;
	code = o ? decode_header(o, &l, &n) : -EBADMSG;
	json_decref(o);
	if (!code)
		code = decode_entries(&b, line, n, &l);
	if (code) {
		lane_done(&l);
		return err_set(e, code,
			"%s/%s is damaged: it isn't a lane, so nothing of it starts", r->path,
			path);
	}
	*ret = l;
	return 0;
}

int lane_load(struct root *r, const char *queue, const char *name, struct lane *ret, struct err *e)
{
	char path[FILE_NAME_LEN + 8];

	lane_path(queue, name, path);
	return load_file(r, path, ret, e);
}

/* ---- all of them ---- */

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A lane without entries is kept for its generation, but not for ever. */
static bool is_forgotten(struct root *r, const char *path, const struct lane *l)
{
	struct sys_stat st;

	if (l->n || l->n_left || sys_stat_at(r->fd, path, AT_SYMLINK_NOFOLLOW, &st))
		return false;
	return st.mtime_ns / 1000000 < clock_wall_ms() - EMPTY_KEEP_MS;
}

static size_t list_files(struct root *r, char ***ret)
{
	int fd = openat(r->fd, DIR_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_CLOSEDIR DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char **names = NULL;
	size_t n = 0, cap = 0;
	const struct dirent *entry;

	while (d && (entry = readdir(d))) {
		if (entry->d_name[0] == '.')
			continue;
		/* Half a replacement of one that died over it. */
		if (strstr(entry->d_name, ".tmp")) {
			unlinkat(dirfd(d), entry->d_name, 0);
			continue;
		}
		GROW(names, n, cap);
		names[n++] = xstrdup(entry->d_name);
	}
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	*ret = names;
	return n;
}

int lane_each(struct root *r, void (*fn)(void *arg, struct lane *l),
	void (*bad)(void *arg, const char *file, const struct err *e), void *arg)
{
	char **names = NULL;
	size_t n = list_files(r, &names);

	for (size_t i = 0; i < n; i++) {
		CLEANUP_FREE char *path = xasprintf(DIR_NAME "/%s", names[i]);
		struct lane l = {0};
		struct err e = {0};

		free(names[i]);
		if (load_file(r, path, &l, &e))
			bad(arg, path, &e);
		else if (is_forgotten(r, path, &l))
			unlinkat(r->fd, path, 0);
		else
			fn(arg, &l);
		lane_done(&l);
	}
	free(names);
	return 0;
}
