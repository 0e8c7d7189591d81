/*
 * Launches of one pass: what the plan starts is bound in one transaction, sent with one message a node, and waited for a
 * little. From the bind on its memory is charged, whatever becomes of the message; only the node's own word undoes it.
 *
 * A node that refuses gets nothing more in this pass, and the plan is made again without it, so that the next best may take
 * the job at once.
 */
#include "queue/cluster.h"
#include "queue/launch.h"
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX (900 * 1024) /* of JSON, below the wire's limit */
#define BINDS_MAX 2000 /* of one round */

/* ---- which nodes ---- */

/* To a daemon's next passes, which may be many in a second, it's as if it had refused in them. */
static bool has_just_refused(const struct pass_node *n)
{
	int64_t at = n->held->refused_ms;

	return n->pass->is_held && at && clock_boot_ms() - at < LAUNCH_REFUSED_MS;
}

static bool *fresh_nodes(const struct pass *p, const struct cluster *c)
{
	bool *fresh = xcalloc(c->n_nodes + 1, sizeof(*fresh));

	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct pass_node *n =
			c->nodes[i].config ? pass_node_named(p, c->nodes[i].config->name) : NULL;

		fresh[i] = n && node_answers(n) && !n->has_refused && !has_just_refused(n) &&
			   !n->sample.snap.error[0];
	}
	return fresh;
}

/* ---- binding ---- */

void launch_make_bind(const struct pass_node *n, const struct cluster_node *node, uint64_t cards,
	int64_t mib, struct job_bind *ret)
{
	*ret = (struct job_bind){.node = xstrdup(n->name)};
	random_hex(16, ret->token);
	snprintf(ret->root_id, sizeof(ret->root_id), "%s", n->hello.root_id);
	snprintf(ret->boot_id, sizeof(ret->boot_id), "%s", n->hello.boot_id);
	snprintf(ret->machine_key, sizeof(ret->machine_key), "%.64s", n->hello.machine_key);
	ret->cards = xcalloc(GPU_MAX, sizeof(*ret->cards));
	for (size_t i = 0; i < node->inv.n_cards && i < GPU_MAX; i++) {
		const struct inv_card *card = node->cards[i].inv;
		struct job_card *c;

		if (!(cards >> i & 1))
			continue;
		c = &ret->cards[ret->n_cards++];
		snprintf(c->uuid, sizeof(c->uuid), "%s", card->uuid);
		c->index = card->index;
		c->mib = mib;
	}
}

/* What was learned or is the queue's default stands with the job from now on, so that everybody counts the same. */
int launch_note_need(
	struct pass *p, const struct job *j, int64_t mib, enum vram_source from, struct err *e)
{
	/* The default was one, and isn't any more. */
	if (mib < 0 && j->gpus > 0 && j->vram_source == VRAM_DEFAULT)
		return store_set_vram(p->store, j->id, -1, VRAM_NONE, e);
	if (mib < 0 || (from != VRAM_LEARNED && from != VRAM_DEFAULT) ||
		(mib == j->vram_mib && from == j->vram_source))
		return 0;
	return store_set_vram(p->store, j->id, mib, from, e);
}

struct flight *flight_add(
	struct pass *p, int64_t job, int64_t attempt, size_t node, const char *token)
{
	struct flight *f;

	GROW(p->flights, p->n_flights, p->cap_flights);
	f = &p->flights[p->n_flights++];
	*f = (struct flight){
		.job = job, .attempt = attempt, .node = node, .held = p->nodes[node].held};
	snprintf(f->token, sizeof(f->token), "%s", token);
	return f;
}

static int bind_one(
	struct pass *p, struct cluster *c, const struct cluster_plan *plan, size_t i, struct err *e)
{
	const struct plan_decision *d = &plan->decisions[i];
	const struct cluster_node *node = &c->nodes[d->node];
	struct pass_node *n = pass_node_named(p, node->config->name);
	CLEANUP(job_done) struct job j = {0};
	enum vram_source from = VRAM_NONE;
	int64_t mib = cluster_need_mib(c, plan, i, &from);
	struct job_bind bind;
	struct flight *f;
	int r = store_job(p->store, c->pending.v[i].id, &j, e);

	if (r == -ENOENT)
		return 0;
	if (!r)
		r = launch_note_need(p, &j, mib, from, e);
	if (r < 0)
		return r == -EPERM ? 0 : r;
	/* Idle cards are asked for as whole ones: nobody may be there, and nobody may come. */
	launch_make_bind(n, node, d->cards, j.idle ? UNDECLARED : mib, &bind);
	r = store_bind(p->store, j.id, &bind, &j.attempt, e);
	if (r >= 0) {
		job_bind_done(&j.bind);
		j.bind = bind;
		f = flight_add(p, j.id, j.attempt, n->index, bind.token);
		launch_make(p, &j, &node->inv, f);
	} else {
		job_bind_done(&bind);
	}
	/* Somebody held, cancelled or edited it meanwhile. */
	return r == -EPERM ? 0 : r;
}

json_t *launch_entry(struct pass *p, const struct job *j, const struct inventory *inv,
	json_t *needs, const struct pass_node *n)
{
	struct flight *before = flight_of(p, j->id, j->attempt), *f;
	/* Its body is there, or on its way there, from an earlier round or pass. */
	bool is_ahead = before && before->is_lane && before->state == FLIGHT_BOUND &&
			before->held == n->held && !strcmp(before->token, j->bind.token);
	json_t *entry;

	if (is_ahead) {
		struct flight again = {.job = j->id, .attempt = j->attempt};

		launch_make(p, j, inv, &again);
		entry = again.launch;
		free(again.body);
	} else {
		/* Its directory is told when it starts (`claimed`), and a flight is where that's kept. */
		f = flight_add(p, j->id, j->attempt, n->index, j->bind.token);
		f->is_lane = true;
		launch_make(p, j, inv, f);
		entry = TAKE_PTR(f->launch);
		if (!f->body)
			f->state = FLIGHT_OVER;
	}
	if (needs)
		json_object_set(entry, "needs", needs);
	return entry;
}

/* For whom a place is kept: the next pass goes on from there. Written when it's another one than before. */
static bool is_guard_news(struct pass *p, const char *guard)
{
	CLEANUP_FREE char *before = NULL;
	struct err e;

	if (store_meta_get(p->store, CLUSTER_GUARD_KEY, &before, &e) < 0)
		return guard != NULL;
	return !guard || strcmp(before, guard) != 0;
}

static int bind_all(struct pass *p, struct cluster *c, const struct cluster_plan *plan,
	const char *guard, struct err *e)
{
	size_t first = p->n_flights;
	int r = pass_begin(p, e);

	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < plan->n && p->n_flights - first < BINDS_MAX; i++)
		if (plan->decisions[i].what == PLAN_START)
			r = bind_one(p, c, plan, i, e);
	if (r >= 0)
		r = store_meta_set(p->store, CLUSTER_GUARD_KEY, guard, e);
	if (r < 0) {
		store_abort(p->store);
		return r;
	}
	return store_commit(p->store, e);
}

/* ---- sending ---- */

static void send_message(struct pass_node *n, json_t *jobs)
{
	if (json_array_size(jobs))
		link_send(n->link, json_pack("{s:s, s:s, s:[], s:o}", "op", "launch", "root_id",
					   n->hello.root_id, "env", "jobs", jobs));
	else
		json_decref(jobs);
}

static void send_to(struct pass *p, struct pass_node *n)
{
	json_t *jobs = json_array();
	size_t bytes = 0;

	for (size_t i = 0; i < p->n_flights; i++) {
		struct flight *f = &p->flights[i];
		size_t size;

		if (f->node != n->index || f->state != FLIGHT_BOUND || !f->launch || f->body)
			continue;
		size = json_dumpb(f->launch, NULL, 0, JSON_COMPACT);
		if (bytes && bytes + size > MESSAGE_MAX) {
			send_message(n, jobs);
			jobs = json_array();
			bytes = 0;
		}
		bytes += size;
		json_array_append_new(jobs, TAKE_PTR(f->launch));
		f->state = FLIGHT_SENT;
		f->sent_ms = clock_boot_ms();
		n->held->is_used_up = true;
	}
	send_message(n, jobs);
}

/* ---- waiting ---- */

static bool is_in_the_air(const struct pass *p, const struct flight *f)
{
	return (f->state == FLIGHT_SENT || f->state == FLIGHT_CLAIMED) &&
	       node_answers(&p->nodes[f->node]);
}

size_t launch_in_the_air(const struct pass *p, int64_t since_ms)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n_flights; i++)
		n += p->flights[i].sent_ms >= since_ms && is_in_the_air(p, &p->flights[i]);
	return n;
}

void launch_say_unconfirmed(struct pass *p)
{
	for (size_t i = 0; i < p->n_flights; i++) {
		const struct flight *f = &p->flights[i];
		const struct pass_node *n = &p->nodes[f->node];

		if (f->state != FLIGHT_SENT && f->state != FLIGHT_CLAIMED)
			continue;
		pass_say_error(p, n->name, f->job, "handed to %s, start not confirmed%s%s", n->name,
			n->link && link_is_up(n->link) ? "" : ": the link was lost",
			f->state == FLIGHT_CLAIMED ? " (the node has it)" : "");
	}
}

bool launch_was_refused(const struct pass *p, size_t first_note)
{
	for (size_t i = first_note; i < p->n_notes; i++)
		if (p->notes[i].kind == NOTE_REFUSED || p->notes[i].kind == NOTE_NEVER)
			return true;
	return false;
}

static size_t count_starts(const struct cluster_plan *plan)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n; i++)
		n += plan->decisions[i].what == PLAN_START;
	return n;
}

int launch_bind(struct pass *p, size_t *ret_n, struct err *e)
{
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(cluster_plan_done) struct cluster_plan plan = {0};
	CLEANUP_FREE bool *fresh = NULL;
	CLEANUP_FREE char *guard = NULL;
	size_t before = p->n_flights;
	int r = cluster_load(p->store, p->config, p->now_ms, true, &c, e);

	*ret_n = 0;
	if (r < 0)
		return r;
	fresh = fresh_nodes(p, &c);
	cluster_plan(&c, fresh, &plan);
	if (!p->round)
		r = never_apply(p, &c, &plan, e);
	guard = cluster_guard_text(&c, &plan);
	if (r < 0 || (!count_starts(&plan) && !is_guard_news(p, guard)))
		return r;
	fault_point("queue.before-bind");
	r = bind_all(p, &c, &plan, guard, e);
	*ret_n = p->n_flights - before;
	return r;
}

int launch_send(struct pass *p, struct err *e)
{
	int r;

	fault_point("queue.after-bind");
	/* The machine may have slept since the commit: whoever has the lease now decides about these binds. */
	r = pass_keep(p, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < p->n_nodes; i++)
		if (node_answers(&p->nodes[i]))
			send_to(p, &p->nodes[i]);
	p->flight_news_ms = clock_boot_ms();
	fault_point("queue.after-launch");
	return 0;
}

bool launch_wanted(struct pass *p)
{
	bool some = true;
	struct err e;

	return store_some_wait(p->store, false, &some, &e) < 0 || some;
}

bool flight_is_open(struct pass *p, int64_t job, int64_t attempt, int64_t asked_ms)
{
	const struct flight *f = flight_of(p, job, attempt);

	return f && (f->state != FLIGHT_OVER || f->sent_ms >= asked_ms);
}

void flight_done(struct flight *f)
{
	staging_free(f->staging);
	json_decref(f->launch);
	free(f->body);
	free(f->dir);
}

void flights_done(struct pass *p)
{
	for (size_t i = 0; i < p->n_flights; i++)
		flight_done(&p->flights[i]);
	free(p->flights);
	p->flights = NULL;
	p->n_flights = p->cap_flights = 0;
}
