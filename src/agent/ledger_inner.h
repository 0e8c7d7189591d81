/* What ledger.c and ledger_told.c share (ledger.h). */
#pragma once

#include "agent/ledger.h"

/*
 * What was seen of a card's XIDs. The sampler counts from its own start, and it's started anew when the driver hangs,
 * which is when XIDs come: what an earlier one had seen is added.
 */
struct xids {
	char uuid[GPU_UUID_LEN];
	struct gpu_xid last; /* as the sampler told it last */
	struct gpu_xid before; /* of the samplers before */
};

struct stamp {
	char uuid[GPU_UUID_LEN];
	uint64_t asked;
};

struct ledger {
	struct gpu_snapshot snap;
	uint64_t number;
	uint64_t fresh_number; /* of the last snapshot that had process lists of its own */
	struct attempt_name *proc_owner; /* parallel to snap.procs; job 0: nobody of ours */
	struct track *track;
	struct promise_other *others;
	size_t n_others;
	struct ledger_hold *holds;
	size_t n_holds;
	struct stamp *stamps;
	size_t n_stamps, cap_stamps;
	struct xids *xids;
	size_t n_xids, cap_xids;
	uint64_t n_changes;
};

static inline bool is_owned(const struct ledger *l, uint32_t proc)
{
	return l->proc_owner[proc].job != 0;
}

static inline int64_t at_most(int64_t mib, int64_t limit)
{
	return limit <= 0 ? 0 : mib < limit ? mib : limit;
}

static inline bool is_charged(const struct attempt *a, uint32_t k)
{
	return a->rec.state != ATTEMPT_ENDED || a->cards[k].held_mib > 0;
}

/* PROMISE_ALL_MIB for a card whose memory isn't known. */
int64_t ledger_card_total(const struct ledger *l, const char *uuid);
/* What a lane keeps there beyond what its running ones are charged; and all of them together. */
int64_t ledger_hold_mib(const struct ledger *l, const struct ledger_hold *h);
int64_t ledger_held_by_lanes(const struct ledger *l, const char *uuid, bool only_told);
