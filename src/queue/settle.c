/*
 * Notes into the record: one transaction for all of them (parts of it when they're very many), then the acks. Each job is read
 * afresh inside the transaction, so a cancel that came while the nodes were asked is seen. The second telling of an end
 * changes nothing and is acked like the first.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NOTES_MAX 500 /* of one transaction */
#define DIR_MAX 4096
#define SPENT_MAX 100 /* attempts that a record lacks, of one job */

static struct pass_node *node_of(struct pass *p, const struct note *n)
{
	return n->node < p->n_nodes ? &p->nodes[n->node] : NULL;
}

static const char *text_in(const json_t *msg, const char *key)
{
	return json_string_value(json_object_get(msg, key));
}

static int64_t int_in(const json_t *msg, const char *key)
{
	return json_integer_value(json_object_get(msg, key));
}

static void add_ack(struct pass *p, const struct note *n)
{
	struct pass_node *node = node_of(p, n);

	if (node)
		json_array_append_new(
			node->acks, json_pack("[I,I]", (json_int_t)n->job, (json_int_t)n->attempt));
}

/* A token that isn't ours names another launch, whatever its number. */
static bool is_of_bind(const struct job *j, const struct note *n)
{
	const char *token = text_in(n->msg, "token");

	return j->is_bound && j->attempt == n->attempt && (!token || !strcmp(token, j->bind.token));
}

/* ---- starts ---- */

static void say_dispatched(struct pass *p, const struct job *j)
{
	json_array_append_new(
		p->sum->dispatched, json_pack("{s:I, s:s?, s:o, s:I}", "id", (json_int_t)j->id,
					    "node", j->bind.node, "gpu_ids", gpu_ids_json(&j->bind),
					    "attempt", (json_int_t)job_attempt_count(j)));
}

static int note_start(struct pass *p, const struct note *n, const struct job *j, int64_t pid,
	int64_t ticks, int64_t wall_ms, struct err *e)
{
	struct pass_node *node = node_of(p, n);
	const struct flight *f = flight_of(p, n->job, n->attempt);
	const char *dir = text_in(n->msg, "dir");
	bool has_dir = dir && strlen(dir) <= DIR_MAX;
	struct store_started st = {.pid = pid,
		.start_ticks = ticks,
		.run_dir = has_dir ? dir
			   : f	   ? f->dir
				   : NULL};
	int r;

	if (wall_ms)
		st.started_ms = wall_ms - (node ? node->clock_offset_ms : 0);
	r = store_started(p->store, j->id, n->attempt, &st, e);
	if (!r)
		say_dispatched(p, j);
	return r;
}

static int take_started(struct pass *p, struct note *n, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	int r = store_job(p->store, n->job, &j, e);

	if (r < 0 || !is_of_bind(&j, n))
		return r;
	return note_start(p, n, &j, int_in(n->msg, "pid"), int_in(n->msg, "start_ticks"),
		int_in(n->msg, "started_wall_ms"), e);
}

/* ---- ends ---- */

static void say_finished(struct pass *p, const struct job *j, const struct store_end *end)
{
	static const struct {
		enum job_step step;
		const char *state;
	} states[] = {{JOB_STEP_COMPLETE, "completed"}, {JOB_STEP_FAIL, "failed"},
		{JOB_STEP_TIMEOUT, "timeout"}, {JOB_STEP_STOP, "cancelled"},
		{JOB_STEP_LOSE, "lost"}, {JOB_STEP_RETRY, "pending"}};
	json_t *o = json_pack("{s:I}", "id", (json_int_t)j->id);

	for (size_t i = 0; i < ARRAY_LEN(states); i++)
		if (states[i].step == end->step)
			json_object_set_new(o, "state", json_string(states[i].state));
	if (end->has_exit_code)
		json_object_set_new(o, "exit_code", json_integer((json_int_t)end->exit_code));
	if (end->cause)
		json_object_set_new(o, "cause", json_string(job_cause_name(end->cause)));
	if (end->error)
		json_object_set_new(o, "error", json_string(end->error));
	json_array_append_new(p->sum->finished, o);
}

static int settle_as(struct pass *p, const struct job *j, const struct judgement *g, struct err *e)
{
	int r = store_settle(p->store, j->id, j->attempt, &g->end, e);

	if (!r)
		say_finished(p, j, &g->end);
	return r;
}

/* What it said last, before its row is closed. */
static int note_progress(struct pass *p, const struct job *j, const char *progress, struct err *e)
{
	struct store_seen seen = {
		.heartbeat_ms = -1, .gpu_mem_mib = -1, .peak_mib = -1, .progress = progress};

	if (!progress || (j->progress && !strcmp(progress, j->progress)))
		return 0;
	return store_seen(p->store, j->id, j->attempt, &seen, e);
}

static int settle_end(struct pass *p, const struct note *n, const struct job *j,
	struct end_facts *f, struct err *e)
{
	CLEANUP(judgement_done) struct judgement g = {0};
	const struct pass_node *node = node_of(p, n);
	int r = 0;

	f->clock_offset_ms = node ? node->clock_offset_ms : 0;
	judge(j, f, &p->config->settings, nodes_cap_mib(p, j), &g);
	/* An end seen before any start makes both steps at once. */
	if (j->state == JOB_STATE_PENDING && f->end.started_wall_ms)
		r = note_start(p, n, j, int_in(n->msg, "pid"), int_in(n->msg, "start_ticks"),
			f->end.started_wall_ms, e);
	if (r >= 0)
		r = note_progress(p, j, f->progress, e);
	if (r >= 0)
		r = settle_as(p, j, &g, e);
	return r < 0 ? r : cards_judge(p, j, &g, f, e);
}

static int take_ended(struct pass *p, struct note *n, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP(end_facts_done) struct end_facts f = {0};
	int r = store_job(p->store, n->job, &j, e);

	if (!r && is_of_bind(&j, n)) {
		r = end_facts_decode(n->msg, &f, e);
		if (!r)
			r = settle_end(p, n, &j, &f, e);
	} else if (!r && j.is_bound && j.attempt == n->attempt) {
		/* Another launch of that number: not this one's end. */
		return 0;
	}
	if (r == 0 || r == -ENOENT)
		add_ack(p, n);
	return r == -ENOENT ? 0 : r;
}

/* Reads the job; 1: that attempt isn't in flight any more. */
static int read_bound(struct pass *p, const struct note *n, struct job *ret, struct err *e)
{
	int r = store_job(p->store, n->job, ret, e);

	return r < 0 ? r : !ret->is_bound || ret->attempt != n->attempt;
}

static int take_lost(struct pass *p, struct note *n, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP(judgement_done) struct judgement g = {0};
	enum job_cause cause =
		n->kind == NOTE_REBOOTED ? JOB_CAUSE_NODE_REBOOTED : JOB_CAUSE_NODE_LOST;
	int r = read_bound(p, n, &j, e);

	if (r)
		return r;
	judge_lost(&j, cause, n->text, &p->config->settings, &g);
	return settle_as(p, &j, &g, e);
}

/* ---- launches that came to nothing ---- */

static int take_never(struct pass *p, struct note *n, struct err *e)
{
	const struct pass_node *node = node_of(p, n);
	int r = store_unbind(p->store, n->job, n->attempt, NULL, e);

	if (r || n->kind != NOTE_REFUSED)
		return r;
	pass_say_error(p, node ? node->name : NULL, n->job, "%s", n->text);
	r = store_refused(p->store, n->job, node ? node->name : NULL, n->text, e);
	/* It was to be cancelled, and is now. */
	return r == -EPERM ? 0 : r;
}

/* Only a store that was copied or went back in time meets an attempt of its number that it didn't make. */
static int hold_for_stray(
	struct pass *p, int64_t job, const char *node, int64_t attempt, struct err *e)
{
	CLEANUP_FREE char *why = xasprintf(
		"attempt %" PRId64
		" of it is known to %s and not to this database, which was copied or put back: "
		"look what became of it there, then `job release` or `job cancel`",
		attempt, node);
	int r = store_hold(p->store, job, why, e);

	if (!r)
		json_array_append_new(p->sum->held,
			json_pack("{s:I, s:s}", "id", (json_int_t)job, "reason", why));
	return r;
}

/* Its number is spent, so that the next attempt has another one; a person decides whether there is to be one. */
static int take_conflict(struct pass *p, struct note *n, struct err *e)
{
	const struct pass_node *node = node_of(p, n);
	CLEANUP(job_done) struct job j = {0};
	struct store_end end = {.step = JOB_STEP_RETRY,
		.cause = JOB_CAUSE_LAUNCH_FAILED,
		.elapsed_ms = -1,
		.vram_mib = -1,
		.peak_mib = -1,
		.error = "the node has another attempt of that number"};
	int r = read_bound(p, n, &j, e);

	if (r)
		return r;
	if (j.cancel_ms) {
		end.step = JOB_STEP_STOP;
		end.cause = JOB_CAUSE_CANCELLED;
	}
	r = store_settle(p->store, n->job, n->attempt, &end, e);
	if (r || j.cancel_ms)
		return r;
	return hold_for_stray(p, n->job, node ? node->name : "its node", n->attempt, e);
}

/* ---- claims without an attempt in flight ---- */

static int find_attempt(struct pass *p, const struct note *n, bool *ret_is_known, struct err *e)
{
	CLEANUP(store_attempts_done) struct store_attempts l = {0};
	int r = store_attempts(p->store, n->job, &l, e);

	*ret_is_known = false;
	for (size_t i = 0; r >= 0 && i < l.n; i++)
		*ret_is_known |= l.v[i].attempt == n->attempt;
	return r < 0 ? r : 0;
}

/*
 * The record takes over what the node knows: attempts up to that one are spent, so that the next has a number of its own. For
 * the job it's as if they had been tried; it's held right after.
 */
static int spend_numbers(struct pass *p, const struct note *n, const struct job *j, struct err *e)
{
	static const struct store_end end = {.step = JOB_STEP_RETRY,
		.cause = JOB_CAUSE_LAUNCH_FAILED,
		.elapsed_ms = -1,
		.vram_mib = -1,
		.peak_mib = -1,
		.error = "an attempt of that number is known to the node and not to this database"};
	const struct pass_node *node = node_of(p, n);
	const char *token = text_in(n->msg, "token");
	struct job_bind bind = {.node = (char *)(uintptr_t)(node ? node->name : "?")};
	int r = 0;

	if (!token || !id_is_valid(token) || n->attempt - j->attempt > SPENT_MAX)
		return 0;
	memcpy(bind.token, token, ID_LEN);
	for (int64_t a = j->attempt; r >= 0 && a < n->attempt; a++) {
		int64_t number;

		r = store_bind(p->store, j->id, &bind, &number, e);
		if (r >= 0)
			r = store_settle(p->store, j->id, number, &end, e);
	}
	return r;
}

static int take_stray(struct pass *p, struct note *n, struct err *e)
{
	const char *state = text_in(n->msg, "state");
	bool has_ended = state && !strcmp(state, "ended"), is_known = false;
	const struct pass_node *node = node_of(p, n);
	CLEANUP(job_done) struct job j = {0};
	int r = store_job(p->store, n->job, &j, e);

	if (!r)
		r = find_attempt(p, n, &is_known, e);
	if (r == -ENOENT)
		r = 0;
	if (r < 0)
		return r;
	/* Bound meanwhile, by somebody's last breath: the next pass asks for it. */
	if (j.is_bound && j.attempt == n->attempt)
		return 0;
	if (j.id && !is_known && j.state == JOB_STATE_PENDING && !j.is_bound && !job_is_held(&j)) {
		r = spend_numbers(p, n, &j, e);
		if (r >= 0)
			r = hold_for_stray(p, n->job, node ? node->name : "a node", n->attempt, e);
	}
	if (r >= 0 && has_ended)
		add_ack(p, n);
	else if (r >= 0 && !has_ended)
		pass_say_error(p, node ? node->name : NULL, n->job,
			"attempt %" PRId64
			" of it runs there, and isn't one of this database's; it's left alone",
			n->attempt);
	return r;
}

static int take_reaped(struct pass *p, struct note *n, struct err *e)
{
	const struct pass_node *node = node_of(p, n);
	int r = store_reaped(p->store, n->job, n->attempt, n->text, e);

	if (!r)
		json_array_append_new(
			p->sum->reaped, json_pack("{s:I, s:s?, s:I}", "job", (json_int_t)n->job,
						"node", node ? node->name : NULL, "pid",
						(json_int_t)int_in(n->msg, "pid")));
	if (r >= 0 && n->msg)
		add_ack(p, n);
	return r;
}

static int take_seen(struct pass *p, struct note *n, struct err *e)
{
	int r;

	n->seen.progress = n->text;
	r = store_seen(p->store, n->job, n->attempt, &n->seen, e);
	return r == -ESTALE ? 0 : r;
}

/* ---- all of them ---- */

static int take(struct pass *p, struct note *n, struct err *e)
{
	switch (n->kind) {
	case NOTE_STARTED:
		return take_started(p, n, e);
	case NOTE_ENDED:
		return take_ended(p, n, e);
	case NOTE_NEVER:
	case NOTE_REFUSED:
		return take_never(p, n, e);
	case NOTE_CONFLICT:
		return take_conflict(p, n, e);
	case NOTE_REBOOTED:
	case NOTE_NODE_LOST:
		return take_lost(p, n, e);
	case NOTE_REAPED:
		return take_reaped(p, n, e);
	case NOTE_STRAY:
		return take_stray(p, n, e);
	case NOTE_SEEN:
		return take_seen(p, n, e);
	}
	return 0;
}

/* What the record refuses by itself has written nothing; the others go on. */
static bool is_only_refused(int r)
{
	return r == -EPERM || r == -ENOENT || r == -EINVAL || r == -ESTALE;
}

static int take_some(struct pass *p, size_t end, struct err *e)
{
	for (size_t i = p->n_taken; i < end; i++) {
		struct note *n = &p->notes[i];
		const struct pass_node *node = node_of(p, n);
		struct err why = {0};
		int r = take(p, n, &why);

		if (is_only_refused(r))
			pass_say_error(p, node ? node->name : NULL, n->job, "%s", why.text);
		else if (r < 0)
			return err_set(e, r, "%s", why.text);
	}
	return 0;
}

static bool has_ends(const struct pass *p, size_t end)
{
	for (size_t i = p->n_taken; i < end; i++)
		if (p->notes[i].kind == NOTE_ENDED)
			return true;
	return false;
}

static void send_acks(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (!json_array_size(n->acks) || !n->link || !link_is_up(n->link))
			continue;
		link_send(n->link, json_pack("{s:s, s:o}", "op", "ack", "jobs", n->acks));
		n->acks = json_array();
	}
}

static int settle_part(struct pass *p, bool with_nodes, struct err *e)
{
	size_t end = p->n_notes - p->n_taken > NOTES_MAX ? p->n_taken + NOTES_MAX : p->n_notes;
	bool ends = has_ends(p, end);
	int r;

	if (ends)
		fault_point("queue.before-settle");
	r = pass_begin(p, e);
	if (r < 0)
		return r;
	if (with_nodes)
		r = cards_look(p, e);
	if (with_nodes && r >= 0)
		r = nodes_put(p, e);
	if (r >= 0)
		r = take_some(p, end, e);
	if (r < 0) {
		store_abort(p->store);
		return r;
	}
	r = store_commit(p->store, e);
	if (r < 0)
		return r;
	p->n_taken = end;
	if (ends)
		fault_point("queue.after-settle");
	send_acks(p);
	if (ends)
		fault_point("queue.after-ack");
	return 0;
}

int settle(struct pass *p, bool with_nodes, struct err *e)
{
	int r = 0;

	while (!r && (with_nodes || p->n_taken < p->n_notes)) {
		r = settle_part(p, with_nodes, e);
		with_nodes = false;
	}
	return r;
}
