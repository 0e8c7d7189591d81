/*
 * The state of one pass, shared by the files of the controller. One struct hangs over the loop; every function gets it
 * first. Nothing outside of the controller includes this.
 *
 *   links.c     whom to ask, who has answered, how long the others are waited for
 *   exchange.c  what a node says: into *notes*
 *   settle.c    notes into the record, in few transactions; acks after each commit
 *   nodes.c     what the record says of the nodes
 *   needs.c     prerequisites: holds, failures, and their end
 *   lanes.c     the nodes' lanes: bound, sent, acknowledged (lanes.h)
 *   launch.c    the plan's starts: bound together, sent together, waited for a while
 *   never.c     jobs that can't start anywhere
 *   cards.c     faults counted against cards
 *   retention.c what is old enough to go
 *
 * Invariants
 * 1. A note is taken into the record at most once, and acked only after the commit that has it.
 * 2. Nothing is sent to be launched before its bind is committed, nor when the lease may have gone meanwhile.
 * 3. A node that hasn't answered in this pass gets no launch, and nothing is concluded from its silence but that.
 */
#pragma once

#include "core/sample.h"
#include "fleet/link.h"
#include "queue/controller.h"
#include "queue/inventory.h"
#include "queue/judge.h"

#define NODE_NONE ((size_t)-1)
#define NODE_UP "up"
#define NODE_DOWN "down"
#define NODE_SUSPECT "suspect" /* silent, but not for long enough to be down */
#define NODE_TEXT "text" /* answers, but the agent can't run there */
#define NODE_REFUSED "refused" /* answers, but isn't who it should be */

enum contact {
	CONTACT_NONE, /* not asked in this pass: ignored, in its back-off, or nothing is wanted of it */
	CONTACT_OPENING,
	CONTACT_UP, /* said hello; observe and sample are on their way */
	CONTACT_ANSWERED, /* both are here */
	CONTACT_FAILED,
};

struct pass;

struct pass_node {
	struct pass *pass;
	size_t index;
	const char *name;
	const struct queue_node *config; /* NULL: only its row is left, and work of ours there */
	struct host_config made; /* then: whom to ask, from the row */
	const struct store_node *row; /* as it was when the pass began; NULL: none */
	enum contact contact;
	struct link *link;
	struct link_hello hello; /* root_id "" before the first */
	int64_t clock_offset_ms; /* its wall clock less ours */
	unsigned n_downs;
	bool is_stale; /* somebody else's link commands the queue there: it's only asked who it is */
	bool has_asked;
	char *why; /* CONTACT_FAILED: the sentence */
	bool is_stranger; /* another machine than the one that has work of the queue */
	char *refused; /* it isn't who it should be: nothing is placed or settled there */
	bool has_no_agent; /* it can't run there: nvidia-smi's text is read in its place, for people only */
	json_t *claims; /* what `observe` brought: {"JOB.ATTEMPT": claim} */
	json_t *lanes; /* the same: {"n1:0": lane}; NULL: none yet */
	bool is_observed, has_sample;
	struct sample sample;
	struct inventory known, inventory; /* before the pass, and from its sample */
	bool has_refused; /* a launch of this pass: no other one is tried there in it */
	json_t *acks; /* [[job, attempt], ...] of what is on record and not yet told */
};

enum note_kind {
	NOTE_STARTED, /* msg: "started", or a claim */
	NOTE_ENDED, /* msg: "ended", or a claim */
	NOTE_NEVER, /* for certain: it never started and never will */
	NOTE_REFUSED, /* the same, and the node's reason */
	NOTE_CONFLICT, /* the node has another attempt of that name */
	NOTE_REBOOTED, /* its claim is gone with the machine's last boot */
	NOTE_NODE_LOST, /* given up by the queue's rule */
	NOTE_REAPED, /* nothing is left of an attempt that was given up */
	NOTE_STRAY, /* a claim of an attempt that isn't in flight; msg: the claim */
	NOTE_SEEN, /* `seen` */
};

struct note {
	enum note_kind kind;
	size_t node;
	int64_t job, attempt;
	json_t *msg;
	char *text;
	struct store_seen seen; /* progress: in `text` */
	bool is_done;
};

enum flight_state { FLIGHT_BOUND, FLIGHT_SENT, FLIGHT_CLAIMED, FLIGHT_OVER };

/* A launch of this pass. */
struct flight {
	int64_t job, attempt;
	size_t node;
	enum flight_state state; /* OVER: started, ended, refused: nothing more is waited for */
	json_t *launch; /* until it's sent */
	char *body; /* sent ahead of it when it's too large for a message */
	struct staging *staging; /* then: how far that is */
	char token[ID_LEN];
	char *dir; /* on the node */
};

struct pass {
	struct store *store;
	const struct queue_config *config;
	const struct tick_options *options;
	struct tick_summary *sum;
	struct store_lease lease;
	int64_t ttl_ms, renewed_ms;
	struct event_base *base;
	struct event *beat, *on_int, *on_term;
	int signal_no; /* 0: none */
	struct ssh_site *site;
	struct err no_site;
	int64_t begun_ms, answered_ms; /* BOOTTIME: when it began, when the last node answered */
	int64_t now_ms; /* wall clock when it began */
	struct store_nodes rows;
	struct store_jobs live; /* attempts in flight when it began, without their commands */
	struct store_attempts reaps;
	struct pass_node *nodes;
	size_t n_nodes;
	struct note *notes;
	size_t n_notes, cap_notes, n_taken; /* those before n_taken are done */
	struct flight *flights;
	size_t n_flights, cap_flights;
	int64_t flight_news_ms; /* BOOTTIME of the last word about one */
	struct lane_docs *lane_docs; /* on their way; NULL: none */
	size_t n_stops; /* asked for in this pass, their ends not seen yet */
};

/* ---- controller.c ---- */

/* 0, -ESTALE the lease was lost, -EINTR a signal came. Before each transaction and each launch. */
int pass_keep(struct pass *p, struct err *e);
/* One turn of the loop, 20 ms at most. */
void pass_turn(struct pass *p);
int pass_begin(struct pass *p, struct err *e); /* a transaction under the lease */

/* ---- summary.c ---- */

void pass_say_error(struct pass *p, const char *node, int64_t job, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
json_t *gpu_ids_json(const struct job_bind *b);

/* ---- links.c ---- */

int links_open(struct pass *p, struct err *e);
void links_wait(struct pass *p);
/* All that was said has left, or 300 ms have passed. */
void links_flush(struct pass *p);
void links_close(struct pass *p);
bool node_answers(const struct pass_node *n); /* as who it should be */
struct pass_node *pass_node_named(const struct pass *p, const char *name);
/* The node of a bind: by its name; where that isn't there any more, by its root. */
struct pass_node *pass_node_of(const struct pass *p, const struct job_bind *b);

/* ---- exchange.c ---- */

void exchange_begin(struct pass_node *n);
void exchange_message(void *arg, const char *op, const json_t *msg);
/* What the answers mean for the attempts in flight (protocol.md 5). */
void exchange_read(struct pass *p);
/* Stops that are wanted, sent again in each pass until the end is seen. */
void exchange_stops(struct pass *p);
/* Has the node a claim of it, by what `observe` brought? */
bool exchange_has_claim(const struct pass_node *n, int64_t job, int64_t attempt);
/* Was its start or its end told in this pass? */
bool exchange_has_started(const struct pass *p, int64_t job, int64_t attempt);
/* It has a claim, and if its end is wanted, that's said. */
void exchange_stop_wanted(struct pass_node *n, int64_t job, int64_t attempt);
struct note *note_add(
	struct pass *p, enum note_kind kind, size_t node, int64_t job, int64_t attempt);
/* A person cancelled it, and its node can't know of it any more. If its root comes back, what is left of it is stopped. */
void note_give_up(const struct pass_node *n, const struct job *j, const char *why);

/* ---- lanes.c, lanes_send.c ---- */

int lanes_apply(struct pass *p, struct err *e);
void lanes_observed(struct pass_node *n, const json_t *lanes);
bool lanes_have(const struct pass_node *n, int64_t job, int64_t attempt);
/* True: it was about lanes. */
bool lanes_message(struct pass_node *n, const char *op, const json_t *msg);

/* ---- settle.c ---- */

/* All notes that aren't on record yet; then the acks. with_nodes: the nodes' rows in the same transaction. */
int settle(struct pass *p, bool with_nodes, struct err *e);

/* ---- nodes.c ---- */

/* Who is who: twins and strangers. After links_wait. */
void nodes_identify(struct pass *p);
void nodes_take_samples(struct pass *p);
int nodes_put(struct pass *p, struct err *e); /* in a transaction */
/* Attempts on nodes that were silent for too long, as the queue's rule says. */
void nodes_give_up(struct pass *p);
/* May jobs that were there before the store was moved or put back start now? Tells who is to be observed first. */
bool nodes_were_observed(struct pass *p);
/* The largest card that a job may use can hold so much; -1 unknown. */
int64_t nodes_cap_mib(const struct pass *p, const struct job *j);

/* ---- needs_apply.c, never.c, cards.c, launch.c, retention.c ---- */

int needs_apply(struct pass *p, struct err *e);
struct cluster;
struct cluster_plan;
int never_apply(struct pass *p, struct cluster *c, const struct cluster_plan *plan, struct err *e);
/* In a transaction: what an end says of the cards it had. */
int cards_judge(
	struct pass *p, const struct job *j, const struct judgement *g, int64_t xid, struct err *e);
int launch_all(struct pass *p, struct err *e);
struct flight *flight_of(struct pass *p, int64_t job, int64_t attempt);
int retention_apply(struct pass *p, struct err *e);
