/* The table of options before the command, and the few rules that come with them. */
#include "cli/global.h"

#include "cli/hosts.h"
#include "gpu/sim_spec.h"

#include <stdlib.h>
#include <string.h>

#define AT(member) .offset = offsetof(struct global_options, member)
#define TIMEOUT_S 10

const struct option_spec global_specs[] = {
	{.name = "remote",
		.kind = OPTION_FLAG,
		AT(remote),
		.text = "include the hosts of config.yml, not only this machine"},
	{.name = "no-remote",
		.kind = OPTION_FLAG,
		AT(no_remote),
		.text = "only this machine, even where config.yml says basic.remote"},
	{.name = "once",
		.kind = OPTION_FLAG,
		AT(once),
		.text = "print one complete look at all GPUs, and end; 1 is the exit code when a host didn't answer. Memory of processes excludes CUDA managed memory: the driver doesn't count it"},
	{.name = "json", .kind = OPTION_FLAG, AT(json), .text = "with --once: one JSON document"},
	{.name = "timeout",
		.arg = "SECONDS",
		.kind = OPTION_REAL,
		AT(timeout_s),
		.min = 0.1,
		.max = 86400,
		.text = "with --once: how long to wait for hosts (default: 10)"},
	{.name = "compact",
		.kind = OPTION_FLAG,
		AT(compact),
		.text = "don't stretch tables to the width of the terminal"},
	{.name = "dcgm",
		.kind = OPTION_FLAG,
		AT(dcgm),
		.text = "profiling figures of the cards (SM, pipes, memory), from DCGM or NVML's own counters, in the live monitor and with --once; they cost power and may have one user at a time"},
	{.name = "debug",
		.kind = OPTION_FLAG,
		AT(debug),
		.text = "show how long each step took, for each host"},
	{.name = "plain",
		.kind = OPTION_FLAG,
		AT(plain),
		.text = "the live monitor, or the queue's screen, as sentences, line by line, for screen readers and terminals that can't move their cursor: Enter says it anew, q and Enter end it"},
	{.name = "sim",
		.arg = "CARDS",
		.kind = OPTION_TEXT,
		AT(sim),
		.text = "simulated cards in place of this machine's: 4 (of 24 GiB each), or sizes, as 2x80G,1x24G; 1x80G/mig:3x20G is one cut into three MIG instances"},
	OPTION_SPEC_END,
};

void global_defaults(struct global_options *g)
{
	*g = (struct global_options){.timeout_s = TIMEOUT_S};
}

int global_check(const struct global_options *g, const struct command *c, struct err *e)
{
	const char *name = g->once		       ? "once"
			   : g->json && !c->wants_json ? "json"
			   : g->timeout_s != TIMEOUT_S ? "timeout"
						       : NULL;

	if (g->dcgm)
		return err_set(e, -EINVAL,
			"--dcgm is for the live monitor and for --once, which go without a command; %s shows no profiling figures",
			c->name);
	if (!name)
		return 0;
	return err_set(e, -EINVAL,
		"--%s before a command says nothing to it; --once goes without one, and %s has options of its own",
		name, c->name);
}

int global_set_sim(const char *spec, const char *option, struct err *e)
{
	struct sim_spec parsed;
	char dir[1024];
	int r = sim_spec_parse(spec, &parsed, e);

	if (r < 0)
		return err_wrap(e, -EINVAL, "%s", option);
	r = sim_dir(dir, sizeof(dir), e);
	if (r < 0)
		return r;
	if (setenv("GPUSTOW_SIM", spec, 1) < 0 || setenv("GPUSTOW_SIM_DIR", dir, 1) < 0)
		return err_sys(e, -errno, "cannot set the environment");
	return 0;
}

int global_config(const struct program *p, struct config *ret, struct err *e)
{
	char home[HOSTS_PATH];
	int r;

	*ret = (struct config){0};
	r = hosts_home(p, home, e);
	return r < 0 ? r : hosts_load(p, home, ret, e);
}

bool global_is_remote(const struct global_options *g, const struct config *c)
{
	return g->remote || (c->remote && !g->no_remote);
}
