/* One job's part of a launch message (docs/wire.md). Inside of the controller. */
#pragma once

#include "queue/pass.h"

/* Fills f->launch, and f->body when that's too large to go in the message. inv: of the node, for how its cards are named. */
void launch_make(
	struct pass *p, const struct job *j, const struct inventory *inv, struct flight *f);
/* Sends the bodies that go ahead, and waits until they're there. What can't be sent is undone by a note. */
void launch_stage_bodies(struct pass *p);
void staging_free(struct staging *s);
