/*
 * A libnvidia-ml.so.1 without a GPU: NVML's ABI over a scenario. It is stricter than the real one: a null or stale
 * handle, or one of a card that was reported lost, aborts, and so does a structure with a wrong version word.
 * FAKE_OLD: a library of 2018 (un-suffixed lists of 16 bytes). FAKE_535: 32-byte elements, as in 535.43 to 535.86.
 */
#include "scenario.h"

#include "gpu/nvml_abi.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MAGIC 0x6e766d6cu
#define MIB (UINT64_C(1024) * 1024)

struct nvml_device {
	uint32_t magic;
	int card;
	int instance; /* -1: the whole card */
	int generation;
	int64_t opened_ms;
	bool is_dead;
};

#define HANDLES_MAX 16384

static int inits, generation;
static struct nvml_device
	handles[HANDLES_MAX]; /* never reused, so that a stale one is recognised */
static int n_handles;

static void complain(const char *call, const char *what)
{
	fprintf(stderr, "fake nvml: %s: %s\n", call, what);
	abort();
}

static void write_log(const char *call, int card)
{
	const char *path = getenv("GPUSTOW_FAKE_NVML_LOG");
	char line[96];
	int fd, n;

	if (path == NULL || (fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0)
		return;
	n = card < 0 ? snprintf(line, sizeof(line), "%s\n", call)
		     : snprintf(line, sizeof(line), "%s %d\n", call, card);
	if (write(fd, line, (size_t)n) != n)
		complain(call, "cannot write the log");
	close(fd);
}

/* The scenario's rule for this call, if there's one: its code, after its delay. */
static int begin_at(const char *call, int card, bool is_instance)
{
	struct fake_scenario *s = fake_scenario();
	int64_t now = fake_now_ms();

	write_log(call, card);
	for (int i = 0; i < s->n_rules; i++) {
		const struct fake_rule *r = &s->rules[i];

		if ((strcmp(r->call, call) != 0 && strcmp(r->call, "*") != 0) || now < r->after ||
			now >= r->until || (r->card >= 0 && r->card != card) ||
			(r->is_parent_only && is_instance))
			continue;
		if (r->act == FAKE_ERR)
			return (int)r->value;
		if (r->act == FAKE_HANG)
			for (;;)
				pause();
		nanosleep(&(struct timespec){r->value / 1000, r->value % 1000 * 1000000}, NULL);
	}
	return NVML_OK;
}

static int begin(const char *call, int card)
{
	return begin_at(call, card, false);
}

static bool is_lost(const struct fake_card *c, int64_t now)
{
	return c->lost_from >= 0 && now >= c->lost_from && now < c->lost_to;
}

static int begin_device(const char *call, struct nvml_device *d, struct fake_card **ret)
{
	struct fake_scenario *s = fake_scenario();
	int code;

	if (d == NULL)
		complain(call, "null handle");
	if (d < handles || d >= handles + n_handles || d->magic != MAGIC)
		complain(call, "not a handle");
	if (inits == 0)
		return NVML_UNINITIALIZED;
	if (d->generation != generation)
		complain(call, "stale handle");
	if (d->is_dead)
		complain(call, "handle of a card that was reported lost");
	code = begin_at(call, d->card, d->instance >= 0);
	if (d->card >= s->n_cards || is_lost(&s->cards[d->card], fake_now_ms()) ||
		(s->cards[d->card].lost_from > d->opened_ms &&
			fake_now_ms() >= s->cards[d->card].lost_from))
		code = NVML_GPU_IS_LOST;
	if (code == NVML_UNINITIALIZED || code == NVML_GPU_IS_LOST || code == NVML_RESET_REQUIRED ||
		code == NVML_GPU_NOT_FOUND)
		d->is_dead = true;
	*ret = &s->cards[d->card];
	return code;
}

#define DEVICE(d) \
	struct fake_card *c; \
	int code = begin_device(__func__, d, &c); \
	if (code != NVML_OK) \
	return code

/* The same handle for the same thing as long as it's good, as in the real library. */
static int open_handle(int card, int instance, struct nvml_device **ret)
{
	for (int i = 0; i < n_handles; i++) {
		struct nvml_device *d = &handles[i];

		if (d->card == card && d->instance == instance && d->generation == generation &&
			!d->is_dead) {
			*ret = d;
			return NVML_OK;
		}
	}
	if (n_handles == HANDLES_MAX)
		complain("open", "too many handles");
	handles[n_handles] = (struct nvml_device){.magic = MAGIC,
		.card = card,
		.instance = instance,
		.generation = generation,
		.opened_ms = fake_now_ms()};
	*ret = &handles[n_handles++];
	return NVML_OK;
}

static int text_out(const char *from, char *to, uint32_t size)
{
	if (strlen(from) >= size)
		return NVML_INSUFFICIENT_SIZE;
	memcpy(to, from, strlen(from) + 1);
	return NVML_OK;
}

/* Life */

static int init(const char *call)
{
	int code = begin(call, -1);

	if (code == NVML_OK && inits++ == 0)
		generation++;
	return code;
}

EXPORT int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
	return init(__func__);
}

EXPORT int nvmlInit(void);
int nvmlInit(void)
{
	return init(__func__);
}

EXPORT int nvmlInitWithFlags(uint32_t flags);
int nvmlInitWithFlags(uint32_t flags)
{
	(void)flags;
	return init(__func__);
}

EXPORT int nvmlShutdown(void);
int nvmlShutdown(void)
{
	int code = begin(__func__, -1);

	if (inits == 0)
		return NVML_UNINITIALIZED;
	inits--;
	return code;
}

EXPORT int nvmlSystemGetDriverVersion(char *text, uint32_t size);
int nvmlSystemGetDriverVersion(char *text, uint32_t size)
{
	int code = begin(__func__, -1);

	return code != NVML_OK ? code : text_out(fake_scenario()->driver, text, size);
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, uint32_t size);
int nvmlSystemGetNVMLVersion(char *text, uint32_t size)
{
	int code = begin(__func__, -1);

	return code != NVML_OK ? code : text_out(fake_scenario()->nvml, text, size);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int32_t *version);
int nvmlSystemGetCudaDriverVersion(int32_t *version)
{
	*version = 12040;
	return begin(__func__, -1);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int32_t *version);
int nvmlSystemGetCudaDriverVersion_v2(int32_t *version)
{
	*version = 12040;
	return begin(__func__, -1);
}

EXPORT int nvmlSystemGetProcessName(uint32_t pid, char *name, uint32_t size);
int nvmlSystemGetProcessName(uint32_t pid, char *name, uint32_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	if (begin(__func__, -1) != NVML_OK || size == 0 ||
		(fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		return NVML_NOT_FOUND;
	n = read(fd, name, size - 1);
	close(fd);
	name[n > 0 ? n - 1 : 0] = '\0';
	return NVML_OK;
}

/* Cards */

EXPORT int nvmlDeviceGetCount_v2(uint32_t *count);
int nvmlDeviceGetCount_v2(uint32_t *count)
{
	int code = begin(__func__, -1);

	if (inits == 0)
		return NVML_UNINITIALIZED;
	if (code == NVML_OK)
		*count = (uint32_t)fake_scenario()->n_cards;
	return code;
}

EXPORT int nvmlDeviceGetCount(uint32_t *count);
int nvmlDeviceGetCount(uint32_t *count)
{
	return nvmlDeviceGetCount_v2(count);
}

static int by_index(const char *call, uint32_t i, struct nvml_device **ret)
{
	int code = begin(call, (int)i);
	struct fake_scenario *s = fake_scenario();

	if (inits == 0)
		return NVML_UNINITIALIZED;
	if (i >= (uint32_t)s->n_cards)
		return NVML_INVALID_ARGUMENT;
	if (is_lost(&s->cards[i], fake_now_ms()))
		return NVML_GPU_IS_LOST;
	return code != NVML_OK ? code : open_handle((int)i, -1, ret);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(uint32_t i, struct nvml_device **ret);
int nvmlDeviceGetHandleByIndex_v2(uint32_t i, struct nvml_device **ret)
{
	return by_index(__func__, i, ret);
}

EXPORT int nvmlDeviceGetHandleByIndex(uint32_t i, struct nvml_device **ret);
int nvmlDeviceGetHandleByIndex(uint32_t i, struct nvml_device **ret)
{
	return by_index(__func__, i, ret);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **ret);
int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **ret)
{
	for (int i = 0; i < fake_scenario()->n_cards; i++) {
		if (strcmp(fake_scenario()->cards[i].uuid, uuid) == 0)
			return by_index(__func__, (uint32_t)i, ret);
	}
	return NVML_NOT_FOUND;
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct nvml_device **ret);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct nvml_device **ret)
{
	for (int i = 0; i < fake_scenario()->n_cards; i++) {
		if (strcasecmp(fake_scenario()->cards[i].bus, bus) == 0)
			return by_index(__func__, (uint32_t)i, ret);
	}
	return NVML_NOT_FOUND;
}

EXPORT int nvmlDeviceGetIndex(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetIndex(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	*ret = (uint32_t)d->card;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMinorNumber(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetMinorNumber(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	*ret = (uint32_t)d->card;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetUUID(struct nvml_device *d, char *text, uint32_t size);
int nvmlDeviceGetUUID(struct nvml_device *d, char *text, uint32_t size)
{
	DEVICE(d);
	return text_out(c->uuid, text, size);
}

EXPORT int nvmlDeviceGetName(struct nvml_device *d, char *text, uint32_t size);
int nvmlDeviceGetName(struct nvml_device *d, char *text, uint32_t size)
{
	DEVICE(d);
	return text_out(c->name, text, size);
}

static void pci_of(const struct fake_card *c, struct nvml_pci *p, bool is_long)
{
	unsigned long domain = strtoul(c->bus, NULL, 16);

	memset(p, 0, is_long ? sizeof(*p) : offsetof(struct nvml_pci, bus_id));
	snprintf(p->bus_id_legacy, sizeof(p->bus_id_legacy), "%04lX%.11s", domain,
		strchr(c->bus, ':'));
	p->domain = (uint32_t)domain;
	p->bus = (uint32_t)strtoul(strchr(c->bus, ':') + 1, NULL, 16);
	if (is_long)
		snprintf(p->bus_id, sizeof(p->bus_id), "%.31s", c->bus);
}

EXPORT int nvmlDeviceGetPciInfo_v2(struct nvml_device *d, struct nvml_pci *ret);
int nvmlDeviceGetPciInfo_v2(struct nvml_device *d, struct nvml_pci *ret)
{
	DEVICE(d);
	pci_of(c, ret, false);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetPciInfo(struct nvml_device *d, struct nvml_pci *ret);
int nvmlDeviceGetPciInfo(struct nvml_device *d, struct nvml_pci *ret)
{
	DEVICE(d);
	pci_of(c, ret, false);
	return NVML_OK;
}

/* Figures */

static int all_procs(
	const struct nvml_device *d, const struct fake_card *c, int kind, struct fake_proc *out)
{
	struct fake_scenario *s = fake_scenario();
	int n = 0;

	for (int i = 0; i < s->n_procs; i++) {
		if (s->procs[i].card == d->card && (s->procs[i].kind & kind) &&
			(d->instance < 0 || s->procs[i].gi == d->instance + 1))
			out[n++] = s->procs[i];
	}
	if ((kind & FAKE_C) && d->instance < 0)
		n += fake_sim_procs(d->card, c->uuid, out + n, FAKE_PROCS);
	return n;
}

static uint64_t used_of(const struct nvml_device *d, const struct fake_card *c)
{
	static struct fake_proc procs[2 * FAKE_PROCS];
	int n = all_procs(d, c, FAKE_C | FAKE_G | FAKE_M, procs);
	int64_t used = c->used;

	for (int i = 0; i < n; i++)
		used += procs[i].used > 0 ? procs[i].used : 0;
	return (uint64_t)(used > c->memory - c->reserved ? c->memory - c->reserved : used) * MIB;
}

EXPORT int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *m);
int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *m)
{
	DEVICE(d);
	if (c->is_unified)
		return NVML_NOT_SUPPORTED;
	m->total = (uint64_t)c->memory * MIB;
	m->used = used_of(d, c) + (uint64_t)c->reserved * MIB;
	m->free = m->total - m->used;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *u);
int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *u)
{
	static struct fake_proc procs[FAKE_PROCS];

	DEVICE(d);
	if (c->mig)
		return NVML_NOT_SUPPORTED;
	u->gpu = (uint32_t)c->util;
	if (fake_sim_procs(d->card, c->uuid, procs, FAKE_PROCS) > 0)
		u->gpu = 90;
	u->memory = (uint32_t)c->memutil;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetTemperature(struct nvml_device *d, int32_t sensor, uint32_t *ret);
int nvmlDeviceGetTemperature(struct nvml_device *d, int32_t sensor, uint32_t *ret)
{
	DEVICE(d);
	if (sensor != NVML_TEMPERATURE_GPU)
		return NVML_INVALID_ARGUMENT;
	*ret = (uint32_t)c->temp;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(struct nvml_device *d, int32_t which, uint32_t *ret);
int nvmlDeviceGetTemperatureThreshold(struct nvml_device *d, int32_t which, uint32_t *ret)
{
	DEVICE(d);
	*ret = which == 0 ? 95 : 90;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret);
int nvmlDeviceGetClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret)
{
	DEVICE(d);
	*ret = (uint32_t)(domain == NVML_CLOCK_MEM ? c->mem : c->sm);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMaxClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret);
int nvmlDeviceGetMaxClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret)
{
	DEVICE(d);
	*ret = domain == NVML_CLOCK_MEM ? 9501 : 2100;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetPcieThroughput(struct nvml_device *d, int32_t which, uint32_t *ret);
int nvmlDeviceGetPcieThroughput(struct nvml_device *d, int32_t which, uint32_t *ret)
{
	DEVICE(d);
	*ret = which == 0 ? 70 : 40;
	return NVML_OK;
}

#define PERIOD_CALL(name) \
	EXPORT int name(struct nvml_device *d, uint32_t *ret, uint32_t *period); \
	int name(struct nvml_device *d, uint32_t *ret, uint32_t *period) \
	{ \
		DEVICE(d); \
		*ret = 0; \
		*period = 167000; \
		return NVML_OK; \
	}
PERIOD_CALL(nvmlDeviceGetEncoderUtilization)
PERIOD_CALL(nvmlDeviceGetDecoderUtilization)

#define FIGURE_CALL(name, type, member) \
	EXPORT int name(struct nvml_device *d, type *ret); \
	int name(struct nvml_device *d, type *ret) \
	{ \
		DEVICE(d); \
		*ret = (type)c->member; \
		return NVML_OK; \
	}
FIGURE_CALL(nvmlDeviceGetPowerUsage, uint32_t, power)
FIGURE_CALL(nvmlDeviceGetPowerManagementLimit, uint32_t, limit)
FIGURE_CALL(nvmlDeviceGetFanSpeed, uint32_t, fan)
FIGURE_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, uint64_t, throttle)
FIGURE_CALL(nvmlDeviceGetPerformanceState, int32_t, pstate)
#ifndef FAKE_OLD
FIGURE_CALL(nvmlDeviceGetEnforcedPowerLimit, uint32_t, limit)
FIGURE_CALL(nvmlDeviceGetCurrentClocksEventReasons, uint64_t, throttle)
#endif

EXPORT int nvmlDeviceGetProcessUtilization(
	struct nvml_device *d, void *rows, uint32_t *count, uint64_t since);
int nvmlDeviceGetProcessUtilization(
	struct nvml_device *d, void *rows, uint32_t *count, uint64_t since)
{
	(void)rows;
	(void)since;
	DEVICE(d);
	*count = 0;
	return NVML_NOT_FOUND;
}

/* Processes */

static int fill_procs(struct nvml_device *d, const struct fake_card *c, int kind, size_t size,
	uint32_t *count, void *rows)
{
	static struct fake_proc procs[2 * FAKE_PROCS];
	uint32_t n = (uint32_t)all_procs(d, c, kind, procs), room = *count;

	*count = n;
	if (room < n)
		return NVML_INSUFFICIENT_SIZE;
	for (uint32_t i = 0; i < n; i++) {
		struct nvml_process_535 e;
		uint8_t *at = (uint8_t *)rows + i * size;

		/* Padding is garbage in the real library too. */
		memset(&e, 0xaa, sizeof(e));
		e.pid = (uint32_t)procs[i].pid;
		e.used = procs[i].used < 0 || c->is_blind ? NVML_ABSENT_U64
							  : (uint64_t)procs[i].used * MIB;
		e.gpu_instance = procs[i].gi < 0 ? NVML_ABSENT_U32 : (uint32_t)procs[i].gi;
		e.compute_instance = procs[i].gi < 0 ? NVML_ABSENT_U32 : 0;
		e.used_protected = i % 2 ? NVML_ABSENT_U64 : 0;
		memcpy(at, &e, size);
	}
	return NVML_OK;
}

#define LIST_CALL(name, kind, size) \
	EXPORT int name(struct nvml_device *d, uint32_t *count, void *rows); \
	int name(struct nvml_device *d, uint32_t *count, void *rows) \
	{ \
		DEVICE(d); \
		return fill_procs(d, c, kind, size, count, rows); \
	}

LIST_CALL(nvmlDeviceGetComputeRunningProcesses, FAKE_C, sizeof(struct nvml_process_v1))
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses, FAKE_G, sizeof(struct nvml_process_v1))
#ifndef FAKE_OLD
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses, FAKE_M, sizeof(struct nvml_process_v1))
LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v2, FAKE_C, sizeof(struct nvml_process_v2))
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, FAKE_G, sizeof(struct nvml_process_v2))
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, FAKE_M, sizeof(struct nvml_process_v2))

static size_t element(void)
{
	if (fake_scenario()->element != 0)
		return (size_t)fake_scenario()->element;
#ifdef FAKE_535
	return sizeof(struct nvml_process_535);
#else
	return sizeof(struct nvml_process_v2);
#endif
}

LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v3, FAKE_C, element())
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, FAKE_G, element())
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, FAKE_M, element())

EXPORT int nvmlDeviceGetConfComputeMemSizeInfo(struct nvml_device *d, void *info);
int nvmlDeviceGetConfComputeMemSizeInfo(struct nvml_device *d, void *info)
{
	(void)info;
	DEVICE(d);
	return NVML_NOT_SUPPORTED;
}

#ifndef FAKE_535
EXPORT int nvmlDeviceGetRunningProcessDetailList(struct nvml_device *d, void *list);
int nvmlDeviceGetRunningProcessDetailList(struct nvml_device *d, void *list)
{
	(void)list;
	DEVICE(d);
	return NVML_NOT_SUPPORTED;
}
#endif

/* What libraries since 2021 have besides */

EXPORT const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
	return code == NVML_OK ? "Success" : "Fake error";
}

EXPORT int nvmlDeviceGetPciInfo_v3(struct nvml_device *d, struct nvml_pci *ret);
int nvmlDeviceGetPciInfo_v3(struct nvml_device *d, struct nvml_pci *ret)
{
	DEVICE(d);
	pci_of(c, ret, true);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *d, struct nvml_memory_v2 *m);
int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *d, struct nvml_memory_v2 *m)
{
	DEVICE(d);
	if (m->version != 0x02000028)
		return NVML_ARGUMENT_VERSION_MISMATCH;
	if (c->is_unified)
		return NVML_NOT_SUPPORTED;
	m->total = (uint64_t)c->memory * MIB;
	m->reserved = (uint64_t)c->reserved * MIB;
	m->used = used_of(d, c);
	m->free = m->total - m->used - m->reserved;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetTemperatureV(struct nvml_device *d, struct nvml_temperature *t);
int nvmlDeviceGetTemperatureV(struct nvml_device *d, struct nvml_temperature *t)
{
	DEVICE(d);
	if (t->version != 0x0100000c)
		return NVML_ARGUMENT_VERSION_MISMATCH;
	t->celsius = (int32_t)c->temp;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetFanSpeed_v2(struct nvml_device *d, uint32_t fan, uint32_t *ret);
int nvmlDeviceGetFanSpeed_v2(struct nvml_device *d, uint32_t fan, uint32_t *ret)
{
	DEVICE(d);
	if (fan != 0)
		return NVML_INVALID_ARGUMENT;
	*ret = (uint32_t)c->fan;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetNumaNodeId(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetNumaNodeId(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	if (c->numa < 0)
		return NVML_NOT_SUPPORTED;
	*ret = (uint32_t)c->numa;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMigMode(struct nvml_device *d, uint32_t *now, uint32_t *pending);
int nvmlDeviceGetMigMode(struct nvml_device *d, uint32_t *now, uint32_t *pending)
{
	DEVICE(d);
	*now = *pending = (uint32_t)c->mig;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	*ret = c->mig ? 7 : 0;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(
	struct nvml_device *d, uint32_t i, struct nvml_device **ret);
int nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_device *d, uint32_t i, struct nvml_device **ret)
{
	DEVICE(d);
	if (i >= FAKE_INSTANCES || !c->has_instance[i])
		return NVML_NOT_FOUND;
	return open_handle(d->card, (int)i, ret);
}

static int popcount(uint64_t bits)
{
	return __builtin_popcountll(bits);
}

EXPORT int nvmlDeviceGetFieldValues(struct nvml_device *d, int32_t n, struct nvml_field *f);
int nvmlDeviceGetFieldValues(struct nvml_device *d, int32_t n, struct nvml_field *f)
{
	DEVICE(d);
	for (int32_t i = 0; i < n; i++) {
		f[i].type = 1;
		f[i].code = NVML_OK;
		if (f[i].id == NVML_FIELD_LINK_COUNT)
			f[i].value.u32 = (uint32_t)(popcount(c->links) + c->is_switched);
		else if (f[i].id == NVML_FIELD_RECOVERY_ACTION)
			f[i].value.u32 = (uint32_t)c->recovery;
		else
			f[i].code = NVML_NOT_SUPPORTED;
	}
	return NVML_OK;
}

EXPORT int nvmlDeviceGetNvLinkState(struct nvml_device *d, uint32_t link, int32_t *ret);
int nvmlDeviceGetNvLinkState(struct nvml_device *d, uint32_t link, int32_t *ret)
{
	DEVICE(d);
	if (link >= (uint32_t)(popcount(c->links) + c->is_switched))
		return NVML_INVALID_ARGUMENT;
	*ret = 1;
	return NVML_OK;
}

/* The far card of link number `link`: the link-th bit of the mask; -1 for the switch. */
static int far_card(const struct fake_card *c, uint32_t link)
{
	for (int i = 0; i < FAKE_CARDS; i++) {
		if (c->links >> i & 1 && link-- == 0)
			return i;
	}
	return -1;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(
	struct nvml_device *d, uint32_t link, struct nvml_pci *ret);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *d, uint32_t link, struct nvml_pci *ret)
{
	DEVICE(d);
	if (far_card(c, link) < 0)
		return NVML_INVALID_ARGUMENT;
	pci_of(&fake_scenario()->cards[far_card(c, link)], ret, true);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *d, uint32_t link, int32_t *ret);
int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *d, uint32_t link, int32_t *ret)
{
	DEVICE(d);
	*ret = far_card(c, link) < 0 ? NVML_LINK_DEVICE_SWITCH : NVML_LINK_DEVICE_GPU;
	return NVML_OK;
}
#endif /* FAKE_OLD */
