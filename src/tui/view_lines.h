/* Lines of unequal kinds behind one window: what both views are scrolled by. Inside of the monitor's view. */
#pragma once

#include "tui/monitor_view.h"

enum line_kind {
	LINE_NODE, /* a server's summary */
	LINE_WHY, /* the sentence of one that failed */
	LINE_SOURCE,
	LINE_TIMINGS,
	LINE_TITLES,
	LINE_CARD,
	LINE_HEALTH,
	LINE_PROFILING, /* where figures of profiling come from, or why there are none */
	LINE_PROFILE_TITLES,
	LINE_PROFILE, /* a card's figures of it */
	LINE_USERS,
	LINE_BAND, /* a node above its cards, in the unified view */
	LINE_DETAIL, /* ... of a card of several lines: part 0 to 4 */
	LINE_BLANK
};
struct line {
	uint8_t kind, part;
	struct card_row at;
};
struct lines {
	struct line *items;
	size_t n, cap;
	int selected, selected_end; /* first and last line of what's selected; -1: none */
};

void lines_add(struct lines *l, enum line_kind kind, int part, struct card_row at);
void lines_done(struct lines *l);
/* The first line to show of `room`: all of what's selected if it fits, else its beginning. */
int lines_window(const struct lines *l, int first, int room);
