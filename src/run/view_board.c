/*
 * The status board, <log_dir>/status.txt, as scripts written for gpusched read it: its section 14 byte for byte, plus the
 * reason a job waits for, a mark on a start that isn't confirmed, and "cpu" for a job without cards.
 */
#include "run/view.h"

#include "base/text.h"

#include <string.h>
#include <time.h>

static void put_command(struct buf *out, const struct view_job *j)
{
	const char *command = j->command ? j->command : "";

	buf_puts(out, " — ");
	text_put_clean(out, command, strlen(command));
	buf_putc(out, '\n');
}

static int64_t highest_peak(const struct view_job *j)
{
	int64_t peak = 0;

	for (uint32_t i = 0; i < j->n_use; i++)
		if (j->use[i].peak_mib > peak)
			peak = j->use[i].peak_mib;
	return peak;
}

static void put_gpus(struct buf *out, const struct view_job *j)
{
	buf_puts(out, j->n_gpus ? " gpu[" : " cpu");
	for (uint32_t i = 0; i < j->n_gpus; i++)
		buf_printf(out, "%s%d", i ? "," : "", j->gpus[i]);
	buf_puts(out, j->n_gpus ? "] " : "    ");
}

static void put_running(struct buf *out, const struct view_job *j)
{
	buf_printf(out, "▶ job %-3llu", (unsigned long long)j->no);
	put_gpus(out, j);
	if (j->seconds >= 0)
		buf_printf(out, "%5.0fs", j->seconds);
	else
		buf_puts(out, "    -s");
	if (j->n_gpus) {
		buf_puts(out, "  ");
		for (uint32_t i = 0; i < j->n_use; i++)
			buf_printf(out, "%sgpu%d:%lld", i ? ", " : "", j->use[i].gpu,
				(long long)j->use[i].now_mib);
		buf_printf(out, " MiB (peak %lld)", (long long)highest_peak(j));
	}
	if (j->is_cancelling)
		buf_puts(out, " (cancelling…)");
	else if (j->is_timing_out)
		buf_puts(out, " (timing out…)");
	else if (j->state == VIEW_HANDED)
		buf_puts(out, " (starting…)");
	put_command(out, j);
}

static void put_pending(struct buf *out, const struct view_job *j)
{
	buf_printf(out, "%s job %-3llu pending", j->attempts > 0 ? "↻" : "·",
		(unsigned long long)j->no);
	if (j->declared_mib >= 0)
		buf_printf(out, " vram %lld", (long long)j->declared_mib);
	if (j->attempts > 0)
		buf_printf(out, " retry %lld", (long long)j->attempts);
	if (j->attempts > 0 && j->bumped_mib >= 0)
		buf_printf(out, ", vram→%lld", (long long)j->bumped_mib);
	if (j->why) {
		buf_puts(out, " (");
		text_put_clean(out, j->why, strlen(j->why));
		buf_putc(out, ')');
	}
	put_command(out, j);
}

/* A time-out is a failure even if the job said 0 at the end. */
static const char *done_mark(const struct view_job *j)
{
	const char *verdict = j->verdict ? j->verdict : "";

	if (strcmp(verdict, "cancelled") == 0)
		return "⊘";
	if (strcmp(verdict, "timeout") == 0 || !j->has_returncode || j->returncode != 0)
		return "✗";
	return "✓";
}

static void put_done(struct buf *out, const struct view_job *j)
{
	const char *word = j->verdict ? j->verdict : j->status ? j->status : "ended";

	buf_printf(out, "%s job %-3llu %s (exit ", done_mark(j), (unsigned long long)j->no, word);
	if (j->has_returncode)
		buf_printf(out, "%lld", (long long)j->returncode);
	else
		buf_puts(out, "unknown");
	buf_printf(out, ", peak %lld MiB)", (long long)highest_peak(j));
	put_command(out, j);
}

/* The view holds the first of many. */
static void put_cut(struct buf *out, size_t n)
{
	if (n)
		buf_printf(out, "· … and %zu more pending\n", n);
}

void view_board(const struct run_view *v, struct buf *out)
{
	size_t n_cut = v->n_pending;

	time_t now = (time_t)(v->now_wall_ms / 1000);
	struct tm tm = {0};

	localtime_r(&now, &tm);
	buf_printf(out, "%s status @ %02d:%02d:%02d — %zu running, %zu pending, %zu done\n",
		v->program, tm.tm_hour, tm.tm_min, tm.tm_sec, v->n_running, v->n_pending,
		v->n_done);
	for (size_t i = 0; i < v->n_jobs; i++)
		n_cut -= v->jobs[i].state == VIEW_PENDING;
	for (size_t i = 0; i < v->n_jobs; i++) {
		const struct view_job *j = &v->jobs[i];

		if (j->state == VIEW_DONE && n_cut) {
			put_cut(out, n_cut);
			n_cut = 0;
		}
		switch (j->state) {
		case VIEW_RUNNING:
		case VIEW_HANDED:
			put_running(out, j);
			break;
		case VIEW_PENDING:
			put_pending(out, j);
			break;
		case VIEW_DONE:
			put_done(out, j);
			break;
		case VIEW_DONE_BEFORE:
			break;
		}
	}
	put_cut(out, n_cut);
}
