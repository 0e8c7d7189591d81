/* `gpustow --once`: not in the table of commands, for it's what the program does without one. */
#pragma once

#include "cli/command.h"

int cmd_once_exec(const struct program *p, struct err *e);
/* The terminal as it is: $COLUMNS or the terminal's own width (0: neither, so as wide as it needs), colours, UTF-8. */
struct row_style;
void once_terminal(struct row_style *ret);
