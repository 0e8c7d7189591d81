/* The doctor's list: kept, shown, and carried from one process to another. */
#include "show/checklist.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[CHECK_WEIGHT_N] = {"ok", "warn", "bad"};

void checklist_done(struct checklist *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->items[i].id);
		free(l->items[i].text);
		free(l->items[i].mend);
	}
	free(l->items);
	*l = (struct checklist){0};
}

void checklist_add(struct checklist *l, enum check_weight w, const char *id, const char *mend,
	const char *fmt, ...)
{
	struct buf b = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	GROW(l->items, l->n, l->cap);
	l->items[l->n++] = (struct check){.weight = w,
		.id = xstrdup(id),
		.text = buf_take(&b),
		.mend = mend ? xstrdup(mend) : NULL,
		.ms = -1};
}

void checklist_took(struct checklist *l, int64_t ms)
{
	if (l->n)
		l->items[l->n - 1].ms = ms;
}

enum check_weight checklist_worst(const struct checklist *l)
{
	enum check_weight worst = CHECK_OK;

	for (size_t i = 0; i < l->n; i++)
		if (l->items[i].weight > worst)
			worst = l->items[i].weight;
	return worst;
}

static void put_check(const struct check *c, const struct row_style *style, struct buf *out)
{
	static const enum row_color colors[CHECK_WEIGHT_N] = {ROW_GREEN, ROW_AMBER, ROW_RED};
	CLEANUP(buf_done) struct buf text = {0};
	struct row r;

	row_begin(&r, style, out);
	row_printf(&r, colors[c->weight], "%-4s ", names[c->weight]);
	row_printf(&r, ROW_DIM, "%-12s ", c->id);
	buf_puts(&text, c->text);
	if (c->ms >= 0)
		buf_printf(&text, " (%lld ms)", (long long)c->ms);
	row_wrap(&r, ROW_PLAIN, 18, buf_str(&text));
	if (!c->mend)
		return;
	row_begin(&r, style, out);
	row_printf(&r, ROW_PLAIN, "%18s", "");
	row_either(&r, ROW_PLAIN, "\xe2\x86\x92 ", "> ");
	row_wrap(&r, ROW_TEAL, 20, c->mend);
}

void checklist_text(const struct checklist *l, const struct row_style *style, struct buf *out)
{
	for (size_t i = 0; i < l->n; i++)
		put_check(&l->items[i], style, out);
}

static json_t *clean_or_null(const char *s)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!s)
		return json_null();
	text_put_clean(&b, s, strlen(s));
	return json_string(buf_str(&b));
}

json_t *checklist_json(const struct checklist *l)
{
	json_t *list = json_array();

	for (size_t i = 0; i < l->n; i++) {
		const struct check *c = &l->items[i];

		json_array_append_new(
			list, json_pack("{s:s, s:s, s:o, s:o, s:o}", "id", c->id, "result",
				      names[c->weight], "text", clean_or_null(c->text), "mend",
				      clean_or_null(c->mend), "took_ms",
				      c->ms >= 0 ? json_integer(c->ms) : json_null()));
	}
	return list;
}

void checklist_take_json(struct checklist *l, const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *o = json_array_get(list, i), *ms = json_object_get(o, "took_ms");
		const char *result = json_string_value(json_object_get(o, "result"));
		const char *id = json_string_value(json_object_get(o, "id"));
		const char *text = json_string_value(json_object_get(o, "text"));
		enum check_weight w = CHECK_OK;

		if (!result || !id || !text)
			continue;
		while (w < CHECK_BAD && strcmp(names[w], result) != 0)
			w++;
		checklist_add(l, w, id, json_string_value(json_object_get(o, "mend")), "%s", text);
		if (json_is_integer(ms))
			checklist_took(l, json_integer_value(ms));
	}
}
