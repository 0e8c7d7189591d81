/* Which processes the pane shows, and in which order (monitor_model.h): filter, sort, tree and users. */
#include "tui/monitor_model.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TREE_MAX = 512 };

/* ---- rows ---- */

static struct value permille_of(struct value part, const struct sample *s)
{
	struct value whole = s->has_host ? s->host.mem_total_mib : value_absent(VALUE_NOT_ASKED);

	if (!value_is_present(part) || !value_is_present(whole) || whole.v <= 0)
		return value_absent(VALUE_EMPTY);
	return value_of(part.v * 1000 / whole.v);
}

static struct proc_row row_of(const struct sample *s, uint32_t i)
{
	const struct gpu_proc *p = &s->snap.procs[i];
	const struct gpu_proc_more *more = s->snap.more ? &s->snap.more[i] : NULL;
	struct proc_row r = {.pid = p->pid,
		.start_ticks = p->start_ticks,
		.row = i,
		.kind = p->kind,
		.used_mib = p->used_mib};

	memcpy(r.comm, p->comm, sizeof(r.comm));
	r.comm[sizeof(r.comm) - 1] = '\0';
	r.command = more && more->cmdline[0] ? more->cmdline : p->comm;
	if (more && more->user[0])
		snprintf(r.user, sizeof(r.user), "%s", more->user);
	else if (p->uid != (uint32_t)-1)
		snprintf(r.user, sizeof(r.user), "%u", p->uid);
	if (!more)
		return r;
	r.state = more->state;
	r.threads = more->threads;
	r.cpu_pct = more->cpu_pct;
	r.rss_mib = more->rss_mib;
	r.mem_permille = permille_of(more->rss_mib, s);
	if (more->start_wall_ms && s->wall_ms >= more->start_wall_ms)
		r.time_ms = value_of(s->wall_ms - more->start_wall_ms);
	return r;
}

static struct value value_at(const struct history *h, const int32_t *track, int back)
{
	int32_t v = history_at(h, track, back);

	return v == GRAPH_GAP ? value_absent(VALUE_EMPTY) : value_of(v);
}

/* A process as it was then; false: it wasn't there. */
static bool past_row(
	const struct monitor_node *n, const struct proc_series *s, int back, struct proc_row *ret)
{
	struct proc_row r = {.pid = s->pid, .start_ticks = s->start_ticks, .row = UINT32_MAX};

	r.used_mib = value_at(&n->history, s->v[PROC_USED], back);
	r.cpu_pct = value_at(&n->history, s->v[PROC_CPU], back);
	r.rss_mib = value_at(&n->history, s->v[PROC_RSS], back);
	if (!value_is_present(r.used_mib) && !value_is_present(r.cpu_pct) &&
		!value_is_present(r.rss_mib))
		return false;
	r.mem_permille = permille_of(r.rss_mib, n->host.sample);
	snprintf(r.user, sizeof(r.user), "%s", s->user);
	memcpy(r.comm, s->comm, sizeof(r.comm));
	r.comm[sizeof(r.comm) - 1] = '\0';
	r.command = s->comm;
	*ret = r;
	return true;
}

/* ---- the filter ---- */

static bool contains(const char *text, const char *part)
{
	return strcasestr(text, part) != NULL;
}

static bool matches(const struct monitor *m, const struct proc_row *r)
{
	const char *part = m->proc_filter.text;
	char pid[24], state[] = {r->state, '\0'};

	snprintf(pid, sizeof(pid), "%d", r->pid);
	return contains(pid, part) || (state[0] && contains(state, part)) ||
	       contains(r->user, part) || contains(r->comm, part) || contains(r->command, part) ||
	       contains((r->kind & GPU_PROC_COMPUTE) && (r->kind & GPU_PROC_GRAPHICS) ? "c+g"
			: r->kind & GPU_PROC_GRAPHICS				      ? "g"
										      : "c",
		       part);
}

/* ---- order ---- */

bool proc_sort_is_ascending(int sort)
{
	return sort == BY_COMMAND;
}

static int compare_values(struct value a, struct value b)
{
	return a.v < b.v ? -1 : a.v > b.v;
}

static struct value sort_value(const struct proc_row *r, int sort)
{
	switch (sort) {
	case BY_VRAM:
		return r->used_mib;
	case BY_CPU:
		return r->cpu_pct;
	case BY_MEM:
		return r->mem_permille;
	case BY_RSS:
		return r->rss_mib;
	case BY_TIME:
		return r->time_ms;
	default:
		return value_of(r->pid);
	}
}

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct monitor *m = arg;
	const struct proc_row *x = a, *y = b;
	struct value u = sort_value(x, m->proc_sort), v = sort_value(y, m->proc_sort);
	int r;

	/* What lacks the value is last, whichever the direction. */
	if (value_is_present(u) != value_is_present(v))
		return value_is_present(u) ? -1 : 1;
	r = m->proc_sort == BY_COMMAND ? strcmp(x->command, y->command) : compare_values(v, u);
	if (m->proc_reverse)
		r = -r;
	return r ? r : x->pid < y->pid ? -1 : x->pid > y->pid;
}

static void sort_rows(const struct monitor *m, struct proc_row *rows, size_t n)
{
	if (n)
		qsort_r(rows, n, sizeof(*rows), compare_rows, (void *)(uintptr_t)m);
}

/* ---- tree ---- */

/* The nearest ancestor among the rows; n: none. */
static size_t parent_of(const struct sample *s, const struct proc_row *rows, size_t n, size_t i)
{
	const struct gpu_proc *p =
		rows[i].row < s->snap.n_procs ? &s->snap.procs[rows[i].row] : NULL;

	for (uint32_t a = 0; p && a < p->n_ancestors; a++)
		for (size_t k = 0; k < n; k++)
			if (k != i && rows[k].pid == p->ancestors[a])
				return k;
	return n;
}

struct tree {
	const struct proc_row *from;
	struct proc_row *to;
	const size_t *parents;
	size_t n, n_put;
};

/* A child's depth is its parent's and one; a ring of parents, which a reused pid may make, ends with the rows. */
static void put_below(struct tree *t, size_t parent, int depth)
{
	for (size_t i = 0; i < t->n && t->n_put < t->n; i++) {
		if (t->parents[i] != parent)
			continue;
		t->to[t->n_put] = t->from[i];
		t->to[t->n_put++].depth = depth;
		if (depth < 32)
			put_below(t, i, depth + 1);
	}
}

static struct proc_row *as_tree(const struct sample *s, struct proc_row *rows, size_t *n)
{
	CLEANUP_FREE size_t *parents = xcalloc(*n ? *n : 1, sizeof(*parents));
	struct tree t = {.from = rows, .parents = parents, .n = *n};

	if (!s || *n > TREE_MAX)
		return rows;
	for (size_t i = 0; i < *n; i++)
		parents[i] = parent_of(s, rows, *n, i);
	t.to = xcalloc(*n ? *n : 1, sizeof(*t.to));
	put_below(&t, *n, 0);
	*n = t.n_put;
	free(rows);
	return t.to;
}

/* ---- users ---- */

static void add_value(struct value *sum, struct value v)
{
	if (!value_is_present(v))
		return;
	*sum = value_of((value_is_present(*sum) ? sum->v : 0) + v.v);
}

static struct proc_row head_of(const struct proc_row *rows, size_t n, const char *user)
{
	struct proc_row head = {.row = UINT32_MAX, .is_head = true, .command = ""};

	snprintf(head.user, sizeof(head.user), "%s", user);
	for (size_t i = 0; i < n; i++) {
		if (strcmp(rows[i].user, user) != 0)
			continue;
		add_value(&head.used_mib, rows[i].used_mib);
		add_value(&head.cpu_pct, rows[i].cpu_pct);
		add_value(&head.mem_permille, rows[i].mem_permille);
		add_value(&head.rss_mib, rows[i].rss_mib);
		head.depth++;
	}
	return head;
}

static bool is_first_of_user(const struct proc_row *rows, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (!strcmp(rows[k].user, rows[i].user))
			return false;
	return true;
}

/* A line for each user, in the order of the sums, his processes below. */
static struct proc_row *by_user(const struct monitor *m, struct proc_row *rows, size_t *n)
{
	CLEANUP_FREE struct proc_row *heads = xcalloc(*n ? *n : 1, sizeof(*heads));
	struct proc_row *to = xcalloc(*n * 2 + 1, sizeof(*to));
	size_t n_heads = 0, at = 0;

	for (size_t i = 0; i < *n; i++)
		if (is_first_of_user(rows, i))
			heads[n_heads++] = head_of(rows, *n, rows[i].user);
	if (m->proc_sort != BY_PID && m->proc_sort != BY_COMMAND)
		sort_rows(m, heads, n_heads);
	for (size_t h = 0; h < n_heads; h++) {
		to[at++] = heads[h];
		for (size_t i = 0; i < *n; i++)
			if (!strcmp(rows[i].user, heads[h].user)) {
				to[at] = rows[i];
				to[at++].depth = 1;
			}
	}
	*n = at;
	free(rows);
	return to;
}

/* ---- all of it ---- */

static bool is_on(const struct sample *s, uint32_t i, uint32_t card)
{
	uint32_t on = s->snap.procs[i].card;

	if (on >= s->snap.n_cards)
		return false;
	return on == card ||
	       (!gpu_is_instance(&s->snap.cards[card]) && gpu_whole_of(&s->snap, on) == card);
}

struct proc_row *monitor_procs(
	const struct monitor *m, struct card_row at, int64_t now_ms, size_t *ret_n, size_t *ret_all)
{
	const struct gpu_card *c = monitor_card(m, at);
	const struct monitor_node *node = c ? &m->nodes[at.node] : NULL;
	const struct sample *s = c ? node->host.sample : NULL;
	size_t most = m->travel_ms && node ? node->history.n_procs : s ? s->snap.n_procs : 0;
	struct proc_row *rows = xcalloc(most ? most : 1, sizeof(*rows));
	size_t n = 0, all = 0;

	for (size_t i = 0; i < most; i++) {
		if (m->travel_ms) {
			const struct proc_series *p = &node->history.procs[i];

			if (strcmp(p->uuid, c->uuid) != 0 ||
				!past_row(node, p, history_back(&node->history, m->travel_ms),
					&rows[n]))
				continue;
		} else if (is_on(s, (uint32_t)i, at.card)) {
			rows[n] = row_of(s, (uint32_t)i);
		} else {
			continue;
		}
		all++;
		n += matches(m, &rows[n]);
	}
	sort_rows(m, rows, n);
	if (m->proc_group == GROUP_TREE)
		rows = as_tree(s, rows, &n);
	else if (m->proc_group == GROUP_USER)
		rows = by_user(m, rows, &n);
	*ret_n = n;
	*ret_all = all;
	return rows;
}

size_t monitor_selected_proc(const struct monitor *m, const struct proc_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (rows[i].is_head ? m->proc.head[0] && !strcmp(rows[i].user, m->proc.head)
				    : !m->proc.head[0] && rows[i].pid == m->proc.pid &&
					      rows[i].start_ticks == m->proc.start_ticks)
			return i;
	return 0;
}

int64_t monitor_proc_arg(const struct proc_row *p)
{
	uint32_t low = (uint32_t)p->start_ticks;

	for (const char *c = p->is_head ? p->user : ""; *c; c++)
		low = low * 31 + (unsigned char)*c;
	return (int64_t)((uint64_t)(uint32_t)p->pid << 32 | low);
}
