/*
 * The queue screen's model: the last snapshot, what's selected, shown and scoped, and what it wants done. Keys, clicks and
 * snapshots change it; the view only reads it (but for what a window shows first). Pure: times are the caller's.
 *
 * What the model can't do itself it wishes for: whoever drives it takes the wishes out (queue_model_wish) and has them done
 * by the processes that own the database and the ways to the nodes.
 */
#pragma once

#include "base/buf.h"
#include "tui/frame.h"
#include "tui/input.h"
#include "tui/queue_snap.h"

enum queue_sort {
	QSORT_QUEUE = 1, /* running, then pending by priority, then ended */
	QSORT_ID,
	QSORT_STATE,
	QSORT_PRIORITY,
	QSORT_NAME,
	QSORT_NODE,
	QSORT_VRAM,
	QSORT_USED,
	QSORT_TIME, /* the default: the longest first, those without a time last */
	QSORT_N
};
enum queue_filter {
	QFILTER_ACTIVE,
	QFILTER_ALL,
	QFILTER_RUNNING,
	QFILTER_PENDING,
	QFILTER_FINISHED,
	QFILTER_HELD, /* by a click only */
	QFILTER_N
};
const char *queue_sort_name(int s);
const char *queue_filter_name(int f);

enum queue_scope { SCOPE_NONE, SCOPE_NODE, SCOPE_CARD, SCOPE_LANE, SCOPE_POOL };
enum queue_procs { QPROCS_SUMMARY, QPROCS_ALL, QPROCS_OFF, QPROCS_N };
enum queue_focus { QFOCUS_NODES, QFOCUS_JOBS };

/* What a card is busy with. */
enum queue_activity { ACT_RUN, ACT_EXTERNAL, ACT_BUSY, ACT_IDLE, ACT_UNKNOWN };
enum queue_activity queue_activity(const struct snap_node *n, const struct snap_card *c);
const char *queue_activity_name(enum queue_activity a);

enum queue_wish {
	WISH_NONE,
	WISH_CANCEL, /* id */
	WISH_REQUEUE, /* id */
	WISH_PRIORITY, /* id, by */
	WISH_MOVE, /* id, by: slots up */
	WISH_DRAIN, /* node */
	WISH_RESUME, /* node */
	WISH_ACK,
	WISH_TICK, /* forced */
	WISH_SHOW, /* id: its details */
	WISH_LOG, /* id: the end of its output */
	WISH_THEME, /* by: position in themes */
	WISH_REDRAW,
	WISH_STOP,
	WISH_QUIT
};
struct queue_want {
	enum queue_wish what;
	int64_t id, by;
	char node[65];
};
enum { QUEUE_WANTS_MAX = 32, QUEUE_ARMED_MS = 5000, QUEUE_NOTICE_MS = 8000 };

struct queue_model {
	struct snap snap;
	bool has_snap;
	char error[512]; /* why there's none, or no newer one; "" */
	bool is_auto, is_working; /* ticks by itself; somebody is at it now */
	enum queue_focus focus;
	/* The selection: a row of nodes (n_nodes: the pool), a card in it or -1, a job by its id. */
	int node, card;
	int64_t job;
	bool was_moved; /* the person chose the job: the first snapshot doesn't choose it any more */
	enum queue_scope scope;
	char scope_node[65], scope_card[24];
	int sort, filter;
	bool is_reversed;
	bool is_capacity, has_detail, has_log, has_help;
	int procs; /* enum queue_procs */
	int help_scroll;
	int first_row, first_job,
		first_line; /* of resources, jobs, detail or log; first_line counts from the end in a log */
	bool follows; /* the resource pane shows the selection; not after PgUp and PgDn */
	int resource_page, job_page, text_page; /* what the last picture had room for */
	int text_lines; /* lines of detail or log in the last picture */
	int theme;
	int64_t armed; /* a job whose cancel waits for its confirmation; 0: none */
	int64_t armed_ms, notice_ms;
	char notice[512];
	bool notice_is_bad;
	json_t *shown; /* {"id", "job", "why", "needs"} of a job; NULL: none yet */
	int64_t log_id; /* of the text below; 0: none yet */
	char *log, *log_error;
	struct queue_want wants[QUEUE_WANTS_MAX];
	size_t n_wants;
};

void queue_model_init(struct queue_model *m);
void queue_model_done(struct queue_model *m);
/* Takes *s over. */
void queue_model_take(struct queue_model *m, struct snap *s, int64_t now_ms);
void queue_model_take_shown(struct queue_model *m, json_t *o); /* borrows o */
void queue_model_take_log(struct queue_model *m, int64_t id, const char *text, const char *error);
void queue_model_notice(struct queue_model *m, bool is_bad, int64_t now_ms, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* What runs out does; true: the picture changes. */
bool queue_model_tick(struct queue_model *m, int64_t now_ms);
void queue_model_event(
	struct queue_model *m, const struct input_event *ev, const struct frame *f, int64_t now_ms);
/* The next one, taken out; WISH_NONE: there's no more. */
struct queue_want queue_model_wish(struct queue_model *m);
void queue_model_want(struct queue_model *m, enum queue_wish what, int64_t id, int64_t by);

/* Positions in snap.jobs that filter and scope leave, in the order shown; to free. */
size_t *queue_model_jobs(const struct queue_model *m, int64_t now_ms, size_t *ret_n);
/* Of a lane (node and card) or, node NULL, of the pool: those that wait, in their order; to free. */
size_t *queue_model_waiting(
	const struct queue_model *m, const char *node, const char *card, size_t *ret_n);
/* Of the running or starting jobs on a card the i-th; NULL: there are no more. */
const struct snap_job *queue_model_on_card(const struct queue_model *m, const struct snap_node *n,
	const struct snap_card *c, size_t i);
/* Handed to a card that it gets now. One that was handed out with its lane waits there all the same. */
bool queue_job_is_starting(const struct snap_job *j);
bool queue_job_is_in_pool(const struct snap_job *j);
bool queue_job_has_lane(const struct snap_job *j, const char *node, const char *card);
int64_t queue_job_elapsed(const struct snap_job *j, int64_t wall_ms); /* -1: never started */
const struct snap_job *queue_model_selected(const struct queue_model *m);
