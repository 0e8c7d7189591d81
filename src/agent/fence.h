/*
 * Who may command a queue (protocol.md 1, 3): the highest fence seen of each. Raised in memory by a hello; made durable
 * before the first answer that binds (none, refused, an observe).
 */
#pragma once

#include "agent/root.h"
#include "base/err.h"
#include "core/attempt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Incarnation, epoch, link: compared left to right. */
struct fence {
	uint64_t v[3];
};

struct fence_entry {
	char queue[ID_LEN];
	struct fence highest;
	bool is_stored;
};

struct fences {
	struct root *root;
	struct fence_entry *items;
	size_t n, cap;
};

void fences_init(struct fences *f, struct root *r);
void fences_done(struct fences *f);
int fence_compare(const struct fence *a, const struct fence *b);
/* The highest seen of that queue, from disk at the first time; all zero when never. -errno when the disk doesn't say. */
int fences_highest(struct fences *f, const char *queue, struct fence *ret, struct err *e);
/* Raises it; fence must be above the highest. */
int fences_raise(struct fences *f, const char *queue, const struct fence *fence, struct err *e);
/* Durable from here on. Costs nothing when it is already. */
int fences_store(struct fences *f, const char *queue, struct err *e);
