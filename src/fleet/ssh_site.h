/*
 * What all SSH links of one program share: the private directory of control sockets, the configuration file that is given
 * to ssh (and by it to the ssh of each jump host), the agents that are carried along, the gate for handshakes, and what
 * earlier contacts have taught about a host.
 *
 *   <dir>/config-<hash>     ours first, the user's and the system's included, our defaults last
 *   <dir>/<%C>              ssh's master sockets; ssh removes them when they have been unused for a minute
 *   <dir>/gpustow-askpass   a link to this program, for SSH_ASKPASS
 *   <dir>/ask-<hex>         the socket at which a link's questions arrive
 *   <dir>/host-<hash>       "x86_64 1700000000000 <hash of an agent that doesn't run there or ->"
 */
#pragma once

#include "base/err.h"
#include "fleet/boot.h"
#include "fleet/gate.h"

#include <event2/event.h>

#define SSH_PERSIST_S 60
#define SSH_DIR_MAX \
	48 /* a socket's name has 107 bytes: dir, 40 of %C, 17 that ssh adds while it binds */

struct ssh_site {
	char dir[SSH_DIR_MAX + 1];
	char *config; /* path */
	char *askpass; /* path */
	struct gate *gate;
	struct boot_agent agents[4];
	size_t n_agents;
};

/* can_ask: passwords and host keys may be asked for, so ssh isn't put in batch mode. */
int ssh_site_new(struct event_base *base, const char *home, bool can_ask, struct ssh_site **ret,
	struct err *e);
void ssh_site_free(struct ssh_site *s);

/* The text of the configuration file; pure. */
void ssh_config_text(const char *dir, bool is_batch, int persist_s, struct buf *out);

/* What is remembered of a host; `key` is any text that tells hosts apart. Zeroed when nothing is. */
struct ssh_memory {
	char cpu[32];
	int64_t seen_wall_ms; /* when it was last reached; 0: the last try failed */
	char refused[65]; /* an agent that was sent there and doesn't run */
};
void ssh_site_recall(const struct ssh_site *s, const char *key, struct ssh_memory *ret);
void ssh_site_remember(const struct ssh_site *s, const char *key, const struct ssh_memory *m);
