/* `job note`, `job result`, `job purge`: what's written beside a job, and leaving ended ones out of the record. */
#include "cli/queue_candidates.h"
#include "cli/queue_common.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_MAX 65536
#define RESULT_MAX (1024 * 1024)

struct note_options {
	struct queue_options q;
	const char *append;
	bool clear;
};

struct result_options {
	struct queue_options q;
	const char *set;
};

struct purge_options {
	struct queue_options q;
	struct option_list states;
};

static int open_job(struct queue *q, const struct program *p, const struct queue_options *o,
	const char *word, struct job *ret, struct err *e)
{
	int64_t id;
	int r = queue_open(q, p, o, STORE_WRITE, e);

	if (!r)
		r = queue_parse_id(word, &id, e);
	return r ? r : store_job(q->store, id, ret, e);
}

static int end(struct queue *q, int r, struct err *e)
{
	if (r < 0)
		store_abort(q->store);
	return r < 0 ? r : store_commit(q->store, e);
}

static json_t *text_or_null(const char *s)
{
	return s ? json_string(s) : json_null();
}

/* ---- note ---- */

static int read_note(struct queue *q, const struct job *j, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (q->json)
		return queue_print_json(
			json_pack("{s:I, s:o, s:o}", "id", (json_int_t)j->id, "notes",
				text_or_null(j->notes), "progress", text_or_null(j->progress)),
			e);
	if (j->notes)
		text_put_clean(&out, j->notes, strlen(j->notes));
	else
		buf_printf(&out, "job %" PRId64 " has no note", j->id);
	buf_putc(&out, '\n');
	return command_print(&out, e);
}

static int write_note(struct queue *q, int64_t id, const char *text, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	int r;

	if (text && strlen(text) > NOTE_MAX)
		return err_set(e, -E2BIG, "a note has at most %d bytes", NOTE_MAX);
	if (text && utf8_valid_len(text, strlen(text)) != strlen(text))
		return err_set(e, -EINVAL, "the note isn't valid UTF-8");
	r = store_begin(q->store, NULL, e);
	if (!r)
		r = end(q, store_set_notes(q->store, id, text, e), e);
	if (r)
		return r;
	if (q->json)
		return queue_print_json(json_pack("{s:b, s:I, s:o}", "ok", 1, "id", (json_int_t)id,
						"notes", text_or_null(text)),
			e);
	buf_printf(&out, "job %" PRId64 ": note %s\n", id, text ? "written" : "removed");
	return command_print(&out, e);
}

static char *joined(int argc, char **argv)
{
	CLEANUP(buf_done) struct buf b = {0};

	for (int i = 0; i < argc; i++)
		buf_printf(&b, "%s%s", i ? " " : "", argv[i]);
	return buf_take(&b);
}

static int note_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct note_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE char *text = NULL;
	int r;

	if ((argc > 1) + (o->append != NULL) + o->clear > 1)
		return err_set(e, -EINVAL,
			"a text, --append and --clear say different things; give one of them");
	r = open_job(&q, p, &o->q, argv[0], &j, e);
	if (r)
		return r;
	if (o->clear)
		return write_note(&q, j.id, NULL, e);
	if (!o->append && argc == 1)
		return read_note(&q, &j, e);
	if (o->append && j.notes && *j.notes)
		text = xasprintf("%s | %s", j.notes, o->append);
	else
		text = o->append ? xstrdup(o->append) : joined(argc - 1, argv + 1);
	return write_note(&q, j.id, text, e);
}

/* ---- result ---- */

/* What isn't JSON is kept as a string. */
static char *as_json(const char *text)
{
	json_t *v = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
	char *s;

	if (!v)
		v = json_string(text);
	s = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	json_decref(v);
	return s;
}

static int print_result(struct queue *q, const struct job *j, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	json_t *doc = record_job(j, 0);
	json_t *answer = json_pack("{s:I, s:O, s:O}", "id", (json_int_t)j->id, "state",
		json_object_get(doc, "state"), "result", json_object_get(doc, "result"));

	json_decref(doc);
	if (q->json)
		return queue_print_json(answer, e);
	json_decref(answer);
	if (j->result)
		text_put_clean(&out, j->result, strlen(j->result));
	else
		buf_printf(&out, "job %" PRId64 " (%s) has no result", j->id, record_state(j));
	buf_putc(&out, '\n');
	return command_print(&out, e);
}

static int result_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct result_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(job_done) struct job j = {0}, now = {0};
	CLEANUP_FREE char *json = NULL;
	int r = open_job(&q, p, &o->q, argv[0], &j, e);

	(void)argc;
	if (r || !o->set)
		return r ? r : print_result(&q, &j, e);
	if (strlen(o->set) > RESULT_MAX)
		return err_set(e, -E2BIG, "a result has at most 1 MiB");
	json = as_json(o->set);
	if (!json)
		return err_set(e, -EINVAL, "the result isn't valid UTF-8");
	r = store_begin(q.store, NULL, e);
	if (!r)
		r = end(&q, store_set_result(q.store, j.id, json, e), e);
	if (!r)
		r = store_job(q.store, j.id, &now, e);
	return r ? r : print_result(&q, &now, e);
}

/* ---- purge ---- */

static int states_of(const struct option_list *words, uint32_t *ret, struct err *e)
{
	*ret = words->n ? 0 : JOB_STATES_TERMINAL;
	for (size_t i = 0; i < words->n; i++) {
		enum job_state s;

		if (job_state_from_name(words->items[i], &s) || !job_state_is_terminal(s))
			return err_set(e, -EINVAL,
				"only ended jobs can be purged: completed, failed, cancelled, timeout, lost; not '%.60s'",
				words->items[i]);
		*ret |= 1u << s;
	}
	return 0;
}

static int purge_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct purge_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(buf_done) struct buf out = {0};
	uint32_t states;
	int64_t n = 0;
	int r = queue_open(&q, p, &o->q, STORE_WRITE, e);

	(void)argc, (void)argv;
	if (!r)
		r = states_of(&o->states, &states, e);
	if (!r)
		r = store_begin(q.store, NULL, e);
	if (r)
		return r;
	r = end(&q, store_purge(q.store, states, &n, e), e);
	if (r)
		return r;
	if (q.json)
		return queue_print_json(json_pack("{s:I}", "removed", (json_int_t)n), e);
	buf_printf(&out,
		"%" PRId64
		" job%s left out of the record; events, alerts and their directories stay\n",
		n, n == 1 ? "" : "s");
	return command_print(&out, e);
}

static const struct option_spec note_specs[] = {
	{.name = "append",
		.arg = "TEXT",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct note_options, append),
		.text = "add to the note, behind ' | '"},
	{.name = "clear",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct note_options, clear),
		.text = "remove the note"},
	QUEUE_OPTION_ROWS(struct note_options),
	OPTION_SPEC_END,
};
static const struct option_spec result_specs[] = {
	{.name = "set",
		.arg = "JSON",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct result_options, set),
		.text = "put it in; what isn't JSON is kept as a string"},
	QUEUE_OPTION_ROWS(struct result_options),
	OPTION_SPEC_END,
};
static const struct option_spec purge_specs[] = {
	{.name = "state",
		.arg = "STATE",
		.kind = OPTION_LIST,
		.offset = offsetof(struct purge_options, states),
		.text = "only jobs that ended so; may be given again (default: all that have ended)"},
	QUEUE_OPTION_ROWS(struct purge_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_note, cmd_job_result, cmd_job_purge;
const struct command cmd_job_note = {
	.name = "job note",
	.args = "ID [TEXT...]",
	.summary = "show or write a job's note",
	.examples =
		"$ gpustow job note 12 baseline, new tokenizer\n$ gpustow job note 12 --append 'diverged at step 900'",
	.options = note_specs,
	.options_size = sizeof(struct note_options),
	.min_args = 1,
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = note_exec,
};
const struct command cmd_job_result = {
	.name = "job result",
	.args = "ID",
	.summary = "show or put in a job's result",
	.about =
		"A job leaves its result by writing $GPUSTOW_RESULT_FILE (result.json in its directory).",
	.examples = "$ gpustow job result 12 --json",
	.options = result_specs,
	.options_size = sizeof(struct result_options),
	.min_args = 1,
	.max_args = 1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = result_exec,
};
const struct command cmd_job_purge = {
	.name = "job purge",
	.args = "",
	.summary = "leave ended jobs out of the record",
	.about = "Those that a waiting or running job needs stay. Events and alerts stay.",
	.examples = "$ gpustow job purge --state completed",
	.options = purge_specs,
	.options_size = sizeof(struct purge_options),
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = purge_exec,
};
