/*
 * Settings into config.yml without waiting for the disk: a short-lived child writes what changed since the last time, one
 * child at a time. A slow disk delays the next write, never a key.
 */
#pragma once

#include "tui/monitor_model.h"

#include <sys/types.h>

struct keep {
	const char *home; /* borrowed */
	struct view_settings written; /* as the file has them, as far as we know */
	struct view_settings writing;
	pid_t child; /* 0: none */
	bool has_failed; /* the last one couldn't write; whoever tells a person clears it */
};

void keep_init(struct keep *k, const char *home, const struct view_settings *now);
/* Begins to write if something differs and nobody is at it. */
void keep_write(struct keep *k, const struct view_settings *now);
/* The child may have ended; returns whether one is still at it. */
bool keep_look(struct keep *k);
/* What's left is written; waits at most limit_ms for it. */
void keep_done(struct keep *k, const struct view_settings *now, int64_t limit_ms);
