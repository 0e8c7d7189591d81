/* Lanes as people and programs see them: shared by `queue lanes`, `queue lane` and `queue status`. */
#pragma once

#include "base/row.h"
#include "cli/queue_common.h"
#include "queue/cluster.h"

/* nvidb 9.5, the lane-view with all its jobs; *ret is new. */
int queue_lane_json(struct queue *q, const struct cluster *c, const struct cluster_lane *l,
	json_t **ret, struct err *e);
/* One line a lane (nvidb 1.3). only: of that node; NULL. all: those with nothing in them, too. Returns how many there were. */
size_t queue_lanes_put(const struct cluster *c, const char *only, bool all,
	const struct row_style *style, struct buf *out);
/* One lane with its jobs. */
void queue_lane_put(const struct cluster *c, const struct cluster_lane *l,
	const struct row_style *style, struct buf *out);
/*
 * The lane that a word names (cluster_lane_resolve), made when it isn't there yet: *c is loaded anew then. The lane is c's.
 */
int queue_lane_find(struct queue *q, struct cluster *c, const char *word,
	const struct cluster_lane **ret, struct err *e);
/* "head", "tail", a number from 1: -EINVAL with a sentence. option: its name, for that. */
int queue_lane_parse_place(
	const char *option, const char *word, struct store_place *ret, struct err *e);
void queue_lane_candidates(const struct program *p, const void *opts, struct buf *out);
