/*
 * gpustow __forwarded NONCE: what another machine's gpustow starts here by ssh (svc/forward.h). The command that it sends is
 * run as if it had been given here, with its files, its submitter and its terminal's width. Not for people: hidden.
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command.h"
#include "svc/forward.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct forwarded {
	struct program p;
	struct forward_header h;
};

static void set(const char *prefix, const char *name, const char *value)
{
	CLEANUP_FREE char *key = xasprintf("%s%s", prefix, name);

	if (value)
		setenv(key, value, 1);
}

static void set_environment(const struct forwarded *f)
{
	char columns[16];

	set(f->p.env_prefix, "QUEUE_NO_REMOTE", "1");
	set(f->p.env_prefix, "HOME", f->h.home);
	set(f->p.env_prefix, "SUBMITTER", f->h.submitter);
	snprintf(columns, sizeof(columns), "%d", f->h.columns);
	if (f->h.columns)
		setenv("COLUMNS", columns, 1);
	if (f->h.no_color)
		setenv("NO_COLOR", "1", 1);
}

/* The dispatcher moves words about; their owner mustn't notice. */
static int dispatch(const struct program *p, int argc, char **argv)
{
	CLEANUP_FREE char **words = xcalloc((size_t)argc + 1, sizeof(*words));

	memcpy(words, argv, (size_t)argc * sizeof(*words));
	return command_dispatch(p, argc, words);
}

/* As if it had been typed here, in a process of its own, without a word; true: it went well. */
static bool ensure_keeper(const struct program *p)
{
	char *words[] = {(char[]){"queue"}, (char[]){"keeper"}, (char[]){"ensure"}};
	pid_t child = fork();
	int status = 0;

	if (child == 0) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		for (int i = 0; null >= 0 && i < 3; i++)
			dup2(null, i);
		exit(dispatch(p, 3, words));
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int run(void *arg)
{
	struct forwarded *f = arg;

	set_environment(f);
	f->p.files = f->h.files;
	f->p.n_files = f->h.n_files;
	if (f->h.ensure && !ensure_keeper(&f->p))
		fprintf(stderr,
			"%s: warning: nothing keeps the daemon of the queue at work on its host: `%s queue keeper install` there, or keeper: none in queue.yml's remote: here\n",
			f->p.name, f->p.name);
	return dispatch(&f->p, f->h.argc, f->h.argv);
}

static int forwarded_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	struct forwarded f = {.p = *p};
	int r = forward_receive(argv[0], &f.h, e);

	(void)opts, (void)argc;
	if (r == 0)
		r = forward_serve(argv[0], run, &f, e);
	forward_header_done(&f.h);
	return r;
}

extern const struct command cmd_forwarded;
const struct command cmd_forwarded = {
	.name = FORWARD_WORD,
	.args = "NONCE",
	.summary = "a command that another machine sends",
	.min_args = 1,
	.max_args = 1,
	.is_hidden = true,
	.exec = forwarded_exec,
};
