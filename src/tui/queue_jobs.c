/* The table of jobs (queue_view.h). */
#include "tui/queue_view.h"

#include "base/cleanup.h"
#include "tui/columns.h"
#include "tui/pane.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	COL_ID,
	COL_STATE,
	COL_PRIORITY,
	COL_NAME,
	COL_NODE,
	COL_GPU,
	COL_VRAM,
	COL_USED,
	COL_TIME,
	COL_EXIT,
	COL_COMMAND,
	COL_N,
	WIDE_COLS = 100,
	COMMAND_LEAST = 6 /* cells; a shorter beginning says nothing */
};

static const struct column wide[COL_N] = {
	{"ID", 4, 6, 0, true, QSORT_ID},
	{"ST", 7, 7, 0, false, QSORT_STATE},
	{"PRI", 3, 4, 4, true, QSORT_PRIORITY},
	{"NAME", 8, 16, 0, false, QSORT_NAME},
	{"NODE", 6, 12, 3, false, QSORT_NODE},
	{"GPU", 3, 5, 6, false, 0},
	{"VRAM", 5, 6, 5, true, QSORT_VRAM},
	{"USED", 5, 6, 2, true, QSORT_USED},
	{"TIME", 10, 10, 0, true, QSORT_TIME},
	{"RC", 2, 3, 1, true, 0},
	{"PROGRESS / COMMAND", 8, 40, 0, false, 0, "COMMAND"},
};

/* Below 100 columns without NODE and USED. */
static size_t choose(int cols, struct column *ret, int *ret_what)
{
	size_t n = 0;

	for (int i = 0; i < COL_N; i++) {
		if (cols < WIDE_COLS && (i == COL_NODE || i == COL_USED))
			continue;
		ret_what[n] = i;
		ret[n++] = wide[i];
	}
	return n;
}

static void put_cards(const struct snap_job *j, struct buf *b)
{
	for (size_t i = 0; i < j->n_cards; i++)
		buf_printf(b, "%s%s", i ? "," : "", j->cards[i]);
	if (!j->n_cards && j->lane[0])
		buf_printf(b, "Q%s", strrchr(j->lane, ':') ? strrchr(j->lane, ':') + 1 : "");
	else if (!j->n_cards && j->state == SNAP_PENDING && j->gpus > 0)
		buf_printf(b, "x%" PRId64, j->gpus);
	else if (!j->n_cards && !j->gpus)
		buf_puts(b, "cpu");
}

static void put_command(struct pen p, const struct snap_job *j)
{
	if (j->progress[0]) {
		pen_either(&p, STYLE(INK_FOCUS), "\xe2\x96\xb8 ", "> ");
		pen_put(&p, STYLE(INK_FOCUS), j->progress);
		pen_skip(&p, 2);
	}
	if (j->is_held && j->held_why[0]) {
		pen_put(&p, STYLE(INK_WARN), j->held_why);
		pen_skip(&p, 2);
	}
	if (pen_left(&p) >= COMMAND_LEAST)
		pen_put(&p, STYLE(INK_PLAIN), j->command);
}

static void put_text(const struct snap_job *j, int what, int64_t wall_ms, struct buf *b)
{
	switch (what) {
	case COL_ID:
		buf_printf(b, "%" PRId64, j->id);
		break;
	case COL_PRIORITY:
		buf_printf(b, "%" PRId64, j->priority);
		break;
	case COL_NAME:
		buf_puts(b, j->name);
		break;
	case COL_NODE:
		buf_puts(b, j->node);
		break;
	case COL_GPU:
		put_cards(j, b);
		break;
	case COL_VRAM:
		queue_put_mib(b, j->vram_mib);
		break;
	case COL_USED:
		queue_put_mib(b, j->used_mib);
		break;
	case COL_TIME:
		queue_put_elapsed(b, queue_job_elapsed(j, wall_ms));
		break;
	case COL_EXIT:
		if (j->has_exit_code)
			buf_printf(b, "%" PRId64, j->exit_code);
		break;
	}
}

static void draw_row(struct frame *f, const struct columns *c, const int *what, size_t n, int y,
	const struct snap_job *j, int64_t wall_ms)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct style plain = STYLE(j->state > SNAP_RUNNING ? INK_DIM : INK_PLAIN);
	enum ink ink;

	for (size_t i = 0; i < n; i++) {
		if (what[i] == COL_STATE) {
			const char *badge = queue_badge(j, f->grid.ascii, &ink);

			columns_cell(f, c, i, y, STYLE(ink), badge);
			continue;
		}
		if (what[i] == COL_COMMAND) {
			put_command(columns_pen(f, c, i, y), j);
			continue;
		}
		buf_clear(&b);
		put_text(j, what[i], wall_ms, &b);
		columns_cell(f, c, i, y,
			what[i] == COL_EXIT && j->exit_code ? STYLE(INK_BAD) : plain, buf_str(&b));
	}
}

static void put_scope(const struct queue_model *m, struct buf *b)
{
	static const char *const words[] = {"", "server ", "GPU ", "lane ", "any GPU"};

	buf_puts(b, words[m->scope]);
	if (m->scope_node[0])
		buf_puts(b, m->scope_node);
	if (m->scope_card[0])
		buf_printf(b, ":%s", m->scope_card);
}

/* In the frame's upper edge, on the right. */
static void draw_all_jobs(const struct queue_model *m, struct frame *f, struct rect r)
{
	static const char text[] = "[all jobs]";
	int w = (int)strlen(text), x = r.x + r.w - w - 2;
	struct pen p = pen_at(&f->grid, x, r.y, w);

	if (m->scope == SCOPE_NONE || r.w < w + 30)
		return;
	pen_put(&p, STYLE(INK_FOCUS), text);
	frame_hit(f, rect_of(x, r.y, w, 1), QDO_CLEAR, 0);
}

static void draw_title(const struct queue_model *m, size_t n, struct buf *title)
{
	buf_printf(title, "Jobs %zu %s", n, queue_filter_name(m->filter));
	if (m->scope != SCOPE_NONE) {
		buf_puts(title, ", ");
		put_scope(m, title);
	}
	buf_printf(title, ", by %s%s", queue_sort_name(m->sort), m->is_reversed ? " reversed" : "");
	if (m->snap.hidden_jobs)
		buf_printf(title, ", %" PRId64 " more aren't listed", m->snap.hidden_jobs);
}

static void say_none(const struct queue_model *m, struct frame *f, struct rect r)
{
	const char *text = !m->has_snap		    ? "reading the queue..."
			   : m->scope != SCOPE_NONE ? "no such jobs there; x shows all jobs again"
						    : "no such jobs; f shows others";

	grid_wrap(&f->grid, r, STYLE(INK_DIM), text, 0);
}

void queue_jobs(struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms)
{
	CLEANUP(buf_done) struct buf title = {0};
	struct column items[COL_N];
	int what[COL_N], at = -1;
	struct columns c;
	size_t n, n_cols = choose(f->grid.cols, items, what);
	CLEANUP_FREE size_t *v = queue_model_jobs(m, wall_ms, &n);
	struct rect in;

	frame_hit(f, r, QDO_JOBS, 0);
	draw_title(m, n, &title);
	in = pane_draw(f, r, buf_str(&title), m->focus == QFOCUS_JOBS);
	draw_all_jobs(m, f, r);
	columns_fit(&c, items, n_cols, NULL, in.x, in.w, 1, true);
	/* What's left is the command's. */
	if (c.right < in.x + in.w && columns_has(&c, n_cols - 1))
		c.w[n_cols - 1] += in.x + in.w - c.right;
	if (in.h > 0)
		columns_head(f, &c, in.y, STYLE(INK_DIM), m->sort, m->is_reversed, QDO_SORT_BY);
	rect_take_top(&in, 1);
	for (size_t i = 0; i < n; i++)
		if (m->snap.jobs[v[i]].id == m->job)
			at = (int)i;
	m->job_page = in.h;
	m->first_job = list_window(m->first_job, at < 0 ? m->first_job : at, (int)n, in.h);
	if (!n)
		say_none(m, f, in);
	for (int i = 0; i < in.h && m->first_job + i < (int)n; i++) {
		const struct snap_job *j = &m->snap.jobs[v[m->first_job + i]];

		draw_row(f, &c, what, n_cols, in.y + i, j, wall_ms);
		if (j->id == m->job)
			grid_paper(&f->grid, in.x, in.y + i, in.w, PAPER_SELECTED,
				m->focus == QFOCUS_JOBS ? STYLE_BOLD : 0);
		frame_hit(f, rect_of(in.x, in.y + i, in.w, 1), QDO_SELECT_JOB, j->id);
	}
}
