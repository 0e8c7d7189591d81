/*
 * Both halves of the profiler. The helper opens DCGM and sends a report a second, or the sentence that says why not, and
 * then waits to be ended. The parent keeps the times and the last report.
 */
#include "agent/profiler.h"

#include "agent/helper.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "gpu/dcgm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD_MAGIC UINT32_C(0x47534450)
#define PERIOD_MS 1000
#define BUFFER_MAX (1024 * 1024)

/* What the helper sends; n_cards rows follow. */
struct word {
	uint32_t magic, n_cards;
	uint32_t step; /* enum dcgm_step; not NONE: it failed, and why says how */
	char why[256];
};

enum state { OFF, STARTING, UP, FAILED };

struct profiler {
	bool is_off; /* simulated cards */
	enum state state;
	pid_t child; /* 0: none */
	bool is_killed;
	int fd;
	struct buf in;
	int64_t started_ms, heard_ms;
	int64_t pause_ms, retry_ms; /* retry_ms 0: not as long as figures are wanted */
	enum dcgm_step step;
	char why[256];
	struct dcgm_report report;
};

/* ---- the helper ---- */

static int say(int fd, const struct dcgm_report *r, enum dcgm_step step, const char *why)
{
	struct word w = {.magic = WORD_MAGIC, .n_cards = r->n_cards, .step = step};
	CLEANUP(buf_done) struct buf b = {0};

	snprintf(w.why, sizeof(w.why), "%.250s", why);
	buf_put(&b, &w, sizeof(w));
	if (r->n_cards)
		buf_put(&b, r->cards, r->n_cards * sizeof(r->cards[0]));
	return fd_write_all(fd, b.data, b.len);
}

/* Until the period is over; false when the parent has gone. */
static bool wait_period(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	/* Nothing is ever sent this way. */
	return poll(&p, 1, PERIOD_MS) == 0;
}

static void helper_main(int fd, void *arg)
{
	const char *path = getenv("GPUSTOW_DCGM_PATH");
	static struct dcgm_report report;
	enum dcgm_step step = DCGM_STEP_NONE;
	struct dcgm *d = NULL;
	struct err e = {0};

	(void)arg;
	if (!dcgm_open(path && *path ? path : NULL, &d, &step, &e))
		while (!dcgm_read(d, clock_wall_ms(), &report, &step, &e) &&
			!say(fd, &report, DCGM_STEP_NONE, "") && wait_period(fd))
			;
	if (step != DCGM_STEP_NONE) {
		report.n_cards = 0;
		say(fd, &report, step, e.text);
	}
	/* Nothing is closed: whoever waits here for a library's threads may wait for ever. */
}

/* ---- the parent: life of the helper ---- */

struct profiler *profiler_new(void)
{
	const char *sim = getenv("GPUSTOW_SIM");
	struct profiler *p = xcalloc(1, sizeof(*p));

	p->fd = -1;
	p->is_off = sim && *sim;
	return p;
}

static void drop_link(struct profiler *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	buf_clear(&p->in);
}

static void kill_helper(struct profiler *p)
{
	drop_link(p);
	if (p->child > 0 && !p->is_killed)
		kill(p->child, SIGKILL);
	p->is_killed = p->child > 0;
}

void profiler_free(struct profiler *p)
{
	if (!p)
		return;
	kill_helper(p);
	if (p->child > 0)
		waitpid(p->child, NULL, WNOHANG);
	buf_done(&p->in);
	free(p);
}

static void fail(struct profiler *p, enum dcgm_step step, const char *why, int64_t now_ms)
{
	p->state = FAILED;
	p->step = step;
	snprintf(p->why, sizeof(p->why), "%s", why);
	p->pause_ms = p->pause_ms ? p->pause_ms * 2 : PROFILER_PAUSE_MIN_MS;
	if (p->pause_ms > PROFILER_PAUSE_MAX_MS)
		p->pause_ms = PROFILER_PAUSE_MAX_MS;
	p->retry_ms = step == DCGM_STEP_IMPORT ? 0 : now_ms + p->pause_ms;
	kill_helper(p);
}

static void start_helper(struct profiler *p, int64_t now_ms)
{
	pid_t pid;
	int fd;

	p->state = STARTING;
	p->started_ms = p->heard_ms = now_ms;
	pid = helper_fork(PROFILER_NAME, -1, helper_main, NULL, &fd);
	if (pid < 0) {
		fail(p, DCGM_STEP_CONNECT, "no helper process can be started", now_ms);
		return;
	}
	p->child = pid;
	p->is_killed = false;
	p->fd = fd;
}

void profiler_want(struct profiler *p, bool is_wanted, int64_t now_ms)
{
	if (p->is_off || is_wanted == (p->state != OFF))
		return;
	if (!is_wanted) {
		kill_helper(p);
		p->state = OFF;
		p->pause_ms = p->retry_ms = 0;
		return;
	}
	p->why[0] = '\0';
	p->step = DCGM_STEP_NONE;
	p->state = STARTING;
	p->started_ms = p->heard_ms = now_ms;
	/* One that was killed and hasn't gone is waited for (profiler_turn). */
	if (!p->child)
		start_helper(p, now_ms);
}

int profiler_fd(const struct profiler *p)
{
	return p->fd;
}

bool profiler_is_gone(const struct profiler *p)
{
	return !p->child;
}

bool profiler_reaped(struct profiler *p, pid_t pid, int status, int64_t now_ms)
{
	bool was_killed = p->is_killed;
	char why[128];

	if (!p->child || pid != p->child)
		return false;
	p->child = 0;
	p->is_killed = false;
	if (was_killed)
		return true;
	/* What it said last may still lie in the socket. */
	profiler_read(p, now_ms);
	drop_link(p);
	if (p->state != STARTING && p->state != UP)
		return true;
	if (WIFSIGNALED(status))
		snprintf(
			why, sizeof(why), "the DCGM library crashed (signal %d)", WTERMSIG(status));
	else
		snprintf(why, sizeof(why), "the DCGM library ended its process");
	fail(p, DCGM_STEP_CONNECT, why, now_ms);
	return true;
}

int64_t profiler_turn(struct profiler *p, int64_t now_ms)
{
	if (p->state == OFF)
		return -1;
	if ((p->state == STARTING || p->state == UP) && now_ms - p->heard_ms >= PROFILER_SILENT_MS)
		fail(p, p->state == UP ? DCGM_STEP_LATEST : DCGM_STEP_CONNECT,
			"DCGM hasn't answered for 10 s; its helper process was ended", now_ms);
	if (!p->child && (p->state == STARTING ||
				 (p->state == FAILED && p->retry_ms && now_ms >= p->retry_ms)))
		start_helper(p, now_ms);
	return 500;
}

/* ---- the parent: what it says ---- */

/* The whole word at the head of the buffer: its size, 0 when more must come, negative when it's nonsense. */
static ssize_t word_size(const struct buf *in, struct word *ret)
{
	size_t n;

	if (in->len < sizeof(*ret))
		return 0;
	memcpy(ret, in->data, sizeof(*ret));
	if (ret->magic != WORD_MAGIC || ret->n_cards > GPU_MAX || ret->step >= DCGM_STEP_N)
		return -EBADMSG;
	n = sizeof(*ret) + ret->n_cards * sizeof(struct dcgm_card);
	return in->len < n ? 0 : (ssize_t)n;
}

static void take_word(struct profiler *p, struct word *w, int64_t now_ms)
{
	w->why[sizeof(w->why) - 1] = '\0';
	p->heard_ms = now_ms;
	if (w->step != DCGM_STEP_NONE) {
		fail(p, (enum dcgm_step)w->step, w->why, now_ms);
		return;
	}
	p->state = UP;
	p->pause_ms = 0;
	p->report.n_cards = w->n_cards;
	memcpy(p->report.cards, p->in.data + sizeof(*w), w->n_cards * sizeof(struct dcgm_card));
	for (uint32_t i = 0; i < w->n_cards; i++)
		p->report.cards[i].uuid[GPU_UUID_LEN - 1] =
			p->report.cards[i].bus_id[GPU_BUS_LEN - 1] = '\0';
}

static bool fill(struct profiler *p)
{
	ssize_t got;

	while (p->in.len < BUFFER_MAX) {
		buf_reserve(&p->in, 65536);
		got = recv(p->fd, p->in.data + p->in.len, 65536, MSG_DONTWAIT);
		if (got > 0)
			p->in.len += (size_t)got;
		else if (got == 0 || (errno != EINTR && errno != EAGAIN))
			return false;
		else if (errno == EAGAIN)
			return true;
	}
	return true;
}

void profiler_read(struct profiler *p, int64_t now_ms)
{
	struct word w;
	ssize_t n = 0;
	bool is_open;

	if (p->fd < 0)
		return;
	is_open = fill(p);
	while (p->fd >= 0 && (n = word_size(&p->in, &w)) > 0) {
		take_word(p, &w, now_ms);
		if (p->fd >= 0)
			buf_drop(&p->in, (size_t)n);
	}
	if (n < 0)
		fail(p, DCGM_STEP_LATEST, "DCGM's helper process sent nonsense", now_ms);
	/* How it ended is told when it's reaped. */
	if (!is_open)
		drop_link(p);
}

/* ---- figures ---- */

bool profiler_wants_gpm(const struct profiler *p, int64_t now_ms)
{
	return p->is_off || p->state == FAILED ||
	       (p->state == STARTING && now_ms - p->started_ms >= PROFILER_SLOW_MS);
}

static const struct dcgm_card *find_card(const struct profiler *p, const struct gpu_card *c)
{
	for (uint32_t i = 0; i < p->report.n_cards; i++) {
		const struct dcgm_card *d = &p->report.cards[i];

		if (d->uuid[0] ? !strcmp(d->uuid, c->uuid)
			       : d->bus_id[0] && !strcasecmp(d->bus_id, c->bus_id))
			return d;
	}
	return NULL;
}

static void put_figures(const struct profiler *p, struct gpu_snapshot *s)
{
	for (uint32_t i = 0; i < s->n_cards; i++) {
		struct gpu_card *c = &s->cards[i];
		/* Counters are told of whole cards only. */
		const struct dcgm_card *d = gpu_is_instance(c) ? NULL : find_card(p, c);

		if (d)
			profile_put(d->v, c);
		else
			profile_put_absent(VALUE_UNSUPPORTED, c);
	}
	s->profiling = (struct gpu_profiling){.source = PROFILE_DCGM};
}

/* What the snapshot says of NVML's counters stands, behind what is the matter with DCGM. */
static void put_failure(const struct profiler *p, struct gpu_snapshot *s)
{
	struct gpu_profiling own = s->profiling;
	bool has_own = own.source == PROFILE_GPM;

	/* They're asked with the next look. */
	if (own.source == PROFILE_NOT_ASKED) {
		s->profiling.source = PROFILE_STARTING;
		return;
	}

	s->profiling = (struct gpu_profiling){.source = has_own ? PROFILE_GPM : PROFILE_NONE};
	snprintf(s->profiling.error, sizeof(s->profiling.error), "%s", dcgm_step_name(p->step));
	if (has_own || !own.why[0])
		snprintf(s->profiling.why, sizeof(s->profiling.why), "%s", p->why);
	else
		snprintf(s->profiling.why, sizeof(s->profiling.why), "%.250s; %.140s", p->why,
			own.why);
}

void profiler_put(const struct profiler *p, struct gpu_snapshot *s)
{
	bool has_own = s->profiling.source == PROFILE_GPM || s->profiling.source == PROFILE_SIM;

	if (p->state == UP)
		put_figures(p, s);
	else if (p->state == FAILED)
		put_failure(p, s);
	else if (!has_own && !(p->is_off && s->profiling.source == PROFILE_NONE))
		s->profiling = (struct gpu_profiling){.source = PROFILE_STARTING};
}
