/* The queue's screen from another command: `queue` alone. */
#pragma once

#include "cli/queue_common.h"

bool cmd_queue_tui_has_terminal(void);
int cmd_queue_tui_open(const struct program *p, const struct queue_options *o, struct err *e);
