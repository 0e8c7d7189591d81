/* `gpustow info`: where gpustow keeps its files, what they take on the disk, and the servers. It changes nothing. */
#include "cli/hosts.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/sys.h"
#include "cli/disk.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct info_options {
	bool json;
};

static const struct option_spec info_specs[] = {
	{.name = "json",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct info_options, json),
		.text = "one JSON document"},
	OPTION_SPEC_END,
};

struct info {
	char home[HOSTS_PATH];
	bool has_home;
	int64_t bytes; /* on the disk */
	char *log_path;
	bool has_log;
	int64_t log_bytes;
	struct config config;
	int broken; /* config.yml can't be read: -errno, and *e says why */
};

static void info_done(struct info *i)
{
	free(i->log_path);
	config_done(&i->config);
}

static int gather(const struct program *p, struct info *i, struct err *e)
{
	struct sys_stat st;
	int r = hosts_home(p, i->home, e);

	if (r < 0)
		return r;
	i->has_home = sys_stat_at(AT_FDCWD, i->home, 0, &st) == 0 && S_ISDIR(st.mode);
	i->bytes = disk_usage(i->home);
	i->log_path = xasprintf("%s/gpu_log.db", i->home);
	i->has_log = sys_stat_at(AT_FDCWD, i->log_path, 0, &st) == 0;
	i->log_bytes = i->has_log ? st.size : 0;
	i->broken = hosts_load(p, i->home, &i->config, e);
	return 0;
}

static json_t *to_json(const struct info *i, const struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/config.yml", i->home);
	bool has_config = i->broken || !i->config.is_missing;

	return json_pack("{s:s,s:b,s:I,s:{s:s,s:b,s:s?},s:{s:s,s:b,s:I},s:o}", "home", i->home,
		"home_exists", i->has_home, "disk_bytes", (json_int_t)i->bytes, "config", "path",
		path, "exists", has_config, "error", i->broken ? e->text : NULL, "gpu_log", "path",
		i->log_path, "exists", i->has_log, "bytes", (json_int_t)i->log_bytes, "servers",
		hosts_json_all(&i->config));
}

static void put_text(struct buf *b, const struct info *i)
{
	bool has_config = i->broken || !i->config.is_missing;

	buf_printf(b, "Working directory: %s", i->home);
	if (i->has_home) {
		buf_puts(b, " (");
		disk_put_bytes(b, i->bytes);
		buf_puts(b, ")\n");
	} else {
		buf_puts(b, " (not there yet)\n");
	}
	buf_printf(b, "Configuration:     %s/config.yml%s\n", i->home,
		i->broken    ? " (not readable)"
		: has_config ? ""
			     : " (not there)");
	buf_printf(b, "GPU log:           %s%s\n", i->log_path, i->has_log ? "" : " (not there)");
	if (i->broken)
		return;
	buf_printf(b, "Servers:           %zu\n", i->config.n_servers);
	for (size_t k = 0; k < i->config.n_servers; k++) {
		buf_printf(b, "  %s (", i->config.servers[k].nickname);
		hosts_put_place(b, &i->config.servers[k]);
		buf_puts(b, ")\n");
	}
}

static int info_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct info_options *o = opts;
	CLEANUP(info_done) struct info i = {0};
	CLEANUP(buf_done) struct buf out = {0};
	struct err print = {0};
	int r = gather(p, &i, e);

	(void)argc;
	(void)argv;
	if (r < 0)
		return r;
	if (o->json) {
		r = hosts_print_json(to_json(&i, e), &print);
	} else {
		put_text(&out, &i);
		r = command_print(&out, &print);
	}
	if (r < 0)
		return err_set(e, r, "%s", print.text);
	return i.broken;
}

extern const struct command cmd_info;
const struct command cmd_info = {
	.name = "info",
	.args = "",
	.summary = "show where gpustow's files are, and the servers",
	.examples = "$ gpustow info",
	.options = info_specs,
	.options_size = sizeof(struct info_options),
	.needs_locale = true,
	.exec = info_exec,
};
