/*
 * A claim: the node's durable record that one attempt was taken on, and how it went (protocol.md 2, 4, 5).
 *
 * Invariants
 * 1. A claim is born whole: staged in new/<token>/, synced, renamed to its name. Rename onto a claim that's there fails,
 *    so one contender wins.
 * 2. The right to start is the fcntl lock on `lock` of the directory that bears the claim's name. Whoever judges or starts a
 *    claim holds it.
 * 3. `state` has two 512-byte slots, each with sequence number and CRC, allocated when staged and written in turn: the
 *    newest valid one counts. An end can be written on a full disk.
 * 4. An end is synced before anyone hears of it; a start isn't (a reboot ends the process anyway).
 */
#pragma once

#include "agent/root.h"
#include "base/err.h"
#include "core/attempt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CLAIM_SPEC_MAX (2 * 1024 * 1024)
#define CLAIM_CARDS_MAX 64
#define CLAIM_ARGS_MAX 4096
#define CLAIM_ENV_MAX 16384
#define CLAIM_STRING_MAX \
	(128 * 1024 - 1) /* one argument or variable: the kernel's MAX_ARG_STRLEN */

struct claim_card {
	char uuid[48];
	int64_t declared_mib; /* -1: the whole card */
};

/* Policy values the controller sent along, for the admission check and the budget (sched.h). */
struct claim_policy {
	int64_t margin_mib; /* asked of the newcomer only */
	int64_t idle_threshold_mib; /* an undeclared job takes a card whose foreign use is below this */
	double spike_buffer; /* fraction on observed peaks */
	bool high_water; /* foreign processes are held to their own peaks times 1 + spike_buffer */
	bool exclusive; /* no other job of ours on its cards */
	int64_t max_jobs_per_card; /* 0: no limit */
};

/* Everything needed to start, fixed at the launch. JSON on disk (file `spec`), of which the format only grows. */
struct claim_spec {
	struct attempt_name name;
	char token[ID_LEN];
	char boot_id[40]; /* boot in which it was claimed */
	uint32_t n_cards; /* 0: a CPU job */
	struct claim_card cards[CLAIM_CARDS_MAX];
	struct claim_policy policy;
	char **argv; /* NULL-terminated; argv[0] is an absolute path */
	char **env; /* NULL-terminated "K=V": the job's whole environment */
	char *cwd; /* absolute */
	char *output; /* absolute; stdout and stderr, O_APPEND, made 0600 when missing */
	int64_t timeout_ms; /* 0: none; on BOOTTIME, from the start */
	int64_t grace_ms; /* TERM to KILL */
	uint32_t umask_bits;
	/* A job of the queue; the rest is NULL and 0 in others. job_dir.h gives it argv, cwd, output and error_output. */
	char *dir; /* absolute: its own directory */
	char *error_output; /* stderr apart; NULL: it goes where stdout does */
	bool login; /* the shell reads the login files first */
	int32_t lead_signal; /* to the group lead_ms before the limit; 0: none */
	int64_t lead_ms;
	int64_t oom_kills; /* the machine's counter when it was claimed; -1 unknown */
	/* Not on disk. The shim tells that its processes have ended before that is on record: its lane's next one waits. */
	bool is_of_lane;
	/* In a launch only, not in a claim: what becomes run.sh. */
	char *body; /* NULL and is_staged: it lies in new/<token>/body */
	bool is_staged;
};

void claim_spec_done(struct claim_spec *s);
/* As in a launch's "policy". */
json_t *claim_policy_encode(const struct claim_policy *p);
int claim_policy_decode(const json_t *o, struct claim_policy *ret, struct err *e);
bool claim_policy_equal(const struct claim_policy *a, const struct claim_policy *b);
json_t *claim_spec_encode(const struct claim_spec *s);
/*
 * From disk, or from a launch message's job object into whose "env" the caller has put the shared variables first (of
 * two with one name the later is kept). One with a "dir" and a "body" or "staged" needs no "argv" and "output". Bounds everything; names the key in *e. "queue" and "boot_id" may be missing, as in
 * a message: then they're "" and the caller fills them before claim_make.
 */
int claim_spec_decode(const json_t *o, struct claim_spec *ret, struct err *e);

/* What `state` says. */
struct claim_record {
	enum attempt_state state;
	uint64_t seq;
	pid_t shim_pid; /* 0 before the shim took the lock */
	uint64_t shim_start_ticks;
	pid_t pid; /* the job's leader = its session and process group; 0 before the start */
	uint64_t start_ticks;
	char boot_id[40];
	uint64_t pid_ns;
	int64_t lead_sent_boot_ms; /* when the lead signal was sent; 0: not */
	struct attempt_end end; /* when ended; started_* also while started */
};

#define CLAIM_SLOT_SIZE 512
#define CLAIM_STATE_SIZE (2 * CLAIM_SLOT_SIZE)
/* One slot as it lies on disk, and the newest whole one of a `state` file's bytes (-EBADMSG: neither is whole). Pure. */
void claim_slot_encode(const struct claim_record *rec, uint8_t ret[CLAIM_SLOT_SIZE]);
int claim_state_decode(const uint8_t *bytes, size_t n, struct claim_record *ret);

enum claim_made { CLAIM_MADE, CLAIM_SAME_TOKEN, CLAIM_OTHER_TOKEN };

/*
 * Stages and renames. On CLAIM_SAME_TOKEN and CLAIM_OTHER_TOKEN nothing was made: a claim or a retired line of that
 * name was there. After any error of the rename the token found at the name is read before the error is believed.
 * Negative: no claim was made, and nothing of it is left. The retired lines are asked through r->retired (retired_load).
 */
int claim_make(struct root *r, const struct claim_spec *s, enum claim_made *ret, struct err *e);
/*
 * The same for several: each is written, then each synced, then each renamed, and one sync makes the names below one queue
 * durable. So when it returns, all that were made are durable, and until then nobody may be forked for one of them or
 * told of it. Each order has its own outcome; one that fails takes no other with it, but for a parent that can't be synced.
 */
struct claim_order {
	const struct claim_spec *spec; /* borrowed */
	int code; /* 0: `made` says what came of it; negative: no claim was made, as err says */
	enum claim_made made;
	struct err err;
};
#define CLAIM_TOGETHER_MAX \
	32 /* at once; more are made in portions, for each holds descriptors open */
void claim_make_all(struct root *r, struct claim_order *orders, size_t n);

/*
 * A claim made ready ahead of its time: staged and synced, but not born, so nobody may start it. Its birth costs one rename
 * and one sync. It holds the stage's lock; what isn't born is swept like any stage an hour after it was last touched.
 */
struct claim_stage;
/* -EEXIST: a claim or a retired line of that name is there. Negative: nothing of it is left. */
int claim_stage_new(
	struct root *r, const struct claim_spec *s, struct claim_stage **ret, struct err *e);
/* As claim_make; frees g whatever comes of it. s must say what it said when it was staged. */
int claim_stage_birth(struct root *r, struct claim_stage *g, const struct claim_spec *s,
	enum claim_made *ret, struct err *e);
void claim_stage_touch(const struct claim_stage *g);
/* Takes it away again; or only forgets it, for the next agent to write over. NULL is fine. */
void claim_stage_drop(struct root *r, struct claim_stage *g);
void claim_stage_free(struct claim_stage *g);

/* Opens the directory of a claim: descriptor, or -ENOENT. */
int claim_open(const struct root *r, const struct attempt_name *n);
/*
 * Does the opened directory still bear that name? A retired claim's directory may have become another one's (claim_recycle),
 * so who opened it before he had the lock asks this under the lock.
 */
bool claim_is_at(const struct root *r, const struct attempt_name *n, int claim_fd);
int claim_read_spec(int claim_fd, struct claim_spec *ret, struct err *e);
/* -EBADMSG: no slot is whole, so nobody knows how far it came; -ENOENT: as much, the file is gone. */
int claim_read_record(int claim_fd, struct claim_record *ret, struct err *e);
/* Writes the next slot; rec->seq is raised by one. durable: fdatasync. Works when the disk is full. */
int claim_write_record(int claim_fd, struct claim_record *rec, bool durable, struct err *e);
/* Takes the claim's lock without waiting: the locked descriptor, or -EAGAIN. Keep it open: closing any descriptor of it unlocks. */
int claim_lock(int claim_fd);
/* Is somebody holding it? *ret_pid = 0 when not. Never call this in the process that holds it. */
int claim_lock_holder(int claim_fd, pid_t *ret_pid);
/*
 * Leaves the wish to end, not synced. Any number of times; the first one's reason stays. `stop` is a symbolic link whose target
 * is "<reason> <grace_ms>": made in one step, whole or not at all, first one wins, and it needs no block of a full disk.
 *
 * protocol.md 6 has a temporary file and a rename there. The link keeps all that this promises, and more: a rename without
 * a sync may leave an empty file after a power cut, and a rename replaces, so that the last one wins; a link that's there is
 * whole. Neither lasts a power cut for certain, which needs nothing: a claim of another boot is over (rebooted), and the
 * wish lies in the store, which says it again.
 */
int claim_put_stop(int claim_fd, enum stop_reason reason, int64_t grace_ms);
/* 0 and the wish, or -ENOENT. */
int claim_get_stop(int claim_fd, enum stop_reason *ret_reason, int64_t *ret_grace_ms);

/* Appends the line to `retired`, syncs it, removes the claim. Several at once cost one sync. */
struct claim_retire {
	struct attempt_name name;
	char token[ID_LEN];
	struct attempt_end end;
};
int claim_retire(struct root *r, const struct claim_retire *items, size_t n, struct err *e);
/* Removes a claim that has its retired line (claim_retire does): out of claims/ in one step, then its files. */
void claim_remove(struct root *r, const struct attempt_name *n, const char *token);
/*
 * The same, but a small claim without a stop wish becomes a spare, new/spare-<i>, that the next claim_make writes over and
 * renames. Should a power cut undo these renames, the old name is a retired one, and claim_each removes it.
 */
void claim_recycle(struct root *r, const struct attempt_name *n, const char *token);
/*
 * The names of the retired ones, kept in memory (16 bytes each); tokens and ends are read from the file when asked for.
 * claim_retire adds to r->retired by itself; adding a name twice changes nothing. *r must outlive the index.
 */
int retired_load(struct root *r, struct retired_index **ret, struct err *e);
void retired_free(struct retired_index *x);
/* 0 or -ENOENT. */
int retired_find(const struct retired_index *x, const struct attempt_name *n,
	char ret_token[ID_LEN], struct attempt_end *ret);
size_t retired_count(const struct retired_index *x);
/* An index over another file of that kind, which isn't the root's yet; and both change places, for the pointers to it stay. */
int retired_index_of(struct root *r, int fd, struct retired_index **ret);
void retired_swap(struct retired_index *x, struct retired_index *fresh);

#define RETIRED_KEEP 10000
#define RETIRED_KEEP_MS ((int64_t)30 * 24 * 3600 * 1000)
/*
 * Shortens lines of `retired`: of one that ended longer than RETIRED_KEEP_MS ago, with RETIRED_KEEP newer lines behind it,
 * name, token, how it ended and its code stay (about 90 bytes of 330); times and text go. The file is replaced, durably,
 * once as many lines can be shortened. Only the holder of the root's lock may call it. Returns how many were, or negative:
 * then the file is what it was.
 *
 * No line ever goes. A controller that was away for longer, or a store that was restored from an old backup, still has its
 * bind, and asks; "there is no claim" would mean to it that the attempt never started, and it would start again.
 */
ssize_t retired_compact(struct root *r, int64_t now_wall_ms, struct err *e);

/*
 * Calls fn for each claim in the root (any order); stops and returns what fn returned if that isn't 0. The descriptor is
 * closed afterwards. A claim of which there's a retired line (the agent died in between) is removed and not told.
 */
int claim_each(struct root *r, int (*fn)(void *arg, const struct attempt_name *n, int claim_fd),
	void *arg);
/* Removes what was staged and never claimed, older than an hour, and spares that aren't this root's own (r->n_spares). */
void claim_sweep_stage(struct root *r, int64_t now_wall_ms);

json_t *attempt_end_encode(const struct attempt_end *end);
int attempt_end_decode(const json_t *o, struct attempt_end *ret, struct err *e);
