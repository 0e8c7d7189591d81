/* The live monitor: not in the table of commands, for it's what the program does without one. */
#pragma once

#include "cli/command.h"

int cmd_monitor_exec(const struct program *p, struct err *e);
