/* A card's memory as a bar: what our jobs hold, what they're promised beyond that, what others hold, and what is free. */
#include "run/view_bar.h"

enum segment { SEGMENT_OWN, SEGMENT_PROMISED, SEGMENT_FOREIGN, SEGMENT_FREE, SEGMENT_N };

static const struct {
	const char *utf8, *ascii;
	enum row_color color;
} look[SEGMENT_N] = {
	[SEGMENT_OWN] = {"█", "#", ROW_GREEN},
	[SEGMENT_PROMISED] = {"▒", "+", ROW_TEAL},
	[SEGMENT_FOREIGN] = {"▓", "%", ROW_AMBER},
	[SEGMENT_FREE] = {"·", ".", ROW_DIM},
};

static const char *const eighths[8] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* Where each segment ends, in eighths of a cell; ascending, the last at the bar's end. */
static void segment_ends(const struct view_card *c, int64_t cells, int64_t ends[SEGMENT_N])
{
	int64_t mib[SEGMENT_N] = {
		[SEGMENT_OWN] = clamp(c->own_mib, 0, c->total_mib),
		/* What others hold, and what they were promised. */
		[SEGMENT_FOREIGN] = clamp(c->foreign_mib + c->promised_mib, 0, 2 * c->total_mib),
	};
	int64_t sum = 0;

	/* What's held beyond the promise is no promise. */
	mib[SEGMENT_PROMISED] = clamp(c->budget_mib, 0, c->total_mib) - mib[SEGMENT_OWN];
	mib[SEGMENT_PROMISED] = clamp(mib[SEGMENT_PROMISED], 0, c->total_mib);
	mib[SEGMENT_FREE] = c->total_mib;
	for (int i = 0; i < SEGMENT_N; i++) {
		sum = clamp(sum + mib[i], 0, c->total_mib);
		ends[i] = (int64_t)((double)sum / (double)c->total_mib * (double)(cells * 8));
	}
	ends[SEGMENT_FREE] = cells * 8;
}

/* The segment that has most of the cell that starts at `from`; of two equal ones the earlier. */
static enum segment majority(const int64_t ends[SEGMENT_N], int64_t from)
{
	enum segment best = SEGMENT_FREE;
	int64_t most = 0, start = 0;

	for (int i = 0; i < SEGMENT_N; i++) {
		int64_t low = start > from ? start : from;
		int64_t high = ends[i] < from + 8 ? ends[i] : from + 8;

		if (high - low > most) {
			most = high - low;
			best = (enum segment)i;
		}
		start = ends[i];
	}
	return best;
}

void view_bar(struct row *r, const struct view_card *c, size_t cells)
{
	int64_t ends[SEGMENT_N];

	segment_ends(c, (int64_t)cells, ends);
	for (int64_t i = 0; i < (int64_t)cells; i++) {
		int64_t own = ends[SEGMENT_OWN] - i * 8;
		enum segment s = majority(ends, i * 8);

		/* The end of our own part is drawn to the eighth; the others have no such signs. */
		if (r->style->utf8 && own > 0 && own < 8)
			row_text(r, look[SEGMENT_OWN].color, eighths[own]);
		else
			row_either(r, look[s].color, look[s].utf8, look[s].ascii);
	}
}

void view_bar_progress(struct row *r, size_t done, size_t of, size_t cells)
{
	size_t filled = of ? (size_t)((double)done / (double)of * (double)(cells * 8)) : 0;

	for (size_t i = 0; i < cells; i++) {
		size_t here = filled > i * 8 ? filled - i * 8 : 0;

		if (here >= 8)
			row_either(r, ROW_GREEN, "█", "#");
		else if (here && r->style->utf8)
			row_text(r, ROW_GREEN, eighths[here]);
		else
			row_either(r, ROW_DIM, "·", ".");
	}
}

void view_bar_legend(struct row *r)
{
	static const char *const words[SEGMENT_N] = {
		"held by jobs", "promised to them", "others", "free"};

	for (int i = 0; i < SEGMENT_N; i++) {
		row_either(r, look[i].color, look[i].utf8, look[i].ascii);
		row_printf(r, ROW_DIM, " %s%s", words[i], i + 1 < SEGMENT_N ? "   " : "");
	}
}
