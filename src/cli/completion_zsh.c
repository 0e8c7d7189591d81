/* The zsh script: one _arguments call a command, for the three names. */
#include "cli/completion.h"

#include "base/cleanup.h"
#include "cli/global.h"

#include <string.h>

/* Inside a spec of _arguments a colon, a bracket and a backslash have meanings. */
static void put_plain(struct buf *b, const char *s)
{
	for (; *s; s++) {
		if (strchr(":[]\\", *s))
			buf_putc(b, '\\');
		buf_putc(b, *s);
	}
}

static const char *action(enum option_complete kind)
{
	switch (kind) {
	case COMPLETE_FILE:
		return "_files";
	case COMPLETE_DIR:
		return "_files -/";
	case COMPLETE_JOB:
	case COMPLETE_NODE:
		return "_gpustow_jobs";
	case COMPLETE_NONE:
		break;
	}
	return " ";
}

static void put_spec(
	struct buf *out, const struct option_spec *o, const char *dashes, const char *name)
{
	CLEANUP(buf_done) struct buf spec = {0};

	if (o->kind == OPTION_LIST)
		buf_putc(&spec, '*');
	buf_printf(&spec, "%s%s%s[", dashes, name, *o->arg ? (dashes[1] ? "=" : "+") : "");
	put_plain(&spec, o->text);
	buf_putc(&spec, ']');
	if (*o->arg) {
		buf_putc(&spec, ':');
		put_plain(&spec, o->arg);
		buf_printf(&spec, ":%s", action(o->complete));
	}
	buf_puts(out, " \\\n\t\t\t");
	shell_quote(out, spec.data);
}

static void put_command(struct buf *out, const struct command *c)
{
	CLEANUP(buf_done) struct buf rest = {0};
	const struct option_spec *o;

	buf_putc(out, '\t');
	shell_quote(out, c->name);
	buf_puts(out, ")\n\t\t_arguments -S");
	for (size_t i = 0; (o = option_at(c->options, i)); i++) {
		char letter[2] = {o->letter, '\0'};

		if (o->is_hidden)
			continue;
		if (o->letter)
			put_spec(out, o, "-", letter);
		put_spec(out, o, "--", o->name);
	}
	if (c->max_args != 0) {
		buf_puts(&rest, "*:");
		put_plain(&rest, c->args && c->args[0] ? c->args : "argument");
		buf_printf(&rest, ":%s",
			strcmp(c->name, "run") == 0 ? "_gpustow_run_argument"
						    : action(c->complete));
		buf_puts(out, " \\\n\t\t\t");
		shell_quote(out, rest.data);
	}
	buf_puts(out, "\n\t\t;;\n");
}

/* An array for _describe: the words behind `group` ("" for the first ones). */
static void put_names(struct buf *out, const char *group)
{
	size_t len = strlen(group);

	for (size_t i = 0; i < commands_n; i++) {
		const struct command *c = commands[i];
		const char *word = len ? c->name + len + 1 : c->name;
		CLEANUP(buf_done) struct buf row = {0};

		if (c->is_hidden || strncmp(c->name, group, len) != 0 ||
			(len && c->name[len] != ' ') || strchr(word, ' '))
			continue;
		buf_printf(&row, "%s:%s", word, c->summary);
		buf_puts(out, "\n\t\t");
		shell_quote(out, row.data);
	}
	buf_puts(out, "\n\t)\n");
}

static void put_patterns(struct buf *out, bool two_words)
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

static void put_head(struct buf *out)
{
	buf_puts(out,
		"#compdef gpustow nvidb gpusched\n"
		"# zsh completion for gpustow, nvidb and gpusched; made by 'gpustow completion zsh'\n\n"
		"_gpustow_jobs()\n{\n"
		"\tlocal -a jobs\n"
		"\tlocal line\n"
		"\tfor line in \"${(@f)$(\"$gpustow_words[1]\" __complete -- \"${(@)gpustow_words[2,gpustow_current-1]}\" 2>/dev/null)}\"; do\n"
		"\t\t[[ -n $line ]] && jobs+=(\"${line%%$'\\t'*}:${line#*$'\\t'}\")\n"
		"\tdone\n"
		"\t_describe job jobs\n}\n\n"
		"_gpustow_run_argument()\n{\n"
		"\tlocal -a commands=(");
	put_names(out, "run");
	buf_puts(out,
		"\t[[ ${gpustow_words[1]:t} == gpusched ]] || ((gpustow_current != 3)) || _describe command commands\n"
		"\t_files\n}\n\n");
}

void completion_zsh(struct buf *out)
{
	const struct option_spec *o;

	put_head(out);
	buf_puts(out, "_gpustow()\n{\n"
		      "\tlocal cmd=\n"
		      "\tlocal -i depth=0 gpustow_current=CURRENT\n"
		      "\tlocal -a gpustow_words=(\"${(@)words}\")\n"
		      "\tlocal -a commands=(");
	put_names(out, "");
	buf_puts(out,
		"\tif [[ ${words[1]:t} == gpusched ]]; then\n\t\tcmd=run\n\telse\n"
		"\t\tif ((CURRENT > 3)); then\n\t\t\tcase \"$words[2] $words[3]\" in\n\t\t\t");
	put_patterns(out, true);
	buf_puts(out,
		") cmd=\"$words[2] $words[3]\" depth=2 ;;\n\t\t\tesac\n\t\tfi\n"
		"\t\tif [[ -z $cmd ]] && ((CURRENT > 2)); then\n\t\t\tcase $words[2] in\n\t\t\t");
	put_patterns(out, false);
	buf_puts(out, ") cmd=$words[2] depth=1 ;;\n\t\t\tesac\n\t\tfi\n\tfi\n"
		      "\twords=(\"$words[1]\" \"${(@)words[depth+2,-1]}\")\n"
		      "\t((CURRENT -= depth))\n"
		      "\tcase $cmd in\n");
	for (size_t i = 0; i < commands_n; i++)
		if (!commands[i]->is_hidden)
			put_command(out, commands[i]);
	buf_puts(out, "\t*)\n\t\t((CURRENT == 2)) || return 1\n"
		      "\t\t_describe command commands\n"
		      "\t\t_arguments");
	for (size_t i = 0; (o = option_at(global_specs, i)); i++)
		put_spec(out, o, "--", o->name);
	buf_puts(out,
		"\n\t\t;;\n\tesac\n}\n\n"
		"if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n\t_gpustow \"$@\"\nelse\n"
		"\tcompdef _gpustow gpustow nvidb gpusched\nfi\n");
}
