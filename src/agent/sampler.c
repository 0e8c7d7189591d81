/*
 * Both halves of the sampler. The child's part is a loop: read a request, ask the back end, write the answer as raw
 * structs (the two are one program). The parent's part keeps the times. Neither knows what a job is.
 */
#include "agent/sampler.h"

#include "agent/helper.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "gpu/facts.h"
#include "gpu/gpu_backend.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MAGIC UINT32_C(0x47534153)
#define PAUSE_MIN_MS 1000
#define PAUSE_MAX_MS 30000
#define DYING_MS 2000 /* after SIGKILL; then it's stuck in the kernel and left behind */
#define STUCK_MAX 4 /* left behind at once; no more are started while they're there */

/* Process lists are read again after that, if nobody places jobs by them. */
#define OLD_PROCS_MS 1900

#define WANTS (SAMPLER_DETAILS | SAMPLER_PROFILING)
#define ALLOWANCES (SAMPLER_MAY_SLEEP | SAMPLER_OLD_PROCS)

/* What the parent sends. */
struct request {
	uint64_t number;
	uint64_t flags;
};

struct answer {
	uint32_t magic;
	uint32_t n_cards, n_procs, n_instances, n_left_out;
	bool has_details, has_old_procs, has_foreign_pids;
	int64_t driver_us;
	struct gpu_call slowest;
	struct gpu_profiling profiling;
	char driver[32], cuda[16], library[32];
	uint64_t number, seq;
	int64_t begun_ms, ended_ms;
	char source[16];
	char error[256];
};

struct sampler {
	sampler_open_fn *open;
	pid_t child; /* 0: none */
	int fd;
	struct buf in;
	uint64_t asked, answered;
	unsigned flags; /* of all that was asked and isn't answered, together */
	int64_t oldest_ms; /* when the oldest unanswered request was made */
	int64_t started_ms;
	int64_t killed_ms; /* 0: not killed */
	bool is_released; /* no child may be there */
	pid_t stuck[STUCK_MAX];
	int64_t pause_ms, next_start_ms;
};

/* ---- the child ---- */

struct eye {
	int fd;
	sampler_open_fn *open;
	struct gpu_backend *backend;
	int64_t pause_ms, next_open_ms;
	struct err why; /* the last opening failed */
	struct facts *facts;
	/* The process rows of the last snapshot with details, and when they were read. */
	struct gpu_snapshot last;
	int64_t procs_ms; /* 0: there are none */
};

/* Details for whoever wants them, an allowance only if everybody gives it. */
static unsigned join(unsigned a, unsigned b)
{
	return ((a | b) & WANTS) | (a & b & ALLOWANCES);
}

/* Waits for requests; answers only the last of those that are there: it's begun after all of them. */
static bool eye_next(struct eye *y, struct request *ret)
{
	struct request q[64];
	ssize_t got;

	do
		got = recv(y->fd, q, sizeof(q), 0);
	while (got < 0 && errno == EINTR);
	if (got < (ssize_t)sizeof(q[0]))
		return false;
	*ret = q[0];
	for (size_t i = 1; i < (size_t)got / sizeof(q[0]); i++) {
		ret->number = q[i].number;
		ret->flags = join((unsigned)ret->flags, (unsigned)q[i].flags);
	}
	return true;
}

static void eye_open(struct eye *y, int64_t now_ms)
{
	if (y->backend || now_ms < y->next_open_ms)
		return;
	y->why.text[0] = '\0';
	if (!y->open(&y->backend, &y->why)) {
		y->pause_ms = 0;
		return;
	}
	y->backend = NULL;
	y->pause_ms = y->pause_ms ? y->pause_ms * 2 : PAUSE_MIN_MS;
	if (y->pause_ms > PAUSE_MAX_MS)
		y->pause_ms = PAUSE_MAX_MS;
	y->next_open_ms = clock_boot_ms() + y->pause_ms;
}

static void none_snapshot(
	struct gpu_snapshot *s, const char *source, const char *why, int64_t begun_ms)
{
	gpu_snapshot_done(s);
	*s = (struct gpu_snapshot){.begun_ms = begun_ms, .ended_ms = clock_boot_ms()};
	snprintf(s->source, sizeof(s->source), "%s", source);
	snprintf(s->error, sizeof(s->error), "%.250s", *why ? why : "no GPU could be asked");
}

/* The rows of before fit only the cards of before. */
static bool has_same_cards(const struct gpu_snapshot *a, const struct gpu_snapshot *b)
{
	bool is_same = a->n_cards == b->n_cards;

	for (uint32_t i = 0; is_same && i < a->n_cards; i++)
		is_same = strcmp(a->cards[i].uuid, b->cards[i].uuid) == 0 &&
			  a->cards[i].state == b->cards[i].state;
	return is_same;
}

/* Rows of a card that isn't asked any more go with it. */
static void take_old_procs(const struct gpu_snapshot *from, struct gpu_snapshot *s)
{
	struct gpu_snapshot copy;

	gpu_snapshot_copy(from, &copy);
	free(s->procs);
	free(s->more);
	s->procs = copy.procs;
	s->more = copy.more;
	s->n_procs = copy.n_procs;
	copy.procs = NULL;
	copy.more = NULL;
	gpu_snapshot_done(&copy);
}

static void keep_procs(struct eye *y, const struct gpu_snapshot *s, int64_t now_ms)
{
	gpu_snapshot_done(&y->last);
	gpu_snapshot_copy(s, &y->last);
	y->procs_ms = now_ms;
}

static int ask_backend(
	struct eye *y, unsigned flags, int64_t begun_ms, struct gpu_snapshot *s, struct err *e)
{
	struct gpu_ask ask = {
		.details = flags & SAMPLER_DETAILS,
		.profiling = (flags & SAMPLER_PROFILING) && (flags & SAMPLER_DETAILS),
		.lets_sleep = flags & SAMPLER_MAY_SLEEP,
		.old_procs = (flags & SAMPLER_OLD_PROCS) && y->procs_ms &&
			     begun_ms - y->procs_ms < OLD_PROCS_MS,
	};
	int r = gpu_backend_ask(y->backend, &ask, s, e);

	if (r || !s->has_old_procs)
		return r;
	if (has_same_cards(s, &y->last)) {
		take_old_procs(&y->last, s);
		return 0;
	}
	gpu_snapshot_done(s);
	ask.old_procs = false;
	return gpu_backend_ask(y->backend, &ask, s, e);
}

static void eye_look(struct eye *y, unsigned flags, struct gpu_snapshot *s)
{
	int64_t begun_ms = clock_boot_ms();
	struct err e = {0};

	eye_open(y, begun_ms);
	if (!y->backend) {
		none_snapshot(s, "none", y->why.text, begun_ms);
		return;
	}
	if (ask_backend(y, flags, begun_ms, s, &e)) {
		/* Nothing could be asked at all: a driver that was unloaded or replaced wants a new handle. */
		none_snapshot(s, y->backend->impl->name, e.text, begun_ms);
		gpu_backend_free(y->backend);
		y->backend = NULL;
		return;
	}
	if (s->has_old_procs)
		return;
	facts_fill(y->facts, s, begun_ms, clock_wall_ms());
	if (s->has_details)
		keep_procs(y, s, begun_ms);
}

static int eye_answer(const struct eye *y, const struct gpu_snapshot *s, uint64_t number)
{
	struct answer a = {
		.magic = ANSWER_MAGIC,
		.n_cards = s->n_cards < GPU_MAX ? s->n_cards : GPU_MAX,
		.n_procs = s->n_procs < GPU_PROC_MAX ? s->n_procs : GPU_PROC_MAX,
		.n_instances =
			s->n_instances < GPU_INSTANCE_MAX ? s->n_instances : GPU_INSTANCE_MAX,
		.n_left_out = s->n_left_out,
		.has_details = s->has_details,
		.has_old_procs = s->has_old_procs,
		.has_foreign_pids = s->has_foreign_pids,
		.driver_us = s->driver_us,
		.slowest = s->slowest,
		.profiling = s->profiling,
		.number = number,
		.seq = s->seq,
		.begun_ms = s->begun_ms,
		.ended_ms = s->ended_ms,
	};
	CLEANUP(buf_done) struct buf b = {0};

	memcpy(a.source, s->source, sizeof(a.source));
	memcpy(a.error, s->error, sizeof(a.error));
	memcpy(a.driver, s->driver, sizeof(a.driver));
	memcpy(a.cuda, s->cuda, sizeof(a.cuda));
	memcpy(a.library, s->library, sizeof(a.library));
	buf_put(&b, &a, sizeof(a));
	if (a.n_cards)
		buf_put(&b, s->cards, a.n_cards * sizeof(*s->cards));
	if (a.n_procs)
		buf_put(&b, s->procs, a.n_procs * sizeof(*s->procs));
	if (a.n_procs && a.has_details)
		buf_put(&b, s->more, a.n_procs * sizeof(*s->more));
	if (a.n_instances)
		buf_put(&b, s->instances, a.n_instances * sizeof(*s->instances));
	return fd_write_all(y->fd, b.data, b.len);
}

static void eye_main(int fd, void *arg)
{
	const struct sampler *parent = arg;
	struct eye y = {.fd = fd, .open = parent->open, .facts = facts_new()};
	struct gpu_snapshot s = {0};
	struct request q;

	while (eye_next(&y, &q)) {
		eye_look(&y, (unsigned)q.flags, &s);
		if (eye_answer(&y, &s, q.number))
			break;
		gpu_snapshot_done(&s);
		s = (struct gpu_snapshot){0};
	}
}

/* ---- the parent ---- */

struct sampler *sampler_new(sampler_open_fn *open)
{
	struct sampler *s = xcalloc(1, sizeof(*s));

	s->open = open ? open : gpu_backend_open;
	s->fd = -1;
	return s;
}

static void drop_link(struct sampler *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	buf_clear(&s->in);
}

void sampler_free(struct sampler *s)
{
	if (!s)
		return;
	if (s->child > 0) {
		kill(s->child, SIGKILL);
		waitpid(s->child, NULL, WNOHANG);
	}
	drop_link(s);
	buf_done(&s->in);
	free(s);
}

int sampler_fd(const struct sampler *s)
{
	return s->fd;
}

uint64_t sampler_asked(const struct sampler *s)
{
	return s->asked;
}

bool sampler_is_asked(const struct sampler *s)
{
	return s->asked > s->answered;
}

static void back_off(struct sampler *s, int64_t now_ms)
{
	s->pause_ms = s->pause_ms ? s->pause_ms * 2 : PAUSE_MIN_MS;
	if (s->pause_ms > PAUSE_MAX_MS)
		s->pause_ms = PAUSE_MAX_MS;
	s->next_start_ms = now_ms + s->pause_ms;
}

static void start_child(struct sampler *s, int64_t now_ms)
{
	int fd;
	pid_t pid = helper_fork("gpustow-sampler", -1, eye_main, s, &fd);

	if (pid < 0) {
		back_off(s, now_ms);
		return;
	}
	s->child = pid;
	s->fd = fd;
	s->started_ms = now_ms;
	s->killed_ms = 0;
}

/*
 * Sends the newest number with what all that waits wants together, so that the last one found serves all. A full socket
 * holds 64 and more already.
 */
static void send_number(struct sampler *s)
{
	struct request q = {.number = s->asked, .flags = s->flags};

	if (s->fd >= 0 && send(s->fd, &q, sizeof(q), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
		errno == EPIPE)
		drop_link(s);
}

uint64_t sampler_ask_as(struct sampler *s, int64_t now_ms, unsigned flags)
{
	if (!sampler_is_asked(s)) {
		s->oldest_ms = now_ms;
		s->flags = flags;
	} else {
		s->flags = join(s->flags, flags);
	}
	s->asked++;
	if (!s->child && !s->is_released && now_ms >= s->next_start_ms)
		start_child(s, now_ms);
	send_number(s);
	return s->asked;
}

uint64_t sampler_ask(struct sampler *s, int64_t now_ms)
{
	return sampler_ask_as(s, now_ms, 0);
}

/* The whole answer at the head of the buffer: its size, 0 when more must come, negative when it's nonsense. */
static ssize_t answer_size(const struct buf *in, struct answer *ret)
{
	size_t n;

	if (in->len < sizeof(*ret))
		return 0;
	memcpy(ret, in->data, sizeof(*ret));
	if (ret->magic != ANSWER_MAGIC || ret->n_cards > GPU_MAX || ret->n_procs > GPU_PROC_MAX ||
		ret->n_instances > GPU_INSTANCE_MAX)
		return -EBADMSG;
	n = sizeof(*ret) + ret->n_cards * sizeof(struct gpu_card) +
	    ret->n_procs * sizeof(struct gpu_proc) +
	    (ret->has_details ? ret->n_procs * sizeof(struct gpu_proc_more) : 0) +
	    ret->n_instances * sizeof(struct gpu_instance);
	return in->len < n ? 0 : (ssize_t)n;
}

/* n rows of that size from *at on, which moves past them; NULL for none. */
static void *take_rows(const char **at, uint32_t n, size_t size)
{
	void *rows = n ? xcalloc(n, size) : NULL;

	if (n)
		memcpy(rows, *at, n * size);
	*at += n * size;
	return rows;
}

static void take_answer(const struct buf *in, const struct answer *a, struct gpu_snapshot *ret)
{
	const char *at = in->data + sizeof(*a);

	*ret = (struct gpu_snapshot){
		.seq = a->seq,
		.begun_ms = a->begun_ms,
		.ended_ms = a->ended_ms,
		.n_cards = a->n_cards,
		.n_procs = a->n_procs,
		.n_instances = a->n_instances,
		.n_left_out = a->n_left_out,
		.has_details = a->has_details,
		.has_old_procs = a->has_old_procs,
		.has_foreign_pids = a->has_foreign_pids,
		.driver_us = a->driver_us,
		.slowest = a->slowest,
		.profiling = a->profiling,
	};
	memcpy(ret->source, a->source, sizeof(ret->source));
	memcpy(ret->error, a->error, sizeof(ret->error));
	memcpy(ret->driver, a->driver, sizeof(ret->driver));
	memcpy(ret->cuda, a->cuda, sizeof(ret->cuda));
	memcpy(ret->library, a->library, sizeof(ret->library));
	ret->source[sizeof(ret->source) - 1] = ret->error[sizeof(ret->error) - 1] = '\0';
	ret->cards = take_rows(&at, a->n_cards, sizeof(*ret->cards));
	ret->procs = take_rows(&at, a->n_procs, sizeof(*ret->procs));
	if (a->has_details)
		ret->more = take_rows(&at, a->n_procs, sizeof(*ret->more));
	ret->instances = take_rows(&at, a->n_instances, sizeof(*ret->instances));
}

static void kill_child(struct sampler *s, int64_t now_ms)
{
	drop_link(s);
	if (s->child && !s->killed_ms) {
		kill(s->child, SIGKILL);
		s->killed_ms = now_ms;
		back_off(s, now_ms);
	}
}

/* Fills the buffer from the socket; false when the child is gone. */
static bool fill(struct sampler *s)
{
	ssize_t got;

	for (;;) {
		buf_reserve(&s->in, 65536);
		got = recv(s->fd, s->in.data + s->in.len, 65536, MSG_DONTWAIT);
		if (got > 0) {
			s->in.len += (size_t)got;
			if (got < 65536)
				return true;
		} else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
			return false;
		} else if (errno == EAGAIN) {
			return true;
		}
	}
}

/*
 * Of several answers the newest: nobody would be told again of one that was left in the buffer, and every later one would
 * then come one too late.
 */
int sampler_read(struct sampler *s, int64_t now_ms, struct gpu_snapshot *ret, uint64_t *ret_number)
{
	struct gpu_snapshot newest = {0};
	struct answer a;
	ssize_t n;
	bool is_open, has_one = false;

	if (s->fd < 0)
		return 0;
	is_open = fill(s);
	while ((n = answer_size(&s->in, &a)) > 0) {
		gpu_snapshot_done(&newest);
		take_answer(&s->in, &a, &newest);
		buf_drop(&s->in, (size_t)n);
		s->answered = *ret_number = a.number;
		s->oldest_ms = now_ms;
		s->pause_ms = 0;
		has_one = true;
	}
	if (n < 0 || !is_open)
		kill_child(s, now_ms);
	if (has_one)
		*ret = newest;
	return has_one;
}

bool sampler_reaped(struct sampler *s, pid_t pid, int64_t now_ms)
{
	for (size_t i = 0; i < STUCK_MAX; i++) {
		if (s->stuck[i] == pid) {
			s->stuck[i] = 0;
			return true;
		}
	}
	if (!s->child || pid != s->child)
		return false;
	drop_link(s);
	if (!s->killed_ms)
		back_off(s, now_ms);
	s->child = 0;
	s->killed_ms = 0;
	return true;
}

bool sampler_is_silent(const struct sampler *s, int64_t now_ms, struct err *ret_why)
{
	int64_t ms = now_ms - s->oldest_ms;

	if (s->is_released) {
		err_set(ret_why, -EBUSY,
			"the GPU driver was let go of for `gpustow release`; nothing is started until that has ended");
		return true;
	}
	if (!sampler_is_asked(s) || ms < SAMPLER_SILENT_MS)
		return false;
	err_set(ret_why, -ETIMEDOUT,
		"the GPU driver hasn't answered for %lld s; nothing is started until it does",
		(long long)(ms / 1000));
	return true;
}

void sampler_release(struct sampler *s, int64_t now_ms)
{
	s->is_released = true;
	kill_child(s, now_ms);
}

void sampler_resume(struct sampler *s, int64_t now_ms)
{
	s->is_released = false;
	s->oldest_ms = now_ms;
	s->pause_ms = s->next_start_ms = 0;
}

bool sampler_is_released(const struct sampler *s)
{
	return s->is_released;
}

bool sampler_has_let_go(const struct sampler *s)
{
	return s->is_released && !s->child;
}

/* Where a child that can't die is remembered; NULL when there are too many of them already. */
static pid_t *stuck_place(struct sampler *s)
{
	for (size_t i = 0; i < STUCK_MAX; i++)
		if (!s->stuck[i])
			return &s->stuck[i];
	return NULL;
}

static void leave_behind(struct sampler *s, int64_t now_ms)
{
	pid_t *place = stuck_place(s);

	if (!place)
		return;
	*place = s->child;
	s->child = 0;
	s->killed_ms = 0;
	s->pause_ms = PAUSE_MAX_MS;
	s->next_start_ms = now_ms + PAUSE_MAX_MS;
}

int64_t sampler_turn(struct sampler *s, int64_t now_ms)
{
	int64_t since_ms = s->oldest_ms > s->started_ms ? s->oldest_ms : s->started_ms;

	if (!sampler_is_asked(s) && !(s->is_released && s->child))
		return -1;
	if (s->child && !s->killed_ms && now_ms - since_ms >= SAMPLER_KILL_MS)
		kill_child(s, now_ms);
	if (s->child && s->killed_ms && now_ms - s->killed_ms >= DYING_MS)
		leave_behind(s, now_ms);
	if (!s->child && !s->is_released && now_ms >= s->next_start_ms) {
		start_child(s, now_ms);
		send_number(s);
	}
	return 500;
}
