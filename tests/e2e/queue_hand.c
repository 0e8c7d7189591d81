/*
 * A hand for the end-to-end tests, where no command of gpustow's does what they need (or isn't what they test):
 *
 *   queue_hand DB submit            a job from stdin: {"command", "gpus", "vram_mib", "name", "max_retries", ...}; prints its id
 *   queue_hand DB cancel|requeue|release ID...
 *   queue_hand DB set-vram ID MIB
 *   queue_hand DB drain|ignore NODE on|off
 *   queue_hand DB meta KEY VALUE
 *   queue_hand DB adopt
 *   queue_hand DB hold-lease SECONDS
 *   queue_hand DB passes
 */
#include "base/alloc.h"
#include "base/parse.h"
#include "store/store.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct err e;

static int fail(int r)
{
	fprintf(stderr, "queue_hand: %d: %s\n", r, e.text);
	return 1;
}

static int64_t int_of(const json_t *o, const char *key, int64_t otherwise)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? json_integer_value(v) : json_is_true(v) ? 1 : otherwise;
}

static char *text_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_object(v) || json_is_array(v))
		return json_dumps(v, JSON_COMPACT);
	return json_is_string(v) ? xstrdup(json_string_value(v)) : NULL;
}

static size_t ids_of(const json_t *o, const char *key, int64_t **ret)
{
	const json_t *list = json_object_get(o, key), *v;
	size_t i;

	*ret = xcalloc(json_array_size(list) + 1, sizeof(**ret));
	json_array_foreach(list, i, v)(*ret)[i] = json_integer_value(v);
	return json_array_size(list);
}

static int submit(struct store *s)
{
	json_t *o = json_loadf(stdin, 0, NULL);
	struct job j;
	int64_t id;
	int r;

	if (!o)
		return -EINVAL;
	job_init(&j);
	j.command = text_of(o, "command");
	j.name = text_of(o, "name");
	j.workdir = text_of(o, "workdir");
	j.env = text_of(o, "env");
	j.node_constraint = text_of(o, "node");
	j.gpus = int_of(o, "gpus", 0);
	j.vram_mib = int_of(o, "vram_mib", -1);
	j.vram_source = j.vram_mib < 0 ? VRAM_NONE : VRAM_DECLARED;
	j.priority = int_of(o, "priority", 0);
	j.max_runtime_ms = int_of(o, "max_runtime_ms", 0);
	j.grace_ms = int_of(o, "grace_ms", -1);
	j.max_retries = int_of(o, "max_retries", 0);
	j.oom_retries = int_of(o, "oom_retries", -1);
	j.exclusive = int_of(o, "exclusive", 0);
	j.idle = int_of(o, "idle", 0);
	j.on_dependency = (enum on_dependency)int_of(o, "on_dependency", 0);
	j.n_after = ids_of(o, "after", &j.after);
	j.n_after_any = ids_of(o, "after_any", &j.after_any);
	r = store_submit(s, &j, &id, &e);
	if (r >= 0)
		printf("%" PRId64 "\n", id);
	job_done(&j);
	json_decref(o);
	return r;
}

static int change(struct store *s, const char *what, const char *arg, const char *more)
{
	enum store_cancelled c;
	int64_t id = 0, mib = 0;
	bool on = more && !strcmp(more, "on");

	parse_int64(arg, &id);
	if (!strcmp(what, "cancel"))
		return store_cancel(s, id, "by the test", &c, &e);
	if (!strcmp(what, "requeue"))
		return store_requeue(s, id, &e);
	if (!strcmp(what, "release"))
		return store_release(s, id, NULL, NULL, &e);
	if (!strcmp(what, "set-vram"))
		return parse_int64(more, &mib) ? -EINVAL
					       : store_set_vram(s, id, mib, VRAM_DECLARED, &e);
	if (!strcmp(what, "meta"))
		return store_meta_set(s, arg, more, &e);
	if (!strcmp(what, "drain"))
		return store_node_drain(s, arg, on, &e);
	if (!strcmp(what, "ignore"))
		return store_node_ignore(s, arg, on, &e);
	return -EINVAL;
}

static int change_all(struct store *s, int argc, char **argv)
{
	const char *what = argv[2];
	bool is_pair =
		!strcmp(what, "set-vram") || !strcmp(what, "drain") || !strcmp(what, "ignore");
	int r = store_begin(s, NULL, &e);

	if (!r && !strcmp(what, "submit"))
		r = submit(s);
	for (int i = 3; r >= 0 && i < argc; i += is_pair ? 2 : 1)
		r = change(s, what, argv[i], is_pair ? argv[i + 1] : NULL);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, &e);
}

static int hold_lease(struct store *s, const char *seconds)
{
	struct store_lease l;
	int64_t n = 0;
	int r = parse_int64(seconds, &n);

	if (!r)
		r = store_lease_take(s, "the test", 600000, &l, NULL, &e);
	if (r < 0)
		return r;
	printf("held\n");
	fflush(stdout);
	sleep((unsigned)n);
	return store_lease_release(s, &l, &e);
}

static int tell_passes(struct store *s)
{
	int64_t begun, done;
	int r = store_passes(s, &begun, &done, &e);

	if (!r)
		printf("%" PRId64 " %" PRId64 "\n", begun, done);
	return r;
}

int main(int argc, char **argv)
{
	struct store_options o = {.mode = STORE_WRITE};
	struct store *s;
	int r = argc > 2 ? store_open(argv[1], &o, &s, &e) : -EINVAL;

	if (r < 0)
		return fail(r);
	if (!strcmp(argv[2], "hold-lease"))
		r = hold_lease(s, argv[3]);
	else if (!strcmp(argv[2], "adopt"))
		r = store_adopt(s, &e);
	else if (!strcmp(argv[2], "passes"))
		r = tell_passes(s);
	else
		r = change_all(s, argc, argv);
	store_close(s);
	return r < 0 ? fail(r) : 0;
}
