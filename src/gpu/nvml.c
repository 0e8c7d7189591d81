/*
 * The NVML back end: the library's life and the list of cards. Initialised once and kept, for one initialisation can
 * cost a second; started anew only when a handle went stale or the number of cards changed. A card that was seen once
 * stays in the list: when it's gone it is a lost card, not an absent one, and never hides the others.
 */
#include "gpu/nvml.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "gpu/nvml_link.h"
#include "proc/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool nvml_card_drop(struct nvml *n, struct nvml_card *c, int code)
{
	if (!nvml_code_is_stale(code))
		return false;
	c->handle = NULL;
	c->state = code == NVML_UNINITIALIZED ? GPU_FAILED : nvml_code_card(code);
	n->wants_restart = true;
	if (code == NVML_UNINITIALIZED)
		n->restart_ms = 0;
	return true;
}

/* Printable ASCII only: these come from a driver and go to screens and logs. */
static void copy_name(const char *from, char *to, size_t size)
{
	size_t i = 0;

	for (; from[i] != '\0' && i < size - 1; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	to[i] = '\0';
}

static void identify_bus(struct nvml *n, struct nvml_card *c)
{
	struct nvml_pci pci = {0};

	if (n->lib.fn.pci == NULL || n->lib.fn.pci(c->handle, &pci) != NVML_OK)
		return;
	pci.bus_id[sizeof(pci.bus_id) - 1] = pci.bus_id_legacy[sizeof(pci.bus_id_legacy) - 1] =
		'\0';
	/* The older calls fill only the short name. */
	copy_name(pci.bus_id[0] != '\0' ? pci.bus_id : pci.bus_id_legacy, c->bus_id,
		sizeof(c->bus_id));
}

static void identify_numa(struct nvml *n, struct nvml_card *c)
{
	uint32_t node = NVML_ABSENT_U32;

	/* NVML's own answer is about boards that are a node of their own; the kernel's is about all. */
	c->numa = nvml_host_numa(n->host_root, c->bus_id);
	if (c->numa < 0 && n->lib.fn.numa_node != NULL &&
		n->lib.fn.numa_node(c->handle, &node) == NVML_OK && node < 4096)
		c->numa = (int32_t)node;
}

/* Numbers as NVML has them. */
enum { ARCH_BLACKWELL = 10, ARCH_TEGRA = 11 };
static const char *const architectures[] = {[2] = "Kepler",
	[3] = "Maxwell",
	[4] = "Pascal",
	[5] = "Volta",
	[6] = "Turing",
	[7] = "Ampere",
	[8] = "Ada",
	[9] = "Hopper",
	[10] = "Blackwell",
	[11] = "T23x",
	[13] = "Rubin"};

static void identify_arch(struct nvml *n, struct nvml_card *c)
{
	uint32_t v = NVML_ABSENT_U32;

	if (n->lib.fn.architecture == NULL || n->lib.fn.architecture(c->handle, &v) != NVML_OK)
		return;
	c->is_blackwell = v >= ARCH_BLACKWELL && v != ARCH_TEGRA && v != NVML_ABSENT_U32;
	if (v < ARRAY_LEN(architectures) && architectures[v] != NULL)
		snprintf(c->arch, sizeof(c->arch), "%s", architectures[v]);
}

/* Opens the card at NVML's index i: a handle and an identity, or a state that says why not. */
static void identify(struct nvml *n, uint32_t i, struct nvml_card *c)
{
	char text[96] = "";
	int64_t begun_us;
	int code;

	*c = (struct nvml_card){
		.index = (int32_t)i,
		.numa = -1,
		.mig_mode = -1,
		.is_blind = n->is_wsl,
		.links_active = -1,
	};
	begun_us = nvml_call_begin();
	code = n->lib.fn.by_index(i, &c->handle);
	nvml_call_end(n, c, "open", begun_us);
	if (code != NVML_OK || c->handle == NULL) {
		c->handle = NULL;
		c->state = nvml_code_card(code) != GPU_OK ? nvml_code_card(code) : GPU_FAILED;
		return;
	}
	code = n->lib.fn.uuid != NULL ? n->lib.fn.uuid(c->handle, text, sizeof(text))
				      : NVML_FUNCTION_NOT_FOUND;
	if (code != NVML_OK) {
		c->handle = NULL;
		c->state = nvml_code_card(code) != GPU_OK ? nvml_code_card(code) : GPU_FAILED;
		return;
	}
	text[sizeof(text) - 1] = '\0';
	copy_name(text, c->uuid, sizeof(c->uuid));
	memset(text, 0, sizeof(text));
	if (n->lib.fn.name != NULL && n->lib.fn.name(c->handle, text, sizeof(text)) == NVML_OK) {
		text[sizeof(text) - 1] = '\0';
		copy_name(text, c->name, sizeof(c->name));
	}
	identify_bus(n, c);
	identify_numa(n, c);
	identify_arch(n, c);
	c->may_sleep = nvml_bus_may_sleep(n->host_root, c->bus_id);
}

/* The number was given by the bus: whether it sleeps, and who it is, can be known without opening it. */
static bool is_left_asleep(struct nvml *n, uint32_t i, char buses[GPU_MAX][GPU_BUS_LEN],
	uint32_t n_buses, struct nvml_card *c)
{
	if (n_buses != n->count || i >= n_buses || !nvml_bus_is_asleep(n->host_root, buses[i]))
		return false;
	*c = (struct nvml_card){.index = (int32_t)i,
		.mig_mode = -1,
		.is_asleep = true,
		.may_sleep = true,
		.links_active = -1};
	memcpy(c->bus_id, buses[i], sizeof(c->bus_id));
	c->numa = nvml_host_numa(n->host_root, c->bus_id);
	nvml_bus_identity(n->host_root, c->bus_id, c->uuid, c->name);
	return true;
}

static struct nvml_card *find_uuid(struct nvml_card *cards, uint32_t n, const char *uuid)
{
	for (uint32_t i = 0; uuid[0] != '\0' && i < n; i++) {
		if (strcmp(cards[i].uuid, uuid) == 0)
			return &cards[i];
	}
	return NULL;
}

static struct nvml_card *find_index(struct nvml_card *cards, uint32_t n, int32_t index)
{
	for (uint32_t i = 0; i < n; i++) {
		if (cards[i].index == index)
			return &cards[i];
	}
	return NULL;
}

static void take_identity(struct nvml_card *to, const struct nvml_card *from)
{
	memcpy(to->uuid, from->uuid, sizeof(to->uuid));
	memcpy(to->name, from->name, sizeof(to->name));
	memcpy(to->bus_id, from->bus_id, sizeof(to->bus_id));
	to->numa = from->numa;
}

/* A card that can't be opened has no name; its place in the list, or on the bus, may still tell which one it is. */
static void name_failed(struct nvml *n, struct nvml_card *found, uint32_t n_found)
{
	char buses[GPU_MAX][GPU_BUS_LEN];
	uint32_t n_buses = nvml_host_buses(n->host_root, buses);

	for (uint32_t i = 0; i < n_found; i++) {
		struct nvml_card *was;

		if (found[i].handle != NULL || found[i].uuid[0] != '\0')
			continue;
		was = find_index(n->cards, n->n_cards, found[i].index);
		if (was != NULL && was->uuid[0] != '\0' &&
			find_uuid(found, n_found, was->uuid) == NULL)
			take_identity(&found[i], was);
		if (found[i].bus_id[0] == '\0' && n_buses == n_found)
			copy_name(buses[i], found[i].bus_id, sizeof(found[i].bus_id));
	}
}

/* Cards of before that NVML no longer counts: kept as lost, under their number as long as nobody else has it. */
static uint32_t keep_missing(struct nvml *n, struct nvml_card *found, uint32_t n_found)
{
	uint32_t total = n_found;

	for (uint32_t i = 0; i < n->n_cards && total < GPU_MAX; i++) {
		struct nvml_card *was = &n->cards[i];
		int32_t index = was->index;

		if (was->uuid[0] == '\0' || find_uuid(found, total, was->uuid) != NULL)
			continue;
		while (find_index(found, total, index) != NULL)
			index = index < (int32_t)n_found ? (int32_t)n_found : index + 1;
		found[total] = (struct nvml_card){
			.state = was->state == GPU_NEEDS_RESET ? GPU_NEEDS_RESET : GPU_LOST,
			.is_missing = true,
			.index = index,
		};
		take_identity(&found[total++], was);
	}
	return total;
}

/* What was seen of a card outlives its handle. */
static void keep_history(struct nvml *n, struct nvml_card *found, uint32_t n_found)
{
	for (uint32_t i = 0; i < n_found; i++) {
		const struct nvml_card *was = find_uuid(n->cards, n->n_cards, found[i].uuid);

		if (was == NULL)
			continue;
		found[i].xid_last = was->xid_last;
		found[i].xid_wall_ms = was->xid_wall_ms;
		found[i].xid_boot_ms = was->xid_boot_ms;
		found[i].xid_count = was->xid_count;
		memcpy(found[i].mig, was->mig, sizeof(found[i].mig));
		found[i].n_mig = was->n_mig;
		found[i].rejected = was->rejected;
	}
}

static int by_card_index(const void *a, const void *b)
{
	const struct nvml_card *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

static int enumerate(struct nvml *n, struct err *e)
{
	char buses[GPU_MAX][GPU_BUS_LEN];
	struct nvml_card *found;
	uint32_t count = 0, total, n_buses;
	int code = n->lib.fn.count(&count);

	if (code != NVML_OK)
		return err_set(e, nvml_code_errno(code), "NVML cannot count the GPUs: %s (NVML %d)",
			nvml_code_text(code), code);
	n->count = count;
	count = count > GPU_MAX ? GPU_MAX : count;
	found = xcalloc(GPU_MAX, sizeof(*found));
	n_buses = nvml_host_buses(n->host_root, buses);
	for (uint32_t i = 0; i < count; i++) {
		if (n->is_waking || !is_left_asleep(n, i, buses, n_buses, &found[i]))
			identify(n, i, &found[i]);
	}
	name_failed(n, found, count);
	total = keep_missing(n, found, count);
	keep_history(n, found, total);
	if (total > 1)
		qsort(found, total, sizeof(*found), by_card_index);
	memcpy(n->cards, found, GPU_MAX * sizeof(*found));
	free(found);
	n->n_cards = total;
	nvml_link_peers(n);
	nvml_event_start(n);
	return 0;
}

static int explain_init(struct nvml *n, int code, struct err *e)
{
	char library[80] = "unknown", module[80] = "unknown";

	if (code != NVML_LIB_RM_VERSION_MISMATCH)
		return err_set(e, nvml_code_errno(code), "NVML does not start: %s (NVML %d)",
			nvml_code_text(code), code);
	if (n->lib.fn.nvml_version != NULL &&
		n->lib.fn.nvml_version(library, sizeof(library)) != NVML_OK)
		snprintf(library, sizeof(library), "unknown");
	library[sizeof(library) - 1] = '\0';
	nvml_host_module_version(n->host_root, module, sizeof(module));
	return err_set(e, nvml_code_errno(code),
		"the NVML library (version %s) and the loaded kernel module (version %s) do not match: the "
		"driver was updated; reboot, or reload the nvidia modules (NVML 18)",
		library, module);
}

static void stop(struct nvml *n)
{
	if (n->is_up)
		nvml_event_stop(n);
	for (uint32_t i = 0; n->is_up && i < n->n_cards; i++)
		nvml_gpm_drop(n, &n->cards[i]);
	if (n->is_up && n->lib.fn.shutdown != NULL)
		n->lib.fn.shutdown();
	n->is_up = false;
	for (uint32_t i = 0; i < n->n_cards; i++)
		n->cards[i].handle = NULL;
}

static void read_versions(struct nvml *n)
{
	const struct nvml_functions *f = &n->lib.fn;
	char text[80] = "";
	int32_t cuda = 0;

	if (f->driver_version != NULL && f->driver_version(text, sizeof(text)) == NVML_OK)
		copy_name(text, n->driver, sizeof(n->driver));
	if (f->nvml_version != NULL && f->nvml_version(text, sizeof(text)) == NVML_OK)
		copy_name(text, n->library, sizeof(n->library));
	if (f->cuda_version == NULL || f->cuda_version(&cuda) != NVML_OK || cuda <= 0)
		return;
	if (cuda % 10 != 0)
		snprintf(n->cuda, sizeof(n->cuda), "%d.%d.%d", cuda / 1000, cuda % 1000 / 10,
			cuda % 10);
	else
		snprintf(n->cuda, sizeof(n->cuda), "%d.%d", cuda / 1000, cuda % 1000 / 10);
}

static int start(struct nvml *n, struct err *e)
{
	int64_t begun_us;
	int code, r;

	if (n->lib.handle == NULL) {
		r = nvml_lib_open(n->path, &n->lib, e);
		if (r < 0)
			return r;
		memset(n->first_variant, 0, sizeof(n->first_variant));
		n->has_wide_processes = nvml_lib_has_wide_processes(&n->lib);
	}
	begun_us = nvml_call_begin();
	code = n->lib.fn.init();
	nvml_call_end(n, NULL, "init", begun_us);
	if (code != NVML_OK) {
		r = explain_init(n, code, e);
		/* The file may be another one next time: an updated driver brings its own. */
		nvml_lib_close(&n->lib);
		return r;
	}
	n->is_up = true;
	r = enumerate(n, e);
	if (r < 0) {
		stop(n);
		return r;
	}
	read_versions(n);
	n->wants_restart = false;
	n->count_ms = clock_boot_ms() + NVML_COUNT_MS;
	return 0;
}

/* Cards that stay lost are looked for again, ever more slowly: each time costs all cards an initialisation. */
static void plan_restart(struct nvml *n, int64_t now_ms)
{
	bool has_lost = false;

	for (uint32_t i = 0; i < n->n_cards; i++)
		has_lost |= n->cards[i].handle == NULL && n->cards[i].state != GPU_FORBIDDEN;
	if (!has_lost) {
		n->restart_pause_ms = 0;
		n->restart_ms = 0;
		return;
	}
	n->wants_restart = true;
	n->restart_pause_ms = n->restart_pause_ms == 0 ? 1000 : 2 * n->restart_pause_ms;
	if (n->restart_pause_ms > NVML_RESTART_MAX_MS)
		n->restart_pause_ms = NVML_RESTART_MAX_MS;
	n->restart_ms = now_ms + n->restart_pause_ms;
}

/* Another number of cards, or one that was forbidden may be opened now. */
static bool has_changed(struct nvml *n, int64_t now_ms)
{
	uint32_t count = n->count;
	int64_t begun_us;
	int code;

	if (now_ms < n->count_ms)
		return false;
	n->count_ms = now_ms + NVML_COUNT_MS;
	begun_us = nvml_call_begin();
	code = n->lib.fn.count(&count);
	nvml_call_end(n, NULL, "count", begun_us);
	if (code != NVML_OK || count != n->count)
		return true;
	for (uint32_t i = 0; i < n->n_cards; i++) {
		struct nvml_device *d = NULL;

		if (n->cards[i].state == GPU_FORBIDDEN && n->cards[i].handle == NULL &&
			n->lib.fn.by_index((uint32_t)n->cards[i].index, &d) == NVML_OK)
			return true;
	}
	return false;
}

void nvml_stop(struct nvml *n)
{
	stop(n);
}

/* Whoever places jobs has his answer as ever; who only looks on battery does so gently. */
static void look_at_power(struct nvml *n, int64_t now_ms)
{
	struct value v;

	if (n->power_ms != 0 && now_ms - n->power_ms < NVML_POWER_MS)
		return;
	v = host_on_battery(n->host_root);
	n->is_gentle = value_is_present(v) && v.v == 1;
	n->power_ms = now_ms;
}

/* Initialised, with a list of cards as fresh as it has to be. */
static int refresh(struct nvml *n, int64_t now_ms, struct err *e)
{
	bool must = nvml_rest_is_over(n, now_ms);
	int r;

	look_at_power(n, now_ms);
	if (n->rest_until_ms != 0)
		return 0;
	n->is_waking = !n->base.ask.lets_sleep;
	if (!must && n->is_up && !(n->wants_restart && now_ms >= n->restart_ms) &&
		!has_changed(n, now_ms))
		return 0;
	stop(n);
	r = start(n, e);
	if (r == 0)
		plan_restart(n, now_ms);
	return r;
}

/* The card's process rows, and with details each one's use and the instances it may be on. */
static void sample_procs(struct nvml *n, uint32_t i, int64_t now_ms, struct nvml_rows *rows,
	struct gpu_snapshot *ret)
{
	struct nvml_card *c = &n->cards[i];
	struct value mig = ret->cards[i].m[METRIC_MIG_MODE];
	bool has_mig = value_is_present(mig) && mig.v == 1;
	uint32_t from = rows->n;

	if (!ret->has_old_procs)
		nvml_card_procs(n, c, i, has_mig, rows);
	if (c->handle != NULL && ret->more != NULL)
		nvml_card_use(n, c, has_mig, rows->items + from, rows->n - from, now_ms,
			ret->more + from);
	if (c->handle != NULL && has_mig) {
		int64_t begun_us = nvml_call_begin();

		nvml_mig_ask(n, c);
		nvml_call_end(n, c, "MIG instances", begun_us);
		if (c->handle != NULL)
			nvml_gpm_instances(n, c, now_ms);
	} else if (c->handle != NULL && value_is_present(mig)) {
		c->n_mig = 0;
	}
}

/* The card's instances behind all whole cards, and the rows that are theirs. */
static void add_instances(const struct nvml *n, const struct nvml_card *c, uint32_t i,
	struct nvml_rows *rows, uint32_t from, struct gpu_snapshot *ret)
{
	bool is_asleep = ret->cards[i].m[METRIC_MEM_USED].state == VALUE_ASLEEP;
	uint32_t first = ret->n_cards;

	if (c->n_mig == 0)
		return;
	nvml_mig_cards(n, c, i, c->handle != NULL && !is_asleep, ret);
	nvml_mig_move(ret, i, first, rows->items + from, rows->n - from);
	if (ret->instances != NULL && c->handle != NULL && !is_asleep)
		nvml_mig_details(c, i, ret);
}

static void sample_card(struct nvml *n, uint32_t i, int64_t now_ms, struct nvml_rows *rows,
	struct gpu_snapshot *ret)
{
	struct nvml_card *c = &n->cards[i];
	uint32_t from = rows->n;

	nvml_card_sample(n, c, now_ms, &ret->cards[i]);
	if (c->handle == NULL || ret->cards[i].m[METRIC_MEM_USED].state == VALUE_ASLEEP) {
		add_instances(n, c, i, rows, from, ret);
		return;
	}
	sample_procs(n, i, now_ms, rows, ret);
	ret->cards[i].is_blind = c->is_blind;
	/* It went while its processes were listed. */
	if (c->handle == NULL)
		nvml_card_sample(n, c, now_ms, &ret->cards[i]);
	add_instances(n, c, i, rows, from, ret);
}

static void sample_cards(struct nvml *n, int64_t now_ms, struct gpu_snapshot *ret)
{
	struct nvml_rows rows = {.items = xcalloc(GPU_PROC_MAX, sizeof(*rows.items))};
	bool details = n->base.ask.details;

	ret->n_cards = n->n_cards;
	ret->cards = xcalloc(GPU_MAX, sizeof(*ret->cards));
	ret->has_old_procs = details && n->base.ask.old_procs;
	if (details) {
		memcpy(ret->driver, n->driver, sizeof(ret->driver));
		memcpy(ret->cuda, n->cuda, sizeof(ret->cuda));
		memcpy(ret->library, n->library, sizeof(ret->library));
		ret->instances = xcalloc(GPU_INSTANCE_MAX, sizeof(*ret->instances));
	}
	if (details && !ret->has_old_procs)
		ret->more = xcalloc(GPU_PROC_MAX, sizeof(*ret->more));
	nvml_event_take(n, clock_wall_ms(), now_ms);
	for (uint32_t i = 0; i < n->n_cards; i++)
		sample_card(n, i, now_ms, &rows, ret);
	ret->n_procs = rows.n;
	ret->procs = xreallocarray(rows.items, rows.n ? rows.n : 1, sizeof(*rows.items));
	if (ret->more != NULL)
		ret->more = xreallocarray(ret->more, rows.n ? rows.n : 1, sizeof(*ret->more));
	if (n->count > GPU_MAX)
		ret->n_left_out += n->count - GPU_MAX;
	nvml_gpm_look(n, ret);
	nvml_yield_look(n, now_ms, ret);
	nvml_rest_look(n, now_ms, ret);
	nvml_call_take(n, ret);
}

/* All handles went at once with "not initialised". */
static bool was_shut_down(const struct nvml *n)
{
	bool was = n->wants_restart && n->restart_ms == 0;

	for (uint32_t i = 0; was && i < n->n_cards; i++)
		was = n->cards[i].handle == NULL && n->cards[i].state == GPU_FAILED;
	return was && n->n_cards > 0;
}

static int nvml_snapshot(struct gpu_backend *b, struct gpu_snapshot *ret, struct err *e)
{
	struct nvml *n = (struct nvml *)b;
	int64_t now_ms = clock_boot_ms();
	int r;

	if (!n->base.ask.lets_sleep)
		n->placer_ms = now_ms;
	r = refresh(n, now_ms, e);
	if (r < 0)
		return r;
	sample_cards(n, now_ms, ret);
	if (!was_shut_down(n))
		return 0;
	/* Somebody shut the library down under us; that isn't the cards' fault. */
	gpu_snapshot_done(ret);
	r = refresh(n, now_ms, e);
	if (r == 0)
		sample_cards(n, now_ms, ret);
	return r;
}

static void nvml_free(struct gpu_backend *b)
{
	struct nvml *n = (struct nvml *)b;

	stop(n);
	nvml_lib_close(&n->lib);
	free(n->path);
	free(n->host_root);
	free(n);
}

static const struct gpu_backend_impl nvml_impl = {
	.name = "nvml",
	.snapshot = nvml_snapshot,
	.free = nvml_free,
};

int nvml_open_at(const char *path, const char *host_root, struct gpu_backend **ret, struct err *e)
{
	struct nvml *n = xcalloc(1, sizeof(*n));
	int r;

	n->base.impl = &nvml_impl;
	n->path = path != NULL ? xstrdup(path) : NULL;
	n->host_root = xstrdup(host_root);
	n->is_wsl = nvml_host_is_wsl(host_root);
	n->is_tegra = nvml_host_is_tegra(host_root);
	r = start(n, e);
	if (r < 0) {
		nvml_free(&n->base);
		return r;
	}
	plan_restart(n, clock_boot_ms());
	*ret = &n->base;
	return 0;
}

int gpu_backend_nvml_open(const char *path, struct gpu_backend **ret, struct err *e)
{
	const char *host_root = getenv("GPUSTOW_HOST_ROOT");

	return nvml_open_at(path, host_root != NULL ? host_root : "", ret, e);
}
