/* A keeper's state as JSON, as `queue keeper status` and `queue status` have it. */
#pragma once

#include "svc/keeper.h"

#include <jansson.h>

/* {"installed","running","pid","manager","script","unit","log"}; what there isn't is null. */
json_t *queue_keeper_json(const struct keeper_state *s);
