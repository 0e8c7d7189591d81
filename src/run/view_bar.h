/* Bars, put into a row. */
#pragma once

#include "base/row.h"
#include "run/view.h"

/* c->total_mib > 0; figures that aren't known count as none. */
void view_bar(struct row *r, const struct view_card *c, size_t cells);
void view_bar_progress(struct row *r, size_t done, size_t of, size_t cells);
void view_bar_legend(struct row *r);
