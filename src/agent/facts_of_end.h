/*
 * What can be told of a job of the queue from its directory: its progress while it lives, the facts of its end afterwards
 * (docs/wire.md). The job wrote all of it, and may have put anything there: only plain files are read, none through a
 * link, each up to a limit; what goes out is valid UTF-8.
 */
#pragma once

#include "agent/attempts.h"

#include <jansson.h>

#define FACTS_TAIL_LINES 25
#define FACTS_TAIL_MAX (16 * 1024)
#define FACTS_RESULT_MAX (64 * 1024)
#define FACTS_PROGRESS_MAX 500
#define FACTS_SEARCH_MAX ((int64_t)64 * 1024 * 1024)

/* The last line of `status` that says something, as text; "" without. a->dir must not be NULL. */
json_t *progress_of(const struct attempt *a);
/*
 * The facts of an attempt that has ended, from the files as they are now. What was searched for in its output is kept in
 * *a and looked for again only when the output has changed.
 */
json_t *facts_of_end(struct attempt *a);
