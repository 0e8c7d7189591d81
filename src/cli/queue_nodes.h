/* Nodes and their cards as people and programs see them: shared by `queue status`, `queue nodes` and `queue cards`. */
#pragma once

#include "base/row.h"
#include "cli/queue_common.h"
#include "queue/cluster.h"

struct nodes_view {
	bool with_procs; /* every process of every card; else foreign ones, three a card */
	bool with_ignored;
	bool is_masked; /* only cards that `gpus:` allows, as `queue status`; else all of them */
	int64_t now_ms; /* wall clock */
};

/* The block of nvidb 1.3: per node a line, its cards, what strangers hold there. */
void queue_nodes_put(const struct cluster *c, const struct nodes_view *v,
	const struct row_style *style, struct buf *out);
/* nvidb 9.4, with keys of ours behind. names: of this queue's jobs in flight, taken from c. */
json_t *queue_nodes_json(const struct cluster *c, const struct nodes_view *v);
/* Names of nodes that were left out because they're ignored. */
json_t *queue_nodes_ignored(const struct cluster *c);
/*
 * NODE:GPU as people type it; a node's name may hold colons itself. -EINVAL, -ENOENT with a sentence: no such node, no such
 * card, a node that was never looked at.
 */
int queue_card_parse(const struct cluster *c, const char *word, size_t *ret_node, size_t *ret_card,
	struct err *e);
