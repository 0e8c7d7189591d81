/*
 * The queue's screen line by line, for people who listen and for terminals that can't move their cursor: the same model said
 * in sentences, and lines in that do what the screen's keys do. Pure.
 */
#pragma once

#include "tui/queue_model.h"

/* Zeroed: nothing was said yet. */
struct queue_plain {
	bool has_said; /* the whole, for the first time */
	int64_t job,
		log; /* whose details, whose output was asked for and isn't said yet; 0: none */
	char notice[512], error[512]; /* as they were said last */
};

/* The whole: servers, GPUs, what waits, jobs. No line has a byte that could move a cursor. */
void queue_plain_put(const struct queue_model *m, int64_t wall_ms, struct buf *out);
/* One line that was typed, without its end; what can be said to it at once is put out. */
void queue_plain_line(struct queue_plain *p, struct queue_model *m, const char *line,
	int64_t now_ms, int64_t wall_ms, struct buf *out);
/* What has come since: the first look, an answer, a notice. Nothing when there's nothing new. */
void queue_plain_news(
	struct queue_plain *p, const struct queue_model *m, int64_t wall_ms, struct buf *out);
