/*
 * What the agent has to do in job directories: it's done by child processes, for a directory may lie on a network's disk that
 * hangs (a hard NFS mount), and then only they hang. The agent's loop touches no job root.
 *
 *   asked --> waiting for its place --> in a child, with those that wait for the same place, in order --> answered
 *                 |                        `-- the child says nothing for CHORE_SILENT_MS: killed --.
 *                 `-- a child that was killed there hasn't gone: the place doesn't answer ----------+--> failed
 *
 * A place is a job root: what changes something there is done by one child at a time, in the order of asking, and what only
 * reads by another one. While a killed child hasn't gone (the kernel keeps it until its system call returns), nothing new
 * is begun in its place; so nothing that's late can meet what came after it. A child dies with the agent.
 */
#pragma once

#include "agent/claim.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CHORE_NAME "gpustow-disk" /* of a child */
#define CHORE_SILENT_MS 5000
#define CHORE_CHILDREN_MAX 32 /* with those that were killed and haven't gone */
#define CHORE_BATCH_MAX 64 /* done by one child */

struct agent;
struct chores;
struct says_found;

/* Told once, in a later turn, never from within the asking. answer: borrowed; NULL: it failed, with that code, as e says. */
typedef void chore_done_fn(
	struct agent *a, uint64_t number, const json_t *answer, int code, const struct err *e);

struct chores *chores_new(void);
/* Kills the children; doesn't wait for one that can't die. NULL is fine. */
void chores_free(struct chores *x);

/*
 * Each returns the number that `done` will be called with. Asked of the agent's chores (server.h). Names that have a claim
 * when it's their turn are left alone: -EEXIST for chores_make.
 */
/* job_dir_make. What counts of s: name, token, dir, body, is_staged. */
uint64_t chores_make(struct agent *a, const struct claim_spec *s, chore_done_fn *done);
/* job_dir_drop; nobody hears of it. */
void chores_drop(struct agent *a, const struct attempt_name *n, const char *dir);
/* job_dir_remove; what it returned is "code" in the answer. */
uint64_t chores_remove(struct agent *a, const char *job_root, const struct attempt_name *names,
	size_t n, chore_done_fn *done);
/* facts_read; the answer is what it returns, and "found" for chores_take_found. */
uint64_t chores_read(struct agent *a, const char *dir, bool has_ended,
	const struct says_found *says, chore_done_fn *done);
void chores_take_found(const json_t *answer, struct says_found *ret);

/* To poll for reading. */
int chores_fd(const struct chores *x);
/* Takes what children have said, and ends those that say nothing. At the beginning of a turn. */
void chores_take(struct agent *a);
/*
 * Gives what waits to children. At the end of a turn: whoever starts a job goes first. True when some failed: what follows
 * from that is still to be done.
 */
bool chores_start(struct agent *a);
/* The agent slept or was stopped: nobody was silent but us. */
void chores_forgive(struct agent *a);
/* ms until chores_take must be called again; -1: when something happens. */
int64_t chores_wait_ms(const struct agent *a);
/* A child was reaped: true if it was one of these. */
bool chores_reaped(struct chores *x, pid_t pid);
/* Something is under way that changes a job root. */
bool chores_are_due(const struct chores *x);

/* ---- in the child (chore_work.c) ---- */

enum chore_kind { CHORE_MAKE, CHORE_DROP, CHORE_REMOVE, CHORE_READ };

struct chore {
	uint64_t number;
	enum chore_kind kind;
	bool is_void; /* its name got a claim meanwhile: nothing is done */
	char *key; /* the place; 'r' or 'w' in front */
	chore_done_fn *done; /* NULL: nobody is told */
	int64_t asked_ms;
	struct claim_spec spec; /* CHORE_MAKE, CHORE_DROP: the name and the directory count */
	char *dir; /* CHORE_READ: the job's; CHORE_REMOVE: the job root */
	struct attempt_name *names; /* CHORE_REMOVE */
	size_t n_names;
	bool has_ended;
	struct says_found *says;
};

/* Forks a child that does these in order and says so on *ret_fd, a frame for each. The child's pid, or -errno. */
pid_t chore_fork(const struct root *r, struct chore *const *items, size_t n, int *ret_fd);
