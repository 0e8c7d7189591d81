/* The queue screen's selection, its scope, and what is wished to be done to jobs and servers (queue_act.h). */
#include "tui/queue_act.h"

#include "base/cleanup.h"
#include "tui/pane.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- selection ---- */

void queue_act_text_changed(struct queue_model *m)
{
	m->first_line = 0;
	if (m->has_log && m->job)
		queue_model_want(m, WISH_LOG, m->job, 0);
	else if (m->has_detail && m->job)
		queue_model_want(m, WISH_SHOW, m->job, 0);
}

void queue_act_select_job(struct queue_model *m, int64_t id)
{
	if (m->job != id)
		m->armed = 0;
	m->was_moved = true;
	if (m->job == id)
		return;
	m->job = id;
	queue_act_text_changed(m);
}

void queue_act_move_job(struct queue_model *m, int by)
{
	size_t n;
	CLEANUP_FREE size_t *v = queue_model_jobs(m, m->snap.now_ms, &n);
	int at = -1;

	for (size_t i = 0; i < n; i++)
		if (m->snap.jobs[v[i]].id == m->job)
			at = (int)i;
	/* One that isn't shown any more: from the top. */
	if (n)
		queue_act_select_job(m, m->snap.jobs[v[at < 0 ? 0 : list_move(at, by, (int)n)]].id);
}

void queue_act_select_node(struct queue_model *m, int node, int card)
{
	m->node = node;
	m->card = card;
	m->focus = QFOCUS_NODES;
	m->follows = true;
}

void queue_act_move(struct queue_model *m, int by)
{
	if (m->focus == QFOCUS_JOBS)
		queue_act_move_job(m, by);
	else
		queue_act_select_node(m, list_move(m->node, by, (int)m->snap.n_nodes + 1), -1);
}

void queue_act_move_card(struct queue_model *m, int by)
{
	int n = (size_t)m->node < m->snap.n_nodes ? (int)m->snap.nodes[m->node].n_cards : 0;

	queue_act_select_node(m, m->node, list_move(m->card + 1, by, n + 1) - 1);
}

void queue_act_page(struct queue_model *m, int by)
{
	if (m->focus == QFOCUS_JOBS) {
		queue_act_move_job(m, by * (m->job_page > 1 ? m->job_page : 10));
		return;
	}
	m->first_row += by * (m->resource_page > 1 ? m->resource_page - 1 : 1);
	if (m->first_row < 0)
		m->first_row = 0;
	m->follows = false;
}

/* ---- scope ---- */

void queue_act_after_scope(struct queue_model *m)
{
	size_t n;
	CLEANUP_FREE size_t *v = queue_model_jobs(m, m->snap.now_ms, &n);

	m->first_job = 0;
	for (size_t i = 0; i < n; i++)
		if (m->snap.jobs[v[i]].id == m->job)
			return;
	if (n) {
		m->job = m->snap.jobs[v[0]].id;
		queue_act_text_changed(m);
	}
}

void queue_act_scope_to(struct queue_model *m, enum queue_scope scope)
{
	const struct snap_node *n =
		(size_t)m->node < m->snap.n_nodes ? &m->snap.nodes[m->node] : NULL;

	if (!n && scope != SCOPE_NONE)
		scope = SCOPE_POOL;
	m->scope = scope;
	m->scope_node[0] = m->scope_card[0] = '\0';
	if (n && scope != SCOPE_NONE && scope != SCOPE_POOL) {
		snprintf(m->scope_node, sizeof(m->scope_node), "%s", n->name);
		if (m->card >= 0 && (size_t)m->card < n->n_cards)
			snprintf(m->scope_card, sizeof(m->scope_card), "%s",
				n->cards[m->card].label);
	}
	queue_act_after_scope(m);
}

/* A pool's complete list: in its order, whatever was filtered. */
void queue_act_open_waiting(struct queue_model *m, enum queue_scope scope)
{
	m->sort = QSORT_QUEUE;
	m->is_reversed = false;
	if (m->filter != QFILTER_ALL && m->filter != QFILTER_PENDING)
		m->filter = QFILTER_ACTIVE;
	queue_act_scope_to(m, scope);
}

void queue_act_click_place(struct queue_model *m, int64_t arg, bool is_lane)
{
	int node = (int)(arg >> 32), card = (int)(arg & 0xffffffff) - 1;

	if ((size_t)node >= m->snap.n_nodes)
		return;
	queue_act_select_node(m, node, card);
	if (is_lane)
		queue_act_open_waiting(m, SCOPE_LANE);
	else
		queue_act_scope_to(m, card < 0 ? SCOPE_NODE : SCOPE_CARD);
}

void queue_act_clear(struct queue_model *m)
{
	queue_act_scope_to(m, SCOPE_NONE);
}

/* ---- what's done to jobs ---- */

const struct snap_job *queue_act_job_or_notice(struct queue_model *m, int64_t now_ms)
{
	const struct snap_job *j = queue_model_selected(m);

	if (!j)
		queue_model_notice(m, true, now_ms, "no job is selected");
	/* Who does something to it means this one, whichever is first by the next look. */
	m->was_moved |= j != NULL;
	return j;
}

void queue_act_cancel(struct queue_model *m, int64_t now_ms)
{
	const struct snap_job *j = queue_act_job_or_notice(m, now_ms);

	if (!j)
		return;
	if (j->state > SNAP_RUNNING) {
		queue_model_notice(m, true, now_ms, "job %" PRId64 " has ended already: %s", j->id,
			snap_state_name(j->state));
		return;
	}
	if (m->armed == j->id) {
		m->armed = 0;
		queue_model_want(m, WISH_CANCEL, j->id, 0);
		return;
	}
	m->armed = j->id;
	m->armed_ms = now_ms;
}

void queue_act_requeue(struct queue_model *m, int64_t now_ms)
{
	const struct snap_job *j = queue_act_job_or_notice(m, now_ms);

	if (!j)
		return;
	if (j->state <= SNAP_RUNNING)
		queue_model_notice(m, true, now_ms,
			"job %" PRId64 " is %s: only one that has ended can wait anew", j->id,
			snap_state_name(j->state));
	else
		queue_model_want(m, WISH_REQUEUE, j->id, 0);
}

void queue_act_change_waiting(
	struct queue_model *m, enum queue_wish what, int64_t by, int64_t now_ms)
{
	const struct snap_job *j = queue_act_job_or_notice(m, now_ms);

	if (!j)
		return;
	if (j->state != SNAP_PENDING) {
		queue_model_notice(m, true, now_ms,
			"job %" PRId64 " is %s: order and priority are of those that wait", j->id,
			snap_state_name(j->state));
		return;
	}
	if (what == WISH_MOVE) {
		m->sort = QSORT_QUEUE;
		m->is_reversed = false;
	}
	queue_model_want(m, what, j->id, by);
}

void queue_act_drain(struct queue_model *m, int64_t now_ms)
{
	const struct snap_node *n =
		(size_t)m->node < m->snap.n_nodes ? &m->snap.nodes[m->node] : NULL;

	if (!n) {
		queue_model_notice(m, true, now_ms, "no server is selected: Tab goes to them");
		return;
	}
	queue_model_want(m, n->is_drained ? WISH_RESUME : WISH_DRAIN, 0, 0);
	if (m->n_wants)
		snprintf(m->wants[m->n_wants - 1].node, sizeof(m->wants[0].node), "%s", n->name);
}
