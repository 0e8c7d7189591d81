/*
 * libyaml's events become a tree. What could make a small file a large tree or a loop (aliases), or means something only to
 * Python (tags, several documents), is refused here. libyaml counts characters; the bytes they stand at come from a table.
 */
#include "config/doc.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reading {
	yaml_parser_t parser;
	struct doc *doc;
	const char *name;
	uint32_t *offsets; /* byte of each character; NULL: all are one byte */
	size_t n_chars;
	size_t nodes;
	struct err *e;
};

static void node_done(struct doc_node *n)
{
	for (size_t i = 0; i < n->n; i++)
		node_done(&n->items[i]);
	free(n->items);
	free(n->text);
}

void doc_done(struct doc *d)
{
	node_done(&d->root);
	*d = (struct doc){0};
}

static size_t byte_of(const struct reading *r, size_t index)
{
	size_t base = r->doc->start;

	if (!r->offsets)
		return base + index < r->doc->n ? base + index : r->doc->n;
	return index < r->n_chars ? r->offsets[index] : r->doc->n;
}

static void count_chars(struct reading *r)
{
	const struct doc *d = r->doc;
	size_t i = d->start, n = 0;

	while (i < d->n && (unsigned char)d->bytes[i] < 0x80)
		i++;
	if (i == d->n)
		return;
	r->offsets = xreallocarray(NULL, d->n, sizeof(*r->offsets));
	for (i = d->start; i < d->n; i++)
		if (((unsigned char)d->bytes[i] & 0xc0) != 0x80)
			r->offsets[n++] = (uint32_t)i;
	r->n_chars = n;
}

/* A tab where libyaml stopped, or among the blanks that its line begins with. */
static bool is_tab_to_blame(const struct doc *d, size_t at)
{
	size_t i = doc_line_begin(d, at), n = 0;

	while (i + n < d->n && d->bytes[i + n] == ' ')
		n++;
	return (at < d->n && d->bytes[at] == '\t') || (i + n < d->n && d->bytes[i + n] == '\t');
}

static int yaml_failed(struct reading *r)
{
	const yaml_mark_t *m = &r->parser.problem_mark;
	size_t line = r->parser.error == YAML_READER_ERROR ? r->parser.mark.line : m->line;
	const char *problem = r->parser.problem ? r->parser.problem : "not readable";

	if (r->parser.error == YAML_MEMORY_ERROR)
		return err_set(r->e, -ENOMEM, "%s: there's no memory to read it", r->name);
	if (r->parser.error == YAML_SCANNER_ERROR && is_tab_to_blame(r->doc, byte_of(r, m->index)))
		return err_set(r->e, -EINVAL,
			"%s line %zu: a tab stands where YAML takes only blanks", r->name,
			line + 1);
	return err_set(r->e, -EINVAL, "%s line %zu: this isn't YAML: %s%s%s", r->name, line + 1,
		r->parser.context ? r->parser.context : "", r->parser.context ? ", " : "", problem);
}

static int next_event(struct reading *r, yaml_event_t *ev)
{
	return yaml_parser_parse(&r->parser, ev) ? 0 : yaml_failed(r);
}

static int refuse(struct reading *r, const yaml_event_t *ev, const char *why)
{
	return err_set(r->e, -EINVAL, "%s line %zu: %s", r->name, ev->start_mark.line + 1, why);
}

static bool is_foreign_tag(const yaml_char_t *tag)
{
	return tag && strcmp((const char *)tag, YAML_STR_TAG) != 0 &&
	       strcmp((const char *)tag, "!") != 0;
}

static int check_node(struct reading *r, const yaml_event_t *ev, int depth)
{
	const yaml_char_t *anchor =
		ev->type == YAML_SCALAR_EVENT		? ev->data.scalar.anchor
		: ev->type == YAML_SEQUENCE_START_EVENT ? ev->data.sequence_start.anchor
		: ev->type == YAML_MAPPING_START_EVENT	? ev->data.mapping_start.anchor
							: NULL;

	if (ev->type == YAML_ALIAS_EVENT || anchor)
		return refuse(r, ev,
			"anchors and aliases (&name, *name) aren't read here; write the values out");
	if (depth > DOC_DEPTH)
		return refuse(r, ev, "more than 32 levels, one inside the other, aren't read");
	if (++r->nodes > DOC_NODES)
		return refuse(r, ev, "more than 100000 values aren't read");
	return 0;
}

static void fill_scalar(const yaml_event_t *ev, struct doc_node *n)
{
	const yaml_char_t *tag = ev->data.scalar.tag;

	n->kind = DOC_SCALAR;
	n->len = ev->data.scalar.length;
	n->text = xmalloc(n->len + 1);
	memcpy(n->text, ev->data.scalar.value, n->len);
	n->text[n->len] = '\0';
	n->is_tagged = is_foreign_tag(tag);
	n->is_plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !tag;
	n->is_block = ev->data.scalar.style == YAML_LITERAL_SCALAR_STYLE ||
		      ev->data.scalar.style == YAML_FOLDED_SCALAR_STYLE;
}

static int read_node(struct reading *r, const yaml_event_t *ev, struct doc_node *n, int depth);

/* Up to the end of a collection. An absent item's place is where libyaml says; it's never past the next one. */
static int read_items(struct reading *r, struct doc_node *n, int depth)
{
	for (;;) {
		yaml_event_t ev;
		int code = next_event(r, &ev);

		if (code < 0)
			return code;
		if (ev.type == YAML_SEQUENCE_END_EVENT || ev.type == YAML_MAPPING_END_EVENT) {
			n->end = byte_of(r, ev.end_mark.index);
			yaml_event_delete(&ev);
			return 0;
		}
		GROW(n->items, n->n, n->cap);
		n->items[n->n] = (struct doc_node){0};
		code = read_node(r, &ev, &n->items[n->n++], depth + 1);
		yaml_event_delete(&ev);
		if (code < 0)
			return code;
	}
}

static int read_node(struct reading *r, const yaml_event_t *ev, struct doc_node *n, int depth)
{
	int code = check_node(r, ev, depth);

	if (code < 0)
		return code;
	n->line = (uint32_t)ev->start_mark.line + 1;
	n->column = (uint32_t)ev->start_mark.column;
	n->begin = byte_of(r, ev->start_mark.index);
	n->end = byte_of(r, ev->end_mark.index);
	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		fill_scalar(ev, n);
		return 0;
	case YAML_SEQUENCE_START_EVENT:
		n->kind = DOC_SEQUENCE;
		n->is_tagged = ev->data.sequence_start.tag != NULL;
		n->is_flow = ev->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
		return read_items(r, n, depth);
	case YAML_MAPPING_START_EVENT:
		n->kind = DOC_MAPPING;
		n->is_tagged = ev->data.mapping_start.tag != NULL;
		n->is_flow = ev->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE;
		return read_items(r, n, depth);
	default:
		return refuse(r, ev, "this isn't a value");
	}
}

/* DOCUMENT-END, then STREAM-END: a second document is refused. */
static int read_end(struct reading *r)
{
	yaml_event_t ev;
	int code = next_event(r, &ev);

	if (code < 0)
		return code;
	if (ev.type == YAML_DOCUMENT_END_EVENT && !ev.data.document_end.implicit)
		r->doc->end = byte_of(r, ev.start_mark.index);
	yaml_event_delete(&ev);
	code = next_event(r, &ev);
	if (code < 0)
		return code;
	if (ev.type == YAML_DOCUMENT_START_EVENT)
		code = refuse(r, &ev, "a second document begins here; one file holds one");
	yaml_event_delete(&ev);
	return code;
}

static int read_document(struct reading *r)
{
	yaml_event_t ev;
	int code = next_event(r, &ev); /* STREAM-START */

	if (code < 0)
		return code;
	yaml_event_delete(&ev);
	code = next_event(r, &ev);
	if (code < 0)
		return code;
	r->doc->is_empty = ev.type == YAML_STREAM_END_EVENT;
	yaml_event_delete(&ev);
	if (r->doc->is_empty)
		return 0;
	code = next_event(r, &ev);
	if (code < 0)
		return code;
	code = read_node(r, &ev, &r->doc->root, 0);
	yaml_event_delete(&ev);
	return code < 0 ? code : read_end(r);
}

static int check_bytes(const char *bytes, size_t n, const char *name, struct err *e)
{
	size_t valid, line = 1;

	if (n > DOC_BYTES)
		return err_set(e, -EFBIG, "%s is larger than 1 MiB, which no such file is", name);
	valid = utf8_valid_len(bytes, n);
	if (valid == n)
		return 0;
	for (size_t i = 0; i < valid; i++)
		line += bytes[i] == '\n';
	return err_set(
		e, -EINVAL, "%s line %zu: this isn't UTF-8; save the file as UTF-8", name, line);
}

int doc_parse(const char *bytes, size_t n, const char *name, struct doc *ret, struct err *e)
{
	struct doc doc = {.bytes = bytes, .n = n, .end = n};
	struct reading r = {.doc = &doc, .name = name, .e = e};
	int code = check_bytes(bytes, n, name, e);

	if (code < 0)
		return code;
	/* Taken off before libyaml sees it: it would shift the first line's columns. */
	doc.start = n >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
	if (!yaml_parser_initialize(&r.parser))
		return err_set(e, -ENOMEM, "%s: there's no memory to read it", name);
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(
		&r.parser, (const unsigned char *)bytes + doc.start, n - doc.start);
	count_chars(&r);
	code = read_document(&r);
	yaml_parser_delete(&r.parser);
	free(r.offsets);
	if (code < 0)
		doc_done(&doc);
	else
		*ret = doc;
	return code;
}

bool doc_text_is(const struct doc_node *n, const char *text)
{
	return n->kind == DOC_SCALAR && n->len == strlen(text) &&
	       memcmp(n->text, text, n->len) == 0;
}

const struct doc_node *doc_get(const struct doc_node *mapping, const char *key)
{
	if (mapping->kind != DOC_MAPPING)
		return NULL;
	for (size_t i = 0; i + 1 < mapping->n; i += 2)
		if (doc_text_is(&mapping->items[i], key))
			return &mapping->items[i + 1];
	return NULL;
}

bool doc_equal(const struct doc_node *a, const struct doc_node *b)
{
	if (a->kind != b->kind || a->is_tagged != b->is_tagged || a->is_plain != b->is_plain ||
		a->n != b->n || a->len != b->len)
		return false;
	if (a->kind == DOC_SCALAR)
		return memcmp(a->text, b->text, a->len) == 0;
	for (size_t i = 0; i < a->n; i++)
		if (!doc_equal(&a->items[i], &b->items[i]))
			return false;
	return true;
}

static bool is_break(char c)
{
	return c == '\n' || c == '\r';
}

size_t doc_line_begin(const struct doc *d, size_t at)
{
	while (at > d->start && !is_break(d->bytes[at - 1]))
		at--;
	return at < d->start ? d->start : at;
}

size_t doc_line_end(const struct doc *d, size_t at)
{
	while (at < d->n && !is_break(d->bytes[at]))
		at++;
	if (at + 1 < d->n && d->bytes[at] == '\r' && d->bytes[at + 1] == '\n')
		return at + 2;
	return at < d->n ? at + 1 : d->n;
}

size_t doc_lines_end(const struct doc *d, const struct doc_node *n)
{
	if (n->kind == DOC_SCALAR && n->is_block && n->end > d->start &&
		is_break(d->bytes[n->end - 1]))
		return n->end;
	if (n->kind != DOC_SCALAR && !n->is_flow && n->n > 0)
		return doc_lines_end(d, &n->items[n->n - 1]);
	return doc_line_end(d, n->end);
}
