/*
 * One picture and what may be clicked in it. A view fills a frame from a model; the loop keeps the last one, so that a click
 * finds what was under it when it was drawn. Actions are the numbers of whoever draws.
 */
#pragma once

#include "tui/grid.h"

struct hit {
	struct rect at;
	int action;
	int64_t arg;
};

struct frame {
	struct grid grid;
	struct hit *hits;
	size_t n_hits, cap_hits;
	int cursor_x, cursor_y; /* where a person types; -1: hidden */
};

void frame_init(struct frame *f);
void frame_done(struct frame *f);
/* An empty picture of that size without hits. */
void frame_begin(struct frame *f, int cols, int rows);
void frame_hit(struct frame *f, struct rect at, int action, int64_t arg);
/* The one drawn last at that cell; NULL: nothing there. */
const struct hit *frame_find(const struct frame *f, int x, int y);
