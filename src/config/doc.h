/*
 * A YAML document as a tree whose nodes know their bytes: what the reader of config.yml walks and what its edits cut at.
 * One document, UTF-8, at most DOC_BYTES, DOC_DEPTH deep, no anchors and no aliases. doc.c alone includes yaml.h.
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DOC_BYTES = 1 << 20, DOC_DEPTH = 32, DOC_NODES = 100000 };
enum doc_kind { DOC_SCALAR, DOC_SEQUENCE, DOC_MAPPING };

struct doc_node {
	enum doc_kind kind;
	bool is_plain; /* scalar: neither quoted, nor block, nor tagged !!str: what YAML may take for a number or a bool */
	bool is_block; /* scalar: | or > */
	bool is_flow; /* [a, b], {a: b} */
	bool is_tagged; /* carries a tag other than !!str, which nothing here reads */
	char *text; /* scalar: its value, NUL after len bytes; may hold NULs */
	size_t len;
	uint32_t line, column; /* of its begin; line from 1, column in characters from 0 */
	/*
	 * Its bytes. Exact for flow collections and scalars, but a block scalar ends at the line after it. A block
	 * collection's end is the next token's begin: doc_lines_end instead. An absent value is empty, behind its ':' or '-'.
	 */
	size_t begin, end;
	struct doc_node *items; /* mapping: key, value, key, value, ... */
	size_t n, cap;
};

struct doc {
	const char *bytes; /* borrowed */
	size_t n;
	size_t start; /* 3 behind a byte order mark, else 0 */
	size_t end; /* where the document ends: at its "..." line, else n */
	bool is_empty; /* nothing but comments */
	struct doc_node root;
};

/* -EINVAL with "<name> line N: ..."; `name` is the file's name in sentences. */
int doc_parse(const char *bytes, size_t n, const char *name, struct doc *ret, struct err *e);
void doc_done(struct doc *d);

/* The value of a key, or NULL. The first when it's there twice. */
const struct doc_node *doc_get(const struct doc_node *mapping, const char *key);
/* The same kind, value and quoting, and so for everything below; places don't count. */
bool doc_equal(const struct doc_node *a, const struct doc_node *b);
bool doc_text_is(const struct doc_node *n, const char *text);

/* Where the line begins that holds the byte `at`; never inside a byte order mark. */
size_t doc_line_begin(const struct doc *d, size_t at);
/* Behind the end of that line. */
size_t doc_line_end(const struct doc *d, size_t at);
/* Behind the last line that holds any of the node. */
size_t doc_lines_end(const struct doc *d, const struct doc_node *n);
