/* Bars and history graphs of one or more lines. A value that's absent is a gap, never 0. Pure. */
#pragma once

#include "tui/grid.h"

#define GRAPH_GAP INT32_MIN

struct bar_part {
	int64_t amount;
	struct style style;
};

/* `cells` cells, of which permille of 1000 are filled (in eighths); s is the filled part's. */
void bar_put(struct pen *p, int cells, int64_t permille, struct style s);
/* Parts side by side, in order; what's left of total is the track. Any part above 0 has a cell if there are enough. */
void bar_parts(struct pen *p, int cells, const struct bar_part *parts, size_t n, int64_t total);
/* One line, eight levels between low and high, '.' for gaps; the newest on the right. */
void graph_spark(struct pen *p, int cells, const int32_t *values, size_t n, int32_t low,
	int32_t high, struct style s);
/* Braille, two values a cell and four dots a line, over the whole rectangle; in ASCII, columns of '#'. */
void graph_put(struct grid *g, struct rect r, const int32_t *values, size_t n, int32_t low,
	int32_t high, struct style s);
