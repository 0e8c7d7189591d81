/* Holds, failures for a prerequisite, and holds whose cause has gone: decided by needs.c, written here. */
#include "queue/needs.h"
#include "queue/pass.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 100 /* of failures that fail others in turn: each is one step down a chain */
#define COMMAND_LOOK 1

static void say_held(struct pass *p, int64_t id, const char *why)
{
	json_array_append_new(
		p->sum->held, json_pack("{s:I, s:s}", "id", (json_int_t)id, "reason", why));
}

static int apply(struct pass *p, const struct job *j, const struct store_unmet_row *rows, size_t n,
	bool *ret_failed, struct err *e)
{
	CLEANUP(buf_done) struct buf why = {0};
	int r;

	switch (needs_decide(rows, n, j->on_dependency, j->held_reason, &why)) {
	case NEEDS_HOLD:
		r = store_hold(p->store, j->id, buf_str(&why), e);
		if (!r)
			say_held(p, j->id, buf_str(&why));
		return r;
	case NEEDS_FAIL:
		r = store_fail(p->store, j->id, JOB_STEP_DEPENDENCY, buf_str(&why), e);
		if (r < 0)
			return r;
		*ret_failed = true;
		json_array_append_new(
			p->sum->finished, json_pack("{s:I, s:s, s:s}", "id", (json_int_t)j->id,
						  "state", "failed", "cause", "dependency"));
		return r;
	case NEEDS_UNHOLD:
		return store_unhold(p->store, j->id, "what it needs can come again", e);
	default:
		return 0;
	}
}

/* Somebody else's change got in between: the next pass sees it. */
static bool is_only_refused(int r)
{
	return r == -EPERM || r == -ENOENT || r == -EINVAL;
}

/* Held ones that nothing is unmet of any more aren't among the rows. */
static int apply_held(struct pass *p, const struct store_unmet_row *rows, size_t n, struct err *e)
{
	struct store_question q = {
		.states = 1u << JOB_STATE_PENDING, .held = true, .command_max = COMMAND_LOOK};
	CLEANUP(store_jobs_done) struct store_jobs held = {0};
	bool ignored = false;
	int r = store_jobs(p->store, &q, &held, e);

	for (size_t i = 0; r >= 0 && i < held.n; i++) {
		bool has_row = false;

		for (size_t k = 0; !has_row && k < n; k++)
			has_row = rows[k].job == held.v[i].id;
		if (has_row)
			continue;
		r = apply(p, &held.v[i], NULL, 0, &ignored, e);
		r = is_only_refused(r) ? 0 : r;
	}
	return r < 0 ? r : 0;
}

/* Rows come by job. */
static int apply_rows(struct pass *p, const struct store_unmet_row *rows, size_t n,
	bool *ret_failed, struct err *e)
{
	int r = 0;

	for (size_t i = 0, end; r >= 0 && i < n; i = end) {
		CLEANUP(job_done) struct job j = {0};

		for (end = i; end < n && rows[end].job == rows[i].job; end++)
			;
		r = store_job(p->store, rows[i].job, &j, e);
		if (!r && j.state == JOB_STATE_PENDING && !j.is_bound)
			r = apply(p, &j, rows + i, end - i, ret_failed, e);
		r = is_only_refused(r) ? 0 : r;
	}
	return r < 0 ? r : 0;
}

static bool is_plain_wait(const struct store_unmet_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].state == JOB_STATE_NONE || job_state_is_terminal(rows[i].state))
			return false;
	return true;
}

static int one_round(struct pass *p, bool *ret_failed, struct err *e)
{
	CLEANUP_FREE struct store_unmet_row *rows = NULL;
	bool some_held = false;
	size_t n = 0;
	int r = store_unmet(p->store, &rows, &n, e);

	if (!r)
		r = store_some_wait(p->store, true, &some_held, e);
	/* Nothing to write: no transaction. */
	if (r < 0 || (!some_held && is_plain_wait(rows, n)))
		return r;
	r = pass_begin(p, e);
	if (r < 0)
		return r;
	r = apply_rows(p, rows, n, ret_failed, e);
	if (!r && some_held)
		r = apply_held(p, rows, n, e);
	if (r < 0) {
		store_abort(p->store);
		return r;
	}
	return store_commit(p->store, e);
}

int needs_apply(struct pass *p, struct err *e)
{
	bool again = true;
	int r = 0;

	for (int i = 0; !r && again && i < ROUNDS_MAX; i++) {
		again = false;
		r = one_round(p, &again, e);
	}
	return r;
}
