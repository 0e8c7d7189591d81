/* One line for the run, a card or a job, cut to the terminal. Pure; the order within a line is the order of importance. */
#include "run/view_line.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "run/view_bar.h"

#include <string.h>

enum { OLD_SAMPLE_MS = 30000 };

/* A part of the width for a bar, within reason. */
static size_t bar_cells(const struct row_style *style, size_t part, size_t most)
{
	size_t cells = style->cols ? style->cols / part : most;

	return cells > most ? most : cells;
}

void view_line_progress(const struct run_view *v, const struct row_style *style, struct buf *out)
{
	size_t done = v->n_done + v->n_done_before, failed = v->n_failed + v->n_failed_before;
	size_t all = done + v->n_running + v->n_pending;
	struct row r;

	row_begin(&r, style, out);
	view_bar_progress(&r, done, all, bar_cells(style, 6, 20));
	row_printf(&r, ROW_BOLD, " %zu/%zu", done, all);
	row_printf(&r, ROW_PLAIN, " done, %zu running, %zu waiting", v->n_running, v->n_pending);
	if (failed)
		row_printf(&r, ROW_RED, ", %zu failed", failed);
	if (v->n_cancelled)
		row_printf(&r, ROW_PLAIN, ", %zu cancelled", v->n_cancelled);
	if (v->is_stopping)
		row_text(&r, ROW_AMBER, ", stopping");
	else if (v->is_draining)
		row_text(&r, ROW_AMBER, ", draining: nothing more is started");
	else if (v->is_watching)
		row_text(&r, ROW_DIM, ", watching the file");
	row_end(&r);
}

bool view_line_alarm(const struct run_view *v, const struct row_style *style, struct buf *out)
{
	bool is_old = v->sample_age_ms > OLD_SAMPLE_MS;
	CLEANUP(buf_done) struct buf age = {0};
	struct row r;

	if (!v->source_error && !is_old)
		return false;
	if (!out)
		return true;
	row_begin(&r, style, out);
	if (v->sample_age_ms >= 0)
		text_put_duration(&age, v->sample_age_ms);
	if (v->source_error)
		row_printf(&r, ROW_RED, "! GPUs: %s", v->source_error);
	else
		row_printf(&r, ROW_AMBER, "! the cards' figures are %s old", buf_str(&age));
	if (v->source_error && age.len)
		row_printf(&r, ROW_DIM, " (figures are %s old)", age.data);
	row_end(&r);
	return true;
}

/* "7.6/24.0 GiB": one unit, that of the larger. */
static void put_share(struct buf *b, int64_t part_mib, int64_t of_mib)
{
	bool is_gib = of_mib >= 1024;

	if (part_mib < 0)
		buf_putc(b, '-');
	else if (is_gib)
		buf_printf(b, "%.1f", (double)part_mib / 1024);
	else
		buf_printf(b, "%lld", (long long)part_mib);
	if (is_gib)
		buf_printf(b, "/%.1f GiB", (double)of_mib / 1024);
	else
		buf_printf(b, "/%lld MiB", (long long)of_mib);
}

static void put_card_figures(struct row *r, const struct view_card *c)
{
	CLEANUP(buf_done) struct buf used = {0}, room = {0}, promised = {0};

	bool is_measured = c->used_mib >= 0 || c->foreign_mib >= 0;

	/* An empty bar would say that all of it is free. */
	if (is_measured) {
		view_bar(r, c, bar_cells(r->style, 4, 40));
		row_text(r, ROW_PLAIN, " ");
	}
	put_share(&used, c->used_mib, c->total_mib);
	row_text(r, ROW_PLAIN, used.data);
	if (!c->is_usable) {
		row_text(r, ROW_DIM, "  not used here");
		return;
	}
	if (is_measured)
		text_put_mib(&room, c->free_mib);
	row_printf(r, ROW_PLAIN, "  free %s", is_measured ? room.data : "-");
	if (c->promised_mib > 0) {
		text_put_mib(&promised, c->promised_mib);
		row_printf(r, ROW_PLAIN, "  promised to others %s", promised.data);
	}
	if (c->util_pct >= 0)
		row_printf(r, ROW_PLAIN, "  util %d%%", c->util_pct);
	else
		row_text(r, ROW_DIM, "  util -");
	row_printf(r, ROW_PLAIN, "  %u job%s", c->n_jobs, c->n_jobs == 1 ? "" : "s");
}

void view_line_card(const struct view_card *c, const struct row_style *style, struct buf *out)
{
	bool is_ok = !c->state || strcmp(c->state, "ok") == 0;
	char label[GPU_LABEL_LEN];
	struct row r;

	row_begin(&r, style, out);
	gpu_label(c->index, c->gi, c->ci, label);
	row_printf(&r, ROW_BOLD, "gpu%-2s ", label);
	if (!is_ok)
		row_printf(&r, ROW_RED, "%s%s", c->state, c->total_mib > 0 ? " " : "");
	if (c->total_mib > 0)
		put_card_figures(&r, c);
	else if (is_ok)
		row_text(&r, ROW_DIM, "memory unknown");
	if (c->name && *c->name)
		row_printf(&r, ROW_DIM, "  %s", c->name);
	row_end(&r);
}

static void put_job_name(struct row *r, const struct view_job *j)
{
	if (j->no)
		row_printf(r, ROW_BOLD, "%-4llu", (unsigned long long)j->no);
	else
		row_text(r, ROW_BOLD, "-   ");
	if (j->name)
		row_printf(r, ROW_PLAIN, " %s", j->name);
}

static void put_command(struct row *r, const struct view_job *j)
{
	row_either(r, ROW_DIM, " — ", " - ");
	row_text(r, ROW_PLAIN, j->command ? j->command : "");
}

/* What it holds on the card where it holds most, of what it declared. */
static void put_use(struct buf *b, const struct view_job *j)
{
	int64_t now = -1;

	for (uint32_t i = 0; i < j->n_use && j->is_sampled; i++)
		if (j->use[i].now_mib > now)
			now = j->use[i].now_mib;
	if (j->declared_mib >= 0) {
		put_share(b, now, j->declared_mib);
	} else if (now >= 0) {
		text_put_mib(b, now);
		buf_puts(b, ", whole card");
	} else {
		buf_puts(b, "whole card");
	}
	if (j->n_gpus > 1)
		buf_puts(b, " each");
}

static void put_cards(struct buf *b, const struct view_job *j)
{
	buf_puts(b, j->n_gpus ? "gpu" : "cpu");
	for (uint32_t i = 0; i < j->n_gpus; i++)
		buf_printf(b, "%s%d", i ? "," : "", j->gpus[i]);
}

static const char *running_note(const struct view_job *j)
{
	if (j->is_cancelling)
		return "  cancelling";
	if (j->is_timing_out)
		return "  timing out";
	if (j->state == VIEW_HANDED)
		return j->is_unknown ? "  unknown" : "  starting";
	return j->was_taken_over ? "  taken over" : NULL;
}

void view_line_running(const struct view_job *j, const struct row_style *style, struct buf *out)
{
	CLEANUP(buf_done) struct buf cards = {0}, use = {0}, time = {0};
	const char *note = running_note(j);
	struct row r;

	row_begin(&r, style, out);
	row_either(&r, ROW_GREEN, "▶ ", "> ");
	put_job_name(&r, j);
	put_cards(&cards, j);
	if (j->seconds >= 0 && j->seconds < 1e12)
		text_put_duration(&time, (int64_t)(j->seconds * 1000));
	row_printf(&r, ROW_PLAIN, " %-6s %7s", cards.data, time.len ? time.data : "-");
	if (j->n_gpus) {
		put_use(&use, j);
		row_printf(&r, ROW_PLAIN, "  %s", use.data);
	}
	if (note)
		row_text(&r, ROW_AMBER, note);
	put_command(&r, j);
	row_end(&r);
}

void view_line_pending(const struct view_job *j, const struct row_style *style, struct buf *out)
{
	CLEANUP(buf_done) struct buf need = {0};
	struct row r;

	row_begin(&r, style, out);
	if (j->attempts > 0)
		row_either(&r, ROW_AMBER, "↻ ", "^ ");
	else
		row_either(&r, ROW_DIM, "· ", ". ");
	put_job_name(&r, j);
	if (j->why) {
		row_printf(&r, ROW_PLAIN, " %s", j->why);
	} else {
		if (j->declared_mib >= 0)
			text_put_mib(&need, j->declared_mib);
		row_printf(&r, ROW_DIM, " waits%s%s", need.len ? " for " : "", buf_str(&need));
	}
	put_command(&r, j);
	row_end(&r);
}

static bool went_well(const struct view_job *j)
{
	return j->status && strcmp(j->status, "ok") == 0;
}

/* The journal's verdicts "over" and "under" speak of the use, which people read the wrong way round. */
static const char *done_words(const struct view_job *j)
{
	const char *word = j->verdict ? j->verdict : j->status ? j->status : "ended";

	if (strcmp(word, "over") == 0)
		return "ok, declared too little";
	if (strcmp(word, "under") == 0)
		return "ok, declared too much";
	return strcmp(word, "unattributed") == 0 ? "ok, never seen on a card" : word;
}

void view_line_done(const struct view_job *j, const struct row_style *style, struct buf *out)
{
	CLEANUP(buf_done) struct buf time = {0};
	struct row r;

	row_begin(&r, style, out);
	if (went_well(j))
		row_either(&r, ROW_GREEN, "✓ ", "+ ");
	else
		row_either(&r, ROW_RED, "✗ ", "x ");
	put_job_name(&r, j);
	row_printf(&r, ROW_PLAIN, " %s", done_words(j));
	if (j->has_returncode)
		row_printf(&r, ROW_PLAIN, " (exit %lld)", (long long)j->returncode);
	if (j->seconds >= 0 && j->seconds < 1e12) {
		text_put_duration(&time, (int64_t)(j->seconds * 1000));
		row_printf(&r, ROW_PLAIN, " after %s", time.data);
	}
	if (j->suggested_mib >= 0)
		row_printf(&r, ROW_AMBER, ", try vram=%lld", (long long)j->suggested_mib);
	put_command(&r, j);
	row_end(&r);
}

void view_line_more(size_t n, const char *what, const struct row_style *style, struct buf *out)
{
	struct row r;

	row_begin(&r, style, out);
	row_either(&r, ROW_DIM, "… ", "  ");
	row_printf(&r, ROW_DIM, "%zu more %s", n, what);
	row_end(&r);
}

void view_line_legend(const struct row_style *style, struct buf *out)
{
	struct row r;

	row_begin(&r, style, out);
	row_text(&r, ROW_PLAIN, "      ");
	view_bar_legend(&r);
	row_end(&r);
}
