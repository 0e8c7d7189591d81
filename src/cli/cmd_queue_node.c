/*
 * `queue drain|resume|ignore|unignore NAME`: what a person says about a node. One small transaction each, which waits for
 * nobody's pass; the next one goes by it.
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/queue_candidates.h"
#include "cli/queue_common.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct node_options {
	struct queue_options q;
};

enum what { DRAIN, RESUME, IGNORE, UNIGNORE };

/* As the configuration has it; else one that only the record remembers, by its exact name. */
static int find_name(struct queue *q, const char *word, char **ret, struct err *e)
{
	CLEANUP(store_nodes_done) struct store_nodes rows = {0};
	const struct queue_node *node;
	int r = queue_parse_node(q, word, &node, e);

	if (!r) {
		*ret = xstrdup(node->name);
		return 0;
	}
	if (store_nodes(q->store, &rows, &(struct err){0}))
		return r;
	for (size_t i = 0; i < rows.n; i++) {
		if (strcmp(rows.v[i].name, word) != 0)
			continue;
		*ret = xstrdup(word);
		return 0;
	}
	return r;
}

/* In the transaction: what runs there would run on with nobody looking. */
static int check_idle(struct queue *q, const char *name, struct err *e)
{
	CLEANUP(store_jobs_done) struct store_jobs l = {0};
	CLEANUP(buf_done) struct buf ids = {0};
	struct store_question question = {.bound = true, .command_max = 1};
	size_t n = 0;
	int r = store_jobs(q->store, &question, &l, e);

	for (size_t i = 0; !r && i < l.n; i++)
		if (l.v[i].bind.node && !strcmp(l.v[i].bind.node, name) && n++ < 10)
			buf_printf(&ids, "%s%" PRId64, n > 1 ? ", " : "", l.v[i].id);
	if (!r && n)
		r = err_set(e, -EBUSY,
			"node %s has %zu job%s of the queue on it (%s%s), and an ignored node isn't looked at: drain it, let them end or cancel them, then ignore it",
			name, n, n == 1 ? "" : "s", buf_str(&ids), n > 10 ? ", ..." : "");
	return r;
}

static int change(struct queue *q, enum what what, const char *name, struct err *e)
{
	int r = store_begin(q->store, NULL, e);

	if (r)
		return r;
	if (what == IGNORE)
		r = check_idle(q, name, e);
	if (!r)
		r = what == DRAIN || what == RESUME
			    ? store_node_drain(q->store, name, what == DRAIN, e)
			    : store_node_ignore(q->store, name, what == IGNORE, e);
	if (r < 0) {
		store_abort(q->store);
		return r;
	}
	return store_commit(q->store, e);
}

static int tell(struct queue *q, enum what what, const char *name, struct err *e)
{
	static const char *const said[] = {
		"takes no new jobs; what runs there goes on, and `queue resume` takes it back",
		"takes jobs again",
		"isn't looked at any more and takes no jobs; `queue unignore` takes it back",
		"is looked at again from the next pass on",
	};
	CLEANUP(buf_done) struct buf out = {0};

	if (q->json)
		return queue_print_json(what == DRAIN || what == RESUME
						? json_pack("{s:b, s:s, s:b}", "ok", 1, "node",
							  name, "enabled", what == RESUME)
						: json_pack("{s:b, s:s, s:b}", "ok", 1, "node",
							  name, "ignored", what == IGNORE),
			e);
	text_put_clean(&out, name, strlen(name));
	buf_printf(&out, " %s\n", said[what]);
	return command_print(&out, e);
}

static int run(const struct program *p, const struct node_options *o, enum what what,
	const char *word, struct err *e)
{
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP_FREE char *name = NULL;
	int r = queue_open(&q, p, &o->q, STORE_WRITE, e);

	if (!r)
		r = find_name(&q, word, &name, e);
	if (!r)
		r = change(&q, what, name, e);
	return r ? r : tell(&q, what, name, e);
}

static int drain_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	(void)argc;
	return run(p, opts, DRAIN, argv[0], e);
}

static int resume_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	(void)argc;
	return run(p, opts, RESUME, argv[0], e);
}

static int ignore_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	(void)argc;
	return run(p, opts, IGNORE, argv[0], e);
}

static int unignore_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	(void)argc;
	return run(p, opts, UNIGNORE, argv[0], e);
}

static const struct option_spec options[] = {
	QUEUE_OPTION_ROWS(struct node_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_drain, cmd_queue_resume, cmd_queue_ignore, cmd_queue_unignore;
#define NODE_COMMAND(word) \
	.args = "NAME", .options = options, .options_size = sizeof(struct node_options), \
	.min_args = 1, .max_args = 1, .complete = COMPLETE_JOB, \
	.candidates = queue_node_candidates, .wants_json = queue_wants_json, .name = "queue " word
const struct command cmd_queue_drain = {
	NODE_COMMAND("drain"),
	.summary = "give a node no new jobs",
	.about =
		"What runs there goes on. A name is taken whole, then ignoring case, then as a unique\n"
		"part of one.",
	.examples = "$ gpustow queue drain gpu1",
	.exec = drain_exec,
};
const struct command cmd_queue_resume = {
	NODE_COMMAND("resume"),
	.summary = "give a drained node jobs again",
	.examples = "$ gpustow queue resume gpu1",
	.exec = resume_exec,
};
const struct command cmd_queue_ignore = {
	NODE_COMMAND("ignore"),
	.summary = "leave a node out: it isn't looked at and takes no jobs",
	.about = "Refused while jobs of the queue are on it.",
	.examples = "$ gpustow queue ignore gpu1",
	.exec = ignore_exec,
};
const struct command cmd_queue_unignore = {
	NODE_COMMAND("unignore"),
	.summary = "take an ignored node in again",
	.examples = "$ gpustow queue unignore gpu1",
	.exec = unignore_exec,
};
