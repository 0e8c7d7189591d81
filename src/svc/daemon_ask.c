/*
 * What peers of the daemon want (docs/daemon.md): a pass that begins after they asked, its live state, the events of the
 * record as they come.
 *
 * Whoever asked for a pass is answered when it's over and the launches that left since have been heard of, or have had their
 * time. Nobody else waits for that.
 */
#include "svc/daemon_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUIET_MS 1500 /* for launches and stops of a pass that somebody waits for */
#define EACH_MS 20
#define BEGINNING_MS 5000
#define ASKED_MAX 64 /* as many as there are peers */
#define EVENTS_MAX 1000

/* ---- a pass ---- */

static void answer(struct asked *a, json_t *tick)
{
	if (a->peer)
		daemon_peer_say(a->peer, json_pack("{s:s, s:o}", "op", "ticked", "tick", tick));
	else
		json_decref(tick);
	tick_summary_done(&a->sum);
}

static void remove_at(struct daemon *d, size_t i)
{
	memmove(&d->asked[i], &d->asked[i + 1], (d->n_asked - i - 1) * sizeof(*d->asked));
	d->n_asked--;
}

static void ask_for_pass(struct daemon *d, struct daemon_peer *p)
{
	if (!controller_has_lease(d->controller)) {
		daemon_peer_say(p, json_pack("{s:s, s:{s:b, s:s, s:s}}", "op", "ticked", "tick",
					   "ran", 0, "skipped", "locked", "lock_owner",
					   d->holder ? d->holder : "another controller"));
		return;
	}
	if (d->n_asked >= ASKED_MAX) {
		daemon_peer_say(p, json_pack("{s:s, s:s}", "op", "error", "error",
					   "too many wait for a pass already"));
		return;
	}
	GROW(d->asked, d->n_asked, d->cap_asked);
	d->asked[d->n_asked++] = (struct asked){.peer = p, .sum = tick_summary_new()};
	daemon_want(d, 0);
}

void asked_begun(struct daemon *d)
{
	for (size_t i = 0; i < d->n_asked; i++) {
		if (d->asked[i].has_begun)
			continue;
		d->asked[i].has_begun = true;
		d->asked[i].begun_ms = clock_boot_ms();
	}
}

bool asked_waiting(const struct daemon *d)
{
	for (size_t i = 0; i < d->n_asked; i++)
		if (!d->asked[i].has_begun)
			return true;
	return false;
}

void asked_happened(struct daemon *d, const struct tick_summary *sum)
{
	for (size_t i = 0; i < d->n_asked; i++)
		if (d->asked[i].has_begun)
			tick_summary_add(&d->asked[i].sum, sum);
}

void asked_passed(struct daemon *d, int r, const char *why)
{
	for (size_t i = d->n_asked; i-- > 0;) {
		struct asked *a = &d->asked[i];

		if (!a->has_begun || a->is_made)
			continue;
		if (r < 0) {
			answer(a, json_pack("{s:b, s:s, s:s}", "ran", 0, "skipped", "error",
					  "error", why));
			remove_at(d, i);
			continue;
		}
		a->is_made = true;
		a->until_ms = clock_boot_ms() + QUIET_MS +
			      EACH_MS * (int64_t)controller_in_the_air(d->controller, a->begun_ms);
	}
}

/* Right after the start: a link that comes up has a pass at once, and what that starts is for who asked meanwhile, too. */
static bool is_beginning(const struct daemon *d)
{
	int64_t now_ms = clock_boot_ms();

	return now_ms - d->since_ms < BEGINNING_MS &&
	       (controller_connecting(d->controller) || controller_is_passing(d->controller) ||
		       d->pass_at_ms - now_ms < 100);
}

/* Ends that are wanted are part of what somebody waits for: a cancel has its end in its own answer, if it comes at once. */
static bool is_settled(struct daemon *d, const struct asked *a)
{
	struct store_counts counts;
	struct err e;

	if (controller_in_the_air(d->controller, a->begun_ms) || is_beginning(d))
		return false;
	return store_counts(d->store, &counts, &e) < 0 || !counts.cancelling;
}

int64_t asked_look(struct daemon *d)
{
	int64_t next = INT64_MAX, now_ms = clock_boot_ms();

	for (size_t i = d->n_asked; i-- > 0;) {
		struct asked *a = &d->asked[i];

		if (!a->is_made)
			continue;
		if (now_ms < a->until_ms && !is_settled(d, a)) {
			next = a->until_ms < next ? a->until_ms : next;
			continue;
		}
		answer(a, tick_summary_json(&a->sum));
		remove_at(d, i);
	}
	return next;
}

void asked_done(struct daemon *d)
{
	for (size_t i = 0; i < d->n_asked; i++)
		tick_summary_done(&d->asked[i].sum);
	free(d->asked);
}

/* ---- the state ---- */

static json_t *text_or_null(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

static json_t *state_json(struct daemon *d)
{
	CLEANUP(buf_done) struct buf problems = {0};
	int64_t now_ms = clock_boot_ms(), waits_ms;
	const char *waits;
	json_t *o = json_pack("{s:s, s:i, s:s, s:o, s:I, s:o}", "op", "state", "pid", (int)getpid(),
		"version", GPUSTOW_VERSION, "since", record_time(d->since_wall_ms), "interval_ms",
		(json_int_t)d->o->interval_ms, "leads",
		json_boolean(controller_has_lease(d->controller)));

	if (d->notify)
		notify_problems(d->notify, &problems);
	json_object_set_new(o, "passes", json_integer(d->n_passes));
	json_object_set_new(o, "last_pass_at", record_time(d->last_wall_ms));
	json_object_set_new(o, "last_pass_age_ms",
		d->ended_ms ? json_integer(now_ms - d->ended_ms) : json_null());
	json_object_set_new(
		o, "last_pass_took_ms", d->ended_ms ? json_integer(d->took_ms) : json_null());
	json_object_set_new(o, "last_error", text_or_null(d->last_error));
	json_object_set_new(o, "lock_owner", text_or_null(d->holder));
	waits = controller_waits(d->controller, &waits_ms);
	json_object_set_new(o, "record_busy", text_or_null(waits));
	json_object_set_new(o, "record_busy_ms", waits ? json_integer(waits_ms) : json_null());
	json_object_set_new(o, "config_error", text_or_null(d->config.error));
	json_object_set_new(o, "notify_problems", text_or_null(buf_str(&problems)));
	json_object_set_new(o, "backup_error", text_or_null(d->backup.last_error));
	json_object_set_new(o, "backup_runs", json_boolean(d->backup.child != NULL));
	json_object_set_new(o, "links", controller_links(d->controller));
	return o;
}

/* ---- events ---- */

void daemon_tell_events(struct daemon *d)
{
	CLEANUP(store_events_done) struct store_events l = {0};
	json_t *list;
	struct err e;

	/* Nobody there: whoever comes later asks the record for what was before. */
	if (!daemon_server_watchers(d->server)) {
		d->last_event = -1;
		return;
	}
	if (d->last_event < 0 || store_events(d->store, d->last_event, 0, EVENTS_MAX, &l, &e) < 0 ||
		!l.n)
		return;
	d->last_event = l.last_id;
	list = json_array();
	for (size_t i = 0; i < l.n; i++)
		json_array_append_new(list, record_event(&l.v[i]));
	daemon_server_tell(d->server, json_pack("{s:s, s:o, s:I}", "op", "events", "events", list,
					      "last_id", (json_int_t)l.last_id));
}

static void begin_to_watch(struct daemon *d, struct daemon_peer *p)
{
	struct store_counts counts = {0};
	struct err e;

	*daemon_peer_watches(p) = true;
	store_counts(d->store, &counts, &e);
	if (d->last_event < 0)
		d->last_event = counts.last_event;
	daemon_peer_say(
		p, json_pack("{s:s, s:I}", "op", "watching", "last_id", (json_int_t)d->last_event));
}

/* ---- words ---- */

void daemon_said(void *arg, struct daemon_peer *p, const char *op, const json_t *msg)
{
	struct daemon *d = arg;

	(void)msg;
	if (!strcmp(op, "tick"))
		ask_for_pass(d, p);
	else if (!strcmp(op, "state"))
		daemon_peer_say(p, state_json(d));
	else if (!strcmp(op, "watch"))
		begin_to_watch(d, p);
	else
		daemon_peer_say(p, json_pack("{s:s, s:s}", "op", "error", "error",
					   "the words are tick, state and watch"));
}

void daemon_gone(void *arg, struct daemon_peer *p)
{
	struct daemon *d = arg;

	for (size_t i = 0; i < d->n_asked; i++)
		if (d->asked[i].peer == p)
			d->asked[i].peer = NULL;
}
