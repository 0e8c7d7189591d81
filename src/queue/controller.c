/*
 * A pass, from its lease to its summary. The phases are in one function, so that their order can be read; each is a file
 * of its own (pass.h).
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/parse.h"
#include "queue/launch.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define BEAT_MS 20
#define LAST_TICK "last_tick_at" /* wall clock ms */
#define NUDGE "nudged_at" /* somebody waits for a pass; wall clock ms */
#define LOCK_LOOK_MS 50
#define OUTRUN_MAX 3 /* two copies of a record may go on side by side */
#define ALERTS_MAX 100 /* in a summary */

/* ---- the lease and the loop ---- */

static int64_t lease_ttl(const struct queue_settings *s)
{
	int64_t ttl = 60000;

	if (s->lock_ttl_ms > ttl)
		ttl = s->lock_ttl_ms;
	if (2 * s->probe_timeout_ms + 30000 > ttl)
		ttl = 2 * s->probe_timeout_ms + 30000;
	if (2 * s->launch_timeout_ms + 60000 > ttl)
		ttl = 2 * s->launch_timeout_ms + 60000;
	return ttl;
}

int pass_keep(struct pass *p, struct err *e)
{
	int64_t now_ms = clock_boot_ms();
	int r;

	/* A signal that came while nobody looked counts as well. */
	event_base_loop(p->base, EVLOOP_NONBLOCK);
	if (p->signal_no)
		return err_set(e, -EINTR, "the pass was stopped by signal %d", p->signal_no);
	if (now_ms - p->renewed_ms < p->ttl_ms / 3)
		return 0;
	r = store_lease_renew(p->store, &p->lease, p->ttl_ms, e);
	if (!r)
		p->renewed_ms = now_ms;
	return r;
}

int pass_begin(struct pass *p, struct err *e)
{
	int64_t now_ms = clock_boot_ms();
	int r = 0;

	/* What has arrived is written down even when a signal ends the pass. */
	if (now_ms - p->renewed_ms >= p->ttl_ms / 3) {
		r = store_lease_renew(p->store, &p->lease, p->ttl_ms, e);
		p->renewed_ms = now_ms;
	}
	return r < 0 ? r : store_begin(p->store, &p->lease, e);
}

static void on_beat(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what, (void)arg;
}

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
	struct pass *p = arg;

	(void)what;
	p->signal_no = (int)signo;
}

void pass_turn(struct pass *p)
{
	event_base_loop(p->base, EVLOOP_ONCE);
}

static int make_loop(struct pass *p, struct err *e)
{
	struct timeval beat = {.tv_usec = BEAT_MS * 1000};

	p->base = event_base_new();
	if (!p->base)
		return err_set(e, -EIO, "the event loop can't be made");
	p->beat = event_new(p->base, -1, EV_PERSIST, on_beat, p);
	p->on_int = evsignal_new(p->base, SIGINT, on_signal, p);
	p->on_term = evsignal_new(p->base, SIGTERM, on_signal, p);
	event_add(p->beat, &beat);
	event_add(p->on_int, NULL);
	event_add(p->on_term, NULL);
	return 0;
}

static void free_loop(struct pass *p)
{
	struct event *events[] = {p->beat, p->on_int, p->on_term};

	for (size_t i = 0; i < ARRAY_LEN(events); i++)
		if (events[i])
			event_free(events[i]);
	if (p->base)
		event_base_free(p->base);
}

/* ---- the phases ---- */

static int load(struct pass *p, struct err *e)
{
	struct store_question q = {.bound = true, .command_max = 1};
	int r = store_nodes(p->store, &p->rows, e);

	if (!r)
		r = store_jobs(p->store, &q, &p->live, e);
	if (!r)
		r = store_reaps(p->store, NULL, &p->reaps, e);
	return r;
}

static int run_phases(struct pass *p, struct err *e)
{
	int r = load(p, e);

	if (!r)
		r = links_open(p, e);
	if (r < 0)
		return r;
	links_wait(p);
	/* Who was interrupted concludes nothing from silence. */
	r = pass_keep(p, e);
	if (!r)
		r = links_check_record(p, e);
	if (r < 0)
		return r;
	nodes_identify(p);
	nodes_take_samples(p);
	exchange_read(p);
	nodes_give_up(p);
	r = settle(p, true, e);
	if (!r)
		r = needs_apply(p, e);
	if (!r)
		r = pass_keep(p, e);
	if (r < 0)
		return r;
	exchange_stops(p);
	r = launch_all(p, e);
	if (!r)
		r = pass_keep(p, e);
	if (!r)
		r = retention_apply(p, e);
	links_flush(p);
	return r;
}

/* ---- the summary ---- */

static int64_t newest_alert(struct pass *p)
{
	CLEANUP(store_alerts_done) struct store_alerts l = {0};
	struct err e;

	if (store_alerts(p->store, STORE_ALERTS_ALL, 1, &l, &e) < 0 || !l.n)
		return 0;
	return l.v[0].id;
}

static void say_alerts(struct pass *p, int64_t since)
{
	CLEANUP(store_alerts_done) struct store_alerts l = {0};
	struct err e;

	if (store_alerts(p->store, STORE_ALERTS_ALL, ALERTS_MAX, &l, &e) < 0)
		return;
	for (size_t i = 0; i < l.n; i++) {
		const struct store_alert *a = &l.v[i];

		if (a->id > since)
			json_array_append_new(p->sum->alerts,
				json_pack("{s:I, s:s, s:s?, s:o}", "id", (json_int_t)a->id, "kind",
					alert_kind_name(a->kind), "title", a->title, "job_id",
					a->job ? json_integer((json_int_t)a->job) : json_null()));
	}
}

static void count_nodes(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		const struct pass_node *n = &p->nodes[i];

		if (n->row && n->row->is_ignored)
			p->sum->nodes_ignored++;
		else if (n->contact == CONTACT_ANSWERED && !n->refused)
			p->sum->nodes_up++;
		else
			p->sum->nodes_down++;
		if (n->contact == CONTACT_FAILED && !n->refused)
			pass_say_error(p, n->name, 0, "%s", n->why);
	}
}

static void make_lists(struct tick_summary *t)
{
	json_t **lists[] = {
		&t->finished, &t->dispatched, &t->errors, &t->alerts, &t->reaped, &t->held};

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		*lists[i] = json_array();
}

/* ---- begin and end ---- */

static void pass_done(struct pass *p)
{
	for (size_t i = 0; i < p->n_flights; i++) {
		struct flight *f = &p->flights[i];

		staging_free(f->staging);
		json_decref(f->launch);
		free(f->body);
		free(f->dir);
	}
	free(p->flights);
	links_close(p);
	for (size_t i = 0; i < p->n_notes; i++) {
		json_decref(p->notes[i].msg);
		free(p->notes[i].text);
	}
	free(p->notes);
	store_nodes_done(&p->rows);
	store_jobs_done(&p->live);
	store_attempts_done(&p->reaps);
	free_loop(p);
}

/* It came to its end: when, and which one it was. */
static int tell_end(struct pass *p, int64_t number, struct err *e)
{
	CLEANUP_FREE char *text = xasprintf("%" PRId64, clock_wall_ms());
	int r = pass_begin(p, e);

	if (r < 0)
		return r;
	r = store_meta_set(p->store, LAST_TICK, text, e);
	if (r >= 0)
		r = store_pass_done(p->store, &p->lease, number, e);
	if (r < 0) {
		store_abort(p->store);
		return r;
	}
	return store_commit(p->store, e);
}

/* Under the lease, which is given back whatever comes; unless it was lost, and then not another word is said to anybody. */
static int run_pass(struct store *s, const struct queue_config *c, const struct tick_options *o,
	const struct store_lease *lease, struct tick_summary *sum, struct err *e)
{
	struct pass p = {.store = s,
		.config = c,
		.options = o,
		.sum = sum,
		.lease = *lease,
		.ttl_ms = lease_ttl(&c->settings),
		.renewed_ms = clock_boot_ms(),
		.begun_ms = clock_boot_ms(),
		.now_ms = clock_wall_ms()};
	int64_t number = 0, alerts;
	int r;

	fault_point("queue.after-lease");
	make_lists(sum);
	alerts = newest_alert(&p);
	r = make_loop(&p, e);
	if (!r)
		r = store_pass_begin(s, lease, &number, e);
	if (!r)
		r = run_phases(&p, e);
	if (!r)
		r = tell_end(&p, number, e);
	if (!r) {
		sum->ran = true;
		count_nodes(&p);
		say_alerts(&p, alerts);
	}
	pass_done(&p);
	if (r != -ESTALE && r != -EAGAIN) {
		struct err ignored;

		store_lease_release(s, lease, &ignored);
	}
	return r;
}

/* ---- who wants a pass ---- */

static char *make_owner(void)
{
	char host[128] = "", random[9];

	gethostname(host, sizeof(host) - 1);
	random_hex(4, random);
	return xasprintf("%s:%d:%s", host, (int)getpid(), random);
}

static bool is_too_soon(struct store *s, const struct queue_settings *set)
{
	CLEANUP_FREE char *text = NULL;
	int64_t last, now = clock_wall_ms();
	struct err e;

	if (store_meta_get(s, LAST_TICK, &text, &e) < 0 || parse_int64(text, &last) < 0)
		return false;
	return now >= last && now < last + set->tick_min_interval_ms;
}

/* For a holder that goes on for long: somebody has changed something. */
static void nudge(struct store *s)
{
	CLEANUP_FREE char *text = xasprintf("%" PRId64, clock_wall_ms());
	struct err e;

	if (store_begin(s, NULL, &e) < 0)
		return;
	if (store_meta_set(s, NUDGE, text, &e) < 0)
		store_abort(s);
	else
		store_commit(s, &e);
}

struct wait {
	int64_t begun_before; /* the last pass that had begun at the call: only a later one will do */
	bool is_done; /* somebody made it */
};

/* 0: the lease is ours, or somebody's pass was made for us; -EBUSY: neither within the time. */
static int wait_for_lease(struct store *s, const char *owner, int64_t ttl_ms, int64_t wait_ms,
	struct store_lease *lease, struct wait *w, char **ret_holder, struct err *e)
{
	int64_t until = clock_boot_ms() + wait_ms;
	int r;

	for (;;) {
		struct store_lease_row row = {0};
		int64_t begun, done;

		r = store_passes(s, &begun, &done, e);
		if (!r && done > w->begun_before) {
			w->is_done = true;
			return 0;
		}
		if (!r)
			r = store_lease_read(s, &row, e);
		if (r < 0)
			return r;
		free(row.owner);
		if (!row.is_held) {
			free(*ret_holder);
			*ret_holder = NULL;
			r = store_lease_take(s, owner, ttl_ms, lease, ret_holder, e);
			if (r != -EBUSY)
				return r;
		}
		if (clock_boot_ms() >= until)
			return err_set(e, -EBUSY, "another pass of this queue is running");
		poll(NULL, 0, LOCK_LOOK_MS);
	}
}

static int take_lease(struct store *s, const struct queue_config *c, const struct tick_options *o,
	struct store_lease *lease, struct wait *w, char **ret_holder, struct err *e)
{
	CLEANUP_FREE char *made = o->owner ? NULL : make_owner();
	const char *owner = o->owner ? o->owner : made;
	int64_t ttl = lease_ttl(&c->settings), done;
	int r = store_passes(s, &w->begun_before, &done, e);

	if (!r)
		r = store_lease_take(s, owner, ttl, lease, ret_holder, e);
	if (r != -EBUSY || !o->is_forced || o->wait_ms <= 0)
		return r;
	nudge(s);
	return wait_for_lease(s, owner, ttl, o->wait_ms, lease, w, ret_holder, e);
}

/* The caller's wish was met by somebody else's pass: how the nodes are is in the record. */
static int fill_from_record(struct store *s, struct tick_summary *ret, struct err *e)
{
	CLEANUP(store_nodes_done) struct store_nodes rows = {0};
	int r = store_nodes(s, &rows, e);

	make_lists(ret);
	ret->ran = true;
	for (size_t i = 0; !r && i < rows.n; i++) {
		const struct store_node *n = &rows.v[i];

		ret->nodes_ignored += n->is_ignored;
		ret->nodes_up += !n->is_ignored && n->state && !strcmp(n->state, NODE_UP);
		ret->nodes_down += !n->is_ignored && (!n->state || strcmp(n->state, NODE_UP) != 0);
	}
	return r;
}

/* One pass under a lease of its own, or somebody else's. */
static int one_pass(struct store *s, const struct queue_config *c, const struct tick_options *o,
	struct tick_summary *ret, struct err *e)
{
	struct store_lease lease;
	struct wait w = {0};
	char *holder = NULL;
	int r;

	*ret = (struct tick_summary){0};
	r = take_lease(s, c, o, &lease, &w, &holder, e);
	if (r == -EBUSY) {
		ret->skipped = "locked";
		ret->lock_owner = holder;
		return 0;
	}
	free(holder);
	if (r < 0)
		return r;
	return w.is_done ? fill_from_record(s, ret, e) : run_pass(s, c, o, &lease, ret, e);
}

int tick(struct store *s, const struct queue_config *c, const struct tick_options *o,
	struct tick_summary *ret, struct err *e)
{
	struct err told = {0};
	int r;

	*ret = (struct tick_summary){0};
	if (store_is_elsewheres(s))
		return err_set(e, -EROFS,
			"the queue's database %s belongs to another machine: here it's only read, and nothing is started; give commands there",
			store_path(s));
	if (!o->is_forced && is_too_soon(s, &c->settings)) {
		ret->skipped = "rate_limited";
		return 0;
	}
	r = one_pass(s, c, o, ret, e);
	/* Its record went back in time: once more, as the next incarnation. */
	for (int again = 0; r == -EAGAIN && again < OUTRUN_MAX; again++) {
		told = *e;
		tick_summary_done(ret);
		*ret = (struct tick_summary){0};
		r = one_pass(s, c, o, ret, e);
	}
	if (!r && ret->errors && told.text[0])
		json_array_append_new(ret->errors, json_pack("{s:s}", "error", told.text));
	return r;
}
