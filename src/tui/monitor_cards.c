/* The unified view: all cards of all nodes in one table, flat, in bands by node, or as cards of several lines. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/profile.h"
#include "show/figure.h"
#include "show/profile_columns.h"
#include "tui/bar.h"
#include "tui/view_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BARS_COLS = 100, STATUS_MAX = 4, STATUS_ROWS = 30, TRENDS_ROWS = 6, TABLE_MIN = 4 };

static const struct column columns[] = {
	{"", .min = 1},
	{"Node", .min = 10, .drop = 11},
	{"Hostname/IP", .min = 13, .drop = 9},
	{"GPU", .min = 3},
	{"Model", .min = 10, .drop = 10},
	{"Util", .min = 7, .is_number = true},
	{"VRAM U/T MiB", .min = 13, .is_number = true},
	{"Temp", .min = 6, .drop = 6, .is_number = true},
	{"Fan", .min = 8, .drop = 1, .is_number = true},
	{"Power", .min = 13, .drop = 5},
	{"PCIe", .min = 7, .drop = 2},
	{"RX", .min = 10, .drop = 4, .is_number = true},
	{"TX", .min = 10, .drop = 3, .is_number = true},
	{"Processes", .min = 14, .drop = 8},
};
static const enum card_cell cells[] = {CELL_MARK, CELL_NODE, CELL_ADDRESS, CELL_INDEX, CELL_MODEL,
	CELL_UTIL, CELL_MEMORY, CELL_TEMP, CELL_FAN, CELL_POWER, CELL_LINK, CELL_RX, CELL_TX,
	CELL_USERS};
enum { N_COLUMNS = ARRAY_LEN(columns), N_ID = 2 /* Node and Hostname/IP, after the mark */ };

static bool is_grouped(const struct monitor *m)
{
	return m->view.group_by_node && m->view.sort == SORT_NODE && !m->view.detailed;
}

/* ---- lines above the table ---- */

static void draw_capacity(const struct monitor *m, struct frame *f, struct rect r)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);
	struct show_sums x = {0};
	int64_t util, mem;
	struct pen before;

	for (size_t i = 0; i < m->n_nodes; i++)
		if (m->nodes[i].host.sample)
			show_sums_add(&x, m->nodes[i].host.sample);
	util = x.n_util ? x.util / x.n_util : 0;
	mem = show_percent(x.used_mib, x.total_mib);
	pen_put(&p, STYLE(INK_DIM), "available ");
	pen_printf(&p, STYLE(x.n_idle ? INK_GOOD : INK_DIM), "%lld/%lld", (long long)x.n_idle,
		(long long)x.n_cards);
	pen_printf(&p, STYLE(INK_DIM), "  busy %lld", (long long)x.n_busy);
	pen_printf(
		&p, STYLE(view_level(util, 50, 80, INK_PLAIN)), "  util %lld%%", (long long)util);
	before = p;
	pen_printf(&p, STYLE(view_level(mem, 75, 90, INK_PLAIN)), "  VRAM %lld/%lldG (%lld%%)",
		(long long)(x.used_mib / 1024), (long long)(x.total_mib / 1024), (long long)mem);
	pen_whole(&p, &before);
	before = p;
	pen_printf(
		&p, STYLE(INK_DIM), "  free %lldG", (long long)((x.total_mib - x.used_mib) / 1024));
	pen_whole(&p, &before);
}

static const char *const filter_words[] = {"all", "available", "busy", "errors"};
static const char *const sort_words[] = {"node order", "available first", "busiest first"};

static void draw_hidden(const struct monitor *m, struct frame *f, struct rect r, size_t hidden)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	pen_printf(&p, STYLE(INK_WARN), "the filter \"%s\" hides %zu card%s; f changes it",
		filter_words[m->view.filter], hidden, hidden == 1 ? "" : "s");
}

static void put_title(
	const struct monitor *m, size_t n, size_t all, int from, int to, struct buf *out)
{
	size_t with = 0;

	for (size_t i = 0; i < m->n_nodes; i++)
		with += m->nodes[i].host.sample && m->nodes[i].host.sample->snap.n_cards > 0;
	buf_puts(out, "Cards ");
	if (n != all)
		buf_printf(out, "%zu/", n);
	buf_printf(out, "%zu on %zu/%zu nodes", all, with, m->n_nodes);
	if (m->view.sort != SORT_NODE)
		buf_printf(out, ", %s", sort_words[m->view.sort]);
	if (n)
		buf_printf(out, ", %d-%d", from, to);
}

/* ---- the table ---- */

static void draw_band(struct monitor *m, struct frame *f, struct rect r, uint32_t i)
{
	const struct monitor_node *n = &m->nodes[i];
	struct pen p = pen_at(&f->grid, r.x, r.y, r.w);
	struct show_sums x = {0};
	struct pen before;

	show_sums_add(&x, n->host.sample);
	pen_put(&p, STYLE_STRONG(INK_FOCUS), n->name);
	if (n->address && strcmp(n->address, n->name) != 0)
		pen_printf(&p, STYLE(INK_DIM), " (%s)", n->address);
	pen_printf(&p, STYLE(INK_DIM), "  %lld GPU%s", (long long)x.n_cards,
		x.n_cards == 1 ? "" : "s");
	pen_printf(&p, STYLE(x.n_idle ? INK_GOOD : INK_DIM), "  %lld free", (long long)x.n_idle);
	if (x.n_util)
		pen_printf(&p, STYLE(view_level(x.util / x.n_util, 50, 80, INK_DIM)),
			"  util %lld%%", (long long)(x.util / x.n_util));
	/* Before the figures, which may not have room. */
	if (node_has_failed(n))
		pen_printf(&p, STYLE(INK_BAD), "  %s", n->host.state);
	if (x.total_mib) {
		int64_t mem = show_percent(x.used_mib, x.total_mib);

		before = p;
		pen_printf(&p, STYLE(view_level(mem, 75, 90, INK_DIM)), "  VRAM %lld/%lldG",
			(long long)(x.used_mib / 1024), (long long)(x.total_mib / 1024));
		pen_whole(&p, &before);
	}
	pen_put(&p, STYLE(INK_DIM), " ");
	if (!p.is_cut)
		pen_repeat(&p, STYLE(INK_DIM), "\xe2\x94\x80", "-", pen_left(&p));
}

static const char *status_of(const struct monitor *m, struct card_row r, enum ink *ret)
{
	struct value util = monitor_value(m, r, METRIC_UTIL_GPU);

	*ret = INK_DIM;
	if (monitor_card(m, r)->state != GPU_OK) {
		*ret = INK_BAD;
		return "FAILED";
	}
	if (!value_is_present(util))
		return "UNKNOWN";
	*ret = util.v >= 80 ? INK_BAD : util.v >= 50 ? INK_WARN : util.v >= 5 ? INK_FOCUS : INK_DIM;
	return util.v >= 80 ? "HIGH" : util.v >= 50 ? "BUSY" : util.v >= 5 ? "ACTIVE" : "IDLE";
}

static void put_cell(const struct monitor *m, struct pen *p, struct card_row r, enum card_cell cell,
	const char *name)
{
	CLEANUP(buf_done) struct buf b = {0};

	view_cell_text(m, r, cell, &b);
	if (name[0])
		pen_printf(p, STYLE(INK_DIM), "  %s ", name);
	if (b.len)
		pen_put(p, view_cell_style(m, r, cell), buf_str(&b));
	else
		pen_put(p, STYLE(INK_DIM), "-");
}

static void detail_id(const struct monitor *m, struct pen *p, struct card_row r)
{
	enum ink ink;
	const char *status = status_of(m, r, &ink);

	pen_put(p, STYLE_STRONG(INK_FOCUS), m->nodes[r.node].name);
	put_cell(m, p, r, CELL_INDEX, "GPU");
	pen_printf(p, STYLE_STRONG(ink), " [%s] ", status);
	put_cell(m, p, r, CELL_MODEL, "");
	if (m->nodes[r.node].address)
		pen_printf(p, STYLE(INK_DIM), "  %s", m->nodes[r.node].address);
}

static void detail_load(const struct monitor *m, struct pen *p, struct card_row r, bool has_bar)
{
	struct value util = monitor_value(m, r, METRIC_UTIL_GPU);
	enum ink ink;

	(void)status_of(m, r, &ink);
	if (value_is_present(util))
		pen_printf(p, STYLE(ink), "%3lld%% ", (long long)util.v);
	else
		pen_put(p, STYLE(INK_DIM), "   - ");
	if (has_bar && value_is_present(util))
		bar_put(p, 10, util.v * 10, STYLE(ink));
	put_cell(m, p, r, CELL_MEM_UTIL, "memory bus");
	put_cell(m, p, r, CELL_POWER, "power");
}

static void detail_memory(const struct monitor *m, struct pen *p, struct card_row r, bool has_bar)
{
	struct value used = monitor_value(m, r, METRIC_MEM_USED),
		     total = monitor_value(m, r, METRIC_MEM_TOTAL),
		     temp = monitor_value(m, r, METRIC_TEMP);

	put_cell(m, p, r, CELL_MEMORY, "");
	if (value_is_present(used) && value_is_present(total)) {
		int64_t pct = show_percent(used.v, total.v);
		struct style s = STYLE(view_level(pct, 75, 90, INK_FOCUS));

		pen_printf(p, s, " MiB (%lld%%) ", (long long)pct);
		if (has_bar)
			bar_put(p, 8, pct * 10, s);
	}
	if (value_is_present(temp))
		pen_printf(p, STYLE(view_level(temp.v, 70, 85, INK_PLAIN)), "  temp %lldC",
			(long long)temp.v);
	put_cell(m, p, r, CELL_FAN, "fan");
}

static void put_rate(const struct monitor *m, struct pen *p, struct card_row r, enum card_cell cell,
	const char *name, int64_t capacity)
{
	enum metric metric = cell == CELL_RX ? METRIC_PCIE_RX : METRIC_PCIE_TX;
	struct value v = monitor_value(m, r, metric);

	put_cell(m, p, r, cell, name);
	if (value_is_present(v) && capacity)
		pen_printf(p, STYLE(INK_DIM), " (%lld%%)", (long long)show_percent(v.v, capacity));
}

static void detail_io(const struct monitor *m, struct pen *p, struct card_row r)
{
	const struct gpu_card *c = monitor_card(m, r);
	struct value max_gen = c->m[METRIC_PCIE_GEN_MAX], max_width = c->m[METRIC_PCIE_WIDTH_MAX];
	CLEANUP(buf_done) struct buf b = {0};
	int64_t gen, width, capacity = 0;

	if (show_link_of(c, &gen, &width)) {
		capacity = show_link_capacity_kib_s(gen, width);
		buf_puts(&b, "Link ");
		show_link_put(gen, width, &b);
		if (capacity) {
			buf_putc(&b, ' ');
			show_rate_put(capacity, &b);
		}
		if (value_is_present(max_gen) && value_is_present(max_width) &&
			(max_gen.v != gen || max_width.v != width)) {
			buf_puts(&b, " of ");
			show_link_put(max_gen.v, max_width.v, &b);
		}
	} else {
		buf_puts(&b, "Link -");
	}
	pen_put(p, STYLE(INK_DIM), buf_str(&b));
	put_rate(m, p, r, CELL_RX, "RX", capacity);
	put_rate(m, p, r, CELL_TX, "TX", capacity);
	put_cell(m, p, r, CELL_USERS, "processes");
}

static void detail_profile(const struct monitor *m, struct pen *p, struct card_row r)
{
	for (size_t i = 0; i < SHOW_PROFILE_N; i++) {
		struct value v = monitor_value(m, r, show_profile_columns[i].metric);

		pen_printf(
			p, STYLE(INK_DIM), "%s%s ", i ? "  " : "", show_profile_columns[i].title);
		if (value_is_present(v))
			pen_printf(
				p, STYLE(v.v >= 5 ? INK_FOCUS : INK_DIM), "%lld%%", (long long)v.v);
		else
			pen_put(p, STYLE(INK_DIM), "-");
	}
}

static void draw_detail(struct monitor *m, struct frame *f, struct rect r, const struct line *l,
	bool is_this, bool is_active)
{
	static const char *const labels[] = {"GPU", "LOAD", "MEM/TEMP", "I/O", "PROFILE"};
	struct pen p = pen_at(&f->grid, r.x, r.y, r.w);
	bool has_bar = f->grid.cols >= BARS_COLS;

	pen_either(&p, STYLE_STRONG(INK_FOCUS), is_this && !l->part ? "\xe2\x80\xba" : " ",
		is_this && !l->part ? ">" : " ");
	pen_printf(&p, STYLE(INK_DIM), "%-9s", labels[l->part]);
	if (l->part == 0)
		detail_id(m, &p, l->at);
	else if (l->part == 1)
		detail_load(m, &p, l->at, has_bar);
	else if (l->part == 2)
		detail_memory(m, &p, l->at, has_bar);
	else if (l->part == 3)
		detail_io(m, &p, l->at);
	else
		detail_profile(m, &p, l->at);
	frame_hit(f, rect_of(r.x, r.y, r.w, 1), DO_SELECT_CARD,
		(int64_t)l->at.node << 32 | l->at.card);
	if (is_active)
		grid_paper(&f->grid, r.x, r.y, r.w, PAPER_SELECTED, 0);
}

static void add_card(const struct monitor *m, struct card_row r, struct lines *l)
{
	CLEANUP(buf_done) struct buf b = {0};
	enum ink ink;

	if (!m->view.detailed) {
		lines_add(l, LINE_CARD, 0, r);
	} else {
		/* The fifth only where profiling has something to say. */
		for (int part = 0; part < 4 + profile_has(monitor_card(m, r)); part++)
			lines_add(l, LINE_DETAIL, part, r);
	}
	if (view_health(m, r, m->view.detailed ? HEALTH_NOTE : HEALTH_WARNING, &b, &ink))
		lines_add(l, LINE_HEALTH, 0, r);
	if (m->view.detailed)
		lines_add(l, LINE_BLANK, 0, r);
}

static void make_lines(const struct monitor *m, const struct card_row *rows, size_t n,
	size_t selected, struct lines *l)
{
	for (size_t i = 0; i < n; i++) {
		if (is_grouped(m) && (!i || rows[i].node != rows[i - 1].node)) {
			/* The band is seen with its first card. */
			if (i == selected)
				l->selected = (int)l->n;
			lines_add(l, LINE_BAND, 0, rows[i]);
		}
		if (i == selected && l->selected < 0)
			l->selected = (int)l->n;
		add_card(m, rows[i], l);
		if (i == selected)
			l->selected_end = (int)l->n - 1;
	}
}

/* The columns, and which cells they show: without the node's name where a band has it. */
static size_t fit(const struct monitor *m, struct columns *c, struct column *items,
	enum card_cell *shown, struct rect r)
{
	int widest[N_COLUMNS] = {0};
	size_t n = 0;

	for (size_t i = 0; i < N_COLUMNS; i++) {
		if (is_grouped(m) && (cells[i] == CELL_NODE || cells[i] == CELL_ADDRESS))
			continue;
		if (cells[i] == CELL_MODEL)
			widest[n] = view_model_width(m, 0, m->n_nodes);
		items[n] = columns[i];
		shown[n++] = cells[i];
	}
	columns_fit(c, items, n, widest, r.x, r.w, 1, m->is_compact);
	return n;
}

static void draw_table_line(struct monitor *m, struct frame *f, struct rect r,
	const struct columns *c, const enum card_cell *shown, const struct line *l,
	struct card_row selected)
{
	bool is_this = l->at.node == selected.node && l->at.card == selected.card;
	bool is_active = is_this && monitor_where(m) == IN_CARDS;
	CLEANUP(buf_done) struct buf b = {0};
	struct pen p = pen_at(&f->grid, r.x, r.y, r.w);
	enum ink ink = INK_DIM;

	switch (l->kind) {
	case LINE_BAND:
		draw_band(m, f, r, l->at.node);
		break;
	case LINE_CARD:
		view_card_row(m, f, c, shown, l->at, r.y, is_active);
		if (is_this)
			pen_either(&p, STYLE_STRONG(INK_FOCUS), "\xe2\x80\xba", ">");
		break;
	case LINE_DETAIL:
		draw_detail(m, f, r, l, is_this, is_active);
		break;
	case LINE_HEALTH:
		view_health(m, l->at, m->view.detailed ? HEALTH_NOTE : HEALTH_WARNING, &b, &ink);
		pen_printf(&p, STYLE(ink), m->view.detailed ? " HEALTH   %s" : "    ! %s",
			buf_str(&b));
		break;
	default:
		break;
	}
}

static void draw_table(struct monitor *m, struct frame *f, struct rect r,
	const struct card_row *rows, size_t n, size_t all)
{
	CLEANUP(lines_done) struct lines l = {.selected = -1, .selected_end = -1};
	CLEANUP(buf_done) struct buf title = {0};
	size_t selected = monitor_selected(m, rows, n);
	struct column items[N_COLUMNS];
	enum card_cell shown[N_COLUMNS];
	struct columns c;
	int first, seen = 0, from = 0;
	struct rect outer = r;
	bool is_framed = f->grid.cols >= NARROW_COLS && r.h > TABLE_MIN && !m->overlay;

	frame_hit(f, r, DO_CARDS_PANE, 0);
	if (is_framed)
		r = rect_of(r.x + 1, r.y + 1, r.w - 2, r.h - 2);
	else
		rect_take_top(&r, 1);
	make_lines(m, rows, n, selected, &l);
	fit(m, &c, items, shown, r);
	if (!m->view.detailed && r.h > 1)
		columns_head(f, &c, rect_take_top(&r, 1).y, STYLE(INK_DIM), 0, false, 0);
	first = m->first_card = lines_window(&l, m->first_card, r.h);
	for (int i = 0; i < r.h && first + i < (int)l.n; i++) {
		const struct line *k = &l.items[first + i];

		draw_table_line(m, f, rect_of(r.x, r.y + i, r.w, 1), &c, shown, k, rows[selected]);
		if (k->kind == LINE_CARD || (k->kind == LINE_DETAIL && !k->part))
			seen++;
	}
	for (int i = 0; i < first; i++)
		from += l.items[i].kind == LINE_CARD ||
			(l.items[i].kind == LINE_DETAIL && !l.items[i].part);
	m->page = seen > 1 ? seen : 1;
	put_title(m, n, all, from + 1, from + seen, &title);
	if (is_framed) {
		pane_draw(f, outer, buf_str(&title), monitor_where(m) == IN_CARDS);
	} else {
		struct pen p = pen_at(&f->grid, outer.x, outer.y, outer.h ? outer.w : 0);

		pen_put(&p, STYLE_STRONG(monitor_where(m) == IN_CARDS ? INK_FOCUS : INK_PLAIN),
			buf_str(&title));
	}
}

/* ---- nodes without cards, nodes that failed ---- */

static int status_lines(const struct monitor *m, size_t *ret_hidden)
{
	int n = 0;

	*ret_hidden = 0;
	for (size_t i = 0; i < m->n_nodes; i++) {
		const struct monitor_node *node = &m->nodes[i];

		if (node_has_failed(node))
			n++;
		else if (node->host.state && !strcmp(node->host.state, "none") &&
			 (node->address || m->n_nodes == 1)) {
			if (m->view.hide_unsupported && m->n_nodes > 1)
				++*ret_hidden;
			else
				n++;
		}
	}
	return n + (*ret_hidden > 0);
}

static void draw_status(const struct monitor *m, struct frame *f, struct rect r)
{
	size_t hidden;

	(void)status_lines(m, &hidden);
	for (size_t i = 0; i < m->n_nodes && r.h; i++) {
		const struct monitor_node *node = &m->nodes[i];
		bool has_failed = node_has_failed(node),
		     is_none = node->host.state && !strcmp(node->host.state, "none") &&
			       (!m->view.hide_unsupported || m->n_nodes == 1) &&
			       (node->address || m->n_nodes == 1);
		CLEANUP(buf_done) struct buf b = {0};
		struct rect line;
		struct pen p;

		if (!has_failed && !is_none)
			continue;
		line = rect_take_top(&r, 1);
		p = pen_at(&f->grid, line.x, line.y, line.w);
		view_node_state(node, &b);
		pen_printf(&p, STYLE(has_failed ? INK_BAD : INK_DIM), "%s: ", node->name);
		pen_put(&p, STYLE(has_failed ? INK_BAD : INK_DIM), buf_str(&b));
	}
	if (hidden && r.h) {
		struct pen p = pen_at(&f->grid, r.x, r.y, r.w);

		pen_printf(&p, STYLE(INK_DIM),
			"%zu node%s without GPU support hidden; u shows them", hidden,
			hidden == 1 ? "" : "s");
	}
}

static void draw_errors(struct monitor *m, struct frame *f, struct rect r)
{
	size_t n = monitor_failures(m);
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	if (!n) {
		pen_put(&p, STYLE(INK_GOOD), "No node errors");
		return;
	}
	pen_printf(&p, STYLE_STRONG(INK_BAD), "%zu of %zu nodes failed", n, m->n_nodes);
	pen_put(&p, STYLE(INK_DIM), "; r tries them again now, f shows cards");
	rect_take_top(&r, 1);
	if (m->first_error > (int)n - 1)
		m->first_error = (int)n - 1;
	m->page = 0;
	for (size_t i = 0, at = 0; i < m->n_nodes && r.h; i++) {
		const struct monitor_node *node = &m->nodes[i];
		CLEANUP(buf_done) struct buf b = {0};
		int lines;

		if (!node_has_failed(node) || (int)at++ < m->first_error)
			continue;
		buf_printf(&b, "%s (%s): ", node->name,
			node->address ? node->address : "this machine");
		view_node_state(node, &b);
		lines = grid_wrap(&f->grid, r, STYLE(INK_BAD), buf_str(&b), 0);
		/* A page has as many as are whole, for each is to be read once. */
		m->page += lines <= r.h;
		rect_take_top(&r, lines);
	}
	if (m->page < 1)
		m->page = 1;
}

/* ---- all of it ---- */

static const struct proc_row *selected_proc(
	const struct monitor *m, const struct proc_row *rows, size_t n)
{
	return n && monitor_pane_is_wanted(m) ? &rows[monitor_selected_proc(m, rows, n)] : NULL;
}

static void draw_trends(
	struct monitor *m, struct frame *f, struct rect r, struct card_row at, struct view_time now)
{
	size_t n, all;
	CLEANUP_FREE struct proc_row *rows = monitor_procs(m, at, now.boot_ms, &n, &all);

	view_trends(m, f, r, at, selected_proc(m, rows, n));
}

/* A node may still have cards to tell of. */
static bool is_waiting(const struct monitor *m)
{
	for (size_t i = 0; i < m->n_nodes; i++)
		if (!m->nodes[i].host.has_answered && !node_has_failed(&m->nodes[i]))
			return true;
	return false;
}

void view_unified(struct monitor *m, struct frame *f, struct rect r, struct view_time now)
{
	size_t n, all, hidden;
	CLEANUP_FREE struct card_row *rows = monitor_cards(m, &n, &all);
	bool is_tall = f->grid.rows >= SHORT_ROWS, wants_pane = monitor_pane_is_wanted(m) && n;
	int status = status_lines(m, &hidden), want = 0;
	struct rect trends = {0}, pane = {0};

	if (m->view.filter == FILTER_ERRORS) {
		draw_errors(m, f, r);
		return;
	}
	draw_capacity(m, f, rect_take_top(&r, 1));
	if (n != all)
		draw_hidden(m, f, rect_take_top(&r, 1), all - n);
	/* Where there's little room the alert above says it already. */
	if (status && (f->grid.rows >= STATUS_ROWS || !monitor_failures(m) || !n))
		draw_status(m, f, rect_take_bottom(&r, status > STATUS_MAX ? STATUS_MAX : status));
	/* On a short terminal the history stands in the process pane, where the command would. */
	if (m->view.trends && n && (is_tall || !wants_pane) && r.h > TRENDS_ROWS + 2 * TABLE_MIN)
		trends = rect_take_bottom(&r, TRENDS_ROWS);
	if (wants_pane) {
		/* Of the table a frame, its titles, a band and two cards, or one card of several lines. */
		want = view_procs_height(
			m, r.h, f->grid.cols >= NARROW_COLS ? TABLE_MIN + 2 : TABLE_MIN);
		pane = rect_take_bottom(&r, want < r.h - TABLE_MIN ? want : r.h - TABLE_MIN);
	}
	m->has_pane = pane.h > 0;
	if (n) {
		draw_table(m, f, r, rows, n, all);
	} else {
		struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

		pen_put(&p, STYLE(INK_DIM),
			all		? "no card passes the filter"
			: is_waiting(m) ? "waiting for the first figures"
					: "no cards");
		return;
	}
	if (pane.h)
		view_procs(m, f, pane, rows[monitor_selected(m, rows, n)], now);
	if (trends.h)
		draw_trends(m, f, trends, rows[monitor_selected(m, rows, n)], now);
}
