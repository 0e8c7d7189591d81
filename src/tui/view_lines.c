/* The window over lines (view_lines.h). */
#include "tui/view_lines.h"

#include "base/alloc.h"

#include <stdlib.h>

void lines_add(struct lines *l, enum line_kind kind, int part, struct card_row at)
{
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct line){(uint8_t)kind, (uint8_t)part, at};
}

void lines_done(struct lines *l)
{
	free(l->items);
	*l = (struct lines){0};
}

int lines_window(const struct lines *l, int first, int room)
{
	first = list_window(first, l->selected_end < 0 ? 0 : l->selected_end, (int)l->n, room);
	return list_window(first, l->selected < 0 ? 0 : l->selected, (int)l->n, room);
}
