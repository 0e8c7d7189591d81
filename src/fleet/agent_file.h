/*
 * The agent's program, carried inside gpustow, and where it lies on this machine: agent-<sha256> in the first place that
 * is ours alone and executable. It's written once and reused; a damaged one is replaced.
 */
#pragma once

#include "base/err.h"

#include <stddef.h>

/* The bytes that were built in. */
const void *agent_file_bytes(size_t *ret_n);
/* All that are carried, for whatever processor, this machine's first; with their hashes. Returns how many, at most max. */
struct boot_agent;
size_t agent_file_carried(struct boot_agent *ret, size_t max);
/* Full path of a runnable copy ($GPUSTOW_AGENT overrides it). Tries ~/.cache/gpustow, /var/tmp/gpustow-UID, ... and names all that failed. */
int agent_file_path(char *ret, size_t size, struct err *e);
/* Starts "<agent> serve ROOT" and waits until it has bound its socket (the first process leaves then), 5 s at most. */
int agent_file_serve(const char *root, struct err *e);
