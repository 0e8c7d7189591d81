/* What the files of this room share. Nobody else includes it. */
#pragma once

#include "config/config.h"
#include "config/doc.h"

/* "~" and "~/..." become the user's home; anything else is copied. The caller frees. */
char *home_expand(const char *path);
/* The last part of a path: what sentences call the file. */
const char *config_file_name(const char *path);

/* -ERANGE: not 0..1023. A duplicate collapses. */
int host_config_add_gpu(struct host_config *h, int64_t index);
bool host_config_same(const struct host_config *a, const struct host_config *b);

/* The servers of an already checked root. Warnings go to c->warnings. */
int config_read_servers(
	const struct doc_node *servers, const char *name, struct config *c, struct err *e);
/* "<name> line N: <sentence>\n" behind c->warnings, bounded. */
void config_warn(struct config *c, const char *name, const struct doc_node *n, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
int config_bad(const char *name, const struct doc_node *n, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A mapping of our own: block or flow, its keys text, none twice, none unbearably many. `what` as in "basic:". */
int config_check_mapping(
	const struct doc_node *n, const char *what, const char *name, struct err *e);
/* An unknown key, with the nearest of `known`. */
void config_warn_unknown(struct config *c, const char *name, const struct doc_node *key,
	const char *where, const char *const *known, size_t n_known);

/*
 * Edits of a file's bytes: pure. They read it as config_parse does, splice, read the result again and compare it with what
 * was meant. *ret is untouched on failure. `name` as in doc_parse.
 */
struct edit {
	const struct host_config *add; /* n_add hosts behind the last */
	size_t n_add;
	const char *remove; /* or: the server of this nickname */
	const char *section, *key, *value; /* or: a key of a section */
};
int edit_apply(const struct edit *edit, const char *bytes, size_t n, const char *name,
	struct buf *ret, struct err *e);
