/*
 * The cluster out of the store and the configuration (cluster.h): nodes, cards with their room, jobs. One question of each
 * kind to the store, nothing per job.
 */
#include "queue/cluster_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Bytes of a command that are read, for people. */
#define COMMAND_MAX 200
/* Shapes that are looked at, the newest first: those beyond have not run for long. */
#define LEARNED_LOADED 4096

/* ---- names ---- */

const char *cluster_node_name(const struct cluster_node *n)
{
	return n->config ? n->config->name : n->row->name;
}

int32_t cluster_node_named(const struct cluster *c, const char *name)
{
	for (size_t i = 0; i < c->n_nodes; i++)
		if (strcmp(cluster_node_name(&c->nodes[i]), name) == 0)
			return (int32_t)i;
	return -1;
}

static bool has_part(const char *name, const char *part)
{
	for (; *part && *name; name++)
		if (strncasecmp(name, part, strlen(part)) == 0)
			return true;
	return false;
}

/* 1 exact, 2 but for case, 3 in part, 0 not. */
static int likeness(const char *name, const char *word)
{
	if (strcmp(name, word) == 0)
		return 1;
	if (strcasecmp(name, word) == 0)
		return 2;
	return has_part(name, word) ? 3 : 0;
}

int cluster_find_node(const struct cluster *c, const char *name, size_t *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf names = {0};

	for (int level = 1; level <= 3; level++) {
		size_t n = 0, at = 0;

		for (size_t i = 0; i < c->n_nodes; i++) {
			const char *its = cluster_node_name(&c->nodes[i]);
			int like = likeness(its, name);
			if (like == 0 || like > level)
				continue;
			at = i;
			buf_printf(&names, "%s%s", n++ ? ", " : "", its);
		}
		if (n == 1) {
			*ret = at;
			return 0;
		}
		if (n > 1)
			return err_set(e, -EEXIST, "'%s' could be any of these nodes: %s", name,
				buf_str(&names));
		buf_clear(&names);
	}
	for (size_t i = 0; i < c->n_nodes; i++)
		buf_printf(&names, "%s%s", i ? ", " : "", cluster_node_name(&c->nodes[i]));
	return err_set(e, -ENOENT, "there's no node '%s'; there is: %s", name,
		c->n_nodes ? buf_str(&names) : "none, add one with `gpustow add`");
}

/* ---- nodes ---- */

static const struct store_node *row_named(const struct cluster *c, const char *name)
{
	for (size_t i = 0; i < c->rows.n; i++)
		if (strcmp(c->rows.v[i].name, name) == 0)
			return &c->rows.v[i];
	return NULL;
}

static bool has_work(const struct cluster *c, const char *name)
{
	for (size_t i = 0; i < c->live.n; i++)
		if (c->live.v[i].bind.node && strcmp(c->live.v[i].bind.node, name) == 0)
			return true;
	return false;
}

static bool is_state(const struct store_node *r, const char *state)
{
	return r && r->state && strcmp(r->state, state) == 0;
}

static void say(struct cluster_node *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct cluster_node *n, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP(buf_done) struct buf cleaned = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	/* An error of yesterday's ssh may hold anything. */
	text_put_clean(&cleaned, buf_str(&text), text.len);
	snprintf(n->why_not, sizeof(n->why_not), "%s", buf_str(&cleaned));
}

static void judge_node(struct cluster_node *n)
{
	const struct store_node *r = n->row;
	const char *error = r && r->last_error && *r->last_error ? r->last_error : NULL;

	if (!n->config)
		say(n, "not in the configuration any more");
	else if (r && r->is_ignored)
		say(n, "ignored");
	else if (r && r->is_drained)
		say(n, "drained");
	else if (is_state(r, "up"))
		n->is_usable = true;
	else if (is_state(r, "text"))
		say(n, "runs no agent (nvidia-smi text only)");
	else if (r && r->state && strcmp(r->state, "unknown") != 0)
		say(n, "%s%s%s", r->state, error ? ": " : "", error ? error : "");
	else
		say(n, "not asked yet");
}

static void add_node(
	struct cluster *c, const struct queue_node *config, const struct store_node *row)
{
	struct cluster_node *n = &c->nodes[c->n_nodes++];
	struct err e;

	*n = (struct cluster_node){.config = config, .row = row};
	judge_node(n);
	if (inventory_decode(row ? row->inventory : NULL, &n->inv, &e) < 0) {
		n->inv = (struct inventory){.mem_total_mib = -1, .mem_available_mib = -1};
		n->is_usable = false;
		say(n, "%s", e.text);
	}
	n->cards = xcalloc(n->inv.n_cards + 1, sizeof(*n->cards));
}

static void add_nodes(struct cluster *c)
{
	size_t n_config = c->config->n_nodes;

	c->nodes = xcalloc(n_config + c->rows.n + 1, sizeof(*c->nodes));
	for (size_t i = 0; i < n_config; i++)
		add_node(c, &c->config->nodes[i], row_named(c, c->config->nodes[i].name));
	for (size_t i = 0; i < c->rows.n; i++)
		if (cluster_node_named(c, c->rows.v[i].name) < 0 && has_work(c, c->rows.v[i].name))
			add_node(c, NULL, &c->rows.v[i]);
}

/* ---- what waits ---- */

static int by_job(const void *key, const void *row)
{
	int64_t a = *(const int64_t *)key, b = ((const struct store_unmet_row *)row)->job;

	return (a > b) - (a < b);
}

size_t cluster_unmet_of(
	const struct cluster *c, const struct job *j, const struct store_unmet_row **ret)
{
	const struct store_unmet_row *end = c->unmet + c->n_unmet, *first, *r;

	*ret = NULL;
	if (c->n_unmet == 0)
		return 0;
	first = bsearch(&j->id, c->unmet, c->n_unmet, sizeof(*c->unmet), by_job);
	if (!first)
		return 0;
	while (first > c->unmet && first[-1].job == j->id)
		first--;
	for (r = first; r < end && r->job == j->id;)
		r++;
	*ret = first;
	return (size_t)(r - first);
}

bool cluster_row_blocks(const struct job *j, const struct store_unmet_row *r)
{
	bool is_over = r->state == JOB_STATE_NONE || job_state_is_terminal(r->state);

	return !(is_over && j->on_dependency == ON_DEPENDENCY_RUN);
}

bool cluster_is_blocked(const struct cluster *c, const struct job *j)
{
	const struct store_unmet_row *rows;
	size_t n = cluster_unmet_of(c, j, &rows);

	if (job_is_held(j) || c->waits_for_nodes)
		return true;
	for (size_t i = 0; i < n; i++)
		if (cluster_row_blocks(j, &rows[i]))
			return true;
	return false;
}

ssize_t cluster_pending(const struct cluster *c, int64_t id)
{
	for (size_t i = 0; i < c->pending.n; i++)
		if (c->pending.v[i].id == id)
			return (ssize_t)i;
	return -1;
}

const struct job *cluster_live(const struct cluster *c, int64_t id)
{
	size_t lo = 0, hi = c->live.n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;
		if (c->live.v[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < c->live.n && c->live.v[lo].id == id ? &c->live.v[lo] : NULL;
}

/*
 * The store was put back or moved: what it says waits may have been started meanwhile, on a node that hasn't been asked. So
 * nothing starts before all have been, or a person has ignored those that never will be.
 */
static void find_unasked(struct cluster *c, int64_t incarnation)
{
	CLEANUP(buf_done) struct buf names = {0};
	size_t n = 0;

	for (size_t i = 0; incarnation > 1 && i < c->n_nodes; i++) {
		const struct cluster_node *node = &c->nodes[i];

		if (!node->config || (node->row && node->row->is_ignored) ||
			(node->row && node->row->observed_incarnation >= incarnation))
			continue;
		if (n++ < 5)
			buf_printf(&names, "%s%s", n > 1 ? ", " : "", node->config->name);
	}
	if (n > 5)
		buf_printf(&names, " and %zu more", n - 5);
	if (n > 0)
		c->waits_for_nodes = xasprintf(
			"the queue was moved or put back from a backup, and what runs on %s hasn't been asked since; nothing starts before that (a node that is gone for good can be ignored)",
			buf_str(&names));
}

/* ---- load ---- */

enum wanted {
	WANT_COUNTS, /* and no jobs that wait */
	WANT_PENDING,
	WANT_LANES, /* those that wait only if a lane has jobs: the plan places none of the pool's */
};

static int load_jobs(struct store *s, enum wanted wanted, struct cluster *c, struct err *e)
{
	bool pending = wanted == WANT_PENDING;
	struct store_question live = {.bound = true, .no_needs = true, .command_max = COMMAND_MAX},
			      turn = {.order = STORE_BY_TURN, .to_place = true, .no_needs = true},
			      lanes = {.order = STORE_BY_LANE,
				      .no_needs = true,
				      .command_max = COMMAND_MAX};
	int r = store_jobs(s, &live, &c->live, e);

	if (r == 0)
		r = store_lanes(s, &c->lane_rows, e);
	if (r == 0)
		r = store_jobs(s, &lanes, &c->in_lanes, e);
	pending |= wanted == WANT_LANES && c->in_lanes.n;
	if (r == 0 && pending)
		r = store_jobs(s, &turn, &c->pending, e);
	if (r == 0 && (pending || c->in_lanes.n))
		r = store_unmet(s, &c->unmet, &c->n_unmet, e);
	if (r == 0 && wanted == WANT_COUNTS)
		r = store_counts(s, &c->counts, e);
	if (r < 0)
		return r;
	lanes_sort(&c->pending);
	return 0;
}

static uint32_t hash_text(const char *s, int64_t n)
{
	uint32_t h = 2166136261u ^ (uint32_t)n;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h;
}

static void index_learned(struct cluster_inner *in)
{
	in->n_slots = 16;
	while (in->n_slots < 2 * in->n_learned)
		in->n_slots *= 2;
	in->learned_slots = xcalloc(in->n_slots, sizeof(*in->learned_slots));
	for (size_t i = 0; i < in->n_learned; i++) {
		size_t at =
			hash_text(in->learned[i].shape, in->learned[i].gpus) & (in->n_slots - 1);

		while (in->learned_slots[at])
			at = (at + 1) & (in->n_slots - 1);
		in->learned_slots[at] = (uint32_t)i + 1;
	}
}

const struct store_learned *cluster_learned(const struct cluster *c, const struct job *j)
{
	const struct cluster_inner *in = c->inner;
	size_t at;

	if (in->n_learned == 0 || !j->shape)
		return NULL;
	at = hash_text(j->shape, j->gpus) & (in->n_slots - 1);
	for (; in->learned_slots[at]; at = (at + 1) & (in->n_slots - 1)) {
		const struct store_learned *l = &in->learned[in->learned_slots[at] - 1];
		if (l->gpus == j->gpus && strcmp(l->shape, j->shape) == 0)
			return l;
	}
	return NULL;
}

static int load(struct store *s, const struct queue_config *config, int64_t now_ms,
	enum wanted wanted, struct cluster *ret, struct err *e)
{
	struct cluster c = {.config = config, .now_ms = now_ms};
	CLEANUP_FREE char *guard = NULL;
	int64_t incarnation = 0;
	int r;

	c.inner = xcalloc(1, sizeof(*c.inner));
	r = store_nodes(s, &c.rows, e);
	if (r == 0)
		r = load_jobs(s, wanted, &c, e);
	if (r == 0)
		r = store_cards(s, &c.inner->out, e);
	/* A job that's only tried is asked about too. */
	if (r == 0 && (wanted == WANT_PENDING || c.pending.n))
		r = store_learned_all(s, LEARNED_LOADED, &c.inner->learned, &c.inner->n_learned, e);
	if (r == 0)
		r = store_incarnation(s, &incarnation, e);
	if (r == 0)
		r = store_meta_get(s, CLUSTER_GUARD_KEY, &guard, e);
	if (r < 0 && r != -ENOENT) {
		cluster_done(&c);
		return r;
	}
	index_learned(c.inner);
	add_nodes(&c);
	guard_read(&c, guard);
	lanes_fill(&c);
	rooms_fill(&c, store_queue(s));
	lanes_judge(&c);
	find_unasked(&c, incarnation);
	*ret = c;
	return 0;
}

int cluster_load(struct store *s, const struct queue_config *config, int64_t now_ms, bool pending,
	struct cluster *ret, struct err *e)
{
	return load(s, config, now_ms, pending ? WANT_PENDING : WANT_COUNTS, ret, e);
}

int cluster_load_for_lanes(struct store *s, const struct queue_config *config, int64_t now_ms,
	struct cluster *ret, struct err *e)
{
	return load(s, config, now_ms, WANT_LANES, ret, e);
}

void cluster_done(struct cluster *c)
{
	for (size_t i = 0; i < c->n_nodes; i++) {
		inventory_done(&c->nodes[i].inv);
		free(c->nodes[i].cards);
		if (c->inner->charges) {
			free(c->inner->charges[i].v);
			free(c->inner->charges[i].running);
		}
	}
	free(c->nodes);
	store_nodes_done(&c->rows);
	store_jobs_done(&c->live);
	store_jobs_done(&c->pending);
	store_jobs_done(&c->in_lanes);
	store_lanes_done(&c->lane_rows);
	free(c->lanes);
	free(c->unmet);
	free(c->waits_for_nodes);
	if (c->inner) {
		store_cards_done(&c->inner->out);
		store_learned_done(c->inner->learned, c->inner->n_learned);
		free(c->inner->learned_slots);
		free(c->inner->charges);
		free(c->inner->guards);
		free(c->inner->beside);
		free(c->inner);
	}
	*c = (struct cluster){0};
}
