/* Lanes on the wire: documents in messages of a bounded size, what the agent lacks sent after, and its answers. */
#include "queue/lanes.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "queue/launch.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ID_BASE \
	((int64_t)1 << 40) /* of the questions about lanes: streams and `observe` have lower ones */
#define MESSAGE_MAX (700 * 1024) /* bytes of JSON, below the wire's limit */
#define SENDS_MAX 3 /* of one document: whatever it lacks, it has then */
#define START_MS \
	1500 /* a first entry that may start does so within that time, or the next pass tells */
#define HELD_MS 1000 /* so long a daemon waits for the answers of a round */
#define WORDS_MAX 500

/* ---- what nodes have ---- */

void lanes_observed(struct pool_link *held, const json_t *lanes)
{
	const json_t *l;
	size_t i;

	json_array_foreach(lanes, i, l)
	{
		const char *name = json_string_value(json_object_get(l, "name"));

		if (name)
			json_object_set(held->lanes, name, (json_t *)(uintptr_t)l);
	}
}

const json_t *lane_of_node(const struct pass_node *n, const char *name)
{
	return json_object_get(n->lanes, name);
}

/* Does it wait in any of the node's lanes? Then the node has it, though there's no claim of it. */
bool lanes_have(const struct pass_node *n, int64_t job, int64_t attempt)
{
	const char *name;
	json_t *l, *entry;
	size_t i;

	json_object_foreach(n->lanes, name, l) json_array_foreach(json_object_get(l, "queued"), i,
		entry) if (json_integer_value(json_array_get(entry, 0)) == job &&
			   json_integer_value(json_array_get(entry, 1)) == attempt) return true;
	return false;
}

static bool has_other_number(const json_t *a, const json_t *b, const char *key)
{
	double apart = json_number_value(json_object_get(a, key)) -
		       json_number_value(json_object_get(b, key));

	return apart > 1e-9 || apart < -1e-9;
}

bool lane_has_other_policy(const struct pass_node *n, const json_t *lane)
{
	static const char *const numbers[] = {
		"margin_mib", "idle_threshold_mib", "spike_buffer", "max_jobs_per_card"};
	const json_t *its = json_object_get(lane, "policy");
	json_t *ours;
	bool is_other;

	if (!its || !json_array_size(json_object_get(lane, "queued")))
		return false;
	ours = launch_policy(&n->pass->config->settings, false);
	is_other = json_is_true(json_object_get(its, "high_water")) !=
		   json_is_true(json_object_get(ours, "high_water"));
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		is_other |= has_other_number(its, ours, numbers[i]);
	json_decref(ours);
	return is_other || !json_is_object(its);
}

char *lane_state_text(const json_t *lane)
{
	json_t *o = json_object(), *queued = json_array(), *entry;
	const char *said = json_string_value(json_object_get(lane, "waits"));
	CLEANUP(buf_done) struct buf waits = {0};
	char *text;
	size_t i;

	json_array_foreach(json_object_get(lane, "queued"), i, entry)
		json_array_append(queued, json_array_get(entry, 0));
	if (said)
		text_put_clean(&waits, said, strnlen(said, WORDS_MAX));
	json_object_set(o, "generation", json_object_get(lane, "generation"));
	json_object_set(o, "paused", json_object_get(lane, "paused"));
	json_object_set(o, "concurrency", json_object_get(lane, "concurrency"));
	json_object_set_new(o, "queued", queued);
	json_object_set_new(o, "waits", waits.len ? json_string(buf_str(&waits)) : json_null());
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text;
}

/* ---- messages ---- */

static json_t *cards_json(const struct lane_docs *d, const struct lane_doc *doc)
{
	const struct inventory *inv = &d->cluster.nodes[doc->lane->node].inv;
	json_t *a = json_array();

	for (size_t i = 0; i < inv->n_cards && i < GPU_MAX; i++)
		if (doc->lane->cards >> i & 1)
			json_array_append_new(a, json_string(inv->cards[i].uuid));
	return a;
}

static json_t *head(const struct lane_docs *d, const struct lane_doc *doc, int64_t part)
{
	return json_pack("{s:s, s:I, s:s, s:s, s:I, s:o, s:I, s:b, s:I, s:o}", "op", "lane", "id",
		(json_int_t)d->first_id + (json_int_t)(doc - d->v), "root_id",
		doc->node->hello.root_id, "name", doc->lane->row->name, "generation",
		(json_int_t)doc->generation, "cards", cards_json(d, doc), "concurrency",
		(json_int_t)doc->lane->row->concurrency, "paused", doc->is_paused, "part",
		(json_int_t)part, "policy", launch_policy(&d->pass->config->settings, false));
}

static json_t *order_json(const struct lane_doc *doc)
{
	json_t *a = json_array();

	for (size_t i = 0; i < doc->n; i++)
		json_array_append_new(
			a, json_pack("[I, I, s]", (json_int_t)doc->items[i].job,
				   (json_int_t)doc->items[i].attempt, doc->items[i].token));
	return a;
}

/* The order comes with the last part. */
static void send_part(struct lane_doc *doc, json_t *msg, json_t *entries, bool more)
{
	json_object_set_new(msg, "entries", entries);
	json_object_set_new(msg, "more", json_boolean(more));
	if (!more)
		json_object_set_new(msg, "order", order_json(doc));
	link_send(doc->node->link, msg);
}

/* A body that went ahead didn't arrive: its bind is undone for that, so nothing may name it. */
static bool has_refused(const struct lane_doc *doc)
{
	const struct pass *p = doc->node->pass;

	for (size_t i = 0; i < p->n_notes; i++)
		for (size_t k = 0; p->notes[i].kind == NOTE_REFUSED && k < doc->n; k++)
			if (p->notes[i].job == doc->items[k].job &&
				p->notes[i].attempt == doc->items[k].attempt)
				return true;
	return false;
}

/* What was sent ahead is named by what was sent just now: its flights are over. */
static void name_bodies(const struct lane_doc *doc)
{
	struct pass *p = doc->node->pass;

	for (size_t i = 0; i < doc->n; i++) {
		struct flight *f = doc->items[i].whole
					   ? flight_of(p, doc->items[i].job, doc->items[i].attempt)
					   : NULL;

		if (f && f->is_lane) {
			f->state = FLIGHT_OVER;
			f->kept_ms = 0;
		}
	}
}

static void send_doc(struct lane_docs *d, struct lane_doc *doc)
{
	json_t *msg, *entries;
	size_t bytes = 0;
	int64_t part = 0;

	if (has_refused(doc)) {
		doc->state = DOC_FAILED;
		return;
	}
	msg = head(d, doc, 0);
	entries = json_array();

	for (size_t i = 0; i < doc->n; i++) {
		json_t *x = doc->items[i].whole;
		size_t size;

		if (!x)
			continue;
		size = json_dumpb(x, NULL, 0, JSON_COMPACT);

		if (bytes && bytes + size > MESSAGE_MAX) {
			send_part(doc, msg, entries, true);
			msg = head(d, doc, ++part);
			entries = json_array();
			bytes = 0;
		}
		bytes += size;
		json_array_append(entries, x);
	}
	send_part(doc, msg, entries, false);
	doc->state = DOC_SENT;
	doc->n_sent++;
	name_bodies(doc);
	doc->node->held->is_used_up = true;
	if (!d->pass->is_held)
		d->until_ms = clock_boot_ms() + d->pass->config->settings.launch_timeout_ms;
}

/* ---- answers ---- */

static struct lane_doc *doc_of(const struct pass_node *n, const json_t *msg)
{
	struct lane_docs *d = n->pass->lane_docs;
	json_int_t id = json_integer_value(json_object_get(msg, "id"));

	if (!d || !d->first_id || id < d->first_id || (size_t)(id - d->first_id) >= d->n)
		return NULL;
	return d->v[id - d->first_id].node == n ? &d->v[id - d->first_id] : NULL;
}

static void fail(struct lane_doc *doc, const char *what, const char *text)
{
	doc->state = DOC_FAILED;
	pass_say_error(doc->node->pass, doc->node->name, 0, "lane %s: %s%.500s",
		doc->lane->row->name, what, text);
}

bool lanes_message(struct pass_node *n, const char *op, const json_t *msg)
{
	struct lane_doc *doc = doc_of(n, msg);
	const char *text = json_string_value(json_object_get(msg, "text"));

	if (!strcmp(op, "lane-waits"))
		return true;
	/* An answer that comes after its round: what the node has is seen by the next pass. */
	if (!doc) {
		bool is_answer = !strcmp(op, "lane") || !strcmp(op, "lane-lacks");

		n->pass->is_lane_late |= !strcmp(op, "lane");
		n->held->is_used_up |= is_answer;
		return is_answer || json_integer_value(json_object_get(msg, "id")) >= ID_BASE;
	}
	if (doc->state != DOC_SENT)
		return true;
	if (!strcmp(op, "lane") || !strcmp(op, "lane-lacks")) {
		json_decref(doc->answer);
		doc->answer = json_incref((json_t *)(uintptr_t)msg);
		doc->state = !strcmp(op, "lane") ? DOC_ANSWERED : DOC_LACKS;
	} else if (!strcmp(op, "other-root")) {
		fail(doc, "", "the node's state directory is another one than it said");
	} else {
		fail(doc, "its agent refused it: ", text ? text : "no reason was given");
	}
	return true;
}

static struct lane_item *item_of(struct lane_doc *doc, int64_t job, int64_t attempt)
{
	for (size_t i = 0; i < doc->n; i++)
		if (doc->items[i].job == job && doc->items[i].attempt == attempt)
			return &doc->items[i];
	return NULL;
}

/* What it was to have from before, and hasn't: made once more from the record, under the same token. */
static int make_whole(struct lane_docs *d, struct lane_doc *doc, struct lane_item *x, struct err *e)
{
	struct pass *p = d->pass;
	CLEANUP(job_done) struct job j = {0};
	struct store_lane_needs *sent = NULL;
	json_t *needs = NULL;
	size_t n = 0;
	int r = store_job(p->store, x->job, &j, e);

	if (r == 0)
		r = store_lane_needs(p->store, &sent, &n, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		if (sent[i].job == x->job && sent[i].attempt == x->attempt)
			needs = json_loads(sent[i].needs, 0, NULL);
	json_decref(x->whole);
	x->whole = launch_entry(p, &j, &d->cluster.nodes[doc->lane->node].inv, needs, doc->node);
	json_decref(needs);
	store_lane_needs_done(sent, n);
	return 0;
}

static int send_lacks(struct lane_docs *d, struct lane_doc *doc, struct err *e)
{
	const json_t *list = json_object_get(doc->answer, "jobs"), *entry;
	size_t i;
	int r = 0;

	if (doc->n_sent >= SENDS_MAX) {
		fail(doc, "", "the node goes on lacking jobs that were sent to it");
		return 0;
	}
	json_array_foreach(list, i, entry)
	{
		struct lane_item *x = item_of(doc, json_integer_value(json_array_get(entry, 0)),
			json_integer_value(json_array_get(entry, 1)));

		if (r >= 0 && x)
			r = make_whole(d, doc, x, e);
	}
	if (r < 0)
		return r;
	doc->state = DOC_READY;
	return 0;
}

static bool is_waited_for(const struct lane_doc *doc)
{
	return (doc->state == DOC_SENT || doc->state == DOC_READY) && node_answers(doc->node);
}

static size_t waited_for(const struct lane_docs *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++)
		n += is_waited_for(&d->v[i]);
	return n;
}

/* A first entry that may start starts at once: told by this pass, if it's quick. */
static bool is_about_to_start(const struct lane_doc *doc)
{
	const json_t *entries = json_object_get(doc->answer, "states"), *entry;
	int64_t places = doc->lane->row->concurrency;
	size_t i;

	if (doc->state != DOC_ANSWERED || doc->is_paused || !node_answers(doc->node) ||
		json_object_get(doc->answer, "why"))
		return false;
	json_array_foreach(entries, i, entry)
	{
		int64_t job = json_integer_value(json_array_get(entry, 0)),
			attempt = json_integer_value(json_array_get(entry, 1));
		const char *state = json_string_value(json_array_get(entry, 2));

		if (!state || !strcmp(state, "ended") || !strcmp(state, "conflict"))
			continue;
		if (places-- <= 0)
			return false;
		if (strcmp(state, "started") != 0 &&
			!exchange_has_started(doc->node->pass, job, attempt))
			return true;
	}
	return false;
}

static bool is_any_about_to_start(const struct lane_docs *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (is_about_to_start(&d->v[i]))
			return true;
	return false;
}

/* What was sent ahead in an earlier pass, and not named then, goes whole: the node would only say that it lacks it. */
static int take_bodies_ahead(struct lane_docs *d, struct err *e)
{
	struct pass *p = d->pass;
	int r = 0;

	for (size_t i = 0, n = p->n_flights; i < n; i++)
		for (size_t k = 0; r >= 0 && k < d->n; k++) {
			const struct flight *f = &p->flights[i];
			struct lane_doc *doc = &d->v[k];
			struct lane_item *x;

			if (!f->is_lane || f->state != FLIGHT_BOUND || !doc->generation ||
				f->held != doc->node->held)
				continue;
			x = item_of(doc, f->job, f->attempt);
			if (x && !x->whole)
				r = make_whole(d, doc, x, e);
		}
	return r < 0 ? r : 0;
}

int lane_docs_begin(struct lane_docs *d, struct err *e)
{
	struct pass *p = d->pass;
	int64_t wait = p->config->settings.launch_timeout_ms;

	if (p->is_held && wait > HELD_MS)
		wait = HELD_MS;
	d->until_ms = clock_boot_ms() + wait;
	d->has_sent = true;
	d->first_id = ID_BASE + p->lane_ids;
	p->lane_ids += (int64_t)d->n;
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].generation)
			d->v[i].state = DOC_READY;
	return take_bodies_ahead(d, e);
}

static bool has_body_under_way(const struct lane_doc *doc)
{
	struct pass *p = doc->node->pass;

	for (size_t i = 0; i < doc->n; i++) {
		const struct flight *f =
			doc->items[i].whole ? flight_of(p, doc->items[i].job, doc->items[i].attempt)
					    : NULL;

		if (f && f->staging)
			return true;
	}
	return false;
}

static int send_ready(struct lane_docs *d, struct err *e)
{
	bool are_bodies_under_way;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < d->n; i++)
		if (d->v[i].state == DOC_LACKS)
			r = send_lacks(d, &d->v[i], e);
	if (r < 0)
		return r;
	are_bodies_under_way = launch_staging(d->pass);
	for (size_t i = 0; i < d->n; i++) {
		struct lane_doc *doc = &d->v[i];

		if (doc->state == DOC_READY && node_answers(doc->node) &&
			!(are_bodies_under_way && has_body_under_way(doc)))
			send_doc(d, doc);
	}
	return 0;
}

static bool is_waiting(struct lane_docs *d, bool any)
{
	pass_look_at(d->pass, d->until_ms);
	return any && !d->pass->signal_no && clock_boot_ms() < d->until_ms;
}

/* Who is late: of one whose bodies are on their way still, the next pass goes on. */
static void conclude(struct lane_docs *d)
{
	for (size_t i = 0; i < d->n; i++) {
		struct lane_doc *doc = &d->v[i];

		if (doc->state == DOC_SENT)
			fail(doc, "",
				"its node didn't acknowledge it yet: what it has from before goes on, and the next pass asks");
		else if (doc->state == DOC_READY)
			doc->state = DOC_FAILED;
		else
			continue;
		doc->node->is_lane_silent = true;
	}
	d->is_concluded = true;
	d->until_ms = clock_boot_ms() + START_MS;
}

int lane_docs_turn(struct lane_docs *d, struct err *e)
{
	if (!d->is_concluded) {
		int r = send_ready(d, e);

		if (r < 0)
			return r;
		if (is_waiting(d, waited_for(d) > 0))
			return 1;
		conclude(d);
	}
	/* A daemon hears of starts whenever they are. */
	return !d->pass->is_held && is_waiting(d, is_any_about_to_start(d));
}
