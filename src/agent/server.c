/*
 * The loop. A turn reads the clock once, takes in what happened (children, rings, snapshots, clients), lets the
 * parts go as far as they can, and writes what they said. Nothing here waits but poll.
 */
#include "agent/server.h"

#include "agent/answer.h"
#include "agent/chores.h"
#include "agent/command.h"
#include "agent/facts_of_end.h"
#include "agent/lane_command.h"
#include "agent/lanes.h"
#include "agent/life.h"
#include "agent/log.h"
#include "agent/release.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 5000
#define SOCKET_LOOK_MS 1000
#define RETIRE_MS 200
#define RETIRE_MANY 32 /* so many don't wait: their claims serve those who come next */
#define RETIRE_SOME 12 /* worth a sync of their own when claims are wanted */
#define LATE_MS \
	5000 /* a turn that late means that we slept, or were stopped: clients weren't silent, we were deaf */
#define REAP_MAX 256
#define CLIENTS_MAX 512

void agent_log(struct agent *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(&a->root, fmt, ap);
	va_end(ap);
}

struct client *agent_find_client(const struct agent *a, uint64_t id)
{
	for (size_t i = 0; i < a->n_clients; i++)
		if (a->clients[i]->id == id && !a->clients[i]->is_dead)
			return a->clients[i];
	return NULL;
}

struct client *agent_commander(const struct agent *a, const char *queue)
{
	for (size_t i = 0; i < a->n_clients; i++) {
		struct client *c = a->clients[i];

		if (!c->is_dead && !c->is_closing && c->queue[0] && !strcmp(c->queue, queue))
			return c;
	}
	return NULL;
}

const struct account *agent_account(struct agent *a)
{
	if (!a->account.is_known)
		account_read(&a->account);
	return &a->account;
}

uint64_t agent_ask_sample(struct agent *a)
{
	return sampler_ask(a->sampler, a->now_ms);
}

/* ---- what follows from a change of state ---- */

/* All of it was gone when its shim said so: what was asked for from then on has seen that. */
static bool has_ended_before(const struct attempt *at)
{
	return at->rec.state == ATTEMPT_ENDED && at->asked_at_end && at->rec.end.seen_by_shim &&
	       !at->had_survivors;
}

void agent_attempt_changed(void *arg, struct attempt *at)
{
	struct agent *a = arg;

	/* Memory may have come or gone with it: only samples begun from now on count for its cards. */
	ledger_note(
		a->ledger, at, has_ended_before(at) ? at->asked_at_end : sampler_asked(a->sampler));
	a->promises_are_old = true;
	facts_attempt_changed(a, at);
	event_push(a, at);
	files_attempt_changed(a, &at->name);
	lanes_attempt_changed(a, at);
	if (at->is_acked)
		agent_retire_soon(a, 1);
}

/* Claims that nobody starts stand in line again. */
static void readmit(struct agent *a)
{
	for (size_t i = 0; i < a->attempts.n; i++) {
		struct attempt *at = a->attempts.items[i];
		CLEANUP(claim_spec_done) struct claim_spec s = {0};
		struct err e = {0};

		if (!at->wants_start || at->is_admitting || at->rec.state != ATTEMPT_CLAIMED)
			continue;
		if (attempts_read_spec(&a->attempts, at, &s, &e)) {
			agent_log(a, "%s", e.text);
			continue;
		}
		/* Somebody who wants it ended needs no room for it: the shim writes that it never started. */
		if (at->stop_wanted) {
			attempts_start(&a->attempts, at, &s, NULL);
			continue;
		}
		at->is_admitting = true;
		launch_add(a, 0, &s);
	}
}

void agent_retire_soon(struct agent *a, size_t n)
{
	a->n_retiring += n;
	if (a->n_retiring >= RETIRE_MANY)
		a->retire_at_ms = a->now_ms;
	else if (!a->retire_at_ms)
		a->retire_at_ms = a->now_ms + RETIRE_MS;
}

static bool is_over(const struct attempt *at)
{
	return at->is_acked && at->rec.state == ATTEMPT_ENDED && !at->is_watched && !at->shim;
}

static size_t collect_over(const struct agent *a, struct claim_retire *items)
{
	size_t n = 0;

	for (size_t i = 0; i < a->attempts.n; i++) {
		const struct attempt *at = a->attempts.items[i];

		if (!is_over(at))
			continue;
		items[n] = (struct claim_retire){.name = at->name, .end = at->rec.end};
		memcpy(items[n++].token, at->token, ID_LEN);
	}
	return n;
}

/* One synced line for each, and one sync for all of them. */
void agent_retire(struct agent *a)
{
	struct claim_retire *items = xcalloc(a->attempts.n + 1, sizeof(*items));
	size_t n = collect_over(a, items);
	struct err e = {0};
	int r = 0;

	a->retire_at_ms = 0;
	a->n_retiring = 0;
	if (n) {
		fault_point("agent.before-retire");
		r = claim_retire(&a->root, items, n, &e);
	}
	if (r) {
		agent_log(a, "%s", e.text);
		a->retire_at_ms = a->now_ms + LOOK_MS;
	}
	for (size_t i = 0; !r && i < n; i++)
		attempts_remove(&a->attempts, attempts_find(&a->attempts, &items[i].name));
	free(items);
}

void agent_compact(struct agent *a)
{
	struct err e = {0};
	ssize_t n;

	/* Looked through again when they're twice as many: while they're young none of them is touched. */
	if (retired_count(a->retired) < 2 * a->n_compacted)
		return;
	n = retired_count(a->retired) < 2 * RETIRED_KEEP ? 0 : lanes_leave_out_over(a, &e);
	if (!n)
		n = retired_compact(&a->root, clock_wall_ms(), &e);
	if (n)
		agent_log(
			a, n < 0 ? "%s" : "old lines of the retired ones were shortened%s", e.text);
	a->n_compacted = retired_count(a->retired);
}

/* ---- events ---- */

static void take_children(struct agent *a)
{
	struct reaped r[REAP_MAX];
	size_t n = 0;
	pid_t pid;

	while (n < REAP_MAX && (pid = waitpid(-1, &r[n].status, WNOHANG)) > 0) {
		if (sampler_reaped(a->sampler, pid, a->now_ms) ||
			profiler_reaped(a->profiler, pid, r[n].status, a->now_ms) ||
			chores_reaped(a->chores, pid) || files_reaped(a->files, pid))
			continue;
		r[n++].pid = pid;
	}
	attempts_reaped(&a->attempts, r, n, a->now_ms);
	/* More of them raise no new signal. */
	if (n == REAP_MAX)
		raise(SIGCHLD);
}

static void take_signals(struct agent *a)
{
	struct signalfd_siginfo s;
	bool has_children = false;

	while (read(a->signal_fd, &s, sizeof(s)) == sizeof(s)) {
		if (s.ssi_signo == SIGCHLD)
			has_children = true;
		else if (!a->leaving)
			a->leaving = "stop";
	}
	if (has_children)
		take_children(a);
}

static void take_rings(struct agent *a)
{
	char text[ATTEMPT_NAME_LEN + 1];
	struct attempt_name name;
	struct attempt *at;
	ssize_t n;

	while ((n = recv(a->bell_fd, text, sizeof(text) - 1, MSG_DONTWAIT)) >= 0) {
		bool is_ending = n > 0 && text[n - 1] == SHIM_RING_ENDING;

		text[is_ending ? n - 1 : n] = '\0';
		at = attempt_name_parse(text, &name) ? NULL : attempts_find(&a->attempts, &name);
		if (at && is_ending)
			lanes_attempt_ends(a, at);
		else if (at)
			attempts_look(&a->attempts, at, a->now_ms);
	}
}

static void take_snapshot(struct agent *a)
{
	struct gpu_snapshot s = {0};
	uint64_t number;

	if (!sampler_read(a->sampler, a->now_ms, &s, &number))
		return;
	ledger_take(a->ledger, &a->attempts, &s, number);
	/* Whoever plans by this sample plans by what the others promise now. */
	launch_read_others(a);
	a->promises_are_old = true;
}

static void take_client(struct agent *a)
{
	struct client *c = NULL;
	struct err e = {0};
	int fd = accept4(a->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (a->n_clients >= CLIENTS_MAX) {
		close(fd);
		return;
	}
	if (client_new(fd, ++a->last_client, a->now_ms, &c, &e)) {
		agent_log(a, "%s", e.text);
		return;
	}
	GROW(a->clients, a->n_clients, a->cap_clients);
	a->clients[a->n_clients++] = c;
}

/* ---- clients ---- */

static void read_client(struct agent *a, struct client *c)
{
	bool is_there = client_read(c, a->now_ms);

	command_read(a, c);
	/* Who spoke and left at once has said it all the same: what can be obeyed was, just now. */
	if (!is_there && (c->is_closing || !c->held))
		c->is_dead = true;
	else if (!is_there)
		c->has_left = true;
}

static void write_client(struct agent *a, struct client *c)
{
	if (!c->is_closing && (c->held || c->in.len))
		command_read(a, c);
	if (c->has_left && !c->held)
		c->is_dead = true;
	if (c->has_lost_events && c->out.len - c->out_at < CLIENT_UNREAD_MAX / 2)
		event_push_all(a, c);
	/* Who has left said something before: an ack that's thrown away here leaves a claim that nobody asks for again. */
	if (!client_write(c) && !c->is_closing && !c->has_left)
		read_client(a, c);
	if ((c->is_closing && !client_wants_write(c)) || !client_is_alive(c, a->now_ms))
		c->is_dead = true;
}

static void drop_dead_clients(struct agent *a)
{
	size_t kept = 0;

	for (size_t i = 0; i < a->n_clients; i++) {
		if (a->clients[i]->is_dead)
			client_free(a->clients[i]);
		else
			a->clients[kept++] = a->clients[i];
	}
	a->n_clients = kept;
}

/* ---- times ---- */

static bool has_live_cards(const struct agent *a)
{
	for (size_t i = 0; i < a->attempts.n; i++)
		if (a->attempts.items[i]->n_cards && attempt_is_live(a->attempts.items[i]))
			return true;
	return false;
}

static void look_around(struct agent *a)
{
	if (a->now_ms < a->look_at_ms)
		return;
	a->look_at_ms = a->now_ms + LOOK_MS;
	attempts_look_all(&a->attempts, a->now_ms);
	if (!a->n_clients && !a->attempts.n)
		a->root.n_spares = 0;
	claim_sweep_stage(&a->root, clock_wall_ms());
	agent_compact(a);
	/* Peaks and promises are kept up to date while nobody watches. */
	if (has_live_cards(a) && !sampler_is_asked(a->sampler))
		agent_ask_sample(a);
}

static bool wants_profiling(const struct agent *a)
{
	for (size_t i = 0; i < a->n_clients; i++) {
		const struct client *c = a->clients[i];

		if (c->watch_ms && c->watches_profiling && !c->is_dead && !c->has_left)
			return true;
	}
	return false;
}

/* The helper is there while somebody wants figures; an engine of its own would hold a driver that's to be let go of. */
static void look_at_profiler(struct agent *a)
{
	profiler_want(a->profiler,
		wants_profiling(a) && !sampler_is_released(a->sampler) && !a->leaving, a->now_ms);
}

/* Who gets details only looks; what the others see they may place jobs by. */
static void ask_for_watchers(struct agent *a)
{
	unsigned flags = SAMPLER_LOOKS | SAMPLER_OLD_PROCS, wants = 0;
	bool is_due = false;

	if (sampler_is_asked(a->sampler))
		return;
	for (size_t i = 0; i < a->n_clients; i++) {
		const struct client *c = a->clients[i];

		if (!c->watch_ms || c->is_dead || a->now_ms < c->due_ms)
			continue;
		is_due = true;
		if (c->watches_details)
			wants |= SAMPLER_DETAILS;
		else
			flags = SAMPLER_DETAILS;
	}
	if ((wants & SAMPLER_DETAILS) && wants_profiling(a) &&
		profiler_wants_gpm(a->profiler, a->now_ms))
		wants |= SAMPLER_PROFILING;
	if (is_due)
		sampler_ask_as(a->sampler, a->now_ms, (flags & ~(unsigned)SAMPLER_DETAILS) | wants);
}

static bool is_idle(const struct agent *a)
{
	if (a->n_clients || !launch_is_empty(&a->launch) || lanes_are_due(a) ||
		chores_are_due(a->chores))
		return false;
	for (size_t i = 0; i < a->attempts.n; i++)
		if (attempt_is_live(a->attempts.items[i]))
			return false;
	return true;
}

static void look_at_idleness(struct agent *a)
{
	if (!is_idle(a))
		a->idle_since_ms = a->now_ms;
	else if (a->now_ms - a->idle_since_ms >= a->idle_ms && !a->leaving)
		a->leaving = "idle";
}

static void look_at_socket(struct agent *a)
{
	if (a->now_ms < a->socket_at_ms)
		return;
	a->socket_at_ms = a->now_ms + SOCKET_LOOK_MS;
	if (!life_has_socket(a) && !a->leaving) {
		agent_log(a,
			"the agent's socket was removed; it leaves, and the next client starts another");
		a->leaving = "stop";
	}
}

/* We slept or were stopped: nobody was silent but us. */
static void forgive_silence(struct agent *a)
{
	if (a->turn_ms && a->now_ms - a->turn_ms > LATE_MS + 1000)
		for (size_t i = 0; i < a->n_clients; i++)
			a->clients[i]->heard_ms = a->now_ms;
	if (a->turn_ms && a->now_ms - a->turn_ms > LATE_MS + 1000)
		chores_forgive(a);
	a->turn_ms = a->now_ms;
}

static void sooner(int64_t *ms, int64_t other)
{
	if (other >= 0 && other < *ms)
		*ms = other;
}

static void sooner_at(const struct agent *a, int64_t *ms, int64_t at_ms)
{
	if (at_ms)
		sooner(ms, at_ms > a->now_ms ? at_ms - a->now_ms : 0);
}

/* How long poll may wait. */
static int64_t wait_ms(struct agent *a)
{
	int64_t ms = a->is_restless ? 0 : SOCKET_LOOK_MS;

	sooner_at(a, &ms, a->socket_at_ms);
	sooner_at(a, &ms, a->look_at_ms);
	sooner_at(a, &ms, a->retire_at_ms);
	sooner_at(a, &ms, a->idle_since_ms + a->idle_ms);
	sooner(&ms, attempts_turn(&a->attempts, a->now_ms));
	sooner(&ms, sampler_turn(a->sampler, a->now_ms));
	sooner(&ms, profiler_turn(a->profiler, a->now_ms));
	sooner(&ms, launch_wait_ms(a));
	sooner(&ms, lanes_wait_ms(a));
	sooner(&ms, files_wait_ms(a));
	sooner(&ms, chores_wait_ms(a));
	if (!sampler_is_asked(a->sampler))
		for (size_t i = 0; i < a->n_clients; i++)
			if (a->clients[i]->watch_ms)
				sooner_at(a, &ms, a->clients[i]->due_ms);
	return ms;
}

/* ---- the loop ---- */

enum {
	POLL_LISTEN,
	POLL_BELL,
	POLL_SIGNAL,
	POLL_SAMPLER,
	POLL_PROFILER,
	POLL_FILES,
	POLL_CHORES,
	POLL_CLIENTS
};

static size_t fill_poll(struct agent *a, struct pollfd *p)
{
	p[POLL_LISTEN] = (struct pollfd){.fd = a->listen_fd, .events = POLLIN};
	p[POLL_BELL] = (struct pollfd){.fd = a->bell_fd, .events = POLLIN};
	p[POLL_SIGNAL] = (struct pollfd){.fd = a->signal_fd, .events = POLLIN};
	p[POLL_SAMPLER] = (struct pollfd){.fd = sampler_fd(a->sampler), .events = POLLIN};
	p[POLL_PROFILER] = (struct pollfd){.fd = profiler_fd(a->profiler), .events = POLLIN};
	p[POLL_FILES] = (struct pollfd){.fd = files_fd(a->files), .events = POLLIN};
	p[POLL_CHORES] = (struct pollfd){.fd = chores_fd(a->chores), .events = POLLIN};
	for (size_t i = 0; i < a->n_clients; i++) {
		const struct client *c = a->clients[i];
		short events = 0;

		if (client_wants_read(c) && !c->has_left)
			events |= POLLIN;
		if (client_wants_write(c))
			events |= POLLOUT;
		/* Without events poll would still tell of a hangup, each time anew. */
		p[POLL_CLIENTS + i] = (struct pollfd){.fd = events ? c->fd : -1, .events = events};
	}
	return POLL_CLIENTS + a->n_clients;
}

static void take_events(struct agent *a, const struct pollfd *p)
{
	size_t n = a->n_clients;

	if (p[POLL_SIGNAL].revents)
		take_signals(a);
	if (p[POLL_BELL].revents)
		take_rings(a);
	if (p[POLL_SAMPLER].revents)
		take_snapshot(a);
	if (p[POLL_PROFILER].revents)
		profiler_read(a->profiler, a->now_ms);
	for (size_t i = 0; i < n; i++)
		if (p[POLL_CLIENTS + i].revents & (POLLIN | POLLHUP | POLLERR))
			read_client(a, a->clients[i]);
	if (p[POLL_LISTEN].revents)
		take_client(a);
}

/* At once also when somebody wants to start: a claim made of one that's over costs half of a new one. */
static bool is_retiring_due(const struct agent *a)
{
	return a->retire_at_ms && (a->now_ms >= a->retire_at_ms ||
					  (!launch_is_empty(&a->launch) && !a->root.n_spares &&
						  a->n_retiring >= RETIRE_SOME));
}

/* What can be done now is done now; what was said goes out at the end. */
static void act(struct agent *a)
{
	chores_take(a);
	look_around(a);
	attempts_turn(&a->attempts, a->now_ms);
	readmit(a);
	lanes_turn(a);
	if (is_retiring_due(a))
		agent_retire(a);
	launch_hall_turn(a);
	launch_turn(a);
	release_turn(a);
	/* What has ended is given back at once, whether or not anybody asks for a sample. */
	if (a->promises_are_old)
		launch_publish(a);
	sample_push(a);
	files_turn(a);
	for (size_t i = 0; i < a->n_clients; i++)
		write_client(a, a->clients[i]);
	drop_dead_clients(a);
	look_at_profiler(a);
	lane_drafts_sweep(a);
	/* Commands that waited may have been read just now. */
	launch_hall_turn(a);
	launch_turn(a);
	a->is_restless = chores_start(a);
	ask_for_watchers(a);
	look_at_socket(a);
	look_at_idleness(a);
}

static int turn(struct agent *a, struct err *e)
{
	struct pollfd *p = xcalloc(POLL_CLIENTS + a->n_clients, sizeof(*p));
	int timeout_ms = (int)wait_ms(a), r;
	size_t n = fill_poll(a, p);

	r = poll(p, (nfds_t)n, timeout_ms);
	if (r < 0 && errno != EINTR) {
		r = -errno;
		free(p);
		return err_sys(e, r, "the agent can't wait for its descriptors");
	}
	a->now_ms = clock_boot_ms();
	forgive_silence(a);
	if (r > 0)
		take_events(a, p);
	free(p);
	act(a);
	return 0;
}

int agent_run(struct agent *a, struct err *e)
{
	int r = 0;

	agent_log(a, "agent %s serves, pid %d", GPUSTOW_VERSION, (int)getpid());
	while (!r) {
		r = turn(a, e);
		/* A launch in hand is finished before leaving, so that its answer is known. */
		if (a->leaving && launch_is_empty(&a->launch) && life_leave(a))
			break;
	}
	agent_log(a, "agent %s leaves: %s", GPUSTOW_VERSION, r ? e->text : a->leaving);
	life_stay(a);
	return r;
}
