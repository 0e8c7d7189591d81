/* The rules of `gpustow wait`. */
#include "show/vacancy.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- which cards ---- */

static int parse_indices(const char *text, struct vacancy_wish *w, struct err *e)
{
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, ",");
		int64_t index;
		uint32_t i = 0;

		if (parse_int_py(p, n, &index) < 0 || index < 0 || index > 9999)
			return err_set(e, -EINVAL,
				"--gpu takes any, a list of indices as 0,1, or how many of them, as 2-of:0,1,3, not '%.100s'",
				text);
		while (i < w->n_indices && w->indices[i] != index)
			i++;
		if (i == GPU_MAX)
			return err_set(e, -EINVAL, "--gpu: more than %d cards", GPU_MAX);
		if (i == w->n_indices)
			w->indices[w->n_indices++] = (int32_t)index;
		p += n + (p[n] == ',');
	}
	return 0;
}

/* "2-of" in front: *ret_count, and what follows the colon. */
static const char *take_count(const char *text, int64_t *ret_count)
{
	const char *of = strstr(text, "-of");
	CLEANUP_FREE char *digits = of ? xstrndup(text, (size_t)(of - text)) : NULL;

	if (!digits || parse_int64(digits, ret_count) < 0 || (of[3] && of[3] != ':'))
		return text;
	return of[3] ? of + 4 : "any";
}

int vacancy_parse_cards(const char *text, int64_t count, struct vacancy_wish *ret, struct err *e)
{
	struct vacancy_wish w = *ret;
	int64_t of = 0;
	const char *rest = take_count(text, &of);
	int r;

	w.n_indices = 0;
	r = strcmp(rest, "any") == 0 ? 0 : parse_indices(rest, &w, e);
	if (r < 0)
		return r;
	if (of && count && of != count)
		return err_set(e, -EINVAL, "--gpu says %lld cards, --count says %lld",
			(long long)of, (long long)count);
	if (rest != text && of < 1)
		return err_set(
			e, -EINVAL, "--gpu: at least 1 of the cards, not %lld", (long long)of);
	if (!of)
		of = count ? count : w.n_indices ? w.n_indices : 1;
	if (of > GPU_MAX || (w.n_indices && of > w.n_indices))
		return err_set(e, -EINVAL, "--gpu: %lld cards can't be had of %lld", (long long)of,
			(long long)(w.n_indices ? w.n_indices : GPU_MAX));
	w.count = (uint32_t)of;
	*ret = w;
	return 0;
}

/* CUDA gives a process one MIG instance only: of several cards none is one. */
static bool is_wished(const struct vacancy_wish *w, const struct gpu_card *c)
{
	if (gpu_is_instance(c) && (w->n_indices > 0 || w->count > 1))
		return false;
	for (uint32_t i = 0; i < w->n_indices; i++)
		if (w->indices[i] == c->index)
			return true;
	return w->n_indices == 0;
}

/* ---- one card now ---- */

/* Promised and not in use yet; *ret_any: something of ours or of others' stands on the card at all. */
static int64_t promised_mib(const struct sample *s, uint32_t card, bool *ret_any)
{
	int64_t sum = (s->promised_mib ? s->promised_mib[card] : 0) +
		      (s->lane_mib ? s->lane_mib[card] : 0);

	*ret_any = sum > 0;
	for (uint32_t i = 0; i < s->n_rows; i++) {
		const struct ledger_row *r = &s->rows[i];

		if (r->card != card)
			continue;
		*ret_any = true;
		if (r->budget_mib > r->held_mib)
			sum += r->budget_mib - r->held_mib;
	}
	return sum;
}

struct value vacancy_free_mib(const struct sample *s, uint32_t card)
{
	const struct gpu_card *c = &s->snap.cards[card];
	struct value total = c->m[METRIC_MEM_TOTAL], used = c->m[METRIC_MEM_USED],
		     reserved = c->m[METRIC_MEM_RESERVED];
	bool any;
	int64_t v;

	if (!value_is_present(total) || !value_is_present(used))
		return value_absent(value_is_present(total) ? used.state : total.state);
	v = total.v - used.v - promised_mib(s, card, &any);
	if (value_is_present(reserved))
		v -= reserved.v;
	return value_of(v > 0 ? v : 0);
}

/* Nothing computes there and hardly any memory is used; where the driver can't tell the use, no process may be there. */
static bool is_idle(const struct sample *s, uint32_t card)
{
	const struct gpu_card *c = &s->snap.cards[card];
	struct value util = c->m[METRIC_UTIL_GPU], used = c->m[METRIC_MEM_USED],
		     total = c->m[METRIC_MEM_TOTAL];
	bool any;

	promised_mib(s, card, &any);
	if (any || (value_is_present(util) && util.v >= 5))
		return false;
	if (value_is_present(used) && value_is_present(total) && used.v * 10 >= total.v)
		return false;
	for (uint32_t i = 0; i < s->snap.n_procs; i++)
		if (s->snap.procs[i].card == card &&
			s->snap.procs[i].kind & (GPU_PROC_COMPUTE | GPU_PROC_MPS) &&
			!value_is_present(util))
			return false;
	return value_is_present(util) || value_is_present(used);
}

bool vacancy_is_vacant(const struct vacancy_wish *w, const struct sample *s, uint32_t card)
{
	const struct gpu_card *c = &s->snap.cards[card];
	struct value free_mib = vacancy_free_mib(s, card);

	if (c->state != GPU_OK || s->snap.error[0] || !gpu_is_placeable(c) || !is_wished(w, c))
		return false;
	if (w->is_idle && !is_idle(s, card))
		return false;
	return !w->free_mib || (value_is_present(free_mib) && free_mib.v >= w->free_mib);
}

/* ---- through time ---- */

static struct vacancy_card *card_of(struct vacancy *v, const char *uuid)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (strcmp(v->cards[i].uuid, uuid) == 0)
			return &v->cards[i];
	if (v->n == GPU_MAX)
		v->n = 0; /* other cards than before, all of them */
	v->cards[v->n] = (struct vacancy_card){0};
	snprintf(v->cards[v->n].uuid, sizeof(v->cards[v->n].uuid), "%s", uuid);
	return &v->cards[v->n++];
}

void vacancy_take(
	struct vacancy *v, const struct vacancy_wish *w, const struct sample *s, int64_t now_ms)
{
	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		struct vacancy_card *c;

		if (!s->snap.cards[i].uuid[0])
			continue;
		c = card_of(v, s->snap.cards[i].uuid);
		if (!vacancy_is_vacant(w, s, i))
			c->since_ms = 0;
		else if (!c->since_ms || now_ms - c->seen_ms > w->gap_ms)
			c->since_ms = now_ms;
		c->seen_ms = now_ms;
	}
}

static bool has_held(const struct vacancy *v, const struct vacancy_wish *w, const char *uuid)
{
	for (uint32_t i = 0; i < v->n; i++)
		if (strcmp(v->cards[i].uuid, uuid) == 0)
			return v->cards[i].since_ms &&
			       v->cards[i].seen_ms - v->cards[i].since_ms >= w->hold_ms;
	return false;
}

static int64_t room_of(const struct sample *s, uint32_t card)
{
	struct value v = vacancy_free_mib(s, card);

	return value_is_present(v) ? v.v : -1;
}

bool vacancy_find(const struct vacancy *v, const struct vacancy_wish *w, const struct sample *s,
	uint32_t ret[GPU_MAX])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		uint32_t k = n;

		if (!vacancy_is_vacant(w, s, i) || !has_held(v, w, s->snap.cards[i].uuid))
			continue;
		for (; k > 0 && room_of(s, ret[k - 1]) < room_of(s, i); k--)
			ret[k] = ret[k - 1];
		ret[k] = i;
		n++;
	}
	return n >= w->count;
}

void vacancy_doubt(const struct vacancy_wish *w, const struct sample *s, struct buf *out)
{
	uint32_t n_wished = 0, n_large = 0;

	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		struct value total = s->snap.cards[i].m[METRIC_MEM_TOTAL];

		if (!is_wished(w, &s->snap.cards[i]) || !gpu_is_placeable(&s->snap.cards[i]))
			continue;
		n_wished++;
		n_large += !w->free_mib || !value_is_present(total) || total.v >= w->free_mib;
	}
	if (n_wished < w->count) {
		buf_printf(out, "only %u of the cards asked for are there, and %u are wanted",
			n_wished, w->count);
	} else if (n_large < w->count) {
		buf_printf(out, "only %u of the cards have ", n_large);
		text_put_mib(out, w->free_mib);
		buf_printf(out, " at all, and %u are wanted", w->count);
	}
}
