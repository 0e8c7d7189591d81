/* What a pass did, for people and programs (nvidb 9.3). */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

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
