/* What a pass did, for people and programs (nvidb 9.3). */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define ALERTS_MAX 100 /* in a summary */

void tick_summary_done(struct tick_summary *t)
{
	json_t *lists[] = {t->finished, t->dispatched, t->errors, t->alerts, t->reaped, t->held};

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		json_decref(lists[i]);
	free(t->lock_owner);
	memset(t, 0, sizeof(*t));
}

static void put_list(json_t *o, const char *key, json_t *list, bool if_empty)
{
	if (if_empty || json_array_size(list))
		json_object_set_new(o, key, list ? json_incref(list) : json_array());
}

json_t *tick_summary_json(const struct tick_summary *t)
{
	json_t *o = json_pack("{s:b, s:s?, s:I, s:I, s:I}", "ran", t->ran, "skipped", t->skipped,
		"nodes_up", (json_int_t)t->nodes_up, "nodes_down", (json_int_t)t->nodes_down,
		"nodes_ignored", (json_int_t)t->nodes_ignored);

	put_list(o, "finished", t->finished, true);
	put_list(o, "dispatched", t->dispatched, true);
	put_list(o, "errors", t->errors, true);
	put_list(o, "alerts", t->alerts, true);
	if (t->lock_owner)
		json_object_set_new(o, "lock_owner", json_string(t->lock_owner));
	put_list(o, "reaped", t->reaped, false);
	put_list(o, "held", t->held, false);
	return o;
}

/* Node's and agents' words are in it: cleaned, and valid UTF-8. */
void pass_say_error(struct pass *p, const char *node, int64_t job, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf text = {0}, clean = {0};
	json_t *o = json_object();
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	text_put_clean(&clean, buf_str(&text), text.len);
	if (node)
		json_object_set_new(o, "node", json_string(node));
	if (job)
		json_object_set_new(o, "job", json_integer((json_int_t)job));
	json_object_set_new(o, "error", json_string(buf_str(&clean)));
	json_array_append_new(p->sum->errors, o);
}

json_t *gpu_ids_json(const struct job_bind *b)
{
	json_t *ids = json_array();

	for (size_t i = 0; i < b->n_cards; i++)
		json_array_append_new(ids, json_integer(b->cards[i].index));
	return ids;
}

int64_t pass_newest_alert(struct pass *p)
{
	CLEANUP(store_alerts_done) struct store_alerts l = {0};
	struct err e;

	if (store_alerts(p->store, STORE_ALERTS_ALL, 1, &l, &e) < 0 || !l.n)
		return 0;
	return l.v[0].id;
}

void pass_say_alerts(struct pass *p, int64_t since)
{
	CLEANUP(store_alerts_done) struct store_alerts l = {0};
	struct err e;

	if (store_alerts(p->store, STORE_ALERTS_ALL, ALERTS_MAX, &l, &e) < 0)
		return;
	for (size_t i = 0; i < l.n; i++) {
		const struct store_alert *a = &l.v[i];

		if (a->id > since)
			json_array_append_new(p->sum->alerts,
				json_pack("{s:I, s:s, s:s?, s:o}", "id", (json_int_t)a->id, "kind",
					alert_kind_name(a->kind), "title", a->title, "job_id",
					a->job ? json_integer((json_int_t)a->job) : json_null()));
	}
}

void pass_count_nodes(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		const struct pass_node *n = &p->nodes[i];

		if (n->row && n->row->is_ignored)
			p->sum->nodes_ignored++;
		else if (n->contact == CONTACT_ANSWERED && !n->refused)
			p->sum->nodes_up++;
		else
			p->sum->nodes_down++;
		if (n->contact == CONTACT_FAILED && !n->refused)
			pass_say_error(p, n->name, 0, "%s", n->why);
	}
}

void pass_make_lists(struct tick_summary *t)
{
	json_t **lists[] = {
		&t->finished, &t->dispatched, &t->errors, &t->alerts, &t->reaped, &t->held};

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		*lists[i] = json_array();
}

struct tick_summary tick_summary_new(void)
{
	struct tick_summary t = {0};

	pass_make_lists(&t);
	return t;
}

void tick_summary_add(struct tick_summary *to, const struct tick_summary *from)
{
	json_array_extend(to->finished, from->finished);
	json_array_extend(to->dispatched, from->dispatched);
	json_array_extend(to->errors, from->errors);
	json_array_extend(to->alerts, from->alerts);
	json_array_extend(to->reaped, from->reaped);
	json_array_extend(to->held, from->held);
	to->ran |= from->ran;
	if (!from->ran)
		return;
	to->nodes_up = from->nodes_up;
	to->nodes_down = from->nodes_down;
	to->nodes_ignored = from->nodes_ignored;
}

bool tick_summary_is_empty(const struct tick_summary *t)
{
	return !json_array_size(t->finished) && !json_array_size(t->dispatched) &&
	       !json_array_size(t->alerts) && !json_array_size(t->reaped) &&
	       !json_array_size(t->held);
}

static void take_list(const json_t *o, const char *key, json_t *to)
{
	const json_t *from = json_object_get(o, key);

	if (json_is_array(from))
		json_array_extend(to, (json_t *)(uintptr_t)from);
}

void tick_summary_parse(const json_t *o, struct tick_summary *ret)
{
	*ret = tick_summary_new();
	ret->ran = json_is_true(json_object_get(o, "ran"));
	ret->nodes_up = json_integer_value(json_object_get(o, "nodes_up"));
	ret->nodes_down = json_integer_value(json_object_get(o, "nodes_down"));
	ret->nodes_ignored = json_integer_value(json_object_get(o, "nodes_ignored"));
	take_list(o, "finished", ret->finished);
	take_list(o, "dispatched", ret->dispatched);
	take_list(o, "errors", ret->errors);
	take_list(o, "alerts", ret->alerts);
	take_list(o, "reaped", ret->reaped);
	take_list(o, "held", ret->held);
}
