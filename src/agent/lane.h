/*
 * A lane: the serial queue of some cards, which a controller hands to the node whole. Here is the value and its file,
 * <root>/lanes/<queue>-<word>-<hash>; who starts when is lanes.c's business.
 *
 * The file is replaced whenever a controller says how the lane is to be, and never when an entry starts: an entry that has a
 * claim or a retired line of its name is never started again, whatever the file says.
 *
 *   {"version": 1, "queue", "lane", "fence", "generation", "concurrency", "paused", "n", "left", "policy"}\n
 *   {"spec": as in a claim, "needs": [[job, attempt, "ok"], ...], "body": bytes or -1}\n<bytes>\n     n times
 */
#pragma once

#include "agent/claim.h"
#include "agent/fence.h"
#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANES_MAX 256 /* of a root */
#define LANE_NAME_MAX 255 /* bytes */
#define LANE_ENTRIES_MAX 1000
#define LANE_NEEDS_MAX 1000 /* of an entry */
#define LANE_CONCURRENCY_MAX 64
#define LANE_BYTES_MAX (32 * 1024 * 1024) /* of the file: all specs and texts */

/* Another attempt of the same queue that must have ended. */
struct lane_need {
	uint64_t job;
	uint32_t attempt; /* 0: any */
	bool ok; /* with exit code 0; false: in whatever way */
};

enum lane_entry_state {
	LANE_WAITING,
	LANE_TAKEN, /* it has a claim */
	LANE_OVER, /* its claim has ended, or is retired */
	LANE_CONFLICT, /* a claim of that name has another token: this one never starts */
};

struct lane_entry {
	struct attempt_name name;
	char token[ID_LEN];
	uint32_t n_cards;
	struct claim_card *cards;
	bool exclusive;
	int64_t grace_ms;
	char *dir; /* NULL: it gets none */
	struct lane_need *needs;
	uint32_t n_needs;
	char *text; /* its record in the file; NULL once it's there */
	size_t at, size; /* where that is */
	uint32_t crc; /* of the record */
	enum lane_entry_state state;
};

/* Somebody's attempt by name, with its token. */
struct lane_ref {
	struct attempt_name name;
	char token[ID_LEN];
};

struct lane {
	char queue[ID_LEN];
	char name[LANE_NAME_MAX + 1];
	struct fence fence; /* of the link that said it */
	uint64_t generation;
	uint32_t concurrency; /* from 1 */
	bool paused;
	/*
	 * The queue's values as of this generation: they count for all that waits, whatever was said when an entry came; but
	 * `exclusive`, which is each entry's own. Without: as each entry came.
	 */
	bool has_policy;
	struct claim_policy policy;
	struct lane_entry *entries;
	size_t n, cap;
	/* Claims of the lane that run and aren't listed any more: they take a place in it all the same. */
	struct lane_ref *left;
	size_t n_left, cap_left;
};

void lane_done(struct lane *l);
/* 1 to LANE_NAME_MAX bytes of UTF-8 without control characters. */
bool lane_name_is_valid(const char *name, size_t n);

/*
 * Makes an entry of a spec as a launch gives it (with its body, if it has one) and appends it. The needs are copied.
 * -EINVAL: the spec can't be written down.
 */
int lane_add(struct lane *l, const struct claim_spec *s, const struct lane_need *needs, size_t n);
/* Appends what `from` has as its i-th entry, record included. Reads from's file. */
int lane_add_from(struct root *r, struct lane *l, const struct lane *from, size_t i, struct err *e);
/* Position of that attempt, or -1. */
ssize_t lane_find(const struct lane *l, const struct attempt_name *n);
/* Bytes of all records. */
size_t lane_size(const struct lane *l);

/* Takes over what a lane is but for its entries. */
void lane_copy_head(const struct lane *from, struct lane *ret);
/* The whole spec of an entry, with its body, of this boot and under the lane's policy. -EBADMSG: the record is damaged. */
int lane_read_spec(
	struct root *r, const struct lane *l, size_t i, struct claim_spec *ret, struct err *e);

/*
 * Replaces the file, durably. On failure *l is as before, and the file is the old or the new one, whole: who goes on must
 * read it again.
 */
int lane_store(struct root *r, struct lane *l, struct err *e);
/* The file of that lane; -ENOENT. */
int lane_load(struct root *r, const char *queue, const char *name, struct lane *ret, struct err *e);
/* Each lane of the root, in the order of their files' names; one that can't be read is told by `bad`. Both take *l and *e. */
int lane_each(struct root *r, void (*fn)(void *arg, struct lane *l),
	void (*bad)(void *arg, const char *file, const struct err *e), void *arg);
