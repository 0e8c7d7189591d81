/*
 * `job advise`: what earlier runs of the same command took, and what to declare for the next. "The same" is the command's
 * shape (core/shape.h): numbers, paths and seeds may differ.
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "cli/queue_candidates.h"
#include "cli/submit.h"
#include "core/shape.h"
#include "queue/cluster.h"
#include "queue/record_json.h"
#include "show/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 20, SHAPE_CELLS = 70, ROUND_MIB = 256, GPUS_MAX = 64 };

struct advise_options {
	struct queue_options q;
	int64_t gpus; /* 0: any number of cards */
	int64_t number;
};

struct found {
	struct store_learned *v;
	size_t n, cap;
};

static void found_done(struct found *f)
{
	store_learned_done(f->v, f->n);
}

/* What a person types: the estimate, rounded up to a quarter of a GiB. -1: nothing is known. */
static int64_t suggested_mib(const struct store_learned *l)
{
	int64_t need = l->gpus ? cluster_learned_mib(l) : -1;

	return need > 0 ? (need + ROUND_MIB - 1) / ROUND_MIB * ROUND_MIB : -1;
}

static const char *confidence(const struct store_learned *l)
{
	return !l->n_peaks ? "none" : l->n_peaks < LEARNED_SURE ? "low" : "good";
}

/* ---- what's known ---- */

static int add(struct queue *q, const char *shape, int64_t gpus, struct found *ret, struct err *e)
{
	struct store_learned l;
	int r = store_learned(q->store, shape, gpus, &l, e);

	if (r == -ENOENT)
		return 0;
	if (r)
		return r;
	GROW(ret->v, ret->n, ret->cap);
	ret->v[ret->n++] = l;
	return 0;
}

static int find_shape(
	struct queue *q, const char *shape, int64_t gpus, struct found *ret, struct err *e)
{
	int r = 0;

	if (gpus)
		return add(q, shape, gpus, ret, e);
	for (int64_t i = 0; !r && i <= GPUS_MAX; i++)
		r = add(q, shape, i, ret, e);
	return r;
}

/* One whole number alone is a job; else the words are a command, as `job submit` takes them. */
static int shape_from_words(struct queue *q, const struct advise_options *o, int argc, char **argv,
	struct buf *shape, int64_t *ret_gpus, struct err *e)
{
	CLEANUP(buf_done) struct buf body = {0};
	struct submit_options none = {0};
	int64_t id;
	int r;

	*ret_gpus = o->gpus;
	if (argc == 1 && argv[0][strspn(argv[0], "0123456789")] == '\0') {
		CLEANUP(job_done) struct job j = {0};

		r = queue_parse_id(argv[0], &id, e);
		if (!r)
			r = store_job(q->store, id, &j, e);
		if (r)
			return r;
		shape_of(j.command, strlen(j.command), shape);
		if (!o->gpus)
			*ret_gpus = j.gpus;
		return 0;
	}
	r = submit_body(q->program, &none, argc, argv, &body, e);
	if (!r)
		shape_of(buf_str(&body), body.len, shape);
	return r;
}

static int find(struct queue *q, const struct advise_options *o, int argc, char **argv,
	struct buf *shape, struct found *ret, struct err *e)
{
	int64_t gpus;
	int r;

	if (!argc)
		return store_learned_all(q->store,
			o->number ? (size_t)o->number
			: q->json ? 0
				  : SHOWN,
			&ret->v, &ret->n, e);
	r = shape_from_words(q, o, argc, argv, shape, &gpus, e);
	return r ? r : find_shape(q, buf_str(shape), gpus, ret, e);
}

/* ---- JSON ---- */

static json_t *known(int64_t v)
{
	return v > 0 ? json_integer(v) : json_null();
}

static json_t *advice_json(const struct store_learned *l)
{
	int64_t mib = suggested_mib(l);
	json_t *o = json_object();

	json_object_set_new(o, "shape", json_string(l->shape));
	json_object_set_new(o, "gpus", json_integer(l->gpus));
	json_object_set_new(o, "runs", json_integer(l->n));
	json_object_set_new(o, "oom_runs", json_integer(l->n_oom));
	json_object_set_new(o, "peaks_seen", json_integer(l->n_peaks));
	json_object_set_new(o, "peak_max_mb", known(l->peak_max_mib));
	json_object_set_new(o, "peak_last_mb", known(l->peak_last_mib));
	json_object_set_new(o, "oom_max_mb", known(l->oom_max_mib));
	json_object_set_new(o, "suggested_vram_mb", known(mib));
	json_object_set_new(o, "confidence", json_string(confidence(l)));
	json_object_set_new(o, "run_mean_s", known(l->run_mean_ms / 1000));
	json_object_set_new(o, "run_max_s", known(l->run_max_ms / 1000));
	json_object_set_new(o, "last_at", record_time(l->last_ms));
	return o;
}

static int print_json(const struct found *f, const struct buf *shape, struct err *e)
{
	json_t *list = json_array();

	for (size_t i = 0; i < f->n; i++)
		json_array_append_new(list, advice_json(&f->v[i]));
	return queue_print_json(
		json_pack("{s:o, s:o}", "shape",
			shape->len ? json_string(buf_str(shape)) : json_null(), "advice", list),
		e);
}

/* ---- text ---- */

static const struct table_column columns[] = {
	{"RUNS", .is_number = true},
	{"OOM", .is_number = true},
	{"GPUS", .is_number = true},
	{"PEAK", .is_number = true},
	{"--vram", .is_number = true},
	{"MEAN", .is_number = true, .drop = 2},
	{"LONGEST", .is_number = true, .drop = 1},
	{"COMMAND", .min = 16},
};

static void size_cell(struct table *t, enum row_color color, int64_t mib)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (mib <= 0) {
		table_absent(t);
		return;
	}
	queue_put_size(&b, mib);
	table_text(t, color, "%s", buf_str(&b));
}

static void time_cell(struct table *t, int64_t ms)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (ms <= 0) {
		table_absent(t);
		return;
	}
	queue_put_duration(&b, ms);
	table_text(t, ROW_DIM, "%s", buf_str(&b));
}

static void put_row(struct table *t, const struct store_learned *l)
{
	CLEANUP(buf_done) struct buf shape = {0};

	queue_put_line(&shape, l->shape, SHAPE_CELLS);
	table_row(t);
	table_text(t, ROW_PLAIN, "%" PRId64, l->n);
	table_text(t, l->n_oom ? ROW_RED : ROW_DIM, "%" PRId64, l->n_oom);
	table_text(t, ROW_PLAIN, "%" PRId64, l->gpus);
	size_cell(t, ROW_TEAL, l->peak_max_mib > l->oom_max_mib ? l->peak_max_mib : l->oom_max_mib);
	size_cell(t, ROW_GREEN, suggested_mib(l));
	time_cell(t, l->run_mean_ms);
	time_cell(t, l->run_max_ms);
	table_text(t, ROW_PLAIN, "%s", buf_str(&shape));
}

static void put_advice(const struct store_learned *l, struct buf *out)
{
	int64_t mib = suggested_mib(l);

	if (mib > 0) {
		buf_printf(out, "suggested: --vram %" PRId64 "M --gpus %" PRId64, mib, l->gpus);
		buf_puts(out, l->n_peaks < LEARNED_SURE ? " (few runs so far: a guess)\n" : "\n");
	} else if (l->gpus && l->n_oom) {
		buf_puts(out,
			"no run has ended well yet; they ran out of memory, so declare more than the peak\n");
	}
}

static int print_text(const struct found *f, const struct buf *shape, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP(table_done) struct table t;
	struct row_style style;

	once_terminal(&style);
	table_init(&t, columns, ARRAY_LEN(columns));
	for (size_t i = 0; i < f->n; i++)
		put_row(&t, &f->v[i]);
	if (t.n_rows)
		table_put(&t, &style, true, &out);
	if (!f->n && shape->len) {
		buf_puts(&out, "nothing is known of ");
		queue_put_line(&out, buf_str(shape), SHAPE_CELLS);
		buf_puts(&out, " yet: no run of it has ended\n");
	} else if (!f->n) {
		buf_puts(&out, "nothing is known yet: no job has ended\n");
	}
	for (size_t i = 0; shape->len && i < f->n; i++)
		put_advice(&f->v[i], &out);
	return command_print(&out, e);
}

static int advise_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct advise_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(found_done) struct found f = {0};
	CLEANUP(buf_done) struct buf shape = {0};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	if (!r)
		r = find(&q, o, argc, argv, &shape, &f, e);
	if (r)
		return r;
	return q.json ? print_json(&f, &shape, e) : print_text(&f, &shape, e);
}

#define AT(member) .offset = offsetof(struct advise_options, member)
static const struct option_spec options[] = {
	{.name = "gpus",
		.arg = "N",
		.kind = OPTION_INT,
		AT(gpus),
		.min = 1,
		.max = GPUS_MAX,
		.text = "only runs on so many cards"},
	{.letter = 'n',
		.name = "number",
		.arg = "N",
		.kind = OPTION_INT,
		AT(number),
		.min = 1,
		.max = 100000,
		.text = "without a command: so many of the newest (text: 20; JSON: all)"},
	QUEUE_OPTION_ROWS(struct advise_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_advise;
const struct command cmd_job_advise = {
	.name = "job advise",
	.args = "[ID | COMMAND...]",
	.summary = "what a command is known to need",
	.about =
		"Runs of a command count as the same when they differ in numbers, paths, seeds and the\n"
		"like. It shows how many ended well and how many ran out of memory, the highest memory on\n"
		"a card, what to declare (the peak and a tenth on top; a fifth after few runs), and how\n"
		"long they took. That's what a job without --vram gets, too.",
	.examples = "$ gpustow job advise 12\n$ gpustow job advise -- python train.py --lr 1e-3",
	.options = options,
	.options_size = sizeof(struct advise_options),
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = advise_exec,
};
