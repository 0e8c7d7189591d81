/*
 * The daemon's life and its rhythm. Everything is an event of one loop, and nothing on it waits: links, peers, hooks and backups
 * are callbacks, a pass is a state machine. So a node, a program or a file that hangs hangs alone (W-40).
 *
 *   something happened --20 ms, and not sooner than the last pass took--> pass --> alerts, backup, watchers told
 *   nothing happened ------------------ interval ----------------------->
 *
 * Without the lease it commands nobody and tries to get it back each second.
 */
#include "svc/daemon_inner.h"
#include "svc/sd_notify.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/parse.h"
#include "base/text.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define COALESCE_MS 20
#define LEASE_TRY_MS 1000
#define LEASE_START_MS 5000 /* a command's pass may have it just now */
#define LEASE_LOOK_MS 10000
#define RECORD_TELL_MS 10000 /* its lock is somebody's for so long: that's told of */
#define WATCH_PENDING_MS 2000
#define WATCH_PEERS_MS 5000
#define ALIVE_MIN_MS 120000
#define ONCE_DELIVERY_MS 30000
#define ONCE_SOON_MS 5000
#define ONCE_LEASE_MS 60000
#define ONCE_TURN_MS 100
#define NUDGE "nudged_at" /* wall clock ms: somebody waits for a pass, and found no socket */

static void arm(struct event *ev, int64_t ms)
{
	struct timeval t;

	ms = ms < 0 ? 0 : ms;
	t = (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	event_add(ev, &t);
}

void daemon_complain(struct daemon *d, char **last, const char *what, const char *text)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!text) {
		free(*last);
		*last = NULL;
		return;
	}
	if (*last && !strcmp(*last, text))
		return;
	free(*last);
	*last = xstrdup(text);
	buf_printf(&b, "%s: ", what);
	text_put_clean(&b, text, strlen(text));
	d->o->says(d->o->arg, buf_str(&b));
}

/* ---- when a pass is made ---- */

void daemon_want(struct daemon *d, int64_t in_ms)
{
	int64_t at = clock_boot_ms() + (in_ms > COALESCE_MS ? in_ms : COALESCE_MS);

	/* Half of the time at most goes into passes, however much happens. */
	if (d->ended_ms && at < d->ended_ms + d->took_ms)
		at = d->ended_ms + d->took_ms;
	if (at >= d->pass_at_ms)
		return;
	d->pass_at_ms = at;
	arm(d->pass, at - clock_boot_ms());
}

static void on_pass(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;
	bool is_asked = asked_waiting(d);

	(void)fd, (void)what;
	d->pass_at_ms = INT64_MAX;
	if (d->is_ending || !controller_has_lease(d->controller))
		return;
	/* The one that runs tells when it's over, and then it's looked again. */
	if (controller_is_passing(d->controller)) {
		daemon_want(d, COALESCE_MS);
		return;
	}
	d->begun_ms = clock_boot_ms();
	asked_begun(d);
	controller_begin(d->controller, is_asked || d->is_regular);
	d->is_regular |= is_asked;
}

static void on_interval(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;
	struct err e = {0};

	(void)fd, (void)what;
	arm(d->interval, d->o->interval_ms);
	config_watch_look(d, false);
	if (daemon_server_check(d->server, &e) < 0)
		d->o->says(d->o->arg, e.text);
	d->is_regular = true;
	daemon_want(d, 0);
}

/* ---- what follows a pass ---- */

static void gather(struct daemon *d)
{
	CLEANUP(tick_summary_done) struct tick_summary sum = {0};

	controller_take(d->controller, &sum);
	asked_happened(d, &sum);
	tick_summary_add(&d->sum, &sum);
}

static void look_at_asked(struct daemon *d)
{
	int64_t at = asked_look(d);

	if (at != INT64_MAX)
		arm(d->look, at - clock_boot_ms());
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	look_at_asked(arg);
}

static void deliver(struct daemon *d)
{
	int64_t wait_ms;

	if (!d->notify)
		return;
	notify_turn(d->notify);
	wait_ms = notify_wait_ms(d->notify);
	if (wait_ms >= 0)
		arm(d->deliver, wait_ms);
}

static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	deliver(arg);
}

static void tell_owner(struct daemon *d)
{
	int64_t delivered = d->notify ? notify_delivered(d->notify) : 0;

	d->o->passed(d->o->arg, &d->sum, delivered - d->n_notified, d->backup.made, d->backup.error,
		d->is_regular);
	d->n_notified = delivered;
	json_decref(d->backup.made);
	free(d->backup.error);
	d->backup.made = NULL;
	d->backup.error = NULL;
	d->is_regular = false;
	tick_summary_done(&d->sum);
	d->sum = tick_summary_new();
}

static void watch_cards(struct daemon *d)
{
	struct store_counts counts = {0};
	struct err e;

	if (store_counts(d->store, &counts, &e) < 0)
		return;
	controller_watch(d->controller, counts.by_state[JOB_STATE_PENDING]  ? WATCH_PENDING_MS
					: daemon_server_watchers(d->server) ? WATCH_PEERS_MS
									    : 0);
}

static void say_status(struct daemon *d)
{
	char text[160];

	snprintf(text, sizeof(text),
		"STATUS=%" PRId64 " passes; %" PRId64 " nodes up, %" PRId64 " down%s", d->n_passes,
		d->sum.nodes_up, d->sum.nodes_down, d->config.error ? "; configuration error" : "");
	sd_notify_say(text);
}

static void on_happened(void *arg)
{
	struct daemon *d = arg;

	gather(d);
	daemon_tell_events(d);
	look_at_asked(d);
}

static void lost(struct daemon *d)
{
	d->o->says(
		d->o->arg, "the queue's lease was lost: nothing is commanded until it's had again");
	arm(d->lease, 0);
}

static void on_passed(void *arg, int r, const struct err *e)
{
	struct daemon *d = arg;
	bool was_pass = d->begun_ms != 0;

	if (r < 0) {
		asked_passed(d, r, e->text);
		daemon_complain(d, &d->last_error, "a pass was broken off", e->text);
		if (r == -ESTALE || r == -EAGAIN)
			lost(d);
		else
			daemon_want(d, 1000);
	} else {
		daemon_complain(d, &d->last_error, "", NULL);
		d->n_passes++;
		d->last_wall_ms = clock_wall_ms();
	}
	d->ended_ms = clock_boot_ms();
	d->took_ms = was_pass ? controller_took_ms(d->controller) : 0;
	d->begun_ms = 0;
	gather(d);
	if (!r)
		asked_passed(d, 0, NULL);
	fault_point("daemon.after-pass");
	config_watch_sweep(d);
	deliver(d);
	backup_turn(d);
	watch_cards(d);
	say_status(d);
	tell_owner(d);
	daemon_tell_events(d);
	look_at_asked(d);
}

static void on_wants(void *arg, int64_t in_ms)
{
	daemon_want(arg, in_ms);
}

/* ---- the lease ---- */

static void try_lease(struct daemon *d)
{
	char *holder = NULL;
	struct err e = {0};
	int r = controller_take_lease(d->controller, &holder, &e);

	free(d->holder);
	d->holder = holder;
	if (r < 0) {
		arm(d->lease, LEASE_TRY_MS);
		return;
	}
	d->o->says(d->o->arg, "the queue's lease is ours again");
	daemon_want(d, 0);
}

/* Somebody changed something and didn't find the socket; his word lies in the record. */
static void look_for_nudge(struct daemon *d)
{
	CLEANUP_FREE char *text = NULL;
	struct err e;
	int64_t at;

	if (store_meta_get(d->store, NUDGE, &text, &e) < 0 || parse_int64(text, &at) < 0)
		return;
	if (d->nudged_ms != at)
		daemon_want(d, 0);
	d->nudged_ms = at;
}

static void look_at_record(struct daemon *d)
{
	int64_t ms;
	const char *who = controller_waits(d->controller, &ms);

	if (!who)
		daemon_complain(d, &d->record_error, "", NULL);
	else if (ms >= RECORD_TELL_MS)
		daemon_complain(d, &d->record_error, "what happens can't be written down", who);
}

static void on_lease(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;
	struct err e = {0};
	int r;

	(void)fd, (void)what;
	if (!controller_has_lease(d->controller)) {
		try_lease(d);
		return;
	}
	look_at_record(d);
	r = controller_keep(d->controller, &e);
	arm(d->lease, r == -EBUSY ? LEASE_TRY_MS : LEASE_LOOK_MS);
	/* What it says is on_passed's already when it was lost. */
	if (r < 0 && r != -EBUSY && controller_has_lease(d->controller))
		daemon_complain(d, &d->last_error, "the lease can't be renewed", e.text);
	look_for_nudge(d);
}

/* ---- signals and the service manager ---- */

static void on_end(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;

	(void)fd, (void)what;
	d->is_ending = true;
	sd_notify_say("STOPPING=1");
	event_base_loopbreak(d->base);
}

static void on_hup(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;

	(void)fd, (void)what;
	sd_notify_reloading();
	config_watch_look(d, true);
	sd_notify_say("READY=1");
}

/*
 * Only while passes come to an end, for a loop that turns isn't all there is to be alive; or while they wait for somebody who
 * has the record's lock: a new daemon could do no more.
 */
static void on_watchdog(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;
	int64_t since = d->ended_ms ? d->ended_ms : d->since_ms;
	int64_t limit = 3 * d->o->interval_ms;

	(void)fd, (void)what;
	arm(d->watchdog, sd_notify_watchdog_ms());
	limit = limit > ALIVE_MIN_MS ? limit : ALIVE_MIN_MS;
	if (!controller_has_lease(d->controller) || controller_waits(d->controller, NULL) ||
		clock_boot_ms() - since < limit)
		sd_notify_say("WATCHDOG=1");
}

/* ---- life ---- */

static void make_events(struct daemon *d)
{
	d->pass = evtimer_new(d->base, on_pass, d);
	d->interval = evtimer_new(d->base, on_interval, d);
	d->lease = evtimer_new(d->base, on_lease, d);
	d->deliver = evtimer_new(d->base, on_deliver, d);
	d->look = evtimer_new(d->base, on_look, d);
	d->watchdog = evtimer_new(d->base, on_watchdog, d);
	d->on_int = evsignal_new(d->base, SIGINT, on_end, d);
	d->on_term = evsignal_new(d->base, SIGTERM, on_end, d);
	d->on_hup = evsignal_new(d->base, SIGHUP, on_hup, d);
}

/* One loop of a process at a time can have signals (libevent's rule), and a pass of its own (--once) has a loop of its own. */
static void take_signals(struct daemon *d)
{
	event_add(d->on_int, NULL);
	event_add(d->on_term, NULL);
	event_add(d->on_hup, NULL);
}

/*
 * A command's pass is over soon; who holds it for longer is another daemon, or something like one. The record's lock is waited
 * for as long as by anybody else.
 */
static int take_first_lease(struct daemon *d, struct err *e)
{
	int64_t begun_ms = clock_boot_ms();
	int r;

	do {
		r = controller_take_lease(d->controller, NULL, e);
		if ((r != -EBUSY && r != -ETIMEDOUT) ||
			clock_boot_ms() - begun_ms >=
				(r == -EBUSY ? LEASE_START_MS : STORE_LOCK_WAIT_MS))
			break;
		event_base_loop(d->base, EVLOOP_NONBLOCK);
		poll(NULL, 0, 50);
	} while (!d->is_ending);
	return r;
}

static int begin(struct daemon *d, struct err *e)
{
	const struct controller_owner owner = {
		.arg = d, .wants = on_wants, .happened = on_happened, .passed = on_passed};
	const struct daemon_server_owner server = {
		.arg = d, .said = daemon_said, .gone = daemon_gone};
	int r;

	d->controller = controller_new(d->base, d->store, d->o->home, &owner);
	if (d->o->notify)
		d->notify = notify_new(d->base, d->store, d->o->home, d->o->program);
	r = daemon_server_look(store_path(d->store), store_queue(d->store), e);
	if (!r)
		r = config_watch_begin(d, e);
	if (!r && !d->o->is_once)
		r = take_first_lease(d, e);
	if (!r && !d->o->is_once)
		r = daemon_server_new(d->base, store_path(d->store), store_queue(d->store), &server,
			&d->server, e);
	return r;
}

static void end(struct daemon *d)
{
	struct event *events[] = {d->pass, d->interval, d->lease, d->deliver, d->look, d->watchdog,
		d->on_int, d->on_term, d->on_hup};

	daemon_server_free(d->server);
	controller_free(d->controller);
	if (d->notify)
		notify_free(d->notify);
	backup_end(d);
	config_watch_done(d);
	asked_done(d);
	tick_summary_done(&d->sum);
	free(d->last_error);
	free(d->record_error);
	free(d->holder);
	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	event_base_free(d->base);
}

/* ---- once ---- */

/* What waits for minutes, because it failed, is left to the next one. */
static bool is_delivering(const struct daemon *d)
{
	int64_t wait_ms = d->notify ? notify_wait_ms(d->notify) : -1;

	return d->notify &&
	       (notify_is_sending(d->notify) || (wait_ms >= 0 && wait_ms <= ONCE_SOON_MS));
}

/* Alerts that were taken up have their time, and so has a backup. */
static void see_it_out(struct daemon *d)
{
	int64_t until = clock_boot_ms() + ONCE_DELIVERY_MS;

	while (!d->is_ending &&
		(d->backup.child || (is_delivering(d) && clock_boot_ms() < until))) {
		arm(d->look, ONCE_TURN_MS);
		event_base_loop(d->base, EVLOOP_ONCE);
		deliver(d);
	}
}

static int run_once(struct daemon *d, struct err *e)
{
	struct tick_options o = {.home = d->o->home, .is_forced = true, .wait_ms = ONCE_LEASE_MS};
	CLEANUP(tick_summary_done) struct tick_summary sum = {0};
	int r = tick(d->store, d->config.now, &o, &sum, e);

	if (r < 0)
		return r;
	take_signals(d);
	d->is_ending = sum.signal_no != 0;
	if (sum.skipped)
		return err_set(e, -EBUSY, "%s decides for the queue, and didn't end in time",
			sum.lock_owner ? sum.lock_owner : "somebody else");
	tick_summary_done(&d->sum);
	d->sum = sum;
	sum = (struct tick_summary){0};
	deliver(d);
	backup_turn(d);
	see_it_out(d);
	tell_owner(d);
	return 0;
}

static void run(struct daemon *d)
{
	if (d->is_ending)
		return;
	sd_notify_say("READY=1");
	if (sd_notify_watchdog_ms())
		arm(d->watchdog, 0);
	arm(d->interval, d->o->interval_ms);
	arm(d->lease, LEASE_LOOK_MS);
	daemon_want(d, 0);
	event_base_dispatch(d->base);
}

int daemon_run(struct store *s, const struct daemon_options *o, struct err *e)
{
	struct daemon d = {.store = s,
		.o = o,
		.base = event_base_new(),
		.pass_at_ms = INT64_MAX,
		.since_ms = clock_boot_ms(),
		.since_wall_ms = clock_wall_ms(),
		.is_regular = true,
		.last_event = -1,
		.sum = tick_summary_new()};
	int r;

	d.config.fd = -1;
	if (!d.base) {
		tick_summary_done(&d.sum);
		return err_set(e, -EIO, "the event loop can't be made");
	}
	make_events(&d);
	if (!o->is_once)
		take_signals(&d);
	look_for_nudge(&d);
	r = begin(&d, e);
	if (!r && o->is_once)
		r = run_once(&d, e);
	else if (!r)
		run(&d);
	end(&d);
	return r;
}
