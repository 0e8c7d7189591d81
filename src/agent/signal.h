/* A signal to one process, for a person at a monitor: the node's side of `signal` (docs/wire.md). */
#pragma once

#include "agent/client.h"

struct agent;

/*
 * SIGINT, SIGTERM or SIGKILL to exactly the process of that pid and start, if it's this account's own (root's agent: anybody's).
 * Never to pid 1, to the agent, or to what started before a pid was used again. Answers `signalled`, or fills *e.
 */
int signal_send(struct agent *a, struct client *c, const json_t *msg, struct err *e);
