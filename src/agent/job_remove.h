/* The command `remove` (docs/wire.md): directories of jobs whose attempts have no claim any more. */
#pragma once

#include "agent/client.h"

struct agent;

struct removal; /* one under way */

/*
 * Takes away what `names` names below `root`/QUEUE and answers `removed`, once a child (chores.h) has done it. A name that has a claim, or is none, is passed
 * over. Negative: nothing was removed, and *e says why.
 */
int job_remove(struct agent *a, struct client *c, const json_t *msg, struct err *e);
void job_removals_free(struct removal *w);
