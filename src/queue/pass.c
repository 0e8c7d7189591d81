/*
 * The stages of a pass, as a state machine: it goes on as far as it can, and says until when it may be left alone. What it
 * waits for are the links' callbacks, so whoever runs the loop (a command for its one pass, the daemon for its many) is never
 * held up by it.
 *
 *   ASKS --all have answered, or aren't waited for any longer--> settled, holds, stops sent
 *   LANES --documents sent--> LANE_ANSWERS --all have answered, or are late--> recorded
 *     ^------------------- a lane has changed by that, 20 rounds at most -------------'
 *   PLANS --binds committed--> STAGES --bodies are there--> STARTS --all have spoken, or it's quiet--> settled
 *     ^------------------------- somebody refused, three rounds at most ---------------------------'
 *   PLANS --nothing to start--> STOPS --ends seen, or 1.5 s--> settled --> FLUSHES --> OVER
 *
 * A daemon's pass waits for nothing behind ASKS but a second at most for what nodes say of their lanes; who is late then gets no
 * other document in that pass.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 3
#define STARTED_WAIT_MS 1500 /* since the last word about a launch */
#define STARTED_EACH_MS \
	20 /* and so much for each that is in the air: a node may take them all before it answers */
#define FLUSH_MS 300

int64_t lease_ttl(const struct queue_settings *s)
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

static int renew(struct pass *p, struct err *e)
{
	int64_t now_ms = clock_boot_ms();
	int r;

	if (now_ms - p->renewed_ms < p->ttl_ms / 3)
		return 0;
	r = store_lease_renew(p->store, &p->lease, p->ttl_ms, e);
	if (!r)
		p->renewed_ms = now_ms;
	return r;
}

int pass_keep(struct pass *p, struct err *e)
{
	/* A signal that came while nobody looked counts as well. A daemon has its own loop, and is in it. */
	if (!p->is_held)
		event_base_loop(p->base, EVLOOP_NONBLOCK);
	if (p->signal_no)
		return err_set(e, -EINTR, "the pass was stopped by signal %d", p->signal_no);
	return renew(p, e);
}

int pass_begin(struct pass *p, struct err *e)
{
	/* What has arrived is written down even when a signal ends the pass. */
	int r = renew(p, e);

	return r < 0 ? r : store_begin(p->store, &p->lease, e);
}

void pass_look_at(struct pass *p, int64_t boot_ms)
{
	if (boot_ms < p->look_ms)
		p->look_ms = boot_ms;
}

/* ---- begin and end ---- */

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

int pass_open(struct pass *p, struct err *e)
{
	int r;

	p->begun_ms = clock_boot_ms();
	p->now_ms = clock_wall_ms();
	p->stage = PASS_ASKS;
	p->round = p->lane_round = 0;
	p->is_lane_again = false;
	p->n_stops = 0;
	p->look_ms = INT64_MAX;
	r = store_pass_begin(p->store, &p->lease, &p->number, e);
	if (!r)
		r = load(p, e);
	if (!r)
		links_open(p);
	return r;
}

void pass_close(struct pass *p)
{
	flights_done(p);
	links_close(p);
	notes_drop(p);
	store_nodes_done(&p->rows);
	store_jobs_done(&p->live);
	store_attempts_done(&p->reaps);
}

int pass_tell_end(struct pass *p, struct err *e)
{
	CLEANUP_FREE char *text = xasprintf("%" PRId64, clock_wall_ms());
	int r = pass_begin(p, e);

	if (r < 0)
		return r;
	r = store_meta_set(p->store, PASS_LAST_TICK, text, e);
	if (r >= 0)
		r = store_pass_done(p->store, &p->lease, p->number, e);
	if (r < 0) {
		store_abort(p->store);
		return r;
	}
	return store_commit(p->store, e);
}

/* ---- the stages ---- */

/* Who was interrupted concludes nothing from silence. */
static int take_answers(struct pass *p, struct err *e)
{
	int r;

	links_conclude(p);
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
	p->is_lane_again = nodes_were_observed(p);
	p->is_again = p->is_lane_again && launch_wanted(p);
	/* Lanes come first: what they hold isn't the pool's. */
	p->stage = p->is_lane_again ? PASS_LANES : PASS_PLANS;
	return 0;
}

static int plan(struct pass *p, struct err *e)
{
	size_t n = 0;
	int r;

	if (!p->is_again || p->signal_no || p->round >= ROUNDS_MAX) {
		if (!p->is_held)
			launch_say_unconfirmed(p);
		p->stage = PASS_STOPS;
		p->stage_until_ms = clock_boot_ms() + STARTED_WAIT_MS;
		return 0;
	}
	p->is_again = false;
	p->round_note = p->n_notes;
	r = launch_bind(p, &n, e);
	p->round++;
	p->stage = n ? PASS_STAGES : PASS_PLANS;
	return r;
}

static bool is_quiet(struct pass *p)
{
	int64_t wait = p->options->launch_wait_ms ? p->options->launch_wait_ms : STARTED_WAIT_MS;
	int64_t at = p->flight_news_ms + wait + (int64_t)p->n_sent * STARTED_EACH_MS;

	at = at < p->stage_until_ms ? at : p->stage_until_ms;
	pass_look_at(p, at);
	return clock_boot_ms() >= at;
}

static int send_launches(struct pass *p, struct err *e)
{
	int r = launch_send(p, e);

	p->n_sent = launch_in_the_air(p, 0);
	p->stage_until_ms = clock_boot_ms() + p->config->settings.launch_timeout_ms;
	p->stage = PASS_STARTS;
	return r;
}

static int take_starts(struct pass *p, struct err *e)
{
	int r = settle(p, false, e);

	p->is_again = launch_was_refused(p, p->round_note);
	p->stage = PASS_PLANS;
	return r;
}

static bool are_stops_waited_for(struct pass *p)
{
	pass_look_at(p, p->stage_until_ms);
	return !p->is_held && !p->signal_no && p->n_stops && clock_boot_ms() < p->stage_until_ms;
}

static int finish(struct pass *p, struct err *e)
{
	int r = settle(p, false, e);

	if (!r)
		r = pass_keep(p, e);
	if (!r)
		r = retention_apply(p, e);
	p->stage = PASS_FLUSHES;
	p->stage_until_ms = clock_boot_ms() + FLUSH_MS;
	return r;
}

static bool is_flushed(struct pass *p)
{
	pass_look_at(p, p->stage_until_ms);
	return p->is_held || !links_unsent(p) || clock_boot_ms() >= p->stage_until_ms;
}

/* 1: it waits. */
static int go_on(struct pass *p, struct err *e)
{
	switch (p->stage) {
	case PASS_ASKS:
		return links_turn(p) && !p->signal_no ? 1 : take_answers(p, e);
	case PASS_LANES:
		return lanes_round(p, e);
	case PASS_LANE_ANSWERS:
		return lanes_answers(p, e);
	case PASS_PLANS:
		return plan(p, e);
	case PASS_STAGES:
		return launch_staging(p) && !p->signal_no && !p->is_held ? 1 : send_launches(p, e);
	case PASS_STARTS:
		if (!p->is_held && !p->signal_no && launch_in_the_air(p, 0) && !is_quiet(p))
			return 1;
		return take_starts(p, e);
	case PASS_STOPS:
		return are_stops_waited_for(p) ? 1 : finish(p, e);
	case PASS_FLUSHES:
		if (!is_flushed(p))
			return 1;
		p->stage = PASS_OVER;
		return 0;
	case PASS_OVER:
		break;
	}
	return 0;
}

int pass_step(struct pass *p, struct err *e)
{
	p->look_ms = INT64_MAX;
	while (p->stage != PASS_OVER) {
		int r = go_on(p, e);

		if (r)
			return r < 0 ? r : 0;
	}
	return 1;
}
