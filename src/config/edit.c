/*
 * Edits by splicing: a stretch of the file's own bytes is cut or lines are put between them, and nothing else is touched.
 * Where to cut comes from the nodes' places (doc.h). The result is believed only after it was read again and found to be
 * what was meant (edit_check.c). Forms in which lines can't be put (flow style) are refused with the lines to write by hand.
 */
#include "config/edit_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "config/scalar.h"

#include <string.h>

/* What is done to the bytes: `cut` of them at `at` give way to `text`. A second one lies behind the first. */
struct splice {
	size_t at, cut;
	struct buf text;
};

struct work {
	const struct edit *edit;
	const struct doc *doc;
	const char *name, *eol;
	struct splice first, second;
	struct err *e;
};

static size_t leading_blanks(const struct doc *d, size_t line)
{
	size_t n = 0;

	while (line + n < d->n && (d->bytes[line + n] == ' ' || d->bytes[line + n] == '\t'))
		n++;
	return n;
}

static bool is_blank_line(const struct doc *d, size_t line)
{
	size_t at = line + leading_blanks(d, line);

	return at < d->n && (d->bytes[at] == '\n' || d->bytes[at] == '\r');
}

static bool is_comment_line(const struct doc *d, size_t line)
{
	size_t at = line + leading_blanks(d, line);

	return at < d->n && d->bytes[at] == '#';
}

/* Behind the comments that follow at once and stand deeper than `column`: they belong to what is above. */
static size_t skip_own_comments(const struct doc *d, size_t line, size_t column)
{
	while (line < d->end && is_comment_line(d, line) && leading_blanks(d, line) > column)
		line = doc_line_end(d, line);
	return line;
}

static size_t skip_blank_lines(const struct doc *d, size_t line)
{
	while (line < d->end && is_blank_line(d, line))
		line = doc_line_end(d, line);
	return line;
}

static size_t line_before(const struct doc *d, size_t line)
{
	size_t at = line;

	if (at > d->start && d->bytes[at - 1] == '\n')
		at--;
	if (at > d->start && d->bytes[at - 1] == '\r')
		at--;
	return doc_line_begin(d, at);
}

/* The file's way to end a line: its first one's. */
static const char *eol_of(const struct doc *d)
{
	size_t end = doc_line_end(d, d->start);

	if (end - d->start >= 2 && memcmp(d->bytes + end - 2, "\r\n", 2) == 0)
		return "\r\n";
	return end > d->start && d->bytes[end - 1] == '\r' ? "\r" : "\n";
}

/* Lines put at `at` begin a line, also behind a last line without an end. */
static void open_line(const struct work *w, size_t at, struct buf *b)
{
	if (at > w->doc->start && w->doc->bytes[at - 1] != '\n' && w->doc->bytes[at - 1] != '\r')
		buf_puts(b, w->eol);
}

static void put_indent(struct buf *b, size_t n)
{
	buf_printf(b, "%*s", (int)n, "");
}

static int by_hand(const struct work *w, const struct doc_node *n, const char *why)
{
	CLEANUP(buf_done) struct buf lines = {0};

	edit_put_wanted(w->edit, &lines);
	return err_set(w->e, -ENOTSUP, "%s line %u: %s. %s by hand:\n%s", w->name,
		n->line ? n->line : 1, why, w->edit->remove ? "Take out" : "Write",
		buf_str(&lines));
}

/* Mappings and sequences in lines, or nothing yet. A root or section of another kind was refused by config_parse. */
static bool is_block(const struct doc_node *n)
{
	return n->kind != DOC_SCALAR && !n->is_flow;
}

static bool is_empty_flow(const struct doc *d, const struct doc_node *n)
{
	return n->is_flow && n->n == 0 &&
	       doc_line_begin(d, n->begin) == doc_line_begin(d, n->end) && !n->is_tagged;
}

static size_t root_column(const struct doc *d)
{
	return d->is_empty || d->root.kind != DOC_MAPPING ? 0 : d->root.column;
}

/* An absent or empty value ("servers:", "servers: []", "servers: null") makes room for lines below it. */
static int clear_value(struct work *w, const struct doc_node *value)
{
	const struct doc *d = w->doc;
	size_t begin = value->begin;

	if (!scalar_is_null(value) && !is_empty_flow(d, value))
		return by_hand(
			w, value, "[...] and {...} aren't edited, for their form would be lost");
	while (value->end > value->begin && begin > d->start && d->bytes[begin - 1] == ' ')
		begin--;
	w->first = (struct splice){.at = begin, .cut = value->end - begin};
	return 0;
}

/* --- add --- */

/* The dash of a block sequence's item: on its line, or above comments and line ends between the two. */
static size_t dash_line(const struct doc *d, const struct doc_node *seq, size_t i)
{
	size_t line = doc_line_begin(d, seq->items[i].begin);

	for (;;) {
		size_t dash = line + seq->column;

		if (dash < d->n && leading_blanks(d, line) == seq->column && d->bytes[dash] == '-')
			return line;
		if (line <= d->start)
			return line;
		line = line_before(d, line);
	}
}

static bool has_blank_before(const struct doc *d, const struct doc_node *seq, size_t i)
{
	size_t line = dash_line(d, seq, i);

	/* Comments above a dash introduce it. */
	while (line > d->start && is_comment_line(d, line_before(d, line)))
		line = line_before(d, line);
	return line > d->start && is_blank_line(d, line_before(d, line));
}

static int add_to_list(struct work *w, const struct doc_node *seq)
{
	const struct doc *d = w->doc;
	const struct doc_node *last = &seq->items[seq->n - 1];
	size_t line = dash_line(d, seq, seq->n - 1), dash = line + seq->column;
	/* As wide as the last one's, where its first key stands behind its dash. */
	size_t gap = is_block(last) && doc_line_begin(d, last->begin) == line
			     ? last->begin - dash - 1
			     : 1;
	bool has_blank = seq->n == 1 || has_blank_before(d, seq, seq->n - 1);

	if (d->bytes[dash] != '-')
		return by_hand(w, seq, "the list's dashes don't begin their lines");
	w->first.at = skip_own_comments(d, doc_lines_end(d, last), seq->column);
	open_line(w, w->first.at, &w->first.text);
	for (size_t i = 0; i < w->edit->n_add; i++) {
		if (has_blank)
			buf_puts(&w->first.text, w->eol);
		edit_put_host(&w->first.text, &w->edit->add[i], seq->column, gap, w->eol);
	}
	return 0;
}

static void put_hosts(struct work *w, size_t column, struct buf *b)
{
	for (size_t i = 0; i < w->edit->n_add; i++) {
		if (i)
			buf_puts(b, w->eol);
		edit_put_host(b, &w->edit->add[i], column, 1, w->eol);
	}
}

/* A section behind everything else, a blank line before it. */
static void open_section(struct work *w, const char *section)
{
	const struct doc *d = w->doc;
	struct buf *b = &w->first.text;

	w->first.at = d->end;
	open_line(w, d->end, b);
	if (d->end > d->start && !is_blank_line(d, line_before(d, d->end)))
		buf_puts(b, w->eol);
	put_indent(b, root_column(d));
	buf_printf(b, "%s:%s", section, w->eol);
}

static int splice_add(struct work *w)
{
	const struct doc_node *servers = doc_get(&w->doc->root, "servers");
	int r;

	if (servers && is_block(servers))
		return add_to_list(w, servers);
	if (!servers) {
		open_section(w, "servers");
		put_hosts(w, root_column(w->doc) + 2, &w->first.text);
		return 0;
	}
	r = clear_value(w, servers);
	if (r < 0)
		return r;
	w->second.at =
		skip_own_comments(w->doc, doc_line_end(w->doc, servers->end), root_column(w->doc));
	open_line(w, w->second.at, &w->second.text);
	put_hosts(w, root_column(w->doc) + 2, &w->second.text);
	return 0;
}

/* --- remove --- */

static int splice_remove(struct work *w, size_t i)
{
	const struct doc *d = w->doc;
	const struct doc_node *seq = doc_get(&d->root, "servers");
	/* Blank lines may be the last value's own, as |+ has them. */
	size_t floor = i > 0 ? doc_lines_end(d, &seq->items[i - 1]) : d->start;
	size_t begin, end, after, before;

	if (!is_block(seq))
		return by_hand(
			w, seq, "[...] and {...} aren't edited, for their form would be lost");
	begin = dash_line(d, seq, i);
	if (d->bytes[begin + seq->column] != '-')
		return by_hand(w, seq, "the list's dashes don't begin their lines");
	end = skip_own_comments(d, doc_lines_end(d, &seq->items[i]), seq->column);
	after = skip_blank_lines(d, end);
	before = begin;
	while (before > floor && is_blank_line(d, line_before(d, before)))
		before = line_before(d, before);
	/* Of two gaps one stays. */
	if (before < begin && (after > end || end >= d->end))
		begin = before;
	else if (i == 0 && seq->n > 1 && !is_comment_line(d, line_before(d, begin)))
		end = after;
	w->first = (struct splice){.at = begin, .cut = end - begin};
	return 0;
}

/* --- set --- */

static int replace_value(struct work *w, const struct doc_node *value)
{
	if (value->kind != DOC_SCALAR || value->is_block || value->is_tagged)
		return by_hand(
			w, value, "the key holds more than one plain value, which isn't replaced");
	w->first = (struct splice){.at = value->begin, .cut = value->end - value->begin};
	if (value->end == value->begin)
		buf_putc(&w->first.text, ' ');
	buf_puts(&w->first.text, w->edit->value);
	return 0;
}

static void put_pair(struct work *w, struct buf *b, size_t column)
{
	put_indent(b, column);
	buf_printf(b, "%s: %s%s", w->edit->key, w->edit->value, w->eol);
}

/* Before servers: and the comments that introduce it; at the end where there is none. */
static int insert_section(struct work *w)
{
	const struct doc *d = w->doc;
	const struct doc_node *servers = doc_get(&d->root, "servers");
	struct buf *b = &w->first.text;
	size_t line;

	if (!servers) {
		open_section(w, w->edit->section);
		put_pair(w, b, root_column(d) + 2);
		return 0;
	}
	/* The key stands right before its value in the tree. */
	line = doc_line_begin(d, (servers - 1)->begin);
	if (line + root_column(d) != (servers - 1)->begin)
		return by_hand(w, servers - 1, "servers: doesn't begin its line");
	while (line > d->start && is_comment_line(d, line_before(d, line)) &&
		leading_blanks(d, line_before(d, line)) == root_column(d))
		line = line_before(d, line);
	w->first.at = line;
	put_indent(b, root_column(d));
	buf_printf(b, "%s:%s", w->edit->section, w->eol);
	put_pair(w, b, root_column(d) + 2);
	buf_puts(b, w->eol);
	return 0;
}

static int splice_set(struct work *w)
{
	const struct doc *d = w->doc;
	const struct doc_node *section = doc_get(&d->root, w->edit->section), *value;
	int r;

	if (!section)
		return insert_section(w);
	value = doc_get(section, w->edit->key);
	if (value && !section->is_flow)
		return replace_value(w, value);
	if (is_block(section) && section->kind == DOC_MAPPING) {
		w->first.at = skip_own_comments(
			d, doc_lines_end(d, section), section->column ? section->column - 1 : 0);
		open_line(w, w->first.at, &w->first.text);
		put_pair(w, &w->first.text, section->column);
		return 0;
	}
	r = clear_value(w, section);
	if (r < 0)
		return r;
	w->second.at = doc_line_end(d, section->end);
	open_line(w, w->second.at, &w->second.text);
	put_pair(w, &w->second.text, root_column(d) + 2);
	return 0;
}

/* --- all together --- */

static void put_result(const struct work *w, struct buf *out)
{
	const struct doc *d = w->doc;
	const struct splice *a = &w->first, *b = &w->second;
	size_t at = a->at + a->cut;

	buf_put(out, d->bytes, a->at);
	buf_put(out, a->text.data ? a->text.data : "", a->text.len);
	if (b->text.len) {
		buf_put(out, d->bytes + at, b->at - at);
		buf_put(out, b->text.data, b->text.len);
		at = b->at + b->cut;
	}
	buf_put(out, d->bytes + at, d->n - at);
}

static int find_server(const struct config *c, const char *nickname, size_t *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};

	for (size_t i = 0; i < c->n_servers; i++)
		if (strcmp(c->servers[i].nickname, nickname) == 0) {
			*ret = i;
			return 0;
		}
	text_put_repr(&q, nickname, strnlen(nickname, 80));
	return err_set(e, -ENOENT, "there's no server %s", buf_str(&q));
}

static int check_new(const struct config *c, const struct edit *edit, struct err *e)
{
	for (size_t i = 0; i < edit->n_add; i++) {
		const struct host_config *h = &edit->add[i];

		for (size_t k = 0; k < c->n_servers + i; k++) {
			const struct host_config *other =
				k < c->n_servers ? &c->servers[k] : &edit->add[k - c->n_servers];

			if (strcmp(other->nickname, h->nickname) == 0)
				return err_set(e, -EEXIST,
					"there's a server called %s already; give this one another nickname",
					h->nickname);
			if (host_config_same_place(other, h))
				return err_set(e, -EEXIST, "%s:%d%s%s is there already, as %s",
					h->hostname, h->port, h->username ? " with user " : "",
					h->username ? h->username : "", other->nickname);
		}
	}
	return 0;
}

static int splice_any(struct work *w, const struct config *c, size_t *ret_removed)
{
	const struct edit *edit = w->edit;
	int r;

	if (w->doc->root.is_flow && w->doc->root.kind == DOC_MAPPING)
		return by_hand(w, &w->doc->root,
			"a file that is one {...} isn't edited, for its form would be lost");
	if (!w->doc->is_empty && w->doc->root.kind == DOC_SCALAR && w->doc->root.len)
		return by_hand(w, &w->doc->root, "the file is the word null");
	if (edit->remove) {
		r = find_server(c, edit->remove, ret_removed, w->e);
		return r < 0 ? r : splice_remove(w, *ret_removed);
	}
	if (edit->section)
		return splice_set(w);
	r = check_new(c, edit, w->e);
	return r < 0 ? r : splice_add(w);
}

int edit_apply(const struct edit *edit, const char *bytes, size_t n, const char *name,
	struct buf *ret, struct err *e)
{
	CLEANUP(config_done) struct config c = {0};
	CLEANUP(doc_done) struct doc doc = {0};
	CLEANUP(buf_done) struct buf out = {0};
	struct work w = {.edit = edit, .doc = &doc, .name = name, .e = e};
	size_t removed = 0;
	int r = config_parse(bytes, n, name, &c, e);

	if (r == 0)
		r = doc_parse(bytes, n, name, &doc, e);
	if (r == 0) {
		w.eol = eol_of(&doc);
		r = splice_any(&w, &c, &removed);
	}
	if (r == 0) {
		put_result(&w, &out);
		if (!edit_is_meant(edit, &c, &doc, removed, buf_str(&out), out.len, name))
			r = by_hand(&w, &doc.root,
				"the change would touch something else in this file, so nothing was written");
	}
	buf_done(&w.first.text);
	buf_done(&w.second.text);
	if (r < 0)
		return r;
	buf_clear(ret);
	buf_put(ret, buf_str(&out), out.len);
	return 0;
}
