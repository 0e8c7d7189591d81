/* Head, alerts, layout, buttons and help of the queue screen (queue_view.h). */
#include "tui/queue_view.h"

#include "base/cleanup.h"
#include "tui/pane.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { ALERTS_SHOWN = 3, BUTTON_ROWS = 3, RESOURCES_LEAST = 3, TEXT_LEAST = 5, JOBS_LEAST = 6 };

/* ---- shared ---- */

void queue_put_elapsed(struct buf *b, int64_t ms)
{
	int64_t s = ms / 1000;

	if (ms < 0)
		return;
	if (s >= 86400)
		buf_printf(b, "%" PRId64 "-", s / 86400);
	buf_printf(b, "%02d:%02d:%02d", (int)(s / 3600 % 24), (int)(s / 60 % 60), (int)(s % 60));
}

void queue_put_mib(struct buf *b, int64_t mib)
{
	if (mib < 0)
		return;
	if (mib < 1024)
		buf_printf(b, "%" PRId64 "M", mib);
	else
		buf_printf(b, mib < 100 * 1024 ? "%.1fG" : "%.0fG", (double)mib / 1024);
}

const char *queue_badge(const struct snap_job *j, bool is_ascii, enum ink *ret_ink)
{
	static const struct {
		const char *utf8, *ascii;
		enum ink ink;
	} badges[SNAP_STATE_N] = {{"\xc2\xb7 pend", ". pend", INK_DIM},
		{"\xe2\x97\x8f run", "* run", INK_GOOD}, {"\xe2\x9c\x93 done", "+ done", INK_PLAIN},
		{"\xe2\x9c\x97 fail", "x fail", INK_BAD}, {"\xe2\x8a\x98 canc", "/ canc", INK_DIM},
		{"! tout", "! tout", INK_BAD}, {"? lost", "? lost", INK_BAD}};

	if (j->state <= SNAP_RUNNING && j->is_cancelling) {
		*ret_ink = INK_WARN;
		return is_ascii ? "/ ends" : "\xe2\x8a\x98 ends";
	}
	if (j->is_held) {
		*ret_ink = INK_WARN;
		return is_ascii ? "= held" : "\xe2\x8f\xb8 held";
	}
	if (queue_job_is_starting(j)) {
		*ret_ink = INK_FOCUS;
		return is_ascii ? "> start" : "\xe2\x96\xb8 start";
	}
	*ret_ink = badges[j->state].ink;
	return is_ascii ? badges[j->state].ascii : badges[j->state].utf8;
}

/* ---- head ---- */

static void draw_title(const struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);
	int64_t age = m->snap.last_tick_ms ? (wall_ms - m->snap.last_tick_ms) / 1000 : -1;
	int x;

	pen_put(&p, STYLE_STRONG(INK_FOCUS), "gpustow queue");
	pen_put(&p, STYLE(INK_DIM), "  tick ");
	if (age < 0)
		pen_put(&p, STYLE(INK_DIM), "never");
	else
		pen_printf(&p, STYLE(age > 60 ? INK_WARN : INK_PLAIN), "%" PRId64 "s ago",
			age > 0 ? age : 0);
	if (m->snap.has_keeper) {
		pen_put(&p, STYLE(INK_DIM), "  keeper ");
		pen_put(&p, STYLE(m->snap.is_keeper_up ? INK_GOOD : INK_BAD),
			m->snap.is_keeper_up ? "up" : "DOWN");
	}
	pen_put(&p, STYLE(INK_DIM), "  ");
	x = p.x;
	pen_put(&p, STYLE(INK_FOCUS), m->is_auto ? "auto" : "manual");
	frame_hit(f, rect_of(x, r.y, p.x - x, 1), QDO_AUTO, 0);
	pen_put(&p, STYLE(m->is_working ? INK_FOCUS : INK_DIM),
		m->is_working ? "  working" : "  idle");
	if (m->is_capacity && m->procs != QPROCS_SUMMARY)
		pen_put(&p, STYLE(INK_DIM),
			m->procs == QPROCS_ALL ? "  processes: all" : "  processes: off");
}

static void count(struct frame *f, struct pen *p, int64_t n, const char *word, enum ink ink,
	int filter, int current)
{
	int x = p->x;
	struct pen before = *p;
	struct style s = {.ink = n ? ink : INK_DIM,
		.attr = filter == current ? STYLE_BOLD | STYLE_UNDERLINE : 0};

	pen_printf(p, s, "%s %" PRId64, word, n);
	pen_whole(p, &before);
	frame_hit(f, rect_of(x, p->y, p->x - x, 1), QDO_FILTER_BY, filter);
	pen_skip(p, 2);
}

static void draw_counts(const struct queue_model *m, struct frame *f, struct rect r)
{
	const struct snap *s = &m->snap;
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);
	int64_t bad = s->by_state[SNAP_FAILED] + s->by_state[SNAP_TIMEOUT] + s->by_state[SNAP_LOST];

	count(f, &p, s->by_state[SNAP_RUNNING], "running", INK_GOOD, QFILTER_RUNNING, m->filter);
	count(f, &p, s->by_state[SNAP_PENDING], "pending", INK_PLAIN, QFILTER_PENDING, m->filter);
	count(f, &p, s->held, "held", INK_WARN, QFILTER_HELD, m->filter);
	count(f, &p, s->by_state[SNAP_COMPLETED], "done", INK_PLAIN, QFILTER_FINISHED, -1);
	count(f, &p, bad, "failed", INK_BAD, QFILTER_FINISHED, m->filter);
	count(f, &p, s->by_state[SNAP_CANCELLED], "cancelled", INK_PLAIN, QFILTER_FINISHED, -1);
}

static void draw_alerts(const struct queue_model *m, struct frame *f, struct rect r)
{
	int64_t more = m->snap.open_alerts - r.h;

	for (int i = 0; i < r.h && (size_t)i < m->snap.n_alerts; i++) {
		const struct snap_alert *a = &m->snap.alerts[i];
		struct style s = STYLE(a->is_error ? INK_BAD : INK_WARN);
		struct pen p = pen_at(&f->grid, r.x, r.y + i, r.w);
		char rest[32] = "";

		if (i == r.h - 1 && more > 0) {
			snprintf(rest, sizeof(rest), "  %" PRId64 " more",
				m->snap.open_alerts - (i + 1));
			p.end -= (int)strlen(rest);
		}
		pen_put(&p, STYLE_STRONG(s.ink), "! ");
		pen_put(&p, s, a->title);
		p.end = r.x + r.w;
		p.is_cut = false;
		pen_put(&p, STYLE(INK_DIM), rest);
		frame_hit(f, rect_of(r.x, r.y + i, r.w, 1), QDO_ALERT, a->id);
	}
}

/* ---- buttons ---- */

static size_t list_buttons(const struct queue_model *m, struct button *b)
{
	const struct snap_job *j = queue_model_selected(m);
	const struct snap_node *n =
		(size_t)m->node < m->snap.n_nodes ? &m->snap.nodes[m->node] : NULL;
	size_t k = 0;

#define BUTTON(...) \
	b[k++] = (struct button) \
	{ \
		__VA_ARGS__ \
	}
	if (j) {
		BUTTON("Enter", m->has_detail && !m->has_log ? "hide" : "detail", QDO_DETAIL);
		BUTTON("L", m->has_log ? "log off" : "log", QDO_LOG);
		if (j->state <= SNAP_RUNNING)
			BUTTON("c", m->armed == j->id ? "confirm cancel" : "cancel", QDO_CANCEL,
				.is_armed = m->armed == j->id);
		else
			BUTTON("r", "requeue", QDO_REQUEUE);
		if (j->state == SNAP_PENDING) {
			BUTTON("+", "prio", QDO_RAISE);
			BUTTON("-", "prio", QDO_LOWER);
			BUTTON("K", "up", QDO_MOVE_UP);
			BUTTON("J", "down", QDO_MOVE_DOWN);
		}
	}
	if (n && m->focus == QFOCUS_NODES)
		BUTTON("d", n->is_drained ? "resume" : "drain", QDO_DRAIN);
	BUTTON("v", m->is_capacity ? "task flow" : "capacity", QDO_VIEW);
	BUTTON("?", "help", QDO_HELP);
	BUTTON("q", "quit", QDO_QUIT);
	BUTTON("t", "tick", QDO_TICK);
	BUTTON("f", "filter", QDO_FILTER);
	BUTTON("s", "sort", QDO_SORT);
	if (m->snap.open_alerts)
		BUTTON("A", "ack", QDO_ACK);
	BUTTON("a", m->is_auto ? "auto off" : "auto on", QDO_AUTO);
	BUTTON("p", "processes", QDO_PROCS);
	BUTTON("T", "theme", QDO_THEME);
#undef BUTTON
	return k;
}

static int button_rows(const struct button *b, size_t n, int w)
{
	int x = 0, rows = 1;

	for (size_t i = 0; i < n; i++) {
		int own = grid_width(b[i].key) + 3 + grid_width(b[i].text);

		if (x && x + own > w) {
			rows++;
			x = 0;
		}
		x += own + 2;
	}
	return rows < BUTTON_ROWS ? rows : BUTTON_ROWS;
}

static void draw_buttons(struct frame *f, struct rect r, const struct button *b, size_t n)
{
	while (r.h > 0 && n) {
		size_t k = buttons_draw(f, rect_take_top(&r, 1), b, n);

		if (!k)
			return;
		b += k;
		n -= k;
	}
}

/* ---- what's asked and said ---- */

static void draw_armed(const struct queue_model *m, struct frame *f, struct rect r)
{
	const struct snap_job *j = snap_job(&m->snap, m->armed);
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	pen_printf(&p, STYLE_STRONG(INK_BAD),
		"Cancel job %" PRId64 " %s? c again within 5 s; Esc keeps it.", m->armed,
		j ? j->name : "");
	frame_hit(f, r, QDO_CANCEL, 0);
}

static void draw_notice(const struct queue_model *m, struct frame *f, struct rect r)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0);

	if (m->error[0])
		pen_put(&p, STYLE(INK_BAD), m->error);
	else
		pen_put(&p, STYLE(m->notice_is_bad ? INK_BAD : INK_FOCUS), m->notice);
}

static void draw_help(struct queue_model *m, struct frame *f)
{
	struct help_line lines[64];
	size_t n = 0;

	lines[n++] = (struct help_line){NULL, "Keys"};
	for (size_t i = 0; i < queue_screen_keys_n && n < 50; i++)
		lines[n++] =
			(struct help_line){queue_screen_keys[i].shown, queue_screen_keys[i].text};
	lines[n++] = (struct help_line){NULL, "Mouse"};
	lines[n++] = (struct help_line){"server, GPU", "only its jobs; [all jobs] shows all again"};
	lines[n++] = (struct help_line){"a job's card", "its details; again hides them"};
	lines[n++] = (struct help_line){"lane, ANY GPU, +N", "all that wait there"};
	lines[n++] = (struct help_line){"title, count", "sort by that column, only those jobs"};
	lines[n++] = (struct help_line){"alert", "the job's log, or the server's jobs"};
	lines[n++] = (struct help_line){NULL, "GPUs"};
	lines[n++] = (struct help_line){"RUN", "jobs of this queue run there"};
	lines[n++] = (struct help_line){"EXTERNAL", "processes that aren't the queue's"};
	lines[n++] = (struct help_line){"BUSY", "work that no process accounts for"};
	lines[n++] = (struct help_line){"IDLE", "measured, and nothing is there"};
	lines[n++] = (struct help_line){"UNKNOWN", "no reading, or the server doesn't answer"};
	help_draw(f, "Help", lines, n, &m->help_scroll, QDO_CLOSE_HELP);
}

/* ---- all of it ---- */

/* How many lines each pane gets of `rows`: jobs last, for they have the rest. */
static void share(
	const struct queue_model *m, int rows, int screen, int *ret_resources, int *ret_text)
{
	int most = m->is_capacity && m->procs == QPROCS_ALL ? screen / 2 : screen / 3;
	int res = queue_resources_height(m) + 2, text = 0;

	if (m->has_detail || m->has_log)
		text = rows / 3 > TEXT_LEAST ? rows / 3 : TEXT_LEAST;
	if (res > most)
		res = most;
	while (res > RESOURCES_LEAST && rows - res - text < JOBS_LEAST)
		res--;
	while (text > TEXT_LEAST && rows - res - text < JOBS_LEAST)
		text--;
	*ret_resources = res;
	*ret_text = text;
}

static int alert_rows(const struct queue_model *m, int rows)
{
	int most = rows < 30 ? 1 : ALERTS_SHOWN;

	return (int)(m->snap.n_alerts < (size_t)most ? m->snap.n_alerts : (size_t)most);
}

static void draw_body(struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms)
{
	int res, text;

	share(m, r.h, f->grid.rows, &res, &text);
	queue_resources(m, f, rect_take_top(&r, res), wall_ms);
	if (text)
		queue_text_pane(m, f, rect_take_bottom(&r, text), wall_ms);
	queue_jobs(m, f, r, wall_ms);
}

void queue_draw(struct queue_model *m, struct frame *f, int cols, int rows, int64_t wall_ms)
{
	struct button b[32];
	struct rect r;
	size_t n;

	frame_begin(f, cols, rows);
	if (cols < QUEUE_COLS_MIN || rows < QUEUE_ROWS_MIN) {
		too_small_draw(f, QUEUE_COLS_MIN, QUEUE_ROWS_MIN);
		return;
	}
	/* The bottom row is never written. */
	r = rect_of(0, 0, f->grid.cols, f->grid.rows - 1);
	draw_title(m, f, rect_take_top(&r, 1), wall_ms);
	draw_counts(m, f, rect_take_top(&r, 1));
	draw_alerts(m, f, rect_take_top(&r, alert_rows(m, rows)));
	n = list_buttons(m, b);
	draw_buttons(f, rect_take_bottom(&r, rows < 30 && cols < 100 ? 2 : button_rows(b, n, r.w)),
		b, n);
	if (m->armed)
		draw_armed(m, f, rect_take_bottom(&r, 1));
	if (m->error[0] || m->notice[0])
		draw_notice(m, f, rect_take_bottom(&r, 1));
	draw_body(m, f, r, wall_ms);
	if (m->has_help)
		draw_help(m, f);
}
