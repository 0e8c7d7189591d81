/*
 * The child's side of chores.h: does what it was forked for, one after the other, and says what came of each. It has the
 * agent's memory as it was at the fork, and of its descriptors only the root's.
 */
#include "agent/chores.h"
#include "agent/facts_of_end.h"
#include "agent/helper.h"
#include "agent/job_dir.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "core/wire.h"

#include <errno.h>
#include <unistd.h>

static void say(int fd, json_t *msg)
{
	CLEANUP(buf_done) struct buf b = {0};

	/* Whoever listened is gone, or what is to be said can't be: either way there's nobody to go on for. */
	if (wire_put_json(&b, msg, NULL) || fd_write_all(fd, b.data, b.len))
		_exit(1);
	json_decref(msg);
}

static void say_alive(void *arg)
{
	say(*(const int *)arg, json_pack("{s:b}", "alive", 1));
}

static json_t *result_of(int code, const struct err *e)
{
	return json_pack("{s:i, s:s}", "code", code, "text", code < 0 ? e->text : "");
}

static json_t *read_one(struct chore *c, int *fd)
{
	const struct says_found *f = c->says;
	json_t *o;

	fault_point("jobdir.before-read");
	o = facts_read(c->dir, c->has_ended, c->says, say_alive, fd);

	json_object_set_new(o, "found",
		json_pack("[b, I, I, I, I, I]", f->is_there, (json_int_t)f->size[0],
			(json_int_t)f->size[1], (json_int_t)f->mtime_ns[0],
			(json_int_t)f->mtime_ns[1], (json_int_t)f->found));
	json_object_set_new(o, "code", json_integer(0));
	return o;
}

static json_t *do_one(const struct root *r, struct chore *c, int *fd)
{
	struct err e = {0};

	if (c->is_void)
		return result_of(err_set(&e, -EEXIST, "there is a claim of that name already"), &e);
	switch (c->kind) {
	case CHORE_MAKE:
		return result_of(job_dir_make(r, &c->spec, &e), &e);
	case CHORE_DROP:
		job_dir_drop(&c->spec);
		break;
	case CHORE_REMOVE:
		return result_of(job_dir_remove(c->dir, c->names, c->n_names, &e), &e);
	case CHORE_READ:
		return read_one(c, fd);
	}
	return result_of(0, &e);
}

struct batch {
	const struct root *root;
	struct chore *const *items;
	size_t n;
};

static void work(int fd, void *arg)
{
	const struct batch *b = arg;

	for (size_t i = 0; i < b->n; i++)
		say(fd, do_one(b->root, b->items[i], &fd));
}

pid_t chore_fork(const struct root *r, struct chore *const *items, size_t n, int *ret_fd)
{
	struct batch b = {.root = r, .items = items, .n = n};

	return helper_fork(CHORE_NAME, r->fd, work, &b, ret_fd);
}
