/*
 * The `lane` message: a document of one or several parts, put together, compared with what is stored, stored, answered. All
 * or nothing: a part that won't do ends its document, and nothing of it counts.
 */
#include "agent/lane_command.h"

#include "agent/answer.h"
#include "agent/job_spec.h"
#include "agent/lanes.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/job.h"
#include "core/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX 10000

struct draft {
	uint64_t client;
	int64_t id, parts; /* parts: how many have come */
	struct lane lane; /* its entries are those that came whole, in no order */
	struct claim_card *cards; /* the lane's; no entry has others */
	size_t n_cards;
};

struct lane_drafts {
	struct draft *items;
	size_t n, cap;
};

struct lane_drafts *lane_drafts_new(void)
{
	return xcalloc(1, sizeof(struct lane_drafts));
}

static void drop(struct lane_drafts *x, size_t i)
{
	lane_done(&x->items[i].lane);
	free(x->items[i].cards);
	x->items[i] = x->items[--x->n];
}

void lane_drafts_free(struct lane_drafts *x)
{
	while (x && x->n)
		drop(x, 0);
	if (x)
		free(x->items);
	free(x);
}

void lane_drafts_sweep(struct agent *a)
{
	for (size_t i = a->lane_drafts->n; i-- > 0;)
		if (!agent_find_client(a, a->lane_drafts->items[i].client))
			drop(a->lane_drafts, i);
}

static struct draft *find_draft(struct lane_drafts *x, uint64_t client)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->items[i].client == client)
			return &x->items[i];
	return NULL;
}

static void drop_draft(struct lane_drafts *x, const struct draft *d)
{
	if (d)
		drop(x, (size_t)(d - x->items));
}

/* ---- what is told ---- */

static json_t *encode_states(const struct agent *a, const struct lane *l)
{
	json_t *out = json_array();

	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(
			out, json_pack("[I, I, s]", (json_int_t)l->entries[i].name.job,
				     (json_int_t)l->entries[i].name.attempt,
				     lanes_entry_state(a, &l->entries[i])));
	return out;
}

static json_t *encode_queued(const struct lane *l)
{
	json_t *out = json_array();

	for (size_t i = 0; i < l->n; i++)
		if (l->entries[i].state == LANE_WAITING)
			json_array_append_new(
				out, json_pack("[I, I, I]", (json_int_t)l->entries[i].name.job,
					     (json_int_t)l->entries[i].name.attempt,
					     (json_int_t)l->entries[i].grace_ms));
	return out;
}

/* Of the next one: what holds for it holds for those behind it. */
static json_t *encode_dir(const struct lane *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->entries[i].state == LANE_WAITING)
			return l->entries[i].dir ? json_string(l->entries[i].dir) : json_null();
	return json_null();
}

json_t *lane_encode(struct agent *a, const struct lane *l)
{
	json_t *why = lanes_waits(a, l);
	const char *text = json_string_value(json_object_get(why, "text"));
	json_t *o = json_pack("{s:s, s:I, s:I, s:i, s:b, s:o, s:s}", "name", l->name, "incarnation",
		(json_int_t)l->fence.v[0], "generation", (json_int_t)l->generation, "concurrency",
		(int)l->concurrency, "paused", l->paused, "queued", encode_queued(l), "waits",
		text ? text : "");

	if (why)
		json_object_set_new(o, "why", why);
	json_object_set_new(
		o, "policy", l->has_policy ? claim_policy_encode(&l->policy) : json_null());
	json_object_set_new(o, "dir", encode_dir(l));
	return o;
}

/* What became of one that a lane doesn't list. "none" binds, so whatever might be a claim isn't none. */
static const char *fate_of(const struct agent *a, const struct attempt_name *n)
{
	const struct attempt *at = attempts_find(&a->attempts, n);
	struct attempt_end end;
	char token[ID_LEN];
	CLEANUP_CLOSE int fd = -1;

	if (at)
		return attempt_state_name(at->rec.state);
	if (!retired_find(a->retired, n, token, &end))
		return "ended";
	if (lanes_waiting(a, n))
		return "queued";
	fd = claim_open(&a->root, n);
	return fd == -ENOENT ? "none" : "claimed";
}

static void add_gone(const struct agent *a, json_t *gone, const struct attempt_name *n)
{
	json_array_append_new(gone,
		json_pack("[I, I, s]", (json_int_t)n->job, (json_int_t)n->attempt, fate_of(a, n)));
}

static void add_wanted(const struct agent *a, const struct client *c, const struct lane *l,
	const json_t *want, json_t *gone)
{
	for (size_t i = 0; i < json_array_size(want) && i < LANE_ENTRIES_MAX; i++) {
		const json_t *v = json_array_get(want, i);
		json_int_t job = json_integer_value(json_array_get(v, 0)),
			   attempt = json_integer_value(json_array_get(v, 1));
		struct attempt_name n = {.job = (uint64_t)job, .attempt = (uint32_t)attempt};

		memcpy(n.queue, c->queue, ID_LEN);
		if (job > 0 && attempt > 0 && attempt <= UINT32_MAX && lane_find(l, &n) < 0)
			add_gone(a, gone, &n);
	}
}

static void answer_lane(struct agent *a, struct client *c, const struct draft *d,
	const struct lane_ref *gone, size_t n_gone, const json_t *want)
{
	const struct lane *l = lanes_find(a, d->lane.queue, d->lane.name);
	json_t *msg = lane_encode(a, l), *list = json_array();

	for (size_t i = 0; i < n_gone; i++)
		add_gone(a, list, &gone[i].name);
	add_wanted(a, c, l, want, list);
	json_object_set_new(msg, "states", encode_states(a, l));
	json_object_set_new(msg, "op", json_string("lane"));
	json_object_set_new(msg, "id", json_integer(d->id));
	json_object_set_new(msg, "gone", list);
	client_send(c, msg);
}

static void answer_lacks(struct client *c, const struct draft *d, json_t *jobs)
{
	client_send(c, json_pack("{s:s, s:I, s:s, s:o}", "op", "lane-lacks", "id",
			       (json_int_t)d->id, "name", d->lane.name, "jobs", jobs));
}

/* ---- one entry ---- */

/* [job, attempt or 0 for any, "ok" or "end"] */
static int need_of(const json_t *row, struct lane_need *ret)
{
	json_int_t job = json_integer_value(json_array_get(row, 0)),
		   attempt = json_integer_value(json_array_get(row, 1));
	const char *when = json_string_value(json_array_get(row, 2));

	if (job < 1 || attempt < 0 || attempt > UINT32_MAX ||
		!json_is_integer(json_array_get(row, 1)) || !when ||
		(strcmp(when, "ok") != 0 && strcmp(when, "end") != 0))
		return -EINVAL;
	*ret = (struct lane_need){
		.job = (uint64_t)job, .attempt = (uint32_t)attempt, .ok = !strcmp(when, "ok")};
	return 0;
}

static int needs_of(const json_t *entry, struct lane_need **ret, size_t *ret_n, struct err *e)
{
	const json_t *list = json_object_get(entry, "needs");
	size_t n = json_array_size(list);
	CLEANUP_FREE struct lane_need *needs = xcalloc(n + 1, sizeof(*needs));

	if (list && (!json_is_array(list) || n > LANE_NEEDS_MAX))
		return err_set(
			e, -EINVAL, "\"needs\" must be a list of at most %d", LANE_NEEDS_MAX);
	for (size_t i = 0; i < n; i++)
		if (need_of(json_array_get(list, i), &needs[i]))
			return err_set(e, -EINVAL,
				"each of \"needs\" must be [job, attempt or 0, \"ok\" or \"end\"]");
	*ret = TAKE_PTR(needs);
	*ret_n = n;
	return 0;
}

/* The text that was sent ahead becomes the lane's own: a stage is swept after an hour. 1: it isn't here. */
static int take_staged(const struct agent *a, struct claim_spec *s, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	char path[ID_LEN + 16];
	int r;

	snprintf(path, sizeof(path), "new/%s/body", s->token);
	r = fd_read_file_at(a->root.fd, path, &b, JOB_TEXT_MAX);
	if (r == -ENOENT)
		return 1;
	if (r)
		return err_sys(e, r, "cannot read %s/%s", a->root.path, path);
	if (b.len && memchr(b.data, '\0', b.len))
		return err_set(e, -EINVAL, "the text of a job in a lane must not have NUL bytes");
	s->is_staged = false;
	s->body = xstrdup(buf_str(&b));
	return 0;
}

static int check_cards(const struct draft *d, const struct claim_spec *s, struct err *e)
{
	for (uint32_t i = 0; i < s->n_cards; i++) {
		size_t k = 0;

		while (k < d->n_cards && strcmp(d->cards[k].uuid, s->cards[i].uuid) != 0)
			k++;
		if (k == d->n_cards)
			return err_set(e, -EINVAL,
				"job %llu is for card %s, which isn't the lane's",
				(unsigned long long)s->name.job, s->cards[i].uuid);
	}
	return 0;
}

static int add_entry(struct agent *a, struct client *c, struct draft *d, const json_t *entry,
	json_t *env, struct err *e)
{
	CLEANUP(claim_spec_done) struct claim_spec s = {0};
	CLEANUP_FREE struct lane_need *needs = NULL;
	size_t n = 0;
	int r = needs_of(entry, &needs, &n, e);

	if (!r)
		r = job_spec(a, c->queue, entry, env, &s, e);
	if (!r)
		r = check_cards(d, &s, e);
	if (!r && lane_find(&d->lane, &s.name) >= 0)
		r = err_set(e, -EINVAL, "job %llu is there twice", (unsigned long long)s.name.job);
	if (!r && s.is_staged)
		r = take_staged(a, &s, e);
	/* Its text isn't here: as good as not sent. */
	if (r > 0)
		return 0;
	if (!r && lane_add(&d->lane, &s, needs, n))
		r = err_set(e, -EINVAL, "the entry can't be written down");
	return r;
}

static int add_entries(
	struct agent *a, struct client *c, struct draft *d, const json_t *msg, struct err *e)
{
	const json_t *entries = json_object_get(msg, "entries");
	json_t *env = json_object_get(msg, "env");

	if ((entries && !json_is_array(entries)) || (env && !json_is_array(env)))
		return err_set(e, -EINVAL, "the message's \"entries\" and \"env\" must be lists");
	if (json_array_size(entries) + d->lane.n > LANE_ENTRIES_MAX)
		return err_set(e, -E2BIG, "a lane has at most %d entries", LANE_ENTRIES_MAX);
	for (size_t i = 0; i < json_array_size(entries); i++) {
		int r = add_entry(a, c, d, json_array_get(entries, i), env, e);

		if (r)
			return err_wrap(e, r, "entry %zu", i + 1);
	}
	if (lane_size(&d->lane) > LANE_BYTES_MAX)
		return err_set(e, -E2BIG, "a lane has at most %d MiB of jobs",
			LANE_BYTES_MAX / (1024 * 1024));
	return 0;
}

/* [job, attempt, token] */
static int name_of(
	const struct client *c, const json_t *row, struct attempt_name *ret, const char **ret_token)
{
	json_int_t job = json_integer_value(json_array_get(row, 0)),
		   attempt = json_integer_value(json_array_get(row, 1));

	*ret_token = json_string_value(json_array_get(row, 2));
	if (job < 1 || attempt < 1 || attempt > UINT32_MAX || !*ret_token ||
		!id_is_valid(*ret_token))
		return -EINVAL;
	*ret = (struct attempt_name){.job = (uint64_t)job, .attempt = (uint32_t)attempt};
	memcpy(ret->queue, c->queue, ID_LEN);
	return 0;
}

/* From what came whole, else from what the lane has. 1: neither has it. */
static int order_one(struct agent *a, const struct draft *d, const struct lane *old,
	const struct attempt_name *n, const char *token, struct lane *ret, struct err *e)
{
	const struct lane *from[] = {&d->lane, old};

	if (lane_find(ret, n) >= 0)
		return err_set(e, -EINVAL, "the message's \"order\" has job %llu twice",
			(unsigned long long)n->job);
	for (size_t i = 0; i < ARRAY_LEN(from); i++) {
		ssize_t at = from[i] ? lane_find(from[i], n) : -1;

		if (at >= 0 && !strcmp(from[i]->entries[at].token, token))
			return lane_add_from(&a->root, ret, from[i], (size_t)at, e);
	}
	return 1;
}

/* Fills *ret by the message's order; what is neither there nor here goes into `lacks`. */
static int put_in_order(struct agent *a, const struct client *c, const struct draft *d,
	const json_t *order, struct lane *ret, json_t *lacks, struct err *e)
{
	const struct lane *old = lanes_find(a, d->lane.queue, d->lane.name);

	if (!json_is_array(order) || json_array_size(order) > LANE_ENTRIES_MAX)
		return err_set(e, -EINVAL,
			"the message's \"order\" must be a list of at most %d entries",
			LANE_ENTRIES_MAX);
	for (size_t i = 0; i < json_array_size(order); i++) {
		struct attempt_name n;
		const char *token;
		int r;

		if (name_of(c, json_array_get(order, i), &n, &token))
			return err_set(e, -EINVAL,
				"each of the message's \"order\" must be [job, attempt, token]");
		r = order_one(a, d, old, &n, token, ret, e);
		if (r < 0)
			return r;
		if (r)
			json_array_append_new(lacks,
				json_pack("[I, I]", (json_int_t)n.job, (json_int_t)n.attempt));
	}
	return lane_size(ret) > LANE_BYTES_MAX
		       ? err_set(e, -E2BIG, "a lane has at most %d MiB of jobs",
				 LANE_BYTES_MAX / (1024 * 1024))
		       : 0;
}

/* ---- the document ---- */

static int cards_of(const json_t *msg, struct draft *d, struct err *e)
{
	const json_t *list = json_object_get(msg, "cards");
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n > CLAIM_CARDS_MAX)
		return err_set(e, -EINVAL, "the message's \"cards\" must be a list of at most %d",
			CLAIM_CARDS_MAX);
	for (size_t i = 0; i < n; i++) {
		const char *uuid = json_string_value(json_array_get(list, i));

		if (!uuid || strlen(uuid) >= sizeof(d->cards[0].uuid))
			return err_set(e, -EINVAL, "each of \"cards\" must be a card's UUID");
	}
	d->cards = xcalloc(n + 1, sizeof(*d->cards));
	d->n_cards = n;
	for (size_t i = 0; i < n; i++)
		snprintf(d->cards[i].uuid, sizeof(d->cards[i].uuid), "%s",
			json_string_value(json_array_get(list, i)));
	return 0;
}

static int head_of(const struct client *c, const json_t *msg, struct draft *ret, int64_t *ret_part,
	struct err *e)
{
	const json_t *name = json_object_get(msg, "name");
	int64_t generation, concurrency = 1;
	int r = wire_int(msg, "id", INT64_MIN, INT64_MAX, &ret->id, e);

	if (!r)
		r = wire_int(msg, "generation", 1, INT64_MAX, &generation, e);
	if (!r && json_object_get(msg, "concurrency"))
		r = wire_int(msg, "concurrency", 1, LANE_CONCURRENCY_MAX, &concurrency, e);
	if (!r && json_object_get(msg, "paused"))
		r = wire_bool(msg, "paused", &ret->lane.paused, e);
	ret->lane.has_policy = json_object_get(msg, "policy") != NULL;
	if (!r && ret->lane.has_policy)
		r = claim_policy_decode(json_object_get(msg, "policy"), &ret->lane.policy, e);
	if (!r && json_object_get(msg, "part"))
		r = wire_int(msg, "part", 0, PARTS_MAX, ret_part, e);
	if (r)
		return r;
	if (!json_is_string(name) ||
		!lane_name_is_valid(json_string_value(name), json_string_length(name)))
		return err_set(e, -EINVAL,
			"the message's \"name\" must be one of 1 to %d bytes without control characters",
			LANE_NAME_MAX);
	memcpy(ret->lane.name, json_string_value(name), json_string_length(name) + 1);
	memcpy(ret->lane.queue, c->queue, ID_LEN);
	ret->lane.fence = c->fence;
	ret->lane.generation = (uint64_t)generation;
	ret->lane.concurrency = (uint32_t)concurrency;
	ret->client = c->id;
	return cards_of(msg, ret, e);
}

/* The draft that this part belongs to: a new one for the first. */
static int draft_of(
	struct agent *a, struct client *c, const json_t *msg, struct draft **ret, struct err *e)
{
	struct lane_drafts *x = a->lane_drafts;
	struct draft *d = find_draft(x, c->id), head = {0};
	int64_t part = 0;
	int r = head_of(c, msg, &head, &part, e);

	if (!r && part &&
		(!d || d->id != head.id || d->parts != part ||
			strcmp(d->lane.name, head.lane.name) != 0 ||
			d->lane.generation != head.lane.generation))
		r = err_set(e, -EINVAL,
			"part %lld of this lane doesn't follow what came before it: send it whole",
			(long long)part);
	if (r || !part) {
		drop_draft(x, d);
		d = NULL;
	}
	if (r || d)
		free(head.cards);
	if (r)
		return r;
	if (!d) {
		GROW(x->items, x->n, x->cap);
		x->items[x->n] = head;
		d = &x->items[x->n++];
	}
	d->parts++;
	*ret = d;
	return 0;
}

/* Those that the stored lane lists and this document doesn't. */
static size_t gone_of(const struct lane *old, const struct lane *l, struct lane_ref *ret)
{
	size_t n = 0;

	for (size_t i = 0; old && i < old->n; i++) {
		ssize_t at = lane_find(l, &old->entries[i].name);

		if (at >= 0)
			continue;
		ret[n].name = old->entries[i].name;
		memcpy(ret[n++].token, old->entries[i].token, ID_LEN);
	}
	return n;
}

/* What was sent ahead lies in the lane's file now. */
static void drop_bodies(const struct agent *a, const struct lane *l)
{
	char path[ID_LEN + 16];

	for (size_t i = 0; i < l->n; i++) {
		snprintf(path, sizeof(path), "new/%s/body", l->entries[i].token);
		unlinkat(a->root.fd, path, 0);
	}
}

static int finish(
	struct agent *a, struct client *c, struct draft *d, const json_t *msg, struct err *e)
{
	const json_t *want = json_object_get(msg, "want");
	const struct lane *old = lanes_find(a, d->lane.queue, d->lane.name);
	CLEANUP_FREE struct lane_ref *gone = xcalloc((old ? old->n : 0) + 1, sizeof(*gone));
	CLEANUP(lane_done) struct lane fresh = d->lane;
	json_t *lacks;
	size_t n;
	int r;

	fresh.entries = NULL;
	fresh.n = fresh.cap = 0;
	if (old && lane_compare_word(old, &c->fence, d->lane.generation) <= 0) {
		answer_lane(a, c, d, NULL, 0, want);
		return 0;
	}
	lacks = json_array();
	r = put_in_order(a, c, d, json_object_get(msg, "order"), &fresh, lacks, e);
	if (r || json_array_size(lacks)) {
		if (!r)
			answer_lacks(c, d, json_incref(lacks));
		json_decref(lacks);
		return r;
	}
	json_decref(lacks);
	n = gone_of(old, &fresh, gone);
	r = lanes_put(a, &fresh, e);
	if (r)
		return r;
	drop_bodies(a, lanes_find(a, d->lane.queue, d->lane.name));
	answer_lane(a, c, d, gone, n, want);
	return 0;
}

int lane_command(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	struct draft *d = NULL;
	char root_id[ID_LEN];
	struct fence highest;
	int r = wire_str(msg, "root_id", root_id, sizeof(root_id), e);

	if (!r)
		r = fences_highest(&a->fences, c->queue, &highest, e);
	if (!r)
		r = draft_of(a, c, msg, &d, e);
	if (r)
		return r;
	if (strcmp(root_id, a->root.id) != 0) {
		client_send(
			c, json_pack("{s:s, s:I, s:s, s:s}", "op", "other-root", "id",
				   (json_int_t)d->id, "lane", d->lane.name, "root_id", a->root.id));
	} else if (fence_compare(&c->fence, &highest) != 0) {
		answer_stale(c, &highest, NULL);
	} else {
		r = add_entries(a, c, d, msg, e);
		if (!r && json_is_true(json_object_get(msg, "more")))
			return 0;
		if (!r)
			r = finish(a, c, d, msg, e);
	}
	drop_draft(a->lane_drafts, find_draft(a->lane_drafts, c->id));
	return r;
}
