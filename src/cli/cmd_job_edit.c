/* `job edit` and `job priority`: what may be changed of a job that hasn't ended. */
#include "cli/queue_candidates.h"
#include "cli/queue_common.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PRIORITY_MAX 1000000

struct edit_options {
	struct queue_options q;
	struct option_list add_after, drop_after, add_any, drop_any;
	const char *vram;
};

struct priority_options {
	struct queue_options q;
	int64_t up, down;
};

/* ---- edit ---- */

static bool has(const struct id_list *l, int64_t id)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i] == id)
			return true;
	return false;
}

static int parse_all(const struct option_list *words, struct id_list *ret, struct err *e)
{
	for (size_t i = 0; i < words->n; i++) {
		int r = queue_parse_ids(words->items[i], ret, e);

		if (r)
			return r;
	}
	return 0;
}

/* now + add - drop; -EINVAL for one to drop that isn't there. */
static int edited(const int64_t *now, size_t n, const struct option_list *add,
	const struct option_list *drop, struct id_list *ret, struct err *e)
{
	CLEANUP(id_list_done) struct id_list added = {0}, dropped = {0}, before = {0};
	int r = parse_all(add, &added, e);

	if (!r)
		r = parse_all(drop, &dropped, e);
	for (size_t i = 0; !r && i < n; i++) {
		GROW(before.v, before.n, before.cap);
		before.v[before.n++] = now[i];
		if (has(&dropped, now[i]))
			continue;
		GROW(ret->v, ret->n, ret->cap);
		ret->v[ret->n++] = now[i];
	}
	for (size_t i = 0; !r && i < dropped.n; i++)
		if (!has(&before, dropped.v[i]))
			r = err_set(e, -EINVAL, "it doesn't wait for job %" PRId64, dropped.v[i]);
	for (size_t i = 0; !r && i < added.n; i++) {
		if (has(ret, added.v[i]))
			continue;
		GROW(ret->v, ret->n, ret->cap);
		ret->v[ret->n++] = added.v[i];
	}
	return r;
}

static int edit_needs(
	struct queue *q, const struct edit_options *o, const struct job *j, struct err *e)
{
	CLEANUP(id_list_done) struct id_list after = {0}, any = {0};
	int r;

	if (!o->add_after.n && !o->drop_after.n && !o->add_any.n && !o->drop_any.n)
		return 0;
	r = edited(j->after, j->n_after, &o->add_after, &o->drop_after, &after, e);
	if (!r)
		r = edited(j->after_any, j->n_after_any, &o->add_any, &o->drop_any, &any, e);
	return r ? r : store_set_needs(q->store, j->id, after.v, after.n, any.v, any.n, e);
}

static int edit_vram(
	struct queue *q, const struct edit_options *o, const struct job *j, struct err *e)
{
	bool is_auto = o->vram && !strcmp(o->vram, "auto");
	int64_t mib = -1;

	if (!o->vram)
		return 0;
	if (!is_auto && queue_parse_size_mib(o->vram, &mib))
		return err_set(e, -EINVAL, "--vram takes MiB, a size as 8G, or auto, not '%.60s'",
			o->vram);
	return store_set_vram(q->store, j->id, mib, is_auto ? VRAM_NONE : VRAM_DECLARED, e);
}

/* Begins a transaction and reads the job in it. */
static int begin(struct queue *q, const char *word, struct job *ret, struct err *e)
{
	int64_t id;
	int r = queue_parse_id(word, &id, e);

	if (!r)
		r = store_begin(q->store, NULL, e);
	if (r)
		return r;
	r = store_job(q->store, id, ret, e);
	if (r)
		store_abort(q->store);
	return r;
}

static int end(struct queue *q, int r, struct err *e)
{
	if (r < 0)
		store_abort(q->store);
	return r < 0 ? r : store_commit(q->store, e);
}

/* Of a lane's job that its node has: the change counts once that node has let go of it. */
static int lane_request(struct queue *q, const struct job *j, char **ret_node, struct err *e)
{
	CLEANUP(store_lane_done) struct store_lane l = {0};
	int r;

	if (!j->lane || j->state != JOB_STATE_PENDING)
		return 0;
	r = store_lane(q->store, j->lane, &l, e);
	if (r == 0 && l.generation > l.acked_generation && l.acked_generation)
		*ret_node = TAKE_PTR(l.node);
	return r == -ENOENT ? 0 : r;
}

static int edit_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct edit_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(job_done) struct job j = {0}, now = {0};
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP_FREE char *node = NULL;
	json_t *tick;
	int r;

	(void)argc;
	if (!o->vram && !o->add_after.n && !o->drop_after.n && !o->add_any.n && !o->drop_any.n)
		return err_set(e, -EINVAL,
			"say what to change: --vram, --add-after, --drop-after, --add-after-any, --drop-after-any");
	r = queue_open(&q, p, &o->q, STORE_WRITE, e);
	if (!r)
		r = begin(&q, argv[0], &j, e);
	if (r)
		return r;
	r = edit_needs(&q, o, &j, e);
	if (r >= 0)
		r = edit_vram(&q, o, &j, e);
	r = end(&q, r, e);
	if (r)
		return r;
	tick = queue_tick_after(&q);
	r = store_job(q.store, j.id, &now, e);
	if (!r)
		r = lane_request(&q, &now, &node, e);
	if (!r && q.json)
		r = queue_print_json(json_pack("{s:b, s:o, s:O, s:b}", "ok", 1, "job",
					     record_job(&now, clock_wall_ms()), "tick", tick,
					     "request", node != NULL),
			e);
	else if (!r) {
		buf_printf(&out, "job %" PRId64 " changed; it's %s", now.id, record_state(&now));
		if (node) {
			buf_puts(&out, "; a request until ");
			text_put_clean(&out, node, strlen(node));
			buf_puts(&out, " has acknowledged it");
		}
		buf_putc(&out, '\n');
		r = command_print(&out, e);
	}
	json_decref(tick);
	return r;
}

/* ---- priority ---- */

static int print_priority(struct queue *q, const struct job *j, bool is_set, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (q->json && is_set)
		return queue_print_json(
			json_pack("{s:b, s:I, s:I}", "ok", 1, "id", (json_int_t)j->id, "priority",
				(json_int_t)j->priority),
			e);
	if (q->json)
		return queue_print_json(
			json_pack("{s:I, s:I, s:s}", "id", (json_int_t)j->id, "priority",
				(json_int_t)j->priority, "state", job_state_name(j->state)),
			e);
	buf_printf(&out, "job %" PRId64 ": priority %" PRId64 "\n", j->id, j->priority);
	return command_print(&out, e);
}

static int set_priority(struct queue *q, const char *word, const char *value, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	int64_t n;
	int r;

	if (parse_int64(value, &n) || n < -PRIORITY_MAX || n > PRIORITY_MAX)
		return err_set(e, -EINVAL,
			"a priority is a whole number as 5, or a step as +5 or -5, not '%.60s'",
			value);
	r = begin(q, word, &j, e);
	if (r)
		return r;
	/* A sign is a step; to set a negative one, step down from where it is. */
	if (*value == '+' || *value == '-')
		n += j.priority;
	if (n < -PRIORITY_MAX || n > PRIORITY_MAX)
		r = err_set(e, -ERANGE, "priorities lie between -%d and %d", PRIORITY_MAX,
			PRIORITY_MAX);
	else
		r = store_set_priority(q->store, j.id, n, e);
	r = end(q, r, e);
	j.priority = n;
	return r ? r : print_priority(q, &j, true, e);
}

static int move(struct queue *q, const char *word, int64_t slots, struct err *e)
{
	CLEANUP(job_done) struct job j = {0}, now = {0};
	CLEANUP(buf_done) struct buf out = {0};
	int64_t moved = 0;
	int r = begin(q, word, &j, e);

	if (r)
		return r;
	r = end(q, store_move(q->store, j.id, slots, &moved, e), e);
	if (!r)
		r = store_job(q->store, j.id, &now, e);
	if (r)
		return r;
	if (q->json)
		return queue_print_json(
			json_pack("{s:I, s:I, s:I}", "id", (json_int_t)j.id, "moved",
				(json_int_t)moved, "priority", (json_int_t)now.priority),
			e);
	buf_printf(&out, "job %" PRId64 ": moved by %" PRId64 ", priority %" PRId64 "\n", j.id,
		moved, now.priority);
	return command_print(&out, e);
}

static int priority_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct priority_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(job_done) struct job j = {0};
	int64_t id;
	int r;

	if ((o->up != 0) + (o->down != 0) + (argc > 1) > 1)
		return err_set(e, -EINVAL,
			"a value, --up and --down say different things; give one of them");
	r = queue_open(&q, p, &o->q, STORE_WRITE, e);
	if (r)
		return r;
	if (argc > 1)
		return set_priority(&q, argv[0], argv[1], e);
	if (o->up || o->down)
		return move(&q, argv[0], o->up ? o->up : -o->down, e);
	r = queue_parse_id(argv[0], &id, e);
	if (!r)
		r = store_job(q.store, id, &j, e);
	return r ? r : print_priority(&q, &j, false, e);
}

#define EDIT(member) .offset = offsetof(struct edit_options, member)
static const struct option_spec edit_specs[] = {
	{.name = "add-after",
		.arg = "ID[,ID]",
		.kind = OPTION_LIST,
		EDIT(add_after),
		.text = "it waits for these to complete, too"},
	{.name = "drop-after",
		.arg = "ID[,ID]",
		.kind = OPTION_LIST,
		EDIT(drop_after),
		.text = "it doesn't wait for these any more"},
	{.name = "add-after-any",
		.arg = "ID[,ID]",
		.kind = OPTION_LIST,
		EDIT(add_any),
		.text = "it waits for these to end, well or not"},
	{.name = "drop-after-any",
		.arg = "ID[,ID]",
		.kind = OPTION_LIST,
		EDIT(drop_any),
		.text = "it doesn't wait for these any more"},
	{.name = "vram",
		.arg = "SIZE",
		.kind = OPTION_TEXT,
		EDIT(vram),
		.text = "memory on each of its GPUs, while it waits: MiB, 8G, auto"},
	QUEUE_OPTION_ROWS(struct edit_options),
	QUEUE_NO_TICK_ROW(struct edit_options),
	OPTION_SPEC_END,
};
#define PRIO(member) .offset = offsetof(struct priority_options, member)
static const struct option_spec priority_specs[] = {
	{.name = "up",
		.arg = "N",
		.kind = OPTION_INT,
		PRIO(up),
		.min = 1,
		.max = INFINITY,
		.text = "so many places to the front, among those that wait"},
	{.name = "down",
		.arg = "N",
		.kind = OPTION_INT,
		PRIO(down),
		.min = 1,
		.max = INFINITY,
		.text = "so many places back"},
	QUEUE_OPTION_ROWS(struct priority_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_edit, cmd_job_priority;
const struct command cmd_job_edit = {
	.name = "job edit",
	.args = "ID",
	.summary = "change what a job waits for, or its memory",
	.about =
		"Place, note and submitter stay. Any change of what it waits for clears a hold; circles\n"
		"are refused.",
	.examples = "$ gpustow job edit 14 --drop-after 12\n$ gpustow job edit 14 --vram 12G",
	.options = edit_specs,
	.options_size = sizeof(struct edit_options),
	.min_args = 1,
	.max_args = 1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = edit_exec,
};
const struct command cmd_job_priority = {
	.name = "job priority",
	.args = "ID [VALUE]",
	.summary = "show or change a job's priority",
	.about =
		"A bare number sets it, +N and -N step (behind --: `job priority 14 -- -5`); without one\n"
		"it's shown.",
	.examples = "$ gpustow job priority 14 +10\n$ gpustow job priority 14 --up 2",
	.options = priority_specs,
	.options_size = sizeof(struct priority_options),
	.min_args = 1,
	.max_args = 2,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = priority_exec,
};
