/* This program's own file: what it is, and the tidiness of the directory in which it was put by a boot line (docs/ssh.md). */
#pragma once

#include "base/err.h"

/* SHA-256 of the running program's file, 64 hex digits. */
int self_hash(char ret[65], struct err *e);
/*
 * If the file is called agent-<its hash> in a directory that's ours alone: notes that it's in use, and removes what
 * uploads that were cut off left there (.new-*, after an hour) and agents that nobody used for 60 days.
 */
void self_tidy(void);
