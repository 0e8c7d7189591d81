/*
 * What each agent of this machine has promised on the cards, for the agents of other users to see (protocol.md 9):
 * one small file each in the machine's shared temporary directory ($GPUSTOW_PROMISE_DIR, else /tmp), named
 * .gpustow-<uid>-<16 hex digits>, mode 0644, locked with fcntl while its agent lives.
 *
 * A file is believed if its owner is the uid in its name, it's a plain file of the right size, and its lock is held.
 * Two slots with sequence number and CRC are written in turn, so a reader never takes half a list for a whole one. A lie
 * can only refuse: nothing read here makes room.
 */
#pragma once

#include "base/err.h"
#include "core/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROMISE_ROWS_MAX 128
#define PROMISE_ALL_MIB (INT64_C(1) << 40) /* a whole card whose size isn't known yet */

struct promise_row {
	char uuid[GPU_UUID_LEN];
	int64_t mib;
	bool is_tentative;
};

/* A row of somebody else. `rank` orders agents: by uid, then by the file's name; below 0 comes before us. */
struct promise_other {
	struct promise_row row;
	uid_t uid;
	int rank;
};

struct promise; /* opaque */

/* Makes no file yet: the first promise_publish does. dir NULL: as above. */
struct promise *promise_new(const char *dir);
/* Removes the file too. */
void promise_free(struct promise *p);
/*
 * What we promise from now on, all of it (at most PROMISE_ROWS_MAX rows). Unchanged rows cost nothing. A file that was
 * swept away is made again. Works on a full disk once the file is there.
 */
int promise_publish(struct promise *p, const struct promise_row *rows, size_t n, struct err *e);
/* The believed rows of all others; free() the array. Reads the directory again only when it changed. */
int promise_read(struct promise *p, struct promise_other **ret, size_t *ret_n, struct err *e);
