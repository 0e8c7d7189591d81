/* The lines that the panel and the status text have in common: one for the run, a card, a job. Each fills a row and ends it. */
#pragma once

#include "base/row.h"
#include "run/view.h"

void view_line_progress(const struct run_view *v, const struct row_style *style, struct buf *out);
/* Why the figures can't be trusted (no answer, old, stopping): true if there's such a line, and it was put; out NULL only asks. */
bool view_line_alarm(const struct run_view *v, const struct row_style *style, struct buf *out);
void view_line_card(const struct view_card *c, const struct row_style *style, struct buf *out);
void view_line_running(const struct view_job *j, const struct row_style *style, struct buf *out);
void view_line_pending(const struct view_job *j, const struct row_style *style, struct buf *out);
void view_line_done(const struct view_job *j, const struct row_style *style, struct buf *out);
/* "… 12 more waiting" */
void view_line_more(size_t n, const char *what, const struct row_style *style, struct buf *out);
/* What the signs of a card's bar mean. */
void view_line_legend(const struct row_style *style, struct buf *out);
