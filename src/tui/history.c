/* The ring of moments and what hangs on it (history.h). */
#include "tui/history.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

void history_done(struct history *h)
{
	free(h->cards);
	free(h->procs);
	*h = (struct history){0};
}

static int32_t figure(struct value v)
{
	if (!value_is_present(v))
		return GRAPH_GAP;
	return v.v > INT32_MAX ? INT32_MAX : v.v <= GRAPH_GAP ? GRAPH_GAP + 1 : (int32_t)v.v;
}

static void set_gaps(int32_t track[HISTORY_N])
{
	for (size_t i = 0; i < HISTORY_N; i++)
		track[i] = GRAPH_GAP;
}

static bool is_card(const struct card_series *s, const struct gpu_card *c)
{
	return s->index == c->index && s->gi == c->gi && s->ci == c->ci &&
	       !strcmp(s->uuid, c->uuid);
}

const struct card_series *history_card(const struct history *h, const struct gpu_card *c)
{
	for (size_t i = 0; i < h->n_cards; i++)
		if (is_card(&h->cards[i], c))
			return &h->cards[i];
	return NULL;
}

static struct card_series *card_of(struct history *h, const struct gpu_card *c)
{
	struct card_series *s = (struct card_series *)(uintptr_t)history_card(h, c);

	if (s)
		return s;
	/* Cards that come and go under ever new names don't pile up. */
	if (h->n_cards >= 2 * GPU_MAX)
		h->n_cards = 0;
	GROW(h->cards, h->n_cards, h->cap_cards);
	s = &h->cards[h->n_cards++];
	*s = (struct card_series){.index = c->index, .gi = c->gi, .ci = c->ci};
	memcpy(s->uuid, c->uuid, sizeof(s->uuid));
	for (size_t t = 0; t < CARD_TRACK_N; t++)
		set_gaps(s->v[t]);
	return s;
}

static void take_card(struct history *h, const struct gpu_card *c)
{
	static const enum metric metrics[CARD_TRACK_N] = {
		[CARD_UTIL] = METRIC_UTIL_GPU,
		[CARD_UTIL_MEM] = METRIC_UTIL_MEM,
		[CARD_USED] = METRIC_MEM_USED,
		[CARD_TEMP] = METRIC_TEMP,
		[CARD_FAN] = METRIC_FAN,
		[CARD_POWER] = METRIC_POWER,
		[CARD_RX] = METRIC_PCIE_RX,
		[CARD_TX] = METRIC_PCIE_TX,
	};
	struct card_series *s = card_of(h, c);

	for (size_t t = 0; t < CARD_TRACK_N; t++)
		s->v[t][h->head] = figure(c->m[metrics[t]]);
}

static bool is_proc(
	const struct proc_series *s, const char *uuid, int32_t pid, uint64_t start_ticks)
{
	return s->pid == pid && s->start_ticks == start_ticks && !strcmp(s->uuid, uuid);
}

const struct proc_series *history_proc(
	const struct history *h, const char *uuid, int32_t pid, uint64_t start_ticks)
{
	for (size_t i = 0; i < h->n_procs; i++)
		if (is_proc(&h->procs[i], uuid, pid, start_ticks))
			return &h->procs[i];
	return NULL;
}

/* Rows come in the same order each time: the search begins where the last one ended. */
static struct proc_series *proc_of(
	struct history *h, const struct sample *s, uint32_t row, size_t *hint)
{
	const struct gpu_proc *p = &s->snap.procs[row];
	const char *uuid = s->snap.cards[p->card].uuid;
	struct proc_series *x;

	for (size_t k = 0; k < h->n_procs; k++) {
		size_t i = (*hint + k) % h->n_procs;

		if (is_proc(&h->procs[i], uuid, p->pid, p->start_ticks)) {
			*hint = i + 1;
			return &h->procs[i];
		}
	}
	if (h->n_procs >= HISTORY_PROCS_MAX)
		return NULL;
	GROW(h->procs, h->n_procs, h->cap_procs);
	x = &h->procs[h->n_procs++];
	*x = (struct proc_series){.pid = p->pid, .start_ticks = p->start_ticks};
	memcpy(x->uuid, uuid, sizeof(x->uuid));
	memcpy(x->comm, p->comm, sizeof(x->comm));
	for (size_t t = 0; t < PROC_TRACK_N; t++)
		set_gaps(x->v[t]);
	return x;
}

static void take_procs(struct history *h, const struct sample *s)
{
	size_t hint = 0;

	for (uint32_t i = 0; i < s->snap.n_procs; i++) {
		const struct gpu_proc_more *more = s->snap.more ? &s->snap.more[i] : NULL;
		struct proc_series *x = proc_of(h, s, i, &hint);

		if (!x)
			continue;
		x->idle = 0;
		x->v[PROC_USED][h->head] = figure(s->snap.procs[i].used_mib);
		if (!more)
			continue;
		memcpy(x->user, more->user, sizeof(x->user));
		x->v[PROC_CPU][h->head] = figure(more->cpu_pct);
		x->v[PROC_RSS][h->head] = figure(more->rss_mib);
	}
}

/* The slot that's used next holds what was HISTORY_N samples ago; a process without a value left is forgotten. */
static void make_room(struct history *h)
{
	size_t kept = 0;

	for (size_t i = 0; i < h->n_cards; i++)
		for (size_t t = 0; t < CARD_TRACK_N; t++)
			h->cards[i].v[t][h->head] = GRAPH_GAP;
	for (size_t i = 0; i < h->n_procs; i++) {
		if (++h->procs[i].idle >= HISTORY_N)
			continue;
		for (size_t t = 0; t < PROC_TRACK_N; t++)
			h->procs[i].v[t][h->head] = GRAPH_GAP;
		if (kept != i)
			h->procs[kept] = h->procs[i];
		kept++;
	}
	h->n_procs = kept;
}

void history_take(struct history *h, const struct sample *s, int64_t now_ms)
{
	h->head = h->n ? (h->head + 1) % HISTORY_N : 0;
	if (h->n < HISTORY_N)
		h->n++;
	h->at_ms[h->head] = now_ms;
	make_room(h);
	for (uint32_t i = 0; i < s->snap.n_cards; i++)
		take_card(h, &s->snap.cards[i]);
	take_procs(h, s);
}

static unsigned slot(const struct history *h, int back)
{
	return (h->head + HISTORY_N - (unsigned)back) % HISTORY_N;
}

int history_back(const struct history *h, int64_t at_ms)
{
	for (unsigned back = 0; back < h->n; back++)
		if (h->at_ms[slot(h, (int)back)] <= at_ms)
			return (int)back;
	return -1;
}

int32_t history_at(const struct history *h, const int32_t track[HISTORY_N], int back)
{
	if (back < 0 || (unsigned)back >= h->n)
		return GRAPH_GAP;
	return track[slot(h, back)];
}

size_t history_series(
	const struct history *h, const int32_t track[HISTORY_N], int back, int32_t ret[HISTORY_N])
{
	size_t n = 0;

	if (back < 0)
		back = 0;
	for (int i = (int)h->n - 1; i >= back; i--)
		ret[n++] = history_at(h, track, i);
	return n;
}
