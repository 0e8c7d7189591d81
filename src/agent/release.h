/*
 * Letting go of the GPU driver for a while, so that somebody can change MIG mode, reset a card or unload the driver:
 * monitors that keep it open are what such commands fail on. A client asks, and holds it by its link: when the link ends,
 * however it does, the driver is taken up again.
 *
 *   none --release--> wanted --no job on a card, no start undecided--> closing --the sampler is gone--> held
 *     ^                  `-- jobs there, not forced: `held-by`, none         |5 s: `error`, none           |
 *     `-----------------------------------------------------------------------'----- resume, or its link ends
 */
#pragma once

#include "agent/client.h"

struct agent;

void release_ask(struct agent *a, struct client *c, bool is_forced);
void release_resume(struct agent *a, struct client *c);
/* Goes as far as it can; called once a turn, after dead clients were dropped. */
void release_turn(struct agent *a);
