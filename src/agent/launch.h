/*
 * The line of those who want to start (protocol.md 4 and 9): launches of controllers, the next ones of lanes, and claims of
 * an earlier agent that nobody started. They're admitted in batches, in order: publish tentative, read the others, sample
 * if the last one won't do, check; then claim for many at once, answer, fork.
 *
 *   hall (a job of the queue, until its directory is made) --> line
 *   line --> batch: published --> sampled --> decided one by one (a tie waits up to 2 s) --> published anew
 */
#pragma once

#include "agent/admit.h"
#include "agent/claim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent;

struct launch_job {
	uint64_t client; /* 0: a claim that's there already */
	uint64_t
		lanes; /* the number by which a lane knows its next one (lanes.h), client is 0; else 0 */
	struct claim_spec spec;
	bool is_decided;
	bool has_new_dir; /* its job directory was made for this launch */
};

/* Before it stands in line: a job of the queue whose directory is being made, by a process that may hang (chores.h). */
struct launch_guest {
	uint64_t client;
	uint64_t number; /* of the chore; 0: it waits for another one of its name */
	struct claim_spec spec;
};

struct launch {
	struct launch_job *line; /* owned */
	size_t n, cap;
	struct launch_guest *hall; /* owned, in the order in which they came */
	size_t n_hall, cap_hall;
	size_t n_batch; /* the first n_batch of the line are being decided; 0: none */
	size_t at; /* the first undecided one */
	/* Positions of those who were admitted and whose claims aren't made yet: in the table of attempts, and nowhere else. */
	size_t admitted[CLAIM_TOGETHER_MAX], n_admitted;
	uint64_t number; /* the sample that the batch waits for; 0: none */
	uint64_t early; /* asked for ahead of a lane's next one (lanes_attempt_ends); 0: none */
	struct refusal blocked; /* with a reason: why nobody of this batch gets a card */
	int64_t tie_until_ms, tie_again_ms; /* 0: no tie */
};

void launch_done(struct launch *l);
/* Puts one at the end of the line; takes *spec. */
void launch_add(struct agent *a, uint64_t client, struct claim_spec *spec);
/* The same for a lane's next one: nobody waits for the answer, the lane is told. */
void launch_add_lane(struct agent *a, uint64_t number, struct claim_spec *spec);
/* As claim_make, with what belongs to it. A job with a directory has it already. */
int launch_make_claim(
	struct agent *a, struct claim_spec *s, enum claim_made *ret_made, struct err *e);
/* launch_hall.c: puts one before the line; takes *spec. Those whose directory may be made now get it. */
void launch_hall_add(struct agent *a, uint64_t client, struct claim_spec *spec);
void launch_hall_turn(struct agent *a);
void launch_hall_done(struct launch *l);
/* No claim was made, and none will be for this launch. */
void launch_refuse(
	struct agent *a, uint64_t client, const struct claim_spec *s, const struct refusal *r);
/* Goes as far as it can. Call after anything changed: the line, the sample, the time. */
void launch_turn(struct agent *a);
/* ms until launch_turn must be called again; -1: only when something happens. */
int64_t launch_wait_ms(const struct agent *a);
/* Nobody waits for a decision, in the line or before it. */
bool launch_is_empty(const struct launch *l);
/* What we promise from now on; called whenever charges may have changed. */
void launch_publish(struct agent *a);
/* What the other users promise at this moment, for the samples that go out. */
void launch_read_others(struct agent *a);
