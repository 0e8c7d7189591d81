/*
 * `gpustow clean`: takes away servers, the GPU log, or the whole working directory; each only after a yes. What a process
 * still holds (a job's claim, a database being written) isn't deleted under it.
 */
#include "cli/disk.h"
#include "cli/hosts.h"
#include "cli/tty.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/sys.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct clean_options {
	bool yes;
};

static const struct option_spec clean_specs[] = {
	{.name = "yes",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct clean_options, yes),
		.text = "don't ask"},
	OPTION_SPEC_END,
};

static int say(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int say(struct err *e, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf out = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&out, fmt, ap);
	va_end(ap);
	return command_print(&out, e);
}

/* 1: yes; 0: no, which was said; negative: nobody there to ask. */
static int agree(const struct clean_options *o, const char *question, struct err *e)
{
	bool yes = false;
	int r;

	if (o->yes)
		return 1;
	if (!tty_is_there())
		return err_set(e, -EINVAL, "nobody is there to say yes; --yes says it");
	r = tty_ask_yes(question, false, &yes, e);
	if (r < 0)
		return r;
	if (!yes)
		r = say(e, "Nothing was deleted.\n");
	return r < 0 ? r : yes;
}

/* --- a server --- */

static int remove_server(
	const struct clean_options *o, const char *home, const struct host_config *h, struct err *e)
{
	CLEANUP(buf_done) struct buf question = {0};
	int r;

	buf_printf(&question, "Remove %s (", h->nickname);
	hosts_put_place(&question, h);
	buf_puts(&question, ") from config.yml? [y/N] ");
	r = agree(o, buf_str(&question), e);
	if (r <= 0)
		return r;
	r = config_remove(home, h->nickname, e);
	return r < 0 ? r : say(e, "Removed %s.\n", h->nickname);
}

static int server_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(config_done) struct config c = {0};
	char home[HOSTS_PATH];
	size_t i = 0;
	int r = hosts_home(p, home, e);

	(void)argc;
	if (r == 0)
		r = hosts_load(p, home, &c, e);
	if (r == 0)
		r = config_find(&c, argv[0], &i, e);
	return r < 0 || i >= c.n_servers ? r : remove_server(opts, home, &c.servers[i], e);
}

static int choose_server(const struct config *c, size_t *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf list = {0};

	for (size_t i = 0; i < c->n_servers; i++) {
		buf_printf(&list, "  %zu  %s (", i + 1, c->servers[i].nickname);
		hosts_put_place(&list, &c->servers[i]);
		buf_puts(&list, ")\n");
	}
	buf_puts(&list, "Which one? (Enter: none) ");
	for (;;) {
		char answer[256];
		int64_t n;
		int r = tty_ask(buf_str(&list), answer, sizeof(answer), e);

		if (r < 0)
			return r;
		if (!answer[0])
			return 0;
		if (parse_int64(answer, &n) == 0 && n >= 1 && n <= (int64_t)c->n_servers) {
			*ret = (size_t)n - 1;
			return 1;
		}
		buf_clear(&list);
		buf_printf(&list, "  A number from 1 to %zu: ", c->n_servers);
	}
}

static int menu_server(
	const struct program *p, const struct clean_options *o, const char *home, struct err *e)
{
	CLEANUP(config_done) struct config c = {0};
	size_t i = 0;
	int r = hosts_load(p, home, &c, e);

	if (r < 0)
		return r;
	if (c.n_servers == 0)
		return say(e, "There are no servers in %s.\n", c.path);
	r = choose_server(&c, &i, e);
	return r <= 0 ? r : remove_server(o, home, &c.servers[i], e);
}

/* --- the GPU log --- */

static int check_unused(const char *path, struct err *e)
{
	CLEANUP(buf_done) struct buf held = {0};
	pid_t pid = disk_user(path, &held);

	return pid ? err_set(e, -EBUSY,
			     "process %d uses %s; end it first (what an agent holds are jobs, or it's about to leave)",
			     (int)pid, buf_str(&held))
		   : 0;
}

static int delete_log(const struct clean_options *o, const char *home, struct err *e)
{
	static const char *const suffixes[] = {"-wal", "-shm", "-journal", ""};
	CLEANUP_FREE char *path = xasprintf("%s/gpu_log.db", home);
	CLEANUP(buf_done) struct buf question = {0};
	struct sys_stat st;
	int r = 0;

	if (sys_stat_at(AT_FDCWD, path, 0, &st) < 0)
		return say(e, "There's no GPU log; it would be %s.\n", path);
	buf_printf(&question, "Delete the GPU log %s (", path);
	disk_put_bytes(&question, st.size);
	buf_puts(&question, ")? [y/N] ");
	r = agree(o, buf_str(&question), e);
	if (r <= 0)
		return r;
	/* The database last: what's left of it by a failure is then still a database. */
	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		CLEANUP_FREE char *file = xasprintf("%s%s", path, suffixes[i]);

		r = check_unused(file, e);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		CLEANUP_FREE char *file = xasprintf("%s%s", path, suffixes[i]);

		if (unlink(file) < 0 && errno != ENOENT)
			return err_sys(e, -errno, "cannot delete %s", file);
	}
	return say(e, "Deleted %s.\n", path);
}

static int log_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	char home[HOSTS_PATH];
	int r = hosts_home(p, home, e);

	(void)argc;
	(void)argv;
	return r < 0 ? r : delete_log(opts, home, e);
}

/* --- everything --- */

/* "/a" is above "/a/b", and itself. */
static bool is_above(const char *upper, const char *lower)
{
	size_t n = strlen(upper);

	return strcmp(upper, "/") == 0 ||
	       (strncmp(upper, lower, n) == 0 && (!lower[n] || lower[n] == '/'));
}

/* A wrong $GPUSTOW_HOME must not cost anybody his files. */
static int check_deletable(const char *home, struct err *e)
{
	CLEANUP_FREE char *config = xasprintf("%s/config.yml", home);
	const char *user = getenv("HOME");
	char real[PATH_MAX], real_user[PATH_MAX];
	struct sys_stat st;
	int r;

	if (!realpath(home, real))
		return err_sys(e, -errno, "cannot look at %s", home);
	if (user && realpath(user, real_user) && is_above(real, real_user))
		return err_set(e, -EPERM, "%s holds your home directory; it isn't deleted", home);
	r = fd_check_private_dir(home, e);
	if (r < 0)
		return err_wrap(e, r, "nothing was deleted");
	/* Something of ours is in it, or nothing at all. */
	if (sys_stat_at(AT_FDCWD, config, AT_SYMLINK_NOFOLLOW, &st) == 0)
		return 0;
	return disk_is_ours(home)
		       ? 0
		       : err_set(e, -EPERM, "%s holds nothing that gpustow made; it isn't deleted",
				 home);
}

static int confirm_all(const struct clean_options *o, const char *home, struct err *e)
{
	CLEANUP(buf_done) struct buf question = {0};
	char word[64];
	int r;

	buf_printf(&question, "Delete %s with everything in it (", home);
	disk_put_bytes(&question, disk_usage(home));
	buf_puts(&question, ")? [y/N] ");
	r = agree(o, buf_str(&question), e);
	if (r <= 0 || o->yes)
		return r;
	r = tty_ask("This can't be undone. Type DELETE to go on: ", word, sizeof(word), e);
	if (r < 0)
		return r;
	if (strcmp(word, "DELETE") == 0)
		return 1;
	return say(e, "Nothing was deleted.\n");
}

static int all_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	char home[HOSTS_PATH];
	struct sys_stat st;
	int r = hosts_home(p, home, e);

	(void)argc;
	(void)argv;
	if (r < 0)
		return r;
	if (sys_stat_at(AT_FDCWD, home, AT_SYMLINK_NOFOLLOW, &st) == -ENOENT)
		return say(e, "There's nothing to delete: %s isn't there.\n", home);
	r = check_deletable(home, e);
	if (r == 0)
		r = check_unused(home, e);
	if (r == 0)
		r = confirm_all(opts, home, e);
	if (r <= 0)
		return r;
	r = check_unused(home, e);
	if (r == 0 && (r = fd_remove_tree_at(AT_FDCWD, home)) < 0)
		return err_sys(e, r, "not all of %s could be deleted", home);
	return r < 0 ? r : say(e, "Deleted %s.\n", home);
}

/* --- the menu --- */

static int clean_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	char home[HOSTS_PATH];
	int r = hosts_home(p, home, e);

	(void)argc;
	(void)argv;
	if (r < 0)
		return r;
	if (!tty_is_there())
		return err_set(e, -EINVAL,
			"the menu needs a terminal; scripts say 'clean server NAME --yes', 'clean log --yes' or 'clean all --yes'");
	for (;;) {
		char answer[64];

		r = tty_ask(
			"  1  remove a server\n  2  delete the GPU log\n  3  cancel\nWhat? [3] ",
			answer, sizeof(answer), e);
		if (r < 0 || !answer[0] || strcmp(answer, "3") == 0)
			return r;
		if (strcmp(answer, "1") == 0)
			return menu_server(p, opts, home, e);
		if (strcmp(answer, "2") == 0)
			return delete_log(opts, home, e);
	}
}

extern const struct command cmd_clean, cmd_clean_server, cmd_clean_log, cmd_clean_all;
const struct command cmd_clean = {
	.name = "clean",
	.args = "",
	.summary = "remove a server or delete the GPU log, by a menu",
	.about = "Each asks before it does anything.",
	.examples = "$ gpustow clean",
	.needs_locale = true,
	.options_size = sizeof(struct clean_options),
	.exec = clean_exec,
};

const struct command cmd_clean_server = {
	.name = "clean server",
	.args = "NAME",
	.summary = "remove a server from config.yml",
	.about =
		"NAME is its nickname, or a part that only one has. What else is in config.yml stays; comments\n"
		"inside the server's own lines go with it.",
	.examples = "$ gpustow clean server gpu1 --yes",
	.options = clean_specs,
	.options_size = sizeof(struct clean_options),
	.min_args = 1,
	.max_args = 1,
	.needs_locale = true,
	.exec = server_exec,
};

const struct command cmd_clean_log = {
	.name = "clean log",
	.args = "",
	.summary = "delete the GPU log's database",
	.examples = "$ gpustow clean log --yes",
	.options = clean_specs,
	.options_size = sizeof(struct clean_options),
	.needs_locale = true,
	.exec = log_exec,
};

const struct command cmd_clean_all = {
	.name = "clean all",
	.args = "",
	.summary = "delete the whole working directory",
	.about =
		"It asks twice, and for the word DELETE. While a process uses something in the directory (an\n"
		"agent with jobs, a queue, a log being written) nothing is deleted, with --yes neither.",
	.examples = "$ gpustow clean all",
	.options = clean_specs,
	.options_size = sizeof(struct clean_options),
	.needs_locale = true,
	.exec = all_exec,
};
