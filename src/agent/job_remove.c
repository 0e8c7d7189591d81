/* Which of a queue's job directories may go, and the answer (job_remove.h). How they go is job_dir.c's business. */
#include "agent/job_remove.h"

#include "agent/job_dir.h"
#include "agent/lanes.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/wire.h"

#include <stdio.h>

#define NAMES_MAX 10000

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

int job_remove(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	const json_t *names = json_object_get(msg, "names");
	CLEANUP_FREE struct attempt_name *found = NULL;
	CLEANUP_FREE char *job_root = NULL;
	char root[JOB_DIR_MAX];
	int64_t id;
	size_t n = 0;
	int r;

	if ((r = wire_int(msg, "id", INT64_MIN, INT64_MAX, &id, e)) ||
		(r = wire_str(msg, "root", root, sizeof(root), e)))
		return r;
	if (!json_is_array(names) || json_array_size(names) > NAMES_MAX)
		return err_set(e, -EINVAL,
			"the message's \"names\" must be a list of at most %d names", NAMES_MAX);
	r = account_path(agent_account(a), root, &job_root, e);
	if (r)
		return r;
	found = xcalloc(json_array_size(names) + 1, sizeof(*found));
	for (size_t i = 0; i < json_array_size(names); i++)
		n += may_remove(a, c, json_array_get(names, i), &found[n]);
	r = job_dir_remove(job_root, found, n, e);
	if (r < 0)
		return r;
	client_send(c, json_pack("{s:s, s:I, s:i}", "op", "removed", "id", (json_int_t)id, "n", r));
	return 0;
}
