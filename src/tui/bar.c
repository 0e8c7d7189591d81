/* Bars and graphs (bar.h). */
#include "tui/bar.h"

static const char *const eighths[] = {"", "\xe2\x96\x8f", "\xe2\x96\x8e", "\xe2\x96\x8d",
	"\xe2\x96\x8c", "\xe2\x96\x8b", "\xe2\x96\x8a", "\xe2\x96\x89", "\xe2\x96\x88"};
static const char *const levels[] = {"\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84",
	"\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88"};
static const char *const ascii_levels[] = {"_", ",", "-", "=", "+", "*", "%", "#"};

static int64_t within(int64_t v, int64_t low, int64_t high)
{
	return v < low ? low : v > high ? high : v;
}

void bar_put(struct pen *p, int cells, int64_t permille, struct style s)
{
	int64_t n = within(permille, 0, 1000) * cells * 8 / 1000;
	int full = (int)(n / 8), rest = (int)(n % 8);
	struct style track = {.ink = s.ink, .paper = PAPER_TRACK};

	/* What's there is seen. */
	if (permille > 0 && !n)
		rest = 1;
	s.paper = PAPER_TRACK;
	pen_repeat(p, s, eighths[8], "#", full);
	if (rest && full < cells)
		pen_repeat(p, s, eighths[rest], rest > 4 ? "#" : ".", 1);
	pen_repeat(p, track, " ", ".", cells - full - (rest ? 1 : 0));
}

void bar_parts(struct pen *p, int cells, const struct bar_part *parts, size_t n, int64_t total)
{
	int64_t sum = 0;
	int used = 0;

	for (size_t i = 0; i < n && total > 0; i++) {
		int64_t amount = within(parts[i].amount, 0, total - sum);
		int upto, own;

		sum += amount;
		upto = (int)((__int128)sum * cells / total);
		own = upto - used;
		if (amount > 0 && own < 1)
			own = used < cells ? 1 : 0;
		pen_repeat(p, parts[i].style, eighths[8], i % 2 ? "=" : "#", own);
		used += own > 0 ? own : 0;
	}
	pen_repeat(p, (struct style){.ink = INK_DIM, .paper = PAPER_TRACK}, "\xc2\xb7", ".",
		cells - used);
}

static int level_of(int32_t v, int32_t low, int32_t high, int n)
{
	int64_t span = (int64_t)high - low;

	if (span <= 0)
		return 0;
	return (int)within(((int64_t)v - low) * n / span, 0, n - 1);
}

void graph_spark(struct pen *p, int cells, const int32_t *values, size_t n, int32_t low,
	int32_t high, struct style s)
{
	for (int i = 0; i < cells; i++) {
		int64_t at = (int64_t)n - cells + i;
		int level;

		if (at < 0 || values[at] == GRAPH_GAP) {
			pen_repeat(p, (struct style){.ink = INK_DIM}, ".", ".", 1);
			continue;
		}
		level = level_of(values[at], low, high, 8);
		pen_repeat(p, s, levels[level], ascii_levels[level], 1);
	}
}

/* Dots of a braille cell from the bottom up, left and right column. */
static const uint8_t dots[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}};

/* How many of the graph's dots (h * 4 of them) a value has, at least one when it's there; -1: a gap. */
static int height_of(const int32_t *values, size_t n, int64_t at, int32_t low, int32_t high, int h)
{
	if (at < 0 || at >= (int64_t)n || values[at] == GRAPH_GAP)
		return -1;
	return level_of(values[at], low, high, h * 4) + 1;
}

static void put_braille(struct grid *g, int x, int y, int row, const int height[2], struct style s)
{
	uint32_t bits = 0;
	char text[4];
	struct pen p = pen_at(g, x, y, 1);

	for (int side = 0; side < 2; side++)
		for (int d = 0; d < 4; d++)
			if (height[side] > row * 4 + d)
				bits |= dots[side][d];
	if (!bits) {
		/* The lowest line says where there's no value. */
		if (!row && height[0] < 0 && height[1] < 0)
			pen_put(&p, (struct style){.ink = INK_DIM}, ".");
		return;
	}
	text[0] = (char)0xE2;
	text[1] = (char)(0xA0 | (bits >> 6));
	text[2] = (char)(0x80 | (bits & 0x3F));
	text[3] = '\0';
	pen_put(&p, s, text);
}

void graph_put(struct grid *g, struct rect r, const int32_t *values, size_t n, int32_t low,
	int32_t high, struct style s)
{
	for (int i = 0; i < r.w; i++) {
		int64_t at = (int64_t)n - 2 * ((int64_t)r.w - i);
		int height[2] = {height_of(values, n, at, low, high, r.h),
			height_of(values, n, at + 1, low, high, r.h)};

		for (int row = 0; row < r.h; row++) {
			int y = r.y + r.h - 1 - row;
			struct pen p = pen_at(g, r.x + i, y, 1);

			if (!g->ascii)
				put_braille(g, r.x + i, y, row, height, s);
			else if (height[1] > row * 4 + 1 || height[0] > row * 4 + 1)
				pen_put(&p, s, "#");
			else if (!row && height[1] < 0 && height[0] < 0)
				pen_put(&p, (struct style){.ink = INK_DIM}, ".");
		}
	}
}
