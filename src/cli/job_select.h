/*
 * Which jobs: numbers, ranges, and --tag, --name, --state, --node, as `job ls|cancel|requeue|release` take them. All that are
 * given must hold.
 */
#pragma once

#include "cli/queue_common.h"

struct job_select {
	struct option_list states, tags;
	const char *name, *node;
};

#define JOB_SELECT_ROWS(type) \
	{.name = "state", \
		.arg = "STATE", \
		.kind = OPTION_LIST, \
		.offset = offsetof(type, select.states), \
		.text = "only jobs in that state (pending, held, running, completed, failed, cancelled, timeout, lost); may be given again"}, \
		{.name = "tag", \
			.arg = "TAG", \
			.kind = OPTION_LIST, \
			.offset = offsetof(type, select.tags), \
			.text = "only jobs with that tag"}, \
		{.name = "name", \
			.arg = "NAME", \
			.kind = OPTION_TEXT, \
			.offset = offsetof(type, select.name), \
			.text = "only jobs of that name"}, \
	{ \
		.name = "node", .arg = "NODE", .kind = OPTION_TEXT, \
		.offset = offsetof(type, select.node), .complete = COMPLETE_NODE, \
		.text = "only jobs that run there, ran there last, or are pinned to it" \
	}

bool job_select_is_empty(const struct job_select *s);
/*
 * The question for the store; its texts are borrowed from s, its ids from *ids (filled from the words). -EINVAL with a sentence. Several tags:
 * the first one is in the question, job_select_has_tags looks at all.
 */
int job_select_question(struct queue *q, const struct job_select *s, int argc, char **argv,
	struct id_list *ids, struct store_question *ret, struct err *e);
bool job_select_has_tags(const struct job_select *s, const struct job *j);
/*
 * The jobs of it, by id. Numbers that aren't there: -ENOENT naming them, unless missing is given, which gets them then. Neither words
 * nor options: -EINVAL, "say which".
 */
int job_select_find(struct queue *q, const struct job_select *s, int argc, char **argv,
	struct store_jobs *ret, struct id_list *missing, struct err *e);
