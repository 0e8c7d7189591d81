/* One job's part of a launch message (docs/wire.md). Inside of the controller. */
#pragma once

#include "queue/cluster.h"
#include "queue/pass.h"

/* Fills f->launch, and f->body when that's too large to go in the message. inv: of the node, for how its cards are named. */
void launch_make(
	struct pass *p, const struct job *j, const struct inventory *inv, struct flight *f);
/* What a node's check goes by beside the job's own wishes; new. */
json_t *launch_limits(const struct queue_settings *s);
#define LAUNCH_REFUSED_MS 3000 /* so long a daemon gives a node nothing more that has refused */
/* Whole cards at UNDECLARED. ret: job_bind_done. */
void launch_make_bind(const struct pass_node *n, const struct cluster_node *node, uint64_t cards,
	int64_t mib, struct job_bind *ret);
/* What was learned or is the queue's default stands with the job from now on; in a transaction. */
int launch_note_need(
	struct pass *p, const struct job *j, int64_t mib, enum vram_source from, struct err *e);
/*
 * A bound job as an entry of a lane (docs/wire.md). A body that is too large for the message is put among the flights, for
 * launch_staging to send it ahead; needs may be NULL.
 */
json_t *launch_entry(struct pass *p, const struct job *j, const struct inventory *inv,
	json_t *needs, const struct pass_node *n);
void staging_free(struct staging *s);
/* Its link is closed: the stream is gone by itself. */
void staging_cut(struct staging *s);
