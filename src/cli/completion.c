/*
 * Shell completion: which script, and what the scripts ask at run time. The scripts are rendered from the table; only
 * names that change from day to day (jobs) are asked for, through the hidden __complete. Pure but for a command's own candidates.
 */
#include "cli/completion.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/queue_candidates.h"

#include <stdlib.h>
#include <string.h>

void shell_quote(struct buf *out, const char *s)
{
	buf_putc(out, '\'');
	for (; *s; s++) {
		if (*s == '\'')
			buf_puts(out, "'\\''");
		else
			buf_putc(out, *s);
	}
	buf_putc(out, '\'');
}

int command_completion(const char *shell, struct buf *out, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};

	if (strcmp(shell, "bash") == 0) {
		completion_bash(out);
	} else if (strcmp(shell, "zsh") == 0) {
		completion_zsh(out);
	} else if (strcmp(shell, "fish") == 0) {
		completion_fish(out);
	} else {
		text_put_repr(&q, shell, strnlen(shell, 200));
		return err_set(e, -EINVAL, "there's completion for bash, zsh and fish, not for %s",
			buf_str(&q));
	}
	return 0;
}

/* The value of one that names a node comes next. Those commands' options begin with struct queue_options. */
static bool is_node_option(const struct command *c, const char *word)
{
	for (const struct option_spec *o = c->options; o && *o->name; o++)
		if (o->complete == COMPLETE_NODE && !strncmp(word, "--", 2) &&
			!strcmp(word + 2, o->name))
			return true;
	return false;
}

void command_candidates(const struct program *p, int n, char **words, struct buf *out)
{
	static char queue_word[] = "queue";
	int used, first;
	const struct command *c;
	CLEANUP_FREE void *opts = NULL;
	bool wants_node;

	if (n && !strcmp(words[0], "q"))
		words[0] = queue_word;
	c = command_find(p, n, words, &used);
	wants_node = c && n && is_node_option(c, words[n - 1]);
	if (!c || (!c->candidates && !wants_node))
		return;
	opts = xcalloc(1, c->options_size ? c->options_size : 1);
	if (c->defaults)
		c->defaults(opts);
	/* Half-typed lines have mistakes; what was understood before them is good enough. */
	(void)option_parse(
		c->options, c->abbreviations, n - used, words + used, opts, &first, NULL);
	if (wants_node)
		queue_node_candidates(p, opts, out);
	else
		c->candidates(p, opts, out);
	option_done(c->options, opts);
}
