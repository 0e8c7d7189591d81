/* The colours (theme.h). muted's are Okabe and Ito's sky blue, bluish green, orange and vermilion, near enough in 256. */
#include "tui/theme.h"

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
		.ink8 = {-1, -1, 6, 2, 3, 1, 6, 3},
		.paper8 = {-1, 4, 2, 3, 1, -1},
		.attr = ATTRS,
	},
	{
		.name = "classic",
		.ink = {-1, 244, 44, 40, 220, 196, 37, 178},
		.paper = {-1, 237, 22, 58, 52, 235},
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
};
const size_t themes_n = sizeof(themes) / sizeof(themes[0]);

const struct theme *theme_find(const char *name)
{
	for (size_t i = 0; i < themes_n; i++)
		if (!strcmp(themes[i].name, name))
			return &themes[i];
	return NULL;
}
