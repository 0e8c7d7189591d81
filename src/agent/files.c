/* The table of streams, its messages, and inotify for the followers among them (files.h). */
#include "agent/files.h"

#include "agent/follow.h"
#include "agent/server.h"
#include "agent/stage.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define HEAR_MS 20 /* a job that writes line by line wakes nobody for each of them */
#define PATH_MAX_BYTES 4096

struct stream {
	uint64_t client;
	int64_t id;
	struct stage_body *body; /* NULL: a file */
	struct follow file;
	bool has_name; /* the attempt's, whose end ends the following */
	struct attempt_name name;
	int watch; /* inotify's; -1 */
};

struct files {
	struct stream **items; /* owned */
	size_t n, cap;
	size_t first; /* whose turn it is to send first */
	int notify_fd;
	int64_t heard_ms;
};

/* ---- life ---- */

struct files *files_new(void)
{
	struct files *x = xcalloc(1, sizeof(*x));

	x->notify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	return x;
}

/* Two streams of one file have one watch. */
static void unwatch(struct files *x, struct stream *s)
{
	int watch = s->watch;

	s->watch = -1;
	if (watch < 0)
		return;
	for (size_t i = 0; i < x->n; i++)
		if (x->items[i]->watch == watch)
			return;
	inotify_rm_watch(x->notify_fd, watch);
}

/* Where the file system, or /proc, doesn't have it, the look every second remains. */
static void watch(struct files *x, struct stream *s)
{
	char path[40];

	unwatch(x, s);
	s->file.is_new_fd = false;
	if (x->notify_fd < 0 || !s->file.follow)
		return;
	/* By the descriptor: the name may be another file's by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", s->file.fd);
	s->watch = inotify_add_watch(
		x->notify_fd, path, IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF);
}

static void stream_free(struct files *x, struct stream *s)
{
	unwatch(x, s);
	stage_body_free(s->body);
	follow_done(&s->file);
	free(s);
}

void files_free(struct files *x)
{
	if (!x)
		return;
	for (size_t i = 0; i < x->n; i++) {
		stage_body_free(x->items[i]->body);
		follow_done(&x->items[i]->file);
		free(x->items[i]);
	}
	free(x->items);
	if (x->notify_fd >= 0)
		close(x->notify_fd);
	free(x);
}

static struct stream *find(const struct files *x, const struct client *c, int64_t id)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->items[i]->client == c->id && x->items[i]->id == id)
			return x->items[i];
	return NULL;
}

static void drop(struct files *x, struct stream *s)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->items[i] == s) {
			memmove(&x->items[i], &x->items[i + 1],
				(x->n - i - 1) * sizeof(struct stream *));
			x->n--;
			break;
		}
	stream_free(x, s);
}

static void fail(struct files *x, struct client *c, struct stream *s, const char *text)
{
	client_error_of(c, s->id, text);
	drop(x, s);
}

/* ---- opening ---- */

static int stream_id(const json_t *msg, int64_t *ret, struct err *e)
{
	return wire_int(msg, "id", 0, INT64_MAX, ret, e);
}

/* Is there room for one more of that id? */
static int check_room(const struct files *x, const struct client *c, int64_t id, struct err *e)
{
	size_t n = 0;

	if (find(x, c, id))
		return err_set(e, -EEXIST, "stream %lld is open already", (long long)id);
	for (size_t i = 0; i < x->n; i++)
		n += x->items[i]->client == c->id;
	if (n >= FILES_OF_CLIENT_MAX)
		return err_set(e, -EBUSY, "%d streams of this link are open already; close one",
			FILES_OF_CLIENT_MAX);
	if (x->n >= FILES_MAX)
		return err_set(e, -EBUSY,
			"%d streams are open on this machine already; try again later", FILES_MAX);
	return 0;
}

static struct stream *add(struct files *x, const struct client *c, int64_t id)
{
	struct stream *s = xcalloc(1, sizeof(*s));

	s->client = c->id;
	s->id = s->file.id = id;
	s->file.fd = s->watch = -1;
	GROW(x->items, x->n, x->cap);
	x->items[x->n++] = s;
	return s;
}

/* An optional number: *ret stays what it is without it. */
static int optional(const json_t *msg, const char *key, int64_t max, int64_t *ret, struct err *e)
{
	return json_object_get(msg, key) ? wire_int(msg, key, 0, max, ret, e) : 0;
}

static int read_path(const json_t *msg, char **ret, struct err *e)
{
	static const char *const names[] = {
		"stdout.log", "stderr.log", "status", "result.json", "run.sh"};
	char dir[PATH_MAX_BYTES - 16], name[16];
	int r = wire_str(msg, "dir", dir, sizeof(dir), e);

	if (!r)
		r = wire_str(msg, "name", name, sizeof(name), e);
	if (r)
		return r;
	if (dir[0] != '/')
		return err_set(e, -EINVAL, "the message's \"dir\" must be an absolute path");
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (!strcmp(name, names[i])) {
			*ret = xasprintf("%s/%s", dir, name);
			return 0;
		}
	return err_set(e, -EINVAL,
		"the message's \"name\" must be stdout.log, stderr.log, status, result.json or run.sh");
}

static int read_attempt(const json_t *msg, struct stream *ret, struct err *e)
{
	int64_t job, attempt;
	int r;

	if (!json_object_get(msg, "queue"))
		return 0;
	if ((r = wire_str(msg, "queue", ret->name.queue, sizeof(ret->name.queue), e)) ||
		(r = wire_int(msg, "job", 1, INT64_MAX, &job, e)) ||
		(r = wire_int(msg, "attempt", 1, UINT32_MAX, &attempt, e)))
		return r;
	ret->name.job = (uint64_t)job;
	ret->name.attempt = (uint32_t)attempt;
	ret->has_name = true;
	return 0;
}

static int read_want(const json_t *msg, struct stream *ret, struct err *e)
{
	struct follow *f = &ret->file;
	int r;

	f->lines = -1;
	f->max = FOLLOW_MAX;
	if ((r = optional(msg, "lines", INT32_MAX, &f->lines, e)) ||
		(r = optional(msg, "offset", INT64_MAX, &f->offset, e)) ||
		(r = optional(msg, "max", FOLLOW_MAX, &f->max, e)) ||
		(json_object_get(msg, "follow") && (r = wire_bool(msg, "follow", &f->follow, e))) ||
		(r = read_attempt(msg, ret, e)))
		return r;
	return read_path(msg, &f->path, e);
}

int files_open(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	struct stream want = {.file = {.fd = -1}, .watch = -1}, *s;
	int64_t id;
	int r = stream_id(msg, &id, e);

	if (!r)
		r = check_room(a->files, c, id, e);
	if (!r)
		r = read_want(msg, &want, e);
	if (r)
		return r;
	s = add(a->files, c, id);
	s->file = want.file;
	s->file.id = id;
	s->has_name = want.has_name;
	s->name = want.name;
	s->file.look_at_ms = a->now_ms;
	return 0;
}

/* ---- bodies ---- */

static void end_body(struct files *x, struct client *c, struct stream *s)
{
	struct err e = {0};

	if (stage_body_end(s->body, &e)) {
		fail(x, c, s, e.text);
		return;
	}
	client_send(c, json_pack("{s:s, s:I}", "op", "staged", "id", (json_int_t)s->id));
	drop(x, s);
}

int files_stage(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	struct stage_body *body;
	char token[ID_LEN];
	int64_t id, size;
	struct stream *s;
	int r = stream_id(msg, &id, e);

	if (!r)
		r = check_room(a->files, c, id, e);
	if (!r)
		r = wire_str(msg, "token", token, sizeof(token), e);
	if (!r)
		r = wire_int(msg, "size", 0, INT64_MAX, &size, e);
	if (!r)
		r = stage_body_new(&a->root, token, size, &body, e);
	if (r)
		return r;
	s = add(a->files, c, id);
	s->body = body;
	if (!size)
		end_body(a->files, c, s);
	return 0;
}

void files_bulk(struct agent *a, struct client *c, uint64_t stream, const char *bytes, size_t n)
{
	struct stream *s = stream > INT64_MAX ? NULL : find(a->files, c, (int64_t)stream);
	struct err e = {0};
	int r;

	if (!s || !s->body)
		return;
	r = stage_body_put(s->body, bytes, n, &e);
	if (r < 0) {
		fail(a->files, c, s, e.text);
		return;
	}
	client_send(c, json_pack("{s:s, s:I, s:I}", "op", "credit", "id", (json_int_t)s->id, "n",
			       (json_int_t)n));
	if (r)
		end_body(a->files, c, s);
}

/* ---- the client's word about a stream ---- */

int files_credit(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	struct stream *s;
	int64_t id, n;
	int r = stream_id(msg, &id, e);

	if (!r)
		r = wire_int(msg, "n", 0, INT64_MAX, &n, e);
	if (r)
		return r;
	s = find(a->files, c, id);
	if (s)
		follow_credit(&s->file, n);
	return 0;
}

int files_close(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	struct stream *s;
	int64_t id;
	int r = stream_id(msg, &id, e);

	if (r)
		return r;
	s = find(a->files, c, id);
	if (s)
		drop(a->files, s);
	return 0;
}

/* ---- what happens ---- */

void files_attempt_changed(struct agent *a, const struct attempt_name *n)
{
	struct files *x = a->files;

	for (size_t i = 0; x && i < x->n; i++)
		if (x->items[i]->has_name && attempt_name_equal(&x->items[i]->name, n))
			x->items[i]->file.look_at_ms = a->now_ms;
}

int files_fd(const struct agent *a)
{
	return a->now_ms - a->files->heard_ms >= HEAR_MS ? a->files->notify_fd : -1;
}

void files_heard(struct agent *a)
{
	/* Aligned as inotify(7) wants it. */
	char bytes[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
	struct files *x = a->files;
	ssize_t n;

	x->heard_ms = a->now_ms;
	while ((n = read(x->notify_fd, bytes, sizeof(bytes))) > 0)
		for (char *p = bytes; p < bytes + n;) {
			const struct inotify_event *ev = (const void *)p;

			/* An overflow (wd -1) may have been about any of them. */
			for (size_t i = 0; i < x->n; i++)
				if (ev->wd < 0 || x->items[i]->watch == ev->wd)
					x->items[i]->file.look_at_ms = a->now_ms;
			p += sizeof(*ev) + ev->len;
		}
}

/* ---- turns ---- */

static void take_turn(struct agent *a, struct client *c, struct stream *s)
{
	struct follow *f = &s->file;
	struct err e = {0};

	/* First whether it's over, then what there is: so the last bytes are never missed. */
	if (s->has_name && !f->has_ended && a->now_ms >= f->look_at_ms) {
		const struct attempt *at = attempts_find(&a->attempts, &s->name);

		f->has_ended = !at || at->rec.state == ATTEMPT_ENDED;
	}
	if (follow_turn(f, c, a->now_ms, &e))
		fail(a->files, c, s, e.text);
	else if (f->state == FOLLOW_OVER)
		drop(a->files, s);
	else if (f->is_new_fd)
		watch(a->files, s);
}

static void forget_gone(struct agent *a)
{
	struct files *x = a->files;

	for (size_t i = x->n; i-- > 0;)
		if (!agent_find_client(a, x->items[i]->client))
			drop(x, x->items[i]);
}

void files_turn(struct agent *a)
{
	struct files *x = a->files;
	struct stream *all[FILES_MAX];
	size_t n, first;

	forget_gone(a);
	n = x->n;
	if (!n)
		return;
	memcpy(all, x->items, n * sizeof(*all));
	first = x->first++ % n;
	for (size_t i = 0; i < n; i++) {
		struct stream *s = all[(first + i) % n];
		struct client *c = agent_find_client(a, s->client);

		if (c && !s->body && !c->is_closing)
			take_turn(a, c, s);
	}
}

int64_t files_wait_ms(const struct agent *a)
{
	const struct files *x = a->files;
	int64_t least = -1;

	/* What inotify holds back until then. */
	if (x->n && a->now_ms - x->heard_ms < HEAR_MS)
		least = x->heard_ms + HEAR_MS - a->now_ms;
	for (size_t i = 0; i < x->n; i++) {
		const struct client *c = agent_find_client(a, x->items[i]->client);
		int64_t ms = !c || c->is_closing || x->items[i]->body
				     ? -1
				     : follow_wait_ms(&x->items[i]->file, c, a->now_ms);

		if (ms >= 0 && (least < 0 || ms < least))
			least = ms;
	}
	return least;
}
