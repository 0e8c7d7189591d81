/*
 * Cards that sleep: laptops turn theirs off when nobody uses it, and opening it, or asking it anything, turns it on
 * again. Whether it sleeps, and who it is, is asked of files that don't wake it.
 */
#include "gpu/nvml.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <string.h>

static bool power_file_says(
	const char *host_root, const char *bus_id, const char *file, const char *word)
{
	CLEANUP(buf_done) struct buf b = {0};
	char id[GPU_BUS_LEN], path[96];
	size_t n = strlen(word);

	if (bus_id[0] == '\0' || strchr(bus_id, '/') != NULL)
		return false;
	nvml_host_kernel_bus(bus_id, id);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/power/%s", id, file);
	return nvml_host_read(host_root, path, &b) == 0 && strncmp(buf_str(&b), word, n) == 0 &&
	       (b.data[n] == '\n' || b.data[n] == '\0');
}

bool nvml_bus_is_asleep(const char *host_root, const char *bus_id)
{
	return power_file_says(host_root, bus_id, "runtime_status", "suspended") ||
	       power_file_says(host_root, bus_id, "runtime_status", "suspending");
}

bool nvml_bus_may_sleep(const char *host_root, const char *bus_id)
{
	return power_file_says(host_root, bus_id, "control", "auto");
}

static bool is_quiet(const struct nvml *n, const struct gpu_snapshot *s)
{
	if (!n->base.ask.lets_sleep || s->n_procs > 0 || s->n_cards == 0)
		return false;
	/* The whole cards are the first, in the same order. */
	for (uint32_t i = 0; i < n->n_cards && i < s->n_cards; i++) {
		struct value util = s->cards[i].m[METRIC_UTIL_GPU];

		if (!n->cards[i].may_sleep || (value_is_present(util) && util.v > 0))
			return false;
	}
	return true;
}

void nvml_rest_look(struct nvml *n, int64_t now_ms, const struct gpu_snapshot *s)
{
	/* A snapshot without process lists can't say that there's nobody. */
	if (s->has_old_procs || n->rest_until_ms != 0)
		return;
	if (!is_quiet(n, s)) {
		n->idle_since_ms = 0;
		return;
	}
	if (n->idle_since_ms == 0)
		n->idle_since_ms = now_ms;
	if (n->idle_need_ms == 0)
		n->idle_need_ms = NVML_IDLE_MS;
	if (now_ms - n->idle_since_ms < n->idle_need_ms)
		return;
	nvml_stop(n);
	for (uint32_t i = 0; i < n->n_cards; i++)
		n->cards[i].is_asleep = true;
	n->rest_until_ms = now_ms + NVML_REST_MS;
}

bool nvml_rest_is_over(struct nvml *n, int64_t now_ms)
{
	bool has_left = false, has_woken = false;

	for (uint32_t i = 0; i < n->n_cards; i++) {
		has_left |= n->cards[i].is_asleep;
		has_woken |= n->cards[i].is_asleep &&
			     !nvml_bus_is_asleep(n->host_root, n->cards[i].bus_id);
	}
	if (!has_left || (n->base.ask.lets_sleep && !has_woken)) {
		if (n->rest_until_ms != 0 && !has_woken)
			n->idle_need_ms = NVML_IDLE_MS;
		return false;
	}
	if (n->rest_until_ms != 0 && n->base.ask.lets_sleep) {
		if (now_ms < n->rest_until_ms)
			return false;
		if (!n->is_yielding)
			n->idle_need_ms = n->idle_need_ms * 2 > NVML_IDLE_MAX_MS
						  ? NVML_IDLE_MAX_MS
						  : n->idle_need_ms * 2;
	}
	n->is_yielding = false;
	n->rest_until_ms = 0;
	n->idle_since_ms = 0;
	return true;
}

/* The value of "Key: \t value", without blanks around it. */
static bool take_line(const char *text, const char *key, char *ret, size_t size)
{
	const char *at = text;
	size_t n;

	while (strncmp(at, key, strlen(key)) != 0 || at[strlen(key)] != ':') {
		at = strchr(at, '\n');
		if (at == NULL)
			return false;
		at++;
	}
	at += strlen(key) + 1;
	at += strspn(at, " \t");
	n = strcspn(at, "\n");
	while (n > 0 && (at[n - 1] == ' ' || at[n - 1] == '\t'))
		n--;
	if (n == 0 || n >= size)
		return false;
	for (size_t i = 0; i < n; i++)
		ret[i] = at[i] >= ' ' && at[i] <= '~' ? at[i] : '?';
	ret[n] = '\0';
	return true;
}

bool nvml_parse_information(const char *text, char uuid[GPU_UUID_LEN], char name[GPU_NAME_LEN])
{
	char id[GPU_UUID_LEN];

	/* One that was never started shows question marks. */
	if (!take_line(text, "GPU UUID", id, sizeof(id)) || strncmp(id, "GPU-", 4) != 0 ||
		strchr(id, '?') != NULL)
		return false;
	memcpy(uuid, id, sizeof(id));
	if (!take_line(text, "Model", name, GPU_NAME_LEN))
		name[0] = '\0';
	return true;
}

bool nvml_bus_identity(
	const char *host_root, const char *bus_id, char uuid[GPU_UUID_LEN], char name[GPU_NAME_LEN])
{
	CLEANUP(buf_done) struct buf b = {0};
	char id[GPU_BUS_LEN], path[96];

	nvml_host_kernel_bus(bus_id, id);
	snprintf(path, sizeof(path), "/proc/driver/nvidia/gpus/%s/information", id);
	return nvml_host_read(host_root, path, &b) == 0 &&
	       nvml_parse_information(buf_str(&b), uuid, name);
}
