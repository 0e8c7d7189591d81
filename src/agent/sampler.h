/*
 * The agent's eye: a child process that alone opens a GPU back end, so that a hung driver hangs nobody else. The parent
 * asks over a socket pair and gets whole snapshots; it never waits.
 *
 *   none --ask--> asked --answer--> idle       requests are numbered; an answer to number n was begun after n was asked
 *                  | 5 s: silent (starts are refused)
 *                  | 10 s: killed, and replaced after a pause; one that can't die is left behind
 */
#pragma once

#include "base/err.h"
#include "core/gpu.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SAMPLER_SILENT_MS 5000
#define SAMPLER_KILL_MS 10000

struct gpu_backend;
struct sampler; /* opaque */

/* How the child opens its back end; NULL: gpu_backend_open. Tests pass one that hangs. */
typedef int sampler_open_fn(struct gpu_backend **ret, struct err *e);

struct sampler *sampler_new(sampler_open_fn *open);
/* Kills the child; doesn't wait for one that can't die. */
void sampler_free(struct sampler *s);

/* To poll for reading; -1 while there's no child. */
int sampler_fd(const struct sampler *s);
/*
 * Asks for a snapshot begun after this call, starting the child if need be. Returns the request's number. The plain one
 * is what admission needs: all process lists read anew, sleeping cards woken.
 */
uint64_t sampler_ask(struct sampler *s, int64_t now_ms);
/* What a request wants besides; of several that wait, one answer gives the details and figures any wants and the allowances all give. */
enum {
	SAMPLER_DETAILS = 1,
	SAMPLER_MAY_SLEEP = 2, /* sleeping cards sleep on */
	SAMPLER_OLD_PROCS = 4, /* process lists may be 2 s old */
	SAMPLER_PROFILING = 8, /* with details: also NVML's own profiling counters */
};
#define SAMPLER_LOOKS (SAMPLER_DETAILS | SAMPLER_MAY_SLEEP) /* for those who place no jobs by it */
uint64_t sampler_ask_as(struct sampler *s, int64_t now_ms, unsigned flags);
/* Requests asked so far: what happens now is seen by the answer to any later number. */
uint64_t sampler_asked(const struct sampler *s);
/* One is on its way. */
bool sampler_is_asked(const struct sampler *s);
/*
 * Takes what has arrived. 1 and a snapshot (the caller's) with the number it answers; 0 when more must come. A child that
 * broke off is 0 as well: it's replaced and asked again.
 */
int sampler_read(struct sampler *s, int64_t now_ms, struct gpu_snapshot *ret, uint64_t *ret_number);
/* Limits and replacements. Returns ms until it must be called again, -1 for never. */
int64_t sampler_turn(struct sampler *s, int64_t now_ms);
/* No answer for SAMPLER_SILENT_MS; *ret_why is a sentence. */
bool sampler_is_silent(const struct sampler *s, int64_t now_ms, struct err *ret_why);
/*
 * Gives every handle of the driver back: the child is ended, and none is started until sampler_resume. Meanwhile the sampler
 * is silent. sampler_has_let_go: the child is gone.
 */
void sampler_release(struct sampler *s, int64_t now_ms);
void sampler_resume(struct sampler *s, int64_t now_ms);
bool sampler_is_released(const struct sampler *s);
bool sampler_has_let_go(const struct sampler *s);
/* A child was reaped: true if it was this one's. */
bool sampler_reaped(struct sampler *s, pid_t pid, int64_t now_ms);
