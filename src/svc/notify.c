/*
 * Alerts on their way to people. Each turn: what isn't delivered is taken up from the store, each channel without a child
 * gets the next thing that's due for it, and an alert that every channel has which wants it is marked in the store.
 *
 * What always holds
 * 1. A channel has one child at most, and none waits for another: what hangs delays only itself, and only until its limit.
 * 2. That a channel has an alert is durable in the state file before the store is told; so a crash repeats, and loses nothing.
 * 3. A channel that fails is tried again after 1, 2, 5, 15, 60 min, first with what it has been tried with least: one alert
 *    that it can't take doesn't hold up the others.
 * 4. Nothing is kept for a channel for longer than a day after it was due, nor more than NOTIFY_ENTRIES_MAX alerts.
 */
#include "svc/notify_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STORE_MS 20
#define STORE_BUSY_MS 500
#define STORE_AGAIN_MS 5000
#define TOGETHER_FROM 6 /* so many at once come in one message, but to the command */
#define PROBLEM_MS 3600000

/* What a child carries. */
struct flight {
	struct notify *n;
	enum notify_channel channel;
	struct external *child; /* NULL: none */
	int64_t alerts[NOTIFY_TOGETHER_MAX];
	size_t n_alerts;
};

struct notify {
	struct event_base *base;
	struct store *store;
	char *home, *program;
	char host[NOTIFY_HOST_LEN];
	const struct notify_settings *settings; /* NULL: nothing is delivered yet */
	struct notify_limits limits;
	int64_t (*wall_ms)(void);
	struct notify_state state;
	struct flight flights[NOTIFY_CHANNELS];
	struct event *again;
	int64_t wait_ms, delivered;
	char problem[400]; /* of our own files, and when */
	int64_t problem_ms;
};

/* The turn's view of what's to be done. */
struct turn {
	struct notify *n;
	int64_t now_ms, quiet_end_ms;
	bool is_quiet;
	uint32_t on; /* channels */
	struct store_alerts alerts;
	int64_t next_ms; /* of what is due later; 0: nothing */
};

static void set_problem(struct notify *n, const struct err *e)
{
	snprintf(n->problem, sizeof(n->problem), "%.*s", (int)sizeof(n->problem) - 1, e->text);
	n->problem_ms = n->wall_ms();
}

static void save(struct notify *n)
{
	struct err e = {0};

	if (notify_state_save(n->home, store_queue(n->store), &n->state, &e) < 0)
		set_problem(n, &e);
}

static void soon(struct turn *t, int64_t when_ms)
{
	if (!t->next_ms || when_ms < t->next_ms)
		t->next_ms = when_ms;
}

/* ---- who wants what ---- */

/* Who has put it away has seen it: then it's only written down. */
static uint32_t wanted(const struct turn *t, const struct store_alert *a)
{
	if (alert_kind_severity(a->kind) < t->n->settings->min_severity)
		return 0;
	return a->acknowledged_ms ? t->on & 1u << NOTIFY_LOG : t->on;
}

static bool is_held(const struct turn *t, const struct store_alert *a)
{
	return t->is_quiet &&
	       !(t->n->settings->quiet_hours_errors && alert_kind_severity(a->kind) == ALERT_ERROR);
}

static uint32_t channels_on(const struct notify *n)
{
	const char *why;
	uint32_t on = 0;

	for (unsigned c = 0; c < NOTIFY_CHANNELS; c++)
		if (notify_is_on(n->settings, (enum notify_channel)c) &&
			(c != NOTIFY_DESKTOP || notify_has_desktop(&why)))
			on |= 1u << c;
	return on;
}

/* ---- outcomes ---- */

static void took(struct notify *n, enum notify_channel c, const int64_t *ids, size_t n_ids)
{
	for (size_t i = 0; i < n_ids; i++) {
		struct notify_entry *en = notify_state_find(&n->state, ids[i]);

		if (en)
			en->done |= 1u << c;
	}
	n->state.health[c].failures = 0;
	n->state.health[c].next_ms = 0;
	n->state.is_dirty = true;
}

static void failed(
	struct notify *n, enum notify_channel c, const int64_t *ids, size_t n_ids, const char *why)
{
	struct notify_health *h = &n->state.health[c];
	int64_t now = n->wall_ms();

	for (size_t i = 0; i < n_ids; i++) {
		struct notify_entry *en = notify_state_find(&n->state, ids[i]);

		if (!en)
			continue;
		en->tries[c]++;
		en->next_ms[c] = now + notify_backoff_ms(en->tries[c]);
	}
	h->failures++;
	h->failed_ms = now;
	h->next_ms = now + notify_backoff_ms(h->failures);
	snprintf(h->error, sizeof(h->error), "%.*s", (int)sizeof(h->error) - 1, why);
	n->state.is_dirty = true;
}

static void on_ended(void *arg, const struct external_end *end)
{
	struct flight *f = arg;
	struct notify *n = f->n;
	CLEANUP(buf_done) struct buf why = {0};

	if (notify_judge(f->channel, end, n->limits.ms[f->channel], &why) == NOTIFY_FAILED)
		failed(n, f->channel, f->alerts, f->n_alerts, buf_str(&why));
	else
		took(n, f->channel, f->alerts, f->n_alerts);
	external_free(TAKE_PTR(f->child));
	notify_turn(n);
}

/* ---- one channel ---- */

static void make_message(const struct notify *n, const struct store_alert *const *v, size_t count,
	struct notify_message *ret)
{
	const char *queue = store_queue(n->store);

	if (count == 1)
		notify_message_one(queue, n->host, n->program, v[0], ret);
	else
		notify_message_many(queue, n->host, n->program, v, count, ret);
}

/* All of them in one write, for each costs a wait for the disk. */
static int write_log(
	const struct notify *n, const struct store_alert *const *v, size_t count, struct err *e)
{
	CLEANUP(buf_done) struct buf lines = {0};

	for (size_t i = 0; i < count; i++) {
		CLEANUP(notify_message_done) struct notify_message m;

		make_message(n, &v[i], 1, &m);
		buf_printf(&lines, "%s\n", m.json);
	}
	return notify_log(n->home, &lines, e);
}

static int send_message(
	struct flight *f, const struct store_alert *const *v, size_t count, struct err *e)
{
	struct notify *n = f->n;
	struct notify_how how = {n->settings, n->home, n->program, n->host};
	CLEANUP(notify_message_done) struct notify_message m;

	make_message(n, v, count, &m);
	return notify_start(
		n->base, &how, f->channel, &m, n->limits.ms[f->channel], on_ended, f, &f->child, e);
}

static void deliver(
	struct turn *t, enum notify_channel c, const struct store_alert *const *v, size_t count)
{
	struct flight *f = &t->n->flights[c];
	struct err e = {0};
	int r;

	f->n_alerts = count;
	for (size_t i = 0; i < count; i++)
		f->alerts[i] = v[i]->id;
	r = c == NOTIFY_LOG ? write_log(t->n, v, count, &e) : send_message(f, v, count, &e);
	if (r < 0)
		failed(t->n, c, f->alerts, count, e.text);
	else if (c == NOTIFY_LOG)
		took(t->n, c, f->alerts, count);
}

/* What is due for a channel now. */
struct due {
	const struct store_alert *all[NOTIFY_TOGETHER_MAX], *held[NOTIFY_TOGETHER_MAX], *first;
	size_t n_all, n_held;
	uint32_t first_tries;
};

static void find_due(struct turn *t, enum notify_channel c, struct due *d)
{
	*d = (struct due){0};
	for (size_t i = 0; i < t->alerts.n; i++) {
		const struct store_alert *a = &t->alerts.v[i];
		struct notify_entry *en = notify_state_find(&t->n->state, a->id);

		if (!en || !(wanted(t, a) & ~en->done & 1u << c) ||
			(c != NOTIFY_LOG && is_held(t, a)))
			continue;
		if (!notify_is_due(en->next_ms[c], t->now_ms)) {
			soon(t, en->next_ms[c]);
			continue;
		}
		if (!d->first || en->tries[c] < d->first_tries) {
			d->first = a;
			d->first_tries = en->tries[c];
		}
		if (d->n_all < NOTIFY_TOGETHER_MAX)
			d->all[d->n_all++] = a;
		if (en->was_held && d->n_held < NOTIFY_TOGETHER_MAX)
			d->held[d->n_held++] = a;
	}
}

/* False: nothing (more) can be done for it now. */
static bool channel_step(struct turn *t, enum notify_channel c)
{
	const struct notify_health *h = &t->n->state.health[c];
	struct due d;

	if (t->n->flights[c].child || !(t->on & 1u << c))
		return false;
	find_due(t, c, &d);
	if (!d.first)
		return false;
	if (!notify_is_due(h->next_ms, t->now_ms)) {
		soon(t, h->next_ms);
		return false;
	}
	if (c != NOTIFY_LOG && d.n_held > 1)
		deliver(t, c, d.held, d.n_held);
	else if (c == NOTIFY_LOG || (c != NOTIFY_COMMAND && d.n_all >= TOGETHER_FROM))
		deliver(t, c, d.all, d.n_all);
	else
		deliver(t, c, &d.first, 1);
	return true;
}

/* ---- the turn ---- */

static void take_up(struct turn *t)
{
	struct notify_state *s = &t->n->state;

	for (size_t i = s->n; i-- > 0;) {
		bool is_there = false;

		for (size_t k = 0; !is_there && k < t->alerts.n; k++)
			is_there = t->alerts.v[k].id == s->v[i].alert;
		if (!is_there)
			notify_state_remove(s, s->v[i].alert);
	}
	for (size_t i = 0; i < t->alerts.n; i++) {
		const struct store_alert *a = &t->alerts.v[i];
		struct notify_entry *en = notify_state_find(s, a->id);

		if (!en)
			en = notify_state_add(s, a->id, t->now_ms);
		if (!is_held(t, a) || !(wanted(t, a) & ~en->done & ~(1u << NOTIFY_LOG)))
			continue;
		if (!en->was_held)
			s->is_dirty = true;
		en->was_held = true;
		en->since_ms = t->now_ms;
		soon(t, t->quiet_end_ms);
	}
}

/* After a day; and the older half where there are too many to keep, for newer ones must get through. */
static void give_up(struct turn *t)
{
	struct notify_state *s = &t->n->state;
	bool is_full = t->alerts.n >= NOTIFY_ENTRIES_MAX;

	for (size_t i = 0; i < t->alerts.n; i++) {
		struct notify_entry *en = notify_state_find(s, t->alerts.v[i].id);
		uint32_t left = wanted(t, &t->alerts.v[i]) & ~en->done;
		bool is_over = t->now_ms - en->since_ms >= NOTIFY_GIVE_UP_MS ||
			       (is_full && i < t->alerts.n / 2);

		for (unsigned c = 0; is_over && c < NOTIFY_CHANNELS; c++) {
			if (!(left & 1u << c) || !s->health[c].failures || t->n->flights[c].child)
				continue;
			en->done |= 1u << c;
			s->health[c].given_up++;
			s->health[c].given_up_ms = t->now_ms;
			s->is_dirty = true;
		}
	}
}

static int mark(struct turn *t, const int64_t *ids, size_t n, struct err *e)
{
	struct store *s = t->n->store;
	int r = store_begin(s, NULL, e);

	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < n; i++)
		r = store_alert_notified(s, ids[i], e);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

/* -EBUSY: not just now. The loop that this is on doesn't wait for whoever writes. */
static int mark_at_once(struct turn *t, const int64_t *ids, size_t n, struct err *e)
{
	int r = store_lock(t->n->store, STORE_MS, e);

	if (r < 0)
		return r;
	r = mark(t, ids, n, e);
	store_unlock(t->n->store);
	return r;
}

/* Those that nobody waits for any more. */
static void finish(struct turn *t)
{
	struct notify_state *s = &t->n->state;
	CLEANUP_FREE int64_t *ids = xcalloc(t->alerts.n + 1, sizeof(*ids));
	struct err e = {0};
	size_t n = 0;
	int r;

	for (size_t i = 0; i < t->alerts.n; i++) {
		const struct store_alert *a = &t->alerts.v[i];
		const struct notify_entry *en = notify_state_find(s, a->id);

		if (!(wanted(t, a) & ~en->done))
			ids[n++] = a->id;
	}
	if (!n)
		return;
	r = mark_at_once(t, ids, n, &e);
	if (r == -EBUSY) {
		soon(t, t->now_ms + STORE_BUSY_MS);
		return;
	}
	if (r < 0) {
		set_problem(t->n, &e);
		soon(t, t->now_ms + STORE_AGAIN_MS);
		return;
	}
	for (size_t i = 0; i < n; i++)
		notify_state_remove(s, ids[i]);
	t->n->delivered += (int64_t)n;
}

static void set_again(struct notify *n)
{
	struct timeval tv = {.tv_sec = n->wait_ms / 1000, .tv_usec = n->wait_ms % 1000 * 1000};

	event_del(n->again);
	if (n->wait_ms >= 0)
		event_add(n->again, &tv);
}

void notify_turn(struct notify *n)
{
	struct turn t = {.n = n, .now_ms = n->wall_ms()};
	struct err e = {0};

	if (!n->settings)
		return;
	t.is_quiet = notify_is_quiet(n->settings->quiet_hours, t.now_ms, &t.quiet_end_ms);
	t.on = channels_on(n);
	if (store_alerts(n->store, STORE_ALERTS_UNDELIVERED, NOTIFY_ENTRIES_MAX, &t.alerts, &e) <
		0) {
		set_problem(n, &e);
		soon(&t, t.now_ms + STORE_AGAIN_MS);
	} else {
		take_up(&t);
		give_up(&t);
		for (unsigned c = 0; c < NOTIFY_CHANNELS; c++)
			while (channel_step(&t, (enum notify_channel)c))
				;
		save(n);
		finish(&t);
		save(n);
	}
	n->wait_ms = !t.next_ms ? -1 : t.next_ms > t.now_ms ? t.next_ms - t.now_ms : 0;
	set_again(n);
	store_alerts_done(&t.alerts);
}

int64_t notify_wait_ms(const struct notify *n)
{
	return n->wait_ms;
}

bool notify_is_sending(const struct notify *n)
{
	for (unsigned c = 0; c < NOTIFY_CHANNELS; c++)
		if (n->flights[c].child)
			return true;
	return false;
}

int64_t notify_delivered(const struct notify *n)
{
	return n->delivered;
}

/* ---- what hasn't worked ---- */

static void put_ago(struct buf *out, int64_t ms)
{
	text_put_duration(out, ms > 0 ? ms : 0);
	buf_puts(out, " ago");
}

static void put_health(const struct notify *n, enum notify_channel c, struct buf *out)
{
	const struct notify_health *h = &n->state.health[c];
	int64_t now = n->wall_ms();

	if (h->failures) {
		buf_printf(out, "%s: failed %" PRIu32 " time%s in a row, last ",
			notify_channel_name(c), h->failures, h->failures == 1 ? "" : "s");
		put_ago(out, now - h->failed_ms);
		buf_puts(out, ": ");
		text_put_clean(out, h->error, strlen(h->error));
		buf_putc(out, '\n');
	}
	if (h->given_up && now - h->given_up_ms < NOTIFY_GIVE_UP_MS) {
		buf_printf(out, "%s: %" PRId64 " alert%s given up, the last one ",
			notify_channel_name(c), h->given_up, h->given_up == 1 ? "" : "s");
		put_ago(out, now - h->given_up_ms);
		buf_puts(out, ": it hadn't worked for a day\n");
	}
}

void notify_problems(const struct notify *n, struct buf *out)
{
	if (n->problem[0] && n->wall_ms() - n->problem_ms < PROBLEM_MS)
		buf_printf(out, "%s\n", n->problem);
	for (unsigned c = 0; n->settings && c < NOTIFY_CHANNELS; c++)
		if (notify_is_on(n->settings, (enum notify_channel)c))
			put_health(n, (enum notify_channel)c, out);
}

/* ---- its life ---- */

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	notify_turn(arg);
}

struct notify *notify_new(
	struct event_base *base, struct store *s, const char *home, const char *program)
{
	struct notify *n = xcalloc(1, sizeof(*n));
	struct err e = {0};

	*n = (struct notify){.base = base,
		.store = s,
		.home = xstrdup(home),
		.program = xstrdup(program),
		.limits = notify_limits,
		.wall_ms = clock_wall_ms,
		.wait_ms = -1,
		.again = evtimer_new(base, on_again, n)};
	notify_host(n->host);
	for (unsigned c = 0; c < NOTIFY_CHANNELS; c++) {
		n->flights[c].n = n;
		n->flights[c].channel = (enum notify_channel)c;
	}
	if (notify_state_load(home, store_queue(s), &n->state, &e) < 0)
		set_problem(n, &e);
	return n;
}

void notify_configure(struct notify *n, const struct notify_settings *settings)
{
	n->settings = settings;
}

void notify_set_clock(struct notify *n, int64_t (*wall_ms)(void))
{
	n->wall_ms = wall_ms ? wall_ms : clock_wall_ms;
}

void notify_set_limits(struct notify *n, const struct notify_limits *limits)
{
	n->limits = *limits;
}

void notify_free(struct notify *n)
{
	if (!n)
		return;
	for (unsigned c = 0; c < NOTIFY_CHANNELS; c++)
		external_free(n->flights[c].child);
	event_free(n->again);
	notify_state_done(&n->state);
	free(n->home);
	free(n->program);
	free(n);
}
