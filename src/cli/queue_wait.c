/*
 * Waiting for jobs: see queue_wait.h. With a daemon it waits for that one's word; else it reads the store and makes passes. It
 * decides nothing.
 */
#include "cli/queue_wait.h"
#include "cli/queue_watch.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LOOK_MS 300
#define PASS_MS 2000

static int read_jobs(
	struct queue *q, const struct queue_wait *w, struct queue_waited *ret, struct err *e)
{
	struct store_question question = {.ids = w->ids, .n_ids = w->n};
	int r;

	store_jobs_done(&ret->jobs);
	r = store_jobs(q->store, &question, &ret->jobs, e);
	for (size_t i = 0; !r && i < w->n; i++) {
		bool is_there = false;

		for (size_t k = 0; k < ret->jobs.n && !is_there; k++)
			is_there = ret->jobs.v[k].id == w->ids[i];
		if (!is_there)
			r = err_set(e, -ENOENT, "there's no job %" PRId64, w->ids[i]);
	}
	return r;
}

static int id_order(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Jobs that can't go on by themselves: the held ones, and whoever waits for one of them. */
static int find_stuck(struct queue *q, struct id_list *ret, struct err *e)
{
	CLEANUP(store_jobs_done) struct store_jobs held = {0};
	CLEANUP_FREE struct store_unmet_row *unmet = NULL;
	struct store_question question = {.held = true, .command_max = 1};
	size_t n = 0;
	bool has_grown = true;
	int r = store_jobs(q->store, &question, &held, e);

	if (!r)
		r = store_unmet(q->store, &unmet, &n, e);
	if (r)
		return r;
	for (size_t i = 0; i < held.n; i++) {
		GROW(ret->v, ret->n, ret->cap);
		ret->v[ret->n++] = held.v[i].id;
	}
	while (has_grown && ret->n) {
		size_t known = ret->n;

		has_grown = false;
		qsort(ret->v, known, sizeof(*ret->v), id_order);
		for (size_t i = 0; i < n; i++) {
			if (!bsearch(&unmet[i].needs, ret->v, known, sizeof(*ret->v), id_order) ||
				bsearch(&unmet[i].job, ret->v, known, sizeof(*ret->v), id_order))
				continue;
			GROW(ret->v, ret->n, ret->cap);
			ret->v[ret->n++] = unmet[i].job;
			has_grown = true;
		}
	}
	return 0;
}

static int judge_stuck(struct queue *q, struct queue_waited *ret, struct err *e)
{
	CLEANUP(id_list_done) struct id_list stuck = {0};
	int r = find_stuck(q, &stuck, e);

	ret->is_stuck = !r && stuck.n;
	for (size_t i = 0; !r && i < ret->jobs.n; i++) {
		const struct job *j = &ret->jobs.v[i];

		if (!job_state_is_terminal(j->state) &&
			(j->is_bound || !stuck.n ||
				!bsearch(&j->id, stuck.v, stuck.n, sizeof(*stuck.v), id_order)))
			ret->is_stuck = false;
	}
	return r;
}

/* True: there's nothing more to wait for. */
static int look(struct queue *q, const struct queue_wait *w, struct queue_waited *ret,
	bool *ret_over, struct err *e)
{
	size_t n_done = 0, n_good = 0;
	int r = read_jobs(q, w, ret, e);

	if (r)
		return r;
	for (size_t i = 0; i < ret->jobs.n; i++) {
		n_done += job_state_is_terminal(ret->jobs.v[i].state);
		n_good += ret->jobs.v[i].state == JOB_STATE_COMPLETED;
	}
	ret->all_done = n_done == ret->jobs.n;
	ret->all_succeeded = n_good == ret->jobs.n;
	*ret_over = ret->all_done || (w->any && n_done);
	if (*ret_over)
		return 0;
	r = judge_stuck(q, ret, e);
	*ret_over = !r && ret->is_stuck;
	return r;
}

/* With a daemon, whose word it is that counts: tests that wait for that one let nothing else come. */
static int64_t daemon_look_ms(void)
{
#ifdef GPUSTOW_FAULT_POINTS
	const char *told = getenv("GPUSTOW_TEST_LOOK_MS");
	int64_t ms;

	if (told && !parse_int64(told, &ms) && ms > 0)
		return ms;
#endif
	return PASS_MS;
}

static int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int wait_loop(struct queue *q, const struct queue_wait *w, int signal_fd,
	struct daemon_talk *t, struct queue_waited *ret, struct err *e)
{
	int64_t begun = clock_boot_ms(), pass_at = begun;

	queue_find_daemon(q, t);
	for (;;) {
		struct pollfd pfd[2] = {
			{.fd = signal_fd, .events = POLLIN}, {.fd = t->fd, .events = POLLIN}};
		int64_t look_ms = t->fd >= 0 ? daemon_look_ms() : LOOK_MS;
		int64_t left = w->timeout_ms ? begun + w->timeout_ms - clock_boot_ms() : look_ms;
		bool is_over = false;
		int r = look(q, w, ret, &is_over, e);

		if (r || is_over)
			return r;
		if (left <= 0) {
			ret->timed_out = true;
			return 0;
		}
		if (t->fd < 0 && clock_boot_ms() >= pass_at) {
			queue_find_daemon(q, t);
			if (t->fd < 0)
				queue_refresh(q);
			pass_at = clock_boot_ms() + PASS_MS;
			continue;
		}
		if (poll(pfd, 2, (int)min64(left, look_ms)) <= 0)
			continue;
		if (pfd[1].revents)
			(void)daemon_bell_rang(t);
		if (pfd[0].revents) {
			struct signalfd_siginfo si;

			if (read(signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si)) {
				ret->signal_no = (int)si.ssi_signo;
				return 0;
			}
		}
	}
}

int queue_wait(struct queue *q, const struct queue_wait *w, struct queue_waited *ret, struct err *e)
{
	CLEANUP(daemon_talk_done) struct daemon_talk t = {.fd = -1};
	CLEANUP_CLOSE int fd = -1;
	sigset_t set, before;
	int r;

	*ret = (struct queue_waited){0};
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &before);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	r = fd < 0 ? err_sys(e, -errno, "cannot watch for signals")
		   : wait_loop(q, w, fd, &t, ret, e);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r;
}

void queue_waited_done(struct queue_waited *w)
{
	store_jobs_done(&w->jobs);
}

int queue_wait_code(const struct queue_wait *w, const struct queue_waited *d)
{
	bool has_failed = d->is_stuck && !d->all_done, has_ended = false;

	if (d->signal_no)
		return 128 + d->signal_no;
	for (size_t i = 0; i < d->jobs.n; i++) {
		has_ended |= job_state_is_terminal(d->jobs.v[i].state);
		has_failed |= job_state_is_terminal(d->jobs.v[i].state) &&
			      d->jobs.v[i].state != JOB_STATE_COMPLETED;
	}
	if (d->timed_out && !(w->any && has_ended))
		return EXIT_USAGE;
	return has_failed ? EXIT_FAILED : EXIT_OK;
}
