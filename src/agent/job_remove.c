/* Which of a queue's job directories may go, and the answer (job_remove.h). How they go is job_dir.c's business. */
#include "agent/job_remove.h"

#include "agent/chores.h"
#include "agent/job_dir.h"
#include "agent/lanes.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/wire.h"

#include <stdio.h>
#include <stdlib.h>

#define NAMES_MAX 10000
#define REMOVALS_MAX 64 /* under way */

/* "7.1", which has no claim any more, and won't have one: a lane makes the next one's directory ahead. */
static bool may_remove(
	struct agent *a, const struct client *c, const json_t *v, struct attempt_name *ret)
{
	char name[ATTEMPT_NAME_LEN];
	CLEANUP_CLOSE int fd = -1;

	if (!json_is_string(v))
		return false;
	if (snprintf(name, sizeof(name), "%s/%s", c->queue, json_string_value(v)) >=
			(int)sizeof(name) ||
		attempt_name_parse(name, ret) || attempts_find(&a->attempts, ret) ||
		lanes_waiting(a, ret))
		return false;
	fd = claim_open(&a->root, ret);
	return fd == -ENOENT;
}

/* Who waits to hear of it. */
struct removal {
	uint64_t number, client;
	int64_t id;
	struct removal *next;
};

static size_t count(const struct removal *w)
{
	size_t n = 0;

	for (; w; w = w->next)
		n++;
	return n;
}

void job_removals_free(struct removal *w)
{
	while (w) {
		struct removal *next = w->next;

		free(w);
		w = next;
	}
}

static void is_removed(
	struct agent *a, uint64_t number, const json_t *answer, int code, const struct err *e)
{
	struct removal **p = &a->removals, *w;
	struct client *c;

	while (*p && (*p)->number != number)
		p = &(*p)->next;
	w = *p;
	if (!w)
		return;
	c = agent_find_client(a, w->client);
	if (c && answer)
		client_send(c, json_pack("{s:s, s:I, s:O}", "op", "removed", "id",
				       (json_int_t)w->id, "n", json_object_get(answer, "code")));
	else if (c)
		client_error_of(c, w->id, e->text);
	*p = w->next;
	free(w);
}

int job_remove(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	const json_t *names = json_object_get(msg, "names");
	CLEANUP_FREE struct attempt_name *found = NULL;
	CLEANUP_FREE char *job_root = NULL;
	char root[JOB_DIR_MAX];
	struct removal *w;
	int64_t id;
	size_t n = 0;
	int r;

	if ((r = wire_int(msg, "id", INT64_MIN, INT64_MAX, &id, e)) ||
		(r = wire_str(msg, "root", root, sizeof(root), e)))
		return r;
	if (!json_is_array(names) || json_array_size(names) > NAMES_MAX)
		return err_set(e, -EINVAL,
			"the message's \"names\" must be a list of at most %d names", NAMES_MAX);
	if (count(a->removals) >= REMOVALS_MAX)
		return err_set(e, -EBUSY,
			"%d removals are under way on this machine; try again later", REMOVALS_MAX);
	r = account_path(agent_account(a), root, &job_root, e);
	if (r)
		return r;
	found = xcalloc(json_array_size(names) + 1, sizeof(*found));
	for (size_t i = 0; i < json_array_size(names); i++)
		n += may_remove(a, c, json_array_get(names, i), &found[n]);
	w = xcalloc(1, sizeof(*w));
	w->number = chores_remove(a, job_root, found, n, is_removed);
	w->client = c->id;
	w->id = id;
	w->next = a->removals;
	a->removals = w;
	return 0;
}
