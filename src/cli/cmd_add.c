/*
 * `gpustow add`: one more server in config.yml, by questions on a terminal or all by options. Values are judged by
 * host_config_set alone, so both ways take the same. Nothing is written before the last answer.
 */
#include "cli/hosts.h"
#include "cli/tty.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct add_options {
	const char *host, *user, *nickname, *auth, *identity, *proxyjump, *gpus;
	int64_t port; /* 0: not given */
	bool yes, password_stdin, json;
};

#define TEXT(n, member, a, t) \
	{ \
		.name = n, .arg = a, .kind = OPTION_TEXT, \
		.offset = offsetof(struct add_options, member), .text = t \
	}
#define FLAG(n, member, t) \
	{ \
		.name = n, .kind = OPTION_FLAG, .offset = offsetof(struct add_options, member), \
		.text = t \
	}

static const struct option_spec add_specs[] = {
	TEXT("host", host, "HOST",
		"name, address or ssh alias of the server; with it no questions are asked"),
	{.name = "port",
		.arg = "PORT",
		.kind = OPTION_INT,
		.offset = offsetof(struct add_options, port),
		.min = 1,
		.max = 65535,
		.text = "its SSH port (default 22)"},
	TEXT("user", user, "NAME", "the account there (default: what ssh would take)"),
	TEXT("nickname", nickname, "NAME", "what it's called here (default user@host:port)"),
	TEXT("auth", auth, "HOW", "auto, key or password (default auto)"),
	{.name = "identity",
		.arg = "FILE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct add_options, identity),
		.text = "private key to log in with",
		.complete = COMPLETE_FILE},
	TEXT("proxyjump", proxyjump, "HOPS",
		"[user@]host[:port] to go through, several with commas"),
	TEXT("gpus", gpus, "LIST",
		"the GPUs on which jobs may be placed, as 0,1; none: no GPU jobs (default all)"),
	FLAG("password-stdin", password_stdin,
		"store the password that's the first line of standard input, in plain text"),
	FLAG("yes", yes, "don't ask whether to add it"),
	FLAG("json", json, "print what was added as JSON"),
	OPTION_SPEC_END,
};

enum { ANSWER = 1100 };

/* --- by questions --- */

struct wizard {
	const struct config *config;
	struct host_config *host;
	struct err *e;
};

/* Asks until the answer will do; Enter takes `otherwise` (NULL: an answer is needed; "": nothing). */
static int ask_key(struct wizard *w, const char *prompt, const char *key, const char *otherwise)
{
	for (;;) {
		char answer[ANSWER];
		struct err bad = {0};
		int r = tty_ask(prompt, answer, sizeof(answer), &bad);

		if (r == -ECANCELED)
			return err_set(w->e, r, "%s", bad.text);
		if (r == 0 && !answer[0] && !otherwise)
			r = err_set(&bad, -EINVAL, "this one is needed");
		if (r == 0)
			r = host_config_set(w->host, key, answer[0] ? answer : otherwise, &bad);
		if (r == 0)
			return 0;
		printf("  %s\n", bad.text);
		fflush(stdout);
	}
}

static int ask_nickname(struct wizard *w)
{
	struct host_config *h = w->host;
	CLEANUP_FREE char *usual = xasprintf("%s@%s:%d", h->username, h->hostname, h->port),
			  *prompt = xasprintf("Nickname [%s]: ", usual);

	for (;;) {
		size_t i = 0;
		int r = ask_key(w, prompt, "nickname", usual);

		if (r < 0)
			return r;
		while (i < w->config->n_servers &&
			strcmp(w->config->servers[i].nickname, h->nickname) != 0)
			i++;
		if (i == w->config->n_servers)
			return 0;
		printf("  There's a server called %s already.\n", h->nickname);
		fflush(stdout);
	}
}

static int ask_auth(struct wizard *w)
{
	static const char *const names[] = {"auto", "key", "password"};

	for (;;) {
		char answer[ANSWER];
		int r = tty_ask("Authentication, 1 auto, 2 key, 3 password [1]: ", answer,
			sizeof(answer), w->e);

		if (r == -ECANCELED)
			return r;
		if (r == 0 && answer[0] >= '1' && answer[0] <= '3' && !answer[1])
			return host_config_set(w->host, "auth", names[answer[0] - '1'], w->e);
		if (r == 0 &&
			host_config_set(w->host, "auth", answer[0] ? answer : "auto", NULL) == 0)
			return 0;
		printf("  1, 2 or 3\n");
		fflush(stdout);
	}
}

static int run_wizard(struct wizard *w)
{
	int r = ask_key(w, "Host: ", "hostname", NULL);

	if (r == 0)
		r = ask_key(w, "Port [22]: ", "port", "22");
	if (r == 0)
		r = ask_key(w, "Username: ", "username", NULL);
	if (r == 0)
		r = ask_nickname(w);
	if (r == 0)
		r = ask_auth(w);
	if (r == 0 && w->host->auth != AUTH_PASSWORD)
		r = ask_key(w, "Identity file (Enter: ssh's own): ", "identityfile", "");
	if (r == 0)
		r = ask_key(w, "Proxy jump (Enter: none): ", "proxyjump", "");
	return r;
}

/* --- by options --- */

/* A path that's right only here and now is made one that's right everywhere. */
static char *lasting_path(const char *path)
{
	char cwd[PATH_MAX];

	if (path[0] == '/' || path[0] == '~' || !getcwd(cwd, sizeof(cwd)))
		return xstrdup(path);
	return xasprintf("%s/%s", cwd, path);
}

static int read_password(const struct add_options *o, struct host_config *h, struct err *e)
{
	char password[ANSWER];
	int r;

	if (!o->password_stdin)
		return 0;
	if (h->auth == AUTH_KEY)
		return err_set(
			e, -EINVAL, "--auth key uses no password; leave --password-stdin out");
	r = tty_ask_secret("Password: ", password, sizeof(password), e);
	if (r == 0 && !password[0])
		r = err_set(
			e, -EINVAL, "--password-stdin: the first line of standard input is empty");
	if (r == 0)
		r = host_config_set(h, "password", password, e);
	explicit_bzero(password, sizeof(password));
	return r;
}

static int from_options(const struct add_options *o, struct host_config *h, struct err *e)
{
	CLEANUP_FREE char *identity = o->identity ? lasting_path(o->identity) : NULL;
	char port[8] = "";
	const struct {
		const char *key, *value;
	} pairs[] = {{"hostname", o->host}, {"port", port}, {"username", o->user},
		{"nickname", o->nickname}, {"auth", o->auth}, {"identityfile", identity},
		{"proxyjump", o->proxyjump}, {"gpus", o->gpus}};

	if (o->port)
		snprintf(port, sizeof(port), "%d", (int)o->port);
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		int r = host_config_set(h, pairs[i].key, pairs[i].value, e);

		if (r < 0)
			return r;
	}
	return read_password(o, h, e);
}

/* --- both --- */

static void put_summary(struct buf *b, const struct host_config *h)
{
	buf_printf(b, "\n  Nickname:  %s\n  Host:      %s:%d\n", h->nickname, h->hostname, h->port);
	buf_printf(b, "  User:      %s\n", h->username ? h->username : "as ssh decides");
	buf_printf(b, "  Auth:      %s\n", host_auth_name(h->auth));
	if (h->identityfile)
		buf_printf(b, "  Key:       %s\n", h->identityfile);
	buf_printf(b, "  Via:       %s\n", h->proxyjump ? h->proxyjump : "Direct");
	if (h->password)
		buf_puts(b, "  Password:  stored in plain text\n");
	if (h->has_gpus)
		buf_printf(b, "  GPUs:      %zu for jobs\n", h->n_gpus);
	buf_putc(b, '\n');
}

static int confirm(const struct host_config *h, bool *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	int r;

	put_summary(&b, h);
	r = command_print(&b, e);
	return r < 0 ? r : tty_ask_yes("Add this server? [Y/n] ", true, ret, e);
}

static int report(
	const struct add_options *o, const char *home, const struct host_config *h, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (o->json)
		return hosts_print_json(json_pack("{s:o}", "added", hosts_json(h)), e);
	buf_printf(&out, "Added %s to %s/config.yml.\n", h->nickname, home);
	return command_print(&out, e);
}

static int add_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct add_options *o = opts;
	CLEANUP(config_done) struct config c = {0};
	CLEANUP(host_config_done) struct host_config h = {0};
	struct wizard w = {.config = &c, .host = &h, .e = e};
	char home[HOSTS_PATH];
	/* A password on stdin leaves nobody there to answer. */
	bool asks = !o->yes && !o->json && !o->password_stdin && tty_is_there(), yes = true;
	int r;

	(void)argc;
	(void)argv;
	if (!o->host && !asks)
		return err_set(e, -EINVAL, "--host is needed where no questions can be asked");
	if (!o->host && (o->user || o->nickname || o->auth || o->identity || o->proxyjump ||
				o->gpus || o->port))
		return err_set(e, -EINVAL,
			"--host is missing; without any option the questions are asked");
	r = hosts_home(p, home, e);
	/* A file that can't be read is said before ten questions, not after. */
	if (r == 0)
		r = hosts_load(p, home, &c, e);
	if (r == 0)
		r = o->host ? from_options(o, &h, e) : run_wizard(&w);
	if (r == 0)
		r = host_config_finish(&h, e);
	if (r == 0 && asks)
		r = confirm(&h, &yes, e);
	if (r < 0)
		return r;
	if (!yes) {
		puts("Nothing was added.");
		return EXIT_OK;
	}
	r = config_add(home, &h, 1, e);
	return r < 0 ? r : report(o, home, &h, e);
}

extern const struct command cmd_add;
const struct command cmd_add = {
	.name = "add",
	.args = "",
	.summary = "add a server to config.yml",
	.about =
		"Without options it asks. Comments, order and everything else in config.yml stay as they are.\n"
		"Nothing is written before the last answer.",
	.examples = "$ gpustow add\n$ gpustow add --host gpu1.lab --user ann --nickname gpu1 --yes",
	.options = add_specs,
	.options_size = sizeof(struct add_options),
	.needs_locale = true,
	.exec = add_exec,
};
