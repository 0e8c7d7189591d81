/*
 * The state of one pass, shared by the files of the controller. One struct hangs over the loop; every function gets it
 * first. Nothing outside of the controller includes this.
 *
 *   pass.c      its stages, one after the other: a state machine that waits for nothing by itself
 *   link_pool.c the links, which outlive the passes of a daemon
 *   turn.c      the record's lock, had in turn (turn.h)
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
 * 4. An answer is used only if no launch left for its node behind the question.
 *
 * A pass of a daemon (is_held) waits for no start and no stop: what the nodes say later is taken into the record when it
 * comes (held.c), and a node that's late is in the next pass.
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
struct pass_node;
struct link_pool;

/*
 * A node's link, by its name. What was asked there and what came back lies here, since an answer may come after the pass
 * that asked: the next one takes it.
 */
struct pool_link {
	struct link_pool *pool;
	char *name;
	struct host_config host; /* a copy; hostname NULL: this machine */
	struct pass_node *node; /* of the pass that is, or was last; NULL */
	struct link *link; /* NULL: couldn't be made, or parted from its twin */
	bool is_up;
	struct link_hello hello; /* root_id "" before the first */
	int64_t clock_offset_ms; /* its wall clock less ours */
	int64_t changed_ms; /* BOOTTIME: when it went up or down last */
	char *why; /* it's down; NULL: it's on its way for the first time */
	unsigned n_downs;
	bool is_stale; /* somebody else's link commands the queue there: it's only asked who it is */
	uint64_t above[2]; /* then: that one's incarnation and epoch */
	bool is_parted; /* a twin's */
	bool has_no_agent;
	int64_t retry_ms; /* stale or parted: when it's tried again */

	int64_t asked_ms, answered_ms; /* BOOTTIME; of the last question; answered 0: it owes one */
	int64_t usual_ms; /* how long it takes to answer, smoothed; -1 */
	uint32_t question; /* 0: none in this connection */
	bool is_used_up; /* the answer: something left behind the question, or came since */
	json_t *claims; /* {"JOB.ATTEMPT": claim} */
	json_t *lanes; /* {"n1:0": lane} */
	bool is_observed, has_sample;
	struct sample sample;
	int64_t refused_ms; /* BOOTTIME of its last refusal of a launch; 0 */
	int64_t watch_ms; /* samples are pushed at that pace; 0 */
	int64_t used_mib; /* of the last pushed one, all cards; -1 */
};

struct pass_node {
	struct pass *pass;
	struct pool_link *held; /* NULL: not asked */
	size_t index;
	const char *name;
	const struct queue_node *config; /* NULL: only its row is left, and work of ours there */
	struct host_config made; /* then: whom to ask, from the row */
	const struct store_node *row; /* as it was when the pass began; NULL: none */
	enum contact contact;
	struct link *link; /* of `held`: NULL when there's none */
	struct link_hello hello; /* root_id "" before the first */
	int64_t clock_offset_ms; /* its wall clock less ours */
	bool has_asked; /* for the text that stands for an agent */
	char *why; /* CONTACT_FAILED: the sentence */
	bool is_stranger; /* another machine than the one that has work of the queue */
	char *refused; /* it isn't who it should be: nothing is placed or settled there */
	bool has_no_agent; /* it can't run there: nvidia-smi's text is read in its place, for people only */
	json_t *claims; /* what `observe` brought: {"JOB.ATTEMPT": claim}; borrowed, NULL before */
	json_t *lanes; /* the same: {"n1:0": lane} */
	bool has_sample;
	struct sample sample; /* a shallow copy: it belongs to `held` */
	struct inventory known, inventory; /* before the pass, and from its sample */
	bool is_lane_silent; /* it owes its word about a lane: no other one is sent there in this pass */
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
	int64_t sent_ms; /* BOOTTIME */
	struct pool_link *held; /* where it goes; NULL: that link is gone */
	char token[ID_LEN];
	char *dir; /* on the node */
	bool is_lane; /* an entry of a lane: BOUND until its body is there and was named, never sent by itself */
	int64_t kept_ms; /* BOOTTIME: its body is there, or it was claimed in a lane; 0 */
};

enum pass_stage {
	PASS_ASKS, /* answers are on their way */
	PASS_LANES, /* a round of them: bound, sent */
	PASS_LANE_ANSWERS, /* its documents are on their way */
	PASS_PLANS,
	PASS_STAGES, /* bodies that go ahead of their launches */
	PASS_STARTS, /* launches are in the air */
	PASS_STOPS, /* so are stops */
	PASS_FLUSHES,
	PASS_OVER,
};

struct pass {
	struct store *store;
	const struct queue_config *config;
	const struct tick_options *options;
	struct tick_summary *sum;
	struct store_lease lease;
	int64_t ttl_ms, renewed_ms;
	struct event_base *base;
	struct event *beat, *on_int, *on_term; /* of a pass that drives itself */
	int signal_no; /* 0: none */
	struct link_pool *pool;
	bool is_held; /* a daemon's */
	bool is_asked_for; /* somebody wants to see what it finds */
	bool ends_at_settle; /* one of the notes is an end: room has become free */
	enum pass_stage stage;
	int64_t look_ms; /* BOOTTIME: pass_step wants to be called then at the latest */
	int64_t number; /* store_pass_begin's */
	int round; /* of plans */
	bool is_again; /* another plan is wanted */
	size_t round_note; /* the first note of this round */
	int64_t stage_until_ms; /* BOOTTIME */
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
	struct lane_docs *lane_docs; /* of the round that's on its way; NULL: none */
	int lane_round;
	bool is_lane_again; /* another round of lanes is wanted */
	bool is_lane_late; /* an answer or a body that a round didn't wait for is here: another pass is wanted */
	int64_t lane_ids; /* questions about lanes so far: an answer is never taken for another one's */
	size_t n_sent; /* launches of this round that were in the air at first */
	size_t n_stops; /* asked for in this pass, their ends not seen yet */
};

#define PASS_LAST_TICK "last_tick_at" /* wall clock ms */
#define PASS_NUDGE "nudged_at" /* somebody waits for a pass; wall clock ms */

/* ---- controller.c ---- */

char *controller_owner(void); /* "host:pid:random", to free */

/* ---- pass.c ---- */

int64_t lease_ttl(const struct queue_settings *s);
/* 0, -ESTALE the lease was lost, -EINTR a signal came. Before each transaction and each launch. */
int pass_keep(struct pass *p, struct err *e);
int pass_begin(struct pass *p, struct err *e); /* a transaction under the lease */
/*
 * The pass itself. pass_open: reads the record, gives each node its link, asks. pass_step goes on as far as it can: 1 it's
 * over, 0 it waits for the loop (until p->look_ms), negative it's broken off. pass_close lets go of everything but the pool.
 */
int pass_open(struct pass *p, struct err *e);
int pass_step(struct pass *p, struct err *e);
void pass_close(struct pass *p);
/* It came to its end: when, and which one it was. */
int pass_tell_end(struct pass *p, struct err *e);
void pass_look_at(struct pass *p, int64_t boot_ms); /* look_ms, if that's sooner */

/* ---- held.c ---- */

/* A daemon's: a message came that isn't an answer, or a body is there. */
void held_news(struct pass *p);

/* ---- summary.c ---- */

void pass_say_error(struct pass *p, const char *node, int64_t job, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
json_t *gpu_ids_json(const struct job_bind *b);

void pass_make_lists(struct tick_summary *t);
int64_t pass_newest_alert(struct pass *p);
void pass_say_alerts(struct pass *p, int64_t since);
void pass_count_nodes(struct pass *p);

/* ---- link_pool.c ---- */

struct link_pool {
	struct event_base *base;
	const char *home; /* control sockets */
	struct ssh_site *site;
	struct err no_site;
	const char *queue;
	struct store_lease lease;
	struct pool_link **v;
	size_t n, cap;
	uint64_t n_closed;
	/* Of each: it has answered, or (is_news) gone up or down. Messages go to exchange_message. */
	void (*changed)(void *arg, struct pool_link *l, bool is_news);
	void (*closing)(
		void *arg, struct pool_link *l, bool for_good); /* its streams end without a word */
	void (*pushed)(void *arg, struct pool_link *l, const struct sample *s); /* may be NULL */
	void *arg;
};
void pool_init(struct link_pool *p, struct event_base *base, const char *home, const char *queue,
	const struct store_lease *lease);
/* host NULL: this machine. One whose place has changed is made anew. */
struct pool_link *pool_get(struct link_pool *p, const char *name, const struct host_config *host);
/* Only those with a node stay. */
void pool_sweep(struct link_pool *p);
void pool_clear(struct link_pool *p);
/* Takes want. */
void pool_ask(struct pool_link *l, json_t *want);
bool pool_owes(const struct pool_link *l);
/* Closed and opened again: what was on its way there starts nothing any more. */
void pool_reopen(struct pool_link *l);
/* Two links to one agent would only push each other out: the later of the two lets go. */
void pool_part_twins(struct link_pool *p);
/*
 * Two links of one controller to one agent are of equal rank: the second is turned away before it's told whose root it is. So
 * it asks once more without wanting to command anything.
 */
void pool_ask_the_stale(struct link_pool *p);
/* Those that let go are tried again when their time has come. */
void pool_retry(struct link_pool *p);
void pool_watch(struct link_pool *p, int64_t interval_ms); /* 0: no more */

/* ---- links.c ---- */

void links_open(struct pass *p);
/* True: some are waited for. */
bool links_turn(struct pass *p);
void links_conclude(struct pass *p);
bool links_unsent(const struct pass *p);
void links_close(struct pass *p);
/*
 * -EAGAIN: a node has answered to a later controller of this queue than this one, though the lease is held: the record went back in
 * time, or is one of two copies. It has a new incarnation now, and the lease is given back: another pass is to begin.
 */
int links_check_record(struct pass *p, struct err *e);
bool node_answers(const struct pass_node *n); /* as who it should be */
struct pass_node *pass_node_named(const struct pass *p, const char *name);
/* The node of a bind: by its name; where that isn't there any more, by its root. */
struct pass_node *pass_node_of(const struct pass *p, const struct job_bind *b);
/* Its link went up or down, or has answered. */
void links_changed(struct pass_node *n);

/* ---- exchange.c ---- */

void exchange_begin(struct pass_node *n);
/* A message of the node that isn't an answer to a question. */
void exchange_message(struct pass_node *n, const char *op, const json_t *msg);
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

/* PASS_LANES and PASS_LANE_ANSWERS: 1 it waits, 0 p->stage is the next one, negative. */
int lanes_round(struct pass *p, struct err *e);
int lanes_answers(struct pass *p, struct err *e);
void lanes_drop(struct pass *p); /* the round that's on its way */
void lanes_observed(struct pool_link *l, const json_t *lanes);
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
int cards_judge(struct pass *p, const struct job *j, const struct judgement *g,
	const struct end_facts *f, struct err *e);
/* The same: what the nodes' samples say of them. Before nodes_put. */
int cards_look(struct pass *p, struct err *e);
/* Does anything wait? Then another plan is wanted. */
bool launch_wanted(struct pass *p);
/* A plan and its binds; *ret_n: how many launches are to be sent now. */
int launch_bind(struct pass *p, size_t *ret_n, struct err *e);
/* Bodies first; true: some are under way. */
bool launch_staging(struct pass *p);
int launch_send(struct pass *p, struct err *e);
bool launch_was_refused(const struct pass *p, size_t first_note);
/* Launches in the air that left at that BOOTTIME or later. */
size_t launch_in_the_air(const struct pass *p, int64_t since_ms);
void launch_say_unconfirmed(struct pass *p);
void flight_done(struct flight *f);
void flights_done(struct pass *p);
/* It may have left behind that question, or is about to: what the answer lacks means nothing. */
bool flight_is_open(struct pass *p, int64_t job, int64_t attempt, int64_t asked_ms);
void notes_drop(struct pass *p);
struct flight *flight_add(
	struct pass *p, int64_t job, int64_t attempt, size_t node, const char *token);
struct flight *flight_of(struct pass *p, int64_t job, int64_t attempt);
int retention_apply(struct pass *p, struct err *e);
