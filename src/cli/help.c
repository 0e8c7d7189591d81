/* Help for people, from the table: usage line, one command's help, the overview. Pure: text in a buffer. */
#include "cli/command.h"

#include "base/cleanup.h"
#include "cli/global.h"

#include <stdio.h>
#include <string.h>

enum { HELP_WIDTH = 80, HELP_INDENT = 26 };

void command_put_name(const struct program *p, const struct command *c, struct buf *out)
{
	if (strcmp(p->name, "gpusched") == 0)
		buf_puts(out, p->name);
	else
		buf_printf(out, "%s %s", p->name, c->name);
}

void command_usage(const struct program *p, const struct command *c, struct buf *out)
{
	buf_puts(out, "usage: ");
	command_put_name(p, c, out);
	buf_puts(out, " [options]");
	if (c->args && c->args[0])
		buf_printf(out, " %s", c->args);
	buf_putc(out, '\n');
}

/* Words of `text`, each line after the first indented, none wider than the page unless one word is. */
static void put_wrapped(struct buf *out, size_t col, const char *text)
{
	const char *word = text;

	while (*word) {
		size_t len = strcspn(word, " ");

		if (word != text && col + 1 + len > HELP_WIDTH) {
			buf_printf(out, "\n%*s", HELP_INDENT, "");
			col = HELP_INDENT;
		} else if (word != text) {
			buf_putc(out, ' ');
			col++;
		}
		buf_put(out, word, len);
		col += len;
		word += len + strspn(word + len, " ");
	}
	buf_putc(out, '\n');
}

/* "  left      text", the text on the next line when the left side is too wide. */
static void put_row(struct buf *out, const char *left, const char *text)
{
	size_t start = out->len, col;

	buf_printf(out, "  %s", left);
	col = out->len - start;
	if (col + 2 > HELP_INDENT) {
		buf_putc(out, '\n');
		col = 0;
	}
	buf_printf(out, "%*s", (int)(HELP_INDENT - col), "");
	put_wrapped(out, HELP_INDENT, text);
}

static void put_option(struct buf *out, const struct option_spec *o)
{
	CLEANUP(buf_done) struct buf left = {0};

	if (o->letter)
		buf_printf(&left, "-%c, ", o->letter);
	buf_printf(&left, "--%s", o->name);
	if (*o->arg)
		buf_printf(&left, o->bare ? " [%s]" : " %s", o->arg);
	put_row(out, buf_str(&left), o->text);
}

/* "run status" is below "run". */
static bool is_below(const struct command *c, const char *group)
{
	size_t len = strlen(group);

	return !c->is_hidden && strncmp(c->name, group, len) == 0 && c->name[len] == ' ';
}

static void put_sub_commands(const struct program *p, const struct command *c, struct buf *out)
{
	bool any = false;

	if (strcmp(p->name, "gpusched") == 0)
		return;
	for (size_t i = 0; i < commands_n; i++) {
		if (!is_below(commands[i], c->name))
			continue;
		buf_puts(out, any ? "" : "\ncommands:\n");
		any = true;
		put_row(out, commands[i]->name, commands[i]->summary);
	}
}

/* Lines "$ gpustow NAME ..." are shown with the name the user called. */
static void put_examples(const struct program *p, const struct command *c, struct buf *out)
{
	CLEANUP(buf_done) struct buf mark = {0};
	const char *line = c->examples;

	buf_printf(&mark, "$ gpustow %s", c->name);
	buf_puts(out, "\nexamples:\n");
	while (*line) {
		size_t len = strcspn(line, "\n");

		buf_puts(out, "  ");
		if (strncmp(line, mark.data, mark.len) == 0) {
			buf_puts(out, "$ ");
			command_put_name(p, c, out);
			buf_put(out, line + mark.len, len - mark.len);
		} else {
			buf_put(out, line, len);
		}
		buf_putc(out, '\n');
		line += len + (line[len] == '\n');
	}
}

void command_help(const struct program *p, const struct command *c, struct buf *out)
{
	const struct option_spec *o;

	command_usage(p, c, out);
	buf_printf(out, "\n%s\n", c->summary);
	if (c->about)
		buf_printf(out, "\n%s\n", c->about);
	buf_puts(out, "\noptions:\n");
	for (size_t i = 0; (o = option_at(c->options, i)); i++)
		if (!o->is_hidden)
			put_option(out, o);
	put_sub_commands(p, c, out);
	if (c->examples)
		put_examples(p, c, out);
}

void command_overview(const struct program *p, struct buf *out)
{
	const struct option_spec *o;

	buf_printf(out,
		"usage: %s [options] [COMMAND [options] [arguments]]\n"
		"\nGPUs for people who share them: what they do, on this machine and on others, and shell\n"
		"commands, queued onto cards by memory.\n"
		"\ncommands:\n",
		p->name);
	for (size_t i = 0; i < commands_n; i++) {
		const struct command *c = commands[i];
		CLEANUP(buf_done) struct buf left = {0};

		if (c->is_hidden)
			continue;
		buf_puts(&left, c->name);
		if (c->args && c->args[0])
			buf_printf(&left, " %s", c->args);
		put_row(out, buf_str(&left), c->summary);
	}
	buf_puts(out, "\noptions before the command:\n");
	for (size_t i = 0; (o = option_at(global_specs, i)); i++)
		put_option(out, o);
	buf_printf(out, "\n'%s help COMMAND' or '%s COMMAND --help' says what a command takes.\n",
		p->name, p->name);
}
