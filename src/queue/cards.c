/*
 * Cards that fail their jobs. A command that failed fast, or an Xid, counts against the cards it had; so many *different*
 * commands within the window, and a card gets no more jobs until a person looked at it. One broken command alone never takes
 * a card out, however often it's tried, and a job that ends well clears it.
 */
#include "core/shape.h"
#include "queue/pass.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <string.h>

static void put_evidence(const struct store_faults *l, struct buf *b)
{
	json_t *list = json_array();
	char *text;

	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(
			list, json_pack("{s:I, s:I, s:s?, s:s?}", "job", (json_int_t)l->v[i].job,
				      "xid", (json_int_t)l->v[i].xid, "shape", l->v[i].shape,
				      "what", l->v[i].what));
	text = json_dumps(list, JSON_COMPACT);
	buf_puts(b, text ? text : "[]");
	free(text);
	json_decref(list);
}

static int take_out(
	struct pass *p, const char *node, const struct job_card *card, int64_t n, struct err *e)
{
	CLEANUP(store_card_faults_done) struct store_faults faults = {0};
	CLEANUP(buf_done) struct buf evidence = {0}, why = {0}, title = {0};
	int r = store_card_faults(p->store, node, card->uuid, &faults, e);

	if (r < 0)
		return r;
	put_evidence(&faults, &evidence);
	buf_printf(&why, "%" PRId64 " different commands failed on it within %" PRId64 " min", n,
		p->config->settings.card_fault_window_ms / 60000);
	if (faults.n && faults.v[faults.n - 1].what)
		buf_printf(&why, "; the last: %.200s", faults.v[faults.n - 1].what);
	r = store_card_out(
		p->store, node, card->uuid, buf_str(&why), "faults", buf_str(&evidence), e);
	if (r)
		return r < 0 ? r : 0;
	buf_printf(&title, "GPU %d of %s is taken out of service: %s", card->index, node,
		buf_str(&why));
	r = store_event_add(
		p->store, EVENT_CARD_OUT, 0, node, buf_str(&title), buf_str(&evidence), e);
	return r < 0 ? r
		     : store_alert_add(p->store, ALERT_CARD_OUT, 0, node, buf_str(&title), NULL, e);
}

static int count_fault(struct pass *p, const struct job *j, const struct job_card *card,
	const struct judgement *g, int64_t xid, struct err *e)
{
	const struct queue_settings *s = &p->config->settings;
	CLEANUP(buf_done) struct buf shape = {0};
	int64_t n = 0;
	int r;

	shape_of(j->command, strlen(j->command), &shape);
	r = store_card_fault(p->store, j->bind.node, card->uuid, j->id, buf_str(&shape), xid,
		buf_str(&g->error), s->card_fault_window_ms, &n, e);
	if (r < 0 || s->card_faults <= 0 || n < s->card_faults)
		return r;
	return take_out(p, j->bind.node, card, n, e);
}

int cards_judge(
	struct pass *p, const struct job *j, const struct judgement *g, int64_t xid, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < j->bind.n_cards; i++) {
		const struct job_card *card = &j->bind.cards[i];

		if (g->is_card_fault)
			r = count_fault(p, j, card, g, xid, e);
		else if (g->end.step == JOB_STEP_COMPLETE)
			r = store_card_good(p->store, j->bind.node, card->uuid, e);
	}
	return r < 0 ? r : 0;
}
