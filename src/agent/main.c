/*
 * gpustow-agent: `serve` becomes the resident agent, `attach` carries a client's channel to it, `id` vouches for the
 * file it was started from. Whoever starts `serve` waits for its first process, which leaves once the socket is bound
 * or another agent was found to have the lock.
 */
#include "agent/attach.h"
#include "agent/detach.h"
#include "agent/self.h"
#include "agent/server.h"
#include "agent/shim.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: gpustow-agent serve [ROOT]   serve this user's jobs and GPUs on this machine\n"
	"       gpustow-agent attach MARK [HASH]   carry a client's channel to the agent, starting it if need be\n"
	"       gpustow-agent id             print the SHA-256 of this program\n"
	"       gpustow-agent version        print its version\n"
	"\n"
	"It is started by gpustow when it's needed and leaves when it's idle.\n";

static int print_id(void)
{
	struct err e = {0};
	char hex[65];

	if (self_hash(hex, &e)) {
		fprintf(stderr, "gpustow-agent: %s\n", e.text);
		return 1;
	}
	puts(hex);
	return 0;
}

/* In the detached process: ready once the socket is bound, then serves until it's time to go. */
static int serve_detached(const char *root, struct detach *d)
{
	static const struct agent_options options = {.agent_exe = "/proc/self/exe"};
	static struct agent agent;
	struct err e = {0};
	int r;

	shim_reset_signals();
	r = agent_init(&agent, root, &options, &e);
	if (r) {
		/* Somebody has the lock: he serves, and that's as good. */
		detach_ready(d, r == -EAGAIN ? NULL : e.text);
		agent_done(&agent);
		return r == -EAGAIN ? 0 : 1;
	}
	detach_ready(d, NULL);
	r = agent_run(&agent, &e);
	agent_done(&agent);
	return r ? 1 : 0;
}

static int serve(const char *root)
{
	struct detach d;
	struct err e = {0};
	int status = 1;

	if (detach_begin(&d, &status, &e))
		return serve_detached(root, &d);
	if (e.text[0])
		fprintf(stderr, "gpustow-agent: %s\n", e.text);
	return status;
}

int main(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : "--help";

	if (!strcmp(word, "serve") && argc <= 3)
		return serve(argc > 2 ? argv[2] : NULL);
	if (!strcmp(word, "attach") && (argc == 3 || argc == 4))
		return attach_run(argv[2], argc > 3 ? argv[3] : NULL);
	if (!strcmp(word, "id") && argc == 2)
		return print_id();
	if (!strcmp(word, "version") && argc == 2) {
		puts(GPUSTOW_VERSION);
		return 0;
	}
	fputs(help, !strcmp(word, "--help") ? stdout : stderr);
	return !strcmp(word, "--help") ? 0 : 2;
}
