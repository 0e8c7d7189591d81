/* `gpustow ls`: the servers of config.yml, as a list or as JSON. It asks no server anything. */
#include "cli/hosts.h"

#include "base/cleanup.h"

#include <string.h>

struct ls_options {
	bool detail, json;
};

static const struct option_spec ls_specs[] = {
	{.name = "detail",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct ls_options, detail),
		.text = "user, authentication and way to each server too"},
	{.name = "json",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct ls_options, json),
		.text = "one JSON document; it always holds everything but passwords"},
	OPTION_SPEC_END,
};

static void put_detail(struct buf *b, const struct host_config *h)
{
	buf_printf(b, "    Host:     %s:%d\n", h->hostname, h->port);
	buf_printf(b, "    User:     %s\n", h->username ? h->username : "as ssh decides");
	buf_printf(b, "    Auth:     %s\n", host_auth_name(h->auth));
	if (h->identityfile)
		buf_printf(b, "    Key:      %s\n", h->identityfile);
	buf_printf(b, "    Via:      %s\n", h->proxyjump ? h->proxyjump : "Direct");
	buf_printf(b, "    Password: %s\n", h->password ? "Yes" : "No");
	if (h->has_gpus) {
		buf_puts(b, "    GPUs:     ");
		for (size_t i = 0; i < h->n_gpus; i++)
			buf_printf(b, "%s%d", i ? ", " : "", h->gpus[i]);
		buf_puts(b, h->n_gpus ? "\n" : "none for jobs\n");
	}
}

static void put_list(struct buf *b, const struct program *p, const struct config *c, bool detail)
{
	if (c->n_servers == 0)
		buf_printf(b,
			"No servers in %s. '%s add' adds one, '%s import' takes them from ~/.ssh/config.\n",
			c->path, p->name, p->name);
	for (size_t i = 0; i < c->n_servers; i++) {
		const struct host_config *h = &c->servers[i];

		buf_printf(b, "[%zu] %s (%s:%d)\n", i + 1, h->nickname, h->hostname, h->port);
		if (detail)
			put_detail(b, h);
	}
}

static int ls_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct ls_options *o = opts;
	CLEANUP(config_done) struct config c = {0};
	CLEANUP(buf_done) struct buf out = {0};
	char home[HOSTS_PATH];
	int r = hosts_home(p, home, e);

	(void)argc;
	(void)argv;
	if (r == 0)
		r = hosts_load(p, home, &c, e);
	if (r < 0)
		return r;
	if (o->json)
		return hosts_print_json(
			json_pack("{s:s,s:b,s:o}", "config", c.path, "config_exists", !c.is_missing,
				"servers", hosts_json_all(&c)),
			e);
	put_list(&out, p, &c, o->detail);
	return command_print(&out, e);
}

extern const struct command cmd_ls;
const struct command cmd_ls = {
	.name = "ls",
	.args = "",
	.summary = "list the configured servers",
	.about =
		"The servers are those of config.yml in ~/.gpustow (or $GPUSTOW_HOME). None is contacted.",
	.examples = "$ gpustow ls\n$ gpustow ls --detail",
	.options = ls_specs,
	.options_size = sizeof(struct ls_options),
	.needs_locale = true,
	.exec = ls_exec,
};
