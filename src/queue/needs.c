/*
 * Prerequisites of jobs that wait. One that ended badly holds what needs it, and only that: nothing is ever failed in a row
 * unless a job asked for it. A hold goes by itself when its cause does (the prerequisite was requeued, or dropped).
 */
#include "queue/needs.h"

#include <inttypes.h>
#include <string.h>

#define REASON_START "needs job "

bool needs_is_ours(const char *held_reason)
{
	return held_reason && !strncmp(held_reason, REASON_START, strlen(REASON_START));
}

enum need { NEED_MET, NEED_COMING, NEED_DEAD };

static enum need look(const struct store_unmet_row *r)
{
	if (r->state == JOB_STATE_NONE)
		return NEED_DEAD;
	if (!job_state_is_terminal(r->state))
		return NEED_COMING;
	return r->any || r->state == JOB_STATE_COMPLETED ? NEED_MET : NEED_DEAD;
}

static void put_why(const struct store_unmet_row *r, struct buf *why)
{
	buf_printf(why, REASON_START "%" PRId64 ", which ", r->needs);
	if (r->state == JOB_STATE_NONE)
		buf_puts(why, "isn't there any more");
	else
		buf_printf(why, "ended as %s", job_state_name(r->state));
}

enum needs_word needs_decide(const struct store_unmet_row *rows, size_t n,
	enum on_dependency policy, const char *held_reason, struct buf *why)
{
	const struct store_unmet_row *dead = NULL;
	bool waits = false;

	for (size_t i = 0; i < n; i++) {
		enum need need = look(&rows[i]);

		waits |= need == NEED_COMING;
		if (need == NEED_DEAD && !dead)
			dead = &rows[i];
	}
	if (held_reason && !needs_is_ours(held_reason))
		return NEEDS_WAIT;
	if (dead && policy != ON_DEPENDENCY_RUN) {
		put_why(dead, why);
		return policy == ON_DEPENDENCY_FAIL ? NEEDS_FAIL : NEEDS_HOLD;
	}
	if (held_reason)
		return NEEDS_UNHOLD;
	return waits ? NEEDS_WAIT : NEEDS_MET;
}
