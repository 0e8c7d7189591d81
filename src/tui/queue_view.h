/*
 * The queue screen as a picture: a model, a size and the time in, a frame out. Pure, but that the model remembers what a
 * window showed first and how large a page was. queue_view.c has head, alerts, layout, buttons and help; the rest is for its
 * siblings.
 */
#pragma once

#include "tui/queue_keys.h"

enum { QUEUE_COLS_MIN = 60, QUEUE_ROWS_MIN = 20 };

/* f's grid has `ascii` set already. */
void queue_draw(struct queue_model *m, struct frame *f, int cols, int rows, int64_t wall_ms);

/* ---- between the files of the view ---- */

/* Lines the resource pane would like. */
int queue_resources_height(const struct queue_model *m);
/* Task flow or capacity, with its frame. */
void queue_resources(struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms);
void queue_jobs(struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms);
/* Detail or log. */
void queue_text_pane(struct queue_model *m, struct frame *f, struct rect r, int64_t wall_ms);
/* The same in lines, not cleaned yet, for those who listen. */
void queue_text_say(
	const struct queue_model *m, int64_t job, bool is_log, int64_t wall_ms, struct buf *out);
/* "01:02:03", "2-01:02:03"; "" when it isn't known. */
void queue_put_elapsed(struct buf *b, int64_t ms);
/* "512M", "4.2G", "128G"; "" when it isn't known. */
void queue_put_mib(struct buf *b, int64_t mib);
const char *queue_badge(const struct snap_job *j, bool is_ascii, enum ink *ret_ink);
