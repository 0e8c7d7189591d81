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
	int signal_no; /* came when the pass was as good as over, which it came to nevertheless; 0 */
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
 * One pass: a daemon's where one answers within a second (then the summary is its; nothing may be NULL in it but `skipped` and
 * `lock_owner`), else with an event loop of its own. Forced and locked: it leaves a nudge, waits, and takes a pass that began after
 * the call for its own (several submits at once cost one pass). 0 also when it was skipped. -EROFS: the store belongs to
 * another machine. A signal (SIGINT, SIGTERM) ends it at the next safe point: -EINTR.
 */
int tick(struct store *s, const struct queue_config *c, const struct tick_options *o,
	struct tick_summary *ret, struct err *e);

/*
 * The same for a daemon, which goes on for ever on its owner's loop: the lease and the links are held, passes are begun when
 * somebody wants one, and what nodes say between them is on record at once. Nothing here waits, for the record's lock as little as
 * for a node: while somebody has that, a pass stands still, and what nodes say is kept. Callbacks come from the
 * loop, never from within a call, but for those that say so.
 */
struct controller;
struct controller_owner {
	void *arg;
	/* A pass is wanted in so many ms: an agent's word, a link that changed, room that has become free. */
	void (*wants)(void *arg, int64_t in_ms);
	/* Something is on record that wasn't: controller_take has it. */
	void (*happened)(void *arg);
	/* The pass is over: 0, or what broke it off. -ESTALE: the lease was lost, and everything was let go of at once. */
	void (*passed)(void *arg, int r, const struct err *e);
};

/* home: for control sockets; it must outlive the controller. */
struct controller *controller_new(struct event_base *base, struct store *s, const char *home,
	const struct controller_owner *owner);
/* Frees links and all; the lease is given back. */
void controller_free(struct controller *c);
/* It holds from the next pass on, and is used until controller_config says that another one is. */
void controller_configure(struct controller *c, const struct queue_config *config);
const struct queue_config *controller_config(const struct controller *c);
/* -EBUSY with the holder (ret_holder: to free, may be NULL). -ETIMEDOUT: somebody has the record's lock just now, and *e says who. */
int controller_take_lease(struct controller *c, char **ret_holder, struct err *e);
bool controller_has_lease(const struct controller *c);
/* Renewed when it's time; -ESTALE as in `passed`, which is called from within. -EBUSY: somebody has the record's lock. */
int controller_keep(struct controller *c, struct err *e);
/* False: one is under way, or there's no lease. is_asked_for: somebody waits for it, so every node is asked afresh. */
bool controller_begin(struct controller *c, bool is_asked_for);
bool controller_is_passing(const struct controller *c);
/* How long the last pass took, without what it waited for the record's lock. */
int64_t controller_took_ms(const struct controller *c);
/*
 * Somebody has the record's lock, and what is to be written waits for it in memory: the sentence that names him, the controller's,
 * and for how long that has been so. NULL: nothing waits.
 */
const char *controller_waits(const struct controller *c, int64_t *ret_ms);
/* What happened since the last call: counts and texts are the caller's. */
void controller_take(struct controller *c, struct tick_summary *ret);
void tick_summary_add(struct tick_summary *to, const struct tick_summary *from);
bool tick_summary_is_empty(const struct tick_summary *t); /* nothing but errors and counts */
struct tick_summary tick_summary_new(void);
/* From a daemon's JSON. */
void tick_summary_parse(const json_t *o, struct tick_summary *ret);
/* Launches that left at that BOOTTIME or later, and that no word has come of. */
size_t controller_in_the_air(const struct controller *c, int64_t since_ms);
/* Links that have neither come up nor failed yet. */
size_t controller_connecting(const struct controller *c);
/* Samples are pushed at that pace, and one that shows less memory in use wants a pass; 0: no more. */
void controller_watch(struct controller *c, int64_t interval_ms);
/* [{"name", "state", "rtt_ms", "since_ms", "why"}, ...] */
json_t *controller_links(const struct controller *c);
