/*
 * The last check before a start (protocol.md 9): does this attempt fit on its cards, by the last sample, everything that
 * was promised, and the scheduler's own rule (card_fits)? Reads the ledger and answers; publishes and waits for nothing.
 */
#pragma once

#include "agent/attempts.h"
#include "agent/ledger.h"

#include <jansson.h>

enum admission {
	ADMIT_YES,
	ADMIT_NO,
	ADMIT_TIE, /* only tentative promises of agents that come after us are in the way: look again for a while */
};

/* Why not; what docs/wire.md says about "refused". */
struct refusal {
	const char *reason; /* "memory", "busy", "promise", "card", "driver", "disk" */
	char text[512];
	bool has_figures;
	char card[48];
	int64_t need_mib, free_mib, total_mib, foreign_mib, budget_mib, promised_mib;
};

/*
 * `order`: holds of a lower one count against it (ledger_room). `except`: the attempt itself when it's in the table already (a claim of an earlier agent), else NULL. A CPU job always
 * fits. *ret is filled unless the answer is ADMIT_YES.
 */
enum admission admit_check(const struct ledger *l, const struct attempts *t,
	const struct attempt *except, uint64_t order, uint32_t n_cards,
	const struct claim_card *cards, const struct claim_policy *policy, struct refusal *ret);

/* A new {"op": "refused", ...}. */
json_t *refusal_encode(const struct refusal *r, const struct attempt_name *n);
