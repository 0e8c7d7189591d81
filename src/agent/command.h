/* What a message to the agent means (docs/wire.md): who may say it, what it does. */
#pragma once

#include "agent/client.h"

struct agent;

/* Takes whole messages off the client's input as long as they may be obeyed now. */
void command_read(struct agent *a, struct client *c);
