/*
 * The peaks of foreign processes between samples (track.h). Owns one small sorted list for each card. A card that a
 * sample lacks, or that didn't answer in it, keeps its list: its silence says nothing about who is on it. Reads no
 * clock and asks no driver.
 */
#include "sched/track.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* Cards remembered although samples lack them; past this the silent ones are forgotten. */
#define CARDS_KEPT_MAX (2 * GPU_MAX)

struct track_proc {
	int32_t pid;
	uint64_t start_ticks; /* 0: not known */
	int64_t peak_mib;
};

struct track_card {
	char uuid[GPU_UUID_LEN];
	struct track_proc *procs; /* ascending pid, each pid once */
	size_t n;
	bool is_in_sample;
};

struct track {
	struct track_card *cards;
	size_t n, cap;
};

struct track *track_new(void)
{
	return xcalloc(1, sizeof(struct track));
}

void track_free(struct track *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n; i++)
		free(t->cards[i].procs);
	free(t->cards);
	free(t);
}

static struct track_card *card_find(const struct track *t, const char *uuid)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->cards[i].uuid, uuid) == 0)
			return &t->cards[i];
	return NULL;
}

static struct track_card *card_get(struct track *t, const char *uuid)
{
	struct track_card *c = card_find(t, uuid);

	if (c)
		return c;
	GROW(t->cards, t->n, t->cap);
	c = &t->cards[t->n++];
	*c = (struct track_card){0};
	memcpy(c->uuid, uuid, strnlen(uuid, sizeof(c->uuid) - 1));
	return c;
}

static void cards_forget_silent(struct track *t)
{
	size_t kept = 0;

	for (size_t i = 0; i < t->n; i++) {
		if (t->cards[i].is_in_sample)
			t->cards[kept++] = t->cards[i];
		else
			free(t->cards[i].procs);
	}
	t->n = kept;
}

static int proc_order(const void *a, const void *b)
{
	const struct track_proc *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Several rows of one pid in one sample are one process: the largest counts, not the sum. */
static size_t procs_merge_rows(struct track_proc *p, size_t n)
{
	size_t kept = 0;

	qsort(p, n, sizeof(*p), proc_order);
	for (size_t i = 0; i < n; i++) {
		if (kept == 0 || p[kept - 1].pid != p[i].pid) {
			p[kept++] = p[i];
			continue;
		}
		struct track_proc *same = &p[kept - 1];
		if (p[i].peak_mib > same->peak_mib)
			same->peak_mib = p[i].peak_mib;
		if (same->start_ticks == 0)
			same->start_ticks = p[i].start_ticks;
	}
	return kept;
}

/* A start time that one of the two samples couldn't read doesn't make another process of it. */
static bool is_same_proc(const struct track_proc *a, const struct track_proc *b)
{
	return a->pid == b->pid &&
	       (a->start_ticks == b->start_ticks || a->start_ticks == 0 || b->start_ticks == 0);
}

/* Both lists ascend by pid. */
static void procs_inherit(
	struct track_proc *now, size_t n, const struct track_proc *before, size_t n_before)
{
	size_t b = 0;

	for (size_t i = 0; i < n; i++) {
		while (b < n_before && before[b].pid < now[i].pid)
			b++;
		if (b == n_before || !is_same_proc(&before[b], &now[i]))
			continue;
		if (before[b].peak_mib > now[i].peak_mib)
			now[i].peak_mib = before[b].peak_mib;
		if (now[i].start_ticks == 0)
			now[i].start_ticks = before[b].start_ticks;
	}
}

static void card_take_in(struct track_card *c, const struct gpu_snapshot *s, uint32_t position,
	const uint8_t *proc_is_own)
{
	struct track_proc *now = NULL;
	size_t n = 0, cap = 0;

	for (uint32_t i = 0; i < s->n_procs; i++) {
		const struct gpu_proc *p = &s->procs[i];

		if (p->card != position || (proc_is_own && proc_is_own[i]))
			continue;
		/* A row without a figure is still the process: it keeps the peak it had. */
		int64_t used =
			value_is_present(p->used_mib) && p->used_mib.v > 0 ? p->used_mib.v : 0;
		GROW(now, n, cap);
		now[n++] = (struct track_proc){p->pid, p->start_ticks, used};
	}
	if (n > 0)
		n = procs_merge_rows(now, n);
	procs_inherit(now, n, c->procs, c->n);
	free(c->procs);
	c->procs = now;
	c->n = n;
}

void track_update(struct track *t, const struct gpu_snapshot *s, const uint8_t *proc_is_own)
{
	if (s->error[0])
		return;
	for (size_t i = 0; i < t->n; i++)
		t->cards[i].is_in_sample = false;
	for (uint32_t i = 0; i < s->n_cards; i++) {
		const struct gpu_card *g = &s->cards[i];

		if (g->state != GPU_OK || !g->uuid[0])
			continue;
		struct track_card *c = card_get(t, g->uuid);
		c->is_in_sample = true;
		card_take_in(c, s, i, proc_is_own);
	}
	if (t->n > CARDS_KEPT_MAX)
		cards_forget_silent(t);
}

int64_t track_foreign_peaks(const struct track *t, const char *uuid)
{
	const struct track_card *c = card_find(t, uuid);
	int64_t sum = 0;

	for (size_t i = 0; c && i < c->n; i++)
		if (__builtin_add_overflow(sum, c->procs[i].peak_mib, &sum))
			return INT64_MAX;
	return sum;
}
