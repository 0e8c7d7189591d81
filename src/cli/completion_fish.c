/*
 * The fish script: one line an option, each under the condition that its command is the one typed. gpusched has lines of its
 * own: a wrapped command (complete -w) doesn't see the name it was called by.
 */
#include "cli/completion.h"

#include "base/cleanup.h"
#include "cli/global.h"

#include <string.h>

/* In fish's single quotes a backslash and a quote are escaped by a backslash. */
static void put_quoted(struct buf *out, const char *s)
{
	buf_putc(out, '\'');
	for (; *s; s++) {
		if (*s == '\'' || *s == '\\')
			buf_putc(out, '\\');
		buf_putc(out, *s);
	}
	buf_putc(out, '\'');
}

static void put_condition(struct buf *out, const char *name)
{
	CLEANUP(buf_done) struct buf test = {0};

	buf_puts(&test, "__gpustow_is ");
	put_quoted(&test, name);
	buf_puts(out, "\tcomplete -c $__gpustow_program -n ");
	put_quoted(out, test.data);
}

static void put_argument(struct buf *out, enum option_complete kind)
{
	switch (kind) {
	case COMPLETE_FILE:
		buf_puts(out, " -F");
		break;
	case COMPLETE_DIR:
		buf_puts(out, " -f -a '(__fish_complete_directories)'");
		break;
	case COMPLETE_JOB:
	case COMPLETE_NODE:
		buf_puts(out, " -f -k -a '(__gpustow_jobs)'");
		break;
	case COMPLETE_NONE:
		buf_puts(out, " -f");
		break;
	}
}

static void put_option(struct buf *out, const struct option_spec *o)
{
	if (o->letter)
		buf_printf(out, " -s %c", o->letter);
	buf_printf(out, " -l %s", o->name);
	if (*o->arg) {
		buf_puts(out, " -r");
		put_argument(out, o->complete);
	}
	buf_puts(out, " -d ");
	put_quoted(out, o->text);
	buf_putc(out, '\n');
}

/* name NULL: for gpusched, which is one command. */
static void put_command(struct buf *out, const struct command *c, const char *name)
{
	const struct option_spec *o;

	for (size_t i = 0; (o = option_at(c->options, i)); i++) {
		if (o->is_hidden)
			continue;
		if (name)
			put_condition(out, name);
		else
			buf_puts(out, "complete -c gpusched");
		put_option(out, o);
	}
	if (name)
		put_condition(out, name);
	else
		buf_puts(out, "complete -c gpusched");
	put_argument(out, c->complete);
	buf_putc(out, '\n');
}

/* A word that may come next: of the first ones, or behind the command's group. */
static void put_word(struct buf *out, const struct command *c)
{
	const char *space = strrchr(c->name, ' ');
	CLEANUP(buf_done) struct buf group = {0};

	if (space) {
		buf_put(&group, c->name, (size_t)(space - c->name));
		buf_printf(out,
			"\tcomplete -c $__gpustow_program -n \"__gpustow_is_right_behind '%s'\" -a %s -d ",
			group.data, space + 1);
	} else {
		buf_printf(out,
			"\tcomplete -c $__gpustow_program -n \"__gpustow_is ''\" -f -a %s -d ",
			c->name);
	}
	put_quoted(out, c->summary);
	buf_putc(out, '\n');
}

static void put_names(struct buf *out, bool two_words)
{
	for (size_t i = 0; i < commands_n; i++) {
		if (commands[i]->is_hidden || !!strchr(commands[i]->name, ' ') != two_words)
			continue;
		buf_putc(out, ' ');
		put_quoted(out, commands[i]->name);
	}
}

static void put_functions(struct buf *out)
{
	buf_puts(out,
		"# fish completion for gpustow, nvidb and gpusched; made by 'gpustow completion fish'\n"
		"function __gpustow_command\n"
		"\tset -l w (commandline -opc)\n"
		"\tif set -q w[3]; and contains -- \"$w[2] $w[3]\"");
	put_names(out, true);
	buf_puts(out, "\n\t\techo \"$w[2] $w[3]\"\n"
		      "\telse if set -q w[2]; and contains -- \"$w[2]\"");
	put_names(out, false);
	buf_puts(out,
		"\n\t\techo \"$w[2]\"\n\telse if set -q w[2]\n\t\techo unknown\n\tend\nend\n\n"
		"function __gpustow_is\n"
		"\tset -l c (__gpustow_command)\n"
		"\ttest \"$c\" = \"$argv[1]\"\nend\n\n"
		"function __gpustow_is_right_behind\n"
		"\tset -l w (commandline -opc)\n"
		"\ttest \"$w[2..-1]\" = \"$argv[1]\"\nend\n\n"
		"function __gpustow_jobs\n"
		"\tset -l w (commandline -opc)\n"
		"\t$w[1] __complete -- $w[2..-1] 2>/dev/null\nend\n\n");
}

void completion_fish(struct buf *out)
{
	const struct option_spec *o;

	put_functions(out);
	buf_puts(out, "complete -c gpusched -e\n");
	put_command(out, command_named("run"), NULL);
	buf_puts(out, "\nfor __gpustow_program in gpustow nvidb\n"
		      "\tcomplete -c $__gpustow_program -e\n");
	for (size_t i = 0; (o = option_at(global_specs, i)); i++) {
		put_condition(out, "");
		buf_puts(out, " -f");
		put_option(out, o);
	}
	buf_puts(out, "\tcomplete -c $__gpustow_program -n '__gpustow_is unknown' -f\n");
	for (size_t i = 0; i < commands_n; i++)
		if (!commands[i]->is_hidden)
			put_word(out, commands[i]);
	for (size_t i = 0; i < commands_n; i++)
		if (!commands[i]->is_hidden)
			put_command(out, commands[i], commands[i]->name);
	buf_puts(out, "end\nset -e __gpustow_program\n");
}
