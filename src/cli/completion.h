/* One renderer a shell; each reads the table and nothing else. */
#pragma once

#include "cli/command.h"

void completion_bash(struct buf *out);
void completion_zsh(struct buf *out);
void completion_fish(struct buf *out);
/* A word for any of the three: in single quotes. */
void shell_quote(struct buf *out, const char *s);
