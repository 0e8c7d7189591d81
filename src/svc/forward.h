/*
 * The queue lies on another machine (queue.yml `remote:`): the command is run there by the user's own ssh, over one shared
 * connection. Arguments, script bodies and the submitter go by standard input, never on a command line; if the far side isn't
 * gpustow, the nvidb way (nvidb 8.5).
 */
#pragma once

#include "config/queue.h"

struct forward {
	const char *program; /* what we were called as */
	const char *home; /* control sockets */
	int argc;
	char **argv; /* the whole command from "queue" or "job" on */
	bool wants_json, is_tui;
};
/* The far command's exit code; ssh's own failure is negative with a sentence (as JSON where that was asked for: the caller). */
int forward_run(const struct queue_remote *r, const struct forward *f, struct err *e);
/* The far side: `gpustow __forwarded` reads what forward_run sent and gives argc and argv, to be run here. */
int forward_receive(int *ret_argc, char ***ret_argv, struct err *e);
