/*
 * `gpustow import`: servers from an OpenSSH client configuration into config.yml, chosen on a checklist, by name, or all.
 * What's there already by host, port and user is skipped; all that's added is added at once.
 */
#include "cli/checklist.h"
#include "cli/hosts.h"
#include "cli/ssh_hosts.h"
#include "cli/tty.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct import_options {
	bool all, json, yes;
};

static const struct option_spec import_specs[] = {
	{.name = "all",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct import_options, all),
		.text = "take every host, without a checklist"},
	{.name = "yes",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct import_options, yes),
		.text = "don't ask whether to add what was chosen"},
	{.name = "json",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct import_options, json),
		.text = "print what was added and skipped as JSON; without --all and names, what could be added"},
	OPTION_SPEC_END,
};

enum { TRIES_MAX = 5 };

/* One host of the ssh configuration and what becomes of it. */
struct candidate {
	struct host_config host; /* hostname NULL: it can't be used */
	const char *alias;
	bool is_chosen;
	char *why; /* why it's skipped, or NULL */
};

struct import {
	const struct import_options *o;
	const struct program *p;
	char home[HOSTS_PATH];
	char *path; /* of the ssh configuration */
	struct ssh_aliases aliases;
	struct ssh_defaults defaults;
	struct candidate *list;
	size_t n;
	size_t added;
};

static void import_done(struct import *m)
{
	for (size_t i = 0; i < m->n; i++) {
		host_config_done(&m->list[i].host);
		free(m->list[i].why);
	}
	free(m->list);
	ssh_aliases_done(&m->aliases);
	ssh_defaults_done(&m->defaults);
	free(m->path);
}

/* --- which file, which names --- */

static char *usual_path(void)
{
	const char *home = getenv("HOME");

	return xasprintf("%s/.ssh/config", home ? home : "");
}

/* The first word is a file when it looks like one or is one; a name of a host otherwise. */
static bool is_path(const char *word)
{
	return strchr(word, '/') || access(word, F_OK) == 0;
}

static int check_names(const struct import *m, int n, char **names, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};

	for (int i = 0; names && i < n; i++)
		if (!ssh_aliases_have(&m->aliases, names[i])) {
			text_put_repr(&q, names[i], strnlen(names[i], 80));
			return err_set(
				e, -ENOENT, "there's no host %s in %s", buf_str(&q), m->path);
		}
	return 0;
}

static bool is_named(const char *alias, int n, char **names)
{
	for (int i = 0; i < n; i++)
		if (strcmp(alias, names[i]) == 0)
			return true;
	return false;
}

/* --- what they mean --- */

static void skip(struct candidate *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void skip(struct candidate *c, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf why = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&why, fmt, ap);
	va_end(ap);
	free(c->why);
	c->why = buf_take(&why);
}

static int resolve(struct import *m, int n_names, char **names, struct err *e)
{
	int r = m->aliases.n ? ssh_defaults_read(&m->defaults, e) : 0;

	if (r < 0)
		return r;
	m->list = xcalloc(m->aliases.n ? m->aliases.n : 1, sizeof(*m->list));
	for (size_t i = 0; i < m->aliases.n; i++) {
		struct candidate *c = &m->list[m->n];
		struct err why = {0};

		if (n_names && !is_named(m->aliases.names[i], n_names, names))
			continue;
		m->n++;
		c->alias = m->aliases.names[i];
		c->is_chosen = true;
		if (ssh_resolve(m->path, c->alias, &m->defaults, &c->host, &why) < 0)
			skip(c, "%s", why.text);
	}
	return 0;
}

static const struct host_config *clash(
	const struct import *m, const struct config *config, size_t i, bool *ret_place)
{
	const struct host_config *h = &m->list[i].host;

	for (size_t k = 0; k < config->n_servers + i; k++) {
		bool is_new = k >= config->n_servers;
		const struct candidate *earlier = is_new ? &m->list[k - config->n_servers] : NULL;
		const struct host_config *other = is_new ? &earlier->host : &config->servers[k];

		if (is_new && (!earlier->is_chosen || earlier->why))
			continue;
		*ret_place = host_config_same_place(other, h);
		if (*ret_place || strcmp(other->nickname, h->nickname) == 0)
			return other;
	}
	return NULL;
}

/* Marks what's there already. Run again when config.yml has changed meanwhile. */
static void find_present(struct import *m, const struct config *config)
{
	for (size_t i = 0; i < m->n; i++) {
		struct candidate *c = &m->list[i];
		const struct host_config *other;
		bool is_place;

		if (!c->host.hostname || !c->is_chosen)
			continue;
		free(c->why);
		c->why = NULL;
		other = clash(m, config, i, &is_place);
		if (other && is_place)
			skip(c, "already there as %s", other->nickname);
		else if (other)
			skip(c, "another server is called %s", other->nickname);
	}
}

/* --- choosing --- */

static char *label_of(const struct candidate *c)
{
	CLEANUP(buf_done) struct buf b = {0}, clean = {0};

	buf_printf(&b, "%s  ", c->alias);
	if (c->host.hostname) {
		hosts_put_place(&b, &c->host);
		if (c->host.proxyjump)
			buf_printf(&b, " via %s", c->host.proxyjump);
	}
	if (c->why)
		buf_printf(&b, "  (%s)", c->why);
	text_put_clean(&clean, buf_str(&b), b.len);
	return buf_take(&clean);
}

/* 1: saved; 0: cancelled. */
static int choose(struct import *m, struct err *e)
{
	CLEANUP_FREE struct checklist_item *items = xcalloc(m->n, sizeof(*items));
	CLEANUP_FREE char *title = xasprintf("Servers of %s to add", m->path);
	struct checklist list = {.title = title, .items = items, .n = m->n};
	bool save = false;
	int r;

	for (size_t i = 0; i < m->n; i++)
		items[i] =
			(struct checklist_item){.label = label_of(&m->list[i]), .is_checked = true};
	r = checklist_run(&list, &save, e);
	for (size_t i = 0; i < m->n; i++) {
		m->list[i].is_chosen = items[i].is_checked;
		free((char *)(uintptr_t)items[i].label);
	}
	return r < 0 ? r : save;
}

static size_t count_new(const struct import *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++)
		n += m->list[i].is_chosen && !m->list[i].why;
	return n;
}

static int confirm(const struct import *m, struct err *e)
{
	CLEANUP_FREE char *question = xasprintf("Add %zu server%s to %s/config.yml? [Y/n] ",
		count_new(m), count_new(m) == 1 ? "" : "s", m->home);
	bool yes = false;
	int r = count_new(m) ? tty_ask_yes(question, true, &yes, e) : 1;

	return r < 0 ? r : r == 1 ? 1 : yes;
}

/* --- adding --- */

static int add_once(struct import *m, struct err *e)
{
	CLEANUP(config_done) struct config config = {0};
	CLEANUP_FREE struct host_config *hosts = NULL;
	size_t n = 0;
	int r = config_load(m->home, &config, e);

	if (r < 0)
		return r;
	find_present(m, &config);
	hosts = xcalloc(m->n ? m->n : 1, sizeof(*hosts));
	for (size_t i = 0; i < m->n; i++)
		if (m->list[i].is_chosen && !m->list[i].why)
			hosts[n++] = m->list[i].host;
	r = config_add(m->home, hosts, n, e);
	if (r == 0)
		m->added = n;
	return r;
}

/* Somebody else may add one of them between our look and our change. */
static int add_all(struct import *m, struct err *e)
{
	int r = -EEXIST;

	for (int i = 0; i < TRIES_MAX && r == -EEXIST; i++)
		r = add_once(m, e);
	return r;
}

/* --- telling --- */

static json_t *skipped_json(const struct import *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < m->n; i++)
		if (m->list[i].is_chosen && m->list[i].why)
			json_array_append_new(
				list, json_pack("{s:s,s:s}", "nickname", m->list[i].alias, "why",
					      m->list[i].why));
	return list;
}

static json_t *new_json(const struct import *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < m->n; i++)
		if (m->list[i].is_chosen && !m->list[i].why)
			json_array_append_new(list, hosts_json(&m->list[i].host));
	return list;
}

static int tell(const struct import *m, bool was_added, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	size_t skipped = 0;

	if (m->o->json)
		return hosts_print_json(json_pack("{s:s,s:o,s:o}", "source", m->path,
						was_added ? "added" : "importable", new_json(m),
						"skipped", skipped_json(m)),
			e);
	for (size_t i = 0; i < m->n; i++)
		skipped += m->list[i].is_chosen && m->list[i].why;
	buf_printf(&out, "%zu added, %zu skipped%s\n", m->added, skipped, skipped ? ":" : "");
	for (size_t i = 0; i < m->n; i++) {
		if (!m->list[i].is_chosen || !m->list[i].why)
			continue;
		buf_printf(&out, "  %s: ", m->list[i].alias);
		text_put_clean(&out, m->list[i].why, strlen(m->list[i].why));
		buf_putc(&out, '\n');
	}
	return command_print(&out, e);
}

/* One that was wanted, and ssh can't say what it is. */
static bool has_unusable(const struct import *m)
{
	for (size_t i = 0; i < m->n; i++)
		if (m->list[i].is_chosen && !m->list[i].host.hostname)
			return true;
	return false;
}

static int nothing(struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	buf_puts(&out, "Nothing was added.\n");
	return command_print(&out, e);
}

/* --- all together --- */

static int prepare(struct import *m, int argc, char **argv, struct config *config, struct err *e)
{
	bool has_path = argc > 0 && argv && is_path(argv[0]);
	const char *term = getenv("TERM");
	int r = hosts_home(m->p, m->home, e);

	m->path = has_path ? xstrdup(argv[0]) : usual_path();
	argc -= has_path;
	argv += has_path;
	if (m->o->all && argc > 0)
		return err_set(e, -EINVAL, "--all takes every host; leave the names out, or --all");
	if (r == 0 && argc == 0 && !m->o->all && !m->o->json &&
		!(tty_is_there() && term && strcmp(term, "dumb") != 0))
		return err_set(e, -EINVAL,
			"no checklist can be shown here; name the hosts, or say --all (--json lists them)");
	if (r == 0)
		r = hosts_load(m->p, m->home, config, e);
	if (r == 0)
		r = ssh_aliases_read(m->path, &m->aliases, e);
	if (r == 0)
		r = check_names(m, argc, argv, e);
	if (r == 0)
		r = resolve(m, argc, argv, e);
	if (r == 0)
		find_present(m, config);
	return r < 0 ? r : argc;
}

static int import_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(import_done) struct import m = {.o = opts, .p = p};
	CLEANUP(config_done) struct config config = {0};
	int n_names = prepare(&m, argc, argv, &config, e), r = 1;
	bool chooses = n_names == 0 && !m.o->all && !m.o->json;

	if (n_names < 0)
		return n_names;
	if (m.n == 0 && !m.o->json) {
		CLEANUP(buf_done) struct buf out = {0};

		buf_printf(&out, "%s names no hosts.\n", m.path);
		return command_print(&out, e);
	}
	if (m.o->json && n_names == 0 && !m.o->all)
		return tell(&m, false, e);
	if (chooses) {
		r = choose(&m, e);
		if (r > 0)
			find_present(&m, &config);
		if (r > 0 && !m.o->yes)
			r = confirm(&m, e);
	}
	if (r <= 0)
		return r < 0 ? r : nothing(e);
	r = add_all(&m, e);
	if (r == 0)
		r = tell(&m, true, e);
	return r < 0 ? r : has_unusable(&m) ? EXIT_FAILED : EXIT_OK;
}

extern const struct command cmd_import;
const struct command cmd_import = {
	.name = "import",
	.args = "[PATH] [NAME...]",
	.summary = "add servers from an OpenSSH configuration",
	.about =
		"PATH is the configuration (default ~/.ssh/config). Its hosts are offered on a checklist;\n"
		"with names or --all there are no questions. What a host means is asked of ssh itself.",
	.examples =
		"$ gpustow import\n$ gpustow import --all\n$ gpustow import ~/.ssh/config gpu1 gpu2",
	.options = import_specs,
	.options_size = sizeof(struct import_options),
	.max_args = -1,
	.complete = COMPLETE_FILE,
	.needs_locale = true,
	.exec = import_exec,
};
