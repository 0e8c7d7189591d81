/* One host as ssh's command line has it: the arguments, the same for a person, and the key it's remembered by. Pure. */
#pragma once

#include "base/buf.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>

struct ssh_argv {
	char **v; /* NULL-terminated, owned */
	size_t n, cap;
};

/*
 * "ssh -F CONFIG ... -- HOST [COMMAND]". what: NULL, or a flag such as "-G" before the host. can_ask: the configuration
 * isn't one of batch mode. is_loud: a jump host's words are wanted too; ssh throws them away for a connection that would
 * become a master, so this one doesn't. Secrets are never in it.
 */
void ssh_argv_make(const struct host_config *h, const char *config, bool can_ask, bool is_loud,
	const char *what, const char *command, struct ssh_argv *ret);
void ssh_argv_done(struct ssh_argv *a);
/* "ssh -p 2222 -J jump alice@gpu1": what a person would type. */
void ssh_by_hand(const struct host_config *h, struct buf *out);
/* Tells hosts apart: account, host, port, way. */
void ssh_key(const struct host_config *h, struct buf *out);

/* What `ssh -G` prints: the account and the name by which ssh asks for its password. -EINVAL when it has neither. */
int ssh_read_resolved(const char *text, char **ret_user, char **ret_host);
