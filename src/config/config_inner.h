/* What the files of this room share. Nobody else includes it. */
#pragma once

#include "base/sys.h"
#include "config/config.h"
#include "config/doc.h"

/* "~" and "~/..." become the user's home; anything else is copied. The caller frees. */
char *home_expand(const char *path);
/* The last part of a path: what sentences call the file. */
const char *config_file_name(const char *path);

/* -ERANGE: not 0..1023. A duplicate collapses. */
int host_config_add_gpu(struct host_config *h, int64_t index);
bool host_config_same(const struct host_config *a, const struct host_config *b);

/* config_parse of a document that was read already; doc.root's sections may be looked at again. */
int config_read(const struct doc *doc, const char *path, struct config *ret, struct err *e);
/* The servers of an already checked root. Warnings go to c->warnings. */
int config_read_servers(
	const struct doc_node *servers, const char *name, struct config *c, struct err *e);
/* "<name> line N: <sentence>\n" behind the warnings, bounded. */
void config_warn(struct buf *warnings, const char *name, const struct doc_node *n, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));
int config_bad(const char *name, const struct doc_node *n, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A scalar in quotes for a sentence, cut at 80 bytes. */
const char *config_quoted(struct buf *q, const struct doc_node *n);
/* "<key>: <the value> won't do; <right>"; a list or a mapping isn't repeated. */
int config_bad_value(const char *name, const char *key, const struct doc_node *n, const char *right,
	struct err *e);
/* A mapping of our own: block or flow, its keys text, none twice, none unbearably many. `what` as in "basic:". */
int config_check_mapping(
	const struct doc_node *n, const char *what, const char *name, struct err *e);
/* An unknown key, with the nearest of `known`. `where` as in " in basic:". */
void config_warn_unknown(struct buf *warnings, const char *name, const struct doc_node *key,
	const char *where, const char *const *known, size_t n_known);

/* Values. None changes *ret on failure; all but config_bool's take nothing for "". -EINVAL: one sentence, with the key. */
int config_bool(const char *name, const char *key, const struct doc_node *n, bool *ret,
	struct err *e); /* *ret stays when there's none */
/* Text, borrowed from n. */
int config_text(const char *name, const char *key, const struct doc_node *n, const char **ret,
	struct err *e);
/* The same where a number is wanted: what YAML takes for a whole number is written out in decimal, into space. */
int config_number_text(const char *name, const char *key, const struct doc_node *n, char space[24],
	const char **ret, struct err *e);
/* No control byte, no line break of any kind, nothing that isn't a character: it's shown on terminals and written on one line. */
bool config_is_printable(const char *s);

/* One of n names: exact, then unique ignoring case, then unique part of it. "there's no <what> 'x'; <whose> has a, b". */
int config_find_name(const char *const *names, size_t n, const char *what, const char *whose,
	const char *name, size_t *ret, struct err *e);

/* A file as it lies on the disk. */
struct config_file {
	char *path; /* of the file itself, links resolved */
	bool is_missing;
	struct sys_stat st;
	struct buf bytes; /* at most DOC_BYTES */
};
/* No such file is no error. */
int config_file_read(const char *path, struct config_file *f, struct err *e);
/* What it held is wiped: it may have been a password. */
void config_file_done(struct config_file *f);
/* A warning when others may read a password of these servers. `path` as it's shown. */
void config_file_warn_of_mode(const struct config_file *f, const char *path,
	const struct config *servers, struct buf *warnings);

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
