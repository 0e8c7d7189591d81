/* `gpustow` without a command: what was asked for before it, config.yml, and the screen. */
#include "cli/cmd_monitor.h"

#include "base/cleanup.h"
#include "cli/global.h"
#include "cli/hosts.h"
#include "tui/monitor.h"

int cmd_monitor_exec(const struct program *p, struct err *e)
{
	const struct global_options *g = p->global;
	CLEANUP(config_done) struct config config = {0};
	struct monitor_options o = {.config = &config,
		.is_debug = g->debug,
		.wants_dcgm = g->dcgm,
		.is_plain = g->plain};
	char home[HOSTS_PATH];
	int r = hosts_home(p, home, e);

	if (!r)
		r = hosts_load(p, home, &config, e);
	if (r < 0)
		return r;
	o.home = home;
	o.is_remote = global_is_remote(g, &config);
	o.is_compact = g->compact || config.compact;
	return monitor_run(&o, e);
}
