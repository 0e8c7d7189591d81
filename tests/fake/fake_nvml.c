/*
 * A libnvidia-ml.so.1 without a GPU: NVML's ABI over a scenario. It is stricter than the real one: a null or stale
 * handle, or one of a card that was reported lost, aborts, and so does a structure with a wrong version word.
 * FAKE_OLD: a library of 2018 (un-suffixed lists of 16 bytes). FAKE_535: 32-byte elements, as in 535.43 to 535.86.
 */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x6e766d6cu
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

static int64_t *cpu_sum(void)
{
	static int64_t *sum;
	static bool is_tried;
	const char *path = getenv("GPUSTOW_FAKE_NVML_CPU");
	int fd;

	if (is_tried || path == NULL)
		return sum;
	is_tried = true;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		complain("cpu", path);
	sum = mmap(NULL, sizeof(*sum), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (sum == MAP_FAILED)
		complain("cpu", path);
	return sum;
}

static int64_t cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t fake_cpu_begin(void)
{
	return cpu_sum() != NULL ? cpu_now() : 0;
}

void fake_cpu_end(const int64_t *begun)
{
	if (*begun != 0)
		*cpu_sum() += cpu_now() - *begun;
}

static int begin(const char *call, int card)
{
	return fake_rules(call, card, false);
}

int fake_begin(const char *call)
{
	return inits == 0 ? NVML_UNINITIALIZED : begin(call, -1);
}

static bool is_lost(const struct fake_card *c, int64_t now)
{
	return c->lost_from >= 0 && now >= c->lost_from && now < c->lost_to;
}

int fake_begin_device(const char *call, struct nvml_device *d, struct fake_card **ret)
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
	code = fake_rules(call, d->card, d->instance >= 0);
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

/* The same handle for the same thing as long as it's good, as in the real library. */
int fake_open_handle(int card, int instance, struct nvml_device **ret)
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

int fake_text_out(const char *from, char *to, uint32_t size)
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

	return code != NVML_OK ? code : fake_text_out(fake_scenario()->driver, text, size);
}

EXPORT int nvmlSystemGetNVMLVersion(char *text, uint32_t size);
int nvmlSystemGetNVMLVersion(char *text, uint32_t size)
{
	int code = begin(__func__, -1);

	return code != NVML_OK ? code : fake_text_out(fake_scenario()->nvml, text, size);
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
	return code != NVML_OK ? code : fake_open_handle((int)i, -1, ret);
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
	char uuid[FAKE_UUID_LEN];

	DEVICE(d);
	if (d->instance < 0)
		return fake_text_out(c->uuid, text, size);
	fake_mig_uuid(d->card, d->instance, uuid);
	return fake_text_out(uuid, text, size);
}

EXPORT int nvmlDeviceGetName(struct nvml_device *d, char *text, uint32_t size);
int nvmlDeviceGetName(struct nvml_device *d, char *text, uint32_t size)
{
	char name[192];

	DEVICE(d);
	if (d->instance < 0)
		return fake_text_out(c->name, text, size);
	snprintf(name, sizeof(name), "%s MIG 1g.%dgb", c->name, (int)(c->memory / 8 / 1024));
	return fake_text_out(name, text, size);
}

void fake_pci_of(const struct fake_card *c, struct nvml_pci *p, bool is_long)
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
	fake_pci_of(c, ret, false);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetPciInfo(struct nvml_device *d, struct nvml_pci *ret);
int nvmlDeviceGetPciInfo(struct nvml_device *d, struct nvml_pci *ret)
{
	DEVICE(d);
	fake_pci_of(c, ret, false);
	return NVML_OK;
}
