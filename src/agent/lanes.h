/*
 * The lanes of this root at work. While fewer of a lane's entries run than it may, and it isn't paused, the first one that
 * waits goes into the line of those who want to start (launch.h), by the same admission as every launch. Strictly in order:
 * whoever can't start yet holds up those behind him.
 *
 *   waiting --> made ready (directory, run.sh, claim staged, while another runs) --> in the line --> claimed --> over
 *                      ^                                                               |
 *                      `---- refused: its reason is kept; tried again every 2 s, and when something ends on its cards
 *
 * What runs counts by its claim, whether or not the lane still lists it. A lane keeps room on its cards for its next one:
 * max(running, next), told to the ledger as a hold (ledger.h). Holds have an order, by when the lane's next became the
 * next: who stands in line respects the earlier ones only, so two lanes on one card can't wait for each other.
 */
#pragma once

#include "agent/admit.h"
#include "agent/claim.h"
#include "agent/lane.h"
#include "agent/shim.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct agent;
struct client;
struct lanes;

struct lanes *lanes_new(void);
void lanes_free(struct lanes *x);
/* Takes in all of the root, after the attempts were loaded. One that can't be read is named in the log and left alone. */
void lanes_load(struct agent *a);

/* Makes the next ones ready and puts into line who may start. Call before launch_turn, each turn. */
void lanes_turn(struct agent *a);
/* ms until it must be called again; -1: only when something happens. */
int64_t lanes_wait_ms(const struct agent *a);
/* Some entry will start without anybody's doing: the agent must stay. */
bool lanes_are_due(const struct agent *a);
/* An attempt changed: places may be free, and room on its cards. */
void lanes_attempt_changed(struct agent *a, const struct attempt *at);
/*
 * Its processes have ended, and its end is being written (SHIM_RING_ENDING). If that makes room for a lane's next one, the
 * sample that one needs is asked for now: it's begun after the end, and is there by the time the end is durable.
 */
void lanes_attempt_ends(struct agent *a, struct attempt *at);
/* The holds as of now, into the ledger. */
void lanes_hold(struct agent *a);
/* Who asks: holds of a lower order count against him. An attempt of no lane: all count. */
uint64_t lanes_order(const struct agent *a, const struct attempt_name *n);
/* The lane that has it in waiting, or NULL: it has no claim, and it could start any moment. */
const struct lane *lanes_waiting(const struct agent *a, const struct attempt_name *n);

/* ---- the line (launch.c) ---- */

/* Is it still its lane's turn, and this entry's, as it was when it got its number? */
bool lanes_may_start(struct agent *a, uint64_t number, const struct claim_spec *s);
/* Makes its claim, of what was made ready if it was. As claim_make. *ret_shim: the shim that waits for it, if any; the caller's. */
int lanes_claim(struct agent *a, struct claim_spec *s, enum claim_made *ret_made,
	struct shim_ready *ret_shim, struct err *e);
/* It has its claim: made just now, or found (then the state is looked up). */
void lanes_claimed(struct agent *a, const struct attempt_name *n);
/* It doesn't start now; r NULL: it isn't its turn any more. Takes *s back. */
void lanes_refused(struct agent *a, uint64_t number, struct claim_spec *s, const struct refusal *r);

/* ---- what controllers want (lane_command.c) ---- */

const struct lane *lanes_find(const struct agent *a, const char *queue, const char *name);
/* Whole documents of this queue; *n is their number. Borrowed. */
size_t lanes_count(const struct agent *a);
const struct lane *lanes_at(const struct agent *a, size_t i);
/* -1, 0, 1: is this word on the lane older, the same, newer than what is stored? */
int lane_compare_word(const struct lane *stored, const struct fence *f, uint64_t generation);
/*
 * Stores it durably and goes by it. *l is taken. What isn't listed any more and has no claim is made never to start before
 * this returns. A failure leaves the lane as it was or as it was to be: lanes_find tells.
 */
int lanes_put(struct agent *a, struct lane *l, struct err *e);
/* Takes one entry out, durably; -ENOENT: none waits by that name. */
int lanes_take_out(struct agent *a, const struct attempt_name *n, struct err *e);
/*
 * What has ended goes out of the lanes' files. Its claim or its retired line keeps such an entry from starting again, so it's
 * for tidiness: done before old retired lines are shortened (retired_compact). A failure: then they wait, too.
 */
int lanes_leave_out_over(struct agent *a, struct err *e);

/* "queued", "claimed", "started", "ended" or "conflict": an entry as of now. */
const char *lanes_entry_state(const struct agent *a, const struct lane_entry *x);
/* {"job", "attempt", "reason", "text", figures}: why the next one doesn't start; NULL when nothing holds it up. */
json_t *lanes_waits(struct agent *a, const struct lane *l);
