/* One job's part of a launch message (docs/wire.md). Inside of the controller. */
#pragma once

#include "queue/pass.h"

/* Fills f->launch, and f->body when that's too large to go in the message. inv: of the node, for how its cards are named. */
void launch_make(
	struct pass *p, const struct job *j, const struct inventory *inv, struct flight *f);
#define LAUNCH_REFUSED_MS 3000 /* so long a daemon gives a node nothing more that has refused */
void staging_free(struct staging *s);
/* Its link is closed: the stream is gone by itself. */
void staging_cut(struct staging *s);
