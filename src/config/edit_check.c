/*
 * Whether an edit came out as it was meant: the new bytes are read as any reader would, and every value but the changed one
 * must be what it was. A splice at a wrong place can't get through here, whatever form the file has. Pure.
 */
#include "config/edit_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "config/scalar.h"

#include <stdlib.h>
#include <string.h>

/* The next pair whose key isn't `but`; mapping->n: none. */
static size_t next_other(const struct doc_node *map, size_t i, const char *but)
{
	while (i < map->n && doc_text_is(&map->items[i], but))
		i += 2;
	return i;
}

/* The same pairs in the same order, that of the key `but` aside. An absent mapping has none. */
static bool same_but(const struct doc_node *a, const struct doc_node *b, const char *but)
{
	size_t i = next_other(a, 0, but), k = next_other(b, 0, but);

	for (; i < a->n && k < b->n; i = next_other(a, i + 2, but), k = next_other(b, k + 2, but))
		if (!doc_equal(&a->items[i], &b->items[k]) ||
			!doc_equal(&a->items[i + 1], &b->items[k + 1]))
			return false;
	return i >= a->n && k >= b->n;
}

static size_t count(const struct doc_node *list)
{
	return list && list->kind == DOC_SEQUENCE ? list->n : 0;
}

static bool is_added(const struct edit *edit, const struct doc_node *before,
	const struct doc_node *after, const struct config *c)
{
	size_t n = count(before);

	if (count(after) != n + edit->n_add || c->n_servers != n + edit->n_add)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!doc_equal(&before->items[i], &after->items[i]))
			return false;
	for (size_t i = 0; i < edit->n_add; i++) {
		struct host_config wanted = edit->add[i];
		CLEANUP_FREE char *expanded = NULL;

		if (wanted.identityfile)
			expanded = home_expand(wanted.identityfile);
		wanted.identityfile = expanded;
		if (!host_config_same(&wanted, &c->servers[n + i]))
			return false;
	}
	return true;
}

static bool is_removed(const struct doc_node *before, const struct doc_node *after, size_t removed)
{
	if (!after || count(after) + 1 != count(before) ||
		(count(after) == 0 && !scalar_is_null(after)))
		return false;
	for (size_t i = 0; i < count(after); i++)
		if (!doc_equal(&before->items[i + (i >= removed)], &after->items[i]))
			return false;
	return true;
}

static bool is_set(
	const struct edit *edit, const struct doc_node *before, const struct doc_node *after)
{
	static const struct doc_node none = {.kind = DOC_MAPPING};
	CLEANUP(doc_done) struct doc value = {0};
	const struct doc_node *got = after ? doc_get(after, edit->key) : NULL;

	if (!got || doc_parse(edit->value, strlen(edit->value), "value", &value, NULL) < 0)
		return false;
	return value.root.kind == DOC_SCALAR && !value.is_empty && doc_equal(&value.root, got) &&
	       same_but(before && before->kind == DOC_MAPPING ? before : &none, after, edit->key);
}

bool edit_is_meant(const struct edit *edit, const struct config *old_config, const struct doc *old,
	size_t removed, const char *bytes, size_t n, const char *name)
{
	const char *section = edit->section ? edit->section : "servers";
	const struct doc_node *before = doc_get(&old->root, section), *after;
	CLEANUP(config_done) struct config c = {0};
	CLEANUP(doc_done) struct doc doc = {0};

	if (config_parse(bytes, n, name, &c, NULL) < 0 || doc_parse(bytes, n, name, &doc, NULL) < 0)
		return false;
	if (!same_but(&old->root, &doc.root, section))
		return false;
	after = doc_get(&doc.root, section);
	if (edit->remove)
		return is_removed(before, after, removed);
	if (edit->section)
		return is_set(edit, before, after) && c.n_servers == old_config->n_servers;
	return is_added(edit, before, after, &c);
}
