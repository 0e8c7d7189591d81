/* Sweeps and arrays: see expand.h. */
#include "queue/expand.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_LEN 64
#define ARRAY_NAME "index"

size_t expand_count(const struct expand *x)
{
	size_t n = 1;

	for (size_t i = 0; i < x->n; i++)
		n *= x->params[i].n;
	return n;
}

static int add_value(struct expand_param *p, char *value, struct err *e)
{
	if (p->n >= EXPAND_MAX) {
		free(value);
		return err_set(e, -E2BIG, "at most %d jobs can be submitted at once", EXPAND_MAX);
	}
	GROW(p->values, p->n, p->cap);
	p->values[p->n++] = value;
	return 0;
}

/* "3-8" or "0-30:10" of whole numbers; 1: it is one, 0: it's something else. */
static int range_of(const char *part, int64_t *from, int64_t *to, int64_t *step)
{
	CLEANUP_FREE char *copy = xstrdup(part);
	char *dash = *copy ? strchr(copy + 1, '-') : NULL,
	     *colon = dash ? strchr(dash + 1, ':') : NULL;

	if (!dash)
		return 0;
	*dash = '\0';
	if (colon)
		*colon = '\0';
	*step = 1;
	return !parse_int64(copy, from) && !parse_int64(dash + 1, to) &&
	       (!colon || !parse_int64(colon + 1, step));
}

static int add_range(struct expand_param *p, const char *part, int64_t from, int64_t to,
	int64_t step, struct err *e)
{
	if (to < from || step < 1)
		return err_set(e, -EINVAL,
			"'%.100s' is no range: the smaller number comes first, and a step is at least 1",
			part);
	for (int64_t v = from; v <= to; v += step) {
		int r = add_value(p, xasprintf("%" PRId64, v), e);

		if (r)
			return r;
		if (v > INT64_MAX - step)
			break;
	}
	return 0;
}

static int add_part(struct expand_param *p, const char *part, bool numbers_only, struct err *e)
{
	int64_t from, to, step, one;

	if (range_of(part, &from, &to, &step))
		return add_range(p, part, from, to, step, e);
	if (numbers_only && parse_int64(part, &one))
		return err_set(e, -EINVAL,
			"--array takes numbers and ranges as 1-100,200, not '%.100s'", part);
	return add_value(p, xstrdup(part), e);
}

static int add_values(struct expand_param *p, const char *list, bool numbers_only, struct err *e)
{
	for (const char *at = list;; at++) {
		size_t n = strcspn(at, ",");
		CLEANUP_FREE char *part = xstrndup(at, n);
		int r = !n ? err_set(e, -EINVAL, "'%.100s' has an empty value between commas", list)
			   : add_part(p, part, numbers_only, e);

		if (r)
			return r;
		at += n;
		if (!*at)
			return 0;
	}
}

static void param_done(struct expand_param *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->values[i]);
	free(p->values);
	free(p->name);
}

static const struct expand_param *find(const struct expand *x, const char *name, size_t n)
{
	for (size_t i = 0; i < x->n; i++)
		if (strlen(x->params[i].name) == n && !memcmp(x->params[i].name, name, n))
			return &x->params[i];
	return NULL;
}

static int add_param(
	struct expand *x, const char *name, const char *list, bool is_array, struct err *e)
{
	struct expand_param p = {0};
	int r;

	if (find(x, name, strlen(name)))
		return err_set(e, -EINVAL, "'%s' is given twice", name);
	r = add_values(&p, list, is_array, e);
	if (!r && expand_count(x) > EXPAND_MAX / p.n)
		r = err_set(e, -E2BIG, "that makes more than %d jobs in one submit", EXPAND_MAX);
	if (r) {
		param_done(&p);
		return r;
	}
	p.name = xstrdup(name);
	GROW(x->params, x->n, x->cap);
	x->params[x->n++] = p;
	return 0;
}

static bool is_name(const char *s, size_t n)
{
	if (!n || n > NAME_MAX_LEN || isdigit((unsigned char)s[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_')
			return false;
	return true;
}

int expand_sweep(struct expand *x, const char *spec, struct err *e)
{
	size_t n = strcspn(spec, "=");
	CLEANUP_FREE char *name = xstrndup(spec, n);

	if (!spec[n] || !is_name(spec, n))
		return err_set(e, -EINVAL,
			"--sweep takes NAME=VALUE,VALUE as lr=1e-3,1e-4 (a name of letters, digits and _), not '%.100s'",
			spec);
	if (!strcmp(name, ARRAY_NAME))
		return err_set(e, -EINVAL, "'%s' is what --array numbers; choose another name",
			ARRAY_NAME);
	return add_param(x, name, spec + n + 1, false, e);
}

int expand_array(struct expand *x, const char *spec, struct err *e)
{
	return add_param(x, ARRAY_NAME, spec, true, e);
}

void expand_done(struct expand *x)
{
	for (size_t i = 0; i < x->n; i++)
		param_done(&x->params[i]);
	free(x->params);
	*x = (struct expand){0};
}

/* The last parameter varies fastest. */
static const char *value_of(const struct expand *x, const struct expand_param *p, size_t i)
{
	for (size_t k = x->n; k-- > 0;) {
		if (&x->params[k] == p)
			return p->values[i % p->n];
		i /= x->params[k].n;
	}
	return "";
}

/* "${lr}" is the shell's own. */
void expand_text(const struct expand *x, size_t i, const char *text, struct buf *out)
{
	const char *begin = text;

	while (*text) {
		size_t n = strcspn(text, "{"), len;
		const struct expand_param *p;

		buf_put(out, text, n);
		text += n;
		if (!*text)
			break;
		len = strcspn(text + 1, "{}");
		p = text[1 + len] == '}' && (text == begin || text[-1] != '$')
			    ? find(x, text + 1, len)
			    : NULL;
		if (p) {
			buf_puts(out, value_of(x, p, i));
			text += len + 2;
		} else {
			buf_putc(out, '{');
			text++;
		}
	}
}

void expand_label(const struct expand *x, size_t i, struct buf *out)
{
	for (size_t k = 0; k < x->n; k++)
		buf_printf(out, "%s%s=%s", k ? " " : "", x->params[k].name,
			value_of(x, &x->params[k], i));
}

void expand_env(const struct expand *x, size_t i, json_t *env)
{
	for (size_t k = 0; k < x->n; k++) {
		const struct expand_param *p = &x->params[k];
		const char *v = value_of(x, p, i);

		if (!strcmp(p->name, ARRAY_NAME)) {
			json_object_set_new(env, "GPUSTOW_ARRAY_INDEX", json_string(v));
			json_object_set_new(env, "NVIDB_ARRAY_INDEX", json_string(v));
		} else {
			CLEANUP_FREE char *key = xasprintf("GPUSTOW_SWEEP_%s", p->name);

			json_object_set_new(env, key, json_string(v));
		}
	}
}

const char *expand_unused(const struct expand *x, const char *const *texts, size_t n)
{
	for (size_t k = 0; k < x->n; k++) {
		CLEANUP_FREE char *braced = xasprintf("{%s}", x->params[k].name),
				  *variable = xasprintf("GPUSTOW_SWEEP_%s", x->params[k].name);
		bool is_array = !strcmp(x->params[k].name, ARRAY_NAME), is_used = is_array;

		for (size_t i = 0; i < n && !is_used; i++)
			is_used = texts[i] &&
				  (strstr(texts[i], braced) || strstr(texts[i], variable));
		if (!is_used)
			return x->params[k].name;
	}
	return NULL;
}
