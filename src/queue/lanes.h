/*
 * Lanes in a pass: what their nodes should have, told and acknowledged (docs/wire.md, protocol.md 7). Inside of the controller.
 *
 *   observed ---> what is wanted (cluster_handout.c) ---> binds and generation, one transaction ---> `lane` ---> `lane` back
 *                     ^                                                                                             |
 *                     `------- those that it let go of are unbound: cancelled, moved, handed out anew <--- recorded-'
 *
 * 1. No document leaves before all its entries are bound, and its generation stands in the record.
 * 2. An entry that a node had is only unbound on that node's word "none", in an answer about the document that left it out.
 * 3. A document is only sent when the node's differs from it, or a change waits to be acknowledged.
 */
#pragma once

#include "queue/cluster.h"
#include "queue/pass.h"

enum lane_doc_state { DOC_NONE, DOC_READY, DOC_SENT, DOC_LACKS, DOC_ANSWERED, DOC_FAILED };

struct lane_item {
	int64_t job, attempt;
	char token[ID_LEN];
	bool is_queued;
	json_t *whole; /* it goes whole; NULL: by its name */
};

struct lane_doc {
	const struct cluster_lane *lane;
	struct pass_node *node;
	struct lane_wants wants;
	bool is_paused;
	struct lane_item *items; /* what is sent */
	size_t n, cap, bytes;
	bool is_cut; /* more would be wanted; another round */
	int64_t generation; /* to be acknowledged; 0: nothing is to be sent */
	enum lane_doc_state state;
	json_t *answer; /* DOC_LACKS, DOC_ANSWERED */
	int n_sent;
};

/* Of one round: on the heap, owned by p->lane_docs while it's on its way. */
struct lane_docs {
	struct pass *pass;
	struct cluster cluster;
	struct cluster_plan plan;
	struct lane_doc *v;
	size_t n;
	size_t n_bound; /* in this round */
	bool has_stale; /* some were changed meanwhile: another round */
	int64_t first_id; /* of its questions: one for each of v */
	bool has_sent, is_concluded; /* who hasn't answered isn't waited for any more */
	int64_t until_ms; /* BOOTTIME */
};

/* lanes_send.c: all that have a generation are to be sent. */
int lane_docs_begin(struct lane_docs *d, struct err *e);
/* Goes on as far as it can: bodies, documents, what nodes lack. 1: some are waited for. 0: each has its answer, or is late. */
int lane_docs_turn(struct lane_docs *d, struct err *e);
/* What the node has of that lane; NULL. {"name", "generation", "paused", "concurrency", "queued", "waits", "why"} */
const json_t *lane_of_node(const struct pass_node *n, const char *name);
/*
 * Does what waits there wait under other values than the configuration's? An agent that tells no policy knows of none: its
 * entries keep what they came with.
 */
bool lane_has_other_policy(const struct pass_node *n, const json_t *lane);
/* For store_lane.runner_state: what a node's answer says, for people; to free. */
char *lane_state_text(const json_t *lane);
