/*
 * What a job is charged on one card, what strangers hold there, and whether one more fits. Pure arithmetic, used by the
 * plan and by the agent's last check before a start, so both mean the same. All MiB.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define UNDECLARED (-1)

/* ceil(round(peak * (1 + buffer), 6 decimals)): 1010 and 0.10 give 1111, not 1112. buffer 0 gives peak. */
int64_t budget_buffered(int64_t peak_mib, double buffer);

/*
 * A declared job's charge: `declared` while its peak is within it, else the buffered peak; never less than held.
 * declared must be >= 0 (an undeclared job is charged the whole card: the caller's business).
 */
int64_t budget_of(int64_t declared_mib, int64_t held_mib, int64_t peak_mib, double buffer);

/*
 * What processes that aren't ours hold: max(used - own, 0) now; with high_water at least the buffered sum of each
 * foreign process's own peak.
 */
int64_t budget_foreign(int64_t used_mib, int64_t own_held_mib, int64_t foreign_peak_sum_mib,
	double buffer, bool high_water);

/* One card as the check sees it. */
struct card_room {
	int64_t total_mib;
	int64_t foreign_mib; /* budget_foreign */
	int64_t budgets_mib; /* sum of our attempts' charges, whole cards at the card's total */
	int64_t promised_mib; /* other users' agents, beyond what their jobs hold */
	int64_t headroom_mib; /* always kept free */
	uint32_t n_ours; /* our attempts on it */
	bool has_whole; /* one of them is undeclared, or exclusive */
};

/* May be negative: growth and strangers may have taken more than there was. */
int64_t card_free(const struct card_room *c);

struct card_need {
	int64_t declared_mib; /* UNDECLARED: the whole card, idle; 0 without a margin: reserves nothing, fits a full card too */
	int64_t margin_mib; /* negative: 0 */
	int64_t idle_threshold_mib;
	bool exclusive; /* no other attempt of ours there */
	uint32_t max_jobs_per_card; /* 0: no limit */
};

enum fit {
	FIT_YES,
	FIT_WHOLE_TAKEN,
	FIT_NOT_IDLE,
	FIT_EXCLUSIVE,
	FIT_JOBS_LIMIT,
	FIT_MEMORY,
	FIT_PROMISED
};
/* FIT_PROMISED: only other users' promises are in the way. Exact fit fits. */
enum fit card_fits(const struct card_room *c, const struct card_need *n);
