/*
 * A job's body on its way to the node: written piece by piece into new/part-<random>, and put into the launch's stage as
 * new/<token>/body once it's whole and synced. What nobody finishes or claims is swept like any stage (claim_sweep_stage).
 */
#pragma once

#include "agent/root.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define STAGE_BODY_MAX (8 * 1024 * 1024)

struct stage_body;

/* token: 32 lower-case hex digits, else -EINVAL; size: what will come, above STAGE_BODY_MAX -E2BIG. */
int stage_body_new(
	struct root *r, const char *token, int64_t size, struct stage_body **ret, struct err *e);
/* More than was announced: -EBADMSG. 1 once all is there. */
int stage_body_put(struct stage_body *s, const void *bytes, size_t n, struct err *e);
/* Synced and put into its place, over one that was there. */
int stage_body_end(struct stage_body *s, struct err *e);
/* Removes what isn't in its place. NULL is fine. */
void stage_body_free(struct stage_body *s);
