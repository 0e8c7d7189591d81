/*
 * The doctor's look at the driver. Everything that calls into the driver's library is done in a child with a time limit, for
 * a wedged card hangs whoever asks.
 */
#include "cli/doctor.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "gpu/gpu_backend.h"
#include "gpu/nvml.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_MS = 10000, CHILD_MAX = 1024 * 1024 };

static const char *host_root(void)
{
	const char *s = getenv("GPUSTOW_HOST_ROOT");

	return s ? s : "";
}

static bool is_simulated(void)
{
	const char *s = getenv("GPUSTOW_SIM");

	return s && *s;
}

/* ---- in the child ---- */

static void look_at_library(struct checklist *l, const char *path)
{
	void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	const char *why = handle ? NULL : dlerror();

	if (handle)
		checklist_add(l, CHECK_OK, "library", NULL, "%s can be loaded", path);
	else
		checklist_add(l, CHECK_BAD, "library",
			"install the driver's libraries (of the kernel module's version), or name the file in GPUSTOW_NVML_PATH",
			"%s can't be loaded: %s", path, why ? why : "no reason given");
	if (handle)
		dlclose(handle);
}

static void compare_versions(struct checklist *l, const struct gpu_snapshot *s, const char *module)
{
	size_t n = strlen(s->driver);

	/* NVML's own version is "12.550.54.15": CUDA's major number, then the driver's. */
	if (!module[0] || !n || strcmp(module, s->driver) == 0)
		return;
	checklist_add(l, CHECK_BAD, "versions",
		"reboot, or unload the old kernel module and load the new one",
		"the kernel module is of driver %s, the library of %s", module, s->driver);
}

static void ask_driver(struct checklist *l)
{
	struct gpu_ask ask = {.details = true, .lets_sleep = true};
	struct gpu_backend *backend = NULL;
	const char *path = getenv("GPUSTOW_NVML_PATH");
	char module[64] = "";
	struct gpu_snapshot s = {0};
	struct sample sample = {0};
	struct err e = {0};
	int64_t begun_ms = clock_boot_ms();

	if (nvml_host_module_version(host_root(), module, sizeof(module)) == 0)
		checklist_add(l, CHECK_OK, "module", NULL,
			"the kernel module of driver %s is loaded", module);
	else
		checklist_add(l, CHECK_WARN, "module",
			"load it (modprobe nvidia), or install the driver",
			"the NVIDIA kernel module isn't loaded");
	look_at_library(l, path && *path ? path : "libnvidia-ml.so.1");
	if (gpu_backend_nvml_open(path && *path ? path : NULL, &backend, &e) < 0 ||
		gpu_backend_ask(backend, &ask, &s, &e) < 0) {
		checklist_add(l, CHECK_BAD, "nvml",
			"what is above says why; gpustow reads nvidia-smi's text as long as that works",
			"%s", e.text);
		checklist_took(l, clock_boot_ms() - begun_ms);
		return;
	}
	checklist_add(l, CHECK_OK, "nvml", NULL, "NVML answers: %u card%s, driver %s, CUDA %s",
		gpu_count_whole(&s), gpu_count_whole(&s) == 1 ? "" : "s",
		s.driver[0] ? s.driver : "unknown", s.cuda[0] ? s.cuda : "unknown");
	checklist_took(l, clock_boot_ms() - begun_ms);
	compare_versions(l, &s, module);
	sample.snap = s;
	doctor_sample(l, &sample);
}

static _Noreturn void child_main(int fd)
{
	struct checklist l = {0};
	json_t *list;
	char *text;

	ask_driver(&l);
	list = checklist_json(&l);
	text = json_dumps(list, JSON_COMPACT);
	if (text)
		(void)fd_write_all(fd, text, strlen(text));
	_exit(0);
}

/* ---- the child's life ---- */

/* Reads to the end of the child's words, within the time. */
static bool read_child(int fd, struct buf *out)
{
	int64_t until_ms = clock_boot_ms() + CHILD_MS;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left_ms = until_ms - clock_boot_ms();
		char bytes[4096];
		ssize_t n;

		if (left_ms <= 0 || poll(&p, 1, (int)left_ms) == 0)
			return false;
		n = read(fd, bytes, sizeof(bytes));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || out->len > CHILD_MAX)
			return true;
		buf_put(out, bytes, (size_t)n);
	}
}

static void in_child(struct checklist *l)
{
	CLEANUP(buf_done) struct buf out = {0};
	bool has_ended;
	int fds[2], status = 0;
	json_t *list;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return;
	pid = fork();
	if (pid == 0)
		child_main(fds[1]);
	close(fds[1]);
	has_ended = pid > 0 && read_child(fds[0], &out);
	close(fds[0]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		/* One that hangs in the kernel can't even be waited for. */
		waitpid(pid, &status, has_ended ? 0 : WNOHANG);
	}
	if (!has_ended)
		checklist_add(l, CHECK_BAD, "nvml",
			"look at the kernel log (dmesg | grep -i -e nvrm -e xid); most often only a reboot helps",
			"the driver hasn't answered for %d s: it hangs", CHILD_MS / 1000);
	list = has_ended ? json_loadb(buf_str(&out), out.len, 0, NULL) : NULL;
	if (has_ended && !list)
		checklist_add(l, CHECK_BAD, "nvml",
			"install the driver again: its library is damaged",
			"the driver's library ended the process that asked it");
	checklist_take_json(l, list);
	json_decref(list);
}

/* ---- device nodes ---- */

static bool is_cgroup_v2(void)
{
	return access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0;
}

static void look_at_node(struct checklist *l, const char *path, size_t *n_ok)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK), r = fd < 0 ? errno : 0;
	struct stat st = {0};

	if (fd >= 0) {
		close(fd);
		(*n_ok)++;
		return;
	}
	if (r == EPERM)
		checklist_add(l, CHECK_BAD, "devices",
			is_cgroup_v2()
				? "a device rule (BPF) of this container or unit denies it: start it with the GPU, or DeviceAllow="
				: "the devices cgroup of this container or unit denies it: start it with the GPU, or add it to devices.allow",
			"%s may not be opened, though its mode allows it (cgroup %s)", path,
			is_cgroup_v2() ? "v2" : "v1");
	else if (r == EACCES && stat(path, &st) == 0)
		checklist_add(l, CHECK_BAD, "devices",
			"join the node's group, or have its mode changed (nvidia-modprobe, udev)",
			"%s may not be opened: mode %04o, owner %u, group %u", path,
			st.st_mode & 07777, st.st_uid, st.st_gid);
	else
		checklist_add(l, CHECK_WARN, "devices",
			"nvidia-smi run once as root makes the nodes; else look at the kernel log",
			"%s can't be opened: %s", path, strerror(r));
}

static void look_at_nodes(struct checklist *l)
{
	CLEANUP_FREE char *dir = xasprintf("%s/dev", host_root());
	CLEANUP_CLOSEDIR DIR *d = opendir(dir);
	size_t n_cards = 0, n_ok = 0;
	const struct dirent *x;

	while (d && (x = readdir(d))) {
		const char *rest = x->d_name + 6;
		bool is_card;
		CLEANUP_FREE char *path = NULL;

		if (strncmp(x->d_name, "nvidia", 6) != 0)
			continue;
		is_card = *rest && strspn(rest, "0123456789") == strlen(rest);
		if (!is_card && strcmp(rest, "ctl") != 0 && strcmp(rest, "-uvm") != 0)
			continue;
		n_cards += is_card;
		path = xasprintf("%s/%s", dir, x->d_name);
		look_at_node(l, path, &n_ok);
	}
	if (n_cards)
		checklist_add(l, CHECK_OK, "devices", NULL,
			"%zu card%s below /dev; %zu nodes can be opened", n_cards,
			n_cards == 1 ? "" : "s", n_ok);
	else
		checklist_add(l, CHECK_WARN, "devices",
			"in a container: start it with the GPU; else nvidia-smi as root makes the nodes",
			"there's no /dev/nvidia0");
}

/* ---- nvidia-smi ---- */

static void look_at_smi(struct checklist *l)
{
	const char *name = getenv("GPUSTOW_NVIDIA_SMI"), *path = getenv("PATH");
	CLEANUP_FREE char *copy = xstrdup(path ? path : "");

	name = name && *name ? name : "nvidia-smi";
	for (char *save = NULL, *dir = strtok_r(copy, ":", &save); dir && !strchr(name, '/');
		dir = strtok_r(NULL, ":", &save)) {
		CLEANUP_FREE char *full = xasprintf("%s/%s", dir, name);

		if (access(full, X_OK) == 0) {
			checklist_add(l, CHECK_OK, "nvidia-smi", NULL,
				"%s is there, should NVML fail", full);
			return;
		}
	}
	if (strchr(name, '/') && access(name, X_OK) == 0)
		checklist_add(
			l, CHECK_OK, "nvidia-smi", NULL, "%s is there, should NVML fail", name);
	else
		checklist_add(l, CHECK_WARN, "nvidia-smi",
			"install the driver's utilities, if NVML can't be used",
			"%s isn't there: without NVML no figures can be had", name);
}

/* Its vendor's number stands on the bus, driver or not; on WSL there's no such bus, but a place for the library. */
static bool has_gpu(void)
{
	CLEANUP_FREE char *dir = xasprintf("%s/sys/bus/pci/devices", host_root());
	CLEANUP_FREE char *module = xasprintf("%s/proc/driver/nvidia/version", host_root());
	CLEANUP_CLOSEDIR DIR *d = opendir(dir);
	const char *path = getenv("GPUSTOW_NVML_PATH");
	const struct dirent *x;

	if ((path && *path) || access(module, F_OK) == 0 || nvml_host_is_wsl(host_root()))
		return true;
	while (d && (x = readdir(d))) {
		CLEANUP_FREE char *vendor = xasprintf("%s/%s/vendor", dir, x->d_name);
		CLEANUP_FREE char *class = xasprintf("%s/%s/class", dir, x->d_name);
		CLEANUP(buf_done) struct buf v = {0}, c = {0};

		/* Class 3: a display controller, with a screen or without. */
		if (x->d_name[0] != '.' && fd_read_file_at(AT_FDCWD, vendor, &v, 64) == 0 &&
			fd_read_file_at(AT_FDCWD, class, &c, 64) == 0 &&
			strncmp(buf_str(&v), "0x10de", 6) == 0 &&
			strncmp(buf_str(&c), "0x03", 4) == 0)
			return true;
	}
	return false;
}

bool doctor_driver(struct checklist *l)
{
	if (is_simulated()) {
		checklist_add(l, CHECK_OK, "driver", NULL,
			"simulated cards (%s): no driver is asked", getenv("GPUSTOW_SIM"));
		return true;
	}
	if (!has_gpu()) {
		checklist_add(l, CHECK_OK, "driver", NULL,
			"there's no NVIDIA GPU on this machine's bus, and no driver");
		return false;
	}
	in_child(l);
	look_at_nodes(l);
	look_at_smi(l);
	return true;
}
