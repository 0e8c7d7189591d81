/* Nodes and cards: see queue_nodes.h. */
#include "cli/queue_nodes.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "queue/record_json.h"
#include "show/table.h"

#include <inttypes.h>
#include <string.h>

enum { FOREIGN_SHOWN = 3, NAME_CELLS = 40, ERROR_CELLS = 300 };

enum column { GPU, MODEL, UTIL, MEM, UNMANAGED, QUEUE, RESERVED, JOBS, FREE, COLUMN_N };
static const struct table_column columns[COLUMN_N] = {
	[GPU] = {"GPU"},
	[MODEL] = {"MODEL", .drop = 1, .min = 8},
	[UTIL] = {"UTIL", .is_number = true, .drop = 2},
	[MEM] = {"MEM", .is_number = true},
	[UNMANAGED] = {"UNMANAGED", .is_number = true},
	[QUEUE] = {"QUEUE", .is_number = true, .drop = 3},
	[RESERVED] = {"RESERVED", .is_number = true, .drop = 4},
	[JOBS] = {"JOBS", .is_number = true},
	[FREE] = {"FREE"},
};
static const struct table_column proc_columns[] = {
	{"GPU"},
	{"PID", .is_number = true},
	{"USER", .min = 8},
	{"MEM", .is_number = true},
	{"T"},
	{"OWNER", .min = 10},
	{"PROCESS", .min = 10, .drop = 1},
};

/* ---- which are shown ---- */

static bool is_shown(const struct nodes_view *v, const struct cluster_node *n)
{
	return v->with_ignored || !n->row || !n->row->is_ignored;
}

static bool is_card_shown(const struct nodes_view *v, const struct cluster_card *k)
{
	return !v->is_masked || k->is_allowed;
}

static const char *card_text(const struct inventory *v, size_t card, char ret[GPU_LABEL_LEN])
{
	inv_card_label(&v->cards[card], ret);
	return ret;
}

static const char *job_name(const struct cluster *c, int64_t id)
{
	for (size_t i = 0; id && i < c->live.n; i++)
		if (c->live.v[i].id == id)
			return c->live.v[i].name ? c->live.v[i].name : "";
	return NULL;
}

/* ---- text ---- */

static void size_cell(struct table *t, enum row_color color, int64_t mib)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (mib < 0) {
		table_absent(t);
		return;
	}
	queue_put_size(&b, mib);
	table_text(t, mib ? color : ROW_DIM, "%s", buf_str(&b));
}

static void mem_cell(struct table *t, const struct inv_card *k)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (k->used_mib < 0 || k->total_mib <= 0) {
		size_cell(t, ROW_TEAL, k->total_mib);
		return;
	}
	queue_put_size(&b, k->used_mib);
	buf_putc(&b, '/');
	queue_put_size(&b, k->total_mib);
	buf_printf(&b, " %d%%", (int)(k->used_mib * 100 / k->total_mib));
	table_text(t, ROW_TEAL, "%s", buf_str(&b));
}

static void foreign_cell(struct table *t, const struct inv_card *k)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (k->external_mib < 0) {
		table_absent(t);
		return;
	}
	queue_put_size(&b, k->external_mib);
	if (k->is_blind)
		buf_puts(&b, " (blind)");
	else if (k->external_procs > 0)
		buf_printf(&b, " (%" PRId64 "p)", k->external_procs);
	table_text(t, k->external_mib ? ROW_AMBER : ROW_DIM, "%s", buf_str(&b));
}

/* Free memory, or the word why nothing is placed there. */
static void free_cell(struct table *t, const struct cluster_card *k)
{
	if (k->inv->is_mig_parent)
		table_text(t, ROW_DIM, "MIG");
	else if (!k->is_in_service)
		table_text(t, ROW_RED, "out of service");
	else if (!k->inv->is_present)
		table_text(t, ROW_RED, "missing");
	else if (!k->is_allowed)
		table_text(t, ROW_DIM, "not in gpus:");
	else
		size_cell(t, k->is_usable ? ROW_GREEN : ROW_DIM,
			k->inv->used_mib < 0 ? -1 : k->free_mib);
}

static void put_foreign(struct table *t, const struct inv_card *k)
{
	CLEANUP(buf_done) struct buf b = {0};
	size_t shown = 0, n = 0;

	if (k->is_blind)
		table_note(t, ROW_AMBER,
			"the driver doesn't say which process holds how much here; our jobs are credited up to what they declared");
	for (size_t i = 0; i < k->n_procs_kept; i++) {
		const struct inv_proc *p = &k->procs[i];

		if (p->is_managed)
			continue;
		if (++n > FOREIGN_SHOWN)
			continue;
		buf_puts(&b, shown++ ? ", " : "");
		queue_put_size(&b, p->mem_mib);
		buf_printf(&b, " %s %" PRId64 " (", p->name ? p->name : "?", p->pid);
		buf_printf(&b, "%s)", p->user ? p->user : "?");
	}
	/* What wasn't kept are small ones, ours or not. */
	if ((int64_t)n < k->external_procs)
		n = (size_t)k->external_procs;
	if (n > shown && shown)
		buf_printf(&b, ", +%zu more", n - shown);
	if (shown)
		table_note(t, ROW_DIM, buf_str(&b));
}

static void put_card(
	struct table *t, const struct cluster_node *n, size_t i, const struct nodes_view *v)
{
	char name[GPU_LABEL_LEN];
	const struct cluster_card *k = &n->cards[i];
	const struct inv_card *c = k->inv;

	table_row(t);
	table_text(t, ROW_BOLD, "%s", card_text(&n->inv, i, name));
	table_text(t, ROW_PLAIN, "%s", c->profile ? c->profile : c->name ? c->name : "-");
	if (c->util_pct >= 0)
		table_text(t, ROW_TEAL, "%" PRId64 "%%", c->util_pct);
	else
		table_absent(t);
	mem_cell(t, c);
	foreign_cell(t, c);
	size_cell(t, ROW_TEAL, k->queue_mem_mib);
	size_cell(t, ROW_TEAL, k->reserved_mib);
	table_text(t, k->queue_jobs ? ROW_PLAIN : ROW_DIM, "%" PRIu32, k->queue_jobs);
	free_cell(t, k);
	if (!k->is_usable && k->is_allowed && !c->is_mig_parent && k->why_not[0])
		table_note(t, ROW_RED, k->why_not);
	if (!v->with_procs)
		put_foreign(t, c);
}

static void owner_cell(struct table *t, const struct cluster *c, const struct inv_proc *p)
{
	const char *name = job_name(c, p->job);

	if (p->job)
		table_text(t, ROW_PLAIN, "job %" PRId64 "%s%s", p->job, name && *name ? " " : "",
			name ? name : "");
	else
		table_text(t, p->is_managed ? ROW_PLAIN : ROW_AMBER,
			p->is_managed ? "another queue or run" : "external");
}

static void put_procs(const struct cluster *c, const struct cluster_node *n,
	const struct nodes_view *v, const struct row_style *style, struct buf *out)
{
	CLEANUP(table_done) struct table t;
	char name[GPU_LABEL_LEN];

	table_init(&t, proc_columns, ARRAY_LEN(proc_columns));
	for (size_t i = 0; i < n->inv.n_cards; i++) {
		const struct inv_card *k = &n->inv.cards[i];

		if (!is_card_shown(v, &n->cards[i]))
			continue;
		for (size_t m = 0; m < k->n_procs_kept; m++) {
			const struct inv_proc *p = &k->procs[m];

			table_row(&t);
			table_text(&t, ROW_BOLD, "%s", card_text(&n->inv, i, name));
			table_text(&t, ROW_PLAIN, "%" PRId64, p->pid);
			table_text(&t, ROW_PLAIN, "%s", p->user ? p->user : "-");
			size_cell(&t, ROW_TEAL, p->mem_mib);
			table_text(&t, ROW_DIM, "%c", p->kind ? p->kind : '-');
			owner_cell(&t, c, p);
			table_text(&t, ROW_PLAIN, "%s", p->name ? p->name : "-");
		}
		if (k->n_procs > k->n_procs_kept) {
			CLEANUP_FREE char *more =
				xasprintf("and %zu smaller ones", k->n_procs - k->n_procs_kept);

			table_note(&t, ROW_DIM, more);
		}
	}
	if (t.n_rows)
		table_put(&t, style, true, out);
}

static void put_head(const struct cluster_node *n, int64_t now_ms, const struct row_style *style,
	struct buf *out)
{
	static const struct store_node none;
	const struct store_node *row = n->row ? n->row : &none;
	const char *state = row->state && *row->state ? row->state : "not looked at yet",
		   *name = cluster_node_name(n), *why;
	bool is_up = !strcmp(state, "up");
	struct row r;

	row_begin(&r, style, out);
	row_text(&r, ROW_BOLD, name);
	row_printf(&r, is_up ? ROW_GREEN : ROW_AMBER, " [%s%s%s%s]", state,
		row->is_drained ? ", drained" : "", row->is_ignored ? ", ignored" : "",
		n->config ? "" : ", not in the configuration any more");
	if (row->hostname && strcmp(row->hostname, name) != 0)
		row_printf(&r, ROW_DIM, " %s", row->hostname);
	if (row->last_seen_ms) {
		CLEANUP(buf_done) struct buf age = {0};

		text_put_duration(
			&age, now_ms > row->last_seen_ms ? now_ms - row->last_seen_ms : 0);
		row_printf(&r, ROW_DIM, ", seen %s ago", buf_str(&age));
	}
	row_end(&r);
	/* The sentence behind any state but a good one; that it's drained or ignored stands above. */
	why = n->why_not;
	if (!*why || !strcmp(why, "drained") || !strcmp(why, "ignored"))
		why = !is_up && row->last_error ? row->last_error : "";
	if (*why) {
		CLEANUP(buf_done) struct buf line = {0};

		queue_put_line(&line, why, ERROR_CELLS);
		row_begin(&r, style, out);
		row_text(&r, ROW_PLAIN, "  ");
		row_wrap(&r, ROW_AMBER, 2, buf_str(&line));
	}
}

static void put_node(const struct cluster *c, const struct cluster_node *n,
	const struct nodes_view *v, const struct row_style *style, struct buf *out)
{
	CLEANUP(table_done) struct table t;

	put_head(n, v->now_ms, style, out);
	table_init(&t, columns, COLUMN_N);
	for (size_t i = 0; i < n->inv.n_cards; i++)
		if (is_card_shown(v, &n->cards[i]))
			put_card(&t, n, i, v);
	if (t.n_rows)
		table_put(&t, style, true, out);
	if (v->with_procs)
		put_procs(c, n, v, style, out);
}

void queue_nodes_put(const struct cluster *c, const struct nodes_view *v,
	const struct row_style *style, struct buf *out)
{
	size_t n_ignored = 0;

	for (size_t i = 0; i < c->n_nodes; i++) {
		if (is_shown(v, &c->nodes[i]))
			put_node(c, &c->nodes[i], v, style, out);
		else
			n_ignored++;
	}
	if (n_ignored)
		buf_printf(out, "(%zu ignored; --include-ignored shows %s)\n", n_ignored,
			n_ignored == 1 ? "it" : "them");
	if (!c->n_nodes)
		buf_puts(out,
			"no nodes: `servers:` of config.yml or queue.yml name them, `include_local: true` takes this machine in\n");
}

/* ---- a card's name ---- */

static int find_card(const struct cluster *c, size_t node, const char *word, size_t *ret_card)
{
	int i = *word ? inventory_find(&c->nodes[node].inv, word) : -1;

	if (i < 0)
		return -ENOENT;
	*ret_card = (size_t)i;
	return 0;
}

int queue_card_parse(const struct cluster *c, const char *word, size_t *ret_node, size_t *ret_card,
	struct err *e)
{
	CLEANUP_FREE char *copy = xstrdup(word);
	CLEANUP(buf_done) struct buf quoted = {0};
	size_t node = 0;
	bool has_node = false;

	/* From the right: a node's name may hold colons, and so does an instance's ("0:1"). */
	for (size_t at = strlen(copy); at > 0; at--) {
		size_t found;

		if (copy[at] != ':')
			continue;
		copy[at] = '\0';
		if (!cluster_find_node(c, copy, &found, &(struct err){0})) {
			node = found;
			has_node = true;
			if (!find_card(c, node, word + at + 1, ret_card)) {
				*ret_node = node;
				return 0;
			}
		}
		copy[at] = ':';
	}
	text_put_repr(&quoted, word, strnlen(word, 200));
	if (!has_node)
		return err_set(e, -EINVAL, "%s is no NODE:GPU, as gpu1:0; `queue cards` lists them",
			buf_str(&quoted));
	if (!c->nodes[node].inv.n_cards)
		return err_set(e, -ENOENT,
			"no card of node %s is known yet; `queue tick` looks at the nodes",
			cluster_node_name(&c->nodes[node]));
	return err_set(e, -ENOENT, "node %s has no such card as %s says; `queue cards` lists them",
		cluster_node_name(&c->nodes[node]), buf_str(&quoted));
}

json_t *queue_nodes_json(const struct cluster *c, const struct nodes_view *v)
{
	json_t *a = json_array();

	for (size_t i = 0; i < c->n_nodes; i++)
		if (is_shown(v, &c->nodes[i]))
			json_array_append_new(a, cluster_node_json(c, i, v->is_masked));
	return a;
}

json_t *queue_nodes_ignored(const struct cluster *c)
{
	json_t *a = json_array();

	for (size_t i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].row && c->nodes[i].row->is_ignored)
			json_array_append_new(a, json_string(cluster_node_name(&c->nodes[i])));
	return a;
}
