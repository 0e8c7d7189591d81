/* The servers: section: from nodes to host_config. What a value may be is host.c's; which YAML forms stand for it is here. Pure. */
#include "config/config_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "config/scalar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SERVERS_MAX = 4096 };

/* In the order in which they're written. The second name of a fact leads to the first. */
static const struct server_key {
	const char *name, *means;
	bool is_deprecated;
} server_keys[] = {
	{"hostname", "hostname", false},
	{"host", "hostname", true},
	{"port", "port", false},
	{"username", "username", false},
	{"password", "password", false},
	{"nickname", "nickname", false},
	{"description", "nickname", true},
	{"auth", "auth", false},
	{"identityfile", "identityfile", false},
	{"proxyjump", "proxyjump", false},
	{"agent_dir", "agent_dir", false},
	{"gpus", "gpus", false},
	{"gpu_ids", "gpus", false},
};

struct reading {
	struct config *c;
	const char *name;
	bool has_warned[ARRAY_LEN(server_keys)];
	struct err *e;
};

static const struct server_key *find_key(const struct doc_node *key)
{
	for (size_t i = 0; i < ARRAY_LEN(server_keys); i++)
		if (doc_text_is(key, server_keys[i].name))
			return &server_keys[i];
	return NULL;
}

static int set(struct reading *r, struct host_config *h, const char *key, const struct doc_node *n,
	const char *value)
{
	int code = host_config_set(h, key, value, r->e);

	return code < 0 ? err_wrap(r->e, code, "%s line %u", r->name, n->line) : 0;
}

static int read_port(struct reading *r, struct host_config *h, const struct doc_node *n)
{
	char space[24];
	const char *value = NULL;
	int code = config_number_text(r->name, "port", n, space, &value, r->e);

	return code < 0 ? code : set(r, h, "port", n, value);
}

/* A list of hops is their chain. */
static int read_proxyjump(struct reading *r, struct host_config *h, const struct doc_node *n)
{
	CLEANUP(buf_done) struct buf chain = {0};
	const char *value = "";
	int code;

	if (n->kind != DOC_SEQUENCE || n->is_tagged) {
		code = config_text(r->name, "proxyjump", n, &value, r->e);
		return code < 0 ? code : set(r, h, "proxyjump", n, value);
	}
	for (size_t i = 0; i < n->n; i++) {
		code = config_text(r->name, "proxyjump", &n->items[i], &value, r->e);
		if (code < 0)
			return code;
		buf_printf(&chain, "%s%s", i ? "," : "", value);
	}
	return set(r, h, "proxyjump", n, buf_str(&chain));
}

static int read_gpus(struct reading *r, struct host_config *h, const struct doc_node *n)
{
	if (scalar_is_null(n))
		return 0;
	if (n->kind != DOC_SEQUENCE || n->is_tagged)
		return config_bad(r->name, n, r->e,
			"gpus: takes a list of GPU numbers, as [0, 1]; [] means no GPU jobs there");
	h->has_gpus = true;
	for (size_t i = 0; i < n->n; i++) {
		const struct doc_node *item = &n->items[i];
		int64_t index = -1;
		int code = item->kind == DOC_SCALAR && !item->is_tagged ? scalar_int(item, &index)
									: -EINVAL;

		if (code < 0 || host_config_add_gpu(h, index) < 0)
			return config_bad(r->name, item, r->e,
				"gpus: each entry is a whole number from 0 to 1023, without quotes");
	}
	return 0;
}

static int read_value(struct reading *r, struct host_config *h, const struct server_key *k,
	const struct doc_node *n)
{
	CLEANUP_FREE char *expanded = NULL;
	const char *value = "";
	int code;

	if (strcmp(k->means, "port") == 0)
		return read_port(r, h, n);
	if (strcmp(k->means, "proxyjump") == 0)
		return read_proxyjump(r, h, n);
	if (strcmp(k->means, "gpus") == 0)
		return read_gpus(r, h, n);
	code = config_text(r->name, k->name, n, &value, r->e);
	if (code < 0)
		return code;
	if (strcmp(k->means, "identityfile") == 0)
		expanded = home_expand(value);
	return set(r, h, k->means, n, expanded ? expanded : value);
}

/* Two names of one fact in one server: which counts would be a guess. */
static int check_synonyms(struct reading *r, const struct doc_node *map)
{
	const struct server_key *seen[ARRAY_LEN(server_keys)];
	size_t n = 0;

	for (size_t i = 0; i < map->n; i += 2) {
		const struct server_key *k = find_key(&map->items[i]);

		for (size_t s = 0; k && s < n; s++)
			if (strcmp(seen[s]->means, k->means) == 0)
				return config_bad(r->name, &map->items[i], r->e,
					"%s: and %s: mean the same; keep %s:", seen[s]->name,
					k->name, k->means);
		if (k)
			seen[n++] = k;
	}
	return 0;
}

static void warn_deprecated(
	struct reading *r, const struct server_key *k, const struct doc_node *key)
{
	bool *has_warned = &r->has_warned[k - server_keys];

	if (k->is_deprecated && !*has_warned)
		config_warn(&r->c->warnings, r->name, key, "%s: is an old name; write %s:", k->name,
			k->means);
	*has_warned = true;
}

static int read_pair(struct reading *r, struct host_config *h, const struct doc_node *key)
{
	const char *names[ARRAY_LEN(server_keys)];
	const struct server_key *k = find_key(key);

	if (k) {
		warn_deprecated(r, k, key);
		return read_value(r, h, k, key + 1);
	}
	for (size_t i = 0; i < ARRAY_LEN(server_keys); i++)
		names[i] = server_keys[i].name;
	config_warn_unknown(&r->c->warnings, r->name, key, " in servers:", names, ARRAY_LEN(names));
	return 0;
}

static int read_server(struct reading *r, const struct doc_node *n, struct host_config *h)
{
	int code = config_check_mapping(n, "a server", r->name, r->e);

	if (code == 0)
		code = check_synonyms(r, n);
	for (size_t i = 0; code == 0 && i < n->n; i += 2)
		code = read_pair(r, h, &n->items[i]);
	if (code < 0)
		return code;
	h->line = n->line;
	code = host_config_finish(h, r->e);
	return code < 0 ? err_wrap(r->e, code, "%s line %u", r->name, n->line) : 0;
}

/* Jobs belong to a nickname: two hosts of one name would be taken for one. */
static int check_unique(struct reading *r, const struct doc_node *n, const struct host_config *h)
{
	CLEANUP(buf_done) struct buf q = {0};

	text_put_repr(&q, h->nickname, strlen(h->nickname));
	for (size_t i = 0; i < r->c->n_servers; i++) {
		const struct host_config *other = &r->c->servers[i];

		if (strcmp(other->nickname, h->nickname) == 0)
			return config_bad(r->name, n, r->e,
				"nickname: %s belongs to the server in line %u already; names are unique",
				buf_str(&q), other->line);
		if (host_config_same_place(other, h))
			config_warn(&r->c->warnings, r->name, n,
				"%s is the same machine and user as the server in line %u",
				buf_str(&q), other->line);
	}
	if (strcmp(h->nickname, "local") == 0)
		config_warn(&r->c->warnings, r->name, n,
			"nickname: 'local' is this machine's own name; call the server something else");
	return 0;
}

int config_read_servers(
	const struct doc_node *servers, const char *name, struct config *c, struct err *e)
{
	struct reading r = {.c = c, .name = name, .e = e};
	size_t cap = 0;

	if (servers->kind != DOC_SEQUENCE || servers->is_tagged)
		return config_bad(name, servers, e,
			"servers: must be a list; each server begins with \"- hostname: ...\"");
	if (servers->n > SERVERS_MAX)
		return config_bad(name, servers, e, "servers: more than %d of them", SERVERS_MAX);
	for (size_t i = 0; i < servers->n; i++) {
		struct host_config h = {0};
		int code = read_server(&r, &servers->items[i], &h);

		if (code == 0)
			code = check_unique(&r, &servers->items[i], &h);
		if (code < 0) {
			host_config_done(&h);
			return code;
		}
		GROW(c->servers, c->n_servers, cap);
		c->servers[c->n_servers++] = h;
	}
	return 0;
}
