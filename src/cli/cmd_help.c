/* gpustow help [COMMAND]: the overview, or one command's help. And the hidden __man, from which the man pages are built. */
#include "cli/command.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <string.h>

/* The command all the words name together; NULL with a sentence. */
static const struct command *named(const struct program *p, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf name = {0}, q = {0};
	const struct command *c;

	for (int i = 0; i < argc; i++)
		buf_printf(&name, "%s%s", i ? " " : "", argv[i]);
	c = command_named(buf_str(&name));
	if (c)
		return c;
	text_put_repr(&q, name.data, name.len < 200 ? name.len : 200);
	err_set(e, -EINVAL, "there's no command %s; '%s help' lists the commands", buf_str(&q),
		p->name);
	return NULL;
}

static int help_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	const struct command *c;

	(void)opts;
	if (argc == 0) {
		command_overview(p, &out);
		return command_print(&out, e);
	}
	c = named(p, argc, argv, e);
	if (!c)
		return -EINVAL;
	command_help(p, c, &out);
	return command_print(&out, e);
}

static int man_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	const struct command *c = NULL;

	(void)opts;
	if (argc > 0) {
		c = named(p, argc, argv, e);
		if (!c)
			return -EINVAL;
	}
	command_man(c, &out);
	return command_print(&out, e);
}

extern const struct command cmd_help, cmd_man;
const struct command cmd_help = {
	.name = "help",
	.args = "[COMMAND]",
	.summary = "show the commands, or what one of them takes",
	.max_args = -1,
	.exec = help_exec,
};

const struct command cmd_man = {
	.name = "__man",
	.args = "[COMMAND]",
	.summary = "print a man page's source (scdoc)",
	.max_args = -1,
	.is_hidden = true,
	.exec = man_exec,
};
