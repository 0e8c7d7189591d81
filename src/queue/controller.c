/*
 * Whoever wants a pass: his own under the lease, driven to its end on a loop of its own, or the one that somebody else makes for
 * him. The pass itself is pass.c; the daemon's, which goes on for ever, held.c.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/parse.h"
#include "queue/daemon_client.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define TURN_MAX_MS 1000
#define LOCK_LOOK_MS 50
#define OUTRUN_MAX 3 /* two copies of a record may go on side by side */

/* ---- a pass of its own ---- */

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

static int make_loop(struct pass *p, struct err *e)
{
	p->base = event_base_new();
	if (!p->base)
		return err_set(e, -EIO, "the event loop can't be made");
	p->beat = evtimer_new(p->base, on_beat, p);
	p->on_int = evsignal_new(p->base, SIGINT, on_signal, p);
	p->on_term = evsignal_new(p->base, SIGTERM, on_signal, p);
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

/* The loop, until something has happened or the pass wants to look. */
static void turn(struct pass *p)
{
	int64_t ms = p->look_ms - clock_boot_ms();
	struct timeval t;

	ms = ms < 1 ? 1 : ms > TURN_MAX_MS ? TURN_MAX_MS : ms;
	t = (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
	event_add(p->beat, &t);
	event_base_loop(p->base, EVLOOP_ONCE);
}

static int drive(struct pass *p, struct err *e)
{
	int r = pass_open(p, e);

	while (!r && !(r = pass_step(p, e)))
		turn(p);
	return r < 0 ? r : 0;
}

/* Under the lease, which is given back whatever comes; unless it was lost, and then not another word is said to anybody. */
static int run_pass(struct store *s, const struct queue_config *c, const struct tick_options *o,
	const struct store_lease *lease, struct tick_summary *sum, struct err *e)
{
	struct link_pool pool;
	struct pass p = {.store = s,
		.config = c,
		.options = o,
		.sum = sum,
		.lease = *lease,
		.pool = &pool,
		.is_asked_for = true,
		.ttl_ms = lease_ttl(&c->settings),
		.renewed_ms = clock_boot_ms()};
	int64_t alerts;
	int r;

	fault_point("queue.after-lease");
	pass_make_lists(sum);
	alerts = pass_newest_alert(&p);
	r = make_loop(&p, e);
	pool_init(&pool, p.base, o->home, store_queue(s), lease);
	if (!r)
		r = drive(&p, e);
	if (!r)
		r = pass_tell_end(&p, e);
	if (!r) {
		sum->ran = true;
		pass_count_nodes(&p);
		pass_say_alerts(&p, alerts);
	}
	pass_close(&p);
	pool_clear(&pool);
	free_loop(&p);
	if (r != -ESTALE && r != -EAGAIN) {
		struct err ignored;

		store_lease_release(s, lease, &ignored);
	}
	return r;
}

/* ---- who wants a pass ---- */

char *controller_owner(void)
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

	if (store_meta_get(s, PASS_LAST_TICK, &text, &e) < 0 || parse_int64(text, &last) < 0)
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
	if (store_meta_set(s, PASS_NUDGE, text, &e) < 0)
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
	CLEANUP_FREE char *made = o->owner ? NULL : controller_owner();
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

	pass_make_lists(ret);
	ret->ran = true;
	for (size_t i = 0; !r && i < rows.n; i++) {
		const struct store_node *n = &rows.v[i];

		ret->nodes_ignored += n->is_ignored;
		ret->nodes_up += !n->is_ignored && n->state && !strcmp(n->state, NODE_UP);
		ret->nodes_down += !n->is_ignored && (!n->state || strcmp(n->state, NODE_UP) != 0);
	}
	return r;
}

/*
 * A daemon makes the pass, and the summary is its. 1: it did. 0: there's none that answers, or it went away meanwhile: then
 * somebody else has to make it.
 */
static int hand_over(struct store *s, const struct tick_options *o, struct tick_summary *ret)
{
	CLEANUP(daemon_talk_done) struct daemon_talk t = {.fd = -1};
	int64_t until = clock_boot_ms() + o->wait_ms;
	int r;

	if (daemon_talk_open(&t, store_path(s), store_queue(s)) < 0 ||
		daemon_talk_say(&t, json_pack("{s:s}", "op", "tick")) < 0)
		return 0;
	do {
		int64_t left = until - clock_boot_ms();
		json_t *msg = NULL, *sum;

		r = daemon_talk_hear(&t, left > 0 ? left : 0, &msg);
		sum = json_object_get(msg, "tick");
		if (r > 0 && sum)
			tick_summary_parse(sum, ret);
		json_decref(msg);
		if (r > 0 && sum)
			return 1;
	} while (r > 0);
	if (r < 0)
		return 0;
	*ret = tick_summary_new();
	ret->skipped = "locked";
	ret->lock_owner = xasprintf("the daemon, process %" PRId64, t.pid);
	return 1;
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
	if (hand_over(s, o, ret))
		return 0;
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
