/* What controllers say of lanes and hear of them (docs/wire.md: lane, lane-lacks, lane-waits). */
#pragma once

#include "agent/client.h"
#include "agent/lane.h"
#include "base/err.h"

#include <jansson.h>

struct agent;

/* Documents that come in several messages, one a link. */
struct lane_drafts;
struct lane_drafts *lane_drafts_new(void);
void lane_drafts_free(struct lane_drafts *x);
/* Forgets those of clients that went. */
void lane_drafts_sweep(struct agent *a);

int lane_command(struct agent *a, struct client *c, const json_t *msg, struct err *e);
/* A lane in `observed`; the answer to `lane` has more. A new object. */
json_t *lane_encode(struct agent *a, const struct lane *l);
