/* Why a lane's next one waits (lanes.h): what it needs to have ended, and what it's told about that. */
#include "agent/answer.h"
#include "agent/lanes_inner.h"

#include <stdio.h>
#include <string.h>

#define ATTEMPTS_ASKED 100 /* of a job, where any attempt will do */

void lanes_say_waits(struct refusal *r, const char *reason, const char *fmt, ...)
{
	va_list ap;

	*r = (struct refusal){.reason = reason};
	va_start(ap, fmt);
	vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
}

json_t *lanes_waits(struct agent *a, const struct lane *l)
{
	const struct lane_run *lr = lanes_find_run(a, l->queue, l->name);
	const struct lane_entry *x = lr ? head_of(lr) : NULL;
	json_t *o;

	if (!x || !lr->waits.reason)
		return NULL;
	o = refusal_encode(&lr->waits, &x->name);
	json_object_del(o, "op");
	return o;
}

/* A hint to who commands, when it's another reason than before. */
void lanes_set_waits(struct agent *a, struct lane_run *lr, const struct refusal *r)
{
	bool is_new = !lr->waits.reason || strcmp(lr->waits.reason, r->reason) != 0;
	struct client *c = is_new ? agent_commander(a, lr->lane.queue) : NULL;
	json_t *msg;

	lr->waits = *r;
	if (!c)
		return;
	msg = refusal_encode(r, &head_of(lr)->name);
	json_object_set_new(msg, "op", json_string("lane-waits"));
	json_object_set_new(msg, "name", json_string(lr->lane.name));
	json_object_set_new(msg, "generation", json_integer((json_int_t)lr->lane.generation));
	client_push(c, msg);
}

/* ---- needs ---- */

static void say_failed(
	const struct lane_need *need, const struct attempt_end *end, struct refusal *r)
{
	if (end->how == END_EXIT)
		lanes_say_waits(r, "need-failed",
			"job %llu was to end well, and it ended with exit code %d",
			(unsigned long long)need->job, (int)end->code);
	else
		lanes_say_waits(r, "need-failed", "job %llu was to end well, and its end is \"%s\"",
			(unsigned long long)need->job, end_how_name(end->how));
}

static enum need_state need_of_one(const struct agent *a, const struct lane_run *lr,
	const struct lane_need *need, uint32_t attempt, struct refusal *r)
{
	struct attempt_name n = {.job = need->job, .attempt = attempt};
	const struct attempt *at;
	struct attempt_end end;
	char token[ID_LEN];

	memcpy(n.queue, lr->lane.queue, ID_LEN);
	at = attempts_find(&a->attempts, &n);
	if (at && at->rec.state != ATTEMPT_ENDED) {
		lanes_say_waits(r, "need", "it waits for job %llu, which hasn't ended",
			(unsigned long long)need->job);
		return NEED_NEAR;
	}
	if (at) {
		end = at->rec.end;
	} else if (retired_find(a->retired, &n, token, &end)) {
		lanes_say_waits(r, "need",
			"it waits for job %llu, which hasn't begun on this machine",
			(unsigned long long)need->job);
		return NEED_FAR;
	}
	if (!need->ok || (end.how == END_EXIT && !end.code))
		return NEED_MET;
	say_failed(need, &end, r);
	return NEED_FAILED;
}

/*
 * Any attempt of the job: the last one that this root knows decides, and one that waits in a lane is later than all that have
 * ended. Retired lines are asked by name, so attempts beyond a number aren't looked for.
 */
static enum need_state need_of(const struct agent *a, const struct lane_run *lr,
	const struct lane_need *need, struct refusal *r)
{
	enum need_state s = NEED_FAR;

	if (need->attempt)
		return need_of_one(a, lr, need, need->attempt, r);
	for (uint32_t attempt = ATTEMPTS_ASKED; s == NEED_FAR && attempt > 0; attempt--) {
		struct attempt_name n = {.job = need->job, .attempt = attempt};

		memcpy(n.queue, lr->lane.queue, ID_LEN);
		s = need_of_one(a, lr, need, attempt, r);
		if (s == NEED_FAR && lanes_waiting(a, &n))
			break;
	}
	return s;
}

/* An end is final, so what is met is left out from then on. */
void lanes_look_at_needs(struct agent *a, struct lane_run *lr, struct lane_entry *x)
{
	struct refusal r, worst = {0};
	uint32_t kept = 0;

	if (lr->need_seen == a->lanes->n_changes)
		return;
	lr->need_seen = a->lanes->n_changes;
	lr->need = NEED_MET;
	for (uint32_t i = 0; i < x->n_needs; i++) {
		enum need_state s = need_of(a, lr, &x->needs[i], &r);

		if (s == NEED_MET)
			continue;
		x->needs[kept++] = x->needs[i];
		if (s <= lr->need)
			continue;
		lr->need = s;
		worst = r;
	}
	x->n_needs = kept;
	if (lr->need != NEED_MET)
		lanes_set_waits(a, lr, &worst);
	else if (lr->waits.reason && !strncmp(lr->waits.reason, "need", 4))
		lr->waits = (struct refusal){0};
}
