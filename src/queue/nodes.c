/*
 * What the record says of the nodes: who answered as whom, what their samples showed, who is silent and since when.
 *
 *   (new), up, suspect --answers--> up        suspect --silent for node_down_after--> down (event, alert: once)
 *   up --silent--> suspect                    down --answers--> up (event)
 *   text: answers, but the agent can't run there. refused: answers, but isn't who it should be.
 *
 * One failed look is no outage (W-32): cards and jobs stay as they were, and nothing is placed there meanwhile.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_MAX 300
#define BACKOFF_MIN_MS 3000
#define BACKOFF_MAX_MS 60000
#define FIRST_INCARNATION 1
#define REWRITE_MS 10000

/* ---- who is who ---- */

static void refuse(struct pass_node *n, char *why)
{
	if (n->refused) {
		free(why);
		return;
	}
	n->refused = why;
	pass_say_error(n->pass, n->name, 0, "%s", why);
}

static bool has_work_of_another_machine(const struct pass_node *n)
{
	const struct pass *p = n->pass;

	for (size_t i = 0; i < p->live.n; i++)
		if (p->live.v[i].bind.node && !strcmp(p->live.v[i].bind.node, n->name) &&
			strcmp(p->live.v[i].bind.machine_key, n->hello.machine_key) != 0)
			return true;
	return false;
}

/* Once nothing of the old machine's is open any more, the new one has the name. */
static void look_at_machine(struct pass_node *n)
{
	if (!n->row || !n->row->machine_key || !n->row->machine_key[0] ||
		!strcmp(n->row->machine_key, n->hello.machine_key) ||
		!has_work_of_another_machine(n))
		return;
	n->is_stranger = true;
	refuse(n,
		xasprintf(
			"another machine than before answers to the name %s, and work of the queue was bound to the old one. "
			"Nothing is placed there until that has ended, or is cancelled",
			n->name));
}

void nodes_identify(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (!n->hello.root_id[0])
			continue;
		look_at_machine(n);
		for (size_t k = 0; k < p->n_nodes; k++) {
			const struct pass_node *other = &p->nodes[k];

			if (k == i || strcmp(other->hello.root_id, n->hello.root_id) != 0)
				continue;
			refuse(n,
				xasprintf(
					"%s and %s are the same account on the same machine (one root, %.8s). "
					"Nothing is placed on either; take one of the two names out of the configuration",
					n->name, other->name, n->hello.root_id));
		}
	}
}

void nodes_take_samples(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (n->has_sample)
			inventory_take(&n->sample, &n->known, store_queue(p->store),
				n->clock_offset_ms, &n->inventory);
	}
}

/* ---- their rows ---- */

static const char *state_of(const struct pass_node *n)
{
	return n->row && n->row->state ? n->row->state : "";
}

/* When it was last known to answer: what it's silent since. */
static int64_t silent_since(const struct pass_node *n)
{
	if (n->row && n->row->failed_since_ms)
		return n->row->failed_since_ms;
	return n->pass->now_ms;
}

static const char *next_state(const struct pass_node *n)
{
	int64_t silent_ms = n->pass->now_ms - silent_since(n);
	bool was_seen = n->row && n->row->last_seen_ms;

	if (n->refused)
		return NODE_REFUSED;
	if (n->contact == CONTACT_ANSWERED)
		return NODE_UP;
	if (n->has_no_agent)
		return NODE_TEXT;
	/* A name under which nobody has ever answered has nothing to lose by being called down. */
	if (!was_seen || !strcmp(state_of(n), NODE_DOWN) ||
		silent_ms >= n->pass->config->settings.node_down_after_ms)
		return NODE_DOWN;
	return NODE_SUSPECT;
}

static int64_t running_there(const struct pass *p, const char *name)
{
	int64_t n = 0;

	for (size_t i = 0; i < p->live.n; i++)
		n += p->live.v[i].bind.node && !strcmp(p->live.v[i].bind.node, name);
	return n;
}

static int tell_out(struct pass_node *n, const char *state, const char *why, struct err *e)
{
	struct store *s = n->pass->store;
	int64_t jobs = running_there(n->pass, n->name);
	CLEANUP(buf_done) struct buf title = {0};
	int r = store_event_add(s, EVENT_NODE_DOWN, 0, n->name, why, NULL, e);

	if (r < 0)
		return r;
	buf_printf(&title, "%s is %s", n->name, state);
	if (jobs)
		buf_printf(&title, "; %" PRId64 " job%s of it can't be checked", jobs,
			jobs == 1 ? "" : "s");
	return store_alert_add(s, ALERT_NODE_DOWN, 0, n->name, buf_str(&title), why, e);
}

static bool is_out(const char *state)
{
	return !strcmp(state, NODE_DOWN) || !strcmp(state, NODE_REFUSED);
}

/* A word for each transition, none for a state that goes on. */
static int tell_change(struct pass_node *n, const char *state, const char *why, struct err *e)
{
	const char *before = state_of(n);
	CLEANUP(buf_done) struct buf b = {0};

	if (is_out(state) && !is_out(before))
		return tell_out(n, state, why, e);
	if (strcmp(state, NODE_UP) != 0 || !strcmp(before, NODE_UP) ||
		!strcmp(before, NODE_SUSPECT))
		return 0;
	buf_printf(&b, "%zu GPU%s", n->inventory.n_cards, n->inventory.n_cards == 1 ? "" : "s");
	return store_event_add(n->pass->store, EVENT_NODE_UP, 0, n->name, buf_str(&b), NULL, e);
}

/* A quarter of the time that it has been silent for, within bounds: asked less and less often (W-10). */
static void set_failure(const struct pass_node *n, struct store_node *row)
{
	int64_t pause = (n->pass->now_ms - silent_since(n)) / 4;

	pause = pause < BACKOFF_MIN_MS	 ? BACKOFF_MIN_MS
		: pause > BACKOFF_MAX_MS ? BACKOFF_MAX_MS
					 : pause;
	row->failed_since_ms = silent_since(n);
	row->n_failures++;
	row->next_try_ms = n->pass->now_ms + pause;
}

static void set_answer(const struct pass_node *n, struct store_node *row)
{
	row->root_id = (char *)(uintptr_t)n->hello.root_id;
	row->machine_key = (char *)(uintptr_t)n->hello.machine_key;
	row->boot_id = (char *)(uintptr_t)n->hello.boot_id;
	row->last_seen_ms = n->pass->now_ms;
	row->observed_incarnation = n->pass->lease.incarnation;
	row->failed_since_ms = row->n_failures = row->next_try_ms = 0;
}

/* It answers, if only people: no failure, but the agent isn't tried again with each pass. */
static void set_text(const struct pass_node *n, struct store_node *row)
{
	row->last_seen_ms = n->pass->now_ms;
	row->failed_since_ms = row->n_failures = 0;
	row->next_try_ms = n->pass->now_ms + BACKOFF_MAX_MS;
}

static void set_config(const struct pass_node *n, struct store_node *row)
{
	const struct host_config *h = n->config ? n->config->host : NULL;

	row->name = (char *)(uintptr_t)n->name;
	if (!n->config)
		return;
	row->hostname = h ? h->hostname : (char *)(uintptr_t) "localhost";
	row->username = h ? h->username : NULL;
	row->port = h ? h->port : 0;
	row->sort_order = (int64_t)n->index;
}

static void put_error(const struct pass_node *n, struct buf *b)
{
	const char *s = n->refused			 ? n->refused
			: n->contact == CONTACT_ANSWERED ? n->sample.snap.error
							 : n->why;
	size_t len = s ? strnlen(s, ERROR_MAX) : 0;

	if (len)
		text_put_clean(b, s, s[len] ? utf8_valid_len(s, len) : len);
}

static bool same_text(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

/* Nobody asked it: only what the configuration says of it may have changed. */
static int put_unasked(struct pass_node *n, struct err *e)
{
	struct store_node row = n->row ? *n->row : (struct store_node){0};

	set_config(n, &row);
	if (n->row && same_text(row.hostname, n->row->hostname) &&
		same_text(row.username, n->row->username) && row.port == n->row->port &&
		row.sort_order == n->row->sort_order)
		return 0;
	return store_node_put(n->pass->store, &row, e);
}

/* Rows are kept as they are while nothing in them is news, but for a while only. */
static bool is_news(const struct pass_node *n, const struct store_node *row)
{
	const struct store_node *old = n->row;

	if (!old || n->pass->is_asked_for || n->pass->now_ms < old->probed_ms ||
		n->pass->now_ms - old->probed_ms >= REWRITE_MS)
		return true;
	if (!same_text(old->state, row->state) || !same_text(old->last_error, row->last_error) ||
		!same_text(old->root_id, row->root_id) || !same_text(old->boot_id, row->boot_id) ||
		!same_text(old->machine_key, row->machine_key) ||
		!same_text(old->hostname, row->hostname) ||
		!same_text(old->username, row->username) || old->port != row->port ||
		old->sort_order != row->sort_order ||
		old->observed_incarnation != row->observed_incarnation ||
		old->failed_since_ms != row->failed_since_ms)
		return true;
	return n->has_sample && !inventory_same_for_plan(&n->known, &n->inventory);
}

static int put_node(struct pass_node *n, struct err *e)
{
	struct store_node row = n->row ? *n->row : (struct store_node){0};
	CLEANUP_FREE char *inventory = NULL;
	CLEANUP(buf_done) struct buf error = {0};
	const char *state = next_state(n);
	int r;

	if (n->contact == CONTACT_NONE)
		return put_unasked(n, e);
	set_config(n, &row);
	put_error(n, &error);
	row.probed_ms = n->pass->now_ms;
	row.state = (char *)(uintptr_t)state;
	row.last_error = error.len ? error.data : NULL;
	if (n->contact == CONTACT_ANSWERED && !n->refused) {
		set_answer(n, &row);
		row.inventory = inventory = inventory_encode(&n->inventory);
	} else if (!strcmp(state, NODE_TEXT)) {
		set_text(n, &row);
		if (n->has_sample)
			row.inventory = inventory = inventory_encode(&n->inventory);
	} else {
		set_failure(n, &row);
	}
	if (!is_news(n, &row))
		return 0;
	r = store_node_put(n->pass->store, &row, e);
	return r < 0 ? r : tell_change(n, state, buf_str(&error), e);
}

int nodes_put(struct pass *p, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < p->n_nodes; i++)
		r = put_node(&p->nodes[i], e);
	return r < 0 ? r : 0;
}

/* ---- what follows from them ---- */

/* Its node is silent for good, or somebody else's by now. */
static bool is_beyond_reach(const struct pass_node *n)
{
	if (n->is_stranger)
		return true;
	return n->contact != CONTACT_ANSWERED && n->row && !strcmp(state_of(n), NODE_DOWN);
}

static void give_up_by_rule(struct pass_node *n, const struct job *j)
{
	const struct queue_settings *s = &n->pass->config->settings;
	int64_t silent_ms = n->pass->now_ms - silent_since(n);

	if (s->node_loss == NODE_LOSS_WAIT || silent_ms < s->node_loss_after_ms)
		return;
	note_add(n->pass, NOTE_NODE_LOST, n->index, j->id, j->attempt)->text =
		xasprintf("%s hasn't answered for %" PRId64 " s, and node_loss is \"%s\"", n->name,
			silent_ms / 1000, s->node_loss == NODE_LOSS_REQUEUE ? "requeue" : "fail");
}

void nodes_give_up(struct pass *p)
{
	for (size_t i = 0; i < p->live.n; i++) {
		const struct job *j = &p->live.v[i];
		struct pass_node *n = pass_node_of(p, &j->bind);

		if (!n || !is_beyond_reach(n))
			continue;
		if (n->is_stranger && j->cancel_ms)
			note_give_up(n, j, "another machine answers to that name now");
		else
			give_up_by_rule(n, j);
	}
}

bool nodes_were_observed(struct pass *p)
{
	bool all = true;

	if (p->lease.incarnation <= FIRST_INCARNATION)
		return true;
	for (size_t i = 0; i < p->n_nodes; i++) {
		const struct pass_node *n = &p->nodes[i];
		bool was = n->row && n->row->observed_incarnation >= p->lease.incarnation;

		if (!n->config || was || (n->row && n->row->is_ignored) || node_answers(n))
			continue;
		all = false;
		pass_say_error(p, n->name, 0,
			"the queue's database was moved or put back, and this node may have work that it doesn't know of: "
			"nothing starts until it has answered once, or `queue ignore %s` says that it never will",
			n->name);
	}
	return all;
}

static int64_t largest_card(const struct inventory *v)
{
	int64_t most = -1;

	for (size_t i = 0; i < v->n_cards; i++)
		if (!v->cards[i].is_mig_parent && v->cards[i].total_mib > most)
			most = v->cards[i].total_mib;
	return most;
}

int64_t nodes_cap_mib(const struct pass *p, const struct job *j)
{
	int64_t most = -1;

	for (size_t i = 0; i < p->n_nodes; i++) {
		const struct pass_node *n = &p->nodes[i];
		int64_t here = largest_card(n->inventory.n_cards ? &n->inventory : &n->known);

		if (j->node_constraint && strcmp(j->node_constraint, n->name) != 0)
			continue;
		if (here > most)
			most = here;
	}
	return most < 0 ? -1 : most - p->config->settings.headroom_mib;
}
