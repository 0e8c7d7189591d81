/* The per-node view: a summary of each server, and below those that are open a table of its cards. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "core/profile.h"
#include "show/figure.h"
#include "show/profile_columns.h"
#include "tui/bar.h"
#include "tui/view_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BAR_CELLS = 6, NAME_CELLS = 24, CLOCK_TOLERANCE_MS = 5000, TRENDS_ROWS = 6 };

enum { C_NAME = 2 };
static const struct column columns[] = {
	{"", .min = 1},
	{"GPU", .min = 4},
	[C_NAME] = {"name", .min = 12},
	{"fan", .min = 8, .drop = 1, .is_number = true},
	{"util", .min = 8, .is_number = true},
	{"temp", .min = 8, .drop = 6, .is_number = true},
	{"link", .min = 9, .drop = 2},
	{"rx", .min = 10, .drop = 4, .is_number = true},
	{"tx", .min = 10, .drop = 3, .is_number = true},
	{"power", .min = 18, .drop = 5},
	{"mem_util", .min = 8, .drop = 7, .is_number = true},
	{"memory[used/total]", .min = 16, .drop = 9, .is_number = true, .brief = "memory"},
	{"processes", .min = 20, .drop = 8},
};
static const enum card_cell cells[] = {CELL_MARK, CELL_INDEX, CELL_MODEL, CELL_FAN, CELL_UTIL,
	CELL_TEMP, CELL_LINK, CELL_RX, CELL_TX, CELL_POWER, CELL_MEM_UTIL, CELL_MEMORY, CELL_USERS};

/* ---- a server's line ---- */

static void put_dot(struct pen *p, const struct monitor_node *n)
{
	const struct sample *s = n->host.sample;
	struct show_sums x = {0};

	if (s)
		show_sums_add(&x, s);
	if (node_has_failed(n))
		pen_either(p, STYLE(INK_BAD), "\xe2\x97\x8f", "x");
	else if (!x.n_cards)
		pen_either(p, STYLE(INK_DIM), "\xe2\x97\x8b", "o");
	else
		pen_either(p, STYLE(x.n_idle ? INK_GOOD : INK_WARN), "\xe2\x97\x8f",
			x.n_idle ? "*" : "#");
}

/* The bar leaves first: where it's narrow the figures are worth its room. */
static void put_part(struct pen *p, const char *name, int64_t pct, int64_t warn, int64_t bad)
{
	struct style s = STYLE(view_level(pct, warn, bad, INK_FOCUS));
	struct pen before = *p;

	pen_printf(p, STYLE(INK_DIM), "  %s ", name);
	pen_printf(p, s, "%3lld%%", (long long)pct);
	if (p->end >= NARROW_COLS - 2) {
		pen_put(p, s, " ");
		bar_put(p, BAR_CELLS, pct * 10, s);
	}
	pen_whole(p, &before);
}

static void put_sums(struct pen *p, const struct sample *s)
{
	struct show_sums x = {0};

	show_sums_add(&x, s);
	if (!x.n_cards) {
		pen_put(p, STYLE(INK_DIM), " no GPU");
		return;
	}
	pen_printf(p, STYLE(INK_PLAIN), "%2lld GPU%s", (long long)x.n_cards,
		x.n_cards == 1 ? " " : "s");
	pen_printf(p, STYLE(x.n_idle ? INK_GOOD : INK_WARN), "  %lld idle", (long long)x.n_idle);
	if (x.n_util)
		put_part(p, "util", x.util / x.n_util, 50, 80);
	if (x.total_mib)
		put_part(p, "VRAM", show_percent(x.used_mib, x.total_mib), 75, 90);
}

static void put_host(struct pen *p, const struct host_figures *h)
{
	CLEANUP(buf_done) struct buf gib = {0};
	struct pen before = *p;

	if (value_is_present(h->cpu_pct)) {
		pen_put(p, STYLE(INK_DIM), "  CPU ");
		pen_printf(p, STYLE(view_level(h->cpu_pct.v, 50, 80, INK_PLAIN)), "%lld%%",
			(long long)h->cpu_pct.v);
		if (h->cores)
			pen_printf(p, STYLE(INK_DIM), "(%d)", h->cores);
	}
	pen_whole(p, &before);
	before = *p;
	if (value_is_present(h->mem_used_mib) && value_is_present(h->mem_total_mib)) {
		show_gib_put(h->mem_used_mib.v, h->mem_total_mib.v, &gib);
		pen_put(p, STYLE(INK_DIM), "  Mem ");
		pen_put(p,
			STYLE(view_level(show_percent(h->mem_used_mib.v, h->mem_total_mib.v), 75,
				90, INK_PLAIN)),
			buf_str(&gib));
	}
	if (value_is_present(h->swap_used_mib) && h->swap_used_mib.v > 0)
		pen_printf(p, STYLE(INK_WARN), "(+%lldM swap)", (long long)h->swap_used_mib.v);
	pen_whole(p, &before);
}

static int name_width(const struct monitor *m)
{
	int w = 0;

	for (size_t i = 0; i < m->n_nodes; i++)
		if (m->nodes[i].name && monitor_shows_node(m, i)) {
			int k = grid_width(m->nodes[i].name);

			w = k > w ? k : w;
		}
	return w > NAME_CELLS ? NAME_CELLS : w;
}

static void draw_node(struct monitor *m, struct frame *f, struct rect r, uint32_t i)
{
	struct monitor_node *n = &m->nodes[i];
	bool is_selected = i == m->node,
	     is_blocked = n->host.state && !strcmp(n->host.state, "auth"),
	     is_open = node_is_open(m, n);
	struct pen before;
	struct pen p = pen_at(&f->grid, r.x, r.y, r.w), name;
	CLEANUP(buf_done) struct buf why = {0};

	pen_either(&p, STYLE_STRONG(INK_FOCUS), is_selected ? "\xe2\x80\xba" : " ",
		is_selected ? ">" : " ");
	if (is_blocked)
		pen_put(&p, STYLE_STRONG(INK_BAD), "!");
	else
		pen_either(&p, STYLE(INK_DIM), is_open ? "\xe2\x96\xbe" : "\xe2\x96\xb8",
			is_open ? "v" : ">");
	pen_printf(&p, STYLE(INK_DIM), " [%u] ", i + 1);
	put_dot(&p, n);
	pen_put(&p, STYLE(INK_PLAIN), " ");
	name = pen_at(
		&f->grid, p.x, p.y, name_width(m) < pen_left(&p) ? name_width(m) : pen_left(&p));
	p.x = name.end;
	pen_put(&name, STYLE_STRONG(is_selected ? INK_FOCUS : INK_PLAIN), n->name ? n->name : "");
	pen_put(&p, STYLE(INK_PLAIN), "  ");
	if (!n->host.sample || node_has_failed(n)) {
		view_node_state(n, &why);
		pen_put(&p, STYLE(node_has_failed(n) ? INK_BAD : INK_DIM), buf_str(&why));
	} else {
		put_sums(&p, n->host.sample);
		if (n->host.sample->has_host)
			put_host(&p, &n->host.sample->host);
		before = p;
		pen_printf(&p, STYLE(INK_DIM), "  src:%s", n->host.sample->snap.source);
		pen_whole(&p, &before);
	}
	frame_hit(f, rect_of(r.x, r.y, r.w, 1), DO_SELECT_NODE, i);
	if (is_selected)
		grid_paper(&f->grid, r.x, r.y, r.w, PAPER_SELECTED, 0);
}

/* ---- what's below it ---- */

static void put_fact(struct pen *p, bool *has_any, const char *name, const char *value)
{
	if (!value[0])
		return;
	pen_printf(p, STYLE(INK_DIM), "%s%s %s", *has_any ? " | " : "", name, value);
	*has_any = true;
}

static void draw_source(const struct monitor_node *n, struct pen *p)
{
	const struct gpu_snapshot *s = &n->host.sample->snap;
	int64_t off = n->host.clock_offset_ms;
	CLEANUP(buf_done) struct buf count = {0};
	bool has_any = false;

	buf_printf(&count, "%u", gpu_count_whole(s));
	put_fact(p, &has_any, "Driver", s->driver);
	put_fact(p, &has_any, "CUDA", s->cuda);
	put_fact(p, &has_any, "GPUs", buf_str(&count));
	put_fact(p, &has_any, "Source:", s->source);
	if (off > CLOCK_TOLERANCE_MS || off < -CLOCK_TOLERANCE_MS)
		pen_printf(p, STYLE(INK_WARN), " | its clock is %lld s %s",
			(long long)((off < 0 ? -off : off) / 1000), off < 0 ? "behind" : "ahead");
	if (s->error[0])
		pen_printf(p, STYLE(INK_WARN), " | %s", s->error);
}

static void put_ms(struct pen *p, const char *name, int64_t ms)
{
	if (ms >= 0)
		pen_printf(p, STYLE(INK_DIM), "%s %lld.%03llds  ", name, (long long)(ms / 1000),
			(long long)(ms % 1000));
}

static void draw_timings(const struct monitor_node *n, struct pen *p, int64_t now_ms)
{
	put_ms(p, "connected", n->host.connected_ms);
	put_ms(p, "hello", n->host.hello_ms);
	put_ms(p, "first sample", n->host.first_sample_ms);
	put_ms(p, "round trip", n->host.rtt_ms);
	if (n->host.sample)
		put_ms(p, "age", now_ms - n->sample_at_ms);
	if (n->host.is_stale)
		pen_put(p, STYLE(INK_WARN), "stale  ");
	if (n->host.sample && n->host.sample->snap.driver_us > 0)
		pen_printf(p, STYLE(INK_DIM), "driver %lld.%03lld ms",
			(long long)(n->host.sample->snap.driver_us / 1000),
			(long long)(n->host.sample->snap.driver_us % 1000));
}

/* ---- profiling ---- */

enum { PROFILE_GPU_CELLS = 4, PROFILE_CELLS = 7 };

/* One table for the three of them: the columns tell them apart. items has room for 1 + SHOW_PROFILE_N. */
static void fit_profile(
	const struct monitor *m, struct column *items, struct columns *c, struct rect r)
{
	items[0] = (struct column){"GPU", .min = PROFILE_GPU_CELLS};
	for (size_t i = 0; i < SHOW_PROFILE_N; i++) {
		const struct show_profile_column *k = &show_profile_columns[i];
		int w = grid_width(k->title);

		items[1 + i] =
			(struct column){k->title, .min = w > PROFILE_CELLS ? w : PROFILE_CELLS,
				.drop = k->drop, .is_number = true};
	}
	columns_fit(c, items, 1 + SHOW_PROFILE_N, NULL, r.x + 4, r.w - 4, 1, m->is_compact);
}

static void draw_profile(struct monitor *m, struct frame *f, const struct line *l, struct rect r)
{
	struct column items[1 + SHOW_PROFILE_N];
	CLEANUP(buf_done) struct buf b = {0};
	struct columns c;

	fit_profile(m, items, &c, r);
	if (l->kind == LINE_PROFILE_TITLES) {
		columns_head(f, &c, r.y, STYLE(INK_DIM), 0, false, 0);
		return;
	}
	view_cell_text(m, l->at, CELL_INDEX, &b);
	columns_cell(f, &c, 0, r.y, STYLE(INK_PLAIN), buf_str(&b));
	for (size_t i = 0; i < SHOW_PROFILE_N; i++) {
		struct value v = monitor_value(m, l->at, show_profile_columns[i].metric);

		buf_clear(&b);
		if (value_is_present(v))
			buf_printf(&b, "%lld%%", (long long)v.v);
		columns_cell(f, &c, 1 + i, r.y,
			STYLE(value_is_present(v) && v.v >= 5 ? INK_FOCUS : INK_DIM), buf_str(&b));
	}
}

static void draw_line(struct monitor *m, struct frame *f, const struct columns *c,
	const struct line *l, struct rect r, struct view_time now)
{
	const struct monitor_node *n = &m->nodes[l->at.node];
	CLEANUP(show_uses_done) struct show_uses u = {0};
	CLEANUP(buf_done) struct buf b = {0};
	struct pen p = pen_at(&f->grid, r.x + 4, r.y, r.w - 4);
	enum ink ink = INK_DIM;

	/* Lines about a sample are made where there's one. */
	if (!n->host.sample && l->kind != LINE_NODE && l->kind != LINE_WHY &&
		l->kind != LINE_TIMINGS)
		return;
	switch (l->kind) {
	case LINE_NODE:
		draw_node(m, f, r, l->at.node);
		break;
	case LINE_WHY:
		pen_put(&p, STYLE(INK_BAD), n->why);
		break;
	case LINE_SOURCE:
		draw_source(n, &p);
		break;
	case LINE_TIMINGS:
		draw_timings(n, &p, now.boot_ms);
		break;
	case LINE_TITLES:
		columns_head(f, c, r.y, STYLE(INK_DIM), 0, false, 0);
		break;
	case LINE_CARD:
		view_card_row(m, f, c, cells, l->at, r.y, false);
		break;
	case LINE_HEALTH:
		view_health(m, l->at, HEALTH_NOTE, &b, &ink);
		pen_printf(&p, STYLE(ink), "%s%s", ink == INK_DIM ? "" : "! ", buf_str(&b));
		break;
	case LINE_PROFILING:
		ink = show_profiling_put(n->host.sample, &b) ? INK_WARN : INK_DIM;
		pen_put(&p, STYLE(ink), buf_str(&b));
		break;
	case LINE_PROFILE_TITLES:
	case LINE_PROFILE:
		draw_profile(m, f, l, r);
		break;
	case LINE_USERS:
		show_uses_add(&u, n->host.sample, -1, -1);
		view_uses_line(f, rect_of(p.x, r.y, pen_left(&p), 1), "Users: ", &u);
		break;
	default:
		break;
	}
}

/* ---- the list ---- */

static void add_cards(const struct monitor *m, uint32_t i, struct lines *l)
{
	const struct sample *s = m->nodes[i].host.sample;
	CLEANUP(buf_done) struct buf b = {0};
	enum ink ink;

	lines_add(l, LINE_TITLES, 0, (struct card_row){i, 0});
	for (uint32_t k = 0; k < s->snap.n_cards; k++) {
		if (gpu_is_instance(&s->snap.cards[k]))
			continue;
		lines_add(l, LINE_CARD, 0, (struct card_row){i, k});
		for (uint32_t g = 0; g < s->snap.n_cards; g++)
			if (gpu_is_instance(&s->snap.cards[g]) && gpu_whole_of(&s->snap, g) == k)
				lines_add(l, LINE_CARD, 0, (struct card_row){i, g});
		if (view_health(m, (struct card_row){i, k}, HEALTH_NOTE, &b, &ink))
			lines_add(l, LINE_HEALTH, 0, (struct card_row){i, k});
	}
	if (s->snap.profiling.source != PROFILE_NOT_ASKED)
		lines_add(l, LINE_PROFILING, 0, (struct card_row){i, 0});
	if (profile_has_any(&s->snap))
		lines_add(l, LINE_PROFILE_TITLES, 0, (struct card_row){i, 0});
	for (uint32_t k = 0; k < s->snap.n_cards && profile_has_any(&s->snap); k++) {
		if (gpu_is_instance(&s->snap.cards[k]))
			continue;
		lines_add(l, LINE_PROFILE, 0, (struct card_row){i, k});
		for (uint32_t g = 0; g < s->snap.n_cards; g++)
			if (gpu_is_instance(&s->snap.cards[g]) && gpu_whole_of(&s->snap, g) == k &&
				profile_has(&s->snap.cards[g]))
				lines_add(l, LINE_PROFILE, 0, (struct card_row){i, g});
	}
	lines_add(l, LINE_USERS, 0, (struct card_row){i, 0});
}

static void add_node(const struct monitor *m, uint32_t i, struct lines *l)
{
	const struct monitor_node *n = &m->nodes[i];
	struct card_row at = {i, 0};

	if (i == m->node)
		l->selected = (int)l->n;
	lines_add(l, LINE_NODE, 0, at);
	if (m->is_debug)
		lines_add(l, LINE_TIMINGS, 0, at);
	if (node_is_open(m, n) && node_has_failed(n) && n->why[0])
		lines_add(l, LINE_WHY, 0, at);
	if (node_is_open(m, n) && n->host.sample) {
		lines_add(l, LINE_SOURCE, 0, at);
		if (n->host.sample->snap.n_cards)
			add_cards(m, i, l);
	}
	if (i == m->node)
		l->selected_end = (int)l->n - 1;
}

static void select_shown(struct monitor *m)
{
	if (m->node < m->n_nodes && monitor_shows_node(m, m->node))
		return;
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (monitor_shows_node(m, i)) {
			m->node = i;
			return;
		}
}

static int servers_of(const struct lines *l, int from, int to)
{
	int n = 0;

	for (int i = from; l->items && i < to; i++)
		n += l->items[i].kind == LINE_NODE;
	return n;
}

/* Lines that are hidden are said where they'd be: servers, or lines of the one that's too tall. */
static void draw_edges(struct frame *f, struct rect r, const struct lines *l, int first)
{
	int last = first + r.h, above = servers_of(l, 0, first),
	    below = servers_of(l, last < (int)l->n ? last : (int)l->n, (int)l->n);
	struct rect top = rect_of(r.x, r.y, r.w, 1), bottom = rect_of(r.x, r.y + r.h - 1, r.w, 1);

	if (r.h < 4 || !l->n)
		return;
	if (above && first != l->selected) {
		grid_fill(&f->grid, top, "", STYLE(INK_PLAIN));
		view_more(f, top, above, true, "server");
	}
	if (last >= (int)l->n)
		return;
	grid_fill(&f->grid, bottom, "", STYLE(INK_PLAIN));
	/* The line that gives its place to this one is hidden too. */
	below += l->items && l->items[last - 1].kind == LINE_NODE;
	if (below) {
		view_more(f, bottom, below, false, "server");
	} else {
		struct pen p = pen_at(&f->grid, bottom.x, bottom.y, bottom.w);

		pen_printf(&p, STYLE(INK_DIM), "  %d lines of it are hidden", (int)l->n - last + 1);
	}
}

void view_nodes(struct monitor *m, struct frame *f, struct rect r, struct view_time now)
{
	CLEANUP(lines_done) struct lines l = {.selected = -1, .selected_end = -1};
	struct columns c;
	int first, widest[ARRAY_LEN(columns)] = {0};

	select_shown(m);
	if (m->view.trends && r.h > TRENDS_ROWS + 6) {
		struct rect trends = rect_take_bottom(&r, TRENDS_ROWS);

		view_node_trends(m, f, trends, m->node);
	}
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (monitor_shows_node(m, i))
			add_node(m, i, &l);
	widest[C_NAME] = view_model_width(m, 0, m->n_nodes);
	columns_fit(&c, columns, ARRAY_LEN(columns), widest, r.x + 1, r.w - 1, 1, m->is_compact);
	first = m->first_line = lines_window(&l, m->first_line, r.h);
	m->page = r.h > 8 ? r.h / 8 : 1;
	for (int i = 0; l.items && i < r.h && first + i < (int)l.n; i++)
		draw_line(m, f, &c, &l.items[first + i], rect_of(r.x, r.y + i, r.w, 1), now);
	if (r.h > 0)
		draw_edges(f, r, &l, first);
	if (!l.n) {
		struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

		pen_put(&p, STYLE(INK_DIM),
			m->n_nodes ? "no node has GPUs; u shows them all the same" : "no nodes");
	}
}
