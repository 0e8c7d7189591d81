/*
 * The bash script: one function for the three names. It needs nothing of the bash-completion package. '=' is a word of its
 * own to bash, so "--log-dir=x" arrives as three.
 */
#include "cli/completion.h"

#include "base/cleanup.h"
#include "cli/global.h"

#include <string.h>

/* All words of the options, shown ones only: "--gpus --margin -v --verbose". */
static void put_options(struct buf *out, const struct command *c)
{
	const struct option_spec *o;
	const char *gap = "";

	for (size_t i = 0; (o = option_at(c->options, i)); i++) {
		if (o->is_hidden)
			continue;
		if (o->letter)
			buf_printf(out, "%s-%c --%s", gap, o->letter, o->name);
		else
			buf_printf(out, "%s--%s", gap, o->name);
		gap = " ";
	}
}

static const char *completer(enum option_complete kind)
{
	switch (kind) {
	case COMPLETE_FILE:
		return "_gpustow_paths -f";
	case COMPLETE_DIR:
		return "_gpustow_paths -d";
	case COMPLETE_JOB:
	case COMPLETE_NODE:
		return "_gpustow_jobs";
	case COMPLETE_NONE:
		break;
	}
	return ":";
}

/* What follows an option that takes a value. */
static void put_values(struct buf *out, const struct command *c)
{
	const struct option_spec *o;

	buf_puts(out, "\t\tcase $prev in\n");
	for (size_t i = 0; (o = option_at(c->options, i)); i++) {
		if (!*o->arg || o->is_hidden)
			continue;
		buf_puts(out, "\t\t");
		if (o->letter)
			buf_printf(out, "-%c|", o->letter);
		buf_printf(out, "--%s) %s; return ;;\n", o->name, completer(o->complete));
	}
	buf_puts(out, "\t\tesac\n");
}

/* Words that may stand right behind a command's name: those of its sub-commands. */
static void put_sub_words(struct buf *out, const char *group)
{
	size_t len = strlen(group);
	const char *gap = "";

	for (size_t i = 0; i < commands_n; i++) {
		const struct command *c = commands[i];

		if (c->is_hidden || strncmp(c->name, group, len) != 0 || c->name[len] != ' ')
			continue;
		buf_printf(out, "%s%s", gap, c->name + len + 1);
		gap = " ";
	}
}

static void put_command(struct buf *out, const struct command *c)
{
	CLEANUP(buf_done) struct buf subs = {0};

	buf_putc(out, '\t');
	shell_quote(out, c->name);
	buf_puts(out, ")\n");
	put_values(out, c);
	buf_puts(out, "\t\tif [[ $cur == -* ]]; then\n\t\t\t_gpustow_words '");
	put_options(out, c);
	buf_puts(out, "'\n\t\t\treturn\n\t\tfi\n");
	buf_printf(out, "\t\t%s\n", completer(c->complete));
	put_sub_words(&subs, c->name);
	if (subs.len)
		buf_printf(out,
			"\t\t[[ $1 == */gpusched || $1 == gpusched || $COMP_CWORD -ne 2 ]] || _gpustow_words '%s'\n",
			subs.data);
	buf_puts(out, "\t\t;;\n");
}

static void put_top(struct buf *out)
{
	const struct option_spec *o;
	const char *gap = "";

	buf_puts(out, "\t*)\n\t\t((COMP_CWORD == 1)) || return\n\t\t_gpustow_words '");
	for (size_t i = 0; i < commands_n; i++) {
		if (commands[i]->is_hidden || strchr(commands[i]->name, ' '))
			continue;
		buf_printf(out, "%s%s", gap, commands[i]->name);
		gap = " ";
	}
	for (size_t i = 0; (o = option_at(global_specs, i)); i++)
		buf_printf(out, " --%s", o->name);
	buf_puts(out, "'\n\t\t;;\n");
}

/* The pattern of all names with k words, for a case. */
static void put_names(struct buf *out, bool two_words)
{
	const char *gap = "";

	for (size_t i = 0; i < commands_n; i++) {
		if (commands[i]->is_hidden || !!strchr(commands[i]->name, ' ') != two_words)
			continue;
		buf_puts(out, gap);
		shell_quote(out, commands[i]->name);
		gap = "|";
	}
}

void completion_bash(struct buf *out)
{
	buf_puts(out,
		"# bash completion for gpustow, nvidb and gpusched; made by 'gpustow completion bash'\n"
		"_gpustow_words()\n{\n"
		"\tlocal word\n"
		"\twhile IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen -W \"$1\" -- \"$cur\")\n"
		"}\n\n"
		"_gpustow_paths()\n{\n"
		"\tlocal word\n"
		"\tcompopt -o filenames 2>/dev/null\n"
		"\twhile IFS= read -r word; do COMPREPLY+=(\"$word\"); done < <(compgen \"$1\" -- \"$cur\")\n"
		"}\n\n"
		"_gpustow_jobs()\n{\n"
		"\tlocal job rest\n"
		"\twhile IFS=$'\\t' read -r job rest; do\n"
		"\t\t[[ $job == \"$cur\"* ]] && COMPREPLY+=(\"$job\")\n"
		"\tdone < <(\"$program\" __complete -- \"${COMP_WORDS[@]:1:COMP_CWORD-1}\" 2>/dev/null)\n"
		"}\n\n"
		"_gpustow()\n{\n"
		"\tlocal program=$1 cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=\n"
		"\tCOMPREPLY=()\n"
		"\tif [[ $cur == = ]]; then\n\t\tcur=\n"
		"\telif [[ $prev == = ]] && ((COMP_CWORD > 1)); then\n\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n\tfi\n"
		"\tif [[ ${program##*/} == gpusched ]]; then\n\t\tcmd=run\n\telse\n"
		"\t\tif ((COMP_CWORD > 2)); then\n\t\t\tcase \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n\t\t\t");
	put_names(out, true);
	buf_puts(out,
		") cmd=\"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" ;;\n\t\t\tesac\n\t\tfi\n"
		"\t\tif [[ -z $cmd ]] && ((COMP_CWORD > 1)); then\n\t\t\tcase ${COMP_WORDS[1]} in\n\t\t\t");
	put_names(out, false);
	buf_puts(out, ") cmd=${COMP_WORDS[1]} ;;\n\t\t\tesac\n\t\tfi\n\tfi\n\tcase $cmd in\n");
	for (size_t i = 0; i < commands_n; i++)
		if (!commands[i]->is_hidden)
			put_command(out, commands[i]);
	put_top(out);
	buf_puts(out, "\tesac\n}\n\ncomplete -F _gpustow gpustow nvidb gpusched\n");
}
