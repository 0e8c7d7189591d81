/*
 * Cards that fail their jobs. A command that failed fast counts against the cards it had, an Xid that isn't a program's fault
 * against the card that reported it; so many *different* commands within the window, and a card gets no more jobs until a person looked at it. One broken
 * command alone never takes a card out, however often it's tried, and a job that ends well clears it. A card that reports an
 * Xid which only a reset, a reboot or a repair mends is taken out at once, whether or not anything ran on it.
 */
#include "core/shape.h"
#include "core/xid.h"
#include "queue/pass.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
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

static int take_out(struct pass *p, const char *node, const char *uuid, const char *label,
	const char *why, struct err *e)
{
	CLEANUP(store_card_faults_done) struct store_faults faults = {0};
	CLEANUP(buf_done) struct buf evidence = {0}, title = {0};
	int r = store_card_faults(p->store, node, uuid, &faults, e);

	if (r < 0)
		return r;
	put_evidence(&faults, &evidence);
	r = store_card_out(p->store, node, uuid, why, "faults", buf_str(&evidence), e);
	if (r)
		return r < 0 ? r : 0;
	buf_printf(&title, "GPU %s of %s is taken out of service: %s", label, node, why);
	r = store_event_add(
		p->store, EVENT_CARD_OUT, 0, node, buf_str(&title), buf_str(&evidence), e);
	return r < 0 ? r
		     : store_alert_add(p->store, ALERT_CARD_OUT, 0, node, buf_str(&title), NULL, e);
}

static int count_fault(struct pass *p, const struct job *j, const struct job_card *card,
	const struct judgement *g, int64_t xid, struct err *e)
{
	const struct queue_settings *s = &p->config->settings;
	CLEANUP(buf_done) struct buf shape = {0}, why = {0};
	char label[GPU_LABEL_LEN];
	int64_t n = 0;
	int r;

	shape_of(j->command, strlen(j->command), &shape);
	r = store_card_fault(p->store, j->bind.node, card->uuid, j->id, buf_str(&shape), xid,
		buf_str(&g->error), s->card_fault_window_ms, &n, e);
	if (r < 0 || s->card_faults <= 0 || n < s->card_faults)
		return r;
	buf_printf(&why,
		"%" PRId64 " different commands failed on it within %" PRId64
		" min; the last: %.200s",
		n, s->card_fault_window_ms / 60000, buf_str(&g->error));
	snprintf(label, sizeof(label), "%" PRId32, card->index);
	return take_out(p, j->bind.node, card->uuid, label, buf_str(&why), e);
}

int cards_judge(struct pass *p, const struct job *j, const struct judgement *g,
	const struct end_facts *f, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < j->bind.n_cards; i++) {
		const struct job_card *card = &j->bind.cards[i];
		int64_t xid;

		if (judge_is_against(g, f, card->uuid, &xid))
			r = count_fault(p, j, card, g, xid, e);
		else if (g->end.step == JOB_STEP_COMPLETE)
			r = store_card_good(p->store, j->bind.node, card->uuid, e);
	}
	return r < 0 ? r : 0;
}

/* ---- what a card says of itself ---- */

/* Seen before, and a person may have put it back since. Moments on two clocks: about the same is the same. */
static bool is_known(const struct inventory *known, const struct inv_card *c)
{
	for (size_t i = 0; i < known->n_cards; i++)
		if (!strcmp(known->cards[i].uuid, c->uuid))
			return inv_same_xid(&known->cards[i], c);
	return false;
}

static int look_at(
	struct pass *p, const struct pass_node *n, const struct inv_card *c, struct err *e)
{
	const struct xid_info *x = c->xid ? xid_find(c->xid) : NULL;
	CLEANUP(buf_done) struct buf why = {0};
	char label[GPU_LABEL_LEN];
	int64_t ignored;
	int r;

	if (!x || x->tier != XID_CRITICAL || !c->is_present || is_known(&n->known, c))
		return 0;
	buf_printf(&why, "XID %" PRId64 ": ", c->xid);
	xid_put(x, &why);
	inv_card_label(c, label);
	r = store_card_fault(p->store, n->name, c->uuid, 0, NULL, c->xid, buf_str(&why),
		p->config->settings.card_fault_window_ms, &ignored, e);
	return r < 0 ? r : take_out(p, n->name, c->uuid, label, buf_str(&why), e);
}

int cards_look(struct pass *p, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < p->n_nodes && p->config->settings.card_faults > 0; i++) {
		const struct pass_node *n = &p->nodes[i];

		if (!node_answers(n) || !n->has_sample)
			continue;
		for (size_t k = 0; r >= 0 && k < n->inventory.n_cards; k++)
			r = look_at(p, n, &n->inventory.cards[k], e);
	}
	return r < 0 ? r : 0;
}
