/* Which jobs a command is about: see job_select.h. */
#include "cli/job_select.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_MAX 20 /* missing numbers that a sentence lists */

bool job_select_is_empty(const struct job_select *s)
{
	return !s->states.n && !s->tags.n && !s->name && !s->node;
}

static int take_state(const char *word, struct store_question *ret, struct err *e)
{
	enum job_state state;

	if (!strcmp(word, "held")) {
		ret->held = true;
		ret->states |= 1u << JOB_STATE_PENDING;
		return 0;
	}
	if (job_state_from_name(word, &state) || state == JOB_STATE_NONE)
		return err_set(e, -EINVAL,
			"there's no state '%.60s'; states are pending, held, running, completed, failed, cancelled, timeout, lost",
			word);
	ret->states |= 1u << state;
	return 0;
}

static int take_states(const struct job_select *s, struct store_question *ret, struct err *e)
{
	for (size_t i = 0; i < s->states.n; i++) {
		CLEANUP_FREE char *copy = xstrdup(s->states.items[i]);
		char *save = NULL;

		for (char *word = strtok_r(copy, ",", &save); word;
			word = strtok_r(NULL, ",", &save)) {
			int r = take_state(word, ret, e);

			if (r)
				return r;
		}
	}
	if (ret->held && ret->states != 1u << JOB_STATE_PENDING)
		return err_set(e, -EINVAL,
			"--state held goes alone: held jobs are pending ones that wait for a person");
	return 0;
}

static int id_order(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void sort_unique(struct id_list *l)
{
	size_t n = 0;

	if (!l->n)
		return;
	qsort(l->v, l->n, sizeof(*l->v), id_order);
	for (size_t i = 0; i < l->n; i++)
		if (!i || l->v[i] != l->v[n - 1])
			l->v[n++] = l->v[i];
	l->n = n;
}

int job_select_question(struct queue *q, const struct job_select *s, int argc, char **argv,
	struct id_list *ids, struct store_question *ret, struct err *e)
{
	const struct queue_node *node;
	int r = take_states(s, ret, e);

	for (int i = 0; !r && i < argc; i++)
		r = queue_parse_ids(argv[i], ids, e);
	if (r)
		return r;
	sort_unique(ids);
	ret->ids = ids->v;
	ret->n_ids = ids->n;
	ret->name = s->name;
	ret->tag = s->tags.n ? s->tags.items[0] : NULL;
	/* A node that isn't configured any more may still have had jobs: its name is taken as it is. */
	if (s->node)
		ret->node = !queue_parse_node(q, s->node, &node, &(struct err){0}) ? node->name
										   : s->node;
	return 0;
}

bool job_select_has_tags(const struct job_select *s, const struct job *j)
{
	json_t *tags;
	bool has_all = true;

	if (s->tags.n < 2)
		return true;
	tags = j->tags ? json_loads(j->tags, 0, NULL) : NULL;
	for (size_t i = 1; i < s->tags.n && has_all; i++) {
		json_t *tag;
		size_t k;
		bool has = false;

		json_array_foreach(tags, k, tag) has |= !strcmp(
			json_string_value(tag) ? json_string_value(tag) : "", s->tags.items[i]);
		has_all = has;
	}
	json_decref(tags);
	return has_all;
}

static void keep_tagged(const struct job_select *s, struct store_jobs *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (job_select_has_tags(s, &l->v[i]))
			l->v[n++] = l->v[i];
		else
			job_done(&l->v[i]);
	}
	l->n = n;
}

/* Only where numbers alone were given: with other conditions a number may be there and not meet them. */
static int check_missing(const struct id_list *ids, const struct store_jobs *l,
	struct id_list *missing, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	size_t at = 0, n = 0;

	for (size_t i = 0; i < ids->n; i++) {
		while (at < l->n && l->v[at].id < ids->v[i])
			at++;
		if (at < l->n && l->v[at].id == ids->v[i])
			continue;
		if (missing) {
			GROW(missing->v, missing->n, missing->cap);
			missing->v[missing->n++] = ids->v[i];
		} else if (n++ < NAMED_MAX) {
			buf_printf(&b, "%s%" PRId64, n > 1 ? ", " : "", ids->v[i]);
		}
	}
	if (!n)
		return 0;
	return err_set(e, -ENOENT, "there's no job %s%s; `job ls` lists them", buf_str(&b),
		n > NAMED_MAX ? " and more" : "");
}

int job_select_find(struct queue *q, const struct job_select *s, int argc, char **argv,
	struct store_jobs *ret, struct id_list *missing, struct err *e)
{
	CLEANUP(id_list_done) struct id_list ids = {0};
	struct store_question question = {0};
	int r;

	if (!argc && job_select_is_empty(s))
		return err_set(e, -EINVAL,
			"say which jobs: numbers, ranges as 3-9, or --tag, --name, --state, --node");
	r = job_select_question(q, s, argc, argv, &ids, &question, e);
	if (!r)
		r = store_jobs(q->store, &question, ret, e);
	if (r)
		return r;
	keep_tagged(s, ret);
	return ids.n && job_select_is_empty(s) ? check_missing(&ids, ret, missing, e) : 0;
}
