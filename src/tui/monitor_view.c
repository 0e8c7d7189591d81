/* Head, alert, frame and overlays of the monitor (monitor_view.h). */
#include "tui/monitor_view.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "core/profile.h"
#include "show/figure.h"
#include "show/profile_columns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { USERS_MAX = 12, RULE_ROWS = 12, FRAME_ROWS = 14 };

/* ---- shared ---- */

enum ink view_level(int64_t v, int64_t warn, int64_t bad, enum ink ordinary)
{
	return v >= bad ? INK_BAD : v >= warn ? INK_WARN : ordinary;
}

void view_node_state(const struct monitor_node *n, struct buf *out)
{
	const char *state = n->host.state ? n->host.state : "";

	if (!strcmp(state, "none"))
		buf_puts(out, "no GPU");
	else if (!strcmp(state, "text"))
		buf_puts(out, "no agent there");
	else if (!strcmp(state, "auth"))
		buf_puts(out, "wants a person");
	else if (!strcmp(state, "up"))
		buf_puts(out, "loading");
	else
		buf_puts(out, state);
	if (n->host.why && n->host.why[0])
		buf_printf(out, ": %s", n->host.why);
}

void view_uses_line(struct frame *f, struct rect r, const char *title, struct show_uses *u)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	show_uses_sort(u);
	show_uses_put(u, USERS_MAX, &b);
	pen_put(&p, STYLE(INK_DIM), title);
	pen_put(&p, STYLE(u->n ? INK_PLAIN : INK_DIM), buf_str(&b));
}

void view_more(struct frame *f, struct rect r, int n, bool is_above, const char *what)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	if (n <= 0)
		return;
	pen_either(&p, STYLE(INK_FOCUS), is_above ? "\xe2\x96\xb4 " : "\xe2\x96\xbe ",
		is_above ? "^ " : "v ");
	pen_printf(&p, STYLE(INK_DIM), "%d more %s%s %s", n, what, n == 1 ? "" : "s",
		is_above ? "above" : "below");
	frame_hit(f, rect_of(r.x, r.y, r.w, 1), is_above ? DO_PAGE_UP : DO_PAGE_DOWN, 0);
}

/* ---- head ---- */

static void put_clock(struct pen *p, const char *title, int64_t wall_ms)
{
	time_t seconds = (time_t)(wall_ms / 1000);
	char text[16] = "-";
	struct tm tm;

	if (wall_ms > 0 && localtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%H:%M:%S", &tm);
	pen_put(p, STYLE(INK_DIM), title);
	pen_put(p, STYLE(INK_PLAIN), text);
}

static void draw_strip(const struct monitor *m, struct frame *f, struct rect r)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);
	CLEANUP(buf_done) struct buf gib = {0};
	const struct host_figures *h = NULL;

	for (size_t i = 0; i < m->n_nodes; i++)
		if (!m->nodes[i].address && m->nodes[i].host.sample &&
			m->nodes[i].host.sample->has_host)
			h = &m->nodes[i].host.sample->host;
	if (!h) {
		pen_put(&p, STYLE(INK_DIM), "this machine: no figures yet");
		return;
	}
	pen_put(&p, STYLE_STRONG(INK_PLAIN), h->host_name[0] ? h->host_name : "this machine");
	if (value_is_present(h->cpu_pct)) {
		pen_put(&p, STYLE(INK_DIM), "  CPU ");
		pen_printf(&p, STYLE(view_level(h->cpu_pct.v, 50, 80, INK_PLAIN)), "%lld%%",
			(long long)h->cpu_pct.v);
		if (h->cores)
			pen_printf(&p, STYLE(INK_DIM), " of %d", h->cores);
	}
	if (value_is_present(h->load_1m_milli))
		pen_printf(&p, STYLE(INK_DIM), "  load %lld.%02lld",
			(long long)(h->load_1m_milli.v / 1000),
			(long long)(h->load_1m_milli.v % 1000 / 10));
	if (value_is_present(h->mem_used_mib) && value_is_present(h->mem_total_mib)) {
		show_gib_put(h->mem_used_mib.v, h->mem_total_mib.v, &gib);
		pen_put(&p, STYLE(INK_DIM), "  mem ");
		pen_put(&p,
			STYLE(view_level(show_percent(h->mem_used_mib.v, h->mem_total_mib.v), 75,
				90, INK_PLAIN)),
			buf_str(&gib));
	}
	if (h->os[0] || h->kernel[0])
		pen_printf(&p, STYLE(INK_DIM), "  %s%s%s", h->os, h->os[0] ? ", " : "", h->kernel);
}

static int64_t latest_sample(const struct monitor *m)
{
	int64_t at = 0;

	for (size_t i = 0; i < m->n_nodes; i++)
		if (m->nodes[i].host.sample && m->nodes[i].sample_at_ms > at)
			at = m->nodes[i].sample_at_ms;
	return at;
}

static void put_debug(const struct monitor *m, struct pen *p)
{
	size_t waiting = 0;

	for (size_t i = 0; i < m->n_nodes; i++)
		waiting += !m->nodes[i].host.sample && !node_has_failed(&m->nodes[i]);
	pen_printf(p, STYLE(INK_DIM), " | loading %zu, failed %zu", waiting, monitor_failures(m));
}

/* On how many of the servers that have cards. An agent of before doesn't know what it's asked for. */
static void put_profiling(const struct monitor *m, struct pen *p)
{
	size_t n = 0, has = 0, waits = 0;

	for (size_t i = 0; i < m->n_nodes; i++) {
		const struct sample *s = m->nodes[i].host.sample;

		if (!s || !s->snap.n_cards)
			continue;
		n++;
		has += profile_has_any(&s->snap);
		waits += s->with_profiling && s->snap.profiling.source != PROFILE_NONE;
	}
	if (!n || (!has && waits))
		pen_put(p, STYLE(INK_DIM), " | waiting for profiling");
	else if (!has)
		pen_put(p, STYLE(INK_WARN), " | profiling isn't available");
	else if (has < n)
		pen_printf(p, STYLE(INK_DIM), " | profiling on %zu of %zu", has, n);
}

static void draw_title(
	const struct monitor *m, struct frame *f, struct rect r, struct view_time now)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0), before;
	int64_t latest = latest_sample(m);

	if (m->travel_ms) {
		pen_printf(&p, (struct style){INK_WARN, PAPER_NONE, STYLE_BOLD},
			"%lld s ago (> forward, Esc now)  ",
			(long long)((now.boot_ms - m->travel_ms) / 1000));
	}
	put_clock(&p, "Time ", now.wall_ms);
	before = p;
	put_clock(&p, " | Updated ", latest ? now.wall_ms - (now.boot_ms - latest) : 0);
	pen_whole(&p, &before);
	pen_printf(&p, STYLE(INK_DIM), " | %zu server%s", m->n_nodes, m->n_nodes == 1 ? "" : "s");
	if (r.w >= NARROW_COLS)
		pen_printf(&p, STYLE(INK_PLAIN), " | %s",
			m->view.mode == MODE_NODES ? "by node"
			: m->view.detailed	   ? "all cards, detailed"
						   : "all cards");
	if (monitor_failures(m))
		pen_printf(&p, STYLE(INK_BAD), " | %zu failed", monitor_failures(m));
	if (m->wants_dcgm)
		put_profiling(m, &p);
	if (m->is_debug)
		put_debug(m, &p);
}

/* The ways in and out come first: they must be there at any width. */
static bool is_essential(const struct monitor_key *k)
{
	return k->action == DO_VIEW || k->action == DO_HELP || k->action == DO_QUIT;
}

struct hints {
	struct button items[24];
	char names[24][16];
	size_t n;
};

static void add_hints(struct hints *h, int where, bool essential)
{
	for (size_t i = 0; i < monitor_keys_n && h->n < ARRAY_LEN(h->items); i++) {
		const struct monitor_key *k = &monitor_keys[i];

		if (!*k->hint || !(k->where & where) || is_essential(k) != essential)
			continue;
		input_key_name(k->keys[0], h->names[h->n]);
		h->items[h->n] = (struct button){
			.key = h->names[h->n], .text = k->hint, .action = k->action};
		h->n++;
	}
}

static void draw_hints(const struct monitor *m, struct frame *f, struct rect r)
{
	struct hints h = {.n = 0};

	add_hints(&h, monitor_where(m), true);
	if (r.w >= NARROW_COLS)
		add_hints(&h, monitor_where(m), false);
	buttons_draw(f, r, h.items, h.n);
}

static void draw_users(const struct monitor *m, struct frame *f, struct rect r)
{
	CLEANUP(show_uses_done) struct show_uses u = {0};

	for (size_t i = 0; i < m->n_nodes; i++)
		if (m->nodes[i].host.sample)
			show_uses_add(&u, m->nodes[i].host.sample, -1, -1);
	view_uses_line(f, r, "Users: ", &u);
}

/* Which nodes failed, ahead of all else; a click lists them. */
static void draw_alert(const struct monitor *m, struct frame *f, struct rect r)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);
	size_t n = monitor_failures(m), shown = 0;

	if (!n || !r.h)
		return;
	pen_printf(&p, (struct style){INK_BAD, PAPER_NONE, STYLE_BOLD}, "! %zu node%s failed: ", n,
		n == 1 ? "" : "s");
	for (size_t i = 0; i < m->n_nodes; i++) {
		const struct monitor_node *node = &m->nodes[i];

		if (!node_has_failed(node))
			continue;
		if (shown++)
			pen_put(&p, STYLE(INK_BAD), ", ");
		pen_put(&p, STYLE(INK_BAD), node->name);
		if (n == 1 && node->why[0])
			pen_printf(&p, STYLE(INK_BAD), " (%s)", node->why);
	}
	frame_hit(f, r, DO_ERRORS, 0);
}

static void draw_notice(const struct monitor *m, struct frame *f, struct rect r)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	pen_put(&p, STYLE(m->notice_ink), m->notice);
}

/* ---- overlays ---- */

static void draw_help(struct monitor *m, struct frame *f)
{
	struct help_line lines[64];
	int where = monitor_where(m);
	size_t n = 0;

	for (size_t i = 0; i < monitor_keys_n && n < ARRAY_LEN(lines) - 3; i++)
		if (monitor_keys[i].where & where)
			lines[n++] =
				(struct help_line){monitor_keys[i].shown, monitor_keys[i].text};
	lines[n++] = (struct help_line){
		"Mouse", "select, sort by a title, press, scroll; on a dash: why it is one"};
	lines[n++] = (struct help_line){
		NULL, "Memory excludes what managed (unified) allocations hold."};
	lines[n++] = (struct help_line){NULL, "CPU% is of one core: 400% are four."};
	help_draw(f,
		where == IN_NODES   ? "Help: servers"
		: where == IN_CARDS ? "Help: cards"
				    : "Help: processes",
		lines, n, &m->overlay_scroll, DO_CLOSE_OVERLAY);
}

static void draw_facts(struct monitor *m, struct frame *f)
{
	size_t n, all, n_lines = 0;
	CLEANUP_FREE struct card_row *rows = monitor_cards(m, &n, &all);
	struct card_row r =
		n ? rows[monitor_selected(m, rows, n)] : (struct card_row){UINT32_MAX, 0};
	const struct gpu_card *c = monitor_card(m, r);
	struct help_line lines[METRIC_N + 4];
	char *texts[METRIC_N + 4];
	CLEANUP(buf_done) struct buf title = {0};

	if (!c) {
		m->overlay = OVERLAY_NONE;
		return;
	}
	texts[n_lines] = xasprintf("%s", c->uuid[0] ? c->uuid : "unknown");
	lines[n_lines++] = (struct help_line){"uuid", NULL};
	texts[n_lines] = xasprintf("%s", c->bus_id[0] ? c->bus_id : "unknown");
	lines[n_lines++] = (struct help_line){"bus", NULL};
	for (size_t i = 0; i < METRIC_N; i++) {
		struct value v = monitor_value(m, r, (enum metric)i);

		if (value_is_present(v))
			texts[n_lines] = xasprintf("%lld %s", (long long)v.v, metric_info[i].unit);
		else
			texts[n_lines] = xasprintf("- (%s)", value_state_name(v.state));
		lines[n_lines++] = (struct help_line){metric_info[i].key, NULL};
	}
	for (size_t i = 0; i < n_lines; i++)
		lines[i].text = texts[i];
	buf_printf(&title, "%s, card %d: every figure", m->nodes[r.node].name, c->index);
	help_draw(f, buf_str(&title), lines, n_lines, &m->overlay_scroll, DO_CLOSE_OVERLAY);
	for (size_t i = 0; i < n_lines; i++)
		free(texts[i]);
}

static void draw_question(struct monitor *m, struct frame *f)
{
	struct question *q = m->questions;
	CLEANUP(buf_done) struct buf title = {0};
	struct rect r;
	int w = f->grid.cols < 70 ? f->grid.cols : 70, n;

	n = grid_wrap(&f->grid, rect_of(0, 0, w - 2, 0), STYLE(INK_PLAIN), q->text, 0);
	buf_printf(&title, "%s asks", q->host);
	r = box_draw(f, w, n + 4, buf_str(&title));
	if (r.h < 2)
		return;
	grid_wrap(&f->grid, rect_of(r.x, r.y, r.w, r.h - 2), STYLE(INK_PLAIN), q->text, 0);
	edit_draw(f, rect_of(r.x, r.y + r.h - 2, r.w, 1), "> ", &m->answer);
	{
		struct pen p = pen_at(&f->grid, r.x, r.y + r.h - 1, r.w);

		pen_put(&p, STYLE(INK_DIM), "Enter answers; Esc or Ctrl-C refuses");
	}
}

/* ---- all of it ---- */

static void draw_body(struct monitor *m, struct frame *f, struct rect r, struct view_time now)
{
	if (m->view.mode == MODE_NODES)
		view_nodes(m, f, r, now);
	else
		view_unified(m, f, r, now);
}

void monitor_draw(struct monitor *m, struct frame *f, int cols, int rows, struct view_time now)
{
	struct rect r;
	bool is_framed;

	frame_begin(f, cols, rows);
	m->is_small = cols < VIEW_COLS_MIN || rows < VIEW_ROWS_MIN;
	if (m->is_small) {
		m->is_filtering = false;
		too_small_draw(f, VIEW_COLS_MIN, VIEW_ROWS_MIN);
		return;
	}
	cols = f->grid.cols;
	rows = f->grid.rows;
	/* The bottom row is never written. */
	r = rect_of(0, 0, cols, rows - 1);
	draw_strip(m, f, rect_take_top(&r, 1));
	draw_title(m, f, rect_take_top(&r, 1), now);
	draw_hints(m, f, rect_take_top(&r, 1));
	is_framed = cols >= NARROW_COLS && rows >= FRAME_ROWS && m->overlay == OVERLAY_NONE;
	if (rows >= RULE_ROWS && !is_framed)
		pane_rule(f, rect_take_top(&r, 1));
	draw_users(m, f, rect_take_top(&r, 1));
	if (monitor_failures(m))
		draw_alert(m, f, rect_take_top(&r, 1));
	if (m->notice[0])
		draw_notice(m, f, rect_take_bottom(&r, 1));
	/* The unified view frames its two panes by itself. */
	if (is_framed && m->view.mode == MODE_NODES)
		r = pane_draw(f, r, "Servers", true);
	draw_body(m, f, r, now);
	/* Nobody types into a line that isn't there. */
	m->is_filtering = m->is_filtering && f->cursor_x >= 0;
	if (m->overlay == OVERLAY_HELP)
		draw_help(m, f);
	else if (m->overlay == OVERLAY_FACTS)
		draw_facts(m, f);
	if (m->questions)
		draw_question(m, f);
}

/* ---- line by line ---- */

static void plain_profile(const struct gpu_card *c, struct buf *out)
{
	const char *between = "    Profiling: ";

	for (size_t i = 0; i < SHOW_PROFILE_N; i++) {
		struct value v = c->m[show_profile_columns[i].metric];

		if (!value_is_present(v))
			continue;
		buf_printf(
			out, "%s%s %lld%%", between, show_profile_columns[i].title, (long long)v.v);
		between = ", ";
	}
	buf_puts(out, ".\n");
}

static void plain_card(const struct monitor *m, struct card_row r, struct buf *out)
{
	static const struct {
		enum card_cell cell;
		const char *name;
	} said[] = {{CELL_UTIL, "use"}, {CELL_MEMORY, "memory in MiB"}, {CELL_TEMP, "temperature"},
		{CELL_POWER, "power"}, {CELL_USERS, "users"}};
	CLEANUP(buf_done) struct buf text = {0}, health = {0};
	enum ink ink;

	view_cell_text(m, r, CELL_MODEL, &text);
	buf_printf(out, "  Card %d, %s", monitor_card(m, r)->index, buf_str(&text));
	for (size_t i = 0; i < ARRAY_LEN(said); i++) {
		buf_clear(&text);
		view_cell_text(m, r, said[i].cell, &text);
		buf_printf(out, ", %s %s", said[i].name,
			text.len		     ? buf_str(&text)
			: said[i].cell == CELL_USERS ? "none"
						     : "unknown");
	}
	buf_puts(out, ".\n");
	if (profile_has(monitor_card(m, r)))
		plain_profile(monitor_card(m, r), out);
	if (view_health(m, r, HEALTH_NOTE, &health, &ink))
		buf_printf(out, "    Health: %s.\n", buf_str(&health));
}

static void plain_profiling(const struct sample *s, struct buf *out)
{
	CLEANUP(buf_done) struct buf b = {0};

	show_profiling_put(s, &b);
	if (b.len)
		buf_printf(out, "  %c%s.\n", buf_str(&b)[0] - 'a' + 'A', buf_str(&b) + 1);
}

void monitor_plain(const struct monitor *m, struct view_time now, struct buf *out)
{
	CLEANUP(buf_done) struct buf raw = {0};
	const char *line;
	size_t n, all;
	CLEANUP_FREE struct card_row *rows = monitor_cards(m, &n, &all);

	buf_printf(&raw, "%zu server%s, %zu failed, %zu card%s.\n", m->n_nodes,
		m->n_nodes == 1 ? "" : "s", monitor_failures(m), all, all == 1 ? "" : "s");
	for (size_t i = 0; i < m->n_nodes; i++) {
		const struct monitor_node *node = &m->nodes[i];

		buf_printf(&raw, "%s: ", node->name);
		if (!node->host.sample || node_has_failed(node)) {
			view_node_state(node, &raw);
			buf_puts(&raw, ".\n");
		} else {
			buf_printf(&raw, "%u card%s.\n", node->host.sample->snap.n_cards,
				node->host.sample->snap.n_cards == 1 ? "" : "s");
			plain_profiling(node->host.sample, &raw);
		}
		for (size_t k = 0; k < n; k++)
			if (rows[k].node == i)
				plain_card(m, rows[k], &raw);
	}
	/* Names come from outside. */
	for (line = buf_str(&raw); *line; line += strcspn(line, "\n") + 1) {
		text_put_clean(out, line, strcspn(line, "\n"));
		buf_putc(out, '\n');
	}
}
