/* The colours (theme.h). muted's are Okabe and Ito's sky blue, bluish green, orange and vermilion, near enough in 256. */
#include "tui/theme.h"

#include <stdlib.h>
#include <string.h>

#define ATTRS \
	{ \
		[INK_GOOD] = 0, [INK_WARN] = STYLE_BOLD, [INK_BAD] = STYLE_BOLD | STYLE_REVERSE, \
		[INK_FOCUS] = STYLE_BOLD \
	}

const struct theme themes[] = {
	{
		.name = "muted",
		.ink = {-1, 245, 74, 36, 214, 203, 37, 172},
		.paper = {-1, 238, 23, 94, 88, 236},
		.on = {0, 255, 255, 255, 255, 0},
		.ink8 = {-1, -1, 6, 2, 3, 1, 6, 3},
		.paper8 = {-1, 4, 2, 3, 1, -1},
		.attr = ATTRS,
	},
	{
		.name = "classic",
		.ink = {-1, 244, 44, 40, 220, 196, 37, 178},
		.paper = {-1, 237, 22, 58, 52, 235},
		.on = {0, 255, 255, 255, 255, 0},
		.ink8 = {-1, -1, 6, 2, 3, 1, 6, 3},
		.paper8 = {-1, 4, 2, 3, 1, -1},
		.attr = ATTRS,
	},
	{
		.name = "mono",
		.ink = {-1, -1, -1, -1, -1, -1, -1, -1},
		.paper = {-1, -1, -1, -1, -1, -1},
		.ink8 = {-1, -1, -1, -1, -1, -1, -1, -1},
		.paper8 = {-1, -1, -1, -1, -1, -1},
		.attr = ATTRS,
	},
	{
		.name = "light",
		.ink = {-1, 242, 25, 29, 130, 160, 30, 130},
		.paper = {-1, 253, 152, 222, 217, 254},
		.on = {0, 232, 232, 232, 232, 0},
		.ink8 = {-1, -1, 4, 2, 3, 1, 6, 3},
		.paper8 = {-1, 4, 2, 3, 1, -1},
		.attr = ATTRS,
	},
};
const size_t themes_n = sizeof(themes) / sizeof(themes[0]);

const struct theme *theme_find(const char *name)
{
	for (size_t i = 0; i < themes_n; i++)
		if (!strcmp(themes[i].name, name))
			return &themes[i];
	return NULL;
}

const struct theme *theme_default(const char *no_color, const char *colorfgbg)
{
	const char *paper = colorfgbg ? strrchr(colorfgbg, ';') : NULL;

	if (no_color && *no_color)
		return theme_find("mono");
	/* Of the terminal's 16 colours the background is white, or light grey. */
	if (paper && (!strcmp(paper, ";15") || !strcmp(paper, ";7")))
		return theme_find("light");
	return &themes[0];
}

/* Of 8 colours: dark on yellow, white on the others. */
static int ink_of_8(const struct theme *t, enum ink ink, enum paper paper)
{
	if (paper == PAPER_NONE || t->paper8[paper] < 0)
		return t->ink8[ink];
	/* The selected line keeps what warns. */
	if (paper == PAPER_SELECTED && ink == INK_WARN)
		return t->ink8[ink];
	return t->paper8[paper] == 3 ? 0 : 7;
}

int theme_ink(const struct theme *t, enum ink ink, enum paper paper, bool has_256)
{
	if (!has_256)
		return ink_of_8(t, ink, paper);
	if (!t->on[paper])
		return t->ink[ink];
	/* The selected line keeps its colours; only what is the terminal's own, or faint, would be lost on it. */
	if (paper == PAPER_SELECTED && ink != INK_PLAIN && ink != INK_DIM)
		return t->ink[ink];
	return t->on[paper];
}

int theme_paper(const struct theme *t, enum paper paper, bool has_256)
{
	return has_256 ? t->paper[paper] : t->paper8[paper];
}
