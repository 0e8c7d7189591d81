/*
 * What lines say of each other: names are unique, after= names what exists, and nobody waits for himself, by whatever
 * way round. Numbers are those of the journal; a number is a job that is there already, so it can't close a circle.
 */
#include "run/jobsfile_inner.h"

#include "base/alloc.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int name_order(const void *a, const void *b)
{
	const struct jobsfile_name *x = a, *y = b;
	int by_name = strcmp(x->name, y->name);

	return by_name ? by_name : (x->lineno > y->lineno) - (x->lineno < y->lineno);
}

static int name_compare(const void *a, const void *b)
{
	const struct jobsfile_name *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void check_unique(struct jobsfile *f, const struct jobsfile_name *sorted, size_t n)
{
	for (size_t i = 1, first = 0; i < n; i++) {
		if (strcmp(sorted[i].name, sorted[first].name) != 0)
			first = i;
		else
			jobsfile_error(f, sorted[i].lineno,
				"name '%s' is taken by line %" PRIu32 " already", sorted[i].name,
				sorted[first].lineno);
	}
}

/* One item of an after= list. */
struct item {
	char *text; /* NUL-terminated copy; the caller frees it */
	const struct jobsfile_name *name; /* NULL: a number, or nobody's */
};

static const char *next_item(
	const char *list, const struct jobsfile_name *sorted, size_t n, struct item *ret)
{
	size_t len = strcspn(list, ",");

	ret->text = xstrndup(list, len);
	struct jobsfile_name key = {.name = ret->text};
	ret->name = n > 0 ? bsearch(&key, sorted, n, sizeof(key), name_compare) : NULL;
	return list[len] ? list + len + 1 : NULL;
}

static void check_item(struct jobsfile *f, const struct jobline *l, const struct item *item,
	uint64_t known_numbers)
{
	int64_t no;

	if (item->name)
		return;
	if (strspn(item->text, "0123456789") != strlen(item->text))
		jobsfile_error(f, l->lineno, "after wants '%s', but no line has name=%s",
			item->text, item->text);
	else if (parse_int64(item->text, &no) < 0 || no < 1 || (uint64_t)no > known_numbers)
		jobsfile_error(f, l->lineno,
			"after wants job %s, but there's no job of that number yet; give its line a name= and use that",
			item->text);
}

/* For each line that waits for names of this file: how many of them aren't cleared yet. */
struct waits {
	uint32_t *n_open;
	uint32_t (*edges)[2]; /* [0] is waited for by [1] */
	size_t n, cap;
};

static void note_edges(struct waits *w, const struct jobsfile *f, size_t line,
	const struct jobsfile_name *sorted, size_t n_names)
{
	for (const char *list = f->lines[line].after; list;) {
		struct item item;
		list = next_item(list, sorted, n_names, &item);
		if (item.name && item.name->line != SIZE_MAX) {
			GROW(w->edges, w->n, w->cap);
			w->edges[w->n][0] = (uint32_t)item.name->line;
			w->edges[w->n++][1] = (uint32_t)line;
			w->n_open[line]++;
		}
		free(item.text);
	}
}

static int edge_order(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (x[0] > y[0]) - (x[0] < y[0]);
}

static size_t first_edge_of(const struct waits *w, uint32_t line)
{
	size_t low = 0, high = w->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (w->edges[mid][0] < line)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Clears what waits for nothing, then what waited for that, and so on; what's left goes round in a circle or hangs on one. */
static void check_circles(struct jobsfile *f, struct waits *w)
{
	uint32_t *clear = xreallocarray(NULL, f->n + 1, sizeof(*clear));
	size_t n_clear = 0;

	qsort(w->edges, w->n, sizeof(w->edges[0]), edge_order);
	for (size_t i = 0; i < f->n; i++)
		if (w->n_open[i] == 0)
			clear[n_clear++] = (uint32_t)i;
	for (size_t i = 0; i < n_clear; i++)
		for (size_t e = first_edge_of(w, clear[i]); e < w->n && w->edges[e][0] == clear[i];
			e++)
			if (--w->n_open[w->edges[e][1]] == 0)
				clear[n_clear++] = w->edges[e][1];
	for (size_t i = 0; i < f->n; i++)
		if (w->n_open[i] > 0)
			jobsfile_error(f, f->lines[i].lineno,
				"after='%s' leads round in a circle: the job would wait for ever",
				f->lines[i].after);
	free(clear);
}

void jobsfile_check_after(struct jobsfile *f, const struct jobsfile_name *names, size_t n_names,
	uint64_t known_numbers)
{
	struct jobsfile_name *sorted = xreallocarray(NULL, n_names + 1, sizeof(*sorted));
	struct waits w = {0};

	if (n_names > 0)
		memcpy(sorted, names, n_names * sizeof(*sorted));
	qsort(sorted, n_names, sizeof(*sorted), name_order);
	check_unique(f, sorted, n_names);
	w.n_open = xcalloc(f->n + 1, sizeof(*w.n_open));
	for (size_t i = 0; i < f->n; i++) {
		for (const char *list = f->lines[i].after; list;) {
			struct item item;
			list = next_item(list, sorted, n_names, &item);
			check_item(f, &f->lines[i], &item, known_numbers);
			free(item.text);
		}
		note_edges(&w, f, i, sorted, n_names);
	}
	if (w.n > 0)
		check_circles(f, &w);
	free(w.n_open);
	free(w.edges);
	free(sorted);
}
