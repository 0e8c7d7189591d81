/* The model's values and rules (queue_model.h): order, scope, activity. What keys do is in queue_keys.c. */
#include "tui/queue_model.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUSY_PCT = 5, BUSY_MIB = 1024 };

const char *queue_sort_name(int s)
{
	static const char *const names[QSORT_N] = {
		"", "queue", "id", "state", "priority", "name", "node", "vram", "used", "time"};

	return s > 0 && s < QSORT_N ? names[s] : "";
}

const char *queue_filter_name(int f)
{
	static const char *const names[QFILTER_N] = {
		"active", "all", "running", "pending", "finished", "held"};

	return f >= 0 && f < QFILTER_N ? names[f] : "";
}

const char *queue_activity_name(enum queue_activity a)
{
	static const char *const names[] = {"RUN", "EXTERNAL", "BUSY", "IDLE", "UNKNOWN"};

	return names[a];
}

enum queue_activity queue_activity(const struct snap_node *n, const struct snap_card *c)
{
	if (strcmp(n->state, "up") != 0 || !c->is_present)
		return ACT_UNKNOWN;
	if (c->n_jobs)
		return ACT_RUN;
	if (c->n_external > 0)
		return ACT_EXTERNAL;
	if (c->util_pct < 0 && c->used_mib < 0)
		return ACT_UNKNOWN;
	/* Work or memory that nobody's process accounts for. */
	if (c->util_pct >= BUSY_PCT || c->used_mib >= BUSY_MIB)
		return ACT_BUSY;
	return c->util_pct < 0 ? ACT_UNKNOWN : ACT_IDLE;
}

/* ---- life ---- */

void queue_model_init(struct queue_model *m)
{
	*m = (struct queue_model){.card = -1,
		.sort = QSORT_TIME,
		.focus = QFOCUS_JOBS,
		.is_auto = true,
		.follows = true};
}

void queue_model_done(struct queue_model *m)
{
	snap_done(&m->snap);
	json_decref(m->shown);
	free(m->log);
	free(m->log_error);
	*m = (struct queue_model){0};
}

void queue_model_notice(struct queue_model *m, bool is_bad, int64_t now_ms, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m->notice, sizeof(m->notice), fmt, ap);
	va_end(ap);
	m->notice_is_bad = is_bad;
	m->notice_ms = now_ms;
}

bool queue_model_tick(struct queue_model *m, int64_t now_ms)
{
	bool changed = false;

	if (m->armed && now_ms - m->armed_ms >= QUEUE_ARMED_MS) {
		m->armed = 0;
		changed = true;
	}
	if (m->notice[0] && now_ms - m->notice_ms >= QUEUE_NOTICE_MS) {
		m->notice[0] = '\0';
		changed = true;
	}
	return changed;
}

void queue_model_want(struct queue_model *m, enum queue_wish what, int64_t id, int64_t by)
{
	if (m->n_wants < QUEUE_WANTS_MAX)
		m->wants[m->n_wants++] = (struct queue_want){.what = what, .id = id, .by = by};
}

struct queue_want queue_model_wish(struct queue_model *m)
{
	struct queue_want w = {0};

	if (!m->n_wants)
		return w;
	w = m->wants[0];
	memmove(m->wants, m->wants + 1, --m->n_wants * sizeof(*m->wants));
	return w;
}

/* ---- what comes ---- */

static int node_position(const struct snap *s, const char *name)
{
	for (size_t i = 0; i < s->n_nodes; i++)
		if (!strcmp(s->nodes[i].name, name))
			return (int)i;
	return -1;
}

/* The same node and card as before, wherever they are now. */
static void keep_place(struct queue_model *m, const struct snap *s)
{
	const struct snap_node *was =
		(size_t)m->node < m->snap.n_nodes ? &m->snap.nodes[m->node] : NULL;
	int at = was ? node_position(s, was->name) : m->has_snap ? (int)s->n_nodes : 0;
	int card = -1;

	if (at >= 0 && was && m->card >= 0 && (size_t)m->card < was->n_cards)
		for (size_t i = 0; i < s->nodes[at].n_cards; i++)
			if (!strcmp(s->nodes[at].cards[i].label, was->cards[m->card].label))
				card = (int)i;
	m->node = at < 0 ? 0 : at;
	m->card = card;
}

void queue_model_take(struct queue_model *m, struct snap *s, int64_t now_ms)
{
	CLEANUP_FREE size_t *order = NULL;
	size_t n;

	keep_place(m, s);
	snap_done(&m->snap);
	m->snap = *s;
	*s = (struct snap){0};
	m->has_snap = true;
	m->error[0] = '\0';
	if (m->armed && (!snap_job(&m->snap, m->armed) ||
				snap_job(&m->snap, m->armed)->state > SNAP_RUNNING))
		m->armed = 0;
	order = queue_model_jobs(m, m->snap.now_ms, &n);
	if (n && (!m->was_moved || !snap_job(&m->snap, m->job)))
		m->job = m->snap.jobs[order[0]].id;
	if (m->has_detail && m->job)
		queue_model_want(m, WISH_SHOW, m->job, 0);
	if (m->has_log && m->job)
		queue_model_want(m, WISH_LOG, m->job, 0);
	(void)now_ms;
}

void queue_model_take_shown(struct queue_model *m, json_t *o)
{
	json_decref(m->shown);
	m->shown = json_incref(o);
}

void queue_model_take_log(struct queue_model *m, int64_t id, const char *text, const char *error)
{
	free(m->log);
	free(m->log_error);
	m->log_id = id;
	m->log = text ? xstrdup(text) : NULL;
	m->log_error = error ? xstrdup(error) : NULL;
}

/* ---- jobs ---- */

bool queue_job_is_starting(const struct snap_job *j)
{
	return j->state == SNAP_PENDING && j->is_bound && !j->lane[0];
}

bool queue_job_is_in_pool(const struct snap_job *j)
{
	return j->state == SNAP_PENDING && !j->is_bound && !j->lane[0] && j->gpus > 0;
}

bool queue_job_has_lane(const struct snap_job *j, const char *node, const char *card)
{
	size_t n = strlen(node);

	return !strncmp(j->lane, node, n) && j->lane[n] == ':' && !strcmp(j->lane + n + 1, card);
}

int64_t queue_job_elapsed(const struct snap_job *j, int64_t wall_ms)
{
	if (j->state == SNAP_RUNNING && j->started_ms)
		return wall_ms > j->started_ms ? wall_ms - j->started_ms : 0;
	return j->state == SNAP_PENDING ? -1 : j->elapsed_ms;
}

const struct snap_job *queue_model_selected(const struct queue_model *m)
{
	return snap_job(&m->snap, m->job);
}

static bool has_card(const struct snap_job *j, const char *label)
{
	for (size_t i = 0; i < j->n_cards; i++)
		if (!strcmp(j->cards[i], label))
			return true;
	return false;
}

static bool is_in_filter(const struct queue_model *m, const struct snap_job *j)
{
	switch (m->filter) {
	case QFILTER_ACTIVE:
		return j->state <= SNAP_RUNNING;
	case QFILTER_RUNNING:
		return j->state == SNAP_RUNNING;
	case QFILTER_PENDING:
		return j->state == SNAP_PENDING;
	case QFILTER_FINISHED:
		return j->state > SNAP_RUNNING;
	case QFILTER_HELD:
		return j->is_held;
	default:
		return true;
	}
}

static bool is_in_scope(const struct queue_model *m, const struct snap_job *j)
{
	size_t n = strlen(m->scope_node);

	switch (m->scope) {
	case SCOPE_NODE:
		return !strcmp(j->node, m->scope_node) ||
		       (!strncmp(j->lane, m->scope_node, n) && j->lane[n] == ':');
	case SCOPE_CARD:
		return (!strcmp(j->node, m->scope_node) && has_card(j, m->scope_card)) ||
		       queue_job_has_lane(j, m->scope_node, m->scope_card);
	case SCOPE_LANE:
		return j->state == SNAP_PENDING &&
		       queue_job_has_lane(j, m->scope_node, m->scope_card);
	case SCOPE_POOL:
		return queue_job_is_in_pool(j);
	default:
		return true;
	}
}

static int compare(int64_t a, int64_t b)
{
	return (a > b) - (a < b);
}

/* Running, pending, ended. */
static int phase(const struct snap_job *j)
{
	return j->state == SNAP_RUNNING ? 0 : j->state == SNAP_PENDING ? 1 : 2;
}

/* In the order in which they get their turn; in a lane by position. */
static int by_turn(const struct snap_job *a, const struct snap_job *b)
{
	int r = compare(phase(a), phase(b));

	if (r)
		return r;
	if (a->state == SNAP_PENDING && a->lane[0] && !strcmp(a->lane, b->lane))
		return compare(a->lane_seq, b->lane_seq);
	if (a->state == SNAP_PENDING) {
		r = compare(a->lane[0] == '\0', b->lane[0] == '\0');
		if (!r && a->lane[0])
			return strcmp(a->lane, b->lane);
		return r ? r : compare(b->priority, a->priority);
	}
	return 0;
}

/* Unknown ones are last, whichever way it goes. */
static int by_figure(int64_t a, int64_t b, bool is_reversed)
{
	if (a < 0 || b < 0)
		return compare(a < 0, b < 0);
	return is_reversed ? compare(a, b) : compare(b, a);
}

static int by_name(const struct queue_model *m, const char *a, const char *b)
{
	if (!*a || !*b)
		return compare(!*a, !*b);
	return m->is_reversed ? strcasecmp(b, a) : strcasecmp(a, b);
}

struct order {
	const struct queue_model *m;
	int64_t now_ms;
};

static int by_sort(const struct order *o, const struct snap_job *a, const struct snap_job *b)
{
	bool back = o->m->is_reversed;

	switch (o->m->sort) {
	case QSORT_ID:
		return back ? compare(b->id, a->id) : compare(a->id, b->id);
	case QSORT_STATE:
		return back ? compare(b->state, a->state) : compare(a->state, b->state);
	case QSORT_PRIORITY:
		return back ? compare(a->priority, b->priority) : compare(b->priority, a->priority);
	case QSORT_NAME:
		return by_name(o->m, a->name, b->name);
	case QSORT_NODE:
		return by_name(o->m, a->node, b->node);
	case QSORT_VRAM:
		return by_figure(a->vram_mib, b->vram_mib, back);
	case QSORT_USED:
		return by_figure(a->used_mib, b->used_mib, back);
	case QSORT_TIME:
		return by_figure(
			queue_job_elapsed(a, o->now_ms), queue_job_elapsed(b, o->now_ms), back);
	default:
		return back ? by_turn(b, a) : by_turn(a, b);
	}
}

static int by_all(const void *pa, const void *pb, void *arg)
{
	const struct order *o = arg;
	const struct snap_job *a = &o->m->snap.jobs[*(const size_t *)pa],
			      *b = &o->m->snap.jobs[*(const size_t *)pb];
	int r = by_sort(o, a, b);

	if (!r)
		r = by_turn(a, b);
	/* The last that ended first; those that wait, the first that came. */
	return r ? r : phase(a) == 2 ? compare(b->id, a->id) : compare(a->id, b->id);
}

size_t *queue_model_jobs(const struct queue_model *m, int64_t now_ms, size_t *ret_n)
{
	size_t *v = xcalloc(m->snap.n_jobs ? m->snap.n_jobs : 1, sizeof(*v)), n = 0;
	struct order o = {m, now_ms};

	for (size_t i = 0; i < m->snap.n_jobs; i++)
		if (is_in_filter(m, &m->snap.jobs[i]) && is_in_scope(m, &m->snap.jobs[i]))
			v[n++] = i;
	qsort_r(v, n, sizeof(*v), by_all, &o);
	*ret_n = n;
	return v;
}

size_t *queue_model_waiting(
	const struct queue_model *m, const char *node, const char *card, size_t *ret_n)
{
	size_t *v = xcalloc(m->snap.n_jobs ? m->snap.n_jobs : 1, sizeof(*v)), n = 0;
	struct queue_model turn = {.snap = m->snap, .sort = QSORT_QUEUE};
	struct order o = {&turn, 0};

	for (size_t i = 0; i < m->snap.n_jobs; i++) {
		const struct snap_job *j = &m->snap.jobs[i];

		if (node ? j->state == SNAP_PENDING && queue_job_has_lane(j, node, card)
			 : queue_job_is_in_pool(j))
			v[n++] = i;
	}
	qsort_r(v, n, sizeof(*v), by_all, &o);
	*ret_n = n;
	return v;
}

const struct snap_job *queue_model_on_card(
	const struct queue_model *m, const struct snap_node *n, const struct snap_card *c, size_t i)
{
	for (size_t k = 0; k < m->snap.n_jobs; k++) {
		const struct snap_job *j = &m->snap.jobs[k];

		if ((j->state == SNAP_RUNNING || queue_job_is_starting(j)) &&
			!strcmp(j->node, n->name) && has_card(j, c->label) && !i--)
			return j;
	}
	return NULL;
}
