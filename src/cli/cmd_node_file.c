/*
 * gpustow __file HOST DIR NAME: a file of a job directory as fleet/node_file brings it, for that room's tests. The bytes go to
 * stdout, what is said about them to stderr, one JSON object a line. HOST is a name that ssh knows, or "local". Hidden.
 */
#include "cli/command.h"

#include "base/fd.h"
#include "config/config.h"
#include "fleet/node_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file_options {
	const char *home, *queue;
	int64_t lines, offset, max, job, attempt, timeout_s;
	bool follow;
};

static void say(json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);

	fprintf(stderr, "%s\n", text);
	free(text);
	json_decref(line);
}

static void on_begun(void *arg, bool exists, int64_t size, int64_t offset, bool is_cut)
{
	say(json_pack("{s:b, s:I, s:I, s:b}", "exists", exists, "size", (json_int_t)size, "offset",
		(json_int_t)offset, "is_cut", is_cut));
}

static int on_data(void *arg, const char *bytes, size_t n)
{
	return fd_write_all(STDOUT_FILENO, bytes, n);
}

static void on_cut(void *arg, const char *why)
{
	say(json_pack("{s:s}", "cut", why));
}

static int file_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct file_options *o = opts;
	struct host_config host = {.nickname = argv[0], .hostname = argv[0], .port = 22};
	bool is_local = !strcmp(argv[0], "local");
	const struct node_file_sink sink = {.begun = on_begun, .data = on_data, .cut = on_cut};
	const struct stream_want want = {.dir = argv[1],
		.name = argv[2],
		.lines = o->offset || !o->lines ? -1 : o->lines,
		.offset = o->offset,
		.max = o->max,
		.follow = o->follow,
		.queue = o->queue,
		.job = (uint64_t)o->job,
		.attempt = (uint32_t)o->attempt};

	if (!is_local && !o->home)
		return err_set(e, -EINVAL, "--home DIR is needed");
	return node_file_fetch(is_local ? NULL : &host, o->home, &want, &sink,
		(o->timeout_s ? o->timeout_s : 30) * 1000, e);
}

#define NUMBER(key, member, top, words) \
	{ \
		.name = (key), .arg = "N", .kind = OPTION_INT, \
		.offset = offsetof(struct file_options, member), .max = (top), .text = (words) \
	}

static const struct option_spec specs[] = {
	{.name = "home",
		.arg = "DIR",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct file_options, home),
		.text = "control sockets below it"},
	{.name = "queue",
		.arg = "ID",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct file_options, queue),
		.text = "of the attempt whose end ends the following"},
	NUMBER("job", job, INT32_MAX, "of that attempt"),
	NUMBER("attempt", attempt, INT32_MAX, "its number"),
	NUMBER("lines", lines, INT32_MAX, "the last so many"),
	NUMBER("offset", offset, INFINITY, "from this byte on"),
	NUMBER("max", max, 64 * 1024 * 1024, "bytes at most"),
	NUMBER("timeout", timeout_s, 86400, "seconds for the node's answer"),
	{.name = "follow",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct file_options, follow),
		.text = "more as it grows"},
	OPTION_SPEC_END,
};

extern const struct command cmd_node_file;
const struct command cmd_node_file = {
	.name = "__file",
	.args = "HOST DIR NAME",
	.summary = "print a file of a job directory",
	.options = specs,
	.options_size = sizeof(struct file_options),
	.min_args = 3,
	.max_args = 3,
	.is_hidden = true,
	.exec = file_exec,
};
