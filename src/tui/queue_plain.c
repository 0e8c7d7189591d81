/* The queue in sentences, and lines for keys (queue_plain.h). */
#include "tui/queue_plain.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "tui/queue_act.h"
#include "tui/queue_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAITING_MAX = 10, JOBS_MAX = 100 };

static const char help[] =
	"Enter says all of it anew. A job's number says its details, L and a number the end of its output.\n"
	"With a job's number: c cancels it, r lets it wait anew, + and - change its priority, K and J its place.\n"
	"d and a server's name drains it, or gives it jobs again. f changes which jobs are said, A acknowledges the alerts,\n"
	"t looks at the nodes now, a turns that on and off. q ends; jobs go on.\n";

/* Line by line, for names and commands come from outside. */
static void put_clean(struct buf *out, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		text_put_clean(out, text, n);
		buf_putc(out, '\n');
		text += n + (text[n] == '\n');
	}
}

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

/* ---- the whole ---- */

static void put_counts(const struct queue_model *m, int64_t wall_ms, struct buf *b)
{
	const struct snap *s = &m->snap;
	int64_t bad = s->by_state[SNAP_FAILED] + s->by_state[SNAP_TIMEOUT] + s->by_state[SNAP_LOST],
		age = (wall_ms - s->last_tick_ms) / 1000;

	buf_printf(b,
		"%zu server%s. Jobs: %" PRId64 " running, %" PRId64 " pending, %" PRId64
		" held, %" PRId64 " done, %" PRId64 " failed, %" PRId64 " cancelled.\n",
		s->n_nodes, plural((int64_t)s->n_nodes), s->by_state[SNAP_RUNNING],
		s->by_state[SNAP_PENDING], s->held, s->by_state[SNAP_COMPLETED], bad,
		s->by_state[SNAP_CANCELLED]);
	if (s->last_tick_ms)
		buf_printf(b, "Last look at the nodes: %" PRId64 " s ago.", age > 0 ? age : 0);
	else
		buf_puts(b, "The nodes haven't been looked at yet.");
	buf_puts(b, m->is_auto ? "\n" : " That's done by hand: t.\n");
	if (s->has_keeper)
		buf_printf(b, "The keeper is %s.\n", s->is_keeper_up ? "up" : "DOWN");
	for (size_t i = 0; i < s->n_alerts; i++)
		buf_printf(b, "Alert: %s.\n", s->alerts[i].title);
	if (s->open_alerts > (int64_t)s->n_alerts)
		buf_printf(b, "%" PRId64 " more alerts.\n", s->open_alerts - (int64_t)s->n_alerts);
}

/* "3 wait: 4 lane, 3 lane, 2 x" */
static void put_waiting(
	const struct queue_model *m, const char *node, const char *card, struct buf *b)
{
	size_t n;
	CLEANUP_FREE size_t *v = queue_model_waiting(m, node, card, &n);

	buf_printf(b, "%zu wait%s", n, n ? ": " : "");
	for (size_t i = 0; i < n && i < WAITING_MAX; i++)
		buf_printf(b, "%s%" PRId64 " %s", i ? ", " : "", m->snap.jobs[v[i]].id,
			m->snap.jobs[v[i]].name);
	if (n > WAITING_MAX)
		buf_printf(b, " and %zu more", n - WAITING_MAX);
}

static void put_mib(struct buf *b, const char *before, int64_t mib)
{
	buf_puts(b, before);
	if (mib < 0)
		buf_puts(b, "unknown");
	else
		queue_put_mib(b, mib);
}

static void put_card(const struct queue_model *m, const struct snap_node *n,
	const struct snap_card *c, struct buf *b)
{
	enum queue_activity a = queue_activity(n, c);
	const struct snap_job *j;

	buf_printf(b, "  GPU %s, %s: %s", c->label, c->name, queue_activity_name(a));
	if (c->util_pct >= 0 && a != ACT_UNKNOWN)
		buf_printf(b, ", use %" PRId64 "%%", c->util_pct);
	put_mib(b, ", memory used ", c->used_mib);
	put_mib(b, " of ", c->total_mib);
	put_mib(b, ", free for jobs ", c->free_mib);
	if (!c->is_in_service)
		buf_printf(b, ", out of service%s%s", c->why[0] ? ": " : "", c->why);
	buf_puts(b, ".");
	for (size_t i = 0; (j = queue_model_on_card(m, n, c, i)); i++)
		buf_printf(b, " Job %" PRId64 ", %s.", j->id, j->name);
	if (c->is_lane_paused || c->lane_why[0])
		buf_printf(b, " Its lane is %s%s.", c->is_lane_paused ? "paused" : "blocked: ",
			c->is_lane_paused ? "" : c->lane_why);
	{
		size_t waiting;

		free(queue_model_waiting(m, n->name, c->label, &waiting));
		if (waiting) {
			buf_puts(b, " In its lane ");
			put_waiting(m, n->name, c->label, b);
			buf_puts(b, ".");
		}
	}
	buf_puts(b, "\n");
}

static void put_node(const struct queue_model *m, const struct snap_node *n, struct buf *b)
{
	buf_printf(b, "Server %s: %s%s%s%s, %zu GPU%s.\n", n->name, n->state,
		n->is_drained ? ", drained" : "", n->why[0] ? ", " : "", n->why, n->n_cards,
		plural((int64_t)n->n_cards));
	for (size_t i = 0; i < n->n_cards; i++)
		put_card(m, n, &n->cards[i], b);
}

static void put_needs(const struct snap_job *j, struct buf *b)
{
	for (size_t i = 0; i < j->n_needs; i++)
		buf_printf(b, "%s %" PRId64 "%s", i ? " and" : ", after job", j->needs[i].id,
			j->needs[i].is_any ? " in any end" : "");
}

static void put_job(const struct snap_job *j, int64_t wall_ms, struct buf *b)
{
	buf_printf(b, "  Job %" PRId64 ", %s: %s", j->id, j->name[0] ? j->name : "no name",
		j->is_held		   ? "held"
		: j->is_cancelling	   ? "being cancelled"
		: queue_job_is_starting(j) ? "starting"
					   : snap_state_name(j->state));
	if (j->node[0])
		buf_printf(b, " on %s", j->node);
	for (size_t i = 0; i < j->n_cards; i++)
		buf_printf(b, "%s %s", i ? "," : " GPU", j->cards[i]);
	if (!j->n_cards && j->lane[0])
		buf_printf(b, ", lane %s", j->lane);
	buf_printf(b, ", priority %" PRId64, j->priority);
	if (j->vram_mib >= 0)
		put_mib(b, ", wants ", j->vram_mib);
	if (j->used_mib >= 0)
		put_mib(b, ", uses ", j->used_mib);
	if (queue_job_elapsed(j, wall_ms) >= 0) {
		buf_puts(b, ", for ");
		queue_put_elapsed(b, queue_job_elapsed(j, wall_ms));
	}
	put_needs(j, b);
	if (j->has_exit_code)
		buf_printf(b, ", exit code %" PRId64, j->exit_code);
	if (j->is_held && j->held_why[0])
		buf_printf(b, ", because %s", j->held_why);
	buf_printf(b, ".%s%s%s\n", j->progress[0] ? " It says: " : "", j->progress,
		j->progress[0] ? "." : "");
}

void queue_plain_put(const struct queue_model *m, int64_t wall_ms, struct buf *out)
{
	CLEANUP(buf_done) struct buf b = {0};
	size_t n;
	CLEANUP_FREE size_t *v = queue_model_jobs(m, wall_ms, &n);

	if (!m->has_snap) {
		put_clean(out, m->error[0] ? m->error : "The queue is being read.");
		return;
	}
	put_counts(m, wall_ms, &b);
	for (size_t i = 0; i < m->snap.n_nodes; i++)
		put_node(m, &m->snap.nodes[i], &b);
	buf_puts(&b, "For any GPU ");
	put_waiting(m, NULL, NULL, &b);
	buf_printf(&b, ".\n%zu %s job%s, by %s%s\n", n, queue_filter_name(m->filter),
		plural((int64_t)n), queue_sort_name(m->sort), n ? ":" : ".");
	for (size_t i = 0; i < n && i < JOBS_MAX; i++)
		put_job(&m->snap.jobs[v[i]], wall_ms, &b);
	if (n > JOBS_MAX || m->snap.hidden_jobs)
		buf_printf(&b, "  %" PRId64 " more; `gpustow job ls` has them all.\n",
			(int64_t)(n > JOBS_MAX ? n - JOBS_MAX : 0) + m->snap.hidden_jobs);
	put_clean(out, buf_str(&b));
}

/* ---- lines ---- */

static bool select_job(struct queue_model *m, const char *word, struct buf *out)
{
	char *end;
	long long id = strtoll(word, &end, 10);
	CLEANUP(buf_done) struct buf b = {0};

	if (*word && !*end && snap_job(&m->snap, id)) {
		m->job = id;
		m->was_moved = true;
		return true;
	}
	if (*word)
		buf_printf(&b, "There's no job %s here.", word);
	else
		buf_puts(&b, "That wants a job's number behind it; ? says more.");
	put_clean(out, buf_str(&b));
	return false;
}

static bool select_node(struct queue_model *m, const char *name, struct buf *out)
{
	CLEANUP(buf_done) struct buf b = {0};

	for (size_t i = 0; i < m->snap.n_nodes; i++)
		if (!strcmp(m->snap.nodes[i].name, name)) {
			m->node = (int)i;
			m->card = -1;
			return true;
		}
	if (*name)
		buf_printf(&b, "There's no server %s.", name);
	else
		buf_puts(&b, "That wants a server's name behind it; ? says more.");
	put_clean(out, buf_str(&b));
	return false;
}

/* What a letter does to a job; QDO_NOTHING: it isn't one of these. */
static int action_of(char c)
{
	static const struct {
		char key;
		int action;
	} all[] = {{'c', QDO_CANCEL}, {'r', QDO_REQUEUE}, {'+', QDO_RAISE}, {'=', QDO_RAISE},
		{'-', QDO_LOWER}, {'K', QDO_MOVE_UP}, {'J', QDO_MOVE_DOWN}};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i].key == c)
			return all[i].action;
	return QDO_NOTHING;
}

/* Whether the line was its answer. */
static bool confirm(struct queue_model *m, const char *line, int64_t now_ms, struct buf *out)
{
	bool is_yes = !strcmp(line, "y") || !strcmp(line, "yes");

	m->job = m->armed;
	if (is_yes)
		queue_model_do(m, QDO_CANCEL, 0, now_ms);
	else
		put_clean(out, "It's kept.");
	m->armed = 0;
	return is_yes;
}

static void ask_cancel(const struct queue_model *m, struct buf *out)
{
	const struct snap_job *j = snap_job(&m->snap, m->armed);
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "Cancel job %" PRId64 ", %s? y cancels it, anything else keeps it.",
		m->armed, j ? j->name : "");
	put_clean(out, buf_str(&b));
}

static void ask_text(struct queue_plain *p, struct queue_model *m, bool is_log)
{
	*(is_log ? &p->log : &p->job) = m->job;
	queue_model_want(m, is_log ? WISH_LOG : WISH_SHOW, m->job, 0);
}

static void change_filter(struct queue_model *m, int64_t now_ms, int64_t wall_ms, struct buf *out)
{
	queue_model_do(m, QDO_FILTER, 0, now_ms);
	queue_plain_put(m, wall_ms, out);
}

/* Those without a job; false: it isn't one. */
static bool do_alone(
	struct queue_model *m, char c, int64_t now_ms, int64_t wall_ms, struct buf *out)
{
	switch (c) {
	case 'f':
		change_filter(m, now_ms, wall_ms, out);
		return true;
	case 't':
		queue_model_do(m, QDO_TICK, 0, now_ms);
		return true;
	case 'a':
		queue_model_do(m, QDO_AUTO, 0, now_ms);
		put_clean(out, m->is_auto ? "It looks at the nodes by itself again."
					  : "It looks at the nodes only when you say t.");
		return true;
	case 'A':
		queue_model_do(m, QDO_ACK, 0, now_ms);
		return true;
	case 'q':
		queue_model_do(m, QDO_QUIT, 0, now_ms);
		return true;
	case '?':
		put_clean(out, help);
		return true;
	default:
		return false;
	}
}

static void do_line(struct queue_plain *p, struct queue_model *m, char c, const char *rest,
	int64_t now_ms, struct buf *out)
{
	if (c == 'd') {
		if (select_node(m, rest, out))
			queue_model_do(m, QDO_DRAIN, 0, now_ms);
	} else if (c == 'L') {
		if (select_job(m, rest, out))
			ask_text(p, m, true);
	} else if (action_of(c) == QDO_NOTHING) {
		put_clean(out, "That's none of the words here; ? says them.");
	} else if (select_job(m, rest, out)) {
		queue_model_do(m, action_of(c), 0, now_ms);
		if (m->armed)
			ask_cancel(m, out);
	}
}

void queue_plain_line(struct queue_plain *p, struct queue_model *m, const char *line,
	int64_t now_ms, int64_t wall_ms, struct buf *out)
{
	char text[128];
	size_t n;

	line += strspn(line, " \t");
	n = (size_t)snprintf(text, sizeof(text), "%s", line);
	n = n < sizeof(text) ? n : sizeof(text) - 1;
	while (n && strchr(" \t\r\n", text[n - 1]))
		text[--n] = '\0';
	if (m->armed && confirm(m, text, now_ms, out))
		return;
	if (!n) {
		queue_plain_put(m, wall_ms, out);
	} else if (text[0] >= '0' && text[0] <= '9') {
		if (select_job(m, text, out))
			ask_text(p, m, false);
	} else if (n > 1 || !do_alone(m, text[0], now_ms, wall_ms, out)) {
		do_line(p, m, text[0], text + 1 + strspn(text + 1, " \t"), now_ms, out);
	}
}

/* ---- news ---- */

static void put_once(char *said, size_t size, const char *text, struct buf *out)
{
	if (!strcmp(said, text))
		return;
	snprintf(said, size, "%s", text);
	put_clean(out, text);
}

void queue_plain_news(
	struct queue_plain *p, const struct queue_model *m, int64_t wall_ms, struct buf *out)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!p->has_said && m->has_snap) {
		p->has_said = true;
		queue_plain_put(m, wall_ms, out);
		put_clean(out, "Enter says it anew, ? says what else there is, q ends.");
	}
	if (p->job && m->shown && json_integer_value(json_object_get(m->shown, "id")) == p->job) {
		queue_text_say(m, p->job, false, wall_ms, &b);
		p->job = 0;
	}
	if (p->log && m->log_id == p->log && (m->log || m->log_error)) {
		queue_text_say(m, p->log, true, wall_ms, &b);
		p->log = 0;
	}
	put_clean(out, buf_str(&b));
	put_once(p->notice, sizeof(p->notice), m->notice, out);
	put_once(p->error, sizeof(p->error), m->error, out);
}
