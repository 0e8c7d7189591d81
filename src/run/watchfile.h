/*
 * The jobs file as it lies on disk: read when it changed, believed when it holds still. It owns the path, the inotify
 * watch on its directory and the last bytes; it never writes, and it doesn't know what the lines mean.
 *
 * When an edit is believed at once, and when only after it has been unchanged for one poll:
 *   longer, ending in a newline           at once
 *   shorter than before, or empty         after a poll (an editor that truncates and writes)
 *   last line without a newline           the whole lines at once, the open line after a poll
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct watchfile {
	char *path;
	int inotify; /* -1: none, only polling */
	/* What stat said when it was last read. */
	int64_t mtime_ns, size;
	uint64_t ino, dev;
	bool was_read;
	struct buf believed; /* bytes last handed out */
	struct buf seen; /* bytes last read, may wait for belief */
	int64_t seen_since_ms;
	bool is_waiting; /* seen differs from believed */
};

enum watch_result { WATCH_SAME, WATCH_NEW, WATCH_FAILED };

/* Reads the file for the first time and believes all of it. 0, or -errno with "cannot read jobs file: ...". */
int watchfile_open(struct watchfile *w, const char *path, struct err *e);
/* Drains the inotify descriptor; true when something happened to our file. */
bool watchfile_rang(struct watchfile *w);
/*
 * Looks again. WATCH_NEW: *ret_bytes and *ret_n (owned by w until the next call) are the list to take over now.
 * settle_ms is how long an edit must hold still to be believed.
 */
enum watch_result watchfile_look(struct watchfile *w, int64_t now_ms, int64_t settle_ms,
	const char **ret_bytes, size_t *ret_n, struct err *e);
void watchfile_done(struct watchfile *w);
