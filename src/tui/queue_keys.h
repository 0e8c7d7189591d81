/*
 * The table of the queue screen's keys: dispatch, buttons, help and the manual come from it, and the test that presses all
 * of them.
 */
#pragma once

#include "tui/queue_model.h"

enum queue_action {
	QDO_NOTHING,
	QDO_DOWN,
	QDO_UP,
	QDO_LEFT,
	QDO_RIGHT,
	QDO_PAGE_DOWN,
	QDO_PAGE_UP,
	QDO_SWITCH,
	QDO_ENTER,
	QDO_TEXT_BACK,
	QDO_TEXT_ON,
	QDO_LOG,
	QDO_CANCEL,
	QDO_REQUEUE,
	QDO_RAISE,
	QDO_LOWER,
	QDO_MOVE_UP,
	QDO_MOVE_DOWN,
	QDO_SORT,
	QDO_REVERSE,
	QDO_TICK,
	QDO_AUTO,
	QDO_FILTER,
	QDO_CLEAR,
	QDO_VIEW,
	QDO_PROCS,
	QDO_DRAIN,
	QDO_ACK,
	QDO_FIRST,
	QDO_LAST,
	QDO_THEME,
	QDO_HELP,
	QDO_REDRAW,
	QDO_STOP,
	QDO_QUIT,
	/* By the mouse only: */
	QDO_SELECT_NODE, /* arg: node << 32 | card + 1: scopes */
	QDO_SELECT_JOB, /* arg: id: selects; the selected one opens and closes */
	QDO_CARD_OF_JOB, /* arg: id, in the flow: opens that job, again hides it */
	QDO_LANE, /* arg: node << 32 | card + 1 */
	QDO_POOL,
	QDO_SORT_BY, /* arg: enum queue_sort */
	QDO_FILTER_BY, /* arg: enum queue_filter */
	QDO_ALERT, /* arg: the alert's number */
	QDO_CLOSE_HELP,
	QDO_DETAIL, /* shows or hides it */
	QDO_RESOURCES, /* where the wheel is */
	QDO_JOBS,
	QDO_TEXT
};

/* Arrows with Shift, beside enum key. */
enum { KEY_SHIFT_UP = 0x110100, KEY_SHIFT_DOWN };

struct queue_key {
	uint32_t keys[4];
	int action;
	char shown[16]; /* "j, Down" */
	char text[80];
};
extern const struct queue_key queue_screen_keys[];
extern const size_t queue_screen_keys_n;

void queue_model_do(struct queue_model *m, int action, int64_t arg, int64_t now_ms);
/* Drawn and clicked: a node and a card (or -1) in one number. */
#define QUEUE_PLACE(node, card) ((int64_t)(node) << 32 | (int64_t)((card) + 1))
