/*
 * Man pages as scdoc source, from the table: gpustow(1), and gpustow-run(1) and its like, one for each command. Pure. No
 * character of the table may be taken for markup.
 */
#include "cli/command.h"

#include "base/cleanup.h"
#include "cli/global.h"

#include <stdio.h>
#include <string.h>

static void put_escaped(struct buf *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strchr("\\_*#|[]<>~`-.;!+", s[i]))
			buf_putc(out, '\\');
		buf_putc(out, s[i]);
	}
}

static void put_text(struct buf *out, const char *s)
{
	put_escaped(out, s, strlen(s));
}

static void put_bold(struct buf *out, const char *s)
{
	buf_putc(out, '*');
	put_text(out, s);
	buf_putc(out, '*');
}

/* "gpustow-run-status" */
static void put_page_name(struct buf *out, const struct command *c)
{
	buf_puts(out, "gpustow");
	for (const char *s = c ? c->name : ""; *s; s++) {
		if (s == c->name)
			buf_putc(out, '-');
		buf_putc(out, *s == ' ' ? '-' : *s);
	}
}

static void put_head(struct buf *out, const struct command *c, const char *summary)
{
	CLEANUP(buf_done) struct buf page = {0};

	put_page_name(&page, c);
	buf_printf(out, "%s(1) \"gpustow " GPUSTOW_VERSION "\"\n\n# NAME\n\n%s - ", buf_str(&page),
		buf_str(&page));
	put_text(out, summary);
	buf_puts(out, "\n\n# SYNOPSIS\n\n");
}

/* Lines; those that begin with blanks are shown as they are. */
static void put_paragraphs(struct buf *out, const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\n");
		bool is_literal = text[0] == ' ';

		if (is_literal)
			buf_puts(out, "\n```\n");
		if (is_literal)
			buf_put(out, text, len);
		else
			put_escaped(out, text, len);
		buf_puts(out, is_literal ? "\n```\n\n" : "\n");
		text += len + (text[len] == '\n');
	}
	buf_putc(out, '\n');
}

static void put_option(struct buf *out, const struct option_spec *o)
{
	if (o->letter) {
		buf_puts(out, "*\\-");
		buf_putc(out, o->letter);
		buf_puts(out, "*, ");
	}
	buf_puts(out, "*\\-\\-");
	put_text(out, o->name);
	buf_putc(out, '*');
	if (*o->arg) {
		buf_puts(out, o->bare ? " [_" : " _");
		put_text(out, o->arg);
		buf_puts(out, o->bare ? "_]" : "_");
	}
	buf_puts(out, "\n\t");
	put_text(out, o->text);
	buf_puts(out, "\n\n");
}

static void put_examples(struct buf *out, const char *text)
{
	buf_puts(out, "# EXAMPLES\n\n```\n");
	buf_puts(out, text);
	buf_puts(out, text[strlen(text) - 1] == '\n' ? "```\n\n" : "\n```\n\n");
}

static void put_see_also(struct buf *out, const struct command *c)
{
	size_t group = c ? strcspn(c->name, " ") : 0;

	buf_puts(out, "# SEE ALSO\n\n");
	if (c)
		buf_puts(out, "*gpustow*(1)");
	for (size_t i = 0, shown = c != NULL; i < commands_n; i++) {
		const struct command *other = commands[i];

		if (other == c || other->is_hidden)
			continue;
		/* A command's page names its own group, the main page everything. */
		if (c && !(strncmp(other->name, c->name, group) == 0 &&
				 strcspn(other->name, " ") == group))
			continue;
		buf_puts(out, shown++ ? ", *" : "*");
		put_page_name(out, other);
		buf_puts(out, "*(1)");
	}
	buf_putc(out, '\n');
}

static void put_command_page(const struct command *c, struct buf *out)
{
	const struct option_spec *o;

	put_head(out, c, c->summary);
	buf_puts(out, "*gpustow ");
	put_text(out, c->name);
	buf_puts(out, "* \\[options\\]");
	if (c->args && c->args[0]) {
		buf_putc(out, ' ');
		put_text(out, c->args);
	}
	buf_puts(out, "\n\n");
	if (c->about) {
		buf_puts(out, "# DESCRIPTION\n\n");
		put_paragraphs(out, c->about);
	}
	buf_puts(out, "# OPTIONS\n\n");
	for (size_t i = 0; (o = option_at(c->options, i)); i++)
		if (!o->is_hidden)
			put_option(out, o);
	if (c->examples)
		put_examples(out, c->examples);
	put_see_also(out, c);
}

static void put_main_page(struct buf *out)
{
	const struct option_spec *o;

	put_head(out, NULL, "GPUs for people who share them");
	buf_puts(out,
		"*gpustow* \\[options\\] \\[_COMMAND_ \\[options\\] \\[arguments\\]\\]\n\n# DESCRIPTION\n\n"
		"*gpustow* queues shell commands onto GPUs by memory, so that several share a card and none of\n"
		"them runs out. Started under the name *gpusched* it's *gpustow run*, and its first plain\n"
		"argument is the jobs file; under the name *nvidb* it takes the same commands.\n\n# COMMANDS\n\n");
	for (size_t i = 0; i < commands_n; i++) {
		const struct command *c = commands[i];

		if (c->is_hidden)
			continue;
		put_bold(out, c->name);
		if (c->args && c->args[0]) {
			buf_putc(out, ' ');
			put_text(out, c->args);
		}
		buf_puts(out, "\n\t");
		put_text(out, c->summary);
		buf_puts(out, "\n\n");
	}
	buf_puts(out, "# OPTIONS\n\n");
	for (size_t i = 0; (o = option_at(global_specs, i)); i++)
		put_option(out, o);
	buf_puts(out,
		"# EXIT STATUS\n\n*0*\n\tsuccess\n\n*1*\n\tfailure; one sentence on standard error says why\n\n"
		"*2*\n\ta mistake in the command line or in a file it names\n\n"
		"A command with other codes says so on its own page.\n\n"
		"# ENVIRONMENT\n\n*NO\\_COLOR*\n\tset and not empty: no colours\n\n");
	put_see_also(out, NULL);
}

void command_man(const struct command *c, struct buf *out)
{
	if (c)
		put_command_page(c, out);
	else
		put_main_page(out);
}
