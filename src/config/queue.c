/*
 * config.yml and queue.yml put together: settings key by key, the servers of the one or the other, and the nodes that
 * follow. queue_keys.c says what a key may hold. Pure but for queue_config_load.
 */
#include "config/queue_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "config/scalar.h"

#include <stdlib.h>
#include <string.h>

static const char *const top_keys[] = {"servers", "nodes", "queue", "remote"};

struct reading {
	struct queue_config *c;
	const char *name; /* of the file */
	bool is_nvidb;
	bool has_include_local; /* something was said about it */
	struct err *e;
};

void queue_config_done(struct queue_config *c)
{
	if (!c)
		return;
	config_done(&c->config);
	queue_settings_done(&c->settings);
	queue_remote_done(&c->remote);
	free(c->nodes);
	free(c->path);
	buf_done(&c->warnings);
	*c = (struct queue_config){0};
}

static bool is_section(const char *section, const struct queue_key *k)
{
	return section && k->section ? strcmp(section, k->section) == 0 : section == k->section;
}

static void warn_unknown(struct reading *r, const char *section, const struct doc_node *key)
{
	CLEANUP_FREE char *where = xasprintf(" in %s:", section ? section : "queue");
	CLEANUP_FREE const char **names = xcalloc(queue_keys_n + 3, sizeof(*names));
	size_t n = 0;

	for (size_t i = 0; i < queue_keys_n; i++)
		if (is_section(section, &queue_keys[i]))
			names[n++] = queue_keys[i].name;
	if (section && strcmp(section, "notify") == 0)
		names[n++] = "webhook";
	if (!section) {
		names[n++] = "notify";
		names[n++] = "backup";
		names[n++] = "remote";
	}
	config_warn_unknown(&r->c->warnings, r->name, key, where, names, n);
}

static int read_pair(struct reading *r, const char *section, const struct doc_node *key);

/* notify.webhook is below notify. */
static bool is_below(const char *section, const char *other)
{
	size_t n = strlen(section);

	return other && strncmp(other, section, n) == 0 && other[n] == '.';
}

static void reset_section(struct reading *r, const char *section)
{
	for (size_t i = 0; i < queue_keys_n; i++)
		if (is_section(section, &queue_keys[i]) || is_below(section, queue_keys[i].section))
			queue_key_reset(&queue_keys[i], r->is_nvidb, &r->c->settings);
}

/* notify:, backup:. A bool is {enabled: it}. */
static int read_section(struct reading *r, const char *section, const struct doc_node *n)
{
	static const struct doc_node enabled = {
		.kind = DOC_SCALAR, .text = (char *)"enabled", .len = 7};
	CLEANUP_FREE char *what = xasprintf("%s:", section);
	bool ignored;
	int code;

	if (scalar_is_null(n) || strcmp(section, "backup") == 0)
		reset_section(r, section);
	if (scalar_is_null(n))
		return 0;
	if (!n->is_tagged && scalar_bool(n, &ignored) == 0)
		return queue_key_read(queue_key_find(section, &enabled), r->name, n, r->is_nvidb,
			&r->c->settings, r->e);
	if (n->kind != DOC_MAPPING)
		return config_bad_value(r->name, section, n,
			"write true, false, or its keys on lines of their own", r->e);
	code = config_check_mapping(n, what, r->name, r->e);
	for (size_t i = 0; code == 0 && i < n->n; i += 2)
		code = read_pair(r, section, &n->items[i]);
	return code;
}

/* webhook:, below notify:. Text is {url: it}. A later file's replaces all of it: a header belongs to its address. */
static int read_webhook(struct reading *r, const struct doc_node *n)
{
	static const char section[] = "notify.webhook";
	static const struct doc_node url = {.kind = DOC_SCALAR, .text = (char *)"url", .len = 3};
	int code;

	reset_section(r, section);
	if (scalar_is_null(n))
		return 0;
	if (n->kind != DOC_MAPPING)
		return queue_key_read(queue_key_find(section, &url), r->name, n, r->is_nvidb,
			&r->c->settings, r->e);
	code = config_check_mapping(n, "notify.webhook:", r->name, r->e);
	for (size_t i = 0; code == 0 && i < n->n; i += 2)
		code = read_pair(r, section, &n->items[i]);
	return code;
}

static int read_pair(struct reading *r, const char *section, const struct doc_node *key)
{
	const struct queue_key *k = queue_key_find(section, key);
	const struct doc_node *value = key + 1;

	if (section && strcmp(section, "notify") == 0 && doc_text_is(key, "webhook"))
		return read_webhook(r, value);

	if (!section && (doc_text_is(key, "notify") || doc_text_is(key, "backup")))
		return read_section(r, key->text, value);
	if (!section && doc_text_is(key, "remote"))
		return queue_remote_read(
			r->name, value, r->is_nvidb, &r->c->remote, &r->c->warnings, r->e);
	if (!k) {
		warn_unknown(r, section, key);
		return 0;
	}
	if (!section && strcmp(k->name, "include_local") == 0)
		r->has_include_local = !scalar_is_null(value);
	return queue_key_read(k, r->name, value, r->is_nvidb, &r->c->settings, r->e);
}

static int read_queue(struct reading *r, const struct doc_node *n)
{
	int code;

	if (!n || scalar_is_null(n))
		return 0;
	code = config_check_mapping(n, "queue:", r->name, r->e);
	for (size_t i = 0; code == 0 && i < n->n; i += 2)
		code = read_pair(r, NULL, &n->items[i]);
	return code;
}

/* In place of config.yml's. Their warnings are queue.yml's. */
static int read_servers(struct reading *r, const struct doc_node *n)
{
	struct config own = {0};
	struct config *c = &r->c->config;
	int code = config_read_servers(n, r->name, &own, r->e);

	buf_put(&r->c->warnings, buf_str(&own.warnings), own.warnings.len);
	if (code < 0) {
		config_done(&own);
		return code;
	}
	for (size_t i = 0; i < c->n_servers; i++)
		host_config_done(&c->servers[i]);
	free(c->servers);
	c->servers = TAKE_PTR(own.servers);
	c->n_servers = own.n_servers;
	r->c->has_own_servers = true;
	own.n_servers = 0;
	config_done(&own);
	return 0;
}

/* A setting that stands one level too high would be lost. */
static void warn_unknown_top(struct reading *r, const struct doc_node *key)
{
	CLEANUP(buf_done) struct buf q = {0};

	if (queue_key_find(NULL, key) || doc_text_is(key, "notify") || doc_text_is(key, "backup"))
		config_warn(&r->c->warnings, r->name, key,
			"key %s is ignored here; it belongs below queue:", config_quoted(&q, key));
	else
		config_warn_unknown(
			&r->c->warnings, r->name, key, "", top_keys, ARRAY_LEN(top_keys));
}

static int check_twice(
	struct reading *r, const struct doc_node *a, const struct doc_node *b, const char *names)
{
	const struct doc_node *later = a && b && a->line > b->line ? a : b;

	return a && b ? config_bad(r->name, later, r->e, "%s; keep one", names) : 0;
}

static int read_top(struct reading *r, const struct doc_node *key)
{
	const struct doc_node *value = key + 1;

	if (doc_text_is(key, "queue"))
		return read_queue(r, value);
	if (doc_text_is(key, "remote"))
		return queue_remote_read(
			r->name, value, r->is_nvidb, &r->c->remote, &r->c->warnings, r->e);
	if (!doc_text_is(key, "servers") && !doc_text_is(key, "nodes")) {
		warn_unknown_top(r, key);
		return 0;
	}
	return scalar_is_null(value) ? 0 : read_servers(r, value);
}

static int read_queue_yml(struct reading *r, const struct doc *doc)
{
	const struct doc_node *root = &doc->root, *queue;
	int code;

	if (doc->is_empty || scalar_is_null(root))
		return 0;
	code = config_check_mapping(root, "the file", r->name, r->e);
	if (code < 0)
		return code;
	code = check_twice(r, doc_get(root, "servers"), doc_get(root, "nodes"),
		"servers: and nodes: mean the same");
	queue = doc_get(root, "queue");
	if (code == 0 && queue)
		code = check_twice(r, doc_get(root, "remote"), doc_get(queue, "remote"),
			"remote: stands at the top and in queue:");
	for (size_t i = 0; code == 0 && i < root->n; i += 2)
		code = read_top(r, &root->items[i]);
	return code;
}

/* Jobs belong to a node's name: this machine's must be nobody else's. */
static int make_nodes(struct reading *r)
{
	struct queue_config *c = r->c;
	const char *local = c->settings.local_node_name;
	CLEANUP(buf_done) struct buf q = {0};

	if (!r->has_include_local)
		c->settings.include_local = c->config.n_servers == 0;
	c->nodes = xcalloc(c->config.n_servers + 1, sizeof(*c->nodes));
	if (c->settings.include_local)
		c->nodes[c->n_nodes++] = (struct queue_node){.name = local};
	for (size_t i = 0; i < c->config.n_servers; i++) {
		const struct host_config *h = &c->config.servers[i];

		if (c->settings.include_local && strcmp(h->nickname, local) == 0) {
			text_put_repr(&q, local, strlen(local));
			return err_set(r->e, -EINVAL,
				"%s line %u: nickname: %s is this machine's name as a node; change it, or local_node_name:",
				r->name, h->line, buf_str(&q));
		}
		c->nodes[c->n_nodes++] = (struct queue_node){.host = h, .name = h->nickname};
	}
	return 0;
}

static int parse_config_yml(struct reading *r, const char *bytes, size_t n, const char *path)
{
	CLEANUP(doc_done) struct doc doc = {0};
	int code;

	r->name = config_file_name(path);
	code = doc_parse(bytes, n, r->name, &doc, r->e);
	if (code == 0)
		code = config_read(&doc, path, &r->c->config, r->e);
	return code < 0 ? code : read_queue(r, doc_get(&doc.root, "queue"));
}

static int parse_queue_yml(struct reading *r, const char *bytes, size_t n, const char *path)
{
	CLEANUP(doc_done) struct doc doc = {0};
	int code;

	r->name = config_file_name(path);
	code = doc_parse(bytes, n, r->name, &doc, r->e);
	return code < 0 ? code : read_queue_yml(r, &doc);
}

int queue_config_parse(const char *config_yml, size_t n_config, const char *config_path,
	const char *queue_yml, size_t n_queue, const char *queue_path, bool is_nvidb,
	struct queue_config *ret, struct err *e)
{
	struct queue_config c = {.has_queue_yml = queue_yml != NULL};
	struct reading r = {.c = &c, .is_nvidb = is_nvidb, .e = e};
	int code;

	queue_settings_defaults(&c.settings, is_nvidb);
	code = parse_config_yml(
		&r, config_yml ? config_yml : "", config_yml ? n_config : 0, config_path);
	c.config.is_missing = !config_yml;
	c.path = xstrdup(queue_path);
	if (code == 0 && queue_yml)
		code = parse_queue_yml(&r, queue_yml, n_queue, queue_path);
	queue_settings_settle(&c.settings);
	r.name = config_file_name(c.has_own_servers ? queue_path : config_path);
	if (code == 0)
		code = make_nodes(&r);
	if (code < 0)
		queue_config_done(&c);
	else
		*ret = c;
	return code;
}

static const char *bytes_of(const struct config_file *f)
{
	return f->is_missing ? NULL : buf_str(&f->bytes);
}

int queue_config_load(const char *home, const char *queue_path, bool is_nvidb,
	struct queue_config *ret, struct err *e)
{
	CLEANUP_FREE char *config_path = xasprintf("%s/config.yml", home);
	CLEANUP_FREE char *usual = xasprintf("%s/queue.yml", home);
	CLEANUP(config_file_done) struct config_file f = {0}, q = {0};
	const char *path = queue_path ? queue_path : usual;
	struct queue_config c = {0};
	int r = config_file_read(config_path, &f, e);

	if (r == 0)
		r = config_file_read(path, &q, e);
	if (r == 0 && q.is_missing && queue_path)
		r = err_set(e, -ENOENT,
			"there's no file %s, which was named as the queue's configuration", path);
	if (r == 0)
		r = queue_config_parse(bytes_of(&f), f.bytes.len, config_path, bytes_of(&q),
			q.bytes.len, path, is_nvidb, &c, e);
	if (r < 0)
		return r;
	if (c.has_own_servers)
		config_file_warn_of_mode(&q, path, &c.config, &c.warnings);
	else
		config_file_warn_of_mode(&f, config_path, &c.config, &c.config.warnings);
	*ret = c;
	return 0;
}

int queue_config_find(const struct queue_config *c, const char *name, size_t *ret, struct err *e)
{
	CLEANUP_FREE const char **names = xcalloc(c->n_nodes + 1, sizeof(*names));

	for (size_t i = 0; i < c->n_nodes; i++)
		names[i] = c->nodes[i].name;
	return config_find_name(
		names, c->n_nodes, "node", "the queue's configuration", name, ret, e);
}
