/* The reason as a sentence, out of the figures of a decision (plan_why.c). Asked for one job at a time, never in a plan. */
#include "sched/plan.h"

#include "base/buf.h"
#include "core/gpu.h"

#include <inttypes.h>

#define CARDS_MAX 64

static void put_cards(struct buf *out, const struct plan_node *n, const char *name, uint64_t cards)
{
	const char *between = "";

	if (name)
		buf_printf(out, "%s ", name);
	for (size_t i = 0; i < n->n_cards && i < CARDS_MAX; i++) {
		char label[GPU_LABEL_LEN];

		if (!(cards & (UINT64_C(1) << i)))
			continue;
		gpu_label(n->cards[i].index, n->cards[i].gi, n->cards[i].ci, label);
		buf_printf(out, "%sgpu%s", between, label);
		between = ",";
	}
}

static const char *name_of(const char *const *names, int32_t node)
{
	return names && node >= 0 ? names[node] : NULL;
}

static void put_wanted(struct buf *out, const struct plan_decision *d, const struct plan_job *job)
{
	if (job->declared_mib < 0 && job->gpus == 1)
		buf_puts(out, "needs a wholly idle GPU");
	else if (job->declared_mib < 0)
		buf_printf(out, "needs %" PRIu32 " wholly idle GPUs", job->gpus);
	else if (job->gpus == 1)
		buf_printf(out, "needs %" PRId64 " MiB on one GPU", d->need_mib);
	else
		buf_printf(out, "needs %" PRId64 " MiB on each of %" PRIu32 " GPUs", d->need_mib,
			job->gpus);
}

static void put_best(struct buf *out, const struct plan_decision *d, const struct plan_node *nodes,
	const char *const *names)
{
	if (d->best_node < 0 || d->best_card < 0) {
		buf_puts(out, "; no GPU takes another job now");
		return;
	}
	buf_puts(out, "; the best is ");
	put_cards(out, &nodes[d->best_node], name_of(names, d->best_node),
		UINT64_C(1) << d->best_card);
	buf_printf(out, " with %" PRId64 " MiB free", d->best_free_mib > 0 ? d->best_free_mib : 0);
}

/* "; its place on gpu0,gpu1 is kept until jobs 3 and 9 have ended" */
static void put_kept_place(struct buf *out, const struct plan_decision *d,
	const struct plan_node *nodes, const char *const *names, const struct plan_job *job)
{
	const struct plan_node *n = &nodes[d->guard_node];
	uint64_t ids[8];
	size_t n_ids = 0, more = 0;

	for (size_t i = 0; n->running && i < n->n_running; i++) {
		const struct plan_running *r = &n->running[i];
		size_t k = 0;

		if (r->card >= CARDS_MAX || !(d->guard_cards & (UINT64_C(1) << r->card)) ||
			r->beside_guard == job->id)
			continue;
		while (k < n_ids && ids[k] != r->id)
			k++;
		if (k < n_ids)
			continue;
		if (n_ids < sizeof(ids) / sizeof(ids[0]))
			ids[n_ids++] = r->id;
		else
			more++;
	}
	buf_puts(out, "; its place on ");
	put_cards(out, n, name_of(names, d->guard_node), d->guard_cards);
	buf_puts(out, " is kept");
	for (size_t i = 0; i < n_ids; i++)
		buf_printf(out, "%s%" PRIu64,
			i	    ? ", "
			: n_ids > 1 ? " until these jobs have ended: "
				    : " until this job has ended: ",
			ids[i]);
	if (more > 0)
		buf_puts(out, ", and more");
}

static void put_host_amounts(struct buf *out, int64_t cpus, int64_t mem_mib)
{
	if (cpus >= 0)
		buf_printf(out, "%" PRId64 " CPU%s", cpus, cpus == 1 ? "" : "s");
	if (mem_mib >= 0)
		buf_printf(out, "%s%" PRId64 " MiB of memory", cpus >= 0 ? " and " : "", mem_mib);
}

/* "needs 8 CPUs and 4096 MiB of memory of its machine; n1 has the most left: 4 CPUs" */
static void put_host(struct buf *out, const struct plan_decision *d, const char *const *names,
	const struct plan_job *job)
{
	int64_t cpus = job->cpus > 0 ? job->cpus : -1, mem = job->mem_mib > 0 ? job->mem_mib : -1;
	const char *name = name_of(names, d->best_node);

	buf_puts(out, "needs ");
	put_host_amounts(out, cpus, mem);
	buf_puts(out, " of its machine; ");
	if (d->best_node < 0) {
		buf_puts(out, "none has that");
		return;
	}
	buf_printf(out, "%s has%s ", name ? name : "it",
		d->what == PLAN_NEVER ? " at most" : " the most left:");
	cpus = cpus >= 0 && d->host_cpus >= 0 ? d->host_cpus : -1;
	mem = mem >= 0 && (d->host_mem_mib >= 0 || d->host_mem_mib < -1) ? d->host_mem_mib : -1;
	if (cpus < 0 && mem < 0)
		buf_puts(out, "less");
	put_host_amounts(out, cpus, mem);
}

static void put_never(struct buf *out, const struct plan_decision *d, const char *const *names,
	const struct plan_job *job)
{
	if (d->why == WHY_TOO_MANY_CARDS)
		buf_printf(out, "needs %" PRIu32 " GPUs but only %" PRIu32 " are usable", job->gpus,
			d->have_cards);
	else if (d->why == WHY_NO_CARD)
		buf_puts(out, "no GPU that is known is what it asks for");
	else if (d->why == WHY_NOT_JOINED)
		buf_printf(out,
			"needs %" PRIu32 " GPUs joined by NVLink; at most %" PRIu32
			" that are large enough are",
			job->gpus, d->have_cards);
	else if (d->why == WHY_HOST_TOO_SMALL)
		put_host(out, d, names, job);
	else
		buf_printf(out,
			"declared %" PRId64 " MiB + %" PRId64
			" MiB margin exceeds total capacity of %" PRIu32 " required GPU(s)",
			job->declared_mib, d->need_mib - job->declared_mib, d->have_cards);
}

static void put_limit(struct buf *out, const struct plan_job *job)
{
	if (job->gpus == 0)
		buf_puts(out, "as many CPU jobs run as the limit allows");
	else
		buf_puts(out, "as many jobs run as the limit allows");
}

static void put_waits(struct buf *out, const struct plan_decision *d, const struct plan_node *nodes,
	const char *const *names, const struct plan_job *job)
{
	switch (d->why) {
	case WHY_MEMORY:
		put_wanted(out, d, job);
		put_best(out, d, nodes, names);
		break;
	case WHY_FEW_CARDS:
		put_wanted(out, d, job);
		buf_printf(out, "; only %" PRIu32 " of one machine ha%s that much free",
			d->have_cards, d->have_cards == 1 ? "s" : "ve");
		break;
	case WHY_NO_IDLE:
		put_wanted(out, d, job);
		if (d->have_cards == 0)
			buf_puts(out, ", since it declares no vram; none is idle");
		else
			buf_printf(out, ", since it declares no vram; only %" PRIu32 " %s idle",
				d->have_cards, d->have_cards == 1 ? "is" : "are");
		break;
	case WHY_NVLINK:
		put_wanted(out, d, job);
		buf_printf(out, " joined by NVLink; at most %" PRIu32 " joined ones have room",
			d->have_cards);
		break;
	case WHY_PROMISED:
		put_wanted(out, d, job);
		buf_puts(out, "; what is free is promised to another user's jobs");
		break;
	case WHY_GUARDED:
		buf_printf(out, "would delay job %" PRIu64 ", whose place is kept", d->guard_id);
		if (name_of(names, d->best_node))
			buf_printf(out, " on %s", name_of(names, d->best_node));
		break;
	case WHY_JOBS_LIMIT:
		put_limit(out, job);
		break;
	case WHY_BLOCKED:
		buf_puts(out, "waits for something else first");
		break;
	case WHY_NO_NODE:
		buf_puts(out, job->gpus == 0 ? "no machine can take it now"
					     : "no usable GPU answers now");
		break;
	case WHY_THRESHOLD:
		buf_puts(out,
			"declares no vram, and with an idle threshold of 0 MiB no GPU ever counts as "
			"idle; declare vram or raise the threshold");
		break;
	case WHY_NOT_IDLE:
		put_wanted(out, d, job);
		if (d->have_cards == 0)
			buf_puts(out, " that nobody uses; there is none");
		else
			buf_printf(out, " that nobody uses; only %" PRIu32 " of one machine %s so",
				d->have_cards, d->have_cards == 1 ? "is" : "are");
		break;
	case WHY_OUT_OF_SERVICE:
		buf_puts(out, "every GPU that would do is out of service or doesn't answer");
		break;
	case WHY_HOST:
		put_host(out, d, names, job);
		break;
	case WHY_NONE:
	case WHY_TOO_MANY_CARDS:
	case WHY_TOO_BIG:
	case WHY_NO_CARD:
	case WHY_NOT_JOINED:
	case WHY_HOST_TOO_SMALL:
		break;
	}
}

void plan_why_text(const struct plan_decision *d, const struct plan_node *nodes,
	const char *const *node_names, const struct plan_job *job, struct buf *out)
{
	if (d->what == PLAN_NEVER) {
		put_never(out, d, node_names, job);
		return;
	}
	if (d->what == PLAN_START) {
		buf_puts(out, "starts on ");
		if (d->cards)
			put_cards(out, &nodes[d->node], name_of(node_names, d->node), d->cards);
		else
			buf_puts(out, name_of(node_names, d->node) ? name_of(node_names, d->node)
								   : "the CPU");
		return;
	}
	put_waits(out, d, nodes, node_names, job);
	if (d->guard_node >= 0)
		put_kept_place(out, d, nodes, node_names, job);
}
