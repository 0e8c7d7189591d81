/*
 * A file of a node for a command (`job logs`, `job logs -f`): connects, watches without commanding, hands the bytes over as they
 * come. A follower outlives its connection: when that is cut it connects again and goes on at the byte where it was.
 */
#pragma once

#include "base/err.h"
#include "fleet/stream.h"

struct host_config;

struct node_file_sink {
	void *arg;
	/* As of stream_owner, but told of each place once: what was cut goes on without a word. May be NULL. */
	void (*begun)(void *arg, bool exists, int64_t size, int64_t offset, bool is_cut);
	/* Anything but 0 ends it: node_file_fetch returns that. */
	int (*data)(void *arg, const char *bytes, size_t n);
	/* The connection was lost and is being tried again; once for each loss. May be NULL. */
	void (*cut)(void *arg, const char *why);
};

/*
 * Returns 0 when all has come (with w->follow: the attempt has ended). -EINTR: SIGINT or SIGTERM came. -ETIMEDOUT: for
 * timeout_ms nothing was heard of the file; a follower that has begun waits for as long as it takes. Otherwise *e says
 * what is wrong with the file or the way to it. host NULL: this machine; home: control sockets lie below it.
 */
int node_file_fetch(const struct host_config *host, const char *home, const struct stream_want *w,
	const struct node_file_sink *sink, int64_t timeout_ms, struct err *e);
