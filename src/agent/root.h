/*
 * The agent's state directory (protocol.md 1 and 10): one for each user and machine, on a local file system, 0700.
 *
 *   <root>/id                    root id: 32 hex digits, written once, durable
 *   <root>/agent.lock            fcntl lock of the agent that owns the socket
 *   <root>/agent.sock            the socket
 *   <root>/bell                  datagram socket: shims ring here after each change of a state
 *   <root>/fence/<queue>         "incarnation epoch link" of the highest controller answered, durable
 *   <root>/new/<token>/          staging
 *   <root>/claims/<queue>/<job>.<attempt>/   spec, state, lock, perhaps stop, perhaps body
 *   <root>/lanes/<queue>-<word>-<hash>   a lane (lane.h), durable
 *   <root>/retired               one line "<queue>/<job>.<attempt> <token> <end as JSON>" for each claim that's gone
 *   <root>/log                   the agent's own words, bounded
 *
 * Where: $GPUSTOW_AGENT_ROOT (what the administrator set); else <home by passwd>/.gpustow/agent/<host>-<machine8> if the
 * home is on a local file system (statfs: not NFS, CIFS, FUSE ssh, ...), ours and writable; else /var/tmp/gpustow-<uid>.
 * With simulated cards (GPUSTOW_SIM) "/sim-<hash of the cards and their directory>" is appended: they're another machine.
 */
#pragma once

#include "base/err.h"
#include "core/attempt.h"

#include <stdbool.h>

struct retired_index;

struct root {
	char path[3072];
	int fd; /* O_PATH|O_DIRECTORY of it, or O_RDONLY; -1 when zero-initialised through root_init */
	char id[ID_LEN];
	/* Put here by retired_load, taken away by retired_free: claim_make, claim_retire and claim_each ask it. */
	struct retired_index *retired;
	/*
	 * What a shim executes as {"gpustow-agent", "serve", <path>} when it has written an end and nobody hears its bell:
	 * the agent's main sets "/proc/self/exe". NULL: nothing is started. Borrowed.
	 */
	const char *agent_exe;
	unsigned n_spares; /* claims kept for the next ones (claim.c) */
};

void root_init(struct root *r);
/* Where the root is or would be; makes nothing. */
int root_path(char *ret, size_t size, struct err *e);
/* Opens it, making whatever is missing (id durable, made once even when two start at the same time). */
int root_open(struct root *r, const char *path, struct err *e);
void root_done(struct root *r);
/* A sockaddr_un for `name` below the root: the real path when it fits 107 bytes, else by way of /proc/self/fd. */
struct sockaddr_un;
int root_sockaddr(const struct root *r, const char *name, struct sockaddr_un *ret, struct err *e);
/* One datagram to <root>/bell, not waiting: "<queue>/<job>.<attempt>". -ECONNREFUSED or -ENOENT: nobody listens. */
int root_ring(const struct root *r, const char *text);
