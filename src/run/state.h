/*
 * The state of one `gpustow run`, shared by the files of this room (run_*.c). One struct hangs over the loop; every
 * function gets it first.
 *
 * A job's way (phase), beside what the journal says of its key (rec->status):
 *
 *   IDLE --bind, commit, launch--> SENT --claimed--> CLAIMED --started--> STARTED --ended--> IDLE (terminal or pending)
 *     ^                              |                  `------------------------ended-------^
 *     `-------refused, none----------'
 *   A scheduler that starts finds binds of a dead one: UNKNOWN, until the node has answered `observe`.
 *   ORPHAN: a "started" of gpusched's own, of which only a process group is known.
 *
 * Invariants
 * 1. Nothing is sent to be launched before its bind is committed (run_place.c).
 * 2. Nothing is acked before its end is committed (run_turn in run.c).
 * 3. A job in any phase but IDLE counts against the cards of its bind.
 */
#pragma once

#include "base/buf.h"
#include "core/sample.h"
#include "fleet/link.h"
#include "run/journal.h"
#include "run/run.h"
#include "run/watchfile.h"
#include "sched/plan.h"
#include "sched/track.h"

#include <event2/event.h>

#define RUN_TEXTS 8

enum run_phase {
	PHASE_IDLE,
	PHASE_SENT,
	PHASE_CLAIMED,
	PHASE_STARTED,
	PHASE_UNKNOWN,
	PHASE_ORPHAN
};

struct run_use {
	int32_t gpu;
	int64_t now_mib, peak_mib;
};

/* What is known of the attempt in flight; made at the bind, gone when its end was settled. */
struct run_attempt {
	int64_t declared_mib; /* UNDECLARED: whole cards */
	int64_t timeout_ms;
	struct run_use use[GPU_MAX];
	uint32_t n_use;
	bool is_sampled, was_taken_over;
	uint32_t n_looks; /* samples taken in while it ran, whether they showed it or not */
	int64_t seen_boot_ms; /* the last sample that tells what it has held up to then; 0: none */
	bool said_start, said_exceeds, said_timeout, said_cancel;
	int64_t said_peak_mib; /* --verbose */
	double util_sum;
	uint32_t util_n;
	int64_t pid;
	uint64_t start_ticks;
	int64_t started_wall_ms, started_boot_ms; /* 0: not yet */
	bool want_stop;
	enum stop_reason why_stop;
	json_t *launch; /* what is to be sent once the bind is committed; NULL after */
};

/* How a job of this run ended, for the board and the summary. */
struct run_result {
	const char *verdict; /* a constant */
	double seconds;
	int64_t peak_mib;
	uint64_t order; /* in order of finishing, from 1 */
	int32_t gpus[GPU_MAX];
	uint32_t n_gpus;
};

/* Kept small and without holes: there's one for each line. */
struct run_job {
	struct job_record *rec;
	enum run_phase phase;
	/* Its line; lineno 0: not in the file (any more). */
	uint32_t lineno;
	uint32_t order; /* position in the file's list */
	uint32_t gpus;
	int64_t vram_mib;
	int64_t timeout_ms, retries;
	char *name, *after, *gpu;
	bool cancel; /* on its line, or asked for by `run cancel` */
	bool line_cancel; /* on its line, as the file is now */
	bool said_wait, is_stuck; /* stuck: can't go on by itself (a dependency ended badly) */
	bool said_orphan;
	bool was_ok; /* before this run had it, by the journal; said once */
	uint32_t never_n;
	/* While it waits. */
	int64_t waiting_since_ms;
	const struct plan_decision
		*why; /* into run.decisions; NULL: nothing was decided since it waits */
	char *why_text; /* what else keeps it: a dependency, a refusal; NULL */
	uint64_t refused_seq; /* not sent again before a sample newer than this */
	uint64_t never_seq;
	/* An orphan of gpusched's. */
	int64_t orphan_kill_ms; /* it got SIGTERM; SIGKILL from then on. 0: neither */
	struct run_attempt *attempt; /* NULL while IDLE */
	struct run_result *result; /* NULL: none in this run */
};

struct run_ack {
	uint64_t job;
	uint32_t attempt;
};

struct run {
	const struct run_config *config;
	struct event_base *base;
	int dirfd, lock_fd; /* the log directory, and its lock */
	char *log_dir; /* absolute */
	char *cwd;
	struct journal *journal;
	int64_t journal_wall_ms; /* when a scheduler before us wrote it last */
	struct watchfile file;
	bool has_file_error; /* it could not be read at the last look */
	char *file_error; /* the last one said; NULL after a good read */
	struct link *link;
	struct link_hello hello;
	bool was_up; /* ever */
	unsigned n_down; /* how often it went down or didn't come up */
	char *down_why; /* the last reason that was said; NULL while it's up */
	bool is_observed; /* what was in flight has been asked about since the link came up */
	json_t *observing; /* claims of an `observed` that comes in several messages */
	json_t *env; /* the environment every job gets */

	struct run_job **jobs; /* all that matter, owned */
	size_t n_jobs, cap_jobs;
	struct run_job **lines; /* those in the file, in its order */
	size_t n_lines;
	struct plan_decision *decisions; /* of the last plan */
	uint64_t finished; /* results so far */

	struct sample sample;
	bool has_sample;
	struct track *track;
	uint64_t samples; /* good ones taken in */
	int64_t sample_boot_ms;
	uint32_t query_failures;
	bool said_gpus, has_seen_gpus, said_left_out;
	bool is_introduced; /* what comes behind the cards has been said: lines done before; and cancels may be */
	int64_t begun_ms; /* BOOTTIME */
	struct {
		char uuid[GPU_UUID_LEN];
		int32_t index, gi, ci;
		bool is_instance, is_mig_parent;
		bool is_away; /* it doesn't answer, which was said */
		int64_t total_mib;
	} known[GPU_MAX]; /* every card and MIG instance that ever answered */
	uint32_t n_known;

	struct run_ack *acks; /* sent once the journal holds the ends */
	size_t n_acks, cap_acks;
	bool has_launches; /* some attempt->launch waits for the commit */
	bool said_journal; /* that the journal can't be written */
	bool said_log; /* that a job's log can't; until one can */

	struct event *turn_event, *poll_event, *soon_event, *file_event, *panel_event;
	struct event *signals[3];
	bool is_turning;
	bool plan_is_due; /* at the turn that was asked for */
	int64_t board_ms; /* when the board was last written */
	bool board_is_old;
	bool is_draining, is_stopping, said_drained, stdout_is_gone;
	int signal; /* that stops us */
	int64_t stop_ms; /* when it came */
	int64_t retry_ms; /* how long after a refusal the cards are looked at anew */
	int64_t look_at_ms; /* when that is; 0: nobody was refused */
	bool is_over;
	int exit_code;
	struct err failure; /* when exit_code is negative */
	struct buf out; /* lines not written yet */
	struct buf texts[RUN_TEXTS];
	unsigned next_text;
	size_t panel_rows;
	struct control *control;
};

/* run.c */
void run_wake(struct run *r); /* a turn soon, once however often it's called */
void run_wake_in(struct run *r, int64_t ms);
void run_wake_to_tell(struct run *r); /* the same for what makes no room: nothing is planned */
void run_end(struct run *r, int code);
/* The journal as it lies in the configured log directory, for looking only; no directory is an empty journal. */
int run_load_journal(struct run *r, struct err *e);

/* run_say.c: lines of the terminal or the pipe */
void run_say(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void run_warn(struct run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void run_flush(struct run *r);
const char *run_text(struct run *r,
	const char *s); /* cleaned for a terminal; valid for the next RUN_TEXTS - 1 calls */
const char *run_gpus_text(
	struct run *r, const int32_t *gpus, uint32_t n, const char *sep); /* "0,1"; likewise */

/* The same of a job's cards: MIG instances, known by their UUIDs, as "0:1". uuids: NULL or "" where none is known. */
const char *run_cards_text(
	struct run *r, const int32_t *gpus, const char *const *uuids, uint32_t n, const char *sep);

/* run_jobs.c: the file's lines and the journal's keys become run_jobs */
int run_jobs_read_first(
	struct run *r, struct err *e); /* -EINVAL: errors in the file, all of them in *e */
void run_jobs_reread(struct run *r);
/* What a long list took to be read goes back to the system, so that it isn't held for as long as the run lasts. */
void run_jobs_give_back(void);
void run_jobs_say_skipped(struct run *r, const struct run_job *j);
struct run_job *run_job_of(struct run *r, struct job_record *rec);
struct run_job *run_job_find(struct run *r, const char *word); /* number or name */
struct run_job *run_job_attempt(
	struct run *r, uint64_t job, uint32_t attempt); /* in flight with that attempt, else NULL */
bool run_job_is_pending(const struct run_job *j);
int64_t run_job_declared(const struct run_job *j); /* of the next attempt, a bump counted */
void run_jobs_free(struct run *r);
struct run_attempt *run_attempt_new(struct run_job *j);
void run_attempt_free(struct run_job *j);

/* run_sample.c */
void run_take_sample(struct run *r, const json_t *msg);

/* run_node.c: what the agent says of launches, and what is asked of it */
extern const struct link_owner run_link_owner_template;
void run_node_stop(struct run *r, struct run_job *j, enum stop_reason why, int64_t grace_ms);
void run_node_send_stop(struct run *r, const struct run_job *j, int64_t grace_ms);
void run_node_send_acks(struct run *r);
void run_node_look(struct run *r); /* asks for the fresh sample that refused ones wait for */
void run_node_add_ack(struct run *r, uint64_t job, uint32_t attempt);
void run_node_cancels(struct run *r);
void run_node_ended(struct run *r, const json_t *msg); /* has job, attempt, end */
void run_node_undo_bind(struct run *r, struct run_job *j, const char *why);
void run_node_mark_started(
	struct run *r, struct run_job *j, int64_t pid, int64_t ticks, int64_t wall_ms);
void run_node_say_start(struct run *r, struct run_job *j);
const char *run_text_in(const json_t *msg, const char *key, const char *otherwise);

/* run_flight.c: what was in flight when a scheduler starts or the link comes back */
void run_flight_up(void *arg, const struct link_hello *hello);
void run_flight_down(void *arg, const char *why);
void run_flight_observed(struct run *r, const json_t *msg);
void run_flight_time(struct run *r); /* time-outs said, orphans looked at */
bool run_flight_lives(const struct run *r,
	const struct job_record *rec); /* the group of gpusched's "started" record */

/* run_settle.c: ends */
void run_settle(struct run *r, struct run_job *j, const struct attempt_end *end, size_t survivors);
void run_settle_infeasible(struct run *r, struct run_job *j, const char *why);
void run_settle_cancelled_before_start(struct run *r, struct run_job *j);
void run_summary(struct run *r);
int run_exit_code(const struct run *r);

/* run_place.c: the plan and the launches */
struct run_cluster { /* the plan's input, made from the sample and what is in flight */
	struct plan_card cards[GPU_MAX];
	struct plan_node node;
	int64_t now_ms; /* when it was made: one reading of the clock for thousands of jobs */
	char why_none[320];
};
void run_cluster_make(const struct run *r, struct run_cluster *ret);
struct plan_policy run_policy(const struct run *r);
void run_place(struct run *r);
void run_place_send(struct run *r); /* what was committed */
void run_place_unsend(struct run *r);

/* run_cards.c: which cards */
/* The cards that the job's gpu= names; on a machine with MIG instances, those that a job of several cards may have. 0: any. */
uint64_t run_only_cards(const struct run *r, const struct run_job *j);
/* Why the gpu= list names nothing that jobs are placed on; NULL when it does, or there's none. */
const char *run_why_no_card(const struct run *r, const struct run_job *j);
/* --gpus names it, or there's no --gpus. */
bool run_is_chosen(const struct run *r, int32_t index);
/* The most MiB that as many cards as the job wants have, each of them, of those it may have at all; 0: not known. */
int64_t run_largest_place(const struct run *r, const struct run_job *j);
/* The gpu= list names something of this sample, of whatever use. */
bool run_names_cards(const struct run *r, const struct run_job *j);
/* Every card and instance that ever answered does. */
bool run_has_all_cards(const struct run *r);
/* The cards' numbers are CUDA's numbers. */
bool run_numbers_hold(const struct run *r);

/* run_view.c */
struct run_view;
struct run_view_memory; /* owns what a view points to */
/* With the first max_pending waiting jobs; the counts are always of all. */
struct run_view_memory *run_view_make(struct run *r, size_t max_pending, struct run_view *ret);
void run_view_free(struct run_view_memory *m);
void run_board_write(struct run *r);

/* run_control.c: the second terminal */
int run_control_open(struct run *r, struct err *e);
void run_control_close(struct run *r);
