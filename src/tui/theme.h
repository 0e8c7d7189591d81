/*
 * Which colours the inks and papers have. `muted`, the default, tells states apart for colour-blind people too (blue,
 * orange and vermilion differ in brightness); `classic` is green, yellow, red. Neither carries a meaning alone:
 * every state has its word or mark. Pure.
 */
#pragma once

#include "tui/grid.h"

struct theme {
	const char *name;
	int16_t ink[INK_N], paper[PAPER_N]; /* of 256 colours; -1: the terminal's own */
	int16_t ink8[INK_N], paper8[PAPER_N]; /* of 8 */
	uint8_t attr[INK_N]; /* added where there are no colours at all, and with 8 */
};

extern const struct theme themes[];
extern const size_t themes_n;
/* NULL: there's none of that name. The first is the default. */
const struct theme *theme_find(const char *name);
