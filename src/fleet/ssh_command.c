/* From a host's configuration to ssh's arguments. What ssh_config may say better than we is left to it. */
#include "fleet/ssh_command.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct ssh_argv *a, const char *arg)
{
	GROW(a->v, a->n, a->cap);
	a->v[a->n++] = arg ? xstrdup(arg) : NULL;
}

static void add_option(struct ssh_argv *a, const char *option)
{
	add(a, "-o");
	add(a, option);
}

static void add_auth(struct ssh_argv *a, const struct host_config *h, bool can_ask)
{
	if (h->auth == AUTH_KEY) {
		add_option(a, "PasswordAuthentication=no");
		add_option(a, "KbdInteractiveAuthentication=no");
	} else if (h->auth == AUTH_PASSWORD) {
		add_option(a, "PubkeyAuthentication=no");
		add_option(a, "PreferredAuthentications=password,keyboard-interactive");
	}
	/* Batch mode would keep ssh from asking for the password that's stored. It's given once, so a wrong one ends it. */
	if (h->auth != AUTH_KEY && h->password && !can_ask) {
		add_option(a, "BatchMode=no");
		add_option(a, "NumberOfPasswordPrompts=1");
	}
	if (h->identityfile) {
		add(a, "-i");
		add(a, h->identityfile);
		add_option(a, "IdentitiesOnly=yes");
	}
}

/* "[::1]" is how an address is written beside a port; ssh's own argument has no brackets. */
static char *bare_host(const char *host)
{
	size_t n = strlen(host);

	return host[0] == '[' && n > 2 && host[n - 1] == ']' ? xstrndup(host + 1, n - 2)
							     : xstrdup(host);
}

/* The way there: account, port, jump hosts. */
static void add_way(struct ssh_argv *a, const struct host_config *h)
{
	char port[16];

	if (h->username) {
		add(a, "-l");
		add(a, h->username);
	}
	if (h->port && h->port != 22) {
		snprintf(port, sizeof(port), "%d", h->port);
		add(a, "-p");
		add(a, port);
	}
	if (h->proxyjump) {
		add(a, "-J");
		add(a, h->proxyjump);
	}
}

void ssh_argv_make(const struct host_config *h, const char *config, bool can_ask, bool is_loud,
	const char *what, const char *command, struct ssh_argv *ret)
{
	char *host = bare_host(h->hostname);

	*ret = (struct ssh_argv){0};
	add(ret, "ssh");
	add(ret, "-F");
	add(ret, config);
	add(ret, "-T");
	if (is_loud) {
		add_option(ret, "ControlMaster=no");
		add_option(ret, "ControlPersist=no");
	}
	add_auth(ret, h, can_ask);
	add_way(ret, h);
	if (what)
		add(ret, what);
	add(ret, "--");
	add(ret, host);
	if (command)
		add(ret, command);
	add(ret, NULL);
	free(host);
}

void ssh_argv_done(struct ssh_argv *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->v[i]);
	free(a->v);
	*a = (struct ssh_argv){0};
}

void ssh_by_hand(const struct host_config *h, struct buf *out)
{
	char *host = bare_host(h->hostname);

	buf_puts(out, "ssh ");
	if (h->port && h->port != 22)
		buf_printf(out, "-p %d ", h->port);
	if (h->identityfile)
		buf_printf(out, "-i %s ", h->identityfile);
	if (h->proxyjump)
		buf_printf(out, "-J %s ", h->proxyjump);
	buf_printf(out, "%s%s%s", h->username ? h->username : "", h->username ? "@" : "", host);
	free(host);
}

void ssh_key(const struct host_config *h, struct buf *out)
{
	buf_printf(out, "%s@%s:%d %s", h->username ? h->username : "", h->hostname,
		h->port ? h->port : 22, h->proxyjump ? h->proxyjump : "");
}

/* The value of "key value" on a line of its own; NULL without. */
static char *line_value(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *at = text; *at;) {
		size_t len = strcspn(at, "\n");

		if (len > n + 1 && !strncmp(at, key, n) && at[n] == ' ')
			return xstrndup(at + n + 1, len - n - 1);
		at += len + (at[len] ? 1 : 0);
	}
	return NULL;
}

int ssh_read_resolved(const char *text, char **ret_user, char **ret_host)
{
	char *user = line_value(text, "user"), *host = line_value(text, "hostname"),
	     *alias = line_value(text, "hostkeyalias");

	if (!user || !host) {
		free(user);
		free(host);
		free(alias);
		return -EINVAL;
	}
	*ret_user = user;
	*ret_host = alias ? alias : host;
	if (alias)
		free(host);
	return 0;
}
