/* What a shell may offer for the queue's commands: jobs, nodes and cards. Asked at every Tab: it writes and locks nothing. */
#pragma once

#include "cli/command.h"

void queue_job_candidates(const struct program *p, const void *opts, struct buf *out);
void queue_node_candidates(const struct program *p, const void *opts, struct buf *out);
/* NODE:GPU. */
void queue_card_candidates(const struct program *p, const void *opts, struct buf *out);
