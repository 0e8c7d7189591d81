/* Jobs as a table for people (nvidb 1.3, "Job table columns"): shared by `job ls`, `queue status` and the lanes. */
#pragma once

#include "base/row.h"
#include "store/store.h"

/* Columns HELD BY, PROGRESS and NOTE only when some row has a value. now_ms: wall clock. */
void job_table_put(const struct job *jobs, size_t n, int64_t now_ms, const struct row_style *style,
	struct buf *out);
/* "1 running · 3 pending": in nvidb's order; held ones beside the pending; zero counts left out. */
void job_counts_put(const struct store_counts *c, const struct row_style *style, struct buf *out);
enum row_color job_color(const struct job *j);
/* "0,1", or for MIG instances their UUIDs; "-" without cards. */
void job_cards_put(const struct job *j, struct buf *out);
