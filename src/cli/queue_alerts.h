/* Alerts as a table for people: shared by `queue alerts` and `queue status`. */
#pragma once

#include "base/row.h"
#include "store/store.h"

/* with_detail: each one's captured output below it. */
void queue_alerts_put(const struct store_alert *v, size_t n, bool with_detail,
	const struct row_style *style, struct buf *out);
