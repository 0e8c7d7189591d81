/* Messages from the agent. Nothing is decided here; a client that isn't there any more is told nothing. */
#include "agent/answer.h"

#include "agent/facts_of_end.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "core/wire.h"
#include "proc/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *message_of(const char *op, const struct attempt_name *n)
{
	return json_pack("{s:s, s:I, s:I}", "op", op, "job", (json_int_t)n->job, "attempt",
		(json_int_t)n->attempt);
}

static void say(struct client *c, json_t *msg)
{
	if (c)
		client_send(c, msg);
	else
		json_decref(msg);
}

/* What the cards come from, as far as it's known before the first sample. */
static const char *source_of(const struct agent *a)
{
	const struct gpu_snapshot *s = ledger_snapshot(a->ledger);
	const char *sim = getenv("GPUSTOW_SIM");

	if (s->source[0])
		return s->source;
	return sim && *sim ? "sim" : "none";
}

void answer_hello(struct agent *a, struct client *c)
{
	say(c, json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:s, s:I, s:I}", "op",
		       "hello", "protocol", WIRE_PROTOCOL, "build", GPUSTOW_BUILD, "version",
		       GPUSTOW_VERSION, "root_id", a->root.id, "root", a->root.path, "machine_key",
		       a->machine_key, "boot_id", a->attempts.boot_id, "pid_ns",
		       (json_int_t)a->attempts.pid_ns, "pid", (int)getpid(), "source", source_of(a),
		       "boot_ms", (json_int_t)clock_boot_ms(), "wall_ms",
		       (json_int_t)clock_wall_ms()));
}

void answer_stale(struct client *c, const struct fence *highest, const struct attempt_name *n)
{
	json_t *msg = n ? message_of("stale", n) : json_pack("{s:s}", "op", "stale");

	json_object_set_new(msg, "fence",
		json_pack("[I, I, I]", (json_int_t)highest->v[0], (json_int_t)highest->v[1],
			(json_int_t)highest->v[2]));
	say(c, msg);
}

json_t *claimed_message(const struct attempt_name *n, const char *dir)
{
	json_t *msg = message_of("claimed", n);

	if (dir)
		json_object_set_new(msg, "dir", json_string(dir));
	return msg;
}

void answer_claimed(struct client *c, const struct attempt_name *n, const char *dir)
{
	say(c, claimed_message(n, dir));
}

void answer_refused(struct client *c, const struct attempt_name *n, const struct refusal *r)
{
	say(c, refusal_encode(r, n));
}

void answer_conflict(struct client *c, const struct attempt_name *n, const char *token)
{
	json_t *msg = message_of("conflict", n);

	json_object_set_new(msg, "token", json_string(token));
	say(c, msg);
}

void answer_other_root(struct client *c, const struct attempt_name *n, const char *root_id)
{
	json_t *msg = message_of("other-root", n);

	json_object_set_new(msg, "root_id", json_string(root_id));
	say(c, msg);
}

static json_t *started_message(const struct attempt *a)
{
	json_t *msg = message_of("started", &a->name);

	json_object_set_new(msg, "pid", json_integer(a->rec.pid));
	json_object_set_new(msg, "start_ticks", json_integer((json_int_t)a->rec.start_ticks));
	json_object_set_new(msg, "started_wall_ms", json_integer(a->rec.end.started_wall_ms));
	return msg;
}

static json_t *ended_message(const struct attempt_name *n, const char *token,
	const struct attempt_end *end, uint32_t survivors)
{
	json_t *msg = message_of("ended", n);

	json_object_set_new(msg, "token", json_string(token));
	json_object_set_new(msg, "end", attempt_end_encode(end));
	json_object_set_new(msg, "survivors", json_integer(survivors));
	return msg;
}

/* What a job of the queue has besides: where it is, how far it is, and how it ended. */
static void put_queue_job(json_t *o, struct attempt *a, bool with_progress)
{
	if (!a->dir)
		return;
	json_object_set_new(o, "dir", json_string(a->dir));
	if (answer_state_of(a) == ATTEMPT_ENDED)
		json_object_set_new(o, "facts", facts_of_end(a));
	else if (with_progress)
		json_object_set_new(o, "progress", progress_of(a));
}

/* An end is told with its facts, not before: until then it's what it was. */
enum attempt_state answer_state_of(const struct attempt *a)
{
	if (a->rec.state != ATTEMPT_ENDED || facts_are_there(a))
		return a->rec.state;
	return a->rec.end.started_boot_ms ? ATTEMPT_STARTED : ATTEMPT_CLAIMED;
}

static json_t *state_message(struct attempt *a)
{
	json_t *msg;

	switch (answer_state_of(a)) {
	case ATTEMPT_STARTED:
		return started_message(a);
	case ATTEMPT_ENDED:
		msg = ended_message(&a->name, a->token, &a->rec.end, a->survivors);
		/* Who ended at once has no start told apart. */
		if (a->rec.pid > 0) {
			json_object_set_new(msg, "pid", json_integer(a->rec.pid));
			json_object_set_new(
				msg, "start_ticks", json_integer((json_int_t)a->rec.start_ticks));
		}
		put_queue_job(msg, a, false);
		return msg;
	case ATTEMPT_CLAIMED:
		break;
	}
	return NULL;
}

void answer_state(struct client *c, struct attempt *a)
{
	json_t *more = state_message(a);

	answer_claimed(c, &a->name, a->dir);
	if (more)
		say(c, more);
}

void answer_retired(struct client *c, const struct attempt_name *n, const char *token,
	const struct attempt_end *end)
{
	answer_claimed(c, n, NULL);
	say(c, ended_message(n, token, end, 0));
}

json_t *observed_claim(struct attempt *a)
{
	json_t *cards = json_array(), *o;

	for (uint32_t k = 0; k < a->n_cards; k++)
		json_array_append_new(cards, json_string(a->cards[k].uuid));
	o = json_pack("{s:I, s:I, s:s, s:s, s:i, s:I, s:I, s:b, s:o, s:i}", "job",
		(json_int_t)a->name.job, "attempt", (json_int_t)a->name.attempt, "token", a->token,
		"state", attempt_state_name(answer_state_of(a)), "pid", (int)a->rec.pid,
		"start_ticks", (json_int_t)a->rec.start_ticks, "started_wall_ms",
		(json_int_t)a->rec.end.started_wall_ms, "stop_wanted", a->stop_wanted, "cards",
		cards, "survivors", (int)a->survivors);
	if (answer_state_of(a) == ATTEMPT_ENDED)
		json_object_set_new(o, "end", attempt_end_encode(&a->rec.end));
	put_queue_job(o, a, true);
	return o;
}

json_t *observed_retired(
	const struct attempt_name *n, const char *token, const struct attempt_end *end)
{
	return json_pack("{s:I, s:I, s:s, s:s, s:i, s:i, s:I, s:b, s:[], s:i, s:o, s:b}", "job",
		(json_int_t)n->job, "attempt", (json_int_t)n->attempt, "token", token, "state",
		attempt_state_name(ATTEMPT_ENDED), "pid", 0, "start_ticks", 0, "started_wall_ms",
		(json_int_t)end->started_wall_ms, "stop_wanted", 0, "cards", "survivors", 0, "end",
		attempt_end_encode(end), "retired", 1);
}

void event_push(struct agent *a, struct attempt *at)
{
	enum attempt_state state = answer_state_of(at);
	struct client *c;
	json_t *msg;
	bool had_lost;

	if (at->told >= state)
		return;
	at->told = state;
	c = agent_commander(a, at->name.queue);
	msg = c ? state_message(at) : NULL;
	if (!msg)
		return;
	if (state == ATTEMPT_ENDED)
		fault_point("agent.before-ended-report");
	had_lost = c->has_lost_events;
	if (!client_push(c, msg) && (!had_lost || at->serial <= c->lost_after))
		c->lost_after = at->serial - 1;
}

static int by_serial(const void *x, const void *y)
{
	const struct attempt *a = *(struct attempt *const *)x, *b = *(struct attempt *const *)y;

	return (a->serial > b->serial) - (a->serial < b->serial);
}

/* In the order of their serials, so that one round goes on where the last one found no room. */
void event_push_all(struct agent *a, struct client *c)
{
	CLEANUP_FREE struct attempt **lost = xcalloc(a->attempts.n + 1, sizeof(*lost));
	size_t n = 0;

	c->has_lost_events = false;
	for (size_t i = 0; i < a->attempts.n; i++)
		if (a->attempts.items[i]->serial > c->lost_after &&
			!strcmp(a->attempts.items[i]->name.queue, c->queue))
			lost[n++] = a->attempts.items[i];
	qsort(lost, n, sizeof(struct attempt *), by_serial);
	for (size_t i = 0; i < n; i++) {
		json_t *msg = state_message(lost[i]);

		if (!msg || client_push(c, msg))
			continue;
		c->lost_after = lost[i]->serial - 1;
		return;
	}
}

/* ---- samples ---- */

/* Figures to build on: those of before, as long as they'll do. */
static const struct sample_base *base_for(struct agent *a, const struct sample *s)
{
	json_t *msg;

	if (sample_base_fits(&a->base, &s->snap))
		return &a->base;
	sample_base_take(&a->base, &s->snap, ++a->last_base);
	msg = sample_base_encode(&a->base);
	buf_clear(&a->base_frame);
	wire_put_json(&a->base_frame, msg, NULL);
	json_decref(msg);
	return &a->base;
}

static bool has_profiling(enum frame_kind kind)
{
	return kind == FRAME_PROFILING || kind == FRAME_PROFILING_ON_BASE;
}

static bool is_on_base(enum frame_kind kind)
{
	return kind == FRAME_DETAILS_ON_BASE || kind == FRAME_PROFILING_ON_BASE;
}

static json_t *sample_message(struct agent *a, const char *error, enum frame_kind kind)
{
	bool details = kind != FRAME_PLAIN;
	CLEANUP(sample_done) struct sample s = {0};

	ledger_sample(a->ledger, &a->attempts, clock_wall_ms(), &s);
	if (error)
		snprintf(s.snap.error, sizeof(s.snap.error), "%.250s", error);
	/* The machine's own figures are there also when the driver is silent. */
	node_read(&a->node, a->now_ms, &s.node);
	s.has_node = true;
	s.with_details = s.has_host = details;
	s.with_profiling = has_profiling(kind);
	if (s.with_profiling)
		profiler_put(a->profiler, &s.snap);
	if (details) {
		host_read(&a->host, a->now_ms, &s.host);
		a->is_on_battery = value_is_present(s.host.on_battery) && s.host.on_battery.v == 1;
	}
	return sample_encode_on(&s, is_on_base(kind) ? base_for(a, &s) : NULL);
}

/* Only a snapshot that was asked for with details has them; an error has nothing to wait for. */
static bool serves(const struct agent *a, bool details, const char *error)
{
	const struct gpu_snapshot *s = ledger_snapshot(a->ledger);

	return error || !details || s->has_details || s->error[0];
}

static void answer_wants(struct agent *a, struct client *c, const char *error)
{
	size_t kept = 0;

	for (size_t i = 0; i < c->n_wants; i++) {
		json_t *msg;

		if (!error && c->wants[i].number > ledger_number(a->ledger)) {
			c->wants[kept++] = c->wants[i];
			continue;
		}
		msg = sample_message(a, error, c->wants[i].details ? FRAME_DETAILS : FRAME_PLAIN);
		json_object_set_new(msg, "id", json_integer(c->wants[i].id));
		client_send(c, msg);
	}
	c->n_wants = kept;
}

/* The frame is made once for all who watch in that way. */
static bool make_frame(struct agent *a, const char *error, enum frame_kind kind)
{
	struct buf *frame = &a->frame[kind];
	json_t *msg;
	int r;

	if (!error && a->frame_number[kind] == ledger_number(a->ledger) &&
		a->frame_changes[kind] == ledger_changes(a->ledger) && frame->len)
		return true;
	buf_clear(frame);
	msg = sample_message(a, error, kind);
	r = wire_put_json(frame, msg, NULL);
	json_decref(msg);
	a->frame_changes[kind] = ledger_changes(a->ledger);
	a->frame_number[kind] = error ? 0 : ledger_number(a->ledger);
	return !r;
}

static enum frame_kind kind_of(const struct client *c)
{
	if (c->watches_profiling)
		return c->takes_base ? FRAME_PROFILING_ON_BASE : FRAME_PROFILING;
	if (c->watches_details)
		return c->takes_base ? FRAME_DETAILS_ON_BASE : FRAME_DETAILS;
	return FRAME_PLAIN;
}

/* A tenth of the pace early is near enough: those who watch at one pace then share their samples. */
static bool is_due(const struct agent *a, const struct client *c)
{
	return c->watch_ms && a->now_ms + c->watch_ms / 10 >= c->due_ms;
}

void sample_push(struct agent *a)
{
	struct err why = {0};
	bool is_silent = sampler_is_silent(a->sampler, a->now_ms, &why);
	const char *error = is_silent ? why.text : NULL;

	if (!is_silent && !ledger_number(a->ledger))
		return;
	for (size_t i = 0; i < a->n_clients; i++) {
		struct client *c = a->clients[i];
		enum frame_kind kind = kind_of(c);

		if (c->is_closing || c->is_dead)
			continue;
		answer_wants(a, c, error);
		if (!is_due(a, c) || (!error && c->seen_number == ledger_number(a->ledger)) ||
			!serves(a, c->watches_details, error) || !make_frame(a, error, kind))
			continue;
		client_put_sample(
			c, is_on_base(kind) ? &a->base_frame : NULL, a->base.key, &a->frame[kind]);
		c->seen_number = ledger_number(a->ledger);
		c->due_ms = a->now_ms + (c->may_slow && a->is_on_battery ? 2 : 1) * c->watch_ms;
	}
}
