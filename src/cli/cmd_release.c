/*
 * `gpustow release -- COMMAND...`: this user's agent lets go of the GPU driver, the command runs, the agent takes the driver
 * up again. The release hangs on our link: if this program dies, it's over. If the agent dies, the next one is asked anew.
 */
#include "cli/command.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/global.h"
#include "fleet/link.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct release_options {
	bool force;
	double timeout_s;
	const char *sim;
};

enum { EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

struct release {
	struct event_base *base;
	struct link *link;
	struct event *child_ended, *forwards[3], *timer;
	const struct program *program;
	char **argv;
	bool force, is_over;
	pid_t child;
	int code; /* of our exit; -1: the sentence is in *e */
	struct err *e;
};

static void end(struct release *r, int code)
{
	r->code = code;
	r->is_over = true;
	event_base_loopbreak(r->base);
}

/* ---- the command ---- */

static _Noreturn void run_child(char **argv)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int sig = 1; sig < NSIG; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			signal(sig, SIG_DFL);
	execvp(argv[0], argv);
	fprintf(stderr, "gpustow: cannot run %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN);
}

static void start_child(struct release *r)
{
	event_del(r->timer);
	fflush(NULL);
	r->child = fork();
	if (r->child == 0)
		run_child(r->argv);
	if (r->child < 0)
		end(r, err_sys(r->e, -errno, "cannot start %s", r->argv[0]));
}

static void on_child(evutil_socket_t sig, short what, void *arg)
{
	struct release *r = arg;
	int status;

	(void)sig, (void)what;
	if (r->child <= 0 || waitpid(r->child, &status, WNOHANG) != r->child)
		return;
	r->child = 0;
	link_send(r->link, json_pack("{s:s}", "op", "resume"));
	end(r, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* The terminal sends Ctrl-C to the command by itself; what's sent to us alone is passed on. */
static void on_forward(evutil_socket_t sig, short what, void *arg)
{
	struct release *r = arg;

	(void)what;
	if (r->child > 0 && sig != SIGINT)
		kill(r->child, (int)sig);
	else if (r->child <= 0)
		end(r, 128 + (int)sig);
}

/* ---- the agent ---- */

static void on_up(void *arg, const struct link_hello *hello)
{
	struct release *r = arg;

	(void)hello;
	/* A new agent while the command runs: it must not open the driver under it, whatever runs. */
	link_send(r->link,
		json_pack("{s:s, s:b}", "op", "release", "force", r->force || r->child > 0));
}

static void on_down(void *arg, const char *why)
{
	struct release *r = arg;

	if (r->child > 0)
		return;
	err_set(r->e, -EIO, "this machine's agent can't be reached, so nothing was let go of: %s",
		why);
}

static void say_jobs(struct release *r, const json_t *jobs)
{
	CLEANUP(buf_done) struct buf b = {0};

	for (size_t i = 0; i < json_array_size(jobs); i++) {
		const json_t *j = json_array_get(jobs, i);

		buf_printf(&b, "%sjob %lld (pid %lld)", i ? ", " : "",
			(long long)json_integer_value(json_object_get(j, "job")),
			(long long)json_integer_value(json_object_get(j, "pid")));
	}
	end(r, err_set(r->e, -EBUSY,
		       "%zu of your jobs use cards of this machine: %s; wait for their end, or say --force to let go of the driver all the same",
		       json_array_size(jobs), buf_str(&b)));
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	struct release *r = arg;
	const char *text = json_string_value(json_object_get(msg, "text"));

	if (r->child > 0 || r->is_over)
		return;
	if (!strcmp(op, "released"))
		start_child(r);
	else if (!strcmp(op, "held-by"))
		say_jobs(r, json_object_get(msg, "jobs"));
	else if (!strcmp(op, "error"))
		end(r, err_set(r->e, -EIO, "%s",
			       text ? text : "the agent refused to let go of the driver"));
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	struct release *r = arg;

	(void)fd, (void)what;
	if (!r->e->text[0])
		err_set(r->e, -ETIMEDOUT,
			"the agent didn't let go of the driver in time; an older one may run that can't: see `gpustow doctor`");
	end(r, -ETIMEDOUT);
}

/* ---- the whole ---- */

static void release_open(struct release *r, double timeout_s)
{
	static const int signals[] = {SIGTERM, SIGHUP, SIGINT};
	struct timeval limit = {.tv_sec = (time_t)timeout_s,
		.tv_usec = (suseconds_t)((timeout_s - (double)(time_t)timeout_s) * 1e6)};
	struct link_owner owner = {.arg = r, .up = on_up, .message = on_message, .down = on_down};
	struct link_who who = {.who = "release"};

	r->base = event_base_new();
	r->child_ended = evsignal_new(r->base, SIGCHLD, on_child, r);
	event_add(r->child_ended, NULL);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		r->forwards[i] = evsignal_new(r->base, signals[i], on_forward, r);
		event_add(r->forwards[i], NULL);
	}
	r->timer = evtimer_new(r->base, on_time, r);
	event_add(r->timer, &limit);
	r->link = link_new_local(r->base, &who, &owner);
}

static void release_close(struct release *r)
{
	link_free(r->link);
	event_free(r->child_ended);
	event_free(r->timer);
	for (size_t i = 0; i < ARRAY_LEN(r->forwards); i++)
		event_free(r->forwards[i]);
	event_base_free(r->base);
}

static int release_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct release_options *o = opts;
	struct release r = {.program = p, .argv = argv, .force = o->force, .e = e};

	(void)argc;
	if (o->sim) {
		int code = global_set_sim(o->sim, "--sim", e);

		if (code < 0)
			return code;
	}
	release_open(&r, o->timeout_s);
	event_base_dispatch(r.base);
	release_close(&r);
	return r.code == -EINVAL ? -EIO : r.code;
}

static void defaults(void *opts)
{
	((struct release_options *)opts)->timeout_s = 15;
}

static const struct option_spec options[] = {
	{.name = "force",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct release_options, force),
		.text = "also while jobs of this user run on the cards"},
	{.name = "timeout",
		.arg = "SECONDS",
		.kind = OPTION_REAL,
		.offset = offsetof(struct release_options, timeout_s),
		.min = 0.1,
		.max = 86400,
		.text = "how long to wait until the driver is let go of (default: 15)"},
	{.name = "sim",
		.arg = "CARDS",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct release_options, sim),
		.text = "the agent of these simulated cards in place of the machine's"},
	OPTION_SPEC_END,
};

extern const struct command cmd_release;
const struct command cmd_release = {
	.name = "release",
	.args = "-- COMMAND...",
	.summary = "let go of the GPU driver while a command runs",
	.about =
		"Changing MIG mode, resetting a card or unloading the driver fails while anybody has the\n"
		"driver open. This user's agent closes it, COMMAND runs, and the agent opens it again when\n"
		"COMMAND has ended, or when this program has, however it did. Meanwhile no job is started on\n"
		"a card of this machine.\n"
		"\n"
		"Jobs of this user that run on the cards are named and nothing is done, unless --force.\n"
		"Other users' monitors and programs are none of its business and may still hold the driver.\n"
		"\n"
		"Exit codes: COMMAND's own (128 and the signal's number when it was killed, 127 when it isn't\n"
		"there, 126 when it can't be run); 1 when the driver wasn't let go of, and COMMAND didn't run.",
	.examples =
		"$ gpustow release -- nvidia-smi -i 0 -mig 1\n$ gpustow release -- nvidia-smi --gpu-reset",
	.options = options,
	.options_size = sizeof(struct release_options),
	.defaults = defaults,
	.min_args = 1,
	.max_args = -1,
	.exec = release_exec,
};
