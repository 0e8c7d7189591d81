/*
 * NVML's profiling calls. The counters have one owner at a time and keep a card from resting, so whoever asks for them in a
 * scenario that says nothing of profiling is wrong, and ends here. So does who compares samples of two cards, too near to
 * each other or given back already.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef FAKE_OLD

#define SAMPLES_MAX 256

struct nvml_gpm_sample {
	bool is_alive;
	int card; /* -1: nothing was taken yet */
	int instance; /* -1: the whole card */
	int64_t at_ms;
};

static struct nvml_gpm_sample samples[SAMPLES_MAX];

/* Of the boot, for a scenario that's read anew begins a time of its own. */
static int64_t moment_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void complain(const char *call, const char *what)
{
	fprintf(stderr, "fake nvml: %s: %s\n", call, what);
	abort();
}

static void check_allowed(const char *call)
{
	if (fake_scenario()->allows_profiling)
		return;
	fake_begin(call);
	complain(call, "nobody asked for profiling");
}

static struct nvml_gpm_sample *checked(const char *call, struct nvml_gpm_sample *s)
{
	if (s < samples || s >= samples + SAMPLES_MAX || !s->is_alive)
		complain(call, "not a sample");
	return s;
}

EXPORT int nvmlGpmQueryDeviceSupport(struct nvml_device *d, struct nvml_gpm_support *s);
int nvmlGpmQueryDeviceSupport(struct nvml_device *d, struct nvml_gpm_support *s)
{
	check_allowed(__func__);
	DEVICE(d);
	if (s->version != NVML_GPM_VERSION)
		return NVML_ARGUMENT_VERSION_MISMATCH;
	s->is_supported = c->gpm.is_there;
	return NVML_OK;
}

EXPORT int nvmlGpmSampleAlloc(struct nvml_gpm_sample **ret);
int nvmlGpmSampleAlloc(struct nvml_gpm_sample **ret)
{
	int code;

	check_allowed(__func__);
	code = fake_begin(__func__);
	for (int i = 0; code == NVML_OK && i < SAMPLES_MAX; i++) {
		if (samples[i].is_alive)
			continue;
		samples[i] = (struct nvml_gpm_sample){.is_alive = true, .card = -1};
		*ret = &samples[i];
		return NVML_OK;
	}
	return code != NVML_OK ? code : 20;
}

EXPORT int nvmlGpmSampleFree(struct nvml_gpm_sample *s);
int nvmlGpmSampleFree(struct nvml_gpm_sample *s)
{
	int code = fake_begin(__func__);

	checked(__func__, s)->is_alive = false;
	return code;
}

EXPORT int nvmlGpmSampleGet(struct nvml_device *d, struct nvml_gpm_sample *s);
int nvmlGpmSampleGet(struct nvml_device *d, struct nvml_gpm_sample *s)
{
	check_allowed(__func__);
	DEVICE(d);
	if (!c->gpm.is_there)
		return NVML_NOT_SUPPORTED;
	checked(__func__, s)->card = d->card;
	s->instance = -1;
	s->at_ms = moment_ms();
	return NVML_OK;
}

/* By the card's handle and the GPU instance's id; a handle of an instance, or an id that's none, is refused. */
EXPORT int nvmlGpmMigSampleGet(struct nvml_device *d, uint32_t gi, struct nvml_gpm_sample *s);
int nvmlGpmMigSampleGet(struct nvml_device *d, uint32_t gi, struct nvml_gpm_sample *s)
{
	check_allowed(__func__);
	DEVICE(d);
	if (!c->gpm.is_there)
		return NVML_NOT_SUPPORTED;
	if (d->instance >= 0 || gi == 0 || gi > FAKE_INSTANCES || !c->has_instance[gi - 1])
		return NVML_INVALID_ARGUMENT;
	checked(__func__, s)->card = d->card;
	s->instance = (int)gi - 1;
	s->at_ms = moment_ms();
	return NVML_OK;
}

/* The counter of an id of NVML's; -1: none. */
static int counter_of(uint32_t id)
{
	static const uint32_t ids[FAKE_COUNTERS] = {2, 3, 5, 11, 12, 13, 4, 10, 20, 21, 61, 60};

	for (int i = 0; i < FAKE_COUNTERS; i++)
		if (ids[i] == id)
			return i;
	return -1;
}

EXPORT int nvmlGpmMetricsGet(struct nvml_gpm_metrics *m);
int nvmlGpmMetricsGet(struct nvml_gpm_metrics *m)
{
	const struct fake_counters *from;
	int code;

	check_allowed(__func__);
	code = fake_begin(__func__);
	if (code != NVML_OK)
		return code;
	if (m->version != NVML_GPM_VERSION || m->n_metrics > NVML_GPM_METRICS_ROOM)
		return NVML_ARGUMENT_VERSION_MISMATCH;
	if (checked(__func__, m->older)->card != checked(__func__, m->newer)->card ||
		m->older->card < 0 || m->older->instance != m->newer->instance)
		complain(__func__, "samples of two cards");
	if (m->newer->at_ms - m->older->at_ms < 100)
		complain(__func__, "samples too near to each other");
	from = m->older->instance < 0
		       ? &fake_scenario()->cards[m->older->card].gpm
		       : &fake_scenario()->cards[m->older->card].part[m->older->instance];
	for (uint32_t i = 0; i < m->n_metrics; i++) {
		int k = counter_of(m->metrics[i].id);

		m->metrics[i].code = k < 0 || from->v[k] < 0 ? NVML_NOT_SUPPORTED : NVML_OK;
		if (m->metrics[i].code == NVML_OK)
			m->metrics[i].value = k < 8 ? from->v[k] * 100 : from->v[k] / (1024 * 1024);
	}
	return NVML_OK;
}

/* Never to be called by us, profiling or not. */
#define NEVER(name) \
	EXPORT int name(void); \
	int name(void) \
	{ \
		fake_begin(#name); \
		complain(#name, "changes how the card is profiled"); \
		return NVML_OK; \
	}
NEVER(nvmlGpmQueryIfStreamingEnabled)
NEVER(nvmlGpmSetStreamingEnabled)
#endif /* FAKE_OLD */
