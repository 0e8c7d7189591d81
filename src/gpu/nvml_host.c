/*
 * What the machine itself says about its cards, beside NVML: memory of boards that share it, the kernel module's
 * version, bus ids of cards that no longer answer, NUMA nodes. Reads /proc and /sys below host_root; parsers are pure.
 */
#include "gpu/nvml.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "proc/host.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define FILE_MAX (64 * 1024)

int nvml_host_read(const char *host_root, const char *path, struct buf *ret)
{
	CLEANUP(buf_done) struct buf full = {0};

	buf_printf(&full, "%s%s", host_root, path);
	return fd_read_file_at(AT_FDCWD, full.data, ret, FILE_MAX);
}

int nvml_parse_meminfo(const char *text, int64_t *ret_total_mib, int64_t *ret_available_mib)
{
	int64_t total, available, pages, free_pages, page_kib, mib;

	if (meminfo_kib(text, "MemTotal", &total) < 0 ||
		meminfo_kib(text, "MemAvailable", &available) < 0)
		return -EINVAL;
	/* Pages set aside as huge ones are not in MemAvailable, and are what CUDA then takes. */
	if (meminfo_kib(text, "HugePages_Total", &pages) == 0 && pages > 0 &&
		meminfo_kib(text, "HugePages_Free", &free_pages) == 0 &&
		meminfo_kib(text, "Hugepagesize", &page_kib) == 0 &&
		!__builtin_mul_overflow(free_pages, page_kib, &mib))
		available = mib;
	if (available > total)
		available = total;
	*ret_total_mib = total / 1024;
	*ret_available_mib = available / 1024;
	return 0;
}

int nvml_host_memory(const char *host_root, int64_t *ret_total_mib, int64_t *ret_available_mib)
{
	CLEANUP(buf_done) struct buf b = {0};
	int r = nvml_host_read(host_root, "/proc/meminfo", &b);

	return r < 0 ? r : nvml_parse_meminfo(buf_str(&b), ret_total_mib, ret_available_mib);
}

/* The first word made of digits and points, with a point in it: "NVRM version: ... Kernel Module  535.104.05  Sat ..." */
int nvml_parse_module_version(const char *text, char *ret, size_t size)
{
	const char *line = strstr(text, "NVRM version");

	if (line == NULL)
		return -EINVAL;
	while (*line != '\0' && *line != '\n') {
		size_t n = strcspn(line, " \t\n"), digits = strspn(line, "0123456789.");

		if (n > 0 && n == digits && memchr(line, '.', n) != NULL && n < size) {
			memcpy(ret, line, n);
			ret[n] = '\0';
			return 0;
		}
		line += n;
		line += strspn(line, " \t");
	}
	return -EINVAL;
}

int nvml_host_module_version(const char *host_root, char *ret, size_t size)
{
	CLEANUP(buf_done) struct buf b = {0};
	int r = nvml_host_read(host_root, "/proc/driver/nvidia/version", &b);

	return r < 0 ? r : nvml_parse_module_version(buf_str(&b), ret, size);
}

/* NVML writes 00000000:3B:00.0, the kernel 0000:3b:00.0: four digits of domain unless it needs more. */
void nvml_host_kernel_bus(const char *bus_id, char ret[GPU_BUS_LEN])
{
	size_t skip = strlen(bus_id) == 16 && strncmp(bus_id, "0000", 4) == 0 ? 4 : 0;
	size_t i = 0;

	for (const char *s = bus_id + skip; *s != '\0' && i < GPU_BUS_LEN - 1; s++)
		ret[i++] = (char)tolower((unsigned char)*s);
	ret[i] = '\0';
}

static void nvml_bus_id(const char *kernel, char ret[GPU_BUS_LEN])
{
	size_t domain = strcspn(kernel, ":"), i = 0;

	for (; domain < 8; domain++)
		ret[i++] = '0';
	for (; *kernel != '\0' && i < GPU_BUS_LEN - 1; kernel++)
		ret[i++] = (char)toupper((unsigned char)*kernel);
	ret[i] = '\0';
}

int32_t nvml_host_numa(const char *host_root, const char *bus_id)
{
	CLEANUP(buf_done) struct buf b = {0};
	char id[GPU_BUS_LEN], path[80];
	int64_t node;

	if (bus_id[0] == '\0' || strchr(bus_id, '/') != NULL)
		return -1;
	nvml_host_kernel_bus(bus_id, id);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", id);
	if (nvml_host_read(host_root, path, &b) < 0)
		return -1;
	b.data[strcspn(buf_str(&b), "\n")] = '\0';
	if (parse_int64(b.data, &node) < 0 || node < 0 || node > 4095)
		return -1;
	return (int32_t)node;
}

bool nvml_host_is_tegra(const char *host_root)
{
	CLEANUP(buf_done) struct buf b = {0};

	return nvml_host_read(host_root, "/proc/device-tree/compatible", &b) == 0 &&
	       memmem(buf_str(&b), b.len, "nvidia,tegra", 12) != NULL;
}

static int read_number(const char *host_root, const char *path, int64_t *ret)
{
	CLEANUP(buf_done) struct buf b = {0};
	int r = nvml_host_read(host_root, path, &b);

	if (r < 0)
		return r;
	b.data[strcspn(buf_str(&b), "\n")] = '\0';
	return parse_int64(b.data, ret);
}

int nvml_host_tegra_load(const char *host_root, int64_t *ret_pct)
{
	static const char *const paths[] = {
		"/sys/devices/gpu.0/load", "/sys/devices/platform/gpu.0/load"};

	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		int64_t permille;

		if (read_number(host_root, paths[i], &permille) == 0 && permille >= 0 &&
			permille <= 1000) {
			*ret_pct = (permille + 5) / 10;
			return 0;
		}
	}
	return -ENOENT;
}

int nvml_host_tegra_temp(const char *host_root, int64_t *ret_c)
{
	for (int i = 0; i < 32; i++) {
		CLEANUP(buf_done) struct buf b = {0};
		char path[64];
		int64_t milli;

		snprintf(path, sizeof(path), "/sys/class/thermal/thermal_zone%d/type", i);
		if (nvml_host_read(host_root, path, &b) < 0)
			return -ENOENT;
		if (strncasecmp(buf_str(&b), "gpu", 3) != 0)
			continue;
		snprintf(path, sizeof(path), "/sys/class/thermal/thermal_zone%d/temp", i);
		if (read_number(host_root, path, &milli) < 0 || milli < -100000 || milli > 300000)
			return -ENOENT;
		*ret_c = milli / 1000;
		return 0;
	}
	return -ENOENT;
}

bool nvml_host_is_wsl(const char *host_root)
{
	CLEANUP(buf_done) struct buf full = {0};

	buf_printf(&full, "%s/dev/dxg", host_root);
	return access(full.data, F_OK) == 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}

uint32_t nvml_host_buses(const char *host_root, char ret[GPU_MAX][GPU_BUS_LEN])
{
	CLEANUP(buf_done) struct buf full = {0};
	CLEANUP_CLOSEDIR DIR *d = NULL;
	struct dirent *ent;
	uint32_t n = 0;

	buf_printf(&full, "%s/proc/driver/nvidia/gpus", host_root);
	d = opendir(full.data);
	while (d != NULL && n < GPU_MAX && (ent = readdir(d)) != NULL) {
		if (strchr(ent->d_name, ':') != NULL)
			nvml_bus_id(ent->d_name, ret[n++]);
	}
	if (n > 1)
		qsort(ret, n, sizeof(ret[0]), by_text);
	return n;
}
