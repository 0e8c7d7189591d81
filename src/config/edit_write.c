/* The few lines of YAML that gpustow writes itself: a server's, in nvidb's order of keys. Pure. */
#include "config/edit_inner.h"

#include "config/scalar.h"

#include <stdio.h>

struct lines {
	struct buf *b;
	size_t column, gap;
	const char *eol;
	bool has_dash;
};

static void put_key(struct lines *l, const char *key)
{
	buf_printf(l->b, "%*s", (int)l->column, "");
	if (l->has_dash)
		buf_printf(l->b, "%*s", (int)l->gap + 1, "");
	else
		buf_printf(l->b, "-%*s", (int)l->gap, "");
	l->has_dash = true;
	buf_printf(l->b, "%s: ", key);
}

static void put_text(struct lines *l, const char *key, const char *value)
{
	if (!value)
		return;
	put_key(l, key);
	scalar_put(l->b, value);
	buf_puts(l->b, l->eol);
}

static void put_gpus(struct lines *l, const struct host_config *h)
{
	if (!h->has_gpus)
		return;
	put_key(l, "gpus");
	buf_putc(l->b, '[');
	for (size_t i = 0; i < h->n_gpus; i++)
		buf_printf(l->b, "%s%d", i ? ", " : "", h->gpus[i]);
	buf_printf(l->b, "]%s", l->eol);
}

void edit_put_host(
	struct buf *b, const struct host_config *h, size_t column, size_t gap, const char *eol)
{
	struct lines l = {.b = b, .column = column, .gap = gap, .eol = eol};

	put_text(&l, "hostname", h->hostname);
	put_key(&l, "port");
	buf_printf(b, "%d%s", h->port, eol);
	put_text(&l, "username", h->username);
	put_text(&l, "password", h->password);
	put_text(&l, "nickname", h->nickname);
	put_text(&l, "auth", host_auth_name(h->auth));
	put_text(&l, "identityfile", h->identityfile);
	put_text(&l, "proxyjump", h->proxyjump);
	put_text(&l, "agent_dir", h->agent_dir);
	put_gpus(&l, h);
}

void edit_put_wanted(const struct edit *edit, struct buf *b)
{
	if (edit->remove) {
		buf_puts(b, "  - nickname: ");
		scalar_put(b, edit->remove);
		return;
	}
	if (edit->section) {
		buf_printf(b, "%s:\n  %s: %s", edit->section, edit->key, edit->value);
		return;
	}
	buf_puts(b, "servers:\n");
	for (size_t i = 0; i < edit->n_add && b->len < 600; i++) {
		struct host_config shown = edit->add[i];

		shown.password = NULL;
		edit_put_host(b, &shown, 2, 1, "\n");
	}
}
