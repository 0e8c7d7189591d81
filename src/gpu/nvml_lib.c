/*
 * Opens libnvidia-ml and finds its functions; turns its return codes, here and nowhere else. The library is opened,
 * never linked: a machine without a driver has none, and an old driver lacks half the names.
 */
#include "gpu/nvml_lib.h"

#include "base/cleanup.h"
#include "gpu/dl.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 3

struct nvml_symbol {
	size_t offset; /* in struct nvml_functions */
	char names[NAMES_MAX][48]; /* "": no further one */
};

#define NVML_SYMBOL(member, args, ...) {offsetof(struct nvml_functions, member), {__VA_ARGS__}},
static const struct nvml_symbol symbols[] = {NVML_FUNCTIONS(NVML_SYMBOL)};
#undef NVML_SYMBOL

/* The toolkit's stub answers to the plain name too; it fails when it's initialised. */
static const char *const usual_paths[] = {
	"libnvidia-ml.so.1",
	"/usr/lib/wsl/lib/libnvidia-ml.so.1",
	"libnvidia-ml.so",
};

static void find_symbols(struct nvml_lib *l)
{
	for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
		void *found = NULL;

		for (size_t k = 0; k < NAMES_MAX && found == NULL && symbols[i].names[k][0] != '\0';
			k++)
			found = dlsym(l->handle, symbols[i].names[k]);
		memcpy((char *)&l->fn + symbols[i].offset, &found, sizeof(found));
	}
}

static int open_one(const char *path, struct nvml_lib *ret)
{
	struct nvml_lib l = {0};

	l.handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (l.handle == NULL)
		return -ENOENT;
	snprintf(l.path, sizeof(l.path), "%s", path);
	find_symbols(&l);
	if (l.fn.init == NULL || l.fn.count == NULL || l.fn.by_index == NULL) {
		dlclose(l.handle);
		return -ENOSYS;
	}
	*ret = l;
	return 0;
}

static int open_named(const char *path, struct nvml_lib *ret, struct err *e)
{
	int r = open_one(path, ret);
	const char *why = r == -ENOENT ? dlerror() : NULL;

	if (r == -ENOENT)
		return err_set(
			e, r, "cannot load the NVML library: %.300s", why != NULL ? why : path);
	if (r < 0)
		return err_set(e, r, "%.300s is not an NVML library: it cannot name a card", path);
	return 0;
}

int nvml_lib_open(const char *path, struct nvml_lib *ret, struct err *e)
{
	int r = -ENOENT;

	if (path != NULL)
		return open_named(path, ret, e);
	for (size_t i = 0; i < ARRAY_LEN(usual_paths); i++) {
		r = open_one(usual_paths[i], ret);
		if (r == 0)
			return 0;
	}
	return err_set(e, r, "there is no NVML library (%s): no NVIDIA driver is installed here",
		usual_paths[0]);
}

void nvml_lib_close(struct nvml_lib *l)
{
	if (l->handle != NULL)
		dlclose(l->handle);
	*l = (struct nvml_lib){0};
}

bool nvml_lib_has_wide_processes(const struct nvml_lib *l)
{
	return l->fn.compute_v3 != NULL && l->fn.conf_compute != NULL &&
	       l->fn.process_detail == NULL;
}

/* What each return code means to us. A code without a row is a fault of the moment. */
struct nvml_meaning {
	int code;
	enum value_state value;
	enum gpu_state card;
	bool is_permanent;
	int error;
	const char *text;
};

static const struct nvml_meaning meanings[] = {
	{1, VALUE_FAILED, GPU_OK, false, ENODEV, "NVML is not initialised"},
	{2, VALUE_FAILED, GPU_OK, false, EINVAL, "NVML refused an argument"},
	{3, VALUE_UNSUPPORTED, GPU_OK, true, ENOTSUP, "not supported by this card"},
	{4, VALUE_FORBIDDEN, GPU_FORBIDDEN, false, EACCES,
		"no permission: it needs root, or a capability of the container"},
	{5, VALUE_FAILED, GPU_OK, false, EALREADY, "already initialised"},
	{6, VALUE_EMPTY, GPU_OK, false, ENOENT, "not found"},
	{7, VALUE_FAILED, GPU_OK, false, ENOBUFS, "the answer was too long"},
	{8, VALUE_FAILED, GPU_FAILED, false, EIO, "the card's power cable is not connected"},
	{9, VALUE_FAILED, GPU_OK, false, ENODEV,
		"the NVIDIA kernel driver is not loaded (modprobe nvidia, or reboot)"},
	{10, VALUE_FAILED, GPU_OK, false, ETIMEDOUT, "the driver did not answer in time"},
	{11, VALUE_FAILED, GPU_FAILED, false, EIO,
		"the kernel has an interrupt problem with the card"},
	{12, VALUE_FAILED, GPU_OK, false, ENOENT, "a library of the driver was not found"},
	{13, VALUE_UNSUPPORTED, GPU_OK, true, ENOSYS, "this driver does not have the call"},
	{14, VALUE_FAILED, GPU_FAILED, false, EIO, "the card's infoROM is corrupted"},
	{15, VALUE_LOST, GPU_LOST, false, ENODEV, "the GPU is lost (fallen off the bus)"},
	{16, VALUE_LOST, GPU_NEEDS_RESET, false, ENODEV, "the GPU needs a reset"},
	{17, VALUE_FORBIDDEN, GPU_FORBIDDEN, false, EACCES,
		"the operating system blocks access to the GPU: usually the device rules of a container "
		"or cgroup; after a suspend, a driver that did not come back"},
	{18, VALUE_FAILED, GPU_OK, false, EPROTO, "driver and NVML library differ in version"},
	{19, VALUE_FAILED, GPU_OK, false, EBUSY, "the GPU is in use"},
	{20, VALUE_FAILED, GPU_OK, false, ENOMEM, "the driver is out of memory"},
	{21, VALUE_EMPTY, GPU_OK, false, ENODATA, "no data yet"},
	{22, VALUE_UNSUPPORTED, GPU_OK, true, ENOTSUP, "not supported with vGPU"},
	{23, VALUE_FAILED, GPU_OK, false, EBUSY, "the driver is short of resources"},
	{24, VALUE_FAILED, GPU_OK, false, ENOTSUP, "that frequency is not supported"},
	{25, VALUE_UNSUPPORTED, GPU_OK, true, EPROTO, "this driver knows another form of the call"},
	{26, VALUE_UNSUPPORTED, GPU_OK, true, ENOTSUP, "withdrawn in this driver"},
	{27, VALUE_EMPTY, GPU_OK, false, EAGAIN, "not ready yet"},
	{28, VALUE_LOST, GPU_LOST, false, ENODEV, "the GPU was not found"},
	{29, VALUE_FAILED, GPU_OK, false, EAGAIN, "the GPU is in a state in which it can't answer"},
	{999, VALUE_FAILED, GPU_FAILED, false, EIO,
		"an unknown error in the driver; in a container that had its GPUs before, its device rules "
		"were rewritten (systemctl daemon-reload does that): start the container again"},
};

static const struct nvml_meaning *meaning_of(int code)
{
	static const struct nvml_meaning other = {-1, VALUE_FAILED, GPU_FAILED, false, EIO,
		"an error of the driver that has no name here"};

	for (size_t i = 0; i < ARRAY_LEN(meanings); i++) {
		if (meanings[i].code == code)
			return &meanings[i];
	}
	return &other;
}

const char *nvml_code_text(int code)
{
	return code == NVML_OK ? "no error" : meaning_of(code)->text;
}

enum value_state nvml_code_value(int code)
{
	return code == NVML_OK ? VALUE_PRESENT : meaning_of(code)->value;
}

enum gpu_state nvml_code_card(int code)
{
	return code == NVML_OK ? GPU_OK : meaning_of(code)->card;
}

bool nvml_code_is_stale(int code)
{
	return code == NVML_UNINITIALIZED || code == NVML_GPU_IS_LOST ||
	       code == NVML_RESET_REQUIRED || code == NVML_GPU_NOT_FOUND;
}

bool nvml_code_is_permanent(int code)
{
	return code != NVML_OK && meaning_of(code)->is_permanent;
}

int nvml_code_errno(int code)
{
	return code == NVML_OK ? 0 : -meaning_of(code)->error;
}
