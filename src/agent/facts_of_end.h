/*
 * What can be told of a job of the queue from its directory: its progress while it lives, the facts of its end afterwards
 * (docs/wire.md). The job wrote all of it, and may have put anything there: only plain files are read, none through a
 * link, each up to a limit; what goes out is valid UTF-8.
 *
 * The directory may lie on a disk that hangs, so it's read by a process that may hang alone (chores.h), and the agent tells
 * what was read last. An end is told together with its facts: until they're there, or it's known that they can't be had,
 * the attempt counts as it was before for all who ask.
 */
#pragma once

#include "agent/attempts.h"

#include <jansson.h>

#define FACTS_TAIL_LINES 25
#define FACTS_TAIL_MAX (16 * 1024)
#define FACTS_RESULT_MAX (64 * 1024)
#define FACTS_PROGRESS_MAX 500
#define FACTS_SEARCH_MAX ((int64_t)64 * 1024 * 1024)

/* What was found in the outputs when they were that long: they're searched again only when they've changed. */
struct says_found {
	bool is_there;
	int64_t size[2], mtime_ns[2];
	unsigned found;
};

/* What the agent knows of an attempt's files. */
struct job_files {
	json_t *read; /* as facts_read gave it last, or facts_unread; NULL: never yet */
	bool has_end; /* that was after the end */
	struct says_found says;
	uint64_t number; /* of the chore that reads it just now; 0: none */
	bool asked_at_end; /* that one was asked for after the end */
};
void job_files_free(struct job_files *f);

/* ---- where it may hang ---- */

/*
 * What is in the directory: "progress", the last line of `status` that says something, "" without; with has_ended also
 * "tail", "result" and their kin, and "says". Brings *says up to date. `alive` (NULL: nobody) is called now and then while a
 * long output is searched.
 */
json_t *facts_read(const char *dir, bool has_ended, struct says_found *says,
	void (*alive)(void *arg), void *arg);

/* ---- in the agent ---- */

/* In place of it, where the directory doesn't answer; `why` goes along as "unread". */
json_t *facts_unread(const char *why);
/* May the end be told? Attempts without a directory have nothing to wait for. */
bool facts_are_there(const struct attempt *a);
/* As last read; "" before. */
json_t *progress_of(const struct attempt *a);
/* The facts of an attempt that has ended; only when facts_are_there. */
json_t *facts_of_end(const struct attempt *a);

/* ---- facts_ask.c: when it's read ---- */

struct agent;

/* Its state may be new. */
void facts_attempt_changed(struct agent *a, struct attempt *at);
/* Reads all of a queue's anew; and whether that's done. */
void facts_refresh(struct agent *a, const char *queue);
bool facts_are_fresh(const struct agent *a, const char *queue);
