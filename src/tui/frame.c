/* The list of what may be clicked (frame.h). */
#include "tui/frame.h"

#include "base/alloc.h"

#include <stdlib.h>

void frame_init(struct frame *f)
{
	*f = (struct frame){.cursor_x = -1, .cursor_y = -1};
}

void frame_done(struct frame *f)
{
	grid_done(&f->grid);
	free(f->hits);
	*f = (struct frame){0};
}

void frame_begin(struct frame *f, int cols, int rows)
{
	grid_resize(&f->grid, cols, rows);
	f->n_hits = 0;
	f->cursor_x = f->cursor_y = -1;
}

void frame_hit(struct frame *f, struct rect at, int action, int64_t arg)
{
	if (!action || !at.w || !at.h)
		return;
	GROW(f->hits, f->n_hits, f->cap_hits);
	f->hits[f->n_hits++] = (struct hit){at, action, arg};
}

const struct hit *frame_find(const struct frame *f, int x, int y)
{
	for (size_t i = f->n_hits; i; i--)
		if (rect_has(f->hits[i - 1].at, x, y))
			return &f->hits[i - 1];
	return NULL;
}
