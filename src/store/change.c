/*
 * An attempt's way through the store: bind, unbind, started, settled. Only the controller comes here, under its lease. Each
 * function looks its step up in the table of core/job.h, changes the job and its attempt, and records the event and the
 * alert that the table names, all in the transaction that the caller has open.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>

int change_begin(struct store *s, int64_t id, enum job_step step, struct job *ret,
	const struct job_rule **ret_rule, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r == 0)
		r = row_brief(s, id, ret, e);
	if (r < 0)
		return r;
	*ret_rule = job_can(ret, step, s->is_controller, e);
	return *ret_rule ? 0 : -EPERM;
}

int store_bind(
	struct store *s, int64_t id, const struct job_bind *b, int64_t *ret_attempt, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP(buf_done) struct buf cards = {0};
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_BIND, &j, &rule, e);

	if (r < 0)
		return r;
	if (!id_is_valid(b->token) || !b->node || b->n_cards > JOB_CARDS_MAX)
		return err_set(e, -EINVAL, "a bind of job %" PRId64 " without token or node", id);
	row_put_cards(&cards, b->cards, b->n_cards);
	r = db_run(s, e,
		"INSERT INTO attempts (job, attempt, token, node, root_id, boot_id, machine_key, cards, bound_ms)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
		"iitttttti", id, j.attempt + 1, b->token, b->node, b->root_id, b->boot_id,
		b->machine_key, buf_str(&cards), s->now_ms);
	if (r >= 0)
		r = db_run(s, e,
			"UPDATE jobs SET is_bound = 1, attempt = attempt + 1, started_ms = NULL, finished_ms = NULL,"
			" elapsed_ms = NULL, heartbeat_ms = NULL, gpu_mem_mib = NULL, peak_mib = NULL, updated_ms = ?2"
			" WHERE id = ?1",
			"ii", id, s->now_ms);
	if (r < 0)
		return r;
	*ret_attempt = j.attempt + 1;
	return 0;
}

/* Whether the attempt in flight of j is this one: 0, 1 it was settled, -ESTALE another one is, or none. */
static int check_attempt(struct store *s, const struct job *j, int64_t attempt, struct err *e)
{
	int64_t settled;
	int r;

	if (j->is_bound && j->attempt == attempt)
		return 0;
	r = db_int(s, &settled, e,
		"SELECT is_settled FROM attempts WHERE job = ?1 AND attempt = ?2", "ii", j->id,
		attempt);
	if (r < 0)
		return r;
	if (r && settled)
		return 1;
	return err_set(e, -ESTALE, "attempt %" PRId64 " of job %" PRId64 " isn't in flight",
		attempt, j->id);
}

int store_unbind(struct store *s, int64_t id, int64_t attempt, const char *why, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	int r = store_need_txn(s, e);

	if (r == 0)
		r = row_brief(s, id, &j, e);
	if (r == 0)
		r = check_attempt(s, &j, attempt, e);
	if (r != 0)
		return r == -ESTALE ? 1 : r;
	if (!job_can(&j, JOB_STEP_UNBIND, s->is_controller, e))
		return -EPERM;
	r = db_run(s, e, "DELETE FROM attempts WHERE job = ?1 AND attempt = ?2", "ii", id, attempt);
	if (r >= 0)
		r = db_run(s, e,
			"UPDATE jobs SET is_bound = 0, attempt = attempt - 1, last_error = coalesce(?3, last_error),"
			" updated_ms = ?2 WHERE id = ?1",
			"iit", id, s->now_ms, why);
	if (r < 0)
		return r;
	/* What was to leave its lane leaves it now. */
	r = lane_leave(s, id, e);
	if (r < 0)
		return r;
	/* It was only waiting for the node's word: nothing of it runs, so the wish is met here and now. */
	if (j.cancel_ms) {
		enum store_cancelled c;

		return store_cancel(s, id, j.cancel_reason, &c, e);
	}
	return 0;
}

int store_refused(struct store *s, int64_t id, const char *node, const char *why, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE char *title = NULL;
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_REFUSED, &j, &rule, e);

	if (r < 0)
		return r;
	if (j.last_error && strcmp(j.last_error, why) == 0)
		return 1;
	r = db_run(s, e, "UPDATE jobs SET last_error = ?2, updated_ms = ?3 WHERE id = ?1", "iti",
		id, why, s->now_ms);
	if (r >= 0)
		r = news_event(s, rule, id, node, why, NULL, e);
	title = xasprintf("job %" PRId64 " could not be started: %.200s", id, why);
	return r < 0 ? r : news_alert(s, rule, id, node, title, NULL, e);
}

static int tell_start(struct store *s, const struct job *j, int64_t pid, struct err *e)
{
	CLEANUP(buf_done) struct buf data = {0}, message = {0};

	buf_printf(&data, "{\"pid\": %" PRId64 ", \"attempt\": %" PRId64 ", \"gpu_ids\": [", pid,
		j->attempt);
	buf_printf(&message, "pid %" PRId64, pid);
	for (size_t i = 0; i < j->bind.n_cards; i++) {
		buf_printf(&data, "%s%d", i ? ", " : "", j->bind.cards[i].index);
		buf_printf(&message, "%s%d", i ? "," : " on GPU ", j->bind.cards[i].index);
	}
	buf_printf(&data, "], \"vram_mb\": %" PRId64, j->vram_mib < 0 ? 0 : j->vram_mib);
	if (j->lane) {
		buf_puts(&data, ", \"lane\": ");
		text_put_json_ascii(&data, j->lane, strlen(j->lane));
		buf_printf(&message, " (%s)", j->lane);
	}
	buf_putc(&data, '}');
	return store_event_add(
		s, EVENT_JOB_STARTED, j->id, j->bind.node, buf_str(&message), buf_str(&data), e);
}

int store_started(
	struct store *s, int64_t id, int64_t attempt, const struct store_started *st, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	int64_t when = st->started_ms ? st->started_ms : s->now_ms;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = row_brief(s, id, &j, e);
	if (r == 0)
		r = check_attempt(s, &j, attempt, e);
	if (r != 0)
		return r;
	if (j.state == JOB_STATE_RUNNING)
		return 1;
	if (!job_can(&j, JOB_STEP_START, s->is_controller, e))
		return -EPERM;
	r = db_run(s, e,
		"UPDATE attempts SET started_ms = ?3, pid = ?4, start_ticks = ?5, run_dir = ?6"
		" WHERE job = ?1 AND attempt = ?2",
		"iiizzt", id, attempt, when, st->pid, st->start_ticks, st->run_dir);
	if (r >= 0)
		r = db_run(s, e,
			"UPDATE jobs SET state = 'running', started_ms = ?2, last_error = NULL, updated_ms = ?3 WHERE id = ?1",
			"iii", id, when, s->now_ms);
	return r < 0 ? r : tell_start(s, &j, st->pid, e);
}

/* ---- the end of an attempt ---- */

static bool is_lost_cause(enum job_cause c)
{
	return c == JOB_CAUSE_VANISHED || c == JOB_CAUSE_NODE_LOST || c == JOB_CAUSE_NODE_REBOOTED;
}

/* Each bad end has a cause that fits it. */
static int check_end(const struct store_end *end, struct err *e)
{
	bool ok = end->step == JOB_STEP_COMPLETE  ? end->cause == JOB_CAUSE_NONE
		  : end->step == JOB_STEP_TIMEOUT ? end->cause == JOB_CAUSE_TIMEOUT
		  : end->step == JOB_STEP_STOP	  ? end->cause == JOB_CAUSE_CANCELLED
		  : end->step == JOB_STEP_LOSE	  ? is_lost_cause(end->cause)
		  : end->step == JOB_STEP_FAIL || end->step == JOB_STEP_RETRY
			  ? end->cause > JOB_CAUSE_NONE && end->cause < JOB_CAUSE_N &&
				    end->cause != JOB_CAUSE_CANCELLED
			  : false;

	if (!ok)
		return err_set(e, -EINVAL, "an end as '%s' with the cause '%s'",
			job_step_name(end->step) ? job_step_name(end->step) : "?",
			job_cause_name(end->cause) ? job_cause_name(end->cause) : "?");
	return text_check_json("the result", end->result, '*', e);
}

static const char *cause_word(enum job_cause c)
{
	return c ? job_cause_name(c) : NULL;
}

static int settle_attempt(
	struct store *s, int64_t id, int64_t attempt, const struct store_end *end, struct err *e)
{
	return db_run(s, e,
		"UPDATE attempts SET is_settled = 1, ended_as = ?3, started_ms = coalesce(started_ms, ?4), finished_ms = ?5,"
		" elapsed_ms = ?6, exit_code = CASE WHEN ?7 THEN ?8 END, cause = ?9, peak_mib = ?10, error = ?11, wants_reap = ?12"
		" WHERE job = ?1 AND attempt = ?2",
		"iiizzobitotb", id, attempt, DB_I64(end->step), end->started_ms,
		end->finished_ms ? end->finished_ms : s->now_ms, end->elapsed_ms,
		(int)end->has_exit_code, end->exit_code, cause_word(end->cause), end->peak_mib,
		end->error, (int)(end->cause == JOB_CAUSE_NODE_LOST));
}

static int settle_retry(struct store *s, int64_t id, const struct store_end *end, struct err *e)
{
	return db_run(s, e,
		"UPDATE jobs SET state = 'pending', is_bound = 0, started_ms = NULL, finished_ms = NULL, elapsed_ms = NULL,"
		" heartbeat_ms = NULL, gpu_mem_mib = NULL, progress = NULL, progress_ms = NULL, exit_code = NULL, cause = NULL,"
		" n_oom = n_oom + ?2, vram_mib = coalesce(?3, vram_mib),"
		" last_error = ?4, peak_mib = ?5, updated_ms = ?6 WHERE id = ?1",
		"ibotoi", id, (int)end->is_oom_retry, end->vram_mib, end->error, end->peak_mib,
		s->now_ms);
}

static int settle_final(
	struct store *s, int64_t id, enum job_state to, const struct store_end *end, struct err *e)
{
	return db_run(s, e,
		"UPDATE jobs SET state = ?2, is_bound = 0, started_ms = coalesce(started_ms, ?3), finished_ms = ?4,"
		" elapsed_ms = ?5, exit_code = CASE WHEN ?6 THEN ?7 END, cause = ?8, last_error = ?9,"
		" result = coalesce(?10, result), peak_mib = coalesce(?11, peak_mib), gpu_mem_mib = NULL, updated_ms = ?12"
		" WHERE id = ?1",
		"itzzobitttoi", id, job_state_name(to), end->started_ms,
		end->finished_ms ? end->finished_ms : s->now_ms, end->elapsed_ms,
		(int)end->has_exit_code, end->exit_code, cause_word(end->cause), end->error,
		end->result, end->peak_mib, s->now_ms);
}

static void describe_end(struct buf *b, const struct job_rule *rule, const struct store_end *end)
{
	buf_puts(b, rule->step == JOB_STEP_RETRY ? "another attempt" : job_state_name(rule->to));
	if (end->has_exit_code)
		buf_printf(b, ", exit code %" PRId64, end->exit_code);
	if (end->cause)
		buf_printf(b, " (%s)", job_cause_name(end->cause));
	if (end->error)
		buf_printf(b, ": %.300s", end->error);
}

static int tell_end(struct store *s, const struct job *j, const struct job_rule *rule,
	const struct store_end *end, struct err *e)
{
	CLEANUP(buf_done) struct buf message = {0}, data = {0}, title = {0};
	int r;

	describe_end(&message, rule, end);
	buf_printf(&data, "{\"state\": \"%s\", \"attempt\": %" PRId64, job_state_name(rule->to),
		j->attempt);
	if (end->has_exit_code)
		buf_printf(&data, ", \"exit_code\": %" PRId64, end->exit_code);
	if (end->cause)
		buf_printf(&data, ", \"cause\": \"%s\"", job_cause_name(end->cause));
	buf_putc(&data, '}');
	r = news_event(s, rule, j->id, j->bind.node, buf_str(&message), buf_str(&data), e);
	if (r < 0)
		return r;
	buf_printf(&title, "job %" PRId64, j->id);
	if (j->name && *j->name)
		buf_printf(&title, " (%.80s)", j->name);
	buf_printf(&title, ": %s", buf_str(&message));
	return news_alert(s, rule, j->id, j->bind.node, buf_str(&title), end->detail, e);
}

int store_settle(
	struct store *s, int64_t id, int64_t attempt, const struct store_end *end, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	const struct job_rule *rule;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = check_end(end, e);
	if (r == 0)
		r = row_brief(s, id, &j, e);
	if (r == 0)
		r = check_attempt(s, &j, attempt, e);
	if (r != 0)
		return r;
	rule = job_can(&j, end->step, s->is_controller, e);
	if (!rule)
		return -EPERM;
	/* Its start wasn't seen: both steps at once. */
	if (j.state == JOB_STATE_PENDING && end->started_ms)
		r = tell_start(s, &j, 0, e);
	if (r >= 0)
		r = settle_attempt(s, id, attempt, end, e);
	if (r >= 0)
		r = rule->step == JOB_STEP_RETRY ? settle_retry(s, id, end, e)
						 : settle_final(s, id, rule->to, end, e);
	if (r >= 0)
		r = rule->step == JOB_STEP_RETRY ? lane_again(s, &j, e)
						 : lane_forget_next(s, id, e);
	if (r >= 0 && rule->step == JOB_STEP_RETRY)
		r = lane_leave(s, id, e);
	if (r >= 0)
		r = learn(s, &j, end, e);
	return r < 0 ? r : tell_end(s, &j, rule, end, e);
}

int store_seen(
	struct store *s, int64_t id, int64_t attempt, const struct store_seen *seen, struct err *e)
{
	CLEANUP_FREE char *progress = text_cut(seen->progress, 1000);
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	r = db_run(s, e,
		"UPDATE jobs SET heartbeat_ms = coalesce(?3, heartbeat_ms), gpu_mem_mib = coalesce(?4, gpu_mem_mib),"
		" peak_mib = nullif(max(coalesce(peak_mib, -1), coalesce(?5, -1)), -1),"
		" progress_ms = CASE WHEN ?6 IS NOT NULL AND ?6 IS NOT progress THEN ?7 ELSE progress_ms END,"
		" progress = coalesce(?6, progress) WHERE id = ?1 AND attempt = ?2 AND is_bound = 1",
		"iioooti", id, attempt, seen->heartbeat_ms, seen->gpu_mem_mib, seen->peak_mib,
		progress, s->now_ms);
	if (r < 0)
		return r;
	return r ? 0
		 : err_set(e, -ESTALE, "attempt %" PRId64 " of job %" PRId64 " isn't in flight",
			   attempt, id);
}

int store_reaped(struct store *s, int64_t id, int64_t attempt, const char *why, struct err *e)
{
	CLEANUP_FREE char *node = NULL;
	sqlite3_stmt *st = NULL;
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (!s->is_controller)
		return err_set(e, -EPERM, "only the holder of the queue's lease decides that");
	r = db_ask(s, &st, e,
		"SELECT node FROM attempts WHERE job = ?1 AND attempt = ?2 AND wants_reap = 1",
		"ii", id, attempt);
	if (r <= 0)
		return r < 0 ? r : 1;
	node = db_text(st, 0);
	db_done(st);
	r = db_run(s, e, "UPDATE attempts SET wants_reap = 0 WHERE job = ?1 AND attempt = ?2", "ii",
		id, attempt);
	return r < 0 ? r : store_event_add(s, EVENT_JOB_REAPED, id, node, why, NULL, e);
}
