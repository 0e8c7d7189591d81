/*
 * How an attempt's end is judged: one cause out of the closed set (core/job.h), its own sentence, and whether another
 * attempt follows. Pure: what the node told, what was asked for, the settings -> what goes into the record.
 */
#pragma once

#include "config/queue.h"
#include "core/attempt.h"
#include "core/gpu.h"
#include "store/store.h"

#include <jansson.h>

struct end_xid {
	char uuid[GPU_UUID_LEN];
	int64_t xid;
};

/* What the node tells with an end ("facts" of docs/wire.md). Absent: NULL, -1, 0. */
struct end_facts {
	struct attempt_end end;
	bool says_cuda_oom, says_disk_full,
		says_gpu_fault; /* patterns in this attempt's own output */
	int64_t oom_kills; /* growth of the machine's oom_kill counter while it ran; -1 unknown */
	struct end_xid *xids; /* the last on each card that reported one while it ran */
	size_t n_xids;
	int64_t peak_mib; /* highest on one card; -1 */
	int64_t survivors;
	char *tail, *tail_of, *result, *progress;
	bool tail_is_cut, result_is_cut;
	int64_t clock_offset_ms; /* the node's wall clock less ours */
};
void end_facts_done(struct end_facts *f);
int end_facts_decode(const json_t *ended, struct end_facts *ret, struct err *e);

struct judgement {
	struct store_end end; /* texts point into the judgement */
	struct buf error, detail, result;
	bool is_card_fault; /* failed fast or with an XID: evidence against a card of its */
};
/* cap_mib: what the largest card it may use can hold, for the bump; -1 unknown. */
void judge(const struct job *j, const struct end_facts *f, const struct queue_settings *s,
	int64_t cap_mib, struct judgement *ret);
void judgement_done(struct judgement *j);
/*
 * Is it evidence against that card? What a card reported of itself is against that one alone; words of the job, and that it
 * failed fast, are against all it had. *ret_xid: what that card reported, 0 nothing.
 */
bool judge_is_against(
	const struct judgement *g, const struct end_facts *f, const char *uuid, int64_t *ret_xid);
/* An attempt whose node is lost (down too long, root gone): by evidence only (protocol.md 5). */
void judge_lost(const struct job *j, enum job_cause cause, const char *why,
	const struct queue_settings *s, struct judgement *ret);
