/*
 * What people, and the queue's rules, do to jobs that aren't in flight: hold, release, cancel, requeue, edits, purge. The
 * table of core/job.h says when; each function changes the job and records what the table names.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <string.h>

int store_fail(struct store *s, int64_t id, enum job_step step, const char *why, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE char *title = NULL;
	const struct job_rule *rule;
	enum job_cause cause =
		step == JOB_STEP_DEPENDENCY ? JOB_CAUSE_DEPENDENCY : JOB_CAUSE_UNSCHEDULABLE;
	int r;

	if (step != JOB_STEP_DEPENDENCY && step != JOB_STEP_UNSCHEDULABLE)
		return err_set(
			e, -EINVAL, "a waiting job doesn't fail as '%s'", job_step_name(step));
	r = change_begin(s, id, step, &j, &rule, e);
	if (r == 0)
		r = db_run(s, e,
			"UPDATE jobs SET state = 'failed', cause = ?2, last_error = ?3, held_reason = NULL, finished_ms = ?4,"
			" updated_ms = ?4 WHERE id = ?1",
			"itti", id, job_cause_name(cause), why, s->now_ms);
	if (r >= 0)
		r = news_event(s, rule, id, NULL, why, NULL, e);
	if (r < 0)
		return r;
	r = lane_changed(s, &j, e);
	if (r < 0)
		return r;
	title = xasprintf("job %" PRId64 " failed: %.200s", id, why);
	return news_alert(s, rule, id, NULL, title, NULL, e);
}

int store_hold(struct store *s, int64_t id, const char *why, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE char *title = NULL;
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_HOLD, &j, &rule, e);

	if (r < 0)
		return r;
	if (j.held_reason && strcmp(j.held_reason, why) == 0)
		return 1;
	r = db_run(s, e, "UPDATE jobs SET held_reason = ?2, updated_ms = ?3 WHERE id = ?1", "iti",
		id, why, s->now_ms);
	if (r >= 0)
		r = news_event(s, rule, id, NULL, why, NULL, e);
	if (r < 0)
		return r;
	r = lane_changed(s, &j, e);
	if (r < 0)
		return r;
	title = xasprintf("job %" PRId64 " is held: %.200s", id, why);
	return news_alert(s, rule, id, NULL, title, NULL, e);
}

static int let_go(
	struct store *s, int64_t id, const struct job_rule *rule, const char *why, struct err *e)
{
	int r = db_run(s, e, "UPDATE jobs SET held_reason = NULL, updated_ms = ?2 WHERE id = ?1",
		"ii", id, s->now_ms);

	return r < 0 ? r : news_event(s, rule, id, NULL, why, NULL, e);
}

int store_unhold(struct store *s, int64_t id, const char *why, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_UNHOLD, &j, &rule, e);

	if (r == 0)
		r = lane_changed(s, &j, e);
	return r < 0 ? r : let_go(s, id, rule, why, e);
}

/* Success that can't come any more, and jobs that are gone. */
#define DEAD_NEEDS \
	"FROM needs n LEFT JOIN jobs p ON p.id = n.needs WHERE n.job = ?1 AND (p.id IS NULL OR (n.kind = 0" \
	" AND p.state IN ('failed', 'cancelled', 'timeout', 'lost')))"

int store_release(struct store *s, int64_t id, int64_t **ret_dropped, size_t *ret_n, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE int64_t *dropped = NULL;
	const struct job_rule *rule;
	sqlite3_stmt *st = NULL;
	size_t n = 0, cap = 0;
	int r = change_begin(s, id, JOB_STEP_RELEASE, &j, &rule, e);

	if (r < 0)
		return r;
	for (r = db_ask(s, &st, e, "SELECT DISTINCT n.needs " DEAD_NEEDS " ORDER BY 1", "i", id);
		r > 0; r = db_next(s, st, e)) {
		GROW(dropped, n, cap);
		dropped[n++] = sqlite3_column_int64(st, 0);
	}
	if (r == 0)
		r = db_run(s, e,
			"DELETE FROM needs WHERE job = ?1 AND (kind, needs) IN (SELECT n.kind, n.needs " DEAD_NEEDS
			")",
			"i", id);
	if (r >= 0)
		r = let_go(s, id, rule, j.held_reason, e);
	if (r >= 0)
		r = lane_changed(s, &j, e);
	if (r < 0)
		return r;
	if (ret_dropped) {
		*ret_dropped = TAKE_PTR(dropped);
		*ret_n = n;
	}
	return 0;
}

/* ---- the end wanted by a person ---- */

static int cancel_waiting(struct store *s, const struct job *j, const struct job_rule *rule,
	const char *why, struct err *e)
{
	int r = db_run(s, e,
		"UPDATE jobs SET state = 'cancelled', cause = 'cancelled', held_reason = NULL, finished_ms = ?2,"
		" updated_ms = ?2, cancel_ms = coalesce(cancel_ms, ?2), cancel_reason = coalesce(cancel_reason, ?3)"
		" WHERE id = ?1",
		"iit", j->id, s->now_ms, why);

	return r < 0 ? r : news_event(s, rule, j->id, NULL, why, NULL, e);
}

static int want_cancel(struct store *s, const struct job *j, const char *why, struct err *e)
{
	int r = db_run(s, e,
		"UPDATE jobs SET cancel_ms = ?2, cancel_reason = ?3, updated_ms = ?2"
		" WHERE id = ?1 AND cancel_ms IS NULL",
		"iit", j->id, s->now_ms, why);

	return r < 0 ? r : 0;
}

int store_cancel(
	struct store *s, int64_t id, const char *why, enum store_cancelled *ret, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	const struct job_rule *rule;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = row_brief(s, id, &j, e);
	if (r < 0)
		return r;
	if (job_state_is_terminal(j.state)) {
		*ret = STORE_CANCEL_LATE;
		return 0;
	}
	rule = job_can(
		&j, j.is_bound ? JOB_STEP_WANT_CANCEL : JOB_STEP_CANCEL, s->is_controller, e);
	if (!rule)
		return -EPERM;
	r = j.is_bound ? want_cancel(s, &j, why, e) : cancel_waiting(s, &j, rule, why, e);
	/* Asked again, nothing is new. */
	if (r == 0 && !j.cancel_ms)
		r = lane_changed(s, &j, e);
	if (r == 0)
		*ret = j.is_bound ? STORE_CANCEL_WANTED : STORE_CANCELLED;
	return r;
}

int store_requeue(struct store *s, int64_t id, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE char *message = NULL;
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_REQUEUE, &j, &rule, e);

	if (r == 0)
		r = db_run(s, e,
			"UPDATE jobs SET state = 'pending', attempt_base = attempt, n_oom = 0, started_ms = NULL,"
			" finished_ms = NULL, elapsed_ms = NULL, heartbeat_ms = NULL, gpu_mem_mib = NULL, peak_mib = NULL,"
			" progress = NULL, progress_ms = NULL, held_reason = NULL, cancel_ms = NULL, cancel_reason = NULL,"
			" exit_code = NULL, cause = NULL, last_error = NULL, result = NULL, updated_ms = ?2 WHERE id = ?1",
			"ii", id, s->now_ms);
	if (r >= 0)
		r = lane_again(s, &j, e);
	if (r < 0)
		return r;
	message = xasprintf("by hand, it was %s", job_state_name(j.state));
	return news_event(s, rule, id, NULL, message, NULL, e);
}

/* ---- edits ---- */

int store_set_priority(struct store *s, int64_t id, int64_t priority, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE char *message = NULL;
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_EDIT_PRIORITY, &j, &rule, e);

	if (r < 0 || j.priority == priority)
		return r;
	r = db_run(s, e, "UPDATE jobs SET priority = ?2, updated_ms = ?3 WHERE id = ?1", "iii", id,
		priority, s->now_ms);
	if (r < 0)
		return r;
	message = xasprintf("%" PRId64 " \xe2\x86\x92 %" PRId64, j.priority, priority);
	return news_event(s, rule, id, NULL, message, NULL, e);
}

int store_set_vram(struct store *s, int64_t id, int64_t mib, enum vram_source from, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_EDIT_VRAM, &j, &rule, e);

	if (r < 0)
		return r;
	if (mib < -1 || !vram_source_name(from))
		return err_set(e, -EINVAL, "a reservation can't be less than nothing");
	r = db_run(s, e,
		"UPDATE jobs SET vram_mib = ?2, vram_source = ?3, updated_ms = ?4 WHERE id = ?1",
		"ioti", id, mib, vram_source_name(from), s->now_ms);
	return r < 0 ? r : lane_changed(s, &j, e);
}

static int changed_one(int r, int64_t id, struct err *e)
{
	if (r < 0)
		return r;
	return r ? 0 : err_set(e, -ENOENT, "there's no job %" PRId64, id);
}

int store_set_notes(struct store *s, int64_t id, const char *text, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE jobs SET notes = ?2, updated_ms = ?3 WHERE id = ?1", "iti", id,
		text, s->now_ms);
	return changed_one(r, id, e);
}

int store_set_result(struct store *s, int64_t id, const char *json, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r == 0)
		r = text_check_json("the result", json, '*', e);
	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE jobs SET result = ?2, updated_ms = ?3 WHERE id = ?1", "iti", id,
		json, s->now_ms);
	return changed_one(r, id, e);
}

int store_purge(struct store *s, uint32_t states, int64_t *ret_removed, struct err *e)
{
	int64_t removed = 0;
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (states & ~JOB_STATES_TERMINAL)
		return err_set(e, -EPERM, "only jobs that have ended can be purged");
	for (int i = JOB_STATE_COMPLETED; i < JOB_STATE_N; i++) {
		if (!(states >> i & 1))
			continue;
		r = db_run(s, e,
			"DELETE FROM jobs WHERE state = ?1 AND id NOT IN (SELECT n.needs FROM needs n JOIN jobs j ON j.id = n.job"
			" WHERE j.state IN ('pending', 'running'))",
			"t", job_state_name((enum job_state)i));
		if (r < 0)
			return r;
		removed += r;
	}
	r = db_run(s, e,
		"DELETE FROM attempts WHERE wants_reap = 0 AND job NOT IN (SELECT id FROM jobs)",
		"");
	if (r < 0)
		return r;
	*ret_removed = removed;
	return 0;
}
