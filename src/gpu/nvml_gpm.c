/*
 * Profiling by NVML's own counters (GPM): two samples at least 100 ms apart make a figure. A sample is taken with each look
 * that wants figures, so they are of the time between two looks. Nothing of it is called while nobody wants them: the
 * counters cost power.
 */
#include "gpu/nvml.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <stdio.h>

#define APART_MS 100
#define STALE_MS 10000 /* the older sample is too old to tell of now */
#define PCT_MAX 105.0 /* sampled counters may pass 100 by a hair */
#define MIB_S_MAX (64.0 * 1024 * 1024)

/* NVML's numbers. */
static const uint32_t id_of[PROFILE_N] = {
	[PROFILE_SM_ACTIVE] = 2,
	[PROFILE_SM_OCCUPANCY] = 3,
	[PROFILE_TENSOR] = 5,
	[PROFILE_FP64] = 11,
	[PROFILE_FP32] = 12,
	[PROFILE_FP16] = 13,
	[PROFILE_INT] = 4,
	[PROFILE_DRAM] = 10,
	[PROFILE_PCIE_TX] = 20,
	[PROFILE_PCIE_RX] = 21,
	[PROFILE_NVLINK_TX] = 61,
	[PROFILE_NVLINK_RX] = 60,
};

static bool has_calls(const struct nvml_functions *f)
{
	return f->gpm_support != NULL && f->gpm_alloc != NULL && f->gpm_free != NULL &&
	       f->gpm_get != NULL && f->gpm_metrics != NULL;
}

static void drop(struct nvml *n, struct nvml_gpm *g)
{
	for (size_t i = 0; i < ARRAY_LEN(g->samples); i++)
		if (g->samples[i] != NULL)
			n->lib.fn.gpm_free(g->samples[i]);
	*g = (struct nvml_gpm){0};
}

void nvml_gpm_drop(struct nvml *n, struct nvml_card *c)
{
	drop(n, &c->gpm);
	for (size_t i = 0; i < ARRAY_LEN(c->parts); i++)
		drop(n, &c->parts[i]);
}

static int allocate(struct nvml *n, struct nvml_gpm *g)
{
	int code = NVML_OK;

	for (size_t i = 0; code == NVML_OK && i < ARRAY_LEN(g->samples); i++)
		code = n->lib.fn.gpm_alloc(&g->samples[i]);
	return code;
}

/* Once for each handle: a card has them or not. */
static int find_out(struct nvml *n, struct nvml_card *c)
{
	struct nvml_gpm_support s = {.version = NVML_GPM_VERSION};
	int code;

	if (!has_calls(&n->lib.fn))
		return NVML_FUNCTION_NOT_FOUND;
	code = n->lib.fn.gpm_support(c->handle, &s);
	if (code == NVML_OK && !s.is_supported)
		code = NVML_NOT_SUPPORTED;
	return code == NVML_OK ? allocate(n, &c->gpm) : code;
}

static struct value figure_of(size_t figure, const struct nvml_gpm_metric *m)
{
	if (m->code != NVML_OK)
		return value_absent(nvml_code_value(m->code));
	if (figure <= PROFILE_DRAM) {
		if (!(m->value >= 0) || m->value > PCT_MAX)
			return value_absent(VALUE_FAILED);
		return value_of(m->value > 100 ? 100 : (int64_t)(m->value + 0.5));
	}
	if (!(m->value >= 0) || m->value > MIB_S_MAX)
		return value_absent(VALUE_FAILED);
	return value_of((int64_t)(m->value * 1024 + 0.5));
}

static void put_code(int code, struct nvml_gpm *g)
{
	for (size_t i = 0; i < PROFILE_N; i++)
		g->v[i] = value_absent(nvml_code_value(code));
}

/* All figures in one call, of the time between the two samples. */
static int compare(struct nvml *n, struct nvml_gpm *g)
{
	CLEANUP_FREE struct nvml_gpm_metrics *m = xcalloc(1, sizeof(*m));
	int code;

	m->version = NVML_GPM_VERSION;
	m->n_metrics = PROFILE_N;
	m->older = g->samples[0];
	m->newer = g->samples[1];
	for (size_t i = 0; i < PROFILE_N; i++)
		m->metrics[i].id = id_of[i];
	code = n->lib.fn.gpm_metrics(m);
	for (size_t i = 0; code == NVML_OK && i < PROFILE_N; i++)
		g->v[i] = figure_of(i, &m->metrics[i]);
	return code;
}

/* Of an instance by its card's handle; the number is the driver's own again. */
static int get(
	struct nvml *n, struct nvml_card *c, const struct nvml_gpm *g, struct nvml_gpm_sample *into)
{
	if (g->gi == 0)
		return n->lib.fn.gpm_get(c->handle, into);
	if (n->lib.fn.gpm_mig_get == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	return n->lib.fn.gpm_mig_get(c->handle, (uint32_t)(g->gi - 1), into);
}

static int take(struct nvml *n, struct nvml_card *c, struct nvml_gpm *g, int64_t now_ms)
{
	bool is_first = g->taken_ms == 0 || now_ms - g->taken_ms > STALE_MS;
	struct nvml_gpm_sample *newer = g->samples[1];
	int code;

	if (!is_first && now_ms - g->taken_ms < APART_MS)
		return NVML_OK;
	code = get(n, c, g, is_first ? g->samples[0] : newer);
	if (code != NVML_OK)
		return code;
	g->taken_ms = now_ms;
	if (is_first)
		return NVML_NO_DATA;
	code = compare(n, g);
	g->samples[1] = g->samples[0];
	g->samples[0] = newer;
	return code;
}

void nvml_gpm_card(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret)
{
	int64_t begun_us;
	int code;

	if (!n->base.ask.profiling) {
		/* A look of somebody else's between two of theirs isn't the end of them. */
		if (c->gpm.is_known && now_ms - c->gpm.taken_ms > STALE_MS)
			nvml_gpm_drop(n, c);
		return;
	}
	begun_us = nvml_call_begin();
	if (!c->gpm.is_known) {
		c->gpm.code = find_out(n, c);
		c->gpm.is_known = true;
	}
	code = c->gpm.code == NVML_OK ? take(n, c, &c->gpm, now_ms) : c->gpm.code;
	nvml_call_end(n, c, "profiling", begun_us);
	if (nvml_card_drop(n, c, code))
		return;
	if (code != NVML_OK)
		put_code(code, &c->gpm);
	profile_put(c->gpm.v, ret);
}

/* ---- GPU instances ---- */

static const struct nvml_gpm *part_of(const struct nvml_card *c, int32_t gi)
{
	for (size_t i = 0; gi > 0 && i < ARRAY_LEN(c->parts); i++)
		if (c->parts[i].gi == gi)
			return &c->parts[i];
	return NULL;
}

static bool has_instance(const struct nvml_card *c, int32_t gi)
{
	for (uint32_t i = 0; i < c->n_mig; i++)
		if (c->mig[i].gi == gi)
			return true;
	return false;
}

/* Of instances that have gone the counters are given back, for their numbers are used again; new ones get theirs. */
static void match_parts(struct nvml *n, struct nvml_card *c)
{
	for (size_t i = 0; i < ARRAY_LEN(c->parts); i++)
		if (c->parts[i].gi > 0 && !has_instance(c, c->parts[i].gi))
			drop(n, &c->parts[i]);
	for (uint32_t k = 0; k < c->n_mig; k++) {
		int32_t gi = c->mig[k].gi;
		size_t i = 0;

		if (gi <= 0 || part_of(c, gi) != NULL)
			continue;
		while (i < ARRAY_LEN(c->parts) && c->parts[i].gi > 0)
			i++;
		if (i < ARRAY_LEN(c->parts))
			c->parts[i].gi = gi;
	}
}

/* One that fails, as it does while it's destroyed, is none of the others' business. */
static int take_part(struct nvml *n, struct nvml_card *c, struct nvml_gpm *g, int64_t now_ms)
{
	int code;

	if (!g->is_known) {
		g->code = allocate(n, g);
		g->is_known = true;
	}
	code = g->code == NVML_OK ? take(n, c, g, now_ms) : g->code;
	if (code != NVML_OK)
		put_code(code, g);
	return code;
}

void nvml_gpm_instances(struct nvml *n, struct nvml_card *c, int64_t now_ms)
{
	int64_t begun_us;

	/* Whether there are such counters at all is the card's to say. */
	if (!n->base.ask.profiling || !c->gpm.is_known || c->gpm.code != NVML_OK)
		return;
	begun_us = nvml_call_begin();
	match_parts(n, c);
	for (size_t i = 0; i < ARRAY_LEN(c->parts); i++)
		if (c->parts[i].gi > 0 &&
			nvml_card_drop(n, c, take_part(n, c, &c->parts[i], now_ms)))
			break;
	nvml_call_end(n, c, "profiling", begun_us);
}

void nvml_gpm_put(const struct nvml *n, const struct nvml_card *c, struct gpu_card *ret)
{
	const struct nvml_gpm *g = part_of(c, ret->gi);

	if (n->base.ask.profiling && g != NULL && g->is_known)
		profile_put(g->v, ret);
}

/* ---- all of it ---- */

void nvml_gpm_look(const struct nvml *n, struct gpu_snapshot *s)
{
	struct gpu_profiling *p = &s->profiling;
	int code = NVML_NOT_SUPPORTED;

	if (!n->base.ask.profiling)
		return;
	for (uint32_t i = 0; i < n->n_cards; i++) {
		const struct nvml_gpm *g = &n->cards[i].gpm;

		if (g->is_known && g->code == NVML_OK) {
			p->source = PROFILE_GPM;
			return;
		}
		if (g->is_known)
			code = g->code;
	}
	p->source = PROFILE_NONE;
	if (code == NVML_NOT_SUPPORTED)
		snprintf(p->why, sizeof(p->why),
			"NVML's own profiling (GPM) needs a card of Hopper or later");
	else
		snprintf(p->why, sizeof(p->why), "NVML's own profiling (GPM): %s (NVML %d)",
			nvml_code_text(code), code);
}
