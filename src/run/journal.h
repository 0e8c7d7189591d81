/*
 * The journal of a log directory, <log_dir>/journal.jsonl: append-only JSON lines, read by folding (gpusched's section
 * 11, its records kept shape for shape, and ours beside them). It is the only state of a run; everything else on disk
 * can be lost. One process appends at a time: the holder of <log_dir>/lock.
 *
 * Our records (gpusched 0.4.0 skips lines without "key", and takes an unknown event as "seen nothing new"):
 *   {"event":"queue","version":1,"queue":ID,"incarnation":N,"time":T}       once, the first of ours; no "key"
 *   {"event":"epoch","epoch":N,"sim":CARDS,"sim_dir":DIR,"time":T}           each start of a scheduler; sim only on simulated cards
 *   {"key":K,"event":"bind","attempt":A,"token":ID,"root_id":ID,"machine_key":..,"boot_id":..,"gpus":[0],"uuids":[..],"vram":D|null,"log":PATH,"log_offset":N,"time":T}
 *   {"key":K,"event":"unbind","attempt":A,"why":TEXT}                        it never started; the number isn't used again
 *   "started" gains "attempt","pid","start_ticks","boot_id","time"; "done" and "oom" gain "attempt","seconds","time","how","log"; "done" "why" too, where it never started
 *   {"key":K,"event":"retry","time":T}                                       a person asked: pending again, attempts kept
 * Times are ISO 8601 with offset. Order of keys in gpusched's own records: as in the spec, ours behind.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "core/attempt.h"
#include "core/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_status {
	JOB_PENDING,
	JOB_RUNNING, /* not terminal; running: a "started" or a "bind" is its last word */
	JOB_OK,
	JOB_FAILED,
	JOB_TIMEOUT,
	JOB_INFEASIBLE,
	JOB_FAILED_OOM,
	JOB_CANCELLED,
};
const char *job_status_name(enum job_status s); /* the journal's words: "ok", "failed_oom", ... */
bool job_status_is_terminal(enum job_status s);

struct journal_peak {
	int32_t gpu;
	int64_t mib;
};

/*
 * What its attempts left: the one in flight, or the last. Most lines of a long list have had none, and these cost nothing
 * here. Strings are owned by the journal and never NULL where "" is unknown; in the `bound` of journal_bind NULL counts
 * as "".
 */
struct job_last {
	uint32_t attempt; /* the last number bound; 0: none of ours */
	uint32_t n_gpus, n_peaks;
	const char *root_id, *machine_key, *boot_id; /* "" unknown; the same text is held once */
	int32_t *gpus; /* n_gpus; job_last_set_gpus */
	const char **uuids; /* n_gpus; "" where gpusched's record has none */
	const char *token; /* of the last bind, "" none */
	int64_t bound_vram; /* -1: undeclared */
	char *log;
	int64_t log_offset;
	int64_t pgid; /* of a "started" record; 0: none */
	uint64_t start_ticks; /* 0: gpusched's record, which has none */
	int64_t attempts; /* completed ones, as gpusched counts */
	int64_t returncode;
	double avg_util;
	struct journal_peak *peaks; /* n_peaks */
	double seconds; /* of the last done, < 0 unknown */
	char *why; /* of the last done, a sentence; NULL or "": none */
};

/* What is known of a key. Kept small: a run holds one for each line there ever was. */
struct job_record {
	char key[32];
	uint64_t no; /* 0: never seen */
	char *command;
	enum job_status status;
	bool has_returncode, has_util;
	bool is_bound; /* a bind without unbind, oom, done, interrupted */
	bool was_started; /* a "started" was read since the bind */
	int64_t next_vram; /* the bump of an OOM; -1: none */
	const char *time; /* of the last record with one, "" unknown */
	const struct job_last *last; /* never NULL: before the first attempt one that says so */
	/* Kept by the run while it's up; the journal doesn't touch it. */
	void *user;
};

/* Cards of a record that isn't the journal's, for journal_bind: copies n indices and UUIDs (uuids NULL: ""). */
void job_last_set_gpus(
	struct job_last *l, const int32_t *gpus, const char *const *uuids, uint32_t n);
void job_last_clear_gpus(
	struct job_last *l); /* what set_gpus made, never a record of the journal */

struct journal;

/* Reads <dirfd>/journal.jsonl (missing: empty), any size, torn or strange lines skipped and counted. Writes nothing. */
int journal_load(int dirfd, struct journal **ret, struct err *e);
/* The same from memory; such a journal can't be opened for appending. */
struct journal *journal_load_bytes(const char *bytes, size_t n);
void journal_free(struct journal *j);
size_t journal_skipped(const struct journal *j);

const char *journal_queue(const struct journal *j); /* "" before the first "queue" record */
uint64_t journal_epoch(const struct journal *j);
/*
 * The simulated cards of the last epoch and their directory: they are a machine of their own, and who comes later without
 * --sim has to find it. "" on real cards. Set before journal_open_append, which otherwise repeats what was there.
 */
const char *journal_sim(const struct journal *j);
const char *journal_sim_dir(const struct journal *j);
void journal_set_sim(struct journal *j, const char *cards, const char *dir);
uint64_t journal_incarnation(const struct journal *j);
uint64_t journal_highest_no(const struct journal *j);
size_t journal_count(const struct journal *j);
struct job_record *journal_at(const struct journal *j, size_t i); /* in order of first appearance */
struct job_record *journal_find(const struct journal *j, const char *key);
struct job_record *journal_find_no(const struct journal *j, uint64_t no);

/* Lock first, then load, then this: -EBUSY when the file grew since it was loaded. Opens for appending (0600); repairs a missing last newline; appends "queue" (new id) when there's none, and "epoch" + 1. */
int journal_open_append(struct journal *j, struct err *e);

/* Each puts a record into memory (folded at once) and into the pending batch; journal_commit writes the batch. */
struct job_record *journal_seen(
	struct journal *j, const char *key, const char *command); /* gives the number */
void journal_bind(struct journal *j, struct job_record *r,
	const struct job_last *
		bound); /* attempt, token, ids, gpus, uuids, n_gpus, bound_vram, log, log_offset are taken from it */
void journal_unbind(struct journal *j, struct job_record *r, const char *why);
void journal_started(struct journal *j, struct job_record *r, int64_t pgid, uint64_t start_ticks);
void journal_interrupted(struct journal *j, struct job_record *r);
void journal_oom(struct journal *j, struct job_record *r, int64_t next_vram, double seconds);
struct journal_done {
	enum job_status status;
	int64_t returncode;
	const struct journal_peak *peaks; /* only > 0 */
	size_t n_peaks;
	bool has_util;
	double avg_util;
	double seconds; /* < 0: none */
	const char *how; /* end_how_name or NULL */
	const char *why; /* it could never start, or wasn't started: the reason, a sentence; NULL */
};
void journal_done_record(struct journal *j, struct job_record *r, const struct journal_done *d);
void journal_retry(struct journal *j, struct job_record *r);
bool journal_has_batch(const struct journal *j);
/* It holds something that has to be durable. Starts needn't be: the node has them, and a reboot ends their processes anyway. */
bool journal_must_last(const struct journal *j);
/*
 * Writes the batch with one write and, if durable, one fdatasync. On failure (a full disk) nothing is lost: the batch stays
 * in memory, a partly written line is cut off, and the next commit tries all of it again. -ENOSPC etc. with a sentence.
 */
int journal_commit(struct journal *j, bool durable, struct err *e);
