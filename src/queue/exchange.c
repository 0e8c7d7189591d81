/*
 * One exchange with each node: what was asked (observe, sample), what came back, and what it means for the attempts in flight
 * (protocol.md 5). Everything that the record has to know becomes a note; nothing is written here.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "core/wire.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HEARTBEAT_MS 60000 /* what hasn't changed is written no more often */
#define MEM_STEP_MIB 64 /* a change of less waits for the heartbeat */
#define STOP_NEWS_MS 5000 /* a cancel so young is waited for */
#define WORDS_MAX 500 /* bytes of a node's own words */
#define DIR_MAX 4096
#define FLIGHTS_MAX 20000
#define NOTES_WAITING_MAX 65536 /* while somebody has the record's lock */
#define WANTS_MAX 20000 /* names in one question: a message has its limit */

struct note *note_add(
	struct pass *p, enum note_kind kind, size_t node, int64_t job, int64_t attempt)
{
	struct note *n;

	GROW(p->notes, p->n_notes, p->cap_notes);
	n = &p->notes[p->n_notes++];
	*n = (struct note){.kind = kind,
		.node = node,
		.job = job,
		.attempt = attempt,
		.seen = {.heartbeat_ms = -1, .gpu_mem_mib = -1, .peak_mib = -1}};
	return n;
}

void notes_drop(struct pass *p)
{
	for (size_t i = 0; i < p->n_notes; i++) {
		json_decref(p->notes[i].msg);
		free(p->notes[i].text);
	}
	free(p->notes);
	p->notes = NULL;
	p->n_notes = p->cap_notes = p->n_taken = 0;
}

struct flight *flight_of(struct pass *p, int64_t job, int64_t attempt)
{
	for (size_t i = p->n_flights; i-- > 0;)
		if (p->flights[i].job == job && p->flights[i].attempt == attempt)
			return &p->flights[i];
	return NULL;
}

/* ---- the question ---- */

static bool is_of_node(const struct pass_node *n, const struct job_bind *b)
{
	return pass_node_of(n->pass, b) == n;
}

static void want(json_t *list, int64_t job, int64_t attempt)
{
	if (json_array_size(list) < WANTS_MAX)
		json_array_append_new(
			list, json_pack("[I,I]", (json_int_t)job, (json_int_t)attempt));
}

/* A store that was moved or put back asks for the attempts that it'd make next, too: they may be over already. */
static void want_next_attempts(const struct pass_node *n, json_t *list)
{
	struct store_question q = {
		.states = 1u << JOB_STATE_PENDING, .command_max = 1, .limit = WANTS_MAX};
	struct store_jobs jobs = {0};
	struct err e;

	if (n->pass->lease.incarnation < 2 ||
		(n->row && n->row->observed_incarnation >= n->pass->lease.incarnation))
		return;
	if (store_jobs(n->pass->store, &q, &jobs, &e) < 0)
		return;
	for (size_t i = 0; i < jobs.n; i++)
		if (!jobs.v[i].is_bound)
			want(list, jobs.v[i].id, jobs.v[i].attempt + 1);
	store_jobs_done(&jobs);
}

void exchange_begin(struct pass_node *n)
{
	const struct pass *p = n->pass;
	json_t *list = json_array();

	for (size_t i = 0; i < p->live.n; i++)
		if (is_of_node(n, &p->live.v[i].bind))
			want(list, p->live.v[i].id, p->live.v[i].attempt);
	for (size_t i = 0; i < p->reaps.n; i++)
		if (is_of_node(n, &p->reaps.v[i].bind))
			want(list, p->reaps.v[i].job, p->reaps.v[i].attempt);
	want_next_attempts(n, list);
	pool_ask(n->held, list);
}

/* ---- answers ---- */

static const char *text_in(const json_t *msg, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(msg, key));

	return s ? s : otherwise;
}

static bool name_in(const json_t *msg, int64_t *ret_job, int64_t *ret_attempt)
{
	struct err e;

	return !wire_int(msg, "job", 1, INT64_MAX, ret_job, &e) &&
	       !wire_int(msg, "attempt", 1, UINT32_MAX, ret_attempt, &e);
}

#define CLAIM_KEY_LEN 48
static void claim_key(int64_t job, int64_t attempt, char ret[CLAIM_KEY_LEN])
{
	snprintf(ret, CLAIM_KEY_LEN, "%" PRId64 ".%" PRId64, job, attempt);
}

static struct flight *over(struct pass *p, int64_t job, int64_t attempt)
{
	struct flight *f = flight_of(p, job, attempt);

	if (f) {
		f->state = FLIGHT_OVER;
		f->kept_ms = 0;
	}
	p->flight_news_ms = clock_boot_ms();
	return f;
}

static void on_claimed(struct pass_node *n, const json_t *msg, int64_t job, int64_t attempt)
{
	struct flight *f = flight_of(n->pass, job, attempt);
	const char *dir = text_in(msg, "dir", NULL);

	if (dir && strlen(dir) > DIR_MAX)
		dir = NULL;
	/* Of a lane that an earlier pass handed out: kept until its start is on record. */
	if (!f && dir && n->pass->is_held && n->pass->n_flights < FLIGHTS_MAX) {
		f = flight_add(n->pass, job, attempt, n->index, "");
		f->state = FLIGHT_OVER;
		f->is_lane = true;
	}
	if (!f)
		return;
	if (f->is_lane)
		f->kept_ms = clock_boot_ms();
	if (f->state == FLIGHT_SENT)
		f->state = FLIGHT_CLAIMED;
	if (dir) {
		free(f->dir);
		f->dir = xstrdup(dir);
	}
	n->pass->flight_news_ms = clock_boot_ms();
}

static void on_started(struct pass_node *n, const json_t *msg, int64_t job, int64_t attempt)
{
	over(n->pass, job, attempt);
	n->held->is_used_up = true;
	note_add(n->pass, NOTE_STARTED, n->index, job, attempt)->msg =
		json_incref((json_t *)(uintptr_t)msg);
}

static void on_ended(struct pass_node *n, const json_t *msg, int64_t job, int64_t attempt)
{
	over(n->pass, job, attempt);
	n->held->is_used_up = true;
	if (n->pass->n_stops)
		n->pass->n_stops--;
	note_add(n->pass, NOTE_ENDED, n->index, job, attempt)->msg =
		json_incref((json_t *)(uintptr_t)msg);
}

static void on_refused(struct pass_node *n, const json_t *msg, int64_t job, int64_t attempt)
{
	CLEANUP(buf_done) struct buf b = {0};
	const char *why = text_in(msg, "text", "no reason was given");

	if (!over(n->pass, job, attempt))
		return;
	n->has_refused = true;
	n->held->refused_ms = clock_boot_ms();
	buf_printf(&b, "%s refused it: ", n->name);
	text_put_clean(&b, why, strnlen(why, WORDS_MAX));
	note_add(n->pass, NOTE_REFUSED, n->index, job, attempt)->text = buf_take(&b);
}

static void on_conflict(struct pass_node *n, const json_t *msg, int64_t job, int64_t attempt)
{
	(void)msg;
	if (over(n->pass, job, attempt))
		note_add(n->pass, NOTE_CONFLICT, n->index, job, attempt);
}

/* Another root than the one that said hello, or a younger controller: either is final for that launch. */
static void on_not_taken(struct pass_node *n, const json_t *msg, int64_t job, int64_t attempt)
{
	if (!over(n->pass, job, attempt))
		return;
	n->has_refused = true;
	n->held->refused_ms = clock_boot_ms();
	note_add(n->pass, NOTE_NEVER, n->index, job, attempt)->text =
		xasprintf("%s didn't take it (%s)", n->name, text_in(msg, "op", "?"));
}

/* What is dropped here isn't acked: the next pass asks the node for it. */
static bool is_full(struct pass_node *n)
{
	bool full = n->pass->n_notes - n->pass->n_taken >= NOTES_WAITING_MAX;

	n->held->is_used_up |= full;
	return full;
}

void exchange_message(struct pass_node *n, const char *op, const json_t *msg)
{
	static const struct {
		const char *op;
		void (*take)(struct pass_node *n, const json_t *msg, int64_t job, int64_t attempt);
	} of_attempts[] = {{"claimed", on_claimed}, {"started", on_started}, {"ended", on_ended},
		{"refused", on_refused}, {"conflict", on_conflict}, {"other-root", on_not_taken},
		{"stale", on_not_taken}};
	bool is_lanes = lanes_message(n, op, msg);
	int64_t job, attempt;

	if (!is_lanes && !strcmp(op, "error")) {
		pass_say_error(n->pass, n->name, 0, "its agent refused a message: %.500s",
			text_in(msg, "text", "?"));
	} else if (!is_lanes && name_in(msg, &job, &attempt) && !is_full(n)) {
		for (size_t i = 0; i < sizeof(of_attempts) / sizeof(*of_attempts); i++)
			if (!strcmp(of_attempts[i].op, op))
				of_attempts[i].take(n, msg, job, attempt);
	}
	if (n->pass->is_held)
		held_news(n->pass);
}

/* ---- the table of protocol.md 5 ---- */

void note_give_up(const struct pass_node *n, const struct job *j, const char *why)
{
	note_add(n->pass, NOTE_NODE_LOST, n->index, j->id, j->attempt)->text =
		xasprintf("given up by a person while nobody could say what became of it: %s", why);
}

static const json_t *claim_of(const struct pass_node *n, int64_t job, int64_t attempt)
{
	char key[CLAIM_KEY_LEN];

	claim_key(job, attempt, key);
	return json_object_get(n->claims, key);
}

bool exchange_has_claim(const struct pass_node *n, int64_t job, int64_t attempt)
{
	return claim_of(n, job, attempt) != NULL;
}

bool exchange_has_started(const struct pass *p, int64_t job, int64_t attempt)
{
	for (size_t i = p->n_notes; i-- > 0;)
		if (p->notes[i].job == job && p->notes[i].attempt == attempt &&
			(p->notes[i].kind == NOTE_STARTED || p->notes[i].kind == NOTE_ENDED))
			return true;
	return false;
}

/* Nothing of that name there. Silence concludes nothing; that a root or a boot is another one does. */
static void judge_absence(struct pass_node *n, const struct job *j)
{
	const struct job_bind *b = &j->bind;
	bool is_same_root = !strcmp(b->root_id, n->hello.root_id);
	bool is_same_machine = !strcmp(b->machine_key, n->hello.machine_key);
	const char *why = !is_same_machine ? "another machine answers to that name now"
			  : is_same_root   ? "the node's record of it is gone"
					   : "the node's state directory is another one";

	if (flight_is_open(n->pass, j->id, j->attempt, n->held->asked_ms))
		return;
	if (is_same_root && j->state == JOB_STATE_PENDING)
		note_add(n->pass, NOTE_NEVER, n->index, j->id, j->attempt)->text =
			xasprintf("%s never had it", n->name);
	else if (is_same_machine && strcmp(b->boot_id, n->hello.boot_id) != 0)
		note_add(n->pass, NOTE_REBOOTED, n->index, j->id, j->attempt)->text = xasprintf(
			"%s was restarted under it, and its record went with that", n->name);
	else if (j->cancel_ms)
		note_give_up(n, j, why);
	else
		pass_say_error(n->pass, n->name, j->id,
			"what became of its attempt can't be known: %s. It keeps its memory; `job cancel` gives it up",
			why);
}

/* Its charges on all cards, from the agent's ledger. False: it's in none. */
static bool memory_of(const struct pass_node *n, int64_t job, int64_t attempt, int64_t *ret_now,
	int64_t *ret_peak)
{
	const char *queue = store_queue(n->pass->store);
	bool found = false;

	*ret_now = 0;
	*ret_peak = -1;
	for (uint32_t i = 0; i < n->sample.n_rows; i++) {
		const struct ledger_row *r = &n->sample.rows[i];

		if (r->name.job != (uint64_t)job || r->name.attempt != (uint64_t)attempt ||
			strcmp(r->name.queue, queue) != 0 || !r->is_sampled)
			continue;
		found = true;
		*ret_now += r->held_mib;
		if (r->peak_mib > *ret_peak)
			*ret_peak = r->peak_mib;
	}
	return found;
}

static bool is_news(int64_t now_mib, int64_t before_mib)
{
	int64_t step = now_mib - before_mib;

	return before_mib < 0 || step >= MEM_STEP_MIB || step <= -MEM_STEP_MIB ||
	       (!now_mib != !before_mib);
}

/* What is seen of one that runs: only what changed, or once a minute. A poll that finds nothing new writes nothing. */
static void look_at_running(struct pass_node *n, const struct job *j, const json_t *claim)
{
	const char *progress = text_in(claim, "progress", "");
	struct store_seen seen = {
		.heartbeat_ms = n->pass->now_ms, .gpu_mem_mib = -1, .peak_mib = -1};
	bool has_progress = *progress && (!j->progress || strcmp(j->progress, progress) != 0);
	bool is_old = n->pass->now_ms - j->heartbeat_ms >= HEARTBEAT_MS;
	struct note *note;

	if (memory_of(n, j->id, j->attempt, &seen.gpu_mem_mib, &seen.peak_mib))
		is_old |= is_news(seen.gpu_mem_mib, j->gpu_mem_mib);
	else
		seen.gpu_mem_mib = -1;
	if (!has_progress && !is_old)
		return;
	note = note_add(n->pass, NOTE_SEEN, n->index, j->id, j->attempt);
	note->seen = seen;
	note->text = has_progress ? xstrdup(progress) : NULL;
}

static void take_claim(struct pass_node *n, const struct job *j, const json_t *claim)
{
	const char *state = text_in(claim, "state", "");
	enum note_kind kind = !strcmp(state, "ended") ? NOTE_ENDED : NOTE_STARTED;

	if (strcmp(text_in(claim, "token", ""), j->bind.token) != 0) {
		note_add(n->pass, NOTE_CONFLICT, n->index, j->id, j->attempt);
		return;
	}
	if (kind == NOTE_ENDED || (!strcmp(state, "started") && j->state == JOB_STATE_PENDING))
		note_add(n->pass, kind, n->index, j->id, j->attempt)->msg =
			json_incref((json_t *)(uintptr_t)claim);
	if (!strcmp(state, "started"))
		look_at_running(n, j, claim);
}

static void send_stop(struct pass_node *n, int64_t job, int64_t attempt, int64_t grace_ms)
{
	link_send(n->link, json_pack("{s:s, s:I, s:I, s:s, s:I}", "op", "stop", "job",
				   (json_int_t)job, "attempt", (json_int_t)attempt, "reason",
				   "cancel", "grace_ms", (json_int_t)grace_ms));
}

void exchange_stop_wanted(struct pass_node *n, int64_t job, int64_t attempt)
{
	CLEANUP(job_done) struct job j = {0};
	struct err e;

	if (store_job(n->pass->store, job, &j, &e) < 0 || !j.cancel_ms || !j.is_bound ||
		j.attempt != attempt)
		return;
	send_stop(n, job, attempt,
		j.grace_ms >= 0 ? j.grace_ms : n->pass->config->settings.kill_grace_ms);
}

/* An attempt that was given up while its node was away: whatever of it runs has to end. */
static void reap(struct pass_node *n, const struct store_attempt *a)
{
	const json_t *claim = claim_of(n, a->job, a->attempt);
	const char *state = text_in(claim, "state", "");
	bool is_of_here = !strcmp(a->bind.root_id, n->hello.root_id) ||
			  (!strcmp(a->bind.machine_key, n->hello.machine_key) &&
				  strcmp(a->bind.boot_id, n->hello.boot_id) != 0);
	struct note *note;

	if (claim && strcmp(state, "ended") != 0) {
		send_stop(n, a->job, a->attempt, n->pass->config->settings.kill_grace_ms);
		return;
	}
	if (!claim && !is_of_here)
		return;
	note = note_add(n->pass, NOTE_REAPED, n->index, a->job, a->attempt);
	note->text = xasprintf(
		"%s is back, and nothing of attempt %" PRId64 " runs there", n->name, a->attempt);
	note->msg = claim ? json_incref((json_t *)(uintptr_t)claim) : NULL;
}

static int by_id(const void *key, const void *job)
{
	int64_t id = *(const int64_t *)key, other = ((const struct job *)job)->id;

	return id < other ? -1 : id > other;
}

static bool is_in_flight(const struct pass *p, int64_t job, int64_t attempt)
{
	const struct job *j =
		p->live.n ? bsearch(&job, p->live.v, p->live.n, sizeof(*p->live.v), by_id) : NULL;

	if (j && j->attempt == attempt)
		return true;
	for (size_t i = 0; i < p->reaps.n; i++)
		if (p->reaps.v[i].job == job && p->reaps.v[i].attempt == attempt)
			return true;
	return false;
}

/* Claims that this record has no open attempt for: settled and not yet acked, or of another course of time. */
static void take_strays(struct pass_node *n)
{
	const char *key;
	json_t *c;

	json_object_foreach(n->claims, key, c)
	{
		int64_t job, attempt;

		if (name_in(c, &job, &attempt) && !is_in_flight(n->pass, job, attempt))
			note_add(n->pass, NOTE_STRAY, n->index, job, attempt)->msg =
				json_incref((json_t *)(uintptr_t)c);
	}
}

static void read_node(struct pass_node *n)
{
	const struct pass *p = n->pass;

	for (size_t i = 0; i < p->live.n; i++) {
		const struct job *j = &p->live.v[i];
		const json_t *claim;

		if (!is_of_node(n, &j->bind))
			continue;
		claim = claim_of(n, j->id, j->attempt);
		if (claim)
			take_claim(n, j, claim);
		else if (!lanes_have(n, j->id, j->attempt))
			judge_absence(n, j);
	}
	for (size_t i = 0; i < p->reaps.n; i++)
		if (is_of_node(n, &p->reaps.v[i].bind))
			reap(n, &p->reaps.v[i]);
	take_strays(n);
}

void exchange_read(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++)
		if (node_answers(&p->nodes[i]))
			read_node(&p->nodes[i]);
}

void exchange_stops(struct pass *p)
{
	for (size_t i = 0; i < p->live.n; i++) {
		const struct job *j = &p->live.v[i];
		struct pass_node *n = pass_node_of(p, &j->bind);
		const json_t *claim;

		if (!j->cancel_ms || !n || !node_answers(n))
			continue;
		claim = claim_of(n, j->id, j->attempt);
		if (!claim || !strcmp(text_in(claim, "state", ""), "ended"))
			continue;
		send_stop(n, j->id, j->attempt,
			j->grace_ms >= 0 ? j->grace_ms : p->config->settings.kill_grace_ms);
		/* One that takes its time is looked at again by the next pass. */
		p->n_stops += p->now_ms - j->cancel_ms < STOP_NEWS_MS;
	}
}
