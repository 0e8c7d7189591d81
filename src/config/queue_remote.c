/* `remote:`: where the queue lies when it isn't here. What may reach ssh's command line is checked as a server's is. Pure. */
#include "config/queue_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "config/scalar.h"

#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 64, TEXT_MAX = 1024 };

/* The second name of a fact leads to the first. */
static const struct remote_key {
	const char *name, *means;
} remote_keys[] = {
	{"host", "host"},
	{"hostname", "host"},
	{"port", "port"},
	{"username", "username"},
	{"user", "username"},
	{"gpustow", "gpustow"},
	{"nvidb", "gpustow"},
	{"gpustow_home", "gpustow_home"},
	{"nvidb_home", "gpustow_home"},
	{"keeper", "keeper"},
	{"ssh_options", "ssh_options"},
};

struct reading {
	const char *name;
	struct queue_remote *r;
	struct host_config h; /* takes host, port and username, for its rules */
	struct buf *warnings;
	struct err *e;
};

void queue_remote_done(struct queue_remote *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n_ssh_options; i++)
		free(r->ssh_options[i]);
	free(r->ssh_options);
	free(r->host);
	free(r->username);
	free(r->program);
	free(r->home);
	*r = (struct queue_remote){0};
}

static const struct remote_key *find_key(const struct doc_node *key)
{
	for (size_t i = 0; i < ARRAY_LEN(remote_keys); i++)
		if (doc_text_is(key, remote_keys[i].name))
			return &remote_keys[i];
	return NULL;
}

/* Two names of one fact: which counts would be a guess. */
static int check_synonyms(struct reading *rd, const struct doc_node *map)
{
	for (size_t i = 0; i < map->n; i += 2) {
		const struct remote_key *k = find_key(&map->items[i]);

		for (size_t j = 0; k && j < i; j += 2) {
			const struct remote_key *other = find_key(&map->items[j]);

			if (other && strcmp(other->means, k->means) == 0)
				return config_bad(rd->name, &map->items[i], rd->e,
					"%s: and %s: mean the same; keep one", other->name,
					k->name);
		}
	}
	return 0;
}

static int set_host(
	struct reading *rd, const char *key, const struct doc_node *n, const char *value)
{
	int code = host_config_set(&rd->h, key, value, rd->e);

	return code < 0 ? err_wrap(rd->e, code, "%s line %u: remote", rd->name, n->line) : 0;
}

/* user@host is ssh's way, and nvidb's, to name both. */
static int read_host(struct reading *rd, const struct doc_node *n)
{
	const char *text = NULL, *at;
	CLEANUP_FREE char *user = NULL;
	int code = config_text(rd->name, "remote.host", n, &text, rd->e);

	if (code < 0)
		return code;
	at = strrchr(text, '@');
	if (!at || at == text)
		return set_host(rd, "hostname", n, text);
	if (rd->h.username)
		return config_bad_value(
			rd->name, "remote.host", n, "username: says the user already", rd->e);
	user = xstrndup(text, (size_t)(at - text));
	code = set_host(rd, "username", n, user);
	return code < 0 ? code : set_host(rd, "hostname", n, at + 1);
}

/* For a remote shell, where it's quoted; a hyphen in front would still be an option. */
static int read_text(struct reading *rd, const char *key, const struct doc_node *n, char **slot)
{
	CLEANUP_FREE char *what = xasprintf("remote.%s", key);
	const char *text = NULL;
	int code = config_text(rd->name, what, n, &text, rd->e);

	if (code < 0)
		return code;
	if (!config_is_printable(text))
		return config_bad(rd->name, n, rd->e,
			"%s: it holds control characters; write plain text", what);
	if (text[0] == '-' || strlen(text) > TEXT_MAX)
		return config_bad_value(rd->name, what, n,
			"write a path of at most 1024 bytes that begins with no hyphen", rd->e);
	free(*slot);
	*slot = *text ? xstrdup(text) : NULL;
	return 0;
}

static int read_keeper(struct reading *rd, const struct doc_node *n)
{
	bool is_on = false;

	if (n->kind != DOC_SCALAR || n->is_tagged)
		return config_bad_value(rd->name, "remote.keeper", n,
			"write ensure, or none to leave the keeper there alone", rd->e);
	if (scalar_bool(n, &is_on) == 0)
		rd->r->keeper_ensure = is_on;
	else
		rd->r->keeper_ensure = scalar_is_null(n) || doc_text_is(n, "ensure");
	return 0;
}

static int read_options(struct reading *rd, const struct doc_node *n)
{
	static const char right[] =
		"takes a list of ssh's options, as [\"ServerAliveInterval=15\"]";
	size_t cap = 0;

	if (scalar_is_null(n))
		return 0;
	if (n->kind != DOC_SEQUENCE || n->is_tagged || n->n > OPTIONS_MAX)
		return config_bad_value(rd->name, "remote.ssh_options", n, right, rd->e);
	for (size_t i = 0; i < n->n; i++) {
		const struct doc_node *item = &n->items[i];

		if (item->kind != DOC_SCALAR || item->is_tagged || item->len == 0 ||
			item->len > TEXT_MAX || strlen(item->text) != item->len ||
			!config_is_printable(item->text) || item->text[0] == '-')
			return config_bad_value(rd->name, "remote.ssh_options", item,
				"each is one option of ssh_config(5), without -o in front", rd->e);
		GROW(rd->r->ssh_options, rd->r->n_ssh_options, cap);
		rd->r->ssh_options[rd->r->n_ssh_options++] = xstrdup(item->text);
	}
	return 0;
}

static int read_port(struct reading *rd, const struct doc_node *n)
{
	char space[24];
	const char *text = NULL;
	int code = config_number_text(rd->name, "remote.port", n, space, &text, rd->e);

	return code < 0 ? code : set_host(rd, "port", n, text);
}

static int read_username(struct reading *rd, const struct doc_node *n)
{
	const char *text = NULL;
	int code = config_text(rd->name, "remote.username", n, &text, rd->e);

	if (code == 0 && *text && rd->h.username)
		return config_bad_value(
			rd->name, "remote.username", n, "host: says the user already", rd->e);
	return code < 0 ? code : set_host(rd, "username", n, text);
}

static int read_value(struct reading *rd, const struct remote_key *k, const struct doc_node *n)
{
	if (strcmp(k->means, "host") == 0)
		return read_host(rd, n);
	if (strcmp(k->means, "port") == 0)
		return read_port(rd, n);
	if (strcmp(k->means, "username") == 0)
		return read_username(rd, n);
	if (strcmp(k->means, "gpustow") == 0)
		return read_text(rd, k->name, n, &rd->r->program);
	if (strcmp(k->means, "gpustow_home") == 0)
		return read_text(rd, k->name, n, &rd->r->home);
	return strcmp(k->means, "keeper") == 0 ? read_keeper(rd, n) : read_options(rd, n);
}

static int read_pair(struct reading *rd, const struct doc_node *key)
{
	const char *names[ARRAY_LEN(remote_keys)];
	const struct remote_key *k = find_key(key);

	if (k)
		return read_value(rd, k, key + 1);
	for (size_t i = 0; i < ARRAY_LEN(remote_keys); i++)
		names[i] = remote_keys[i].name;
	config_warn_unknown(rd->warnings, rd->name, key, " in remote:", names, ARRAY_LEN(names));
	return 0;
}

static int read_mapping(struct reading *rd, const struct doc_node *n, bool is_nvidb)
{
	int code = config_check_mapping(n, "remote:", rd->name, rd->e);

	if (code == 0)
		code = check_synonyms(rd, n);
	for (size_t i = 0; code == 0 && i < n->n; i += 2)
		code = read_pair(rd, &n->items[i]);
	if (code < 0)
		return code;
	if (!rd->h.hostname)
		return config_bad(rd->name, n, rd->e,
			"remote: needs host:, the machine that has the queue; remote: false says that it's here");
	if (!rd->r->program)
		rd->r->program = xstrdup(is_nvidb ? "nvidb" : "gpustow");
	rd->r->host = TAKE_PTR(rd->h.hostname);
	rd->r->username = TAKE_PTR(rd->h.username);
	rd->r->port = rd->h.port;
	return 0;
}

int queue_remote_read(const char *name, const struct doc_node *n, bool is_nvidb,
	struct queue_remote *ret, struct buf *warnings, struct err *e)
{
	struct queue_remote remote = {.keeper_ensure = true};
	struct reading rd = {.name = name, .r = &remote, .warnings = warnings, .e = e};
	bool is_on = false;
	int code = 0;

	if (!n->is_tagged && (scalar_is_null(n) || (scalar_bool(n, &is_on) == 0 && !is_on)))
		remote.keeper_ensure = false;
	else
		code = read_mapping(&rd, n, is_nvidb);
	host_config_done(&rd.h);
	if (code < 0) {
		queue_remote_done(&remote);
		return code;
	}
	queue_remote_done(ret);
	*ret = remote;
	return 0;
}
