/* The table of jobs: see job_table.h. */
#include "cli/job_table.h"

#include "base/cleanup.h"
#include "cli/queue_common.h"
#include "queue/record_json.h"
#include "show/table.h"

#include <inttypes.h>

enum { COMMAND_CELLS = 60, TEXT_CELLS = 40, NAME_CELLS = 28 };

enum column {
	ID,
	STATE,
	NAME,
	NODE,
	GPU,
	VRAM,
	USED,
	ELAPSED,
	RC,
	HELD,
	PROGRESS,
	NOTE,
	COMMAND,
	COLUMN_N
};

static const struct table_column all_columns[COLUMN_N] = {
	[ID] = {"ID"},
	[STATE] = {"STATE"},
	[NAME] = {"NAME", .min = 8},
	[NODE] = {"NODE"},
	[GPU] = {"GPU"},
	[VRAM] = {"VRAM", .is_number = true, .drop = 5},
	[USED] = {"USED", .is_number = true, .drop = 3},
	[ELAPSED] = {"ELAPSED", .is_number = true, .drop = 4},
	[RC] = {"RC", .is_number = true, .drop = 6},
	[HELD] = {"HELD BY", .min = 12},
	[PROGRESS] = {"PROGRESS", .min = 10},
	[NOTE] = {"NOTE", .drop = 1, .min = 8},
	[COMMAND] = {"COMMAND", .drop = 2, .min = 12},
};

enum row_color job_color(const struct job *j)
{
	switch (j->state) {
	case JOB_STATE_RUNNING:
		return ROW_GREEN;
	case JOB_STATE_FAILED:
	case JOB_STATE_LOST:
	case JOB_STATE_TIMEOUT:
		return ROW_RED;
	case JOB_STATE_PENDING:
		return job_is_held(j) ? ROW_AMBER : ROW_PLAIN;
	default:
		return ROW_DIM;
	}
}

void job_cards_put(const struct job *j, struct buf *out)
{
	if (j->state == JOB_STATE_PENDING || !j->bind.n_cards) {
		buf_putc(out, '-');
		return;
	}
	for (size_t i = 0; i < j->bind.n_cards; i++) {
		const struct job_card *c = &j->bind.cards[i];

		if (c->index >= 0 && c->uuid[0] != 'M')
			buf_printf(out, "%s%d", i ? "," : "", c->index);
		else
			buf_printf(out, "%s%.12s", i ? "," : "", c->uuid);
	}
}

struct shown {
	bool held, progress, note;
};

static void put_line(struct table *t, enum row_color color, const char *text, size_t cells)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!text || !*text) {
		table_absent(t);
		return;
	}
	queue_put_line(&b, text, cells);
	table_text(t, color, "%s", buf_str(&b));
}

static void put_size(struct table *t, int64_t mib)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (mib < 0) {
		table_absent(t);
		return;
	}
	queue_put_size(&b, mib);
	table_text(t, ROW_TEAL, "%s", buf_str(&b));
}

static void put_elapsed(struct table *t, int64_t ms)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (ms < 0) {
		table_absent(t);
		return;
	}
	queue_put_duration(&b, ms);
	table_text(t, ROW_DIM, "%s", buf_str(&b));
}

static void put_job(struct table *t, const struct job *j, const struct shown *shown, int64_t now_ms)
{
	CLEANUP(buf_done) struct buf cards = {0};
	const char *node =
		j->state != JOB_STATE_PENDING && j->bind.node ? j->bind.node : j->node_constraint;

	job_cards_put(j, &cards);
	table_row(t);
	table_text(t, ROW_BOLD, "%" PRId64, j->id);
	table_text(t, job_color(j), "%s%s", record_state(j),
		j->cancel_ms && j->is_bound ? " (cancelling)" : "");
	put_line(t, ROW_PLAIN, j->name, NAME_CELLS);
	put_line(t, ROW_PLAIN, node, NAME_CELLS);
	table_text(t, ROW_TEAL, "%s", buf_str(&cards));
	put_size(t, j->gpus ? j->vram_mib : -1);
	put_size(t, j->gpu_mem_mib > 0 ? j->gpu_mem_mib : -1);
	put_elapsed(t, record_elapsed_ms(j, now_ms));
	if (j->has_exit_code)
		table_text(t, j->exit_code ? ROW_RED : ROW_DIM, "%" PRId64, j->exit_code);
	else
		table_absent(t);
	if (shown->held)
		put_line(t, ROW_AMBER, j->held_reason, TEXT_CELLS);
	if (shown->progress)
		put_line(t, ROW_TEAL, j->progress, TEXT_CELLS);
	if (shown->note)
		put_line(t, ROW_DIM, j->notes, TEXT_CELLS);
	put_line(t, ROW_DIM, j->command, COMMAND_CELLS);
}

void job_table_put(const struct job *jobs, size_t n, int64_t now_ms, const struct row_style *style,
	struct buf *out)
{
	struct table_column columns[COLUMN_N];
	CLEANUP(table_done) struct table t;
	struct shown shown = {0};
	size_t n_columns = 0;

	for (size_t i = 0; i < n; i++) {
		shown.held |= job_is_held(&jobs[i]);
		shown.progress |= jobs[i].progress && *jobs[i].progress;
		shown.note |= jobs[i].notes && *jobs[i].notes;
	}
	for (int k = 0; k < COLUMN_N; k++)
		if ((k != HELD || shown.held) && (k != PROGRESS || shown.progress) &&
			(k != NOTE || shown.note))
			columns[n_columns++] = all_columns[k];
	table_init(&t, columns, n_columns);
	for (size_t i = 0; i < n; i++)
		put_job(&t, &jobs[i], &shown, now_ms);
	table_put(&t, style, true, out);
}

void job_counts_put(const struct store_counts *c, const struct row_style *style, struct buf *out)
{
	static const enum job_state order[] = {JOB_STATE_RUNNING, JOB_STATE_PENDING, JOB_STATE_NONE,
		JOB_STATE_COMPLETED, JOB_STATE_FAILED, JOB_STATE_CANCELLED, JOB_STATE_TIMEOUT,
		JOB_STATE_LOST};
	bool is_first = true;

	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		bool is_held = order[i] == JOB_STATE_NONE;
		int64_t n = is_held ? c->held : c->by_state[order[i]];

		if (!n)
			continue;
		if (!is_first)
			buf_puts(out, style->utf8 ? " · " : ", ");
		buf_printf(out, "%s %" PRId64, is_held ? "held" : job_state_name(order[i]), n);
		is_first = false;
	}
	if (is_first)
		buf_puts(out, "no jobs");
}
