/* Figures that text and JSON share: who holds memory, what a PCIe link can carry, what a card's name is. */
#include "show/once.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void user_of(const struct sample *s, uint32_t i, char ret[40])
{
	const struct gpu_proc *p = &s->snap.procs[i];

	if (s->snap.more && s->snap.more[i].user[0])
		snprintf(ret, 40, "%s", s->snap.more[i].user);
	else if (p->uid != (uint32_t)-1)
		snprintf(ret, 40, "%u", p->uid);
	else
		snprintf(ret, 40, "?");
}

static struct show_use *use_of(struct show_uses *u, const char *user)
{
	for (size_t i = 0; i < u->n; i++)
		if (strcmp(u->items[i].user, user) == 0)
			return &u->items[i];
	GROW(u->items, u->n, u->cap);
	u->items[u->n] = (struct show_use){0};
	snprintf(u->items[u->n].user, sizeof(u->items[u->n].user), "%s", user);
	return &u->items[u->n++];
}

static bool is_in(const struct sample *s, const struct gpu_proc *p, int card, int instance)
{
	const struct gpu_instance *g;

	uint32_t whole = gpu_whole_of(&s->snap, p->card);

	if (card >= 0 && gpu_is_instance(&s->snap.cards[card]))
		return p->card == (uint32_t)card;
	if (card >= 0 && whole != (uint32_t)card)
		return false;
	if (instance < 0)
		return true;
	g = &s->snap.instances[instance];
	return whole == g->card && p->gi == g->gi && (!p->ci || !g->ci || p->ci == g->ci);
}

void show_uses_add(struct show_uses *u, const struct sample *s, int card, int instance)
{
	for (uint32_t i = 0; i < s->snap.n_procs; i++) {
		const struct gpu_proc *p = &s->snap.procs[i];
		struct show_use *use;
		char user[40];

		if (!is_in(s, p, card, instance))
			continue;
		user_of(s, i, user);
		use = use_of(u, user);
		if (value_is_present(p->used_mib))
			use->mib += p->used_mib.v;
		else
			use->is_partial = true;
	}
}

static int by_memory(const void *a, const void *b)
{
	const struct show_use *x = a, *y = b;

	if (x->mib != y->mib)
		return x->mib < y->mib ? 1 : -1;
	return strcmp(x->user, y->user);
}

void show_uses_sort(struct show_uses *u)
{
	if (u->n)
		qsort(u->items, u->n, sizeof(*u->items), by_memory);
}

void show_uses_done(struct show_uses *u)
{
	free(u->items);
	*u = (struct show_uses){0};
}

/* "300M", "1.2G"; "?" when nothing of it is known, "300M+" when not all is. */
static void put_size(const struct show_use *u, struct buf *out)
{
	if (!u->mib && u->is_partial)
		buf_putc(out, '?');
	else if (u->mib < 1024)
		buf_printf(out, "%lldM", (long long)u->mib);
	else
		buf_printf(out, "%lld.%lldG", (long long)((u->mib * 10 + 512) / 1024 / 10),
			(long long)((u->mib * 10 + 512) / 1024 % 10));
	if (u->mib && u->is_partial)
		buf_putc(out, '+');
}

void show_uses_put(const struct show_uses *u, size_t most, struct buf *out)
{
	if (!u->n)
		buf_putc(out, '-');
	for (size_t i = 0; i < u->n && i < most; i++) {
		buf_printf(out, "%s%s(", i ? " " : "", u->items[i].user);
		put_size(&u->items[i], out);
		buf_putc(out, ')');
	}
	if (u->n > most)
		buf_printf(out, " +%zu more", u->n - most);
}

int64_t show_link_capacity_kib_s(int64_t gen, int64_t width)
{
	static const int64_t bytes_per_lane[] = {0, 250000000, 500000000, 984600000, 1969200000,
		3938500000, 7563000000, 15125000000};

	if (gen < 1 || (size_t)gen >= sizeof(bytes_per_lane) / sizeof(bytes_per_lane[0]) ||
		width < 1 || width > 64)
		return 0;
	return bytes_per_lane[gen] * width / 1024;
}

void show_card_name(const char *name, struct buf *out)
{
	static const char *const words[] = {"NVIDIA ", "GeForce "};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strncmp(name, words[i], strlen(words[i])) == 0)
			name += strlen(words[i]);
	buf_puts(out, name);
}

bool show_card_is_idle(const struct gpu_card *c)
{
	struct value util = c->m[METRIC_UTIL_GPU], used = c->m[METRIC_MEM_USED],
		     total = c->m[METRIC_MEM_TOTAL];

	return c->state == GPU_OK && value_is_present(util) && value_is_present(used) &&
	       value_is_present(total) && util.v < 5 && total.v > 0 && used.v * 10 < total.v;
}
