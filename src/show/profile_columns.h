/* Figures of profiling as columns of a table, the same in `--once` and in the monitor: SM, pipelines, what follows from them. */
#pragma once

#include "base/buf.h"
#include "core/sample.h"

#define SHOW_PROFILE_N 10

struct show_profile_column {
	const char *title;
	enum metric metric;
	uint8_t drop; /* the place in the order in which columns leave, 1 first; 0: stays */
};
extern const struct show_profile_column show_profile_columns[SHOW_PROFILE_N];

/* "profiling: dcgm", "profiling isn't available: there's no ..."; nothing when nobody asked. Returns whether it's a complaint. */
bool show_profiling_put(const struct sample *s, struct buf *out);
