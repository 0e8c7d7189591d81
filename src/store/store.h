/*
 * The queue's record: one SQLite file, the only place where jobs, events and alerts are kept. This room alone includes
 * sqlite3.h. It decides nothing about jobs (core/job.h has the table of what may happen) and never talks to a node.
 *
 * What always holds
 * 1. One writer at a time, whatever SQLite's version: each write transaction, and each checkpoint, happens under a
 *    flock on "<path>.lock". So SQLite's WAL-reset race can't occur, and nobody ever sees "database is locked".
 * 2. What store_commit said 0 to is on the disk (synchronous=FULL).
 * 3. Every change of a job, with its event and its alert, is one transaction, made by the one function that owns it.
 * 4. What only the controller may do needs a transaction begun with its lease, whose epoch is checked inside it.
 * 5. Opening writes nothing, unless the file is new or of an older version.
 * 6. A store is written on the machine that it belongs to, and nowhere else. On a network file system it keeps a TRUNCATE
 *    journal instead of a WAL.
 * 7. What another program made is never written to; a Python nvidb's database is named as such.
 *
 * Life cycle: store_open; reads at any time; store_begin, changes, store_commit (or store_abort); store_close. A change
 * that is refused (-EPERM, -ENOENT, -EINVAL, ...) has written nothing and the transaction goes on; after one that failed
 * on the disk the transaction can only be aborted, and store_commit does that and says so. A store belongs to the process
 * that opened it: a forked child opens its own. One store for each file in a process: closing a second one would drop the
 * locks that SQLite has for the first (POSIX).
 *
 * Errors besides those named below: -EBADMSG the file is damaged; -ENOSPC; -EIO (after which what was committed last is
 * unknown: look, or submit with the same key again); -EBUSY the lock wasn't to be had; -EROFS not ours to write.
 */
#pragma once

#include "base/buf.h"
#include "core/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_APPLICATION_ID 0x67707374 /* "gpst" */
#define STORE_VERSION 3
#define STORE_LEARNED_MAX 20000 /* shapes that are remembered; store_trim forgets the oldest */
#define STORE_LOCK_WAIT_MS 15000
#define STORE_JSON_MAX (4 * 1024 * 1024) /* env, tags, result, data */

struct store;

enum store_mode { STORE_READ, STORE_WRITE };
struct store_options {
	enum store_mode mode;
	int64_t lock_wait_ms; /* 0: STORE_LOCK_WAIT_MS */
	int64_t (*wall_ms)(void); /* NULL: clock_wall_ms */
	const char *machine_key; /* NULL: this machine's */
};

/*
 * STORE_WRITE makes the file (0600) and its directory when missing; STORE_READ says -ENOENT then. -EMEDIUMTYPE: a Python
 * nvidb's, or no queue of gpustow at all. -ENOTSUP: made by a newer gpustow.
 */
int store_open(const char *path, const struct store_options *o, struct store **ret, struct err *e);
void store_close(struct store *s);

const char *store_path(const struct store *s);
const char *store_queue(const struct store *s); /* the queue's uuid, 32 hex digits */
int store_incarnation(struct store *s, int64_t *ret, struct err *e);
bool store_is_elsewheres(const struct store *s); /* it belongs to another machine: reads only */
bool store_is_on_network(const struct store *s);
/* A number that is another one once another connection has written: cheap enough to be asked several times a second. */
int store_data_version(struct store *s, int64_t *ret, struct err *e);
/* SQLite's own check of the whole file: 0, or -EBADMSG with the first complaint. Slow. */
int store_check(struct store *s, struct err *e);

/*
 * A store that was copied or moved here becomes this machine's: incarnation + 1, job ids jump ahead, all nodes count as not
 * yet observed (store_node.observed_incarnation). Outside of a transaction.
 */
int store_adopt(struct store *s, struct err *e);

/*
 * A whole copy of the store as it is at one moment, into the empty file `to` that the caller made: the lease free,
 * last_backup_at = now_ms, one file without a log, checked by SQLite, durable. Outside of a transaction. Others write
 * meanwhile; on a network file system they may wait a moment. -ENOSPC and the like name `to`.
 */
#define STORE_LAST_BACKUP "last_backup_at" /* store_meta: wall clock, ms */
int store_copy(struct store *s, const char *to, int64_t now_ms, struct err *e);
/* Whose backup a file is: the queue's uuid. -EMEDIUMTYPE: no database of gpustow's. Makes nothing beside it. */
int store_file_queue(const char *path, char ret[ID_LEN], struct err *e);
/*
 * A copy of the backup `from` takes the place of the database at `path`, as this machine's, with a new incarnation (as in
 * store_adopt). What was there is kept beside it: its path to *ret_kept, to free; NULL: nothing was there. -EBUSY: a process
 * has the database open or holds its lease, or the lock. -EMEDIUMTYPE: either file is something else. -EBADMSG: `from` is damaged.
 */
int store_restore(const char *from, const char *path, const struct store_options *o,
	char **ret_kept, struct err *e);

/* The controller's right to decide. Times on BOOTTIME; a holder of this machine that is dead is replaced at once. */
struct store_lease {
	int64_t incarnation, epoch; /* the fence, with the link's number behind */
};
/*
 * Its own transaction. -EBUSY with the holder in *e (and in ret_holder, a text to free, if not NULL) when somebody else has
 * it. A store that went back in time (its lock file has seen a later epoch), or that is another file than the one whose lease
 * was taken last (a copy, or put back from one), gets a new incarnation here, as in store_adopt.
 */
int store_lease_take(struct store *s, const char *owner, int64_t ttl_ms, struct store_lease *ret,
	char **ret_holder, struct err *e);
/* -ESTALE: it was lost, decide nothing any more. */
int store_lease_renew(struct store *s, const struct store_lease *l, int64_t ttl_ms, struct err *e);
/*
 * A node has answered to a fence of this queue that this store never gave, under a lease that is still held: it went back
 * in time, or is one of two copies. It gets an incarnation above that fence's, and the lease is given back. -ESTALE: it
 * was lost, so that somebody else gave that fence.
 */
int store_lease_outrun(struct store *s, const struct store_lease *l, int64_t incarnation,
	int64_t epoch, struct err *e);
int store_lease_release(struct store *s, const struct store_lease *l, struct err *e);
struct store_lease_row {
	bool is_held;
	int64_t epoch, acquired_wall_ms, expires_in_ms;
	char *owner;
};
int store_lease_read(struct store *s, struct store_lease_row *ret, struct err *e); /* free(owner) */

/* l NULL: not the controller. -ESTALE: the lease was lost. -EINVAL: one is open already. */
int store_begin(struct store *s, const struct store_lease *l, struct err *e);
/* 0: durable. Else the transaction is gone, as after store_abort (but see -EIO above). */
int store_commit(struct store *s, struct err *e);
void store_abort(struct store *s);
/*
 * The writers' lock for longer than a transaction, for a loop that mustn't wait for it: what is begun while it's held doesn't.
 * 0: it's held, until store_unlock (as often as this); -EBUSY: somebody else has it, after wait_ms, and *e says who. Between
 * transactions only, and not for long: everybody else waits.
 */
int store_lock(struct store *s, int64_t wait_ms, struct err *e);
void store_unlock(struct store *s);

/*
 * Changes: inside a transaction. All may return -ENOENT (no such job), -EPERM (the table says no, with the reason).
 *
 * Submit one job; as many as you like in a transaction. Taken from j: everything "asked for", created_ms when not 0. A key
 * that is there already: 1, and *ret_id is that job. -EINVAL: no command, bad JSON, an unknown prerequisite.
 */
int store_submit(struct store *s, const struct job *j, int64_t *ret_id, struct err *e);
/* A job of another queue as it was, terminal or pending, never bound; its id is kept if it's free (-EEXIST). No event. */
int store_import_job(struct store *s, const struct job *j, struct err *e);

int store_bind(
	struct store *s, int64_t id, const struct job_bind *b, int64_t *ret_attempt, struct err *e);
/* The node said for certain that it never started; the attempt's number may be used again. 1: not bound so any more. */
int store_unbind(struct store *s, int64_t id, int64_t attempt, const char *why, struct err *e);
/* A launch that could not be made; event and alert only when `why` isn't what was said last (else 1). */
int store_refused(struct store *s, int64_t id, const char *node, const char *why, struct err *e);

struct store_started {
	int64_t pid, start_ticks, started_ms; /* 0: now */
	const char *run_dir;
};
/* 1: known already, or settled already. -ESTALE: the job has another attempt in flight. */
int store_started(struct store *s, int64_t id, int64_t attempt, const struct store_started *st,
	struct err *e);

/* How an attempt ended, judged by the queue. */
struct store_end {
	enum job_step step; /* COMPLETE, FAIL, TIMEOUT, STOP, LOSE or RETRY */
	enum job_cause cause;
	bool has_exit_code;
	int64_t exit_code;
	bool is_oom_retry; /* with RETRY: counts as one of oom_retries */
	int64_t vram_mib; /* with RETRY: the bumped reservation; -1: unchanged */
	int64_t started_ms, finished_ms, elapsed_ms; /* 0, 0, -1: unknown */
	int64_t peak_mib; /* -1 unknown */
	const char *error, *result, *detail; /* one line; JSON; the log's tail, for the alert */
};
/*
 * Keyed by (job, attempt): 0 settled now, 1 settled before and nothing changed, so `ack` may be sent either way. A RETRY of a
 * job whose cancel is wanted is -EPERM: settle with STOP.
 */
int store_settle(
	struct store *s, int64_t id, int64_t attempt, const struct store_end *end, struct err *e);

/*
 * Attempts that were given up while their node was away (cause node-lost): whatever of them still runs there has to be
 * stopped once the node answers. They outlive requeue and purge. store_reaped: the node has said that nothing is left of it.
 */
struct store_attempts;
int store_reaps(struct store *s, const char *node, struct store_attempts *ret,
	struct err *e); /* node NULL: all */
int store_reaped(struct store *s, int64_t id, int64_t attempt, const char *why,
	struct err *e); /* 1: known before */

/* Pending jobs that end without having run: JOB_STEP_UNSCHEDULABLE or JOB_STEP_DEPENDENCY. */
int store_fail(struct store *s, int64_t id, enum job_step step, const char *why, struct err *e);
/* 1: held for that reason already. */
int store_hold(struct store *s, int64_t id, const char *why, struct err *e);
int store_unhold(struct store *s, int64_t id, const char *why, struct err *e);
/* Drops the prerequisites that can't be met any more, of both kinds, and the hold. ret_dropped: to free; may be NULL. */
int store_release(struct store *s, int64_t id, int64_t **ret_dropped, size_t *ret_n, struct err *e);

enum store_cancelled { STORE_CANCELLED = 1, STORE_CANCEL_WANTED, STORE_CANCEL_LATE };
/* Never an error for a job that has ended: *ret is STORE_CANCEL_LATE. Asked again, the first reason stands. */
int store_cancel(
	struct store *s, int64_t id, const char *why, enum store_cancelled *ret, struct err *e);
/* A clean new attempt: result, end, hold, progress and count reset; name, notes, priority, prerequisites and history kept. */
int store_requeue(struct store *s, int64_t id, struct err *e);
/* The whole new lists. -EINVAL: unknown id, itself; -ELOOP: a cycle, named. Any change clears a hold. */
int store_set_needs(struct store *s, int64_t id, const int64_t *after, size_t n_after,
	const int64_t *after_any, size_t n_any, struct err *e);
int store_set_priority(struct store *s, int64_t id, int64_t priority, struct err *e);
int store_set_vram(struct store *s, int64_t id, int64_t mib, enum vram_source from, struct err *e);
int store_set_notes(struct store *s, int64_t id, const char *text, struct err *e); /* NULL: none */
int store_set_result(struct store *s, int64_t id, const char *json, struct err *e);
/* What is seen of an attempt in flight: -1 and NULL leave what is there. -ESTALE: not that attempt any more. */
struct store_seen {
	int64_t heartbeat_ms, gpu_mem_mib, peak_mib;
	const char *progress;
};
int store_seen(
	struct store *s, int64_t id, int64_t attempt, const struct store_seen *seen, struct err *e);
/* Removes ended jobs in one of `states` (bits) which no active job needs. Events and alerts stay. */
int store_purge(struct store *s, uint32_t states, int64_t *ret_removed, struct err *e);

/* What isn't about a job, or tells of one without changing it. data: JSON or NULL. */
int store_event_add(struct store *s, enum event_kind kind, int64_t job, const char *node,
	const char *message, const char *data, struct err *e);
int store_alert_add(struct store *s, enum alert_kind kind, int64_t job, const char *node,
	const char *title, const char *detail, struct err *e);
/* ids NULL: all that are open. Those acknowledged before don't count. */
int store_alert_ack(struct store *s, const int64_t *ids, size_t n, int64_t *ret_n, struct err *e);
int store_alert_notified(struct store *s, int64_t id, struct err *e);
/* Events and acknowledged alerts made before that moment, and learned figures beyond the newest STORE_LEARNED_MAX. The oldest go first, so a reader can tell (store_events). */
int store_trim(struct store *s, int64_t events_before_ms, int64_t alerts_before_ms,
	int64_t *ret_removed, struct err *e);
/* last_tick_at and the like; value NULL removes. Names of the store's own facts are refused. */
int store_meta_set(struct store *s, const char *key, const char *value, struct err *e);
/* -ENOENT without a sentence: not there. The text is the caller's. */
int store_meta_get(struct store *s, const char *key, char **ret, struct err *e);

/* A node as the queue remembers it; the inventory outlives its absence. Texts are owned and may be NULL. */
struct store_node {
	char *name, *hostname, *username, *state, *last_error;
	char *root_id, *machine_key, *boot_id; /* who answered last */
	char *inventory; /* JSON, the queue's own */
	int64_t port, last_seen_ms, probed_ms, sort_order;
	bool is_drained, is_ignored;
	int64_t observed_incarnation; /* below the store's: nothing old may start before it has been observed */
	/*
	 * Suspect, down and the back-off, for passes that each live in a process of their own: the first failure since it last
	 * answered, how many there were, and before when it isn't tried again. Wall clock ms; all 0 once it answers.
	 */
	int64_t failed_since_ms, n_failures, next_try_ms;
};
struct store_nodes {
	struct store_node *v;
	size_t n;
};
/* Inserts or replaces all but is_drained and is_ignored, which belong to people. */
int store_node_put(struct store *s, const struct store_node *n, struct err *e);
int store_node_drain(struct store *s, const char *name, bool on, struct err *e);
int store_node_ignore(struct store *s, const char *name, bool on, struct err *e);
int store_node_remove(struct store *s, const char *name, struct err *e);
int store_nodes(struct store *s, struct store_nodes *ret, struct err *e); /* by sort_order, name */
void store_nodes_done(struct store_nodes *l);

/*
 * Cards out of service, by node and UUID: a person said so, or faults did. `evidence`: JSON, what was seen. Anyone may.
 */
struct store_card {
	char *node, *uuid, *why, *by, *evidence; /* by: "person" or "faults" */
	int64_t since_ms;
};
struct store_cards {
	struct store_card *v;
	size_t n;
};
/* 1: it was out already, and the first reason stays. */
int store_card_out(struct store *s, const char *node, const char *uuid, const char *why,
	const char *by, const char *evidence, struct err *e);
/* Back in service; its faults so far don't count any more. 1: it wasn't out. */
int store_card_in(struct store *s, const char *node, const char *uuid, struct err *e);
int store_cards(struct store *s, struct store_cards *ret, struct err *e);
void store_cards_done(struct store_cards *l);
/*
 * One fault on a card (a command that failed fast, an XID). xid 0: none. *ret_n: different command shapes among the card's faults
 * of the last window_ms, this one included. Old ones are dropped.
 */
int store_card_fault(struct store *s, const char *node, const char *uuid, int64_t job,
	const char *shape, int64_t xid, const char *what, int64_t window_ms, int64_t *ret_n,
	struct err *e);
/* A job that ended well on a card: its faults don't count any more. */
int store_card_good(struct store *s, const char *node, const char *uuid, struct err *e);
/*
 * What stands against a card, oldest first: one for each command shape and XID, with the last job and moment. At most
 * STORE_FAULTS_MAX are kept of a card. The evidence for store_card_out.
 */
#define STORE_FAULTS_MAX 64
struct store_fault {
	int64_t job, xid, n, last_ms; /* 0: no job, no XID; n: how often */
	char *shape, *what;
};
struct store_faults {
	struct store_fault *v;
	size_t n;
};
int store_card_faults(struct store *s, const char *node, const char *uuid, struct store_faults *ret,
	struct err *e);
void store_card_faults_done(struct store_faults *l);

/*
 * What is known of a command's shape (core/shape.h): store_settle adds to it by itself from the attempt's peak (completed
 * ones, and CUDA OOMs as a lower bound).
 */
struct store_learned {
	char *shape;
	int64_t gpus, n, n_oom; /* runs that ended well, that ran out of memory */
	int64_t n_peaks; /* of the n, those whose peak was seen */
	int64_t peak_max_mib, peak_last_mib, oom_max_mib; /* per card; 0 none */
	int64_t run_mean_ms, run_max_ms; /* of those that ended well; 0 unknown */
	int64_t last_ms;
};
/* -ENOENT without a sentence: nothing is known. free(ret->shape). */
int store_learned(
	struct store *s, const char *shape, int64_t gpus, struct store_learned *ret, struct err *e);
/* All of it, newest first, up to limit (0: all). *ret: to free, with store_learned_done. */
int store_learned_all(
	struct store *s, size_t limit, struct store_learned **ret, size_t *ret_n, struct err *e);
void store_learned_done(struct store_learned *v, size_t n);

/*
 * Passes of the controller, so that many who want one need only one: numbers only grow. begun: when the last one began
 * (after its lease was taken), done: the last one that came to its end. In and out of transactions.
 */
int store_pass_begin(
	struct store *s, const struct store_lease *l, int64_t *ret_number, struct err *e);
int store_pass_done(struct store *s, const struct store_lease *l, int64_t number, struct err *e);
int store_passes(struct store *s, int64_t *ret_begun, int64_t *ret_done, struct err *e);

/*
 * Moves a pending job by `slots` (up positive) among those of the pool that wait (no lane, not bound; held ones count).
 * Priorities are only lowered, and only of those that would stand out of place. *ret: how far it came, with its sign; 0: it was
 * at the end already. -EPERM: it has a lane, is bound or doesn't wait.
 */
int store_move(struct store *s, int64_t id, int64_t slots, int64_t *ret_moved, struct err *e);

/*
 * Lanes: serial queues of cards, by name. A lane's jobs have their order by lane_seq, running ones stand before those that
 * wait, and priorities count for nothing. The order is the store's; the node that runs the lane has a copy of it, and goes by
 * the last that it acknowledged. So every change here is a request for as long as generation is above acked_generation.
 *
 * `generation` grows, in the same transaction, with every change of order, membership, pause, concurrency or runner, and of an
 * entry that is held, released, cancelled or edited. A retry and a requeue go to the end, or before the first of the lane that
 * needs them.
 */
#define STORE_LANE_NAME_MAX 255
#define STORE_LANE_CONCURRENCY_MAX 64
struct store_lane {
	char *name; /* "n1:0", "n1:0,1", of an instance "n1:0:1" */
	char *node, *cards; /* the two parts of the name */
	bool is_paused; /* by a person */
	bool has_runner; /* its node starts the entries by itself; false: passes do */
	bool is_stopped; /* `runner stop`: its node starts none until `runner restart` or `on` */
	int64_t concurrency;
	int64_t generation, acked_generation, acked_ms; /* 0: never */
	char acked_root[ID_LEN]; /* of the root that acknowledged it */
	char *runner_state; /* JSON: what the node said last; NULL: nothing yet */
	int64_t runner_seen_ms, created_ms, updated_ms;
};
struct store_lanes {
	struct store_lane *v;
	size_t n;
};
/* Where in a lane: among those that wait, counted from 1, clamped. A zeroed one is the end. */
enum store_place_how {
	STORE_PLACE_TAIL,
	STORE_PLACE_HEAD,
	STORE_PLACE_AT,
	STORE_PLACE_BEFORE,
	STORE_PLACE_AFTER
};
struct store_place {
	enum store_place_how how;
	int64_t n; /* AT: the place; BEFORE, AFTER: that job */
};
int store_lanes(struct store *s, struct store_lanes *ret, struct err *e); /* by node, name */
void store_lanes_done(struct store_lanes *l);
/* -ENOENT with a sentence. */
int store_lane(struct store *s, const char *name, struct store_lane *ret, struct err *e);
void store_lane_done(struct store_lane *l);

/* Changes, by anyone; name: one that is there, else -ENOENT. 1 where it says so: it was so already, nothing is written. */
int store_lane_make(struct store *s, const char *node, const char *cards, struct err *e); /* 1 */
int store_lane_pause(struct store *s, const char *name, bool on, struct err *e); /* 1 */
int store_lane_runner(
	struct store *s, const char *name, bool on, bool stopped, struct err *e); /* 1 */
int store_lane_concurrency(struct store *s, const char *name, int64_t n, struct err *e); /* 1 */
/*
 * Jobs that wait, handed to a node or not. -EPERM: it runs, or has ended; -EINVAL: it's another lane's, named (W-34).
 * *ret_position: its place afterwards.
 */
int store_lane_move(struct store *s, const char *name, int64_t id, const struct store_place *to,
	int64_t *ret_position, struct err *e);
int store_lane_swap(struct store *s, const char *name, int64_t a, int64_t b, struct err *e);
/* The first of those that wait goes to the end. *ret_id 0: fewer than two wait. */
int store_lane_skip(struct store *s, const char *name, int64_t *ret_id, struct err *e);
/*
 * Into a lane, from the pool or another one; name NULL: out of its lane, to the pool of that node. An entry that a node has goes
 * when that node has let go of it (lane_next), and not at all if it has started by then: *ret_is_request. previous: its
 * lane before, to free, or NULL. *ret_position: as in store_lane_move, of a request the place that it would have now; 0 in the pool.
 * n_cards: how many the lane has; -EINVAL: the job asks for more.
 */
struct store_assigned {
	char *previous;
	int64_t position;
	bool is_request;
};
int store_lane_assign(struct store *s, int64_t id, const char *name, size_t n_cards,
	const struct store_place *at, struct store_assigned *ret, struct err *e);

/* Changes by the controller. The node has stored this generation; state: JSON of what it said. */
int store_lane_acked(struct store *s, const char *name, const char *root_id, int64_t generation,
	const char *state, struct err *e);
/* It was seen alive with the lane. */
int store_lane_seen(struct store *s, const char *name, const char *state, struct err *e);
/* generation + 1, and at least `least`: the document differs from what was acknowledged. *ret: the number. */
int store_lane_bump(struct store *s, const char *name, int64_t least, int64_t *ret, struct err *e);
/* What an entry was handed out with: JSON, as on the wire. */
int store_lane_needs_put(
	struct store *s, int64_t id, int64_t attempt, const char *needs, struct err *e);
struct store_lane_needs {
	int64_t job, attempt;
	char *needs;
};
/* Of all attempts in flight that have some; by job. Free with store_lane_needs_done. */
int store_lane_needs(struct store *s, struct store_lane_needs **ret, size_t *ret_n, struct err *e);
void store_lane_needs_done(struct store_lane_needs *v, size_t n);

/*
 * Takes over a Python nvidb's database, which is only read (a log that was left beside it too): jobs with their ids, those
 * that ended as they are with where they ran, pending ones as pending, running ones as lost with a word where to look; notes,
 * results, events and alerts (counted as delivered); lanes as names; nodes that were drained or ignored. A pending job that
 * a lane's runner on a node may have is held, with a word. vram_mb is taken as declared, 0 too.
 * -EEXIST: the queue has jobs already. -EBUSY: a process has that database open, named, or it changed meanwhile.
 * -EMEDIUMTYPE: it isn't one. Inside a transaction, as all changes.
 */
struct store_imported {
	int64_t jobs, pending, running, held, events, alerts;
	int64_t skipped; /* events and alerts of a kind that nobody knows */
};
int store_import_nvidb(
	struct store *s, const char *path, struct store_imported *ret, struct err *e);
/*
 * The whole of `queue import-nvidb path` for the queue at `target`. Another file than the target: one transaction of the
 * target's (made when missing), the source stays where it is, and *ret_moved_to is NULL. The target itself: a new database
 * takes its place in one step once it's whole and durable, and the Python's stays, with its log, as *ret_moved_to (to free):
 * queue-nvidb.db for queue.db. Killed anywhere, nothing has happened, or everything, or the same call goes on from there.
 * No store may be open on the target.
 */
int store_take_over_nvidb(const char *path, const char *target, const struct store_options *o,
	struct store_imported *ret, char **ret_moved_to, struct err *e);

/* Reads. Each list is the caller's; a zeroed one is empty. */
struct store_jobs {
	struct job *v;
	size_t n;
	bool has_more; /* of this question, behind the last one */
};
enum store_order {
	STORE_BY_ID,
	STORE_BY_TURN, /* pending only: priority descending, then id */
	STORE_BY_END, /* ended only: the last to finish first; "recent" is this with limit 10 */
	STORE_BY_LANE, /* those in lanes that wait or run: by lane, running ones first, then by place */
};
struct store_question {
	uint32_t states; /* bits; 0: all */
	bool held; /* only held ones */
	bool bound; /* only those with an attempt in flight */
	/* Only those without one, for the plan: of each what tells where it fits, and what stands for a missing value in the
	   rest (name, command, environment, notes, result, how it's to end, ...). No node: there's no place to tell. */
	bool to_place;
	bool cancelling; /* only those whose cancel is wanted */
	const char *node, *tag, *name,
		*submitter; /* NULL: any; node: where it ran last or is pinned to */
	const char *lane; /* NULL: any; with STORE_BY_LANE */
	const int64_t *ids; /* only these; n_ids */
	size_t n_ids;
	int64_t min_id, max_id; /* 0: no bound */
	int64_t behind_id; /* the page behind that job (by id) */
	enum store_order order;
	bool newest; /* the last `limit` of them, still ascending */
	size_t limit; /* 0: all */
	size_t command_max; /* bytes of each command that are read; 0: all */
	bool no_needs; /* leaves the lists of prerequisites empty: a question a job less */
};
int store_jobs(
	struct store *s, const struct store_question *q, struct store_jobs *ret, struct err *e);
void store_jobs_done(struct store_jobs *l);
int store_job(struct store *s, int64_t id, struct job *ret, struct err *e); /* job_done */
/* -ENOENT without a sentence: no such key. */
int store_job_by_key(struct store *s, const char *key, int64_t *ret_id, struct err *e);

struct store_counts {
	int64_t by_state[JOB_STATE_N]; /* pending without the held ones */
	int64_t held, open_alerts, cancelling, pending_reaps;
	int64_t last_event, last_job; /* ids */
};
int store_counts(struct store *s, struct store_counts *ret, struct err *e);
/* Does any pending job wait: held (true), or not held (false)? Costs what one row does, however many there are. */
int store_some_wait(struct store *s, bool held, bool *ret, struct err *e);

/*
 * What pending jobs still wait for, all of it in one question, by job: prerequisites that haven't ended, that ended badly
 * where success is needed, or that are gone (JOB_STATE_NONE). A pending job that isn't named here is ready.
 */
struct store_unmet_row {
	int64_t job, needs;
	bool any; /* any end would do */
	enum job_state state;
};
int store_unmet(
	struct store *s, struct store_unmet_row **ret, size_t *ret_n, struct err *e); /* free */

/* Active jobs that need `id`; any kind. ret: to free. */
int store_dependents(struct store *s, int64_t id, int64_t **ret, size_t *ret_n, struct err *e);

/* History: one row for each attempt that wasn't taken back, ascending. */
struct store_attempt {
	int64_t job, attempt;
	struct job_bind bind;
	int64_t bound_ms, started_ms, finished_ms, elapsed_ms, pid, start_ticks;
	bool is_settled, has_exit_code;
	int64_t exit_code, peak_mib;
	enum job_cause cause;
	enum job_step ended_as; /* meaningful when settled */
	char *run_dir, *error;
};
struct store_attempts {
	struct store_attempt *v;
	size_t n;
};
int store_attempts(struct store *s, int64_t job, struct store_attempts *ret, struct err *e);
void store_attempts_done(struct store_attempts *l);

struct store_event {
	int64_t id, ts_ms, job; /* job 0: none */
	enum event_kind kind;
	char *node, *message, *data;
};
struct store_events {
	struct store_event *v;
	size_t n;
	int64_t last_id; /* of the last one, or the given since */
	bool has_more;
	bool has_gap; /* retention removed some behind `since` */
};
/* since >= 0: the oldest behind it, up to limit; < 0: the newest, ascending. job 0: all. */
int store_events(struct store *s, int64_t since, int64_t job, size_t limit,
	struct store_events *ret, struct err *e);
void store_events_done(struct store_events *l);

struct store_alert {
	int64_t id, ts_ms, job, acknowledged_ms, notified_ms;
	enum alert_kind kind;
	char *node, *title, *detail;
};
struct store_alerts {
	struct store_alert *v;
	size_t n;
};
enum store_which_alerts { STORE_ALERTS_OPEN, STORE_ALERTS_ALL, STORE_ALERTS_UNDELIVERED };
/* The newest `limit` (undelivered: the oldest), ascending. */
int store_alerts(struct store *s, enum store_which_alerts which, size_t limit,
	struct store_alerts *ret, struct err *e);
void store_alerts_done(struct store_alerts *l);
