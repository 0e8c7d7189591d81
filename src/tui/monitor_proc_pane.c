/* The process pane below the cards: the selected card's processes, and all there is about the selected one. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "show/figure.h"
#include "tui/view_lines.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	COMMAND_SHORT = 5,
	COMMAND_TALL = 12,
	SHORT_COMMAND_ROWS = 28,
	FIXED = 8,
	IN_THERE =
		14 /* a frame, titles, two processes, two lines about one, its command, buttons */
};
enum { C_MARK, C_PID, C_USER, C_VRAM, C_VRAM_PCT, C_CPU, C_MEM, C_RSS, C_TIME, C_STATE, C_COMMAND };

static const struct column columns[] = {
	[C_MARK] = {"", .min = 1},
	[C_PID] = {"PID", .min = 8, .is_number = true, .sort = BY_PID},
	[C_USER] = {"USER", .min = 10, .drop = 5},
	[C_VRAM] = {"VRAM", .min = 9, .drop = 8, .is_number = true, .sort = BY_VRAM},
	[C_VRAM_PCT] = {"VRAM%", .min = 6, .drop = 6, .is_number = true},
	[C_CPU] = {"CPU%", .min = 6, .drop = 7, .is_number = true, .sort = BY_CPU},
	[C_MEM] = {"MEM%", .min = 6, .drop = 4, .is_number = true, .sort = BY_MEM},
	[C_RSS] = {"RSS", .min = 8, .drop = 3, .is_number = true, .sort = BY_RSS},
	[C_TIME] = {"TIME", .min = 9, .drop = 2, .is_number = true, .sort = BY_TIME},
	[C_STATE] = {"S", .min = 1, .drop = 1},
	[C_COMMAND] = {"COMMAND", .min = 16, .want = 400, .sort = BY_COMMAND},
};
static const char *const sort_words[BY_N] = {[BY_VRAM] = "VRAM",
	[BY_CPU] = "CPU",
	[BY_MEM] = "MEM",
	[BY_RSS] = "RSS",
	[BY_TIME] = "TIME",
	[BY_PID] = "PID",
	[BY_COMMAND] = "COMMAND"};

/* ---- figures ---- */

static void put_mib(struct value v, struct buf *out)
{
	if (!value_is_present(v))
		return;
	if (v.v < 10240)
		buf_printf(out, "%lldM", (long long)v.v);
	else
		buf_printf(out, "%lld.%lldG", (long long)(v.v / 1024),
			(long long)(v.v % 1024 * 10 / 1024));
}

/* Seconds with one decimal below an hour. */
static void put_time(struct value v, struct buf *out)
{
	if (!value_is_present(v))
		return;
	if (v.v < 3600000)
		buf_printf(
			out, "%lld.%llds", (long long)(v.v / 1000), (long long)(v.v % 1000 / 100));
	else
		text_put_duration(out, v.v);
}

static struct value vram_percent(const struct monitor *m, struct card_row card, struct value used)
{
	struct value total = monitor_value(m, card, METRIC_MEM_TOTAL);

	if (!value_is_present(used) || !value_is_present(total) || total.v <= 0)
		return value_absent(VALUE_EMPTY);
	return value_of(show_percent(used.v, total.v));
}

static void put_permille(struct value v, struct buf *out)
{
	if (value_is_present(v))
		buf_printf(out, "%lld.%lld", (long long)(v.v / 10), (long long)(v.v % 10));
}

static void put_number(struct value v, struct buf *out)
{
	if (value_is_present(v))
		buf_printf(out, "%lld", (long long)v.v);
}

static enum ink level_of(struct value v, int64_t warn, int64_t bad)
{
	return value_is_present(v) ? view_level(v.v, warn, bad, INK_FOCUS) : INK_DIM;
}

static const char *type_of(const struct proc_row *p)
{
	bool is_compute = p->kind & GPU_PROC_COMPUTE, is_graphics = p->kind & GPU_PROC_GRAPHICS;

	if (p->kind & GPU_PROC_MPS)
		return "MPS";
	return is_compute && is_graphics ? "C+G" : is_graphics ? "G" : is_compute ? "C" : "-";
}

/* ---- rows ---- */

static void cell_of(const struct monitor *m, struct card_row card, const struct proc_row *p,
	size_t column, struct buf *out, enum ink *ink)
{
	struct value pct = vram_percent(m, card, p->used_mib);

	*ink = INK_PLAIN;
	switch (column) {
	case C_PID:
		if (!p->is_head)
			buf_printf(out, "%d", p->pid);
		*ink = INK_DIM;
		break;
	case C_USER:
		buf_puts(out, p->user);
		break;
	case C_VRAM:
		put_mib(p->used_mib, out);
		*ink = level_of(pct, 50, 80);
		break;
	case C_VRAM_PCT:
		put_number(pct, out);
		*ink = level_of(pct, 50, 80);
		break;
	case C_CPU:
		put_number(p->cpu_pct, out);
		*ink = level_of(p->cpu_pct, 70, 100);
		break;
	case C_MEM:
		put_permille(p->mem_permille, out);
		*ink = level_of(p->mem_permille, 200, 400);
		break;
	case C_RSS:
		put_mib(p->rss_mib, out);
		*ink = INK_DIM;
		break;
	case C_TIME:
		put_time(p->time_ms, out);
		*ink = INK_DIM;
		break;
	case C_STATE:
		if (p->state)
			buf_putc(out, p->state);
		*ink = p->state == 'R'			     ? INK_GOOD
		       : p->state && strchr("DZX", p->state) ? INK_BAD
							     : INK_DIM;
		break;
	default:
		if (p->is_head)
			buf_printf(out, "%d process%s", p->depth, p->depth == 1 ? "" : "es");
		else
			buf_printf(out, "%*s%s%s", p->depth > 1 ? (p->depth - 1) * 2 : 0, "",
				p->depth && m->proc_group == GROUP_TREE ? "`- " : "", p->command);
		break;
	}
}

static void draw_row(struct monitor *m, struct frame *f, const struct columns *c,
	struct card_row card, const struct proc_row *p, int y, bool is_selected)
{
	bool is_active = is_selected && monitor_where(m) == IN_PROCS;

	if (is_active)
		grid_paper(&f->grid, c->x[0], y, c->right - c->x[0], PAPER_SELECTED, 0);
	for (size_t i = 1; i < c->n; i++) {
		CLEANUP(buf_done) struct buf b = {0};
		enum ink ink;
		struct style s;

		cell_of(m, card, p, i, &b, &ink);
		s = (struct style){(uint8_t)(is_active && ink == INK_DIM ? INK_PLAIN : ink),
			is_active ? PAPER_SELECTED : PAPER_NONE, p->is_head ? STYLE_BOLD : 0};
		if (b.len || !p->is_head)
			columns_cell(f, c, i, y, s, buf_str(&b));
	}
	if (is_selected) {
		struct pen pen = columns_pen(f, c, C_MARK, y);

		pen_either(&pen,
			(struct style){
				INK_FOCUS, is_active ? PAPER_SELECTED : PAPER_NONE, STYLE_BOLD},
			"\xe2\x80\xba", ">");
	}
}

/* ---- the selected one ---- */

static void put_named(struct pen *p, const char *name, const char *text)
{
	if (!text[0])
		return;
	pen_printf(p, STYLE(INK_DIM), "%s ", name);
	pen_put(p, STYLE(INK_PLAIN), text);
	pen_skip(p, 2);
}

static void put_figure(struct pen *p, const char *name, const struct buf *b)
{
	struct pen before = *p;

	put_named(p, name, b->len ? buf_str(b) : "-");
	pen_whole(p, &before);
}

static void draw_usage(const struct monitor *m, struct frame *f, struct rect r,
	struct card_row card, const struct proc_row *x)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);
	struct value on_card = monitor_value(m, card, METRIC_MEM_USED),
		     pct = vram_percent(m, card, x->used_mib);
	CLEANUP(buf_done) struct buf b = {0};

	put_mib(x->used_mib, &b);
	put_figure(&p, "VRAM", &b);
	if (value_is_present(pct))
		pen_printf(&p, STYLE(INK_PLAIN), "%lld%% of the card  ", (long long)pct.v);
	if (value_is_present(on_card) && value_is_present(x->used_mib) && on_card.v > 0)
		pen_printf(&p, STYLE(INK_PLAIN), "%lld%% of what's used  ",
			(long long)show_percent(x->used_mib.v, on_card.v));
	buf_clear(&b);
	put_number(x->cpu_pct, &b);
	put_figure(&p, "CPU%", &b);
	buf_clear(&b);
	put_permille(x->mem_permille, &b);
	put_figure(&p, "MEM%", &b);
	buf_clear(&b);
	put_mib(x->rss_mib, &b);
	put_figure(&p, "RSS", &b);
}

/* Whose it is in the words of whoever started it: our queue, Slurm, a container, systemd. */
static void draw_place(const struct monitor *m, struct frame *f, struct rect r,
	struct card_row card, const struct proc_row *x)
{
	const struct sample *s = m->nodes[card.node].host.sample;
	const struct gpu_proc_more *more =
		x->row < s->snap.n_procs && s->snap.more ? &s->snap.more[x->row] : NULL;
	uint32_t row = x->row < s->snap.n_procs && s->proc_row ? s->proc_row[x->row] : 0;
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);
	CLEANUP(buf_done) struct buf b = {0};
	struct pen before;

	put_named(&p, "user", x->user);
	put_named(&p, "type", type_of(x));
	put_time(x->time_ms, &b);
	put_named(&p, "elapsed", buf_str(&b));
	before = p;
	if (x->state)
		pen_printf(&p, STYLE(INK_DIM), "state %c  ", x->state);
	pen_whole(&p, &before);
	before = p;
	if (x->threads)
		pen_printf(&p, STYLE(INK_DIM), "threads %d", x->threads);
	pen_whole(&p, &before);
	pen_skip(&p, 2);
	if (row && row <= s->n_rows)
		pen_printf(&p, STYLE_STRONG(INK_OURS), "job #%llu  ",
			(unsigned long long)s->rows[row - 1].name.job);
	if (!more)
		return;
	put_named(&p, "slurm job", more->slurm_job);
	if (more->container[0])
		pen_printf(&p, STYLE(INK_PLAIN), "container %.12s  ", more->container);
	put_named(&p, "pod", more->pod);
	put_named(&p, "unit", more->unit);
}

/* In the frame's lower edge, on the right: how much of the command is there, and what pages it. */
static void draw_pages(struct frame *f, struct rect edge, int first, int shown, int n)
{
	char text[48];
	const struct button items[] = {{"[", "command", DO_COMMAND_BACK, 0, false, false},
		{"]", text, DO_COMMAND_ON, 0, false, false}};
	int w;

	snprintf(text, sizeof(text), "lines %d-%d of %d", first + 1, first + shown, n);
	w = grid_width(text) + (int)sizeof("[[] command  []] ");
	if (edge.w < w + 4)
		return;
	edge = rect_of(edge.x + edge.w - w - 2, edge.y, w, edge.h);
	grid_fill(&f->grid, edge, "", STYLE(INK_PLAIN));
	buttons_draw(f, rect_of(edge.x + 1, edge.y, edge.w - 1, edge.h), items, ARRAY_LEN(items));
}

static void draw_command(struct monitor *m, struct frame *f, struct rect r,
	const struct proc_row *x, struct rect edge)
{
	int n, most;

	if (r.h < 1)
		return;
	frame_hit(f, r, DO_COMMAND_PANE, 0);
	n = grid_wrap(&f->grid, rect_of(r.x, r.y, r.w, 0), STYLE(INK_PLAIN), x->command, 0);
	most = n > r.h ? n - r.h : 0;
	if (m->first_command > most)
		m->first_command = most;
	m->command_page = r.h;
	grid_wrap(&f->grid, r, STYLE(INK_DIM), x->command, m->first_command);
	if (most)
		draw_pages(f, edge, m->first_command, r.h, n);
}

static void draw_actions(struct monitor *m, struct frame *f, struct rect r)
{
	int armed = m->armed.signo;
	const struct button items[] = {
		{"i", "SIGINT", DO_SIGINT, 0, armed == SIGINT, false},
		{"T", "SIGTERM", DO_SIGTERM, 0, armed == SIGTERM, false},
		{"K", "SIGKILL", DO_SIGKILL, 0, armed == SIGKILL, false},
		{"/", "find", DO_PROC_FILTER, 0, false, false},
		{"o", "sort", DO_PROC_SORT, 0, false, false},
		{"G", "group", DO_PROC_GROUP, 0, false, false},
		{"+", "rows", DO_MORE, 0, false, false},
		{"-", "rows", DO_LESS, 0, false, false},
		{"t", "history", DO_TRENDS, 0, false, m->view.trends},
	};

	buttons_draw(f, r, items, ARRAY_LEN(items));
}

static bool has_state(const struct monitor *m)
{
	return m->is_filtering || m->armed.signo || m->proc_filter.n;
}

static void draw_state(struct monitor *m, struct frame *f, struct rect r, int64_t now_ms)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	if (!r.h)
		return;
	if (m->is_filtering) {
		edit_draw(f, r, "find: ", &m->proc_filter);
	} else if (m->armed.signo) {
		pen_printf(&p, (struct style){INK_BAD, PAPER_NONE, STYLE_BOLD},
			"%s to process %d: %c or Enter within %lld s sends it; Esc doesn't",
			m->armed.signo == SIGINT    ? "SIGINT"
			: m->armed.signo == SIGTERM ? "SIGTERM"
						    : "SIGKILL",
			m->armed.pid,
			m->armed.signo == SIGINT    ? 'i'
			: m->armed.signo == SIGTERM ? 'T'
						    : 'K',
			(long long)((m->armed.until_ms - now_ms + 999) / 1000));
	} else if (m->proc_filter.n) {
		pen_printf(&p, STYLE(INK_WARN), "only what matches \"%s\"; Esc shows all",
			m->proc_filter.text);
	}
}

/* ---- the pane ---- */

static int automatic_rows(int rows, int budget)
{
	int n = 6;

	if (rows < SHORT_ROWS || budget < 20)
		return 1;
	n = rows / 8 < n ? rows / 8 : n;
	n = budget / 5 < n ? budget / 5 : n;
	return n < 1 ? 1 : n;
}

int view_procs_height(const struct monitor *m, int rows, int cards)
{
	int wish = m->proc_rows ? m->proc_rows : automatic_rows(rows + 10, rows) + 2;
	int h = FIXED + wish + 2, half = rows / 2 > FIXED ? rows / 2 : FIXED;

	/* Who's in there wants to read the command, or to see the history in its place. */
	if (monitor_where(m) == IN_PROCS && half < IN_THERE)
		half = rows - cards < IN_THERE ? rows - cards : IN_THERE;
	return h < half ? h : half > FIXED ? half : FIXED;
}

static void put_title(
	const struct monitor *m, struct card_row card, size_t n, size_t all, struct buf *out)
{
	char label[GPU_LABEL_LEN];
	const struct gpu_card *c = monitor_card(m, card);

	gpu_label(c->index, c->gi, c->ci, label);
	buf_printf(out, "Processes ");
	if (m->proc_filter.n)
		buf_printf(out, "%zu/", n);
	buf_printf(out, "%zu on %s GPU %s, by %s %s%s", all, m->nodes[card.node].name, label,
		sort_words[m->proc_sort],
		m->proc_reverse != proc_sort_is_ascending(m->proc_sort) ? "up" : "down",
		m->proc_group == GROUP_TREE   ? ", tree"
		: m->proc_group == GROUP_USER ? ", by user"
					      : "");
}

static void draw_rows(struct monitor *m, struct frame *f, struct rect r, struct card_row card,
	const struct proc_row *rows, size_t n, size_t selected)
{
	struct columns c;
	bool is_up = m->proc_reverse != proc_sort_is_ascending(m->proc_sort);

	columns_fit(&c, columns, ARRAY_LEN(columns), NULL, r.x, r.w, 1, false);
	columns_head(
		f, &c, rect_take_top(&r, 1).y, STYLE(INK_DIM), m->proc_sort, is_up, DO_SORT_BY);
	m->first_proc = list_window(m->first_proc, (int)selected, (int)n, r.h);
	m->proc_page = r.h > 0 ? r.h : 1;
	for (int i = 0; i < r.h && m->first_proc + i < (int)n; i++) {
		size_t at = (size_t)m->first_proc + (size_t)i;

		draw_row(m, f, &c, card, &rows[at], r.y + i, at == selected);
		frame_hit(f, rect_of(r.x, r.y + i, r.w, 1), DO_SELECT_PROC,
			monitor_proc_arg(&rows[at]));
	}
	if (!n && r.h) {
		struct pen p = pen_at(&f->grid, r.x, r.y, r.w);

		pen_put(&p, STYLE(INK_DIM),
			m->proc_filter.n ? "no process matches" : "no process on this card");
	}
}

void view_procs(struct monitor *m, struct frame *f, struct rect r, struct card_row card,
	struct view_time now)
{
	size_t n, all, selected;
	CLEANUP_FREE struct proc_row *rows = monitor_procs(m, card, now.boot_ms, &n, &all);
	CLEANUP(buf_done) struct buf title = {0};
	struct rect list, command, inside, edge;
	int most = f->grid.rows < SHORT_COMMAND_ROWS ? COMMAND_SHORT : COMMAND_TALL, rest;

	frame_hit(f, r, DO_PROCS_PANE, 0);
	edge = rect_of(r.x, r.y + r.h - 1, r.w, r.h > 1);
	put_title(m, card, n, all, &title);
	r = pane_draw(f, r, buf_str(&title), monitor_where(m) == IN_PROCS);
	selected = monitor_selected_proc(m, rows, n);
	/* From below the actions; then the list has its rows, and the command what's left. */
	draw_actions(m, f, rect_take_bottom(&r, r.h > 3 ? 1 : 0));
	inside = r;
	rest = r.h - 3;
	list = rect_take_top(&r, 1 + (m->proc_rows && m->proc_rows < rest ? m->proc_rows
					     : rest > 4			  ? (rest + 1) / 2
					     : rest > 3			  ? 2
									  : 1));
	draw_rows(m, f, list, card, rows, n, selected);
	if (n) {
		draw_usage(m, f, rect_take_top(&r, 1), card, &rows[selected]);
		draw_place(m, f, rect_take_top(&r, 1), card, &rows[selected]);
		command = rect_take_top(&r, most);
		if (m->view.trends && f->grid.rows < SHORT_ROWS)
			view_trends(m, f, command, card, &rows[selected]);
		else
			draw_command(m, f, command, &rows[selected], edge);
	}
	/* On top of the last line: nothing moves when something is pending, for a button is to be pressed twice. */
	if (has_state(m) && inside.h > 1) {
		inside = rect_take_bottom(&inside, 1);
		grid_fill(&f->grid, inside, "", STYLE(INK_PLAIN));
		draw_state(m, f, inside, now.boot_ms);
	}
}
