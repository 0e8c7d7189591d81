/*
 * The one that decides: it holds the queue's lease, commands the nodes' agents, and turns what they say into the record.
 *
 *   pass: lease -> links to all nodes at once -> observe and sample, one exchange each -> settle, node states, holds
 *         -> plan -> bind (one transaction) -> launch -> claimed/started/refused -> record -> ack -> lease given back
 *
 * What always holds: protocol.md 1 to 6. Every decision is written with the lease's epoch; no launch leaves before its bind
 * is durable; no ack before its end is; a node that doesn't answer costs the others nothing, neither time nor a decision.
 */
#pragma once

#include "config/queue.h"
#include "store/store.h"

#include <event2/event.h>
#include <jansson.h>

struct tick_summary {
	bool ran;
	const char *skipped; /* NULL, "rate_limited", "locked" */
	char *lock_owner;
	int64_t nodes_up, nodes_down, nodes_ignored;
	json_t *finished, *dispatched, *errors, *alerts, *reaped, *held; /* arrays, 9.3 */
};
void tick_summary_done(struct tick_summary *t);
json_t *tick_summary_json(const struct tick_summary *t); /* 9.3, key by key */

struct tick_options {
	const char *home; /* for control sockets */
	const char *owner; /* NULL: host:pid:random */
	bool is_forced; /* no rate limit; waits up to wait_ms for a lease that somebody has */
	int64_t wait_ms;
	int64_t launch_wait_ms; /* how long a start is waited for, from the last word about any, before it's left to the next pass; 0: 1.5 s. launch_timeout at most */
};
/*
 * One pass, with an event loop of its own. Forced and locked: it leaves a nudge, waits, and takes a pass that began after
 * the call for its own (several submits at once cost one pass). 0 also when it was skipped. -EROFS: the store belongs to
 * another machine. A signal (SIGINT, SIGTERM) ends it at the next safe point: -EINTR.
 */
int tick(struct store *s, const struct queue_config *c, const struct tick_options *o,
	struct tick_summary *ret, struct err *e);
