/* What people see of lanes: their state as JSON (nvidb 9.5) and in words, and why a job in one doesn't run yet. */
#include "queue/cluster_inner.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define UP_MS 120000 /* an agent that was seen with the lane within that time is alive */
#define AHEAD_MAX 5 /* jobs that are named */

static void put_clean(struct buf *out, const char *s)
{
	text_put_clean(out, s, strlen(s));
}

size_t cluster_lane_place(const struct cluster_lane *l, int64_t id)
{
	for (size_t i = l->n_running; i < l->n; i++)
		if (l->jobs[i].id == id)
			return i - l->n_running + 1;
	return 0;
}

bool cluster_lane_is_request(const struct cluster_lane *l)
{
	/* What no node was ever told of is nobody's to acknowledge. */
	return l->row->generation > l->row->acked_generation && (l->row->acked_generation || l->n);
}

bool cluster_lane_is_up(const struct cluster *c, const struct cluster_lane *l)
{
	return l->row->has_runner && l->row->runner_seen_ms && l->node >= 0 &&
	       c->nodes[l->node].row && c->nodes[l->node].row->state &&
	       !strcmp(c->nodes[l->node].row->state, "up") &&
	       c->now_ms - l->row->runner_seen_ms <= UP_MS;
}

/* The node's own word about the next one, if that still waits; to json_decref. */
static json_t *said_of_next(const struct cluster_lane *l)
{
	json_t *o = l->row->runner_state ? json_loads(l->row->runner_state, 0, NULL) : NULL;
	json_t *first = json_array_get(json_object_get(o, "queued"), 0);
	const char *waits = json_string_value(json_object_get(o, "waits"));
	json_t *ret = NULL;

	if (waits && *waits && json_is_integer(first) &&
		cluster_lane_place(l, json_integer_value(first)))
		ret = json_pack("{s:O, s:s}", "job", first, "waits", waits);
	json_decref(o);
	return ret;
}

/* ---- in words ---- */

static bool put_paused(const struct cluster_lane *l, struct buf *text)
{
	if (l->row->is_paused)
		buf_printf(text, "paused; `queue lane %s resume` lets it go on", l->row->name);
	else if (l->why_not[0])
		buf_puts(text, l->why_not);
	else if (l->row->is_stopped)
		buf_printf(text, "its runner is stopped; `queue lane %s runner restart` starts it",
			l->row->name);
	else
		return false;
	return true;
}

/* What the first one that waits is kept back by, as far as the record says. */
static bool put_head(const struct cluster *c, const struct cluster_lane *l, struct buf *text)
{
	const struct job *j = &l->jobs[l->n_running];
	const struct store_unmet_row *rows;
	size_t n;

	if (job_is_held(j)) {
		buf_printf(text, "job %" PRId64 " is held: ", j->id);
		put_clean(text, j->held_reason);
		return true;
	}
	if (j->is_bound)
		return false;
	n = cluster_unmet_of(c, j, &rows);
	for (size_t i = 0; i < n; i++)
		if (cluster_row_blocks(j, &rows[i])) {
			size_t behind = cluster_lane_place(l, rows[i].needs);

			buf_printf(text, "job %" PRId64 " waits for job %" PRId64, j->id,
				rows[i].needs);
			if (behind)
				buf_printf(text,
					", which stands behind it here; `queue lane %s move %" PRId64
					" --before %" PRId64 "` mends that",
					l->row->name, rows[i].needs, j->id);
			return true;
		}
	return false;
}

void cluster_lane_blocked(const struct cluster *c, const struct cluster_lane *l, struct buf *text)
{
	bool has_queued = l->n > l->n_running;
	json_t *said;

	if (put_paused(l, text))
		return;
	if (!has_queued || put_head(c, l, text) || !l->row->has_runner)
		return;
	if (l->row->acked_generation && !cluster_lane_is_up(c, l)) {
		buf_printf(text, "%s wasn't seen with it for more than %d s", l->row->node,
			UP_MS / 1000);
		return;
	}
	said = l->n_running < (size_t)l->row->concurrency ? said_of_next(l) : NULL;
	if (said) {
		buf_printf(text, "%s says of job %lld: ", l->row->node,
			(long long)json_integer_value(json_object_get(said, "job")));
		put_clean(text, json_string_value(json_object_get(said, "waits")));
		json_decref(said);
	}
}

static void put_ahead(const struct cluster_lane *l, size_t at, struct buf *out)
{
	size_t n = 0;

	for (size_t i = 0; i < at && n < AHEAD_MAX; i++, n++)
		buf_printf(out, "%s%" PRId64 "%s", n ? ", " : ", behind ", l->jobs[i].id,
			i < l->n_running ? " (running)" : "");
	if (at > n)
		buf_printf(out, " and %zu more", at - n);
}

bool lane_put_why(const struct cluster *c, const struct job *j, struct buf *out)
{
	const struct cluster_lane *l = cluster_lane_named(c, j->lane);
	CLEANUP(buf_done) struct buf blocked = {0};
	size_t place = l ? cluster_lane_place(l, j->id) : 0;

	if (!l || (!l->row->has_runner && j->is_bound))
		return false;
	/* One that isn't submitted would be the last. */
	if (!place)
		place = l->n - l->n_running + 1;
	buf_printf(out, "place %zu in lane %s", place, l->row->name);
	put_ahead(l, l->n_running + place - 1, out);
	if (j->is_bound) {
		buf_puts(out, "; handed to ");
		put_clean(out, j->bind.node ? j->bind.node : l->row->node);
	} else if (l->row->has_runner && j->id) {
		buf_printf(out, "; not handed to %s yet", l->row->node);
	}
	cluster_lane_blocked(c, l, &blocked);
	if (blocked.len)
		buf_printf(out, "; %s", buf_str(&blocked));
	if (j->cancel_ms)
		buf_puts(out, "; its cancel is wanted and waits for the node's word");
	else if (j->lane_next)
		buf_printf(out, "; it's to go to %s as soon as %s has let go of it",
			*j->lane_next ? j->lane_next : "the pool", l->row->node);
	if (j->last_error && *j->last_error) {
		buf_puts(out, "; the last try: ");
		put_clean(out, j->last_error);
	}
	return true;
}

/* ---- as JSON ---- */

static json_t *ids_json(const struct cluster *c, const struct cluster_lane *l)
{
	json_t *a = json_array();

	for (size_t k = 0; l->node >= 0 && k < c->nodes[l->node].inv.n_cards && k < GPU_MAX; k++)
		if (l->cards >> k & 1)
			json_array_append_new(
				a, json_integer(c->nodes[l->node].inv.cards[k].index));
	/* Of a node that isn't known: what its name says. */
	for (const char *at = l->row->cards; !json_array_size(a) && *at;) {
		json_array_append_new(a, json_integer(strtol(at, NULL, 10)));
		at += strcspn(at, ",");
		at += *at == ',';
	}
	return a;
}

static void set(json_t *o, const char *key, json_t *v)
{
	json_object_set_new_nocheck(o, key, v);
}

static json_t *jobs_json(const struct cluster *c, const struct store_jobs *l, bool running)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n; i++)
		if ((l->v[i].state == JOB_STATE_RUNNING) == running)
			json_array_append_new(a, record_job(&l->v[i], c->now_ms));
	return a;
}

static json_t *current_json(const struct cluster_lane *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n_running; i++)
		json_array_append_new(
			a, json_pack("{s:I, s:I}", "job_id", (json_int_t)l->jobs[i].id, "attempt",
				   (json_int_t)job_attempt_count(&l->jobs[i])));
	return a;
}

json_t *cluster_lane_json(
	const struct cluster *c, const struct cluster_lane *l, const struct store_jobs *jobs)
{
	const struct store_lane *r = l->row;
	CLEANUP(buf_done) struct buf blocked = {0};
	const struct store_node *node = l->node >= 0 ? c->nodes[l->node].row : NULL;
	json_t *o = json_object(),
	       *state = r->runner_state ? json_loads(r->runner_state, 0, NULL) : NULL;

	if (state)
		set(state, "current", current_json(l));
	set(o, "name", json_string(r->name));
	set(o, "node", json_string(r->node));
	set(o, "gpu_ids", ids_json(c, l));
	set(o, "paused", json_boolean(r->is_paused));
	set(o, "concurrency", json_integer(r->concurrency));
	set(o, "runner", json_boolean(r->has_runner));
	set(o, "runner_up", json_boolean(cluster_lane_is_up(c, l)));
	set(o, "runner_state", state ? state : json_null());
	set(o, "runner_seen_at", record_time(r->runner_seen_ms));
	set(o, "created_at", record_time(r->created_ms));
	set(o, "updated_at", record_time(r->updated_ms));
	set(o, "stopped", json_boolean(r->is_stopped));
	set(o, "generation", json_integer(r->generation));
	set(o, "acked_generation", json_integer(r->acked_generation));
	set(o, "request", json_boolean(cluster_lane_is_request(l)));
	if (!jobs)
		return o;
	cluster_lane_blocked(c, l, &blocked);
	set(o, "node_state", node && node->state ? json_string(node->state) : json_null());
	set(o, "running", jobs_json(c, jobs, true));
	set(o, "queued", jobs_json(c, jobs, false));
	set(o, "blocked", blocked.len ? json_string(buf_str(&blocked)) : json_null());
	return o;
}
