/*
 * The directory of a job of the queue on this machine: <job root>/<queue>/<job>.<attempt>, where its text, its output and
 * what it says of itself lie. It's the user's, and a job may delete it; nothing that gpustow relies on is in it (that's in
 * the claim).
 *
 *   run.sh        the job's text, 0700, durable before the claim is
 *   stdout.log    stderr.log    status    result.json     the job's
 *
 * On the way down a link counts only if root or we made it; the queue's directory must be ours alone; from there on
 * everything goes by descriptor, so that nobody can put another place under it.
 */
#pragma once

#include "agent/account.h"
#include "agent/claim.h"

#define JOB_DIR_MAX 3800 /* bytes of its path */

/*
 * Before claim_spec_decode, for a job object with a "dir": makes "dir" and "cwd" absolute, appends the variables that come
 * before all others to *env, and drops what only a claim has. Names the member that won't do.
 */
int job_dir_expand(json_t *job, const struct attempt_name *n, const struct account *a, json_t *env,
	struct err *e);
/* After it: the shell and its arguments, and the output files. Nothing for a job without a directory. */
void job_dir_fill(struct claim_spec *s);

/*
 * Makes the directory and run.sh, both durable. What an earlier launch of that name left there is removed, so the caller
 * has made sure that it has no claim. Negative: nothing of it is left, and the sentence names the place.
 */
int job_dir_make(const struct root *r, const struct claim_spec *s, struct err *e);
/* Takes it away again, when there came no claim of it. */
void job_dir_drop(const struct claim_spec *s);

/*
 * Takes the directories of these attempts away from under `job_root` (absolute), without following links. They're out of
 * sight when this returns; a child process then removes what is in them, for that may be much. Returns how many there
 * were. A job root that isn't there has none.
 */
int job_dir_remove(const char *job_root, const struct attempt_name *names, size_t n, struct err *e);
