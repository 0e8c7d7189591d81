/* Detail and log of the selected job (queue_view.h). */
#include "tui/queue_view.h"

#include "base/cleanup.h"
#include "tui/pane.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAID_LINES = 20 }; /* of a log: all of it is long to listen to */

/* What a pane of wrapped lines is written through: it counts lines, and draws those of the window. */
struct writer {
	struct frame *f;
	struct rect r;
	int first, n; /* n: lines so far */
	struct buf *said; /* not NULL: lines go there as they are, and nothing is drawn */
};

static void put(struct writer *w, struct style s, const char *text)
{
	int k, skip = w->first > w->n ? w->first - w->n : 0, y = w->n - w->first;
	struct rect r = w->r;

	if (w->said) {
		buf_printf(w->said, "%s\n", text);
		return;
	}
	y = y > 0 ? y : 0;
	rect_take_top(&r, y);
	k = grid_wrap(
		&w->f->grid, y < w->r.h ? r : rect_of(w->r.x, w->r.y, w->r.w, 0), s, text, skip);
	w->n += k ? k : 1;
}

/* Lines of a text one by one: each is wrapped by itself. */
static void put_lines(struct writer *w, struct style s, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		CLEANUP(buf_done) struct buf line = {0};

		buf_put(&line, text, n);
		put(w, s, buf_str(&line));
		text += n + (text[n] == '\n');
	}
}

static void labelled(struct writer *w, enum ink ink, const char *label, const char *text)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!text || !*text)
		return;
	buf_printf(&b, w->said ? "%s: " : "%-5s ", label);
	/* One value, whatever lines it has. */
	for (; *text; text++)
		buf_putc(&b, *text == '\n' || *text == '\t' ? ' ' : *text);
	put(w, STYLE(ink), buf_str(&b));
}

static const char *text_of(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static void put_head(
	struct writer *w, const struct queue_model *m, const struct snap_job *j, int64_t wall_ms)
{
	CLEANUP(buf_done) struct buf b = {0};
	const json_t *job = json_object_get(m->shown, "job");
	const char *who = text_of(job, "submitter");
	int64_t pid = json_integer_value(json_object_get(job, "remote_pid"));

	buf_printf(&b, "%s  %s", j->name[0] ? j->name : "(no name)",
		j->is_held ? "held" : snap_state_name(j->state));
	buf_printf(&b, "  priority %" PRId64 "  %" PRId64 " GPU%s", j->priority, j->gpus,
		j->gpus == 1 ? "" : "s");
	if (j->vram_mib >= 0) {
		buf_puts(&b, ", ");
		queue_put_mib(&b, j->vram_mib);
		buf_puts(&b, " each");
	}
	if (j->node[0])
		buf_printf(&b, "  on %s", j->node);
	for (size_t i = 0; i < j->n_cards; i++)
		buf_printf(&b, "%s%s", i ? "," : ":", j->cards[i]);
	if (pid)
		buf_printf(&b, "  pid %" PRId64, pid);
	if (queue_job_elapsed(j, wall_ms) >= 0) {
		buf_puts(&b, "  ");
		queue_put_elapsed(&b, queue_job_elapsed(j, wall_ms));
	}
	if (who)
		buf_printf(&b, "  by %s", who);
	put(w, STYLE_STRONG(INK_PLAIN), buf_str(&b));
}

/* Its place among those that wait there: 0, when it isn't one of them. */
static size_t place_in_lane(const struct queue_model *m, const struct snap_job *j, size_t *ret_n)
{
	const char *colon = strrchr(j->lane, ':');
	char node[sizeof(j->lane)];
	size_t at = 0;
	size_t *v;

	if (!colon)
		return 0;
	snprintf(node, sizeof(node), "%.*s", (int)(colon - j->lane), j->lane);
	v = queue_model_waiting(m, node, colon + 1, ret_n);
	for (size_t i = 0; i < *ret_n; i++)
		if (m->snap.jobs[v[i]].id == j->id)
			at = i + 1;
	free(v);
	return at;
}

static void put_lane(struct writer *w, const struct queue_model *m, const struct snap_job *j)
{
	CLEANUP(buf_done) struct buf b = {0};
	size_t n = 0, at = j->state == SNAP_PENDING ? place_in_lane(m, j, &n) : 0;

	buf_puts(&b, j->lane);
	if (at)
		buf_printf(&b, ", place %zu of %zu", at, n);
	labelled(w, INK_PLAIN, "lane", buf_str(&b));
}

static void put_needs(struct writer *w, const json_t *needs)
{
	CLEANUP(buf_done) struct buf b = {0};
	const json_t *o;
	size_t i;

	json_array_foreach(needs, i, o)
	{
		const char *state = text_of(o, "state"), *name = text_of(o, "name");

		buf_printf(&b, "%s#%" PRId64, i ? ", " : "",
			(int64_t)json_integer_value(json_object_get(o, "id")));
		if (name && *name)
			buf_printf(&b, " %s", name);
		buf_printf(&b, " %s%s", state ? state : "gone",
			json_is_true(json_object_get(o, "any")) ? " (any end)"
								: " (must complete)");
	}
	labelled(w, INK_FOCUS, "after", buf_str(&b));
}

static void put_detail(
	struct writer *w, const struct queue_model *m, const struct snap_job *j, int64_t wall_ms)
{
	const json_t *job = json_object_get(m->shown, "job"), *result;
	bool is_there = m->shown && json_integer_value(json_object_get(m->shown, "id")) == j->id;

	if (!is_there) {
		put(w, STYLE(INK_DIM), "reading...");
		return;
	}
	put_head(w, m, j, wall_ms);
	labelled(w, j->is_held ? INK_WARN : INK_FOCUS, "why", text_of(m->shown, "why"));
	put_lane(w, m, j);
	put_needs(w, json_object_get(m->shown, "needs"));
	labelled(w, INK_PLAIN, "cmd", text_of(job, "command"));
	labelled(w, INK_PLAIN, "cwd", text_of(job, "workdir"));
	labelled(w, INK_FOCUS, "live", text_of(job, "progress"));
	labelled(w, INK_WARN, "held", text_of(job, "held_reason"));
	labelled(w, INK_PLAIN, "note", text_of(job, "notes"));
	labelled(w, INK_BAD, "err", text_of(job, "last_error"));
	labelled(w, INK_DIM, "cause", text_of(job, "cause_text"));
	labelled(w, INK_DIM, "dir", text_of(job, "run_dir"));
	result = json_object_get(job, "result");
	if (result && !json_is_null(result)) {
		CLEANUP_FREE char *s = json_dumps(result, JSON_ENCODE_ANY | JSON_COMPACT);

		labelled(w, INK_PLAIN, "out", s);
	}
}

/* Where the last n of them begin. */
static const char *last_lines(const char *text, int n)
{
	const char *s = text + strlen(text);

	if (s > text && s[-1] == '\n')
		s--;
	while (s > text && (s[-1] != '\n' || --n > 0))
		s--;
	return s;
}

static void put_log(struct writer *w, const struct queue_model *m, const struct snap_job *j)
{
	if (m->log_id != j->id)
		put(w, STYLE(INK_DIM), "reading...");
	else if (m->log_error)
		put(w, STYLE(INK_BAD), m->log_error);
	else if (!m->log || !*m->log)
		put(w, STYLE(INK_DIM), "it has written nothing yet");
	else
		put_lines(w, STYLE(INK_PLAIN), w->said ? last_lines(m->log, SAID_LINES) : m->log);
}

static void write_all(struct writer *w, const struct queue_model *m, const struct snap_job *j,
	bool is_log, int64_t wall_ms)
{
	if (!j)
		put(w, STYLE(INK_DIM), "no job is selected");
	else if (is_log)
		put_log(w, m, j);
	else
		put_detail(w, m, j, wall_ms);
}

static void put_title(const struct queue_model *m, const struct snap_job *j, struct buf *b)
{
	int most = m->text_lines - m->text_page;

	if (!j) {
		buf_puts(b, m->has_log ? "Log" : "Detail");
		return;
	}
	buf_printf(b, "%s of job %" PRId64, m->has_log ? "Log" : "Detail", j->id);
	if (most <= 0)
		return;
	if (!m->has_log)
		buf_printf(b, ", lines %d-%d of %d", m->first_line + 1,
			m->first_line + m->text_page, m->text_lines);
	else if (m->first_line)
		buf_printf(b, ", %d lines above its end", m->first_line);
	else
		buf_puts(b, ", its end");
}

void queue_text_pane(struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms)
{
	CLEANUP(buf_done) struct buf title = {0};
	const struct snap_job *j = queue_model_selected(m);
	struct rect in = rect_of(r.x + 1, r.y + 1, r.w - 2, r.h - 2);
	/* Counted first: a log begins at its end. */
	struct writer count = {f, rect_of(in.x, in.y, in.w, 0), 0, 0, NULL},
		      w = {f, in, 0, 0, NULL};
	int most;

	frame_hit(f, r, QDO_TEXT, 0);
	write_all(&count, m, j, m->has_log, wall_ms);
	m->text_lines = count.n;
	m->text_page = in.h;
	most = count.n > in.h ? count.n - in.h : 0;
	if (m->first_line > most)
		m->first_line = most;
	put_title(m, j, &title);
	pane_draw(f, r, buf_str(&title), false);
	w.first = m->has_log ? most - m->first_line : m->first_line;
	write_all(&w, m, j, m->has_log, wall_ms);
}

void queue_text_say(
	const struct queue_model *m, int64_t job, bool is_log, int64_t wall_ms, struct buf *out)
{
	struct writer w = {.said = out};

	buf_printf(
		out, "%s of job %" PRId64 ":\n", is_log ? "The end of the output" : "Details", job);
	write_all(&w, m, snap_job(&m->snap, job), is_log, wall_ms);
}
