/* The first pane (queue_view.h): the task flow, a row a card, or the servers' capacity. */
#include "tui/queue_view.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "tui/bar.h"
#include "tui/pane.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROOM_MIB = 1024,
	PLENTY_MIB = 4096,
	FOREIGN_SHOWN = 3,
	BAR_CELLS = 20,
	PIN_ROOM = 5,
	ARROW_CELLS = 5,
	COUNT_CELLS = 4,
	LANE_CELLS = 12
};

enum row_kind { ROW_NODE, ROW_CARD, ROW_PROC, ROW_POOL, ROW_DEPS };
struct row {
	enum row_kind kind;
	int node, card, proc;
};
struct rows {
	struct row *v;
	size_t n, cap;
};

static void add(struct rows *l, enum row_kind kind, int node, int card, int proc)
{
	GROW(l->v, l->n, l->cap);
	l->v[l->n++] = (struct row){kind, node, card, proc};
}

/* ---- which rows ---- */

struct largest {
	int card, proc;
	int64_t mib;
};

static int by_size(const void *a, const void *b)
{
	const struct largest *x = a, *y = b;

	return (x->mib < y->mib) - (x->mib > y->mib);
}

/* The largest of others' processes on a node. */
static void add_foreign(struct rows *l, const struct snap_node *n, int node)
{
	struct largest *v = NULL;
	size_t k = 0, cap = 0;

	for (size_t c = 0; c < n->n_cards; c++)
		for (size_t i = 0; i < n->cards[c].n_procs; i++)
			if (!n->cards[c].procs[i].is_ours) {
				GROW(v, k, cap);
				v[k++] = (struct largest){
					(int)c, (int)i, n->cards[c].procs[i].mem_mib};
			}
	if (k)
		qsort(v, k, sizeof(*v), by_size);
	for (size_t i = 0; i < k && i < FOREIGN_SHOWN; i++)
		add(l, ROW_PROC, node, v[i].card, v[i].proc);
	free(v);
}

static void add_node(const struct queue_model *m, struct rows *l, int node)
{
	const struct snap_node *n = &m->snap.nodes[node];

	add(l, ROW_NODE, node, -1, -1);
	for (size_t c = 0; c < n->n_cards; c++) {
		add(l, ROW_CARD, node, (int)c, -1);
		for (size_t i = 0;
			m->is_capacity && m->procs == QPROCS_ALL && i < n->cards[c].n_procs; i++)
			add(l, ROW_PROC, node, (int)c, (int)i);
	}
	if (m->is_capacity && m->procs == QPROCS_SUMMARY)
		add_foreign(l, n, node);
}

static bool has_edges(const struct queue_model *m)
{
	for (size_t i = 0; i < m->snap.n_jobs; i++)
		if (m->snap.jobs[i].state == SNAP_PENDING && m->snap.jobs[i].n_needs)
			return true;
	return false;
}

static void list_rows(const struct queue_model *m, struct rows *l)
{
	for (size_t i = 0; i < m->snap.n_nodes; i++)
		add_node(m, l, (int)i);
	if (m->is_capacity)
		return;
	add(l, ROW_POOL, (int)m->snap.n_nodes, -1, -1);
	if (has_edges(m))
		add(l, ROW_DEPS, -1, -1, -1);
}

int queue_resources_height(const struct queue_model *m)
{
	struct rows l = {0};
	int n;

	list_rows(m, &l);
	n = (int)l.n;
	free(l.v);
	/* One for the sentence that says there's none. */
	return n ? n : 1;
}

/* ---- a server ---- */

static bool has_room(const struct snap_node *n)
{
	for (size_t i = 0; i < n->n_cards; i++)
		if (n->cards[i].free_mib >= ROOM_MIB)
			return true;
	return false;
}

static void put_dot(struct pen *p, const struct snap_node *n)
{
	bool is_up = !strcmp(n->state, "up");

	if (!n->n_cards && is_up)
		pen_either(p, STYLE(INK_DIM), "\xe2\x97\x8b ", "o ");
	else if (!is_up)
		pen_either(p, STYLE(INK_BAD), "\xe2\x97\x8f ", "! ");
	else if (n->is_drained || !has_room(n))
		pen_either(p, STYLE(INK_WARN), "\xe2\x97\x8f ", "* ");
	else
		pen_either(p, STYLE(INK_GOOD), "\xe2\x97\x8f ", "* ");
}

static void draw_node(const struct queue_model *m, struct pen *p, const struct snap_node *n)
{
	bool is_up = !strcmp(n->state, "up");

	put_dot(p, n);
	pen_put(p, STYLE_STRONG(INK_PLAIN), n->name);
	if (n->n_cards)
		pen_printf(p, STYLE(INK_DIM), "  %zux %s", n->n_cards, n->cards[0].name);
	if (m->is_capacity && n->hostname[0] && strcmp(n->hostname, n->name) != 0)
		pen_printf(p, STYLE(INK_DIM), "  %s", n->hostname);
	pen_put(p, STYLE(is_up ? INK_DIM : INK_BAD), "  ");
	pen_put(p, STYLE(is_up ? INK_DIM : INK_BAD), n->state);
	if (n->is_drained)
		pen_put(p, STYLE(INK_WARN), "  drained");
	else if (n->why[0] && !is_up)
		pen_printf(p, STYLE(INK_BAD), "  %s", n->why);
}

/* ---- task flow ---- */

static void hit_from(struct frame *f, const struct pen *p, int x, int action, int64_t arg)
{
	if (p->x > x)
		frame_hit(f, rect_of(x, p->y, p->x - x, 1), action, arg);
}

static void put_arrow(struct pen *p)
{
	pen_either(p, STYLE(INK_DIM), " \xe2\x94\x80\xe2\x94\x80\xe2\x96\xb6 ", " --> ");
}

static enum ink activity_ink(enum queue_activity a)
{
	static const enum ink inks[] = {INK_GOOD, INK_FOREIGN, INK_WARN, INK_DIM, INK_BAD};

	return inks[a];
}

static enum ink free_ink(int64_t mib)
{
	return mib >= PLENTY_MIB ? INK_PLAIN : mib >= ROOM_MIB ? INK_WARN : INK_BAD;
}

static void put_needs(struct pen *p, const struct snap_job *j, bool is_ascii)
{
	for (size_t i = 0; i < j->n_needs; i++) {
		const struct snap_need *n = &j->needs[i];

		pen_put(p, STYLE(INK_FOCUS), i ? "," : " ");
		if (is_ascii)
			pen_printf(
				p, STYLE(INK_FOCUS), "<%s#%" PRId64, n->is_any ? "*" : "+", n->id);
		else
			pen_printf(p, STYLE(INK_FOCUS), "\xe2\x86\x90%s#%" PRId64,
				n->is_any ? "\xe2\x97\x87" : "\xe2\x9c\x93", n->id);
	}
}

/* The cells of a job's card, drawn onto nothing. */
static void put_job(struct frame *f, struct pen *p, const struct snap_job *j, size_t position)
{
	pen_printf(p, STYLE(INK_DIM), "[%zu:", position);
	pen_printf(p, STYLE_STRONG(INK_PLAIN), "#%" PRId64, j->id);
	if (j->is_held)
		pen_put(p, STYLE(INK_WARN), " HELD");
	pen_printf(p, STYLE(INK_DIM), " P%s%" PRId64, j->priority > 0 ? "+" : "", j->priority);
	if (j->name[0])
		pen_printf(p, STYLE(INK_PLAIN), " %s", j->name);
	put_needs(p, j, f->grid.ascii);
	pen_put(p, STYLE(INK_DIM), "]");
}

static int job_width(const struct frame *f, const struct snap_job *j, size_t position)
{
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "[%zu:#%" PRId64 "%s P%s%" PRId64 "%s%s", position, j->id,
		j->is_held ? " HELD" : "", j->priority > 0 ? "+" : "", j->priority,
		j->name[0] ? " " : "", j->name);
	for (size_t i = 0; i < j->n_needs; i++)
		buf_printf(&b, " ..#%" PRId64, j->needs[i].id);
	(void)f;
	return grid_width(buf_str(&b)) + 1;
}

/* As many cards as fit, and how many are left. */
static void put_waiting(const struct queue_model *m, struct frame *f, struct pen *p,
	const size_t *v, size_t n, int action, int64_t arg)
{
	struct pen before;
	size_t i;
	int x;

	for (i = 0; i < n; i++) {
		const struct snap_job *j = &m->snap.jobs[v[i]];
		int more = n - i > 1 ? 8 : 0;

		if (job_width(f, j, i + 1) + more + ARROW_CELLS > pen_left(p))
			break;
		put_arrow(p);
		x = p->x;
		put_job(f, p, j, i + 1);
		hit_from(f, p, x, QDO_CARD_OF_JOB, j->id);
	}
	if (i == n)
		return;
	pen_skip(p, 2);
	x = p->x;
	before = *p;
	pen_printf(p, STYLE(INK_FOCUS), "+%zu", n - i);
	pen_whole(p, &before);
	hit_from(f, p, x, action, arg);
}

/* Where it's narrow without how long, then with the beginning of its name. reserve: cells for what comes behind it. */
static void put_run(struct pen *p, const struct snap_job *j, int reserve, int64_t wall_ms)
{
	CLEANUP(buf_done) struct buf head = {0}, time = {0};
	const char *word = j->state == SNAP_RUNNING ? "RUN" : "START";
	struct pen name;
	int rest;

	buf_printf(&head, " #%" PRId64 " ", j->id);
	queue_put_elapsed(&time, queue_job_elapsed(j, wall_ms));
	pen_put(p, STYLE(INK_DIM), "[ ");
	pen_put(p, STYLE(j->state == SNAP_RUNNING ? INK_GOOD : INK_FOCUS), word);
	pen_put(p, STYLE_STRONG(INK_PLAIN), buf_str(&head));
	rest = pen_left(p) - 2 - reserve - grid_width(j->name) - (time.len ? (int)time.len + 1 : 0);
	if (rest >= 0 || p->is_cut) {
		pen_put(p, STYLE(INK_PLAIN), j->name);
		if (time.len)
			pen_printf(p, STYLE(INK_DIM), " %s", buf_str(&time));
	} else {
		name = pen_at(p->g, p->x, p->y, pen_left(p) - 2 - reserve);
		pen_put(&name, STYLE(INK_PLAIN), j->name);
		p->x = name.x;
	}
	pen_put(p, STYLE(INK_DIM), " ]");
}

static void put_running(const struct queue_model *m, struct frame *f, struct pen *p,
	const struct snap_node *n, const struct snap_card *c, int64_t wall_ms)
{
	const struct snap_job *j = queue_model_on_card(m, n, c, 0);
	size_t others = 0, waiting;
	int x;

	if (!j)
		return;
	while (queue_model_on_card(m, n, c, others + 1))
		others++;
	pen_skip(p, 2);
	x = p->x;
	free(queue_model_waiting(m, n->name, c->label, &waiting));
	put_run(p, j, waiting ? COUNT_CELLS : 0, wall_ms);
	hit_from(f, p, x, QDO_CARD_OF_JOB, j->id);
	if (!others)
		return;
	pen_put(p, STYLE(INK_DIM), " ");
	x = p->x;
	pen_printf(p, STYLE(INK_FOCUS), "+%zu", others);
	hit_from(f, p, x, QDO_SELECT_NODE, QUEUE_PLACE(n - m->snap.nodes, c - n->cards));
}

static void put_lane(const struct queue_model *m, struct frame *f, struct pen *p,
	const struct snap_node *n, const struct snap_card *c)
{
	size_t k;
	CLEANUP_FREE size_t *v = queue_model_waiting(m, n->name, c->label, &k);
	int64_t place = QUEUE_PLACE(n - m->snap.nodes, c - n->cards);
	int x;

	if (!k && !c->is_lane_paused && !c->lane_why[0])
		return;
	/* The count, if there's no room for the rest. */
	if (pen_left(p) < ARROW_CELLS + LANE_CELLS) {
		pen_skip(p, 1);
		x = p->x;
		pen_printf(p, STYLE(INK_FOCUS), "Q%zu", k);
	} else {
		put_arrow(p);
		x = p->x;
		pen_printf(p, STYLE(INK_FOCUS), "{ lane Q%zu }", k);
	}
	hit_from(f, p, x, QDO_LANE, place);
	if (c->is_lane_paused)
		pen_put(p, STYLE(INK_WARN), " PAUSED");
	if (c->lane_why[0])
		pen_printf(p, STYLE(INK_WARN), " BLOCKED: %s", c->lane_why);
	put_waiting(m, f, p, v, k, QDO_LANE, place);
}

static void put_card_head(struct pen *p, const struct snap_node *n, const struct snap_card *c)
{
	enum queue_activity a = queue_activity(n, c);

	pen_printf(p, STYLE_STRONG(INK_PLAIN), "  G%-3s", c->label);
	pen_printf(p, STYLE(activity_ink(a)), "%-8s", queue_activity_name(a));
}

static void draw_card(const struct queue_model *m, struct frame *f, struct pen *p,
	const struct snap_node *n, const struct snap_card *c, int64_t wall_ms)
{
	CLEANUP(buf_done) struct buf b = {0};
	bool is_live = queue_activity(n, c) != ACT_UNKNOWN;

	put_card_head(p, n, c);
	/* Of a node that doesn't answer there's no live figure, and its room is what it was. */
	if (c->util_pct >= 0 && is_live)
		pen_printf(p, STYLE(INK_PLAIN), " %3" PRId64 "%%", c->util_pct);
	else
		pen_put(p, STYLE(INK_DIM), "    -");
	queue_put_mib(&b, c->free_mib);
	pen_printf(p, STYLE(c->free_mib < 0 || !is_live ? INK_DIM : free_ink(c->free_mib)),
		" %6s free", b.len ? buf_str(&b) : "-");
	if (!c->is_in_service)
		pen_put(p, STYLE(INK_BAD), "  out of service");
	put_running(m, f, p, n, c, wall_ms);
	put_lane(m, f, p, n, c);
}

static void draw_pool(const struct queue_model *m, struct frame *f, struct pen *p)
{
	size_t n;
	CLEANUP_FREE size_t *v = queue_model_waiting(m, NULL, NULL, &n);
	int x = p->x;

	pen_put(p, STYLE_STRONG(INK_PLAIN), "ANY GPU");
	put_arrow(p);
	pen_printf(p, STYLE(INK_FOCUS), "{ Q%zu", n);
	pen_either(p, STYLE(INK_FOCUS), " \xc2\xb7 priority }", " by priority }");
	hit_from(f, p, x, QDO_POOL, 0);
	put_waiting(m, f, p, v, n, QDO_POOL, 0);
}

static void draw_deps(const struct queue_model *m, struct frame *f, struct pen *p)
{
	size_t shown = 0;

	pen_put(p, STYLE_STRONG(INK_PLAIN), "DEPS ");
	for (size_t i = 0; i < m->snap.n_jobs; i++) {
		const struct snap_job *j = &m->snap.jobs[i];

		for (size_t k = 0; j->state == SNAP_PENDING && k < j->n_needs; k++) {
			int x;

			if (shown++)
				pen_either(p, STYLE(INK_DIM), " \xc2\xb7 ", " ; ");
			x = p->x;
			pen_printf(p, STYLE(INK_PLAIN), "#%" PRId64, j->needs[k].id);
			if (j->needs[k].is_any)
				pen_either(p, STYLE(INK_DIM),
					" \xe2\x94\x80\xe2\x97\x87\xe2\x96\xb6 ", " -*> ");
			else
				pen_either(p, STYLE(INK_DIM),
					" \xe2\x94\x80\xe2\x9c\x93\xe2\x96\xb6 ", " -+> ");
			pen_printf(p, STYLE(j->is_held ? INK_WARN : INK_PLAIN), "#%" PRId64, j->id);
			hit_from(f, p, x, QDO_CARD_OF_JOB, j->id);
		}
	}
}

/* ---- capacity ---- */

/* Amber what others hold, teal what's reserved for jobs, dim what's free. */
static void put_bar(struct pen *p, const struct snap_card *c, int cells)
{
	struct bar_part parts[] = {{c->foreign_mib > 0 ? c->foreign_mib : 0, STYLE(INK_FOREIGN)},
		{c->reserved_mib > 0 ? c->reserved_mib : 0, STYLE(INK_OURS)}};

	bar_parts(p, cells, parts, ARRAY_LEN(parts), c->total_mib);
}

static enum ink level(int64_t v, int64_t warn, int64_t bad)
{
	return v >= bad ? INK_BAD : v >= warn ? INK_WARN : INK_PLAIN;
}

/* Each in its column. Of a node that doesn't answer there's no live figure. */
static void put_all_figures(struct pen *p, const struct snap_card *c, bool is_live)
{
	struct pen before = *p;

	/* "1 job" is shorter than "2 jobs". */
	pen_skip(p, c->n_jobs == 1);
	if (c->util_pct >= 0 && is_live)
		pen_printf(p, STYLE(level(c->util_pct, 50, 90)), " %3" PRId64 "%%", c->util_pct);
	else
		pen_put(p, STYLE(INK_DIM), "    -");
	pen_whole(p, &before);
	before = *p;
	if (c->temperature_c >= 0 && is_live)
		pen_printf(p, STYLE(level(c->temperature_c, 70, 85)), " %3" PRId64 "C",
			c->temperature_c);
	else
		pen_put(p, STYLE(INK_DIM), "    -");
	pen_whole(p, &before);
	before = *p;
	pen_printf(p, STYLE(INK_DIM), "  ext %" PRId64 "p", c->n_external);
	pen_whole(p, &before);
}

static void draw_capacity(const struct queue_model *m, struct pen *p, const struct snap_node *n,
	const struct snap_card *c)
{
	CLEANUP(buf_done) struct buf used = {0}, total = {0}, room = {0};

	queue_put_mib(&used, c->used_mib);
	queue_put_mib(&total, c->total_mib);
	queue_put_mib(&room, c->free_mib);
	put_card_head(p, n, c);
	pen_put(p, STYLE(INK_PLAIN), " ");
	put_bar(p, c, p->end > 110 ? BAR_CELLS : BAR_CELLS / 2);
	pen_printf(p, STYLE(c->free_mib < 0 ? INK_DIM : free_ink(c->free_mib)), " %s%6s/%-6s",
		c->is_blind ? "~" : "", used.len ? buf_str(&used) : "-",
		total.len ? buf_str(&total) : "-");
	pen_printf(p, STYLE(INK_PLAIN), " free %-6s", room.len ? buf_str(&room) : "-");
	pen_printf(p, STYLE(c->n_jobs ? INK_PLAIN : INK_DIM), " %u job%s", c->n_jobs,
		c->n_jobs == 1 ? "" : "s");
	if (m->procs == QPROCS_ALL)
		put_all_figures(p, c, queue_activity(n, c) != ACT_UNKNOWN);
	if (c->why[0] && !c->is_in_service)
		pen_printf(p, STYLE(INK_BAD), "  %s", c->why);
}

static void draw_proc(struct pen *p, const struct snap_card *c, const struct snap_proc *x)
{
	CLEANUP(buf_done) struct buf b = {0};

	queue_put_mib(&b, x->mem_mib);
	pen_printf(p, STYLE(INK_DIM), "      G%s ", c->label);
	pen_put(p, STYLE(x->is_ours ? INK_OURS : INK_FOREIGN), x->user[0] ? x->user : "?");
	pen_printf(p, STYLE(INK_PLAIN), " %s ", b.len ? buf_str(&b) : "-");
	pen_put(p, STYLE(INK_DIM), x->name);
	pen_printf(p, STYLE(INK_DIM), " (%" PRId64 ")", x->pid);
}

/* ---- the pane ---- */

/* Of a server, its GPUs and what runs on them. */
static void draw_place(
	const struct queue_model *m, struct frame *f, struct rect at, struct row r, int64_t wall_ms)
{
	struct pen p = pen_at(&f->grid, at.x, at.y, at.w);
	const struct snap_node *n = &m->snap.nodes[r.node];

	frame_hit(f, at, QDO_SELECT_NODE, QUEUE_PLACE(r.node, r.card));
	if (r.kind == ROW_NODE)
		draw_node(m, &p, n);
	else if (r.kind == ROW_PROC)
		draw_proc(&p, &n->cards[r.card], &n->cards[r.card].procs[r.proc]);
	else if (m->is_capacity)
		draw_capacity(m, &p, n, &n->cards[r.card]);
	else
		draw_card(m, f, &p, n, &n->cards[r.card], wall_ms);
}

static void draw_row(
	const struct queue_model *m, struct frame *f, struct rect at, struct row r, int64_t wall_ms)
{
	struct pen p = pen_at(&f->grid, at.x, at.y, at.w);

	if (r.kind == ROW_POOL)
		draw_pool(m, f, &p);
	else if (r.kind == ROW_DEPS)
		draw_deps(m, f, &p);
	else
		draw_place(m, f, at, r, wall_ms);
}

/* The row in the list that's selected; -1: none of these. */
static int selected_row(const struct queue_model *m, const struct row *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (v[i].node == m->node && v[i].card == m->card && v[i].kind != ROW_PROC)
			return (int)i;
	return -1;
}

/* Where not all rows fit, what waits for any GPU (and the dependencies, where there's room) stays at the end. */
static size_t pinned(const struct rows *l, int room)
{
	size_t n = 0;

	if (l->n <= (size_t)room || room < PIN_ROOM)
		return 0;
	while (n < l->n && l->v[l->n - n - 1].kind >= ROW_POOL)
		n++;
	return n;
}

static void draw_rows(struct queue_model *m, struct frame *f, struct rect in, const struct row *v,
	size_t n, int first, int64_t wall_ms)
{
	int selected = m->focus == QFOCUS_NODES ? selected_row(m, v, n) : -1;

	for (int i = 0; v && i < in.h && first + i < (int)n; i++) {
		struct rect at = rect_of(in.x, in.y + i, in.w, 1);

		draw_row(m, f, at, v[first + i], wall_ms);
		if (first + i == selected)
			grid_paper(&f->grid, at.x, at.y, at.w, PAPER_SELECTED, 0);
	}
}

/* In the frame's upper edge, on the right, where not all rows fit. */
static void draw_range(struct frame *f, struct rect r, int first, int room, int n)
{
	CLEANUP(buf_done) struct buf b = {0};
	int w;
	struct pen p;

	if (n <= room || room < 1)
		return;
	buf_printf(&b, " rows %d-%d of %d ", first + 1, first + room, n);
	w = grid_width(buf_str(&b));
	if (r.w < w + 20)
		return;
	p = pen_at(&f->grid, r.x + r.w - w - 2, r.y, w);
	pen_put(&p, STYLE(INK_DIM), buf_str(&b));
}

void queue_resources(struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms)
{
	struct rows l = {0};
	struct rect in, last;
	size_t n_pinned;
	int selected;

	list_rows(m, &l);
	frame_hit(f, r, QDO_RESOURCES, 0);
	in = pane_draw(f, r, m->is_capacity ? "Capacity" : "Task flow", m->focus == QFOCUS_NODES);
	n_pinned = pinned(&l, in.h);
	last = rect_take_bottom(&in, (int)n_pinned);
	selected = selected_row(m, l.v, l.n - n_pinned);
	m->resource_page = in.h;
	m->first_row = list_window(m->first_row,
		m->follows && selected >= 0 ? selected : m->first_row, (int)(l.n - n_pinned), in.h);
	if (!m->snap.n_nodes && m->is_capacity && in.h)
		grid_wrap(&f->grid, in, STYLE(INK_DIM),
			"no servers: the configuration's list of servers is empty", 0);
	draw_rows(m, f, in, l.v, l.n - n_pinned, m->first_row, wall_ms);
	draw_rows(m, f, last, l.v + (l.n - n_pinned), n_pinned, 0, wall_ms);
	draw_range(f, r, m->first_row, in.h, (int)(l.n - n_pinned));
	free(l.v);
}
