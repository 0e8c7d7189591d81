/* `job` by itself: not a question that has an answer, so it says what there is. */
#include "base/cleanup.h"
#include "cli/queue_common.h"

#include <string.h>

struct job_options {
	struct queue_options q;
};

static int job_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf words = {0};

	(void)opts;
	(void)argc;
	(void)argv;
	for (size_t i = 0; i < commands_n; i++)
		if (!commands[i]->is_hidden && !strncmp(commands[i]->name, "job ", 4))
			buf_printf(&words, "%s%s", words.len ? ", " : "", commands[i]->name + 4);
	return err_set(e, -ENOENT, "say what to do with jobs, as '%s job ls': %s", p->name,
		buf_str(&words));
}

static const struct option_spec options[] = {
	QUEUE_OPTION_ROWS(struct job_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job;
const struct command cmd_job = {
	.name = "job",
	.args = "",
	.summary = "jobs of the queue: submit, list, look at, change",
	.about = "It takes a further word: `job submit`, `job ls`, `job show` and so on.",
	.options = options,
	.options_size = sizeof(struct job_options),
	.wants_json = queue_wants_json,
	.exec = job_exec,
};
