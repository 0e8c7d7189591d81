/*
 * The daemon's controller: one struct pass that goes on from pass to pass, over links that are held. What nodes say between
 * two passes lands in the notes of the last one and is settled some milliseconds later; starts and ends are on record then,
 * whether or not a pass follows.
 *
 * Two events of the loop do all the work: `soon` (settle what was said) and `step` (the pass goes on). Links' callbacks only
 * arm them, so a link is never freed from within its own. Both want the record's lock before they begin (turn.h); while
 * somebody else has it they're due, and done when it comes.
 */
#include "queue/launch.h"
#include "queue/pass.h"
#include "queue/turn.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

#define SOON_MS 2
/* So long a body that was sent ahead waits for its launch to leave, or its lane to be told; and a claimed entry to start. */
#define KEPT_MS 60000
#define LOCK_MS 20 /* the record's, where nobody waits in turn */
#define LOCK_END_MS 1000 /* for the last word: whoever comes next can do without */
#define FREED_MIN_MIB 64 /* less than that starts nothing that waits */

struct controller {
	struct pass p;
	struct link_pool pool;
	struct tick_options options;
	struct tick_summary sum;
	struct controller_owner owner;
	const struct queue_config *config, *next;
	struct event *soon, *step;
	struct turn turn;
	bool is_news_due, is_step_due;
	bool has_lease, is_passing;
	bool is_opening; /* the pass has yet to read the record */
	int64_t begun_ms, waited_ms,
		took_ms; /* of the pass; waited: turn.waited_ms when it began */
	int64_t alerts; /* the newest that a summary has told */
	int64_t watch_ms;
};

static void arm(struct event *ev, int64_t ms)
{
	struct timeval t;

	ms = ms < 0 ? 0 : ms;
	t = (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	event_add(ev, &t);
}

static struct controller *of_pass(struct pass *p)
{
	return (struct controller *)((char *)p - offsetof(struct controller, p));
}

static void arm_soon(struct controller *c)
{
	if (!evtimer_pending(c->soon, NULL))
		arm(c->soon, SOON_MS);
}

void held_news(struct pass *p)
{
	arm_soon(of_pass(p));
}

/* ---- what a link tells ---- */

/* What is on its way there, nobody will answer for on this link any more: the next answer tells. */
static void drop_flights(struct controller *c, const struct pool_link *l, bool for_good)
{
	for (size_t i = 0; i < c->p.n_flights; i++) {
		struct flight *f = &c->p.flights[i];

		if (f->held != l)
			continue;
		staging_cut(f->staging);
		if (f->state == FLIGHT_SENT || f->state == FLIGHT_CLAIMED)
			f->state = FLIGHT_OVER;
		if (for_good)
			f->held = NULL;
	}
}

static void on_closing(void *arg, struct pool_link *l, bool for_good)
{
	drop_flights(arg, l, for_good);
}

static void on_changed(void *arg, struct pool_link *l, bool is_news)
{
	struct controller *c = arg;

	if (!l->is_up)
		drop_flights(c, l, false);
	if (c->is_passing)
		arm(c->step, 0);
	else
		arm_soon(c);
	/* Also a late answer: it's for the next pass. */
	if (is_news || (l->answered_ms && (!c->is_passing || !l->node ||
						  l->node->contact != CONTACT_ANSWERED)))
		c->owner.wants(c->owner.arg, 0);
}

static void on_pushed(void *arg, struct pool_link *l, const struct sample *s)
{
	struct controller *c = arg;
	int64_t used = 0, before = l->used_mib;

	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		const struct value *m = &s->snap.cards[i].m[METRIC_MEM_USED];

		used += value_is_present(*m) ? m->v : 0;
	}
	l->used_mib = used;
	if (before >= 0 && before - used >= FREED_MIN_MIB) {
		l->is_used_up = true;
		c->owner.wants(c->owner.arg, 0);
	}
}

/* ---- the end of it ---- */

static void drop_all(struct controller *c)
{
	c->is_passing = c->is_opening = c->is_news_due = c->is_step_due = false;
	event_del(c->step);
	event_del(c->soon);
	pass_close(&c->p);
	pool_clear(&c->pool);
}

/* Whoever has the lease now decides: not another word to any node. */
static void lose(struct controller *c)
{
	drop_all(c);
	c->has_lease = false;
}

/* ---- between passes ---- */

static bool has_staged(const struct controller *c)
{
	bool any = false;

	for (size_t i = 0; i < c->p.n_flights; i++) {
		const struct flight *f = &c->p.flights[i];

		any |= f->state == FLIGHT_BOUND && f->launch && !f->body;
	}
	return any;
}

static void send_staged(struct controller *c, struct err *e)
{
	launch_staging(&c->p);
	if (has_staged(c))
		launch_send(&c->p, e);
}

struct kinds {
	size_t n, n_news, n_free, n_refused;
};

static struct kinds count_notes(const struct pass *p)
{
	struct kinds k = {0};

	for (size_t i = p->n_taken; i < p->n_notes; i++) {
		enum note_kind kind = p->notes[i].kind;

		k.n++;
		k.n_refused += kind == NOTE_REFUSED || kind == NOTE_NEVER;
		k.n_free += kind != NOTE_STARTED && kind != NOTE_SEEN;
	}
	return k;
}

static int take_notes(struct controller *c, struct err *e)
{
	struct kinds k = count_notes(&c->p);
	int r = settle(&c->p, false, e);

	if (r < 0)
		return r;
	if (!c->is_passing)
		notes_drop(&c->p);
	if (k.n)
		c->owner.happened(c->owner.arg);
	if (k.n_free || c->p.is_lane_late)
		c->owner.wants(c->owner.arg, 0);
	c->p.is_lane_late = false;
	if (k.n_refused)
		c->owner.wants(c->owner.arg, LAUNCH_REFUSED_MS + 1);
	return 0;
}

static bool has_news_to_settle(const struct controller *c)
{
	return c->has_lease && c->p.nodes;
}

static void settle_news(struct controller *c)
{
	struct err e = {0};
	int r;

	fault_point("daemon.before-news");
	if (!c->is_passing) {
		pool_ask_the_stale(&c->pool);
		pool_part_twins(&c->pool);
	}
	send_staged(c, &e);
	r = take_notes(c, &e);
	if (r >= 0 && c->is_passing)
		arm(c->step, 0); /* it may be what the pass waits for */
	if (r == -ESTALE)
		lose(c);
	if (r < 0)
		c->owner.passed(c->owner.arg, r, &e);
}

/* ---- passes ---- */

static void tell_passed(struct controller *c, int r, const struct err *e)
{
	c->is_passing = c->is_opening = false;
	c->took_ms = clock_boot_ms() - c->begun_ms - (c->turn.waited_ms - c->waited_ms);
	event_del(c->step);
	/* -EAGAIN: the record went back in time; the lease was given back for one of the next incarnation. */
	if (r == -ESTALE || r == -EAGAIN)
		lose(c);
	if (!r) {
		c->sum.ran = true;
		c->sum.nodes_up = c->sum.nodes_down = c->sum.nodes_ignored = 0;
		pass_count_nodes(&c->p);
		notes_drop(&c->p);
	}
	c->owner.passed(c->owner.arg, r, e);
}

static int reopen(struct controller *c, struct err *e);

static void step(struct controller *c)
{
	struct err e = {0};
	size_t starts;
	int r = c->is_opening ? reopen(c, &e) : 0;

	c->is_opening = false;
	starts = c->p.n_flights;
	if (!r)
		r = pass_step(&c->p, &e);
	if (!r) {
		arm(c->step, c->p.look_ms - clock_boot_ms());
		return;
	}
	if (r > 0)
		r = pass_tell_end(&c->p, &e);
	/* Bodies go ahead by themselves; somebody has to look when they're there, or too late. */
	if (!r && (c->p.n_flights > starts || has_staged(c)))
		held_news(&c->p);
	tell_passed(c, r, &e);
}

/* What is due, once the record may be written to. */
static void work(void *arg)
{
	struct controller *c = arg;

	c->is_news_due &= has_news_to_settle(c);
	c->is_step_due &= c->is_passing;
	if ((!c->is_news_due && !c->is_step_due) || !turn_take(&c->turn))
		return;
	if (c->is_news_due)
		settle_news(c);
	c->is_news_due = false;
	/* Unless that has lost the lease. */
	if (c->is_step_due && c->is_passing) {
		c->is_step_due = false;
		step(c);
	}
	turn_end(&c->turn);
}

static void on_soon(evutil_socket_t fd, short what, void *arg)
{
	struct controller *c = arg;

	(void)fd, (void)what;
	c->is_news_due = true;
	work(c);
}

static void on_step(evutil_socket_t fd, short what, void *arg)
{
	struct controller *c = arg;

	(void)fd, (void)what;
	c->is_step_due = true;
	work(c);
}

static bool is_in_the_way(const struct flight *f, int64_t now_ms, int64_t limit_ms)
{
	return (f->state == FLIGHT_SENT || f->state == FLIGHT_CLAIMED) && f->held &&
	       now_ms - f->sent_ms >= limit_ms;
}

/* A node that owes its word about a launch for so long is asked on a new link, on which the old launch is stale. */
static void end_long_flights(struct controller *c)
{
	int64_t now_ms = clock_boot_ms(), limit_ms = c->p.config->settings.launch_timeout_ms;

	for (size_t i = 0; i < c->p.n_flights; i++)
		if (is_in_the_way(&c->p.flights[i], now_ms, limit_ms))
			pool_reopen(c->p.flights[i].held);
}

/* Its body is there, but its lane couldn't be told yet; or it was claimed in one, and its start, which wants `dir`, is to come. */
static bool is_kept_for_lane(const struct flight *f)
{
	return f->is_lane && f->kept_ms && (f->state == FLIGHT_BOUND || f->dir) &&
	       clock_boot_ms() - f->kept_ms < KEPT_MS;
}

/* Its body is there, and its node just isn't one that may get a launch at this moment. Not when somebody wants its end. */
static bool is_kept_to_leave(const struct controller *c, const struct flight *f)
{
	CLEANUP(job_done) struct job j = {0};
	struct err e;

	if (f->is_lane || f->state != FLIGHT_BOUND || !f->launch || !f->kept_ms ||
		clock_boot_ms() - f->kept_ms >= KEPT_MS)
		return false;
	return !store_job(c->p.store, f->job, &j, &e) && j.is_bound && j.attempt == f->attempt &&
	       !strcmp(j.bind.token, f->token) && !j.cancel_ms;
}

/* Those that are over, that never left, or whose link is gone: what the record says of them is all there is. */
static void sweep_flights(struct controller *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->p.n_flights; i++) {
		struct flight *f = &c->p.flights[i];
		bool stays = f->held && (is_kept_for_lane(f) || is_kept_to_leave(c, f) ||
						(f->state != FLIGHT_OVER &&
							(f->state != FLIGHT_BOUND || f->staging)));

		if (stays)
			c->p.flights[n++] = *f;
		else
			flight_done(f);
	}
	c->p.n_flights = n;
}

static void find_nodes_of_flights(struct controller *c)
{
	for (size_t i = 0; i < c->p.n_flights; i++)
		for (size_t k = 0; k < c->p.n_nodes; k++)
			if (c->p.nodes[k].held && c->p.nodes[k].held == c->p.flights[i].held)
				c->p.flights[i].node = k;
	sweep_flights(c);
}

static void take_config(struct controller *c)
{
	if (!c->next)
		return;
	c->config = TAKE_PTR(c->next);
	c->p.config = c->config;
	c->p.ttl_ms = lease_ttl(&c->config->settings);
}

static int reopen(struct controller *c, struct err *e)
{
	struct pass *p = &c->p;
	int r = p->n_notes > p->n_taken ? settle(p, false, e) : 0;

	if (r < 0)
		return r;
	notes_drop(p);
	if (p->config)
		end_long_flights(c);
	sweep_flights(c);
	links_close(p);
	store_nodes_done(&p->rows);
	store_jobs_done(&p->live);
	store_attempts_done(&p->reaps);
	take_config(c);
	pool_retry(&c->pool);
	r = pass_open(p, e);
	if (!r)
		find_nodes_of_flights(c);
	if (!r && c->watch_ms)
		pool_watch(&c->pool, c->watch_ms);
	return r;
}

bool controller_begin(struct controller *c, bool is_asked_for)
{
	if (c->is_passing || !c->has_lease || (!c->config && !c->next))
		return false;
	fault_point("daemon.before-pass");
	c->is_passing = c->is_opening = true;
	c->p.is_asked_for = is_asked_for;
	c->begun_ms = clock_boot_ms();
	c->waited_ms = c->turn.waited_ms;
	arm(c->step, 0);
	return true;
}

bool controller_is_passing(const struct controller *c)
{
	return c->is_passing;
}

int64_t controller_took_ms(const struct controller *c)
{
	return c->took_ms;
}

const char *controller_waits(const struct controller *c, int64_t *ret_ms)
{
	if (ret_ms)
		*ret_ms = c->turn.who ? clock_boot_ms() - c->turn.since_ms : 0;
	return c->turn.who;
}

/* ---- the lease ---- */

int controller_take_lease(struct controller *c, char **ret_holder, struct err *e)
{
	const struct queue_config *config = c->next ? c->next : c->config;
	CLEANUP_FREE char *owner = controller_owner();
	int64_t ttl = lease_ttl(&config->settings);
	int r = store_lock(c->p.store, LOCK_MS, e);

	if (r < 0)
		return r == -EBUSY ? -ETIMEDOUT : r;
	r = store_lease_take(c->p.store, owner, ttl, &c->p.lease, ret_holder, e);
	store_unlock(c->p.store);
	if (r < 0)
		return r;
	c->has_lease = true;
	c->p.ttl_ms = ttl;
	c->p.renewed_ms = clock_boot_ms();
	pool_init(&c->pool, c->p.base, c->options.home, store_queue(c->p.store), &c->p.lease);
	c->pool.changed = on_changed;
	c->pool.pushed = on_pushed;
	c->pool.closing = on_closing;
	c->pool.arg = c;
	return 0;
}

bool controller_has_lease(const struct controller *c)
{
	return c->has_lease;
}

int controller_keep(struct controller *c, struct err *e)
{
	int r = c->has_lease ? store_lock(c->p.store, LOCK_MS, e) : 0;

	if (r < 0 || !c->has_lease)
		return r;
	r = pass_keep(&c->p, e);
	store_unlock(c->p.store);
	if (r == -ESTALE) {
		lose(c);
		c->owner.passed(c->owner.arg, r, e);
	}
	return r;
}

/* ---- life ---- */

struct controller *controller_new(struct event_base *base, struct store *s, const char *home,
	const struct controller_owner *owner)
{
	struct controller *c = xcalloc(1, sizeof(*c));

	c->options = (struct tick_options){.home = home, .is_forced = true};
	c->owner = *owner;
	c->sum = tick_summary_new();
	c->p = (struct pass){.store = s,
		.base = base,
		.options = &c->options,
		.sum = &c->sum,
		.pool = &c->pool,
		.is_held = true,
		.stage = PASS_OVER};
	c->soon = evtimer_new(base, on_soon, c);
	c->step = evtimer_new(base, on_step, c);
	turn_init(&c->turn, base, s, work, c);
	c->alerts = pass_newest_alert(&c->p);
	return c;
}

void controller_free(struct controller *c)
{
	struct err ignored;

	if (!c)
		return;
	drop_all(c);
	turn_done(&c->turn);
	if (c->has_lease && !store_lock(c->p.store, LOCK_END_MS, &ignored)) {
		store_lease_release(c->p.store, &c->p.lease, &ignored);
		store_unlock(c->p.store);
	}
	event_free(c->soon);
	event_free(c->step);
	tick_summary_done(&c->sum);
	free(c);
}

void controller_configure(struct controller *c, const struct queue_config *config)
{
	c->next = config;
}

const struct queue_config *controller_config(const struct controller *c)
{
	return c->config;
}

void controller_take(struct controller *c, struct tick_summary *ret)
{
	int64_t newest = pass_newest_alert(&c->p);

	if (newest > c->alerts)
		pass_say_alerts(&c->p, c->alerts);
	c->alerts = newest;
	*ret = c->sum;
	c->sum = tick_summary_new();
}

size_t controller_in_the_air(const struct controller *c, int64_t since_ms)
{
	return launch_in_the_air(&c->p, since_ms);
}

size_t controller_connecting(const struct controller *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->pool.n; i++)
		n += !c->pool.v[i]->is_up && !c->pool.v[i]->why;
	return n;
}

void controller_watch(struct controller *c, int64_t interval_ms)
{
	c->watch_ms = interval_ms;
	pool_watch(&c->pool, interval_ms);
}

static const char *state_of(const struct pool_link *l)
{
	if (l->is_parted)
		return "twin";
	if (l->is_stale)
		return "stale";
	if (!l->is_up)
		return l->why ? "down" : "connecting";
	return pool_owes(l) && clock_boot_ms() - l->asked_ms > 1000 ? "silent" : "up";
}

json_t *controller_links(const struct controller *c)
{
	json_t *a = json_array();

	for (size_t i = 0; i < c->pool.n; i++) {
		const struct pool_link *l = c->pool.v[i];
		int64_t rtt = l->link && l->is_up ? link_rtt_ms(l->link) : -1;

		json_array_append_new(
			a, json_pack("{s:s, s:s, s:o, s:I, s:s?}", "name", l->name, "state",
				   state_of(l), "rtt_ms", rtt < 0 ? json_null() : json_integer(rtt),
				   "since_ms", (json_int_t)(clock_boot_ms() - l->changed_ms), "why",
				   l->is_up ? NULL : l->why));
	}
	return a;
}
