/*
 * Who holds what on which card, and what it's charged: the last snapshot with its process rows attributed to attempts
 * (by session, descent, mark: DESIGN rule 3), the peaks, the foreign peaks, and other users' promises beside it. It
 * decides nothing: admission asks it for the room on a card, watchers get it as the sample.
 *
 * The mark in the environment charges memory; it's never a reason for a signal.
 */
#pragma once

#include "agent/attempts.h"
#include "agent/promise.h"
#include "core/sample.h"
#include "sched/budget.h"

#include <stdbool.h>
#include <stdint.h>

struct ledger; /* opaque */

struct ledger *ledger_new(void);
void ledger_free(struct ledger *l);

/* Takes in a snapshot, the answer to request `number`, and what's in it (moved out of *snap). Raises peaks in t. */
void ledger_take(struct ledger *l, struct attempts *t, struct gpu_snapshot *snap, uint64_t number);
/* The last snapshot; empty (seq 0, no cards) before the first. */
const struct gpu_snapshot *ledger_snapshot(const struct ledger *l);
uint64_t ledger_number(const struct ledger *l);

/* Something started or ended on a's cards when `asked` requests had been made: only answers to later ones count for them. */
void ledger_note(struct ledger *l, const struct attempt *a, uint64_t asked);
/* Requests made before the last of that on this card; 0: nothing happened there. */
uint64_t ledger_asked_before(const struct ledger *l, const char *uuid);
/* Grows whenever what was promised changes between two snapshots: a sample made before that is out of date. */
uint64_t ledger_changes(const struct ledger *l);
/*
 * The last snapshot whose process lists were read for it was begun after the last start or end on that card: figures of
 * now beside lists of two seconds ago would hide what somebody holds. A card that was let sleep tells nothing either.
 */
bool ledger_is_fresh(const struct ledger *l, const char *uuid);

/* Others' promises as read just now; takes the array. */
void ledger_set_promises(struct ledger *l, struct promise_other *rows, size_t n);
/* What they promise on a card of the snapshot beyond what that user's processes hold there, tentative rows left out or not. */
int64_t ledger_promised(const struct ledger *l, uint32_t card, bool with_tentative);
/* Of the tentative ones on that card: the uid to name and whether all of them come after us. False: there are none. */
bool ledger_tentative(
	const struct ledger *l, const char *uuid, uid_t *ret_uid, bool *ret_all_after_us);
/* The uid with the largest promise there; (uid_t)-1 without. */
uid_t ledger_promiser(const struct ledger *l, const char *uuid);

/* What a lane keeps of a card for its next one: max(running, next). */
struct ledger_hold {
	char uuid[GPU_UUID_LEN], queue[ID_LEN];
	uint64_t order;
	int64_t next_mib; /* -1: the whole card */
	int64_t running_mib; /* what the lane's running ones are charged there */
	bool is_place; /* none of them runs there: its next one takes a place among the card's jobs */
	bool is_told; /* other users' agents see it */
};
/* Takes the array. False when it says what the last one said. */
bool ledger_set_holds(struct ledger *l, struct ledger_hold *rows, size_t n);

/* A card as the check sees it, for a newcomer with this policy; `except` (may be NULL) isn't counted, nor are holds of
 * this order (UINT64_MAX: one of no lane) and above. card: position. */
void ledger_room(const struct ledger *l, const struct attempts *t, const struct attempt *except,
	uint64_t order, uint32_t card, const struct claim_policy *policy, struct card_room *ret);
/* What one attempt is charged on its k-th card. */
int64_t ledger_charge(const struct ledger *l, const struct attempt *a, uint32_t k);

/* The sample for the wire; everything in it is the caller's. */
void ledger_sample(
	const struct ledger *l, const struct attempts *t, int64_t wall_ms, struct sample *ret);
/* Our own promises, one firm row a card, with what lanes hold as far as nobody else was promised it. Returns how many, at most max. */
size_t ledger_promises(
	const struct ledger *l, const struct attempts *t, struct promise_row *ret, size_t max);
