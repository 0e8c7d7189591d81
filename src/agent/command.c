/*
 * The dispatcher. A table says what each command needs: a hello, a fence, no launch of the same link still undecided
 * (an observe or a stop must not call absent what is about to start). A bad message is answered with `error` and
 * changes nothing; only broken framing closes the link.
 */
#include "agent/command.h"

#include "agent/answer.h"
#include "agent/facts_of_end.h"
#include "agent/files.h"
#include "agent/job_remove.h"
#include "agent/job_spec.h"
#include "agent/lane_command.h"
#include "agent/lanes.h"
#include "agent/release.h"
#include "agent/server.h"
#include "agent/signal.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOBS_MAX 10000
#define OBSERVED_STEP 1000 /* claims in one message */
#define OBSERVED_BYTES \
	(WIRE_JSON_MAX / 2) /* facts may be large; whoever passes this is the last in his message */

/* An observe waits so long for what jobs say of themselves; then what was read before will do. */
#define FACTS_MS 2000

enum {
	NEEDS_HELLO = 1,
	NEEDS_FENCE = 2,
	WAITS_FOR_LAUNCH = 4,
	NAMES_ID = 8,
	WAITS_FOR_FACTS = 16,
};

static int name_of(const struct client *c, int64_t job, int64_t attempt, struct attempt_name *ret)
{
	if (job < 1 || attempt < 1 || attempt > UINT32_MAX)
		return -EINVAL;
	*ret = (struct attempt_name){.job = (uint64_t)job, .attempt = (uint32_t)attempt};
	memcpy(ret->queue, c->queue, sizeof(ret->queue));
	return 0;
}

/* [job, attempt] */
static int pair_of(const struct client *c, const json_t *pair, struct attempt_name *ret)
{
	const json_t *job = json_array_get(pair, 0), *attempt = json_array_get(pair, 1);

	if (!json_is_integer(job) || !json_is_integer(attempt))
		return -EINVAL;
	return name_of(c, json_integer_value(job), json_integer_value(attempt), ret);
}

static bool is_id(const char *s)
{
	return strlen(s) == ID_LEN - 1 && strspn(s, "0123456789abcdef") == ID_LEN - 1;
}

/* ---- hello ---- */

static int fence_of(const json_t *msg, struct fence *ret, struct err *e)
{
	const json_t *f = json_object_get(msg, "fence");

	for (size_t i = 0; i < 3; i++) {
		const json_t *v = json_array_get(f, i);

		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return err_set(
				e, -EINVAL, "a controller's \"fence\" must be three numbers");
		ret->v[i] = (uint64_t)json_integer_value(v);
	}
	return 0;
}

/* The link that commanded this queue until now hears why it's closed. */
static void close_older(struct agent *a, const struct client *newer, const struct fence *highest)
{
	for (size_t i = 0; i < a->n_clients; i++) {
		struct client *c = a->clients[i];

		if (c == newer || c->is_closing || strcmp(c->queue, newer->queue) != 0)
			continue;
		answer_stale(c, highest, NULL);
		c->is_closing = true;
	}
}

static int take_command(struct agent *a, struct client *c, const char *queue,
	const struct fence *fence, struct err *e)
{
	struct fence highest;
	int r = fences_highest(&a->fences, queue, &highest, e);

	if (r)
		return r;
	if (fences_raise(&a->fences, queue, fence, e)) {
		answer_stale(c, &highest, NULL);
		c->is_closing = true;
		return -ESTALE;
	}
	memcpy(c->queue, queue, ID_LEN);
	c->fence = *fence;
	close_older(a, c, fence);
	return 0;
}

static int on_hello(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	char queue[ID_LEN];
	struct fence fence;
	int64_t protocol;
	int r;

	if (c->has_hello)
		return err_set(e, -EINVAL, "a link says hello once");
	r = wire_int(msg, "protocol", 1, INT32_MAX, &protocol, e);
	if (!r)
		r = wire_str(msg, "who", c->who, sizeof(c->who), e);
	if (r)
		return r;
	if (protocol != WIRE_PROTOCOL)
		return err_set(e, -EPROTO, "this agent speaks protocol %d, not %lld", WIRE_PROTOCOL,
			(long long)protocol);
	if (json_object_get(msg, "queue")) {
		r = wire_str(msg, "queue", queue, sizeof(queue), e);
		if (!r && !is_id(queue))
			r = err_set(e, -EINVAL,
				"the message's \"queue\" must be 32 lower-case hex digits");
		if (!r)
			r = fence_of(msg, &fence, e);
		if (!r)
			r = take_command(a, c, queue, &fence, e);
		if (r)
			return r == -ESTALE ? 0 : r;
	}
	c->has_hello = true;
	answer_hello(a, c);
	return 0;
}

/* ---- samples ---- */

static int on_watch(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	int64_t ms;
	int r = wire_int(msg, "interval_ms", 0, 60000, &ms, e);

	if (r)
		return r;
	if (ms && ms < 100)
		return err_set(e, -EINVAL,
			"the message's \"interval_ms\" must lie in 100 to 60000, or be 0");
	c->watches_details = json_is_true(json_object_get(msg, "details"));
	c->watches_profiling =
		c->watches_details && json_is_true(json_object_get(msg, "profiling"));
	c->takes_base = c->watches_details && json_is_true(json_object_get(msg, "base"));
	c->may_slow = json_is_true(json_object_get(msg, "may_slow"));
	c->watch_ms = ms;
	c->due_ms = a->now_ms;
	/* Figures of profiling are of looks that were made for them: what was seen before doesn't count. */
	c->seen_number = c->watches_profiling ? ledger_number(a->ledger) : 0;
	return 0;
}

static int on_sample(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	bool details = json_is_true(json_object_get(msg, "details"));
	int64_t id;
	int r = wire_int(msg, "id", INT64_MIN, INT64_MAX, &id, e);

	if (r)
		return r;
	if (c->n_wants == CLIENT_WANTS_MAX)
		return err_set(
			e, -EBUSY, "%d samples are being waited for already", CLIENT_WANTS_MAX);
	c->wants[c->n_wants++] = (struct sample_want){
		.id = id,
		.number = details ? sampler_ask_as(a->sampler, a->now_ms, SAMPLER_LOOKS)
				  : agent_ask_sample(a),
		.details = details,
	};
	return 0;
}

/* ---- launch ---- */

static void specs_free(struct claim_spec *specs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		claim_spec_done(&specs[i]);
	free(specs);
}

/* All or nothing: a message with one bad job starts none. */
static int launch_specs(struct agent *a, const struct client *c, const json_t *msg,
	struct claim_spec **ret, size_t *ret_n, struct err *e)
{
	const json_t *jobs = json_object_get(msg, "jobs");
	json_t *shared = json_object_get(msg, "env");
	size_t n = json_array_size(jobs);
	struct claim_spec *specs;

	if (!json_is_array(jobs) || !n || n > JOBS_MAX)
		return err_set(e, -EINVAL, "the message's \"jobs\" must be a list of 1 to %d jobs",
			JOBS_MAX);
	if (shared && !json_is_array(shared))
		return err_set(e, -EINVAL, "the message's \"env\" must be a list");
	specs = xcalloc(n, sizeof(*specs));
	for (size_t i = 0; i < n; i++) {
		int r = job_spec(a, c->queue, json_array_get(jobs, i), shared, &specs[i], e);

		if (r) {
			specs_free(specs, i);
			return r;
		}
	}
	*ret = specs;
	*ret_n = n;
	return 0;
}

static int on_launch(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	char root_id[ID_LEN];
	struct claim_spec *specs = NULL;
	size_t n = 0;
	int r = wire_str(msg, "root_id", root_id, sizeof(root_id), e);

	if (!r)
		r = launch_specs(a, c, msg, &specs, &n, e);
	if (r)
		return r;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(root_id, a->root.id) != 0) {
			answer_other_root(c, &specs[i].name, a->root.id);
			continue;
		}
		c->n_launching++;
		if (specs[i].dir)
			launch_hall_add(a, c->id, &specs[i]);
		else
			launch_add(a, c->id, &specs[i]);
	}
	specs_free(specs, n);
	return 0;
}

/* ---- observe, stop, ack ---- */

static json_t *observed_message(const struct agent *a, const json_t *msg)
{
	json_t *id = json_object_get(msg, "id");

	return json_pack("{s:s, s:O, s:s, s:s, s:[], s:[]}", "op", "observed", "id", id, "root_id",
		a->root.id, "boot_id", a->attempts.boot_id, "claims", "lanes");
}

/* Sends what is there once it's many; all but the last message say that more follow. */
static void observed_add(const struct agent *a, struct client *c, const json_t *msg, json_t **out,
	size_t *size, const char *key, json_t *item)
{
	json_t *list = json_object_get(*out, key);
	size_t bytes = json_dumpb(item, NULL, 0, JSON_COMPACT);

	*size += bytes;
	if (json_array_size(list) == OBSERVED_STEP || (*size > OBSERVED_BYTES && *size > bytes)) {
		*size = bytes;
		json_object_set_new(*out, "more", json_true());
		client_send(c, *out);
		*out = observed_message(a, msg);
		list = json_object_get(*out, key);
	}
	json_array_append_new(list, item);
}

static int on_observe(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	const json_t *want = json_object_get(msg, "want");
	struct attempt_name n;
	struct attempt_end end;
	char token[ID_LEN];
	size_t size = 0;
	json_t *out;

	if (!json_is_integer(json_object_get(msg, "id")))
		return err_set(e, -EINVAL, "the message's \"id\" must be a number");
	attempts_look_all(&a->attempts, a->now_ms);
	out = observed_message(a, msg);
	for (size_t i = 0; i < a->attempts.n; i++)
		if (!strcmp(a->attempts.items[i]->name.queue, c->queue))
			observed_add(a, c, msg, &out, &size, "claims",
				observed_claim(a->attempts.items[i]));
	for (size_t i = 0; i < json_array_size(want); i++)
		if (!pair_of(c, json_array_get(want, i), &n) && !attempts_find(&a->attempts, &n) &&
			!retired_find(a->retired, &n, token, &end))
			observed_add(a, c, msg, &out, &size, "claims",
				observed_retired(&n, token, &end));
	for (size_t i = 0; i < lanes_count(a); i++)
		if (!strcmp(lanes_at(a, i)->queue, c->queue))
			observed_add(
				a, c, msg, &out, &size, "lanes", lane_encode(a, lanes_at(a, i)));
	client_send(c, out);
	return 0;
}

static int on_stop(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	struct attempt_name n = {0};
	struct attempt_end end;
	struct attempt *at;
	char word[16], token[ID_LEN];
	enum stop_reason why;
	int64_t job, attempt, grace_ms;
	json_t *answer;
	int r;

	if ((r = wire_int(msg, "job", 1, INT64_MAX, &job, e)) ||
		(r = wire_int(msg, "attempt", 1, UINT32_MAX, &attempt, e)) ||
		(r = wire_int(msg, "grace_ms", 0, INT32_MAX, &grace_ms, e)) ||
		(r = wire_str(msg, "reason", word, sizeof(word), e)))
		return r;
	if (stop_reason_from_name(word, &why) || (why != STOP_CANCEL && why != STOP_SHUTDOWN))
		return err_set(
			e, -EINVAL, "the message's \"reason\" must be \"cancel\" or \"shutdown\"");
	name_of(c, job, attempt, &n);
	at = attempts_find(&a->attempts, &n);
	if (at) {
		r = attempts_stop(&a->attempts, at, why, grace_ms, a->now_ms);
		if (r)
			return err_sys(e, r, "job %lld can't be told to stop", (long long)job);
	}
	/* One that waits in a lane is out of it, durably, before the answer says that it never starts. */
	while (!at && !r && lanes_waiting(a, &n))
		r = lanes_take_out(a, &n, e);
	if (!at && r)
		return err_wrap(e, r, "job %lld can't be taken out of its lane", (long long)job);
	if (!at && retired_find(a->retired, &n, token, &end)) {
		client_send(c, message_of("none", &n));
		return 0;
	}
	answer = message_of("stopping", &n);
	json_object_set_new(answer, "state",
		json_string(attempt_state_name(at ? at->rec.state : ATTEMPT_ENDED)));
	client_send(c, answer);
	return 0;
}

static int on_ack(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	const json_t *jobs = json_object_get(msg, "jobs");
	struct attempt_name name;
	size_t n = 0;

	if (!json_is_array(jobs))
		return err_set(e, -EINVAL, "the message's \"jobs\" must be a list");
	for (size_t i = 0; i < json_array_size(jobs); i++) {
		struct attempt *at = pair_of(c, json_array_get(jobs, i), &name)
					     ? NULL
					     : attempts_find(&a->attempts, &name);

		if (!at || at->rec.state != ATTEMPT_ENDED)
			continue;
		at->is_acked = true;
		/* While its shim is there it isn't over; that it goes is told later (agent_attempt_changed). */
		n += !at->is_watched;
	}
	if (n)
		agent_retire_soon(a, n);
	return 0;
}

/* ---- the rest ---- */

static int on_yield(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	int64_t build;
	int r = wire_int(msg, "build", 0, INT64_MAX, &build, e);

	if (r)
		return r;
	if (build > GPUSTOW_BUILD)
		a->leaving = "yield";
	else
		client_send(c, json_pack("{s:s}", "op", "no"));
	return 0;
}

static int on_release(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	bool is_forced = false;
	int r = json_object_get(msg, "force") ? wire_bool(msg, "force", &is_forced, e) : 0;

	if (r)
		return r;
	release_ask(a, c, is_forced);
	return 0;
}

static int on_resume(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	release_resume(a, c);
	client_send(c, json_pack("{s:s}", "op", "resumed"));
	return 0;
}

static int on_ping(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	c->has_pinged = true;
	client_send(c, json_pack("{s:s}", "op", "pong"));
	return 0;
}

static const struct command {
	const char *op;
	int needs;
	int (*run)(struct agent *a, struct client *c, const json_t *msg, struct err *e);
} commands[] = {
	{"hello", WAITS_FOR_LAUNCH, on_hello},
	{"watch", NEEDS_HELLO, on_watch},
	{"sample", NEEDS_HELLO, on_sample},
	{"launch", NEEDS_HELLO | NEEDS_FENCE, on_launch},
	{"lane", NEEDS_HELLO | NEEDS_FENCE | WAITS_FOR_LAUNCH | NAMES_ID, lane_command},
	{"observe", NEEDS_HELLO | NEEDS_FENCE | WAITS_FOR_LAUNCH | WAITS_FOR_FACTS, on_observe},
	{"stop", NEEDS_HELLO | NEEDS_FENCE | WAITS_FOR_LAUNCH, on_stop},
	{"ack", NEEDS_HELLO | NEEDS_FENCE | WAITS_FOR_LAUNCH, on_ack},
	{"remove", NEEDS_HELLO | NEEDS_FENCE | WAITS_FOR_LAUNCH | NAMES_ID, job_remove},
	{"release", NEEDS_HELLO, on_release},
	{"resume", NEEDS_HELLO, on_resume},
	{"stage", NEEDS_HELLO | NEEDS_FENCE | NAMES_ID, files_stage},
	{"file", NEEDS_HELLO | WAITS_FOR_LAUNCH | NAMES_ID, files_open},
	{"credit", NEEDS_HELLO, files_credit},
	{"close", NEEDS_HELLO, files_close},
	{"signal", NEEDS_HELLO | NAMES_ID, signal_send},
	{"yield", WAITS_FOR_LAUNCH, on_yield},
	{"ping", 0, on_ping},
};

static const struct command *find_command(const json_t *msg)
{
	const char *op = json_string_value(json_object_get(msg, "op"));

	for (size_t i = 0; op && i < ARRAY_LEN(commands); i++)
		if (!strcmp(commands[i].op, op))
			return &commands[i];
	return NULL;
}

/* What binds is said only under a fence that's on disk; without that the link is of no use. */
static int check_fence(struct agent *a, struct client *c, struct err *e)
{
	int r;

	if (!c->queue[0])
		return err_set(e, -EPERM,
			"only a controller may do that: its hello names a queue and a fence");
	r = fences_store(&a->fences, c->queue, e);
	if (r)
		c->is_closing = true;
	return r;
}

static void obey(struct agent *a, struct client *c, const struct command *cmd, const json_t *msg)
{
	const json_t *id = json_object_get(msg, "id");
	struct err e = {0};
	int r = 0;

	if ((cmd->needs & NEEDS_HELLO) && !c->has_hello)
		r = err_set(&e, -EPERM, "\"%s\" comes after a hello", cmd->op);
	if (!r && (cmd->needs & NEEDS_FENCE))
		r = check_fence(a, c, &e);
	if (!r)
		r = cmd->run(a, c, msg, &e);
	if (r && (cmd->needs & NAMES_ID) && json_is_integer(id))
		client_error_of(c, json_integer_value(id), e.text);
	else if (r)
		client_error(c, e.text);
	if (r == -EPROTO)
		c->is_closing = true;
}

/* The next message: the held one, or one off the input, after the pieces of streams before it. NULL when there's none. */
static json_t *next_message(struct agent *a, struct client *c)
{
	CLEANUP(wire_frame_done) struct wire_frame f = {0};
	struct err e = {0};
	int r;

	if (c->held)
		return TAKE_PTR(c->held);
	while ((r = wire_get(&c->in, &f, &e)) > 0 && f.kind == WIRE_BULK)
		files_bulk(a, c, f.stream, f.bytes.data, f.bytes.len);
	if (r < 0) {
		client_error(c, e.text);
		c->is_closing = true;
	}
	return TAKE_PTR(f.msg);
}

static bool has_facts(struct agent *a, struct client *c)
{
	if (!c->facts_until_ms) {
		facts_refresh(a, c->queue);
		c->facts_until_ms = a->now_ms + FACTS_MS;
	}
	if (a->now_ms < c->facts_until_ms && !facts_are_fresh(a, c->queue))
		return false;
	c->facts_until_ms = 0;
	return true;
}

static bool must_wait(struct agent *a, struct client *c, const struct command *cmd)
{
	if ((cmd->needs & WAITS_FOR_LAUNCH) && c->n_launching)
		return true;
	return (cmd->needs & WAITS_FOR_FACTS) && c->queue[0] && !has_facts(a, c);
}

void command_read(struct agent *a, struct client *c)
{
	json_t *msg;

	while (!c->is_closing && !a->leaving && (msg = next_message(a, c))) {
		const struct command *cmd = find_command(msg);

		if (cmd && must_wait(a, c, cmd)) {
			c->held = msg;
			return;
		}
		/* An op that isn't known comes from a newer build, and is passed over. */
		if (cmd)
			obey(a, c, cmd, msg);
		json_decref(msg);
	}
}
