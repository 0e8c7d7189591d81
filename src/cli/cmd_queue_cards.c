/*
 * `queue cards` and `queue card drain|resume`: which cards are in service, why the others aren't, and what stands against
 * each. Cards are remembered by UUID, so an index that moves takes nothing with it.
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "cli/queue_candidates.h"
#include "cli/queue_nodes.h"
#include "queue/record_json.h"
#include "show/table.h"
#include "core/xid.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FAULTS_SHOWN = 5, TEXT_CELLS = 160 };

struct cards_options {
	struct queue_options q;
	const char *reason; /* of drain */
};

static const struct store_card *out_of(
	const struct store_cards *l, const char *node, const char *uuid)
{
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i].node, node) && !strcmp(l->v[i].uuid, uuid))
			return &l->v[i];
	return NULL;
}

/* ---- JSON ---- */

static json_t *text_or_null(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

static json_t *faults_json(const struct store_faults *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n; i++) {
		const struct store_fault *f = &l->v[i];

		json_array_append_new(
			a, json_pack("{s:o, s:o, s:I, s:o, s:o, s:o}", "job_id",
				   f->job ? json_integer(f->job) : json_null(), "xid",
				   f->xid ? json_integer(f->xid) : json_null(), "count",
				   (json_int_t)f->n, "last_at", record_time(f->last_ms), "command",
				   text_or_null(f->shape), "what", text_or_null(f->what)));
	}
	return a;
}

static json_t *out_json(const struct store_card *o)
{
	json_t *evidence;

	if (!o)
		return json_null();
	evidence = o->evidence ? json_loads(o->evidence, JSON_DECODE_ANY, NULL) : NULL;
	return json_pack("{s:o, s:o, s:o, s:o}", "why", text_or_null(o->why), "by",
		text_or_null(o->by), "since", record_time(o->since_ms), "evidence",
		evidence ? evidence : text_or_null(o->evidence));
}

static json_t *card_json(const struct cluster_node *n, size_t i, const struct store_card *out,
	const struct store_faults *faults)
{
	const struct cluster_card *k = &n->cards[i];
	char id[GPU_LABEL_LEN];

	inv_card_label(k->inv, id);
	return json_pack("{s:s, s:s, s:i, s:s, s:o, s:o, s:b, s:b, s:b, s:o, s:o}", "node",
		cluster_node_name(n), "label", id, "index", (int)k->inv->index, "uuid",
		k->inv->uuid, "name", text_or_null(k->inv->name), "mem_total_mb",
		k->inv->total_mib >= 0 ? json_integer(k->inv->total_mib) : json_null(), "present",
		(int)k->inv->is_present, "allowed", (int)k->is_allowed, "in_service",
		(int)k->is_in_service, "out", out_json(out), "faults", faults_json(faults));
}

/* ---- text ---- */

static const struct table_column columns[] = {
	{"CARD"},
	{"MODEL", .min = 8, .drop = 1},
	{"MEMORY", .is_number = true},
	{"SERVICE"},
	{"UUID", .min = 12, .drop = 2},
};

static void put_notes(struct table *t, const struct cluster_node *n, size_t i,
	const struct store_card *out, const struct store_faults *faults)
{
	const struct cluster_card *k = &n->cards[i];
	char id[GPU_LABEL_LEN];

	inv_card_label(k->inv, id);
	if (!k->is_in_service) {
		CLEANUP(buf_done) struct buf b = {0};
		char since[RECORD_TIME_LEN];

		record_time_text(out ? out->since_ms : 0, since);
		queue_put_line(&b,
			k->out_why	  ? k->out_why
			: out && out->why ? out->why
					  : "no reason given",
			TEXT_CELLS);
		buf_printf(&b, "%s%s (%s)", *since ? "; since " : "", since,
			out && out->by ? out->by : "unknown");
		table_note(t, ROW_RED, buf_str(&b));
	}
	for (size_t m = 0; m < faults->n && m < FAULTS_SHOWN; m++) {
		const struct store_fault *f = &faults->v[m];
		const struct xid_info *x = f->xid ? xid_find(f->xid) : NULL;
		CLEANUP(buf_done) struct buf b = {0};

		buf_puts(&b, "evidence: ");
		queue_put_line(&b, f->what ? f->what : "a fault", TEXT_CELLS);
		if (f->job)
			buf_printf(&b, ", job %" PRId64, f->job);
		if (f->n > 1)
			buf_printf(&b, ", %" PRId64 " times", f->n);
		/* Of one without a job it's said already. */
		if (x && f->job) {
			buf_printf(&b, "; XID %" PRId64 ", ", f->xid);
			xid_put(x, &b);
		}
		table_note(t, ROW_AMBER, buf_str(&b));
	}
	if (faults->n > FAULTS_SHOWN)
		table_note(t, ROW_DIM, "and more; --json has them all");
	if (!k->is_in_service) {
		CLEANUP_FREE char *way = xasprintf(
			"once it's mended: gpustow queue card resume %s:%s; `gpustow doctor` looks at the machine",
			cluster_node_name(n), id);

		table_note(t, ROW_PLAIN, way);
	}
}

static void put_card(struct table *t, const struct cluster_node *n, size_t i)
{
	const struct cluster_card *k = &n->cards[i];
	CLEANUP(buf_done) struct buf size = {0};
	char id[GPU_LABEL_LEN];

	inv_card_label(k->inv, id);
	queue_put_size(&size, k->inv->total_mib);
	table_row(t);
	table_text(t, ROW_BOLD, "%s:%s", cluster_node_name(n), id);
	table_text(t, ROW_PLAIN, "%s",
		k->inv->profile ? k->inv->profile
		: k->inv->name	? k->inv->name
				: "-");
	table_text(t, ROW_TEAL, "%s", buf_str(&size));
	if (!k->is_in_service)
		table_text(t, ROW_RED, "out");
	else if (!k->inv->is_present)
		table_text(t, ROW_RED, "missing from the last sample");
	else if (k->inv->is_mig_parent)
		table_text(t, ROW_DIM, "cut into MIG instances");
	else if (!k->is_allowed)
		table_text(t, ROW_DIM, "not in gpus:");
	else
		table_text(t, ROW_GREEN, "in");
	table_text(t, ROW_DIM, "%s", k->inv->uuid);
}

/* ---- queue cards ---- */

/* Either a table or a list is filled. */
static int list_cards(struct queue *q, const struct cluster *c, const struct store_cards *outs,
	struct table *t, json_t *list, struct err *e)
{
	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct cluster_node *n = &c->nodes[i];

		for (size_t k = 0; k < n->inv.n_cards; k++) {
			CLEANUP(store_card_faults_done) struct store_faults faults = {0};
			const struct store_card *out =
				out_of(outs, cluster_node_name(n), n->inv.cards[k].uuid);
			int r = store_card_faults(
				q->store, cluster_node_name(n), n->inv.cards[k].uuid, &faults, e);

			if (r < 0)
				return r;
			if (list) {
				json_array_append_new(list, card_json(n, k, out, &faults));
			} else {
				put_card(t, n, k);
				put_notes(t, n, k, out, &faults);
			}
		}
	}
	return 0;
}

static int print_cards(
	struct queue *q, const struct cluster *c, const struct store_cards *outs, struct err *e)
{
	json_t *list = q->json ? json_array() : NULL;
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP(table_done) struct table t;
	struct row_style style;
	int r;

	table_init(&t, columns, ARRAY_LEN(columns));
	r = list_cards(q, c, outs, &t, list, e);
	if (r < 0) {
		json_decref(list);
		return r;
	}
	if (list)
		return queue_print_json(json_pack("{s:o}", "cards", list), e);
	once_terminal(&style);
	if (t.n_rows)
		table_put(&t, &style, true, &out);
	else
		buf_puts(&out, "no cards are known yet; `queue tick` looks at the nodes\n");
	return command_print(&out, e);
}

static int cards_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct cards_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(store_cards_done) struct store_cards outs = {0};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	(void)argv;
	if (r)
		return r;
	queue_refresh(&q);
	r = cluster_load(q.store, &q.config, clock_wall_ms(), false, &c, e);
	if (!r)
		r = store_cards(q.store, &outs, e);
	return r ? r : print_cards(&q, &c, &outs, e);
}

/* ---- queue card drain|resume ---- */

static int change(struct queue *q, const struct cards_options *o, bool is_drain, const char *node,
	const char *uuid, bool *ret_changed, struct err *e)
{
	int r = store_begin(q->store, NULL, e);

	if (r)
		return r;
	r = is_drain ? store_card_out(q->store, node, uuid,
			       o->reason ? o->reason : "taken out by hand", "person", NULL, e)
		     : store_card_in(q->store, node, uuid, e);
	if (r < 0) {
		store_abort(q->store);
		return r;
	}
	*ret_changed = r == 0;
	return store_commit(q->store, e);
}

static int tell(struct queue *q, bool is_drain, bool has_changed, const char *card,
	const char *uuid, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (q->json)
		return queue_print_json(
			json_pack("{s:b, s:s, s:s, s:b, s:b}", "ok", 1, "card", card, "uuid", uuid,
				"in_service", (int)!is_drain, "changed", (int)has_changed),
			e);
	text_put_clean(&out, card, strlen(card));
	if (is_drain)
		buf_puts(&out,
			has_changed ? " gets no new jobs; what runs there goes on\n"
				    : " was out of service already, and the first reason stays\n");
	else
		buf_puts(&out,
			has_changed
				? " gets jobs again, and its faults so far don't count any more\n"
				: " was in service\n");
	return command_print(&out, e);
}

static int card_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct cards_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(buf_done) struct buf card = {0};
	char label[GPU_LABEL_LEN];
	bool is_drain = !strcmp(argv[0], "drain"), has_changed = false;
	size_t node, at;
	int r;

	(void)argc;
	if (!is_drain && strcmp(argv[0], "resume") != 0)
		return err_set(e, -EINVAL,
			"say `queue card drain NODE:GPU` or `queue card resume NODE:GPU`");
	if (!is_drain && o->reason)
		return err_set(e, -EINVAL, "--reason goes with `drain`");
	r = queue_open(&q, p, &o->q, STORE_WRITE, e);
	if (!r)
		r = cluster_load(q.store, &q.config, clock_wall_ms(), false, &c, e);
	if (!r)
		r = queue_card_parse(&c, argv[1], &node, &at, e);
	if (r)
		return r;
	inv_card_label(&c.nodes[node].inv.cards[at], label);
	buf_printf(&card, "%s:%s", cluster_node_name(&c.nodes[node]), label);
	r = change(&q, o, is_drain, cluster_node_name(&c.nodes[node]),
		c.nodes[node].inv.cards[at].uuid, &has_changed, e);
	return r ? r
		 : tell(&q, is_drain, has_changed, buf_str(&card), c.nodes[node].inv.cards[at].uuid,
			   e);
}

static const struct option_spec cards_specs[] = {
	QUEUE_OPTION_ROWS(struct cards_options),
	QUEUE_REFRESH_ROWS(struct cards_options),
	OPTION_SPEC_END,
};
static const struct option_spec card_specs[] = {
	{.name = "reason",
		.arg = "TEXT",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct cards_options, reason),
		.text = "why it's taken out, for those who look"},
	QUEUE_OPTION_ROWS(struct cards_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_cards, cmd_queue_card;
const struct command cmd_queue_cards = {
	.name = "queue cards",
	.args = "",
	.summary = "every card, whether it's in service, and why not",
	.about =
		"A card is taken out when different commands fail fast on it within a while (card_faults\n"
		"of config.yml), when it reports a grave error, or by `queue card drain`. What stands\n"
		"against it is listed below it.",
	.examples = "$ gpustow queue cards",
	.options = cards_specs,
	.options_size = sizeof(struct cards_options),
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = cards_exec,
};
const struct command cmd_queue_card = {
	.name = "queue card",
	.args = "drain|resume NODE:GPU",
	.summary = "take a card out of service, or back in",
	.about =
		"`drain`: it gets no new jobs, what runs there goes on. `resume`: it gets jobs again, and\n"
		"its faults so far don't count any more. GPU is an index, 0:1 for a MIG instance of card\n"
		"0, or a UUID.",
	.examples =
		"$ gpustow queue card drain gpu1:3 --reason 'fan is dying'\n$ gpustow queue card resume gpu1:3",
	.options = card_specs,
	.options_size = sizeof(struct cards_options),
	.min_args = 2,
	.max_args = 2,
	.complete = COMPLETE_JOB,
	.candidates = queue_card_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = card_exec,
};
