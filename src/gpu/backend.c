/*
 * Chooses where GPU figures come from, and adds what is the same for all sources: number, times, name. A simulation
 * that was asked for and can't be had is an error, never a reason to touch real cards.
 */
#include "gpu/gpu_backend.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "core/profile.h"
#include "gpu/sim_spec.h"
#include "proc/proc.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char *env_or_null(const char *name)
{
	const char *v = getenv(name);

	return v != NULL && v[0] != '\0' ? v : NULL;
}

static int open_sim(const char *spec, struct gpu_backend **ret, struct err *e)
{
	char dir[PATH_MAX];
	int r = sim_dir(dir, sizeof(dir), e);

	if (r == 0)
		r = gpu_backend_sim_open(spec, dir, ret, e);
	return r < 0 ? err_wrap(e, r, "GPUSTOW_SIM=%.60s", spec) : 0;
}

int gpu_backend_open(struct gpu_backend **ret, struct err *e)
{
	const char *spec = env_or_null("GPUSTOW_SIM");
	struct err nvml = {0}, smi = {0};
	int r;

	if (spec != NULL)
		return open_sim(spec, ret, e);
	r = gpu_backend_nvml_open(env_or_null("GPUSTOW_NVML_PATH"), ret, &nvml);
	if (r == 0)
		return 0;
	if (gpu_backend_smi_open(env_or_null("GPUSTOW_NVIDIA_SMI"), ret, &smi) == 0)
		return 0;
	return err_set(e, r, "no GPU figures: %.480s; %.480s", nvml.text, smi.text);
}

/* What the driver's figures say of a reset. Draining of peer-to-peer work and recovery of the fabric are no resets. */
static enum gpu_reset reset_of(const struct gpu_card *c)
{
	struct value action = c->m[METRIC_RECOVERY], remap = c->m[METRIC_REMAP_PENDING],
		     retired = c->m[METRIC_RETIRED_PENDING];

	if (c->state == GPU_NEEDS_RESET ||
		(value_is_present(action) && (action.v == 1 || action.v == 2 || action.v == 4)))
		return GPU_RESET_NEEDED;
	if ((value_is_present(remap) && remap.v == 1) ||
		(value_is_present(retired) && retired.v == 1))
		return GPU_RESET_PENDING;
	return GPU_RESET_NONE;
}

/* The whole cards come first, so an instance finds its card's finished. */
static void finish_cards(struct gpu_snapshot *s)
{
	for (uint32_t i = 0; i < s->n_cards; i++) {
		struct gpu_card *c = &s->cards[i];
		struct value mig = c->m[METRIC_MIG_MODE];
		enum gpu_reset reset = reset_of(c);

		if (gpu_is_instance(c)) {
			c->xid = s->cards[gpu_whole_of(s, i)].xid;
			c->reset = s->cards[gpu_whole_of(s, i)].reset;
			continue;
		}
		c->is_mig_parent |= value_is_present(mig) && mig.v == 1;
		if (reset > c->reset)
			c->reset = reset;
	}
}

/* A back end that said nothing of them has none. */
static void finish_profiling(const char *name, struct gpu_profiling *p)
{
	if (p->source != PROFILE_NOT_ASKED)
		return;
	p->source = PROFILE_NONE;
	snprintf(p->why, sizeof(p->why), "%s has no profiling counters", name);
}

int gpu_backend_snapshot(struct gpu_backend *b, struct gpu_snapshot *ret, struct err *e)
{
	return gpu_backend_ask(b, &(struct gpu_ask){0}, ret, e);
}

int gpu_backend_ask(
	struct gpu_backend *b, const struct gpu_ask *ask, struct gpu_snapshot *ret, struct err *e)
{
	struct gpu_snapshot s = {.has_details = ask->details};
	int r;

	b->ask = *ask;
	s.begun_ms = clock_boot_ms();
	r = b->impl->snapshot(b, &s, e);
	if (r < 0) {
		gpu_snapshot_done(&s);
		return r;
	}
	s.ended_ms = clock_boot_ms();
	if (ask->details && s.more == NULL)
		s.more = xcalloc(s.n_procs, sizeof(*s.more));
	finish_cards(&s);
	if (ask->profiling)
		finish_profiling(b->impl->name, &s.profiling);
	for (uint32_t i = 0; !ask->profiling && i < s.n_cards; i++)
		profile_put_absent(VALUE_NOT_ASKED, &s.cards[i]);
	s.seq = ++b->seq;
	snprintf(s.source, sizeof(s.source), "%s", b->impl->name);
	/* The driver names host pids, which mean other processes in here; simulated jobs are in here too. */
	if (!b->impl->has_local_pids && !proc_is_initial_pid_ns()) {
		s.has_foreign_pids = true;
		for (uint32_t i = 0; i < s.n_cards; i++)
			s.cards[i].is_blind = true;
	}
	*ret = s;
	return 0;
}

void gpu_backend_free(struct gpu_backend *b)
{
	if (b != NULL)
		b->impl->free(b);
}
