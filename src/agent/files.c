/* The table of streams and its messages (files.h). A file's bytes come from a child (follow.h), and are only passed on. */
#include "agent/files.h"

#include "agent/follow.h"
#include "agent/server.h"
#include "agent/stage.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATH_MAX_BYTES 4096
#define READ_STEP 65536

struct stream {
	uint64_t client;
	int64_t id;
	struct stage_body *body; /* NULL: a file */
	struct follow file; /* what is wanted of it; the child goes by it */
	int fd; /* of the child; -1 */
	struct buf in; /* what it said and isn't passed on yet */
	bool has_ended; /* the child closed its end */
	bool has_more; /* more lay there than the client took */
	bool has_name; /* the attempt's, whose end ends the following */
	struct attempt_name name;
};

struct files {
	struct stream **items; /* owned */
	size_t n, cap;
	size_t first; /* whose turn it is to send first */
	pid_t children[FILES_MAX]; /* not reaped yet: one that was killed may hang on */
	size_t n_children;
	int epoll_fd;
};

/* ---- life ---- */

struct files *files_new(void)
{
	struct files *x = xcalloc(1, sizeof(*x));

	x->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return x;
}

/* The child ends when its link does, or hangs until its disk answers and ends then. */
static void stream_free(struct stream *s)
{
	stage_body_free(s->body);
	follow_done(&s->file);
	if (s->fd >= 0)
		close(s->fd);
	buf_done(&s->in);
	free(s);
}

void files_free(struct files *x)
{
	if (!x)
		return;
	for (size_t i = 0; i < x->n; i++)
		stream_free(x->items[i]);
	for (size_t i = 0; i < x->n_children; i++)
		kill(x->children[i], SIGKILL);
	free(x->items);
	if (x->epoll_fd >= 0)
		close(x->epoll_fd);
	free(x);
}

bool files_reaped(struct files *x, pid_t pid)
{
	for (size_t i = 0; i < x->n_children; i++) {
		if (x->children[i] != pid)
			continue;
		x->children[i] = x->children[--x->n_children];
		return true;
	}
	return false;
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
	stream_free(s);
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
	if (x->n >= FILES_MAX || x->n_children >= FILES_MAX)
		return err_set(e, -EBUSY,
			"%d streams are open on this machine already; try again later", FILES_MAX);
	return 0;
}

static struct stream *add(struct files *x, const struct client *c, int64_t id)
{
	struct stream *s = xcalloc(1, sizeof(*s));

	s->client = c->id;
	s->id = s->file.id = id;
	s->file.fd = s->fd = -1;
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

/* A claim that's gone has ended, and so has one that there never was. */
static bool is_over(const struct agent *a, const struct stream *s)
{
	const struct attempt *at = s->has_name ? attempts_find(&a->attempts, &s->name) : NULL;

	return s->has_name && (!at || at->rec.state == ATTEMPT_ENDED);
}

static int start_child(struct agent *a, struct stream *s, struct err *e)
{
	struct files *x = a->files;
	/* Told once of what has come, not for as long as it lies there: a client that's full takes it later. */
	struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
	pid_t pid = follow_fork(&s->file, &s->fd);

	if (pid < 0)
		return err_sys(e, pid, "cannot make a process to read %s", s->file.path);
	x->children[x->n_children++] = pid;
	epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev);
	return 0;
}

int files_open(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	struct stream want = {.file = {.fd = -1}}, *s;
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
	s->file.has_ended = is_over(a, s);
	r = start_child(a, s, e);
	if (r)
		drop(a->files, s);
	return r;
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

/* To the child. One that takes nothing hangs; a word lost is a stream lost. One that has gone has said all it had to say. */
static bool tell(struct stream *s, json_t *msg)
{
	CLEANUP(buf_done) struct buf b = {0};
	ssize_t n;

	wire_put_json(&b, msg, NULL);
	json_decref(msg);
	n = send(s->fd, b.data, b.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n == (ssize_t)b.len || (n < 0 && (errno == EPIPE || errno == ECONNRESET));
}

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
	if (!s || s->body || tell(s, json_pack("{s:I}", "credit", (json_int_t)n)))
		return 0;
	fail(a->files, c, s, "the process that reads the file doesn't answer");
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

/* First that it's over, then what there is: so the last bytes are never missed. */
void files_attempt_changed(struct agent *a, const struct attempt_name *n)
{
	struct files *x = a->files;

	for (size_t i = 0; x && i < x->n; i++) {
		struct stream *s = x->items[i];

		if (s->fd < 0 || !s->has_name || !attempt_name_equal(&s->name, n))
			continue;
		/* A child that hangs with all that it was told unread looks by itself when it goes on. */
		tell(s, json_pack("{s:b}", "ended", is_over(a, s)));
	}
}

int files_fd(const struct files *x)
{
	return x->epoll_fd;
}

/* ---- turns ---- */

/* Passes on what fits. True when the stream is over. */
static bool pass_on(struct client *c, struct stream *s)
{
	CLEANUP(wire_frame_done) struct wire_frame f = {0};

	while (client_takes_bulk(c) && wire_get(&s->in, &f, NULL) > 0) {
		const char *op = json_string_value(json_object_get(f.msg, "op"));
		bool is_last = op && (!strcmp(op, "over") || !strcmp(op, "error"));

		if (f.kind == WIRE_BULK)
			client_send_bulk(c, (uint64_t)s->id, f.bytes.data, f.bytes.len);
		else
			client_send(c, TAKE_PTR(f.msg));
		if (is_last)
			return true;
	}
	return false;
}

static bool read_on(struct stream *s)
{
	ssize_t n;

	if (s->in.len >= READ_STEP || s->has_ended)
		return false;
	buf_reserve(&s->in, READ_STEP);
	do
		n = read(s->fd, s->in.data + s->in.len, READ_STEP);
	while (n < 0 && errno == EINTR);
	if (n > 0)
		s->in.len += (size_t)n;
	s->has_ended = n == 0 || (n < 0 && errno != EAGAIN);
	return n > 0;
}

static void take_turn(struct agent *a, struct client *c, struct stream *s)
{
	bool is_over = pass_on(c, s);

	while (!is_over && client_takes_bulk(c) && read_on(s))
		is_over = pass_on(c, s);
	s->has_more = !client_takes_bulk(c);
	if (is_over)
		drop(a->files, s);
	else if (s->has_ended && client_takes_bulk(c))
		fail(a->files, c, s,
			"the process that was to read the file ended before it was done");
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
	struct epoll_event ev[64];
	size_t n, first;

	forget_gone(a);
	n = x->n;
	if (!n)
		return;
	while (epoll_wait(x->epoll_fd, ev, (int)ARRAY_LEN(ev), 0) == (int)ARRAY_LEN(ev))
		;
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

	for (size_t i = 0; i < x->n; i++) {
		const struct client *c = agent_find_client(a, x->items[i]->client);

		if (c && x->items[i]->has_more && client_takes_bulk(c))
			return 0;
	}
	return -1;
}
