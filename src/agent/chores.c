/* The agent's side of chores.h: what waits, the children, their time. Touches no job root itself. */
#include "agent/chores.h"

#include "agent/facts_of_end.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/wire.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define READ_STEP 65536

struct chore_child {
	pid_t pid; /* 0: it's gone */
	int fd; /* -1: nothing more is to be heard of it */
	struct buf in;
	char *key;
	struct chore *items[CHORE_BATCH_MAX]; /* owned, those from `at` on */
	size_t n, at; /* answered so far */
	int64_t heard_ms;
	bool is_killed;
};

struct chores {
	struct chore **waiting; /* owned, in the order of asking */
	size_t n, cap;
	struct chore_child *children[CHORE_CHILDREN_MAX]; /* owned */
	size_t n_children;
	uint64_t last;
	int epoll_fd;
};

/* ---- life ---- */

struct chores *chores_new(void)
{
	struct chores *x = xcalloc(1, sizeof(*x));

	x->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return x;
}

static void chore_free(struct chore *c)
{
	claim_spec_done(&c->spec);
	free(c->key);
	free(c->dir);
	free(c->names);
	free(c->says);
	free(c);
}

static void hang_up(struct chore_child *ch)
{
	if (ch->fd >= 0)
		close(ch->fd);
	ch->fd = -1;
	buf_done(&ch->in);
}

static void end_child(const struct chore_child *ch)
{
	if (ch->pid > 0)
		kill(ch->pid, SIGKILL);
}

static void child_free(struct chore_child *ch)
{
	hang_up(ch);
	for (size_t i = ch->at; i < ch->n; i++)
		chore_free(ch->items[i]);
	free(ch->key);
	free(ch);
}

void chores_free(struct chores *x)
{
	if (!x)
		return;
	for (size_t i = 0; i < x->n_children; i++) {
		end_child(x->children[i]);
		child_free(x->children[i]);
	}
	for (size_t i = 0; i < x->n; i++)
		chore_free(x->waiting[i]);
	free(x->waiting);
	if (x->epoll_fd >= 0)
		close(x->epoll_fd);
	free(x);
}

/* ---- asking ---- */

/* The job root above a job's directory (or the root itself), however many slashes its name has. */
static char *key_of(char kind, const char *path, int n_up)
{
	size_t len = strlen(path);
	char *key, *to;

	for (;; n_up--) {
		while (len && path[len - 1] == '/')
			len--;
		if (!n_up)
			break;
		while (len && path[len - 1] != '/')
			len--;
	}
	key = to = xcalloc(1, len + 2);
	*to++ = kind;
	for (size_t i = 0; i < len; i++)
		if (path[i] != '/' || to[-1] != '/')
			*to++ = path[i];
	return key;
}

static struct chore *chore_add(
	struct agent *a, enum chore_kind kind, const char *dir, chore_done_fn *done)
{
	struct chores *x = a->chores;
	struct chore *c = xcalloc(1, sizeof(*c));

	c->number = ++x->last;
	c->kind = kind;
	c->key = key_of(kind == CHORE_READ ? 'r' : 'w', dir, kind == CHORE_REMOVE ? 0 : 2);
	c->done = done;
	c->asked_ms = a->now_ms;
	GROW(x->waiting, x->n, x->cap);
	x->waiting[x->n++] = c;
	return c;
}

uint64_t chores_make(struct agent *a, const struct claim_spec *s, chore_done_fn *done)
{
	struct chore *c = chore_add(a, CHORE_MAKE, s->dir, done);

	c->spec.name = s->name;
	memcpy(c->spec.token, s->token, sizeof(c->spec.token));
	c->spec.dir = xstrdup(s->dir);
	c->spec.body = s->body ? xstrdup(s->body) : NULL;
	c->spec.is_staged = s->is_staged;
	return c->number;
}

void chores_drop(struct agent *a, const struct attempt_name *n, const char *dir)
{
	struct chore *c = chore_add(a, CHORE_DROP, dir, NULL);

	c->spec.name = *n;
	c->spec.dir = xstrdup(dir);
}

uint64_t chores_remove(struct agent *a, const char *job_root, const struct attempt_name *names,
	size_t n, chore_done_fn *done)
{
	struct chore *c = chore_add(a, CHORE_REMOVE, job_root, done);

	c->dir = xstrdup(job_root);
	c->names = xcalloc(n + 1, sizeof(*names));
	for (size_t i = 0; i < n; i++)
		c->names[i] = names[i];
	c->n_names = n;
	return c->number;
}

uint64_t chores_read(struct agent *a, const char *dir, bool has_ended,
	const struct says_found *says, chore_done_fn *done)
{
	struct chore *c = chore_add(a, CHORE_READ, dir, done);

	c->dir = xstrdup(dir);
	c->has_ended = has_ended;
	c->says = xcalloc(1, sizeof(*says));
	*c->says = *says;
	return c->number;
}

void chores_take_found(const json_t *answer, struct says_found *ret)
{
	const json_t *f = json_object_get(answer, "found");

	ret->is_there = json_is_true(json_array_get(f, 0));
	for (size_t i = 0; i < 2; i++) {
		ret->size[i] = json_integer_value(json_array_get(f, 1 + i));
		ret->mtime_ns[i] = json_integer_value(json_array_get(f, 3 + i));
	}
	ret->found = (unsigned)json_integer_value(json_array_get(f, 5));
}

/* ---- what comes of them ---- */

/* Takes the chore. */
static void finish(
	struct agent *a, struct chore *c, const json_t *answer, int code, const struct err *e)
{
	if (c->done)
		c->done(a, c->number, answer, code, e);
	chore_free(c);
}

/* What a child said of it. */
static void take_answer(struct agent *a, struct chore *c, const json_t *msg)
{
	const char *text = json_string_value(json_object_get(msg, "text"));
	int code = (int)json_integer_value(json_object_get(msg, "code"));
	struct err e = {0};

	if (code < 0)
		err_set(&e, code, "%s", text ? text : "");
	finish(a, c, code < 0 ? NULL : msg, code < 0 ? code : 0, &e);
}

static void fail_rest(struct agent *a, struct chore_child *ch, const struct err *e)
{
	while (ch->at < ch->n)
		finish(a, ch->items[ch->at++], NULL, -ETIMEDOUT, e);
	hang_up(ch);
}

static void say_silent(struct err *e, const char *key)
{
	err_set(e, -ETIMEDOUT,
		"the file system of %s doesn't answer; see to it, or let job_root name another place",
		key[1] ? key + 1 : "/");
}

static void take_frames(struct agent *a, struct chore_child *ch)
{
	CLEANUP(wire_frame_done) struct wire_frame f = {0};
	int r = 0;

	while (ch->at < ch->n && (r = wire_get(&ch->in, &f, NULL)) > 0) {
		json_t *msg = TAKE_PTR(f.msg);

		ch->heard_ms = a->now_ms;
		if (msg && !json_object_get(msg, "alive"))
			take_answer(a, ch->items[ch->at++], msg);
		json_decref(msg);
	}
	if (ch->at == ch->n || r < 0)
		hang_up(ch);
}

/* False when the child has closed its end. */
static bool read_child(struct agent *a, struct chore_child *ch)
{
	ssize_t n = 1;

	while (ch->fd >= 0 && n > 0) {
		buf_reserve(&ch->in, READ_STEP);
		do
			n = read(ch->fd, ch->in.data + ch->in.len, READ_STEP);
		while (n < 0 && errno == EINTR);
		if (n > 0) {
			ch->in.len += (size_t)n;
			take_frames(a, ch);
		}
	}
	return ch->fd >= 0 && !(n == 0 || (n < 0 && errno != EAGAIN));
}

void chores_take(struct agent *a)
{
	struct chores *x = a->chores;
	struct err e = {0};

	/* A done function asks for more, but starts and reaps nobody: the table of children stays. */
	for (size_t i = 0; i < x->n_children; i++) {
		struct chore_child *ch = x->children[i];

		if (ch->fd < 0)
			continue;
		if (!read_child(a, ch)) {
			err_set(&e, -ECHILD,
				"the process that was to do it in %s ended before it was done",
				ch->key + 1);
			fail_rest(a, ch, &e);
		} else if (a->now_ms - ch->heard_ms >= CHORE_SILENT_MS) {
			end_child(ch);
			ch->is_killed = true;
			say_silent(&e, ch->key);
			agent_log(a, "%s", e.text);
			fail_rest(a, ch, &e);
		}
	}
}

/* ---- children ---- */

static void forget_gone(struct chores *x)
{
	size_t kept = 0;

	for (size_t i = 0; i < x->n_children; i++) {
		if (x->children[i]->pid || x->children[i]->fd >= 0)
			x->children[kept++] = x->children[i];
		else
			child_free(x->children[i]);
	}
	x->n_children = kept;
}

void chores_forgive(struct agent *a)
{
	for (size_t i = 0; i < a->chores->n_children; i++)
		a->chores->children[i]->heard_ms = a->now_ms;
}

enum place { PLACE_FREE, PLACE_BUSY, PLACE_SILENT };

/* A killed one keeps its place until it's gone; one that has said all has only its exit left. */
static enum place look_at_place(const struct chores *x, const char *key)
{
	enum place p = PLACE_FREE;

	for (size_t i = 0; i < x->n_children; i++) {
		const struct chore_child *ch = x->children[i];

		if (strcmp(ch->key, key) != 0 || (ch->at == ch->n && !ch->is_killed))
			continue;
		if (ch->is_killed)
			return PLACE_SILENT;
		p = PLACE_BUSY;
	}
	return p;
}

/* What got a claim since it was asked for isn't touched. */
static bool has_claim(struct agent *a, const struct attempt_name *n)
{
	CLEANUP_CLOSE int fd = claim_open(&a->root, n);

	return fd != -ENOENT;
}

static void look_at_claims(struct agent *a, struct chore *c)
{
	size_t kept = 0;

	if (c->kind == CHORE_MAKE || c->kind == CHORE_DROP)
		c->is_void = has_claim(a, &c->spec.name);
	for (size_t i = 0; i < c->n_names; i++)
		if (!has_claim(a, &c->names[i]))
			c->names[kept++] = c->names[i];
	c->n_names = kept;
}

/* Takes those of that key out of the waiting ones, the first of which stands at `at`. */
static void gather(struct agent *a, size_t at, struct chore_child *ch)
{
	struct chores *x = a->chores;
	size_t kept = at;

	ch->key = xstrdup(x->waiting[at]->key);
	for (size_t i = at; i < x->n; i++) {
		struct chore *c = x->waiting[i];

		if (ch->n < CHORE_BATCH_MAX && !strcmp(c->key, ch->key)) {
			look_at_claims(a, c);
			ch->items[ch->n++] = c;
		} else {
			x->waiting[kept++] = c;
		}
	}
	x->n = kept;
}

static void start_child(struct agent *a, size_t at)
{
	struct chores *x = a->chores;
	struct chore_child *ch = xcalloc(1, sizeof(*ch));
	struct epoll_event ev = {.events = EPOLLIN};
	struct err e = {0};

	ch->fd = -1;
	ch->heard_ms = a->now_ms;
	gather(a, at, ch);
	ch->pid = chore_fork(&a->root, ch->items, ch->n, &ch->fd);
	if (ch->pid < 0) {
		err_sys(&e, ch->pid, "cannot make a process for the work in %s", ch->key + 1);
		fail_rest(a, ch, &e);
		child_free(ch);
		return;
	}
	epoll_ctl(x->epoll_fd, EPOLL_CTL_ADD, ch->fd, &ev);
	x->children[x->n_children++] = ch;
}

static void fail_waiting(struct agent *a, size_t at)
{
	struct chores *x = a->chores;
	struct chore *c = x->waiting[at];
	struct err e = {0};

	memmove(&x->waiting[at], &x->waiting[at + 1], (x->n - at - 1) * sizeof(struct chore *));
	x->n--;
	say_silent(&e, c->key);
	finish(a, c, NULL, -ETIMEDOUT, &e);
}

/* For one of the children that there may be: all the others hang somewhere. */
static bool has_waited_long(const struct agent *a, const struct chore *c)
{
	return a->now_ms - c->asked_ms >= CHORE_SILENT_MS;
}

bool chores_start(struct agent *a)
{
	struct chores *x = a->chores;
	bool has_failed = false;
	size_t i = 0;

	forget_gone(x);
	while (i < x->n) {
		enum place p = look_at_place(x, x->waiting[i]->key);

		if (p == PLACE_FREE && x->n_children < CHORE_CHILDREN_MAX) {
			start_child(a, i);
		} else if (p == PLACE_SILENT ||
			   (p == PLACE_FREE && has_waited_long(a, x->waiting[i]))) {
			fail_waiting(a, i);
			has_failed = true;
		} else {
			i++;
		}
	}
	return has_failed;
}

/* ---- the loop ---- */

int chores_fd(const struct chores *x)
{
	return x->epoll_fd;
}

int64_t chores_wait_ms(const struct agent *a)
{
	const struct chores *x = a->chores;
	int64_t ms = x->n ? CHORE_SILENT_MS : -1;

	for (size_t i = 0; i < x->n_children; i++) {
		const struct chore_child *ch = x->children[i];
		int64_t left = ch->heard_ms + CHORE_SILENT_MS - a->now_ms;

		if (ch->fd < 0)
			continue;
		left = left < 0 ? 0 : left;
		ms = ms < 0 || left < ms ? left : ms;
	}
	return ms;
}

bool chores_reaped(struct chores *x, pid_t pid)
{
	for (size_t i = 0; i < x->n_children; i++) {
		struct chore_child *ch = x->children[i];

		if (ch->pid != pid)
			continue;
		/* What it said before it went may still have to be read. */
		ch->pid = 0;
		return true;
	}
	return false;
}

bool chores_are_due(const struct chores *x)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->waiting[i]->kind != CHORE_READ)
			return true;
	for (size_t i = 0; i < x->n_children; i++)
		if (x->children[i]->fd >= 0 && x->children[i]->key[0] == 'w')
			return true;
	return false;
}
