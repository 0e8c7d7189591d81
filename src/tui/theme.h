/*
 * Which colours the inks and papers have. `muted`, the default, tells states apart for colour-blind people too (blue,
 * orange and vermilion differ in brightness); `classic` is green, yellow, red; `light` is muted for a light background.
 * None carries a meaning alone: every state has its word or mark. Pure.
 */
#pragma once

#include "tui/grid.h"

struct theme {
	const char *name;
	int16_t ink[INK_N], paper[PAPER_N]; /* of 256 colours; -1: the terminal's own */
	int16_t on[PAPER_N]; /* what's written on that paper; 0: each ink's own */
	int16_t ink8[INK_N], paper8[PAPER_N]; /* of 8 */
	uint8_t attr[INK_N]; /* added where there are no colours at all, and with 8 */
};

extern const struct theme themes[];
extern const size_t themes_n;
/* NULL: there's none of that name. The first is the default. */
const struct theme *theme_find(const char *name);
/*
 * The one for a terminal whose owner chose none: without colours where NO_COLOR says so (any value but ""), the light one where
 * COLORFGBG ("0;15") tells a light background. Both may be NULL.
 */
const struct theme *theme_default(const char *no_color, const char *colorfgbg);
/* The colour of what's written with that ink on that paper: readable on every one, whatever the terminal's own are. -1: its own. */
int theme_ink(const struct theme *t, enum ink ink, enum paper paper, bool has_256);
int theme_paper(const struct theme *t, enum paper paper, bool has_256);
