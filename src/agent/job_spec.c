/*
 * A job of a `launch` or a `lane` message, turned into what a claim needs (job_spec.h). Touches no disk, but for what the
 * account and the simulation say of themselves.
 */
#include "agent/job_spec.h"

#include "agent/job_dir.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "core/wire.h"
#include "gpu/sim_spec.h"

#include <stdlib.h>
#include <string.h>

static void add_var(json_t *env, const char *name, const char *value)
{
	char *s = xasprintf("%s=%s", name, value);

	json_array_append_new(env, json_string(s));
	free(s);
}

/* Where simulated jobs say what they hold: asked once, for it looks at the disk. */
static const json_t *sim_vars(struct agent *a)
{
	const char *sim = getenv("GPUSTOW_SIM");
	char dir[4096];

	if (a->sim_vars)
		return a->sim_vars;
	a->sim_vars = json_array();
	if (!sim || !*sim)
		return a->sim_vars;
	add_var(a->sim_vars, "GPUSTOW_SIM", sim);
	if (!sim_dir(dir, sizeof(dir), NULL))
		add_var(a->sim_vars, "GPUSTOW_SIM_DIR", dir);
	return a->sim_vars;
}

/* What the agent adds: the mark, and the simulation's. */
static void add_own_vars(struct agent *a, json_t *env, const struct attempt_name *n)
{
	char mark[ATTEMPT_NAME_LEN];

	attempt_name_format(n, mark);
	add_var(env, "GPUSTOW_MARK", mark);
	json_array_extend(env, (json_t *)(uintptr_t)sim_vars(a));
}

int job_spec(struct agent *a, const char *queue, const json_t *job, json_t *shared,
	struct claim_spec *ret, struct err *e)
{
	struct attempt_name n = {0};
	json_t *o, *env;
	int64_t number, attempt;
	int r = wire_int(job, "job", 1, INT64_MAX, &number, e);

	if (!r)
		r = wire_int(job, "attempt", 1, UINT32_MAX, &attempt, e);
	if (r)
		return r;
	if (json_object_get(job, "env") && !json_is_array(json_object_get(job, "env")))
		return err_set(e, -EINVAL, "job %lld: \"env\" must be a list", (long long)number);
	n.job = (uint64_t)number;
	n.attempt = (uint32_t)attempt;
	memcpy(n.queue, queue, ID_LEN);
	o = json_copy((json_t *)job);
	env = json_array();
	if (json_object_get(o, "dir"))
		r = job_dir_expand(o, &n, agent_account(a), env, e);
	json_array_extend(env, shared);
	json_array_extend(env, json_object_get(job, "env"));
	add_own_vars(a, env, &n);
	json_object_set_new(o, "env", env);
	json_object_del(o, "queue");
	json_object_del(o, "boot_id");
	if (!r)
		r = claim_spec_decode(o, ret, e);
	json_decref(o);
	if (r)
		return err_wrap(e, r, "job %lld", (long long)number);
	job_dir_fill(ret);
	ret->name = n;
	memcpy(ret->boot_id, a->attempts.boot_id, sizeof(ret->boot_id));
	return 0;
}
