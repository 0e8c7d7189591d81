/*
 * The second terminal: `run status|why|cancel|retry` talk to the scheduler of a log directory over <log_dir>/run.sock, with
 * the frames of core/wire.h; one request, one answer. Without a scheduler they work on the journal under its lock.
 *
 *   {"op":"status"}                          {"op":"status","view":{...}, "text": what a person reads}
 *   {"op":"why","jobs":["7","name"]}         {"op":"why","jobs":[{"job":7,"state":..,"why":".."}]}
 *   {"op":"cancel","jobs":[..]}              {"op":"done","jobs":[{"job":7,"did":"..."}], "failed":[{"job":"x","why":".."}]}
 *   {"op":"retry","jobs":[..],"failed":bool} likewise
 */
#pragma once

#include "base/err.h"
#include "run/state.h"

#include <jansson.h>

/* Does one request on a run (live, or made by run_offline_open): the answer, the caller's reference. */
json_t *run_control_do(struct run *r, const json_t *request);

/* Asks the scheduler of a log directory: 0 and the answer; -ESRCH when none is running there (no sentence); else -errno. */
int run_control_ask(const char *log_dir, const json_t *request, json_t **ret, struct err *e);

/* A run without a loop on the journal of a log directory, under its lock when `writes`. run_offline_close commits. */
int run_offline_open(struct run *r, const struct run_config *c, bool writes, struct err *e);
int run_offline_close(struct run *r, bool commits, struct err *e);
