/*
 * `gpustow` without a command: the live monitor. One loop for terminal, hosts and time; nothing in it blocks. It must not
 * decide anything: monitor_model.h does.
 */
#pragma once

#include "base/err.h"
#include "config/config.h"

#include <stdbool.h>

struct monitor_options {
	const char *home; /* config.yml lies there, and the control sockets of ssh */
	const struct config *config; /* read already */
	bool is_remote, is_debug, is_compact, wants_dcgm;
	bool is_plain; /* lines instead of a screen */
};

/* The exit code, or -errno with a sentence: no terminal, or one that can't move its cursor. */
int monitor_run(const struct monitor_options *o, struct err *e);
