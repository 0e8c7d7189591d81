/*
 * Bytes as machines, jobs and policy; the plan's invariants must hold, its sentences must come out, and a second call must
 * say the same.
 */
#include "sched/plan.h"

#include "base/buf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

#define NODES 4
#define CARDS 8
#define JOBS 48
#define ROWS 16

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

struct input {
	const uint8_t *bytes;
	size_t n;
};

static uint8_t take(struct input *in)
{
	if (in->n == 0)
		return 0;
	in->n--;
	return *in->bytes++;
}

/* Mostly figures of a real size; now and then one from the ends of the range. */
static int64_t take_mib(struct input *in)
{
	uint8_t kind = take(in);

	if (kind == 255)
		return INT64_MAX;
	if (kind == 254)
		return INT64_MIN;
	return (int64_t)kind * 256 + take(in);
}

struct world {
	struct plan_card cards[NODES][CARDS];
	struct plan_running running[NODES][ROWS];
	struct plan_node nodes[NODES];
	size_t n_nodes, n_jobs;
	struct plan_job jobs[JOBS];
	struct plan_policy policy;
	uint64_t masks[2][NODES];
};

static void take_card(struct input *in, struct plan_card *c, int32_t index)
{
	uint8_t flags = take(in);

	*c = (struct plan_card){.index = flags & 1 ? index : (int32_t)take(in),
		.is_usable = !(flags & 2),
		.was_seen = flags & 4,
		.has_strangers = (flags & 10) == 10,
		.is_out = (flags & 6) == 6,
		.numa = (flags >> 3 & 3) - 1,
		.nvlink_peers = flags & 128 ? take(in) : 0};
	c->room = (struct card_room){.total_mib = take_mib(in), .foreign_mib = take_mib(in)};
	if (flags & 32) {
		c->room.budgets_mib = take_mib(in);
		c->room.n_ours = 1 + take(in) % 4;
		c->room.has_whole = flags & 64;
	}
	if (flags & 64)
		c->room.promised_mib = take_mib(in);
	c->room.headroom_mib = flags & 16 ? take_mib(in) : 0;
}

static void take_node(struct input *in, struct world *w, size_t i)
{
	uint8_t flags = take(in);

	w->nodes[i] = (struct plan_node){.cards = w->cards[i],
		.n_cards = flags % (CARDS + 1),
		.is_usable = !(flags & 128),
		.max_cpu_jobs = flags >> 4 & 3,
		.n_cpu_jobs = flags >> 5 & 3,
		.running = w->running[i],
		.n_running = take(in) % ROWS};
	uint8_t more = take(in);
	w->nodes[i].is_unknown = more & 1;
	if (more & 2)
		w->nodes[i].cpus = take_mib(in);
	if (more & 4)
		w->nodes[i].mem_mib = take_mib(in);
	if (more & 8)
		w->nodes[i].cpus_used = w->nodes[i].mem_used_mib = take_mib(in);
	for (size_t c = 0; c < w->nodes[i].n_cards; c++)
		take_card(in, &w->cards[i][c], (int32_t)c);
	for (size_t r = 0; r < w->nodes[i].n_running; r++)
		w->running[i][r] = (struct plan_running){.id = take(in),
			.card = take(in) % (CARDS + 1),
			.charge_mib = take_mib(in),
			.beside_guard = take(in) % JOBS};
}

static void take_job(struct input *in, const struct world *w, struct plan_job *j, uint64_t id)
{
	uint8_t flags = take(in);

	*j = (struct plan_job){.id = id,
		.declared_mib = flags & 1 ? take_mib(in) : UNDECLARED,
		.gpus = flags & 2 ? 1 : take(in),
		.priority = flags >> 2 & 1,
		.waiting_since_ms = take(in),
		.exclusive = flags & 8,
		.only_node = flags & 16 ? (int8_t)take(in) : -1,
		.only_cards = flags & 32 ? take(in) : 0,
		.is_blocked = (flags & 192) == 192,
		.guard_node = -1};
	uint8_t more = take(in);
	j->idle = more & 1;
	j->need_nvlink = more & 2;
	j->node_cards = more & 4 ? w->masks[more >> 7] : NULL;
	if (more & 8)
		j->cpus = take_mib(in);
	if (more & 16)
		j->mem_mib = take_mib(in);
	if (flags & 64) {
		j->guard_node = (int8_t)take(in);
		j->guard_cards = take(in);
	}
}

static void take_world(struct input *in, struct world *w)
{
	uint8_t a = take(in), b = take(in);

	memset(w, 0, sizeof(*w));
	w->policy = (struct plan_policy){.place = (enum plan_place)(a % 3),
		.exclusive = (a & 28) == 28,
		.need_nvlink = a & 32,
		.max_jobs_per_card = a >> 6,
		.max_jobs = b & 1 ? b >> 1 & 7 : 0,
		.guard_after_ms = b & 16 ? 20 : 0,
		.margin_mib = b & 32 ? take_mib(in) : 0,
		.idle_threshold_mib = b & 64 ? take_mib(in) : 200};
	w->n_nodes = take(in) % (NODES + 1);
	for (size_t i = 0; i < w->n_nodes; i++)
		take_node(in, w, i);
	for (size_t i = 0; i < NODES; i++) {
		w->masks[0][i] = take(in);
		w->masks[1][i] = take(in);
	}
	while (in->n > 0 && w->n_jobs < JOBS) {
		take_job(in, w, &w->jobs[w->n_jobs], w->n_jobs + 1);
		w->n_jobs++;
	}
}

static void check_card(const struct world *w, const struct plan_decision *d, size_t node, size_t c)
{
	const struct card_room *r = &w->cards[node][c].room;
	__int128 left = (__int128)r->total_mib - r->foreign_mib - r->budgets_mib - r->promised_mib -
			r->headroom_mib;
	size_t starts = 0, whole = 0, free_riders = 0;

	for (size_t k = 0; k < w->n_jobs; k++) {
		const struct plan_job *j = &w->jobs[k];
		if (d[k].what != PLAN_START || d[k].node != (int32_t)node || !(d[k].cards >> c & 1))
			continue;
		starts++;
		whole += j->declared_mib < 0;
		free_riders += j->declared_mib == 0;
		left -= j->declared_mib < 0 ? 0 : j->declared_mib;
		MUST(!j->only_cards || (j->only_cards >> c & 1));
		MUST(!j->node_cards || (j->node_cards[node] >> c & 1));
		MUST(!j->idle || (r->n_ours == 0 && !w->cards[node][c].has_strangers));
	}
	MUST(starts == 0 || (w->cards[node][c].is_usable && !r->has_whole));
	MUST(whole == 0 ||
		(starts == 1 && r->n_ours == 0 && r->foreign_mib < w->policy.idle_threshold_mib));
	MUST(starts == free_riders || whole || left >= 0);
	MUST(!w->policy.max_jobs_per_card || starts == 0 || whole ||
		starts + r->n_ours <= w->policy.max_jobs_per_card);
	MUST(!w->policy.exclusive || starts <= 1);
}

static void check_job(const struct world *w, const struct plan_decision *d, size_t k)
{
	const struct plan_job *j = &w->jobs[k];
	struct buf text = {0};

	MUST(d->job == k);
	plan_why_text(d, w->nodes, NULL, j, &text);
	MUST(text.len > 0);
	buf_done(&text);
	if (d->what != PLAN_START)
		return;
	MUST(!j->is_blocked && d->node >= 0 && (size_t)d->node < w->n_nodes &&
		w->nodes[d->node].is_usable);
	MUST(j->only_node < 0 || j->only_node == d->node);
	MUST((uint32_t)__builtin_popcountll(d->cards) == j->gpus);
	MUST(d->cards >> w->nodes[d->node].n_cards == 0);
}

static int64_t at_least_0(int64_t v)
{
	return v > 0 ? v : 0;
}

static void check_host(const struct world *w, const struct plan_decision *d, size_t node)
{
	const struct plan_node *n = &w->nodes[node];
	__int128 cpus = at_least_0(n->cpus_used), mem = at_least_0(n->mem_used_mib);
	bool asks_cpus = false, asks_mem = false;

	for (size_t k = 0; k < w->n_jobs; k++) {
		if (d[k].what != PLAN_START || d[k].node != (int32_t)node)
			continue;
		asks_cpus |= w->jobs[k].cpus > 0;
		asks_mem |= w->jobs[k].mem_mib > 0;
		cpus += at_least_0(w->jobs[k].cpus);
		mem += at_least_0(w->jobs[k].mem_mib);
	}
	MUST(!asks_cpus || n->cpus <= 0 || n->cpus > INT64_C(1) << 49 || cpus <= n->cpus);
	MUST(!asks_mem || n->mem_mib <= 0 || n->mem_mib > INT64_C(1) << 49 || mem <= n->mem_mib);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static struct world w;
	static struct plan_decision d[JOBS], again[JOBS];
	struct input in = {bytes, n};

	take_world(&in, &w);
	plan_make(w.nodes, w.n_nodes, w.jobs, w.n_jobs, &w.policy, 200, d);
	plan_make(w.nodes, w.n_nodes, w.jobs, w.n_jobs, &w.policy, 200, again);
	for (size_t k = 0; k < w.n_jobs; k++) {
		check_job(&w, &d[k], k);
		MUST(d[k].what == again[k].what && d[k].node == again[k].node &&
			d[k].cards == again[k].cards && d[k].why == again[k].why &&
			d[k].guard_cards == again[k].guard_cards);
	}
	for (size_t i = 0; i < w.n_nodes; i++)
		check_host(&w, d, i);
	for (size_t i = 0; i < w.n_nodes; i++)
		for (size_t c = 0; c < w.nodes[i].n_cards; c++)
			check_card(&w, d, i, c);
	return 0;
}
