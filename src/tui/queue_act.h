/* Selection, scope and changes: the parts that the queue screen's keys are made of. Inside of the model. */
#pragma once

#include "tui/queue_keys.h"

/* Another job, or another pane for it: what it shows is asked for. */
void queue_act_text_changed(struct queue_model *m);
void queue_act_select_job(struct queue_model *m, int64_t id);
void queue_act_move_job(struct queue_model *m, int by);
void queue_act_select_node(struct queue_model *m, int node, int card);
void queue_act_move(struct queue_model *m, int by);
void queue_act_move_card(struct queue_model *m, int by);
void queue_act_page(struct queue_model *m, int by);
/* The selection is among those that are shown. */
void queue_act_after_scope(struct queue_model *m);
/* Of the selected server and GPU; for the row behind the servers: the pool. */
void queue_act_scope_to(struct queue_model *m, enum queue_scope scope);
/* A pool's or lane's complete list, in its order. */
void queue_act_open_waiting(struct queue_model *m, enum queue_scope scope);
/* place: QUEUE_PLACE. */
void queue_act_click_place(struct queue_model *m, int64_t arg, bool is_lane);
void queue_act_clear(struct queue_model *m);
/* NULL with a notice: none is selected. */
const struct snap_job *queue_act_job_or_notice(struct queue_model *m, int64_t now_ms);
/* The first time arms it. */
void queue_act_cancel(struct queue_model *m, int64_t now_ms);
void queue_act_requeue(struct queue_model *m, int64_t now_ms);
/* WISH_PRIORITY or WISH_MOVE of one that waits. */
void queue_act_change_waiting(
	struct queue_model *m, enum queue_wish what, int64_t by, int64_t now_ms);
/* Drain or resume. */
void queue_act_drain(struct queue_model *m, int64_t now_ms);
