/*
 * The line and its batches. It owns the order of the steps in front of a start, which is the order in protocol.md 9: the
 * publication comes before the reading of the others, so of two who come together at least one sees the other.
 */
#include "agent/launch.h"

#include "agent/answer.h"
#include "agent/chores.h"
#include "agent/lanes.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "proc/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_AGE_MS 1000 /* a sample older than this isn't believed, whatever happened or not */
#define TIE_MS 2000
#define TIE_STEP_MS 20
#define BATCH_MAX 256

void launch_done(struct launch *l)
{
	for (size_t i = 0; i < l->n; i++)
		claim_spec_done(&l->line[i].spec);
	free(l->line);
	launch_hall_done(l);
	*l = (struct launch){0};
}

bool launch_is_empty(const struct launch *l)
{
	return l->n == 0 && l->n_hall == 0;
}

void launch_add(struct agent *a, uint64_t client, struct claim_spec *spec)
{
	struct launch *l = &a->launch;

	GROW(l->line, l->n, l->cap);
	l->line[l->n++] = (struct launch_job){.client = client, .spec = *spec};
	*spec = (struct claim_spec){0};
}

void launch_add_lane(struct agent *a, uint64_t number, struct claim_spec *spec)
{
	launch_add(a, 0, spec);
	a->launch.line[a->launch.n - 1].lanes = number;
}

/* ---- promises ---- */

static size_t add_tentative(const struct agent *a, struct promise_row *rows, size_t n, size_t max)
{
	const struct launch *l = &a->launch;

	for (size_t i = l->at; i < l->n_batch; i++) {
		const struct claim_spec *s = &l->line[i].spec;

		bool is_new = l->line[i].client || l->line[i].lanes;

		for (uint32_t k = 0; is_new && k < s->n_cards; k++) {
			size_t at = 0;

			while (at < n && !(rows[at].is_tentative &&
						 !strcmp(rows[at].uuid, s->cards[k].uuid)))
				at++;
			if (at == n && n == max)
				continue;
			if (at == n) {
				rows[n] = (struct promise_row){.is_tentative = true};
				memcpy(rows[n++].uuid, s->cards[k].uuid, sizeof(rows[0].uuid));
			}
			rows[at].mib += s->cards[k].declared_mib < 0 ? PROMISE_ALL_MIB
								     : s->cards[k].declared_mib;
		}
	}
	return n;
}

static int publish(struct agent *a, struct err *e)
{
	struct promise_row rows[PROMISE_ROWS_MAX];
	size_t n;

	lanes_hold(a);
	n = ledger_promises(a->ledger, &a->attempts, rows, PROMISE_ROWS_MAX);

	n = add_tentative(a, rows, n, PROMISE_ROWS_MAX);
	return promise_publish(a->promise, rows, n, e);
}

void launch_publish(struct agent *a)
{
	struct err e = {0};

	a->promises_are_old = false;
	if (publish(a, &e))
		agent_log(a, "%s", e.text);
}

static int read_others(struct agent *a, struct err *e)
{
	struct promise_other *rows = NULL;
	size_t n = 0;
	int r = promise_read(a->promise, &rows, &n, e);

	if (!r)
		ledger_set_promises(a->ledger, rows, n);
	return r;
}

void launch_read_others(struct agent *a)
{
	struct err e = {0};

	/* A launch reads them anew and is refused when that fails. */
	read_others(a, &e);
}

/* ---- one job ---- */

static void drop_job(struct agent *a, struct launch_job *j)
{
	struct client *c = j->client ? agent_find_client(a, j->client) : NULL;

	if (c)
		c->n_launching--;
	if (j->has_new_dir)
		chores_drop(a, &j->spec.name, j->spec.dir);
	j->is_decided = true;
}

/* A refusal is final, so nobody will claim what was sent ahead. */
static void drop_stage(struct agent *a, const struct claim_spec *s)
{
	char path[ID_LEN + 8];

	snprintf(path, sizeof(path), "new/%s", s->token);
	if (s->is_staged)
		fd_remove_tree_at(a->root.fd, path);
}

static void refuse(struct agent *a, struct launch_job *j, const struct refusal *r)
{
	drop_stage(a, &j->spec);
	answer_refused(j->client ? agent_find_client(a, j->client) : NULL, &j->spec.name, r);
	drop_job(a, j);
}

void launch_refuse(
	struct agent *a, uint64_t client, const struct claim_spec *s, const struct refusal *r)
{
	struct client *c = agent_find_client(a, client);

	drop_stage(a, s);
	answer_refused(c, &s->name, r);
	if (c)
		c->n_launching--;
}

/* Nothing of an older controller starts once a newer one was answered. */
static bool is_stale(struct agent *a, struct launch_job *j)
{
	struct client *c = agent_find_client(a, j->client);
	struct fence highest;

	if (c && !fences_highest(&a->fences, j->spec.name.queue, &highest, NULL) &&
		!fence_compare(&c->fence, &highest))
		return false;
	if (c)
		answer_stale(c, &highest, &j->spec.name);
	drop_job(a, j);
	return true;
}

/* A claim or a retired line of that name: its state is the answer, and nothing is started. */
static bool is_known(struct agent *a, struct launch_job *j)
{
	struct client *c = agent_find_client(a, j->client);
	struct attempt *at = attempts_find(&a->attempts, &j->spec.name);
	char token[ID_LEN];
	struct attempt_end end;

	if (at && !strcmp(at->token, j->spec.token)) {
		answer_state(c, at);
	} else if (at) {
		answer_conflict(c, &j->spec.name, at->token);
	} else {
		if (retired_find(a->retired, &j->spec.name, token, &end))
			return false;
		if (!strcmp(token, j->spec.token))
			answer_retired(c, &j->spec.name, token, &end);
		else
			answer_conflict(c, &j->spec.name, token);
	}
	drop_job(a, j);
	return true;
}

/* The table didn't know the name, the disk does: take it in and say what it is. */
static void found_on_disk(struct agent *a, struct launch_job *j, enum claim_made made)
{
	CLEANUP_CLOSE int fd = claim_open(&a->root, &j->spec.name);
	CLEANUP(claim_spec_done) struct claim_spec there = {0};
	struct refusal r = {.reason = "disk"};
	struct attempt *at;

	if (fd >= 0 && !claim_read_spec(fd, &there, NULL)) {
		there.name = j->spec.name;
		at = attempts_add(&a->attempts, &there);
		attempts_look(&a->attempts, at, a->now_ms);
		is_known(a, j);
		return;
	}
	snprintf(r.text, sizeof(r.text),
		"the claim of that name is there with %s token, but can't be read",
		made == CLAIM_SAME_TOKEN ? "the same" : "another");
	refuse(a, j, &r);
}

/* Its text has become run.sh; a claim doesn't need it. */
static void drop_body(struct agent *a, const struct claim_spec *s)
{
	CLEANUP_CLOSE int fd = s->is_staged ? claim_open(&a->root, &s->name) : -1;

	if (fd >= 0)
		unlinkat(fd, "body", 0);
}

int launch_make_claim(
	struct agent *a, struct claim_spec *s, enum claim_made *ret_made, struct err *e)
{
	CLEANUP_CLOSE int there = s->dir ? claim_open(&a->root, &s->name) : -1;
	int r;

	/* A job of the queue has its directory before it has a claim: only one that's there already comes without. */
	if (s->dir && there == -ENOENT)
		return err_set(e, -EAGAIN, "the job's directory isn't made yet");
	fault_point("agent.before-claim");
	r = claim_make(&a->root, s, ret_made, e);
	if (!r && *ret_made == CLAIM_MADE)
		drop_body(a, s);
	return r;
}

/* Its claim is durable: from here on it's answered for. */
static void start_made(struct agent *a, struct launch_job *j, struct attempt *at)
{
	struct err e = {0};

	drop_body(a, &j->spec);
	j->has_new_dir = false;
	answer_claimed(agent_find_client(a, j->client), &j->spec.name, j->spec.dir);
	if (attempts_start(&a->attempts, at, &j->spec, &e))
		agent_log(a, "%s", e.text);
	ledger_note(a->ledger, at, sampler_asked(a->sampler));
	drop_job(a, j);
}

static void settle_order(struct agent *a, struct launch_job *j, const struct claim_order *o)
{
	struct attempt *at = attempts_find(&a->attempts, &j->spec.name);
	struct refusal refusal = {.reason = "disk"};

	if (!o->code && o->made == CLAIM_MADE) {
		start_made(a, j, at);
		return;
	}
	attempts_remove(&a->attempts, at);
	if (!o->code) {
		found_on_disk(a, j, o->made);
		return;
	}
	snprintf(refusal.text, sizeof(refusal.text), "%.500s", o->err.text);
	refuse(a, j, &refusal);
}

/* The claims of all who were admitted since the last time, made together. Nobody's shim or answer comes before the last sync. */
static void make_claims(struct agent *a)
{
	struct launch *l = &a->launch;
	struct claim_order *orders;

	if (!l->n_admitted)
		return;
	orders = xcalloc(l->n_admitted, sizeof(*orders));
	for (size_t i = 0; i < l->n_admitted; i++) {
		fault_point("agent.before-claim");
		orders[i].spec = &l->line[l->admitted[i]].spec;
	}
	claim_make_all(&a->root, orders, l->n_admitted);
	for (size_t i = 0; i < l->n_admitted; i++)
		settle_order(a, &l->line[l->admitted[i]], &orders[i]);
	l->n_admitted = 0;
	free(orders);
}

/* It counts from now on, for those who are decided after it; its claim is made with theirs. */
static void admit(struct agent *a, struct launch_job *j)
{
	struct launch *l = &a->launch;

	j->spec.oom_kills = j->has_new_dir ? proc_oom_kills() : -1;
	attempts_add(&a->attempts, &j->spec);
	l->admitted[l->n_admitted++] = (size_t)(j - l->line);
	if (l->n_admitted == CLAIM_TOGETHER_MAX)
		make_claims(a);
}

/* Nobody asked just now, so nobody is answered; who commands hears of it by a hint. */
static void start_of_lane(struct agent *a, struct launch_job *j)
{
	struct attempt_name name = j->spec.name;
	struct refusal refusal = {.reason = "disk"};
	enum claim_made made = CLAIM_MADE;
	struct err e = {0};
	struct shim_ready shim = {0};
	struct attempt *at;
	struct client *c;

	j->spec.is_of_lane = true;
	fault_point("agent.before-lane-start");
	if (lanes_claim(a, &j->spec, &made, &shim, &e)) {
		snprintf(refusal.text, sizeof(refusal.text), "%.500s", e.text);
		lanes_refused(a, j->lanes, &j->spec, &refusal);
	} else if (made != CLAIM_MADE) {
		found_on_disk(a, j, made);
		lanes_claimed(a, &name);
	} else {
		fault_point("agent.after-lane-claim");
		at = attempts_add(&a->attempts, &j->spec);
		if (attempts_go(&a->attempts, at, &j->spec, &shim, &e))
			agent_log(a, "%s", e.text);
		ledger_note(a->ledger, at, sampler_asked(a->sampler));
		lanes_claimed(a, &name);
		c = agent_commander(a, name.queue);
		if (c)
			client_push(c, claimed_message(&name, j->spec.dir));
	}
	j->is_decided = true;
}

static void start_again(struct agent *a, struct launch_job *j, struct attempt *at)
{
	struct err e = {0};

	if (attempts_start(&a->attempts, at, &j->spec, &e))
		agent_log(a, "%s", e.text);
	ledger_note(a->ledger, at, sampler_asked(a->sampler));
}

static enum admission check(struct agent *a, const struct attempt *except,
	const struct claim_spec *s, struct refusal *ret)
{
	if (s->n_cards && a->launch.blocked.reason) {
		*ret = a->launch.blocked;
		return ADMIT_NO;
	}
	lanes_hold(a);
	return admit_check(a->ledger, &a->attempts, except, lanes_order(a, &s->name), s->n_cards,
		s->cards, &s->policy, ret);
}

/* Looked at again for a while, before it counts as a refusal. */
static bool is_tied(const struct agent *a, enum admission answer)
{
	return answer == ADMIT_TIE &&
	       (!a->launch.tie_until_ms || a->now_ms < a->launch.tie_until_ms);
}

static bool decide_lanes(struct agent *a, struct launch_job *j)
{
	struct refusal refusal = {0};
	enum admission answer;

	if (!lanes_may_start(a, j->lanes, &j->spec)) {
		lanes_refused(a, j->lanes, &j->spec, NULL);
		j->is_decided = true;
		return true;
	}
	answer = check(a, NULL, &j->spec, &refusal);
	if (is_tied(a, answer))
		return false;
	if (answer == ADMIT_YES)
		start_of_lane(a, j);
	else
		lanes_refused(a, j->lanes, &j->spec, &refusal);
	j->is_decided = true;
	return true;
}

/* Decides one; false when a tie makes the batch wait. */
static bool decide(struct agent *a, struct launch_job *j)
{
	struct attempt *at = j->client ? NULL : attempts_find(&a->attempts, &j->spec.name);
	struct refusal refusal = {0};
	enum admission answer;

	if (j->lanes)
		return decide_lanes(a, j);
	if (j->client && (is_stale(a, j) || is_known(a, j)))
		return true;
	if (!j->client && (!at || !at->wants_start)) {
		if (at)
			at->is_admitting = false;
		j->is_decided = true;
		return true;
	}
	answer = check(a, at, &j->spec, &refusal);
	if (is_tied(a, answer))
		return false;
	if (at) {
		at->is_admitting = false;
		if (answer == ADMIT_YES)
			start_again(a, j, at);
		j->is_decided = true;
	} else if (answer == ADMIT_YES) {
		admit(a, j);
	} else {
		refuse(a, j, &refusal);
	}
	return true;
}

/* ---- the batch ---- */

static bool needs_sample(const struct agent *a)
{
	const struct launch *l = &a->launch;

	for (size_t i = l->at; i < l->n_batch; i++) {
		const struct claim_spec *s = &l->line[i].spec;

		for (uint32_t k = 0; k < s->n_cards; k++)
			if (!ledger_is_fresh(a->ledger, s->cards[k].uuid) ||
				a->now_ms - ledger_snapshot(a->ledger)->begun_ms > SAMPLE_AGE_MS)
				return true;
	}
	return false;
}

/* The one that was asked for ahead, if it's on its way and will do; else a new one. */
static uint64_t ask_sample(struct agent *a)
{
	const struct launch *l = &a->launch;
	bool will_do = l->early > ledger_number(a->ledger);

	for (size_t i = l->at; i < l->n_batch; i++) {
		const struct claim_spec *s = &l->line[i].spec;

		for (uint32_t k = 0; will_do && k < s->n_cards; k++)
			will_do = l->early > ledger_asked_before(a->ledger, s->cards[k].uuid);
	}
	return will_do ? l->early : sampler_ask(a->sampler, a->now_ms);
}

/* From here on everybody in the batch who wants a card is refused for the same reason. */
static void block_cards(struct launch *l, const char *reason, const char *text)
{
	l->blocked = (struct refusal){.reason = reason};
	snprintf(l->blocked.text, sizeof(l->blocked.text), "%.500s", text);
}

static bool has_cards(const struct launch *l)
{
	for (size_t i = l->at; i < l->n_batch; i++)
		if (l->line[i].spec.n_cards)
			return true;
	return false;
}

static void begin_batch(struct agent *a)
{
	struct launch *l = &a->launch;
	struct err e = {0};

	l->n_batch = l->n < BATCH_MAX ? l->n : BATCH_MAX;
	l->at = 0;
	l->number = 0;
	l->tie_until_ms = l->tie_again_ms = 0;
	l->blocked.reason = NULL;
	if (!has_cards(l))
		return;
	if (publish(a, &e) || read_others(a, &e))
		block_cards(l, "disk", e.text);
	else if (sampler_is_released(a->sampler) && sampler_is_silent(a->sampler, a->now_ms, &e))
		block_cards(l, "driver", e.text);
	else if (needs_sample(a))
		l->number = ask_sample(a);
}

static void end_batch(struct agent *a)
{
	struct launch *l = &a->launch;

	for (size_t i = 0; i < l->n_batch; i++)
		claim_spec_done(&l->line[i].spec);
	memmove(l->line, l->line + l->n_batch, (l->n - l->n_batch) * sizeof(*l->line));
	l->n -= l->n_batch;
	l->n_batch = l->at = 0;
	l->number = 0;
	launch_publish(a);
}

/* False while the sample isn't there. */
static bool has_sample(struct agent *a)
{
	struct launch *l = &a->launch;
	struct err why = {0};

	if (!l->number || ledger_number(a->ledger) >= l->number) {
		l->number = 0;
		return true;
	}
	if (!sampler_is_silent(a->sampler, a->now_ms, &why))
		return false;
	block_cards(l, "driver", why.text);
	l->number = 0;
	return true;
}

static void begin_tie(struct agent *a)
{
	struct launch *l = &a->launch;

	if (!l->tie_until_ms)
		l->tie_until_ms = a->now_ms + TIE_MS;
	l->tie_again_ms = a->now_ms + TIE_STEP_MS;
}

/* Looks at the others again while a tie lasts; false while it isn't time yet. */
static bool tie_is_due(struct agent *a)
{
	struct launch *l = &a->launch;
	struct err e = {0};

	if (!l->tie_until_ms)
		return true;
	if (a->now_ms < l->tie_again_ms)
		return false;
	if (read_others(a, &e))
		block_cards(l, "disk", e.text);
	if (needs_sample(a)) {
		l->number = sampler_ask(a->sampler, a->now_ms);
		l->tie_again_ms = a->now_ms;
		return false;
	}
	return true;
}

static bool is_admitted(const struct launch *l, const struct attempt_name *n)
{
	for (size_t i = 0; i < l->n_admitted; i++)
		if (attempt_name_equal(&l->line[l->admitted[i]].spec.name, n))
			return true;
	return false;
}

static void decide_batch(struct agent *a)
{
	struct launch *l = &a->launch;

	for (; l->at < l->n_batch; l->at++) {
		struct launch_job *j = &l->line[l->at];

		if (j->is_decided)
			continue;
		/* The same name again: its answer is that of the first, which there isn't yet. */
		if (is_admitted(l, &j->spec.name))
			make_claims(a);
		if (!decide(a, j)) {
			make_claims(a);
			begin_tie(a);
			return;
		}
		l->tie_until_ms = 0;
	}
	make_claims(a);
}

void launch_turn(struct agent *a)
{
	struct launch *l = &a->launch;

	while (l->n) {
		if (!l->n_batch)
			begin_batch(a);
		if (!has_sample(a) || !tie_is_due(a))
			return;
		decide_batch(a);
		if (l->at < l->n_batch)
			return;
		end_batch(a);
	}
}

int64_t launch_wait_ms(const struct agent *a)
{
	const struct launch *l = &a->launch;

	if (!l->n)
		return -1;
	if (l->number)
		return 500;
	if (l->tie_until_ms)
		return l->tie_again_ms > a->now_ms ? l->tie_again_ms - a->now_ms : 0;
	return 0;
}
