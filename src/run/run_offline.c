/* A run without a scheduler: the journal of a log directory as a state that can be shown and, under its lock, changed. */
#include "run/run_control.h"

#include "base/alloc.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int lock_it(struct run *r, struct err *e)
{
	pid_t holder = 0;
	int code;

	r->lock_fd = openat(r->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r->lock_fd < 0)
		return err_sys(
			e, -errno, "cannot write in the log directory %s", r->config->log_dir);
	code = fd_lock(r->lock_fd, &holder);
	if (code == -EAGAIN)
		return err_set(e, code,
			"%s is in use by pid %d, which does not answer; try again in a moment",
			r->config->log_dir, (int)holder);
	return code < 0 ? err_sys(e, code, "cannot lock %s/lock", r->config->log_dir) : 0;
}

/* Every key of the journal as a job; those in flight as a dead scheduler left them. */
static void fill(struct run *r)
{
	for (size_t i = 0; i < journal_count(r->journal); i++) {
		struct job_record *rec = journal_at(r->journal, i);
		struct run_job *j;

		if (!rec->no)
			continue;
		j = run_job_of(r, rec);
		if (rec->status != JOB_RUNNING) {
			if (run_job_is_pending(j))
				j->why_text = xstrdup(
					"no scheduler is running; the next run looks at it again");
			continue;
		}
		run_attempt_new(j);
		j->attempt->declared_mib = rec->last->bound_vram;
		j->phase = PHASE_UNKNOWN;
		j->why_text =
			xstrdup("in flight when its scheduler ended; the next run takes it over");
	}
	/* What isn't done is a line as far as the journal can tell. */
	r->lines = xcalloc(r->n_jobs, sizeof(*r->lines));
	for (size_t i = 0; i < r->n_jobs; i++)
		if (run_job_is_pending(r->jobs[i]))
			r->lines[r->n_lines++] = r->jobs[i];
}

int run_offline_open(struct run *r, const struct run_config *c, bool writes, struct err *e)
{
	int code;

	*r = (struct run){.config = c, .dirfd = -1, .lock_fd = -1, .file.inotify = -1, .signal = 0};
	r->track = track_new();
	r->dirfd = open(c->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->dirfd < 0)
		return err_sys(e, -errno,
			"cannot open the log directory %s (--log-dir names another)", c->log_dir);
	code = writes ? lock_it(r, e) : 0;
	if (!code)
		code = journal_load(r->dirfd, &r->journal, e);
	if (!code && writes)
		code = journal_open_append(r->journal, e);
	if (!code)
		fill(r);
	return code;
}

int run_offline_close(struct run *r, bool commits, struct err *e)
{
	int code = commits && r->journal && journal_has_batch(r->journal)
			   ? journal_commit(r->journal, true, e)
			   : 0;

	run_jobs_free(r);
	journal_free(r->journal);
	track_free(r->track);
	sample_done(&r->sample);
	buf_done(&r->out);
	for (size_t i = 0; i < RUN_TEXTS; i++)
		buf_done(&r->texts[i]);
	if (r->dirfd >= 0)
		close(r->dirfd);
	if (r->lock_fd >= 0)
		close(r->lock_fd);
	return code;
}
