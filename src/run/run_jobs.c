/*
 * The file's lines and the journal's keys become the jobs of a run. It decides which line is which job, and what a job
 * waits for besides memory; it doesn't place and doesn't settle.
 */
#include "run/state.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "run/jobsfile.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

struct run_attempt *run_attempt_new(struct run_job *j)
{
	run_attempt_free(j);
	j->attempt = xcalloc(1, sizeof(*j->attempt));
	return j->attempt;
}

void run_attempt_free(struct run_job *j)
{
	if (j->attempt)
		json_decref(j->attempt->launch);
	free(j->attempt);
	j->attempt = NULL;
}

struct run_job *run_job_of(struct run *r, struct job_record *rec)
{
	struct run_job *j = rec->user;

	if (j)
		return j;
	j = xcalloc(1, sizeof(*j));
	j->rec = rec;
	j->vram_mib = UNDECLARED;
	j->gpus = 1;
	j->retries = -1;
	rec->user = j;
	GROW(r->jobs, r->n_jobs, r->cap_jobs);
	r->jobs[r->n_jobs++] = j;
	return j;
}

static void job_free(struct run_job *j)
{
	run_attempt_free(j);
	free(j->result);
	free(j->why_text);
	free(j->name);
	free(j->after);
	free(j->gpu);
	j->rec->user = NULL;
	free(j);
}

void run_jobs_free(struct run *r)
{
	for (size_t i = 0; i < r->n_jobs; i++)
		job_free(r->jobs[i]);
	free(r->jobs);
	free(r->lines);
	r->jobs = NULL;
	r->lines = NULL;
	r->n_jobs = r->n_lines = 0;
}

bool run_job_is_pending(const struct run_job *j)
{
	return j->phase == PHASE_IDLE && !job_status_is_terminal(j->rec->status);
}

/* A bump counts until the line is edited to more (W11). */
int64_t run_job_declared(const struct run_job *j)
{
	if (j->rec->next_vram > 0 && j->rec->next_vram > j->vram_mib)
		return j->rec->next_vram;
	return j->vram_mib;
}

struct run_job *run_job_attempt(struct run *r, uint64_t job, uint32_t attempt)
{
	struct job_record *rec = journal_find_no(r->journal, job);
	struct run_job *j = rec ? rec->user : NULL;

	return j && j->attempt && rec->last->attempt == attempt ? j : NULL;
}

struct run_job *run_job_find(struct run *r, const char *word)
{
	int64_t no;

	for (size_t i = 0; i < r->n_lines; i++)
		if (r->lines[i]->name && !strcmp(r->lines[i]->name, word))
			return r->lines[i];
	if (!parse_int64(word, &no) && no > 0) {
		struct job_record *rec = journal_find_no(r->journal, (uint64_t)no);

		return rec ? run_job_of(r, rec) : NULL;
	}
	return NULL;
}

static void set_text(char **slot, const char *text)
{
	free(*slot);
	*slot = text ? xstrdup(text) : NULL;
}

static void take_line(struct run *r, struct run_job *j, const struct jobline *line, uint32_t order)
{
	if (!j->lineno && run_job_is_pending(j))
		j->waiting_since_ms = clock_boot_ms();
	if (j->vram_mib != line->vram_mib || j->gpus != line->gpus)
		j->never_n = 0;
	j->lineno = line->lineno;
	j->order = order;
	j->vram_mib = line->vram_mib;
	j->gpus = line->gpus;
	j->timeout_ms = line->timeout_ms;
	j->retries = line->retries;
	j->cancel |= line->cancel;
	j->line_cancel = line->cancel;
	set_text(&j->name, line->name);
	set_text(&j->after, line->after);
	set_text(&j->gpu, line->gpu);
}

/* What earlier runs made of a line's job, when this run first has it: done, or failed and to be run again. */
static void look_back(struct run *r, struct run_job *j)
{
	enum job_status status = j->rec->status;

	if (j->result || j->was_ok || !job_status_is_terminal(status))
		return;
	if (status == JOB_OK) {
		j->was_ok = true;
		if (r->is_introduced)
			run_jobs_say_skipped(r, j);
	} else if (r->config->retry_failed && status != JOB_CANCELLED) {
		journal_retry(r->journal, j->rec);
	}
}

void run_jobs_say_skipped(struct run *r, const struct run_job *j)
{
	run_say(r, "job %" PRIu64 " already completed ok — skipping (journal): %s", j->rec->no,
		run_text(r, j->rec->command));
}

/* Lines with `cancel` are numbered first, as gpusched does. */
static void number_lines(struct run *r, const struct jobsfile *f)
{
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < f->n; i++) {
			const struct jobline *line = &f->lines[i];
			struct job_record *rec = journal_find(r->journal, line->key);

			if (line->cancel == (pass == 0) && (!rec || !rec->no))
				journal_seen(r->journal, line->key, line->command);
		}
	}
}

static void say_new_list(struct run *r, size_t vanished)
{
	if (vanished)
		run_warn(r,
			"%zu duplicate line%s gone from the file: of equal lines, the later one takes over the earlier one's "
			"number, so what is left may count as done",
			vanished, vanished == 1 ? " is" : "s are");
}

/* Equal commands are told apart by their order only; a removed one renames the others (W9). */
static bool is_renamed(const struct run_job *j, const struct jobsfile *f)
{
	const char *hash = strchr(j->rec->key, '#');

	if (j->lineno || !hash)
		return false;
	for (size_t i = 0; i < f->n; i++)
		if (!strncmp(f->lines[i].key, j->rec->key, (size_t)(hash - j->rec->key) + 1))
			return true;
	return false;
}

static void take_list(struct run *r, const struct jobsfile *f)
{
	struct run_job **before = r->lines;
	size_t n_before = r->n_lines, vanished = 0;

	number_lines(r, f);
	for (size_t i = 0; i < n_before; i++)
		before[i]->lineno = 0;
	r->lines = xcalloc(f->n, sizeof(*r->lines));
	r->n_lines = f->n;
	for (size_t i = 0; i < f->n; i++) {
		r->lines[i] = run_job_of(r, journal_find(r->journal, f->lines[i].key));
		take_line(r, r->lines[i], &f->lines[i], (uint32_t)i);
		look_back(r, r->lines[i]);
	}
	for (size_t i = 0; i < n_before; i++)
		vanished += is_renamed(before[i], f);
	free(before);
	say_new_list(r, vanished);
	r->board_is_old = true;
}

void run_jobs_give_back(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

/* Every error of the file, one a line, as "jobs file line N: ...". */
static void put_errors(const struct jobsfile *f, struct buf *b, const char *sep)
{
	for (size_t i = 0; i < f->n_errors && i < 20; i++)
		buf_printf(b, "%sjobs file line %u: %s", i ? sep : "", f->errors[i].lineno,
			f->errors[i].text);
	if (f->n_errors > 20)
		buf_printf(b, "%sand %zu more", sep, f->n_errors - 20);
}

int run_jobs_read_first(struct run *r, struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP(jobsfile_done) struct jobsfile f = {0};

	if (watchfile_open(&r->file, r->config->jobs_path, e) < 0)
		return -EINVAL;
	jobsfile_parse(buf_str(&r->file.believed), r->file.believed.len,
		journal_highest_no(r->journal), &f);
	if (f.n_errors) {
		put_errors(&f, &text, "\n");
		return err_set(e, -EINVAL, "%s", buf_str(&text));
	}
	if (!f.n && !r->config->watch)
		return err_set(
			e, -EINVAL, "jobs file contains no jobs (use --watch to wait for some)");
	take_list(r, &f);
	return 0;
}

static void keep_previous(struct run *r, const char *why)
{
	if (!r->file_error || strcmp(r->file_error, why)) {
		run_warn(r, "jobs file unreadable, keeping previous queue: %s", run_text(r, why));
		set_text(&r->file_error, why);
	}
}

void run_jobs_reread(struct run *r)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP(jobsfile_done) struct jobsfile f = {0};
	struct err e = {0};
	const char *bytes;
	size_t n;
	enum watch_result result;

	if (r->config->only_settle)
		return;
	result = watchfile_look(
		&r->file, clock_boot_ms(), (int64_t)(r->config->poll_s * 1000), &bytes, &n, &e);
	if (result == WATCH_FAILED)
		keep_previous(r, e.text);
	else if (r->has_file_error)
		set_text(&r->file_error, NULL);
	r->has_file_error = result == WATCH_FAILED;
	if (result != WATCH_NEW)
		return;
	jobsfile_parse(bytes, n, journal_highest_no(r->journal), &f);
	if (f.n_errors) {
		put_errors(&f, &text, "; ");
		keep_previous(r, buf_str(&text));
		return;
	}
	set_text(&r->file_error, NULL);
	take_list(r, &f);
	jobsfile_done(&f);
	run_jobs_give_back();
}
