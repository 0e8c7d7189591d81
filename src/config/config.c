/*
 * The schema of config.yml: sections, their keys and defaults. Strict where a wrong value would change what the program
 * does; view: alone falls back, for the program writes it itself and may be older than what wrote it. Pure.
 */
#include "config/config_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "config/scalar.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 256, WARNINGS_MAX = 64 * 1024 };

static const char *const sections[] = {"basic", "view", "servers", "queue"};
static const char *const basic_keys[] = {"compact", "remote"};

/* The view's keys; words NULL: a bool. Their defaults and use are the screens'. */
static const struct view_key {
	const char *name;
	const char *words[5];
} view_keys[] = {
	{"mode", {"nodes", "unified"}},
	{"detailed", {NULL}},
	{"sort", {"node", "available", "utilization"}},
	{"filter", {"all", "available", "busy", "errors"}},
	{"processes", {NULL}},
	{"trends", {NULL}},
	{"group_by_node", {NULL}},
	{"hide_unsupported", {NULL}},
	{"mouse", {NULL}},
	{"theme", {"classic", "muted", "mono", "light"}},
};

void config_warn(
	struct buf *warnings, const char *name, const struct doc_node *n, const char *fmt, ...)
{
	va_list ap;

	if (warnings->len > WARNINGS_MAX)
		return;
	buf_printf(warnings, "%s line %u: ", name, n->line);
	va_start(ap, fmt);
	buf_vprintf(warnings, fmt, ap);
	va_end(ap);
	buf_putc(warnings, '\n');
}

int config_bad(const char *name, const struct doc_node *n, struct err *e, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf text = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	return err_set(e, -EINVAL, "%s line %u: %s", name, n->line, buf_str(&text));
}

static int check_key(
	const struct doc_node *n, size_t i, const char *what, const char *name, struct err *e)
{
	const struct doc_node *key = &n->items[i];
	CLEANUP(buf_done) struct buf q = {0};

	if (key->kind != DOC_SCALAR || key->is_tagged)
		return config_bad(name, key, e, "%s has a key that isn't a word", what);
	for (size_t k = 0; k < i; k += 2) {
		const struct doc_node *other = &n->items[k];

		if (other->len == key->len && memcmp(other->text, key->text, key->len) == 0)
			return config_bad(name, key, e,
				"%s has the key %s twice, here and in line %u; keep one", what,
				config_quoted(&q, key), other->line);
	}
	return 0;
}

int config_check_mapping(
	const struct doc_node *n, const char *what, const char *name, struct err *e)
{
	if (n->kind != DOC_MAPPING || n->is_tagged)
		return config_bad(name, n, e, "%s must hold lines \"key: value\"", what);
	if (n->n > 2 * KEYS_MAX)
		return config_bad(name, n, e, "%s has more than %d keys", what, KEYS_MAX);
	for (size_t i = 0; i < n->n; i += 2) {
		int r = check_key(n, i, what, name, e);

		if (r < 0)
			return r;
	}
	return 0;
}

void config_warn_unknown(struct buf *warnings, const char *name, const struct doc_node *key,
	const char *where, const char *const *known, size_t n_known)
{
	CLEANUP(buf_done) struct buf q = {0};
	const char *near = text_closest(key->text, known, n_known);

	config_warn(warnings, name, key, "unknown key %s%s is ignored%s%s%s",
		config_quoted(&q, key), where, near ? "; did you mean " : "", near ? near : "",
		near ? "?" : "");
}

static int read_basic(
	const struct doc_node *basic, const char *name, struct config *c, struct err *e)
{
	int r = config_check_mapping(basic, "basic:", name, e);

	for (size_t i = 0; r == 0 && i < basic->n; i += 2) {
		const struct doc_node *key = &basic->items[i], *value = key + 1;

		if (doc_text_is(key, "compact"))
			r = config_bool(name, "compact", value, &c->compact, e);
		else if (doc_text_is(key, "remote"))
			r = config_bool(name, "remote", value, &c->remote, e);
		else
			config_warn_unknown(&c->warnings, name, key, " in basic:", basic_keys,
				ARRAY_LEN(basic_keys));
	}
	return r;
}

/* The value as we spell it; NULL: it isn't one of those the key takes. */
static const char *view_value(const struct view_key *k, const struct doc_node *value)
{
	bool is_on;

	if (value->is_tagged)
		return NULL;
	if (!k->words[0])
		return scalar_bool(value, &is_on) ? NULL : is_on ? "true" : "false";
	for (size_t i = 0; k->words[i]; i++)
		if (doc_text_is(value, k->words[i]))
			return k->words[i];
	return NULL;
}

static void check_view_key(const struct doc_node *key, const char *name, struct config *c)
{
	const char *names[ARRAY_LEN(view_keys)];
	CLEANUP(buf_done) struct buf right = {0};
	const char *value;

	_Static_assert(ARRAY_LEN(view_keys) <= CONFIG_VIEW_MAX, "room for each key once");
	for (size_t i = 0; i < ARRAY_LEN(view_keys); i++) {
		const struct view_key *k = &view_keys[i];

		names[i] = k->name;
		if (!doc_text_is(key, k->name))
			continue;
		if (scalar_is_null(key + 1))
			return;
		value = view_value(k, key + 1);
		if (value) {
			c->view[c->n_view++] = (struct config_view){k->name, value};
			return;
		}
		for (size_t w = 0; k->words[w]; w++)
			buf_printf(&right, "%s%s", w ? ", " : "", k->words[w]);
		config_warn(&c->warnings, name, key, "%s in view: takes %s; its default is used",
			k->name, right.len ? right.data : "true or false");
		return;
	}
	config_warn_unknown(&c->warnings, name, key, " in view:", names, ARRAY_LEN(names));
}

static int read_view(const struct doc_node *view, const char *name, struct config *c, struct err *e)
{
	int r = config_check_mapping(view, "view:", name, e);

	for (size_t i = 0; r == 0 && i < view->n; i += 2)
		check_view_key(&view->items[i], name, c);
	return r;
}

static int read_section(
	const struct doc_node *key, const char *name, struct config *c, struct err *e)
{
	const struct doc_node *value = key + 1;

	if (scalar_is_null(value) &&
		(doc_text_is(key, "basic") || doc_text_is(key, "view") ||
			doc_text_is(key, "servers") || doc_text_is(key, "queue")))
		return 0;
	if (doc_text_is(key, "basic"))
		return read_basic(value, name, c, e);
	if (doc_text_is(key, "view"))
		return read_view(value, name, c, e);
	if (doc_text_is(key, "servers"))
		return config_read_servers(value, name, c, e);
	if (doc_text_is(key, "queue"))
		return config_check_mapping(value, "queue:", name, e);
	config_warn_unknown(&c->warnings, name, key, "", sections, ARRAY_LEN(sections));
	return 0;
}

int config_read(const struct doc *doc, const char *path, struct config *ret, struct err *e)
{
	const char *name = config_file_name(path);
	struct config c = {.path = xstrdup(path)};
	int r = 0;

	if (!doc->is_empty && !scalar_is_null(&doc->root)) {
		r = config_check_mapping(&doc->root, "the file", name, e);
		for (size_t i = 0; r == 0 && i < doc->root.n; i += 2)
			r = read_section(&doc->root.items[i], name, &c, e);
	}
	if (r < 0)
		config_done(&c);
	else
		*ret = c;
	return r;
}

int config_parse(const char *bytes, size_t n, const char *path, struct config *ret, struct err *e)
{
	CLEANUP(doc_done) struct doc doc = {0};
	int r = doc_parse(bytes, n, config_file_name(path), &doc, e);

	return r < 0 ? r : config_read(&doc, path, ret, e);
}

void config_done(struct config *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_servers; i++)
		host_config_done(&c->servers[i]);
	free(c->servers);
	free(c->path);
	buf_done(&c->warnings);
	*c = (struct config){0};
}

int config_find(const struct config *c, const char *name, size_t *ret, struct err *e)
{
	CLEANUP_FREE const char **names = xcalloc(c->n_servers + 1, sizeof(*names));

	for (size_t i = 0; i < c->n_servers; i++)
		names[i] = c->servers[i].nickname;
	return config_find_name(names, c->n_servers, "server", "config.yml", name, ret, e);
}
