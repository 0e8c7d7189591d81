/* gpustow completion SHELL: prints the shell's completion script. And the hidden __complete, which that script asks. */
#include "cli/command.h"

#include "base/cleanup.h"

static int completion_exec(
	const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	int r;

	(void)p;
	(void)opts;
	(void)argc;
	r = command_completion(argv[0], &out, e);
	return r < 0 ? r : command_print(&out, e);
}

static int complete_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	(void)opts;
	command_candidates(p, argc, argv, &out);
	return command_print(&out, e);
}

extern const struct command cmd_completion, cmd_complete;
const struct command cmd_completion = {
	.name = "completion",
	.args = "SHELL",
	.summary = "print a completion script: bash, zsh or fish",
	.about = "Once for the running shell, in bash: source <(gpustow completion bash)\n"
		 "In zsh, put it as _gpustow into a directory of $fpath; in fish, as gpustow.fish\n"
		 "into ~/.config/fish/completions. It serves the names nvidb and gpusched as well.",
	.min_args = 1,
	.max_args = 1,
	.exec = completion_exec,
};

const struct command cmd_complete = {
	.name = "__complete",
	.args = "-- [WORD...]",
	.summary = "print what may follow the words typed so far",
	.max_args = -1,
	.is_hidden = true,
	.exec = complete_exec,
};
