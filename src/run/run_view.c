/* The run as a view: plain values for the board, the panel and JSON. Reads the state, changes nothing but what the board owns. */
#include "run/view.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "run/state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOARD_PENDING 200 /* waiting jobs on the board, which is for people; JSON has them all */

struct run_view_memory {
	struct view_job *jobs;
	struct view_card *cards;
	struct view_use *uses; /* of all jobs in flight */
	char **texts;
	size_t n_texts, cap_texts;
};

static const char *keep(struct run_view_memory *m, char *text)
{
	GROW(m->texts, m->n_texts, m->cap_texts);
	m->texts[m->n_texts++] = text;
	return text;
}

/* The reason a pending line waits, a sentence; NULL when nothing was decided yet. */
static const char *why_of(const struct run *r, const struct run_job *j, const struct run_cluster *c,
	struct run_view_memory *m)
{
	struct plan_job p = {.id = j->rec->no,
		.declared_mib = run_job_declared(j),
		.gpus = j->gpus,
		.only_node = -1};
	struct buf b = {0};

	if (j->why_text)
		return j->why_text;
	if (r->is_draining || r->is_stopping)
		return r->is_stopping ? "the run is stopping" : "the run is draining";
	if (c->why_none[0] && j->gpus)
		return keep(m, xstrdup(c->why_none));
	if (!j->why || j->why->what == PLAN_START || (!j->why->need_mib && j->why->why == WHY_NONE))
		return NULL;
	plan_why_text(j->why, &c->node, NULL, &p, &b);
	return keep(m, buf_take(&b));
}

/*
 * A better declaration, in whole 256 MiB: the highest peak and a tenth; after running out of memory what a retry would get,
 * a quarter more than it had. -1 when the one it had is within the tolerance, and for jobs that failed otherwise: how far
 * these came says little of what they need.
 */
static int64_t suggestion(const struct run *r, const struct job_record *rec)
{
	double declared = (double)rec->last->bound_vram, band = r->config->tolerance, steps;
	bool is_oom = rec->status == JOB_FAILED_OOM;
	int64_t peak = 0;

	if (rec->status != JOB_OK && !is_oom)
		return -1;

	for (size_t i = 0; i < rec->last->n_peaks; i++)
		if (rec->last->peaks[i].mib > peak)
			peak = rec->last->peaks[i].mib;
	if (is_oom && peak < rec->last->bound_vram)
		peak = rec->last->bound_vram;
	if (!peak ||
		(!is_oom && rec->last->bound_vram > 0 && (double)peak <= declared * (1 + band) &&
			(double)peak >= declared * (1 - band)))
		return -1;
	/* Up by hand: for ceil() alone every start of the program would load libm. */
	steps = (double)peak * (is_oom ? 1.25 : 1.1) / 256;
	return ((int64_t)steps + ((double)(int64_t)steps < steps)) * 256;
}

static void fill_common(const struct run_job *j, struct view_job *v)
{
	*v = (struct view_job){.no = j->rec->no,
		.name = j->name,
		.command = j->rec->command ? j->rec->command : "",
		.key = j->rec->key,
		.lineno = j->lineno,
		.seconds = -1,
		.declared_mib = run_job_declared(j),
		.want_gpus = j->gpus,
		.attempts = j->rec->last->attempts,
		.bumped_mib = j->rec->next_vram > 0 ? j->rec->next_vram : -1,
		.suggested_mib = -1,
		.log = j->rec->last->log};
}

static void fill_flight(struct run_job *j, struct view_job *v, struct view_use **uses)
{
	const struct run_attempt *a = j->attempt;

	fill_common(j, v);
	v->state =
		j->phase == PHASE_STARTED || j->phase == PHASE_ORPHAN ? VIEW_RUNNING : VIEW_HANDED;
	v->gpus = j->rec->last->gpus;
	v->n_gpus = j->rec->last->n_gpus;
	v->pid = j->phase == PHASE_ORPHAN ? j->rec->last->pgid : a ? a->pid : 0;
	v->is_cancelling = a && a->want_stop;
	v->is_timing_out = a && a->said_timeout;
	v->was_taken_over = j->phase == PHASE_ORPHAN || (a && a->was_taken_over);
	v->is_unknown = j->phase == PHASE_UNKNOWN;
	if (v->is_unknown)
		v->why = j->why_text ? j->why_text
				     : "handed to the node; what became of it is being asked";
	else if (v->state == VIEW_HANDED)
		v->why = "handed to the node, start not confirmed";
	if (!a)
		return;
	v->declared_mib = a->declared_mib;
	v->started_wall_ms = a->started_wall_ms;
	v->seconds =
		a->started_boot_ms ? (double)(clock_boot_ms() - a->started_boot_ms) / 1000 : -1;
	v->is_sampled = a->is_sampled;
	v->use = *uses;
	v->n_use = a->n_use;
	for (uint32_t i = 0; i < a->n_use; i++)
		*(*uses)++ = (struct view_use){.gpu = a->use[i].gpu,
			.now_mib = a->use[i].now_mib,
			.peak_mib = a->use[i].peak_mib};
}

static void fill_done(
	const struct run *r, struct run_job *j, struct view_job *v, struct view_use **uses)
{
	const struct job_record *rec = j->rec;

	fill_common(j, v);
	v->state = j->result ? VIEW_DONE : VIEW_DONE_BEFORE;
	v->status = job_status_name(rec->status);
	v->verdict = j->result ? j->result->verdict : v->status;
	v->seconds = j->result ? j->result->seconds : rec->last->seconds;
	v->gpus = j->result ? j->result->gpus : NULL;
	v->n_gpus = j->result ? j->result->n_gpus : 0;
	v->has_returncode = rec->has_returncode;
	v->returncode = rec->last->returncode;
	v->has_util = rec->has_util;
	v->avg_util = rec->last->avg_util;
	v->is_sampled = rec->last->n_peaks > 0;
	v->suggested_mib = suggestion(r, rec);
	/* What it was started with, which its line may not say any more. */
	if (rec->last->attempt)
		v->declared_mib = rec->last->bound_vram;
	v->why = rec->last->why && *rec->last->why ? rec->last->why : NULL;
	v->use = *uses;
	v->n_use = (uint32_t)rec->last->n_peaks;
	for (size_t i = 0; i < rec->last->n_peaks; i++)
		*(*uses)++ = (struct view_use){
			.gpu = rec->last->peaks[i].gpu, .peak_mib = rec->last->peaks[i].mib};
}

static int by_number(const void *a, const void *b)
{
	const struct run_job *const *x = a, *const *y = b;

	return (*x)->rec->no < (*y)->rec->no ? -1 : (*x)->rec->no > (*y)->rec->no;
}

static void count_done(const struct run_job *j, bool is_live, struct run_view *v)
{
	bool failed = j->rec->status != JOB_OK && j->rec->status != JOB_CANCELLED;

	if (!j->result) {
		v->n_done_before++;
		v->n_failed_before += failed && (j->lineno || !is_live);
		return;
	}
	v->n_done++;
	v->n_failed += failed;
	v->n_cancelled += j->rec->status == JOB_CANCELLED;
	v->n_ok += j->rec->status == JOB_OK;
	v->n_over += !strcmp(j->result->verdict, "over");
	v->n_under += !strcmp(j->result->verdict, "under");
}

/* All jobs by number; the caller frees. They come in that order but for lines that took over an older number. */
static struct run_job **sorted_jobs(const struct run *r)
{
	struct run_job **sorted = xcalloc(r->n_jobs, sizeof(*sorted));
	bool is_sorted = true;

	if (r->n_jobs)
		memcpy(sorted, r->jobs, r->n_jobs * sizeof(*sorted));
	for (size_t i = 1; is_sorted && i < r->n_jobs; i++)
		is_sorted = by_number(&sorted[i - 1], &sorted[i]) < 0;
	if (!is_sorted)
		qsort(sorted, r->n_jobs, sizeof(struct run_job *), by_number);
	return sorted;
}

static bool is_done(const struct run_job *j)
{
	return j->phase == PHASE_IDLE && job_status_is_terminal(j->rec->status);
}

/* Room for all that will be shown. */
static void make_room(const struct run *r, size_t max_pending, struct run_view_memory *m)
{
	size_t n = 0, n_uses = 0, n_pending = 0;

	for (size_t i = 0; i < r->n_jobs; i++) {
		const struct run_job *j = r->jobs[i];

		n += j->phase != PHASE_IDLE || is_done(j);
		n_uses += (j->attempt ? j->attempt->n_use : 0) + j->rec->last->n_peaks;
	}
	for (size_t i = 0; i < r->n_lines && n_pending < max_pending; i++)
		n_pending += run_job_is_pending(r->lines[i]);
	m->uses = xcalloc(n_uses, sizeof(*m->uses));
	m->jobs = xcalloc(n + n_pending, sizeof(*m->jobs));
}

static size_t fill_pending(struct run *r, const struct run_cluster *c, size_t max,
	struct run_view_memory *m, struct view_job *jobs, struct run_view *v)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_lines; i++) {
		if (!run_job_is_pending(r->lines[i]))
			continue;
		v->n_pending++;
		if (n == max)
			continue;
		fill_common(r->lines[i], &jobs[n]);
		jobs[n].state = VIEW_PENDING;
		/* Without a scheduler nobody knows since when. */
		jobs[n].waiting_ms = r->lines[i]->waiting_since_ms
					     ? clock_boot_ms() - r->lines[i]->waiting_since_ms
					     : -1;
		jobs[n++].why = why_of(r, r->lines[i], c, m);
	}
	return n;
}

static void fill_jobs(struct run *r, const struct run_cluster *c, size_t max_pending,
	struct run_view_memory *m, struct run_view *v)
{
	CLEANUP_FREE struct run_job **sorted = sorted_jobs(r);
	struct view_use *uses;
	size_t n = 0;

	make_room(r, max_pending, m);
	uses = m->uses;
	for (size_t i = 0; i < r->n_jobs; i++)
		if (sorted[i]->phase != PHASE_IDLE)
			fill_flight(sorted[i], &m->jobs[n++], &uses);
	v->n_running = n;
	n += fill_pending(r, c, max_pending, m, m->jobs + n, v);
	for (size_t i = 0; i < r->n_jobs; i++) {
		if (!is_done(sorted[i]))
			continue;
		fill_done(r, sorted[i], &m->jobs[n++], &uses);
		count_done(sorted[i], r->base != NULL, v);
	}
	v->jobs = m->jobs;
	v->n_jobs = n;
}

static int64_t present_or(struct value x, int64_t otherwise)
{
	return value_is_present(x) ? x.v : otherwise;
}

static void fill_cards(const struct run *r, const struct run_cluster *c, struct run_view_memory *m,
	struct run_view *v)
{
	m->cards = xcalloc(c->node.n_cards, sizeof(*m->cards));
	for (size_t i = 0; i < c->node.n_cards; i++) {
		const struct gpu_card *card = &r->sample.snap.cards[i];
		const struct card_room *room = &c->cards[i].room;
		struct view_card *to = &m->cards[i];

		*to = (struct view_card){.index = card->index,
			.gi = card->gi,
			.ci = card->ci,
			.uuid = card->uuid,
			.name = card->name,
			.state = gpu_state_name(card->state),
			.total_mib = present_or(card->m[METRIC_MEM_TOTAL], -1),
			.used_mib = present_or(card->m[METRIC_MEM_USED], -1),
			.foreign_mib = room->foreign_mib,
			.budget_mib = room->budgets_mib,
			.promised_mib = room->promised_mib,
			.free_mib = card_free(room),
			.util_pct = (int32_t)present_or(card->m[METRIC_UTIL_GPU], -1),
			.is_usable = c->cards[i].is_usable,
			.n_jobs = room->n_ours};
		for (uint32_t k = 0; k < r->sample.n_rows; k++)
			if (r->sample.rows[k].card == i)
				to->own_mib += r->sample.rows[k].held_mib;
	}
	v->cards = m->cards;
	v->n_cards = c->node.n_cards;
}

struct run_view_memory *run_view_make(struct run *r, size_t max_pending, struct run_view *ret)
{
	struct run_view_memory *m = xcalloc(1, sizeof(*m));
	struct run_cluster c;

	*ret = (struct run_view){.program = r->config->program,
		.jobs_file = r->config->jobs_path,
		.log_dir = r->config->log_dir,
		.now_wall_ms = clock_wall_ms(),
		.scheduler_pid = r->base ? getpid() : 0,
		.is_draining = r->is_draining,
		.is_stopping = r->is_stopping,
		.is_watching = r->config->watch,
		.n_lines = r->n_lines,
		.sample_age_ms = -1};
	run_cluster_make(r, &c);
	if (r->has_sample) {
		ret->source = r->sample.snap.source;
		ret->source_error = r->sample.snap.error[0] ? r->sample.snap.error : NULL;
		ret->sample_age_ms = clock_boot_ms() - r->sample.snap.ended_ms;
	}
	fill_cards(r, &c, m, ret);
	fill_jobs(r, &c, max_pending, m, ret);
	return m;
}

void run_view_free(struct run_view_memory *m)
{
	for (size_t i = 0; i < m->n_texts; i++)
		free(m->texts[i]);
	free(m->texts);
	free(m->jobs);
	free(m->cards);
	free(m->uses);
	free(m);
}

/* A board that can't be written is no reason to stop anything: the journal is what counts. */
void run_board_write(struct run *r)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct run_view v;
	struct run_view_memory *m = run_view_make(r, BOARD_PENDING, &v);

	view_board(&v, &b);
	run_view_free(m);
	fd_replace_at(r->dirfd, "status.txt", b.data, b.len, false);
	r->board_is_old = false;
	r->board_ms = clock_boot_ms();
}
