/*
 * Attribution of process rows. A pid stands for a process only together with its start: a row is matched by session or
 * descent only if it started no earlier than the process it's said to come from.
 */
#include "agent/attribute.h"

#include "base/alloc.h"
#include "proc/proc.h"

#include <stdlib.h>
#include <string.h>

/* A process of ours from which others may descend: a shim, or a job's leader, which leads its session too. */
struct anchor {
	int32_t pid;
	bool is_leader;
	uint64_t start_ticks; /* 0 unknown */
	const struct attempt *attempt;
	enum { NOT_LOOKED, SAME, RECYCLED } now; /* a leader's pid */
};

static int by_pid(const void *a, const void *b)
{
	const struct anchor *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

static size_t collect(const struct attempts *t, struct anchor *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct attempt *a = t->items[i];
		pid_t shim = a->shim ? a->shim : a->rec.shim_pid;

		if (shim > 0 && a->is_watched)
			ret[n++] = (struct anchor){shim, false, a->rec.shim_start_ticks, a, SAME};
		if (a->rec.pid > 0)
			ret[n++] = (struct anchor){
				a->rec.pid, true, a->rec.start_ticks, a, NOT_LOOKED};
	}
	qsort(ret, n, sizeof(*ret), by_pid);
	return n;
}

/* Was this pid given to another process after the leader's end? Only then can a session of that number be another's. */
static bool is_recycled(struct anchor *x)
{
	struct proc_stat st;

	if (x->now == NOT_LOOKED)
		x->now = x->start_ticks && !proc_read_stat(x->pid, &st) &&
					 st.start_ticks != x->start_ticks
				 ? RECYCLED
				 : SAME;
	return x->now == RECYCLED;
}

static const struct attempt *find(
	struct anchor *anchors, size_t n, int32_t pid, bool leaders_only, uint64_t start_ticks)
{
	size_t lo = 0, hi = n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (anchors[mid].pid < pid)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < n && anchors[lo].pid == pid; lo++) {
		struct anchor *x = &anchors[lo];

		if (leaders_only && !x->is_leader)
			continue;
		if (start_ticks && x->start_ticks && start_ticks < x->start_ticks)
			continue;
		if (x->is_leader && is_recycled(x))
			continue;
		return x->attempt;
	}
	return NULL;
}

static const struct attempt *by_mark(const struct attempts *t, const char *mark)
{
	struct attempt_name name;

	if (!*mark || attempt_name_parse(mark, &name))
		return NULL;
	return attempts_find(t, &name);
}

static const struct attempt *owner_of(
	const struct gpu_proc *p, const struct attempts *t, struct anchor *anchors, size_t n)
{
	const struct attempt *a = NULL;

	if (p->sid > 0)
		a = find(anchors, n, p->sid, true, p->start_ticks);
	for (uint32_t i = 0; !a && i < p->n_ancestors && i < 32; i++)
		a = find(anchors, n, p->ancestors[i], false, p->start_ticks);
	if (!a && p->pid > 0)
		a = find(anchors, n, p->pid, true, p->start_ticks);
	return a ? a : by_mark(t, p->mark);
}

void attribute(
	const struct gpu_snapshot *s, const struct attempts *t, struct attempt_name *ret_owner)
{
	struct anchor *anchors = xcalloc(2 * t->n + 1, sizeof(*anchors));
	size_t n = collect(t, anchors);

	for (uint32_t i = 0; i < s->n_procs; i++) {
		uint32_t card = s->procs[i].card;
		bool is_blind = card < s->n_cards && s->cards[card].is_blind;
		/* Pids of a blind card may be another namespace's, and mean other processes here. */
		const struct attempt *a = is_blind ? NULL : owner_of(&s->procs[i], t, anchors, n);

		ret_owner[i] = a ? a->name : (struct attempt_name){0};
	}
	free(anchors);
}
