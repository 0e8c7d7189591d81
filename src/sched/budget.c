/*
 * The arithmetic of memory on a card: charges, strangers, room (budget.h). The plan and the agent's admission both call
 * card_fits, so that a start the plan chose is refused on the node only when the figures have changed in between.
 * Pure and total: any 64-bit input gives an answer, sums stop at the ends of the range instead of wrapping round.
 */
#include "sched/budget.h"

#define MICRO 1000000

/* Far beyond any memory, and four of them still add up without passing INT64_MAX. */
#define MIB_CEILING (INT64_MAX / 4)

static int64_t add_clamped(int64_t a, int64_t b)
{
	int64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return b < 0 ? INT64_MIN : INT64_MAX;
	return sum;
}

static int64_t sub_clamped(int64_t a, int64_t b)
{
	int64_t diff;

	if (__builtin_sub_overflow(a, b, &diff))
		return b < 0 ? INT64_MAX : INT64_MIN;
	return diff;
}

static int64_t max_of(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Nearest integer, halves to even, of 0 <= x < 2^53. */
static int64_t round_half_even(double x)
{
	int64_t whole = (int64_t)x;
	double rest = x - (double)whole;

	if (rest > 0.5 || (rest == 0.5 && (whole & 1)))
		whole++;
	return whole;
}

int64_t budget_buffered(int64_t peak_mib, double buffer)
{
	/* A NaN buffer fails this test too. */
	if (peak_mib <= 0 || !(buffer > 0))
		return max_of(peak_mib, 0);
	double grown = (double)peak_mib * (1 + buffer);
	if (!(grown < (double)MIB_CEILING))
		return MIB_CEILING;
	/* Past this the sixth decimal is below a double's precision, and so is the error it hides. */
	if (grown >= 9e9)
		return (int64_t)grown + ((double)(int64_t)grown < grown);
	int64_t micro = round_half_even(grown * MICRO);
	return micro / MICRO + (micro % MICRO != 0);
}

int64_t budget_of(int64_t declared_mib, int64_t held_mib, int64_t peak_mib, double buffer)
{
	int64_t charge =
		peak_mib <= declared_mib ? declared_mib : budget_buffered(peak_mib, buffer);

	return max_of(charge, held_mib);
}

int64_t budget_foreign(int64_t used_mib, int64_t own_held_mib, int64_t foreign_peak_sum_mib,
	double buffer, bool high_water)
{
	int64_t now = max_of(sub_clamped(used_mib, own_held_mib), 0);

	return high_water ? max_of(now, budget_buffered(foreign_peak_sum_mib, buffer)) : now;
}

int64_t card_free(const struct card_room *c)
{
	/* Exact: a sum cut off at the end of the range could make room where there's none. */
	__int128 left = (__int128)c->total_mib - c->foreign_mib - c->budgets_mib - c->promised_mib -
			c->headroom_mib;

	return left > INT64_MAX ? INT64_MAX : left < INT64_MIN ? INT64_MIN : (int64_t)left;
}

/* The whole card: nobody of ours on it, and what strangers hold or were promised is below the threshold. */
static enum fit whole_card_fits(const struct card_room *c, const struct card_need *n)
{
	if (c->n_ours > 0 || c->has_whole)
		return c->has_whole ? FIT_WHOLE_TAKEN : FIT_NOT_IDLE;
	if (c->foreign_mib >= n->idle_threshold_mib)
		return FIT_NOT_IDLE;
	if (add_clamped(c->foreign_mib, c->promised_mib) >= n->idle_threshold_mib)
		return FIT_PROMISED;
	return FIT_YES;
}

enum fit card_fits(const struct card_room *c, const struct card_need *n)
{
	if (n->declared_mib < 0)
		return whole_card_fits(c, n);
	if (c->has_whole)
		return FIT_WHOLE_TAKEN;
	if (n->exclusive && c->n_ours > 0)
		return FIT_EXCLUSIVE;
	if (n->max_jobs_per_card > 0 && c->n_ours >= n->max_jobs_per_card)
		return FIT_JOBS_LIMIT;

	int64_t need = add_clamped(n->declared_mib, max_of(n->margin_mib, 0)), room = card_free(c);
	/* Who reserves nothing takes no room, be there some or less than none. */
	if (room >= need || need == 0)
		return FIT_YES;
	return add_clamped(room, c->promised_mib) >= need ? FIT_PROMISED : FIT_MEMORY;
}
