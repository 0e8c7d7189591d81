/* A value of a key: as a bool, as text, as a number's text; and the sentence when it's none of that. Pure. */
#include "config/config_inner.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "config/scalar.h"

#include <stdio.h>
#include <string.h>

const char *config_quoted(struct buf *q, const struct doc_node *n)
{
	text_put_repr(q, n->text, n->len < 80 ? n->len : utf8_valid_len(n->text, 80));
	return buf_str(q);
}

int config_bad_value(const char *name, const char *key, const struct doc_node *n, const char *right,
	struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};

	return config_bad(name, n, e, "%s: %s%s%s", key,
		n->kind == DOC_SCALAR ? config_quoted(&q, n) : "",
		n->kind == DOC_SCALAR ? " won't do; " : "", right);
}

int config_bool(
	const char *name, const char *key, const struct doc_node *n, bool *ret, struct err *e)
{
	if (n->is_tagged || (!scalar_is_null(n) && scalar_bool(n, ret) < 0))
		return config_bad_value(name, key, n, "write true or false, without quotes", e);
	return 0;
}

int config_text(const char *name, const char *key, const struct doc_node *n, const char **ret,
	struct err *e)
{
	if (n->kind != DOC_SCALAR || n->is_tagged)
		return config_bad(name, n, e, "%s: takes one value, not a list or a mapping", key);
	if (strlen(n->text) != n->len)
		return config_bad(
			name, n, e, "%s: it holds control characters; write plain text", key);
	*ret = scalar_is_null(n) ? "" : n->text;
	return 0;
}

int config_number_text(const char *name, const char *key, const struct doc_node *n, char space[24],
	const char **ret, struct err *e)
{
	int64_t v;
	int r = -EINVAL;

	if (n->kind == DOC_SCALAR && !n->is_tagged && n->is_plain)
		r = scalar_int(n, &v);
	if (r == -EDOM)
		return config_bad(name, n, e,
			"%s: YAML reads %s as another number; write it without the leading 0 or colon",
			key, n->text);
	if (r < 0)
		return config_text(name, key, n, ret, e);
	snprintf(space, 24, "%lld", (long long)v);
	*ret = space;
	return 0;
}
