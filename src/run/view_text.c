/*
 * What `gpustow run status` tells a person: the run, its cards, what runs, waits, failed or was misdeclared. Long lists are cut and say so;
 * the JSON document is complete. Pure.
 */
#include "run/view.h"

#include "run/view_line.h"

#include <string.h>

enum { RUNNING_MAX = 200, PENDING_MAX = 20, ENDED_MAX = 20 };

enum section { SECTION_RUNNING, SECTION_PENDING, SECTION_FAILED, SECTION_MISDECLARED };

static bool is_in(const struct view_job *j, enum section s)
{
	bool is_done = j->state == VIEW_DONE || j->state == VIEW_DONE_BEFORE;
	bool went_well = j->status && strcmp(j->status, "ok") == 0;
	bool was_cancelled = j->status && strcmp(j->status, "cancelled") == 0;

	switch (s) {
	case SECTION_RUNNING:
		return j->state == VIEW_RUNNING || j->state == VIEW_HANDED;
	case SECTION_PENDING:
		return j->state == VIEW_PENDING;
	case SECTION_FAILED:
		return is_done && !went_well && !was_cancelled;
	case SECTION_MISDECLARED:
		break;
	}
	return is_done && went_well && j->suggested_mib >= 0;
}

static void put_line(
	const struct view_job *j, enum section s, const struct row_style *style, struct buf *out)
{
	if (s == SECTION_RUNNING)
		view_line_running(j, style, out);
	else if (s == SECTION_PENDING)
		view_line_pending(j, style, out);
	else
		view_line_done(j, style, out);
}

static void put_title(const char *title, const struct row_style *style, struct buf *out)
{
	struct row r;

	buf_putc(out, '\n');
	row_begin(&r, style, out);
	row_text(&r, ROW_PLAIN, title);
	row_end(&r);
}

static void put_section(const struct run_view *v, enum section s, size_t most, const char *title,
	const struct row_style *style, struct buf *out)
{
	size_t n = 0;

	for (size_t i = 0; i < v->n_jobs; i++) {
		if (!is_in(&v->jobs[i], s))
			continue;
		if (n == 0)
			put_title(title, style, out);
		if (n++ < most)
			put_line(&v->jobs[i], s, style, out);
	}
	if (n > most)
		view_line_more(n - most, "(--json has all)", style, out);
}

static void put_fact(
	const char *name, const char *value, const struct row_style *style, struct buf *out)
{
	struct row r;

	if (!value)
		return;
	row_begin(&r, style, out);
	row_printf(&r, ROW_PLAIN, "%-10s ", name);
	row_text(&r, ROW_PLAIN, value);
	row_end(&r);
}

static void put_scheduler(const struct run_view *v, const struct row_style *style, struct buf *out)
{
	struct row r;

	row_begin(&r, style, out);
	row_printf(&r, ROW_PLAIN, "%-10s ", "scheduler");
	if (v->scheduler_pid > 0)
		row_printf(&r, ROW_PLAIN, "pid %lld", (long long)v->scheduler_pid);
	else
		row_text(&r, ROW_PLAIN, "none is running");
	row_end(&r);
}

void view_status_text(const struct run_view *v, size_t cols, struct buf *out)
{
	struct row_style style = {.cols = cols, .utf8 = true};

	view_line_progress(v, &style, out);
	put_fact("jobs file", v->jobs_file, &style, out);
	put_fact("log dir", v->log_dir, &style, out);
	put_scheduler(v, &style, out);
	put_fact("figures", v->source, &style, out);
	view_line_alarm(v, &style, out);
	if (v->n_cards)
		put_title("cards", &style, out);
	for (size_t i = 0; i < v->n_cards; i++)
		view_line_card(&v->cards[i], &style, out);
	if (v->n_cards)
		view_line_legend(&style, out);
	put_section(v, SECTION_RUNNING, RUNNING_MAX, "running", &style, out);
	put_section(v, SECTION_PENDING, PENDING_MAX, "waiting", &style, out);
	put_section(v, SECTION_FAILED, ENDED_MAX, "failed", &style, out);
	put_section(
		v, SECTION_MISDECLARED, ENDED_MAX, "declared too little or too much", &style, out);
}
