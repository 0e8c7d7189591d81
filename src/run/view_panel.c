/*
 * The live panel below a run's log lines: progress, cards, what runs, what waits and why. It decides which of them get the
 * rows there are; it never takes more, and it says what it left out. Pure.
 */
#include "run/view.h"

#include "run/view_line.h"

struct panel_rows {
	size_t cards, running,
		pending; /* rows, including the one that says how many more there are */
	bool has_alarm, has_legend;
};

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Cards come first, up to half of the rows; what runs and what waits share the rest, and leave each other what they don't need. */
static struct panel_rows share_rows(
	const struct run_view *v, size_t n_running, size_t n_pending, size_t rows, bool has_alarm)
{
	struct panel_rows p = {.has_alarm = has_alarm && rows > 1};
	size_t rest = rows - 1 - p.has_alarm;
	size_t jobs = n_running + n_pending;

	p.cards = least(v->n_cards, jobs <= rest / 2 ? rest - jobs : (rest + 1) / 2);
	rest -= p.cards;
	p.running = least(n_running, n_pending <= rest / 2 ? rest - n_pending : (rest + 1) / 2);
	rest -= p.running;
	p.pending = least(n_pending, rest);
	rest -= p.pending;
	p.has_legend = rest > 0 && p.cards > 0;
	return p;
}

/* How many of n items a section of so many rows shows: one row fewer when it must say that there are more. */
static size_t items_shown(size_t n, size_t rows)
{
	return n <= rows ? n : rows ? rows - 1 : 0;
}

static void put_jobs(const struct run_view *v, bool is_pending, size_t n, size_t rows,
	const struct row_style *style, struct buf *out)
{
	size_t shown = items_shown(n, rows), left = shown;

	for (size_t i = 0; i < v->n_jobs && left; i++) {
		const struct view_job *j = &v->jobs[i];
		bool is_running = j->state == VIEW_RUNNING || j->state == VIEW_HANDED;

		if (is_pending ? j->state != VIEW_PENDING : !is_running)
			continue;
		if (is_pending)
			view_line_pending(j, style, out);
		else
			view_line_running(j, style, out);
		left--;
	}
	if (rows && shown < n)
		view_line_more(n - shown, is_pending ? "waiting" : "running", style, out);
}

static void put_cards(
	const struct run_view *v, size_t rows, const struct row_style *style, struct buf *out)
{
	size_t shown = items_shown(v->n_cards, rows);

	for (size_t i = 0; i < shown; i++)
		view_line_card(&v->cards[i], style, out);
	if (rows && shown < v->n_cards)
		view_line_more(v->n_cards - shown, "cards", style, out);
}

void view_panel(
	const struct run_view *v, size_t cols, size_t rows, bool color, bool utf8, struct buf *out)
{
	struct row_style style = {.cols = cols, .color = color, .utf8 = utf8};
	size_t n_running = 0, n_pending = 0;
	struct panel_rows p;

	if (!cols || !rows)
		return;
	/* Counted here: the rows below must agree with the lines above, whatever the counters say. */
	for (size_t i = 0; i < v->n_jobs; i++) {
		enum view_state s = v->jobs[i].state;

		n_running += s == VIEW_RUNNING || s == VIEW_HANDED;
		n_pending += s == VIEW_PENDING;
	}
	/* The view may hold the first of many. */
	if (n_pending && v->n_pending > n_pending)
		n_pending = v->n_pending;
	p = share_rows(v, n_running, n_pending, rows, view_line_alarm(v, &style, NULL));
	view_line_progress(v, &style, out);
	if (p.has_alarm)
		view_line_alarm(v, &style, out);
	put_cards(v, p.cards, &style, out);
	if (p.has_legend)
		view_line_legend(&style, out);
	put_jobs(v, false, n_running, p.running, &style, out);
	put_jobs(v, true, n_pending, p.pending, &style, out);
	/* Newlines stand between the lines only: one at the end would scroll the terminal. */
	if (out->len && out->data[out->len - 1] == '\n')
		out->data[--out->len] = '\0';
}
