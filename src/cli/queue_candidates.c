/*
 * Jobs, nodes and cards for shell completion. Read only: a queue that isn't there is not made, a configuration that can't be read
 * offers nothing, and nothing is said.
 */
#include "cli/queue_candidates.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/queue_common.h"
#include "cli/queue_lanes.h"
#include "queue/inventory.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { JOBS_MAX = 1000, TEXT_CELLS = 60 };

/* As queue_open, without what it says and without making one. */
static int open_quietly(struct queue *q, const struct program *p, const void *opts)
{
	struct store_options o = {.mode = STORE_READ};
	struct err e = {0};
	int r = queue_find_quietly(q, p, opts, &e);

	return r ? r : store_open(q->path, &o, &q->store, &e);
}

/* One "word<TAB>what it is" a line. */
static void put(struct buf *out, const char *word, const char *text)
{
	text_put_clean(out, word, strlen(word));
	buf_putc(out, '\t');
	queue_put_line(out, text, TEXT_CELLS);
	buf_putc(out, '\n');
}

void queue_job_candidates(const struct program *p, const void *opts, struct buf *out)
{
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(store_jobs_done) struct store_jobs l = {0};
	struct store_question question = {.newest = true, .limit = JOBS_MAX, .command_max = 200};

	if (open_quietly(&q, p, opts) || store_jobs(q.store, &question, &l, &(struct err){0}))
		return;
	/* The latest are the likeliest. */
	for (size_t i = l.n; i-- > 0;) {
		CLEANUP(buf_done) struct buf text = {0};
		const struct job *j = &l.v[i];
		char id[24];

		snprintf(id, sizeof(id), "%" PRId64, j->id);
		buf_printf(&text, "%s: %s", record_state(j),
			j->name && *j->name ? j->name : j->command);
		put(out, id, buf_str(&text));
	}
}

void queue_node_candidates(const struct program *p, const void *opts, struct buf *out)
{
	CLEANUP(queue_close) struct queue q = {0};

	if (queue_find_quietly(&q, p, opts, &(struct err){0}))
		return;
	for (size_t i = 0; i < q.config.n_nodes; i++) {
		const struct queue_node *n = &q.config.nodes[i];

		put(out, n->name,
			n->host && n->host->hostname ? n->host->hostname : "this machine");
	}
}

void queue_card_candidates(const struct program *p, const void *opts, struct buf *out)
{
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(store_nodes_done) struct store_nodes rows = {0};

	if (open_quietly(&q, p, opts) || store_nodes(q.store, &rows, &(struct err){0}))
		return;
	for (size_t i = 0; i < rows.n; i++) {
		CLEANUP(inventory_done) struct inventory v = {0};

		if (inventory_decode(rows.v[i].inventory, &v, &(struct err){0}))
			continue;
		for (size_t k = 0; k < v.n_cards; k++) {
			CLEANUP(buf_done) struct buf word = {0};

			char label[GPU_LABEL_LEN];

			inv_card_label(&v.cards[k], label);
			buf_printf(&word, "%s:%s", rows.v[i].name, label);
			put(out, buf_str(&word), v.cards[k].name ? v.cards[k].name : "");
		}
	}
}

/* Lanes there are, and the jobs in them. */
void queue_lane_candidates(const struct program *p, const void *opts, struct buf *out)
{
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(store_lanes_done) struct store_lanes lanes = {0};
	CLEANUP(store_jobs_done) struct store_jobs l = {0};
	struct store_question question = {
		.order = STORE_BY_LANE, .limit = JOBS_MAX, .command_max = 200, .no_needs = true};

	if (open_quietly(&q, p, opts) || store_lanes(q.store, &lanes, &(struct err){0}) ||
		store_jobs(q.store, &question, &l, &(struct err){0}))
		return;
	for (size_t i = 0; i < lanes.n; i++)
		put(out, lanes.v[i].name, lanes.v[i].is_paused ? "lane, paused" : "lane");
	for (size_t i = 0; i < l.n; i++) {
		CLEANUP(buf_done) struct buf text = {0};
		const struct job *j = &l.v[i];
		char id[24];

		snprintf(id, sizeof(id), "%" PRId64, j->id);
		buf_printf(&text, "%s: %s", j->lane, j->name && *j->name ? j->name : j->command);
		put(out, id, buf_str(&text));
	}
}
