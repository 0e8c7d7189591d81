/* Opens libdcgm and finds its functions; turns its return codes, here and nowhere else. */
#include "gpu/dcgm_lib.h"

#include "base/cleanup.h"
#include "gpu/dl.h"

#include <stdio.h>
#include <string.h>

struct dcgm_symbol {
	size_t offset; /* in struct dcgm_functions */
	const char *name;
	bool is_needed;
};

#define DCGM_SYMBOL(member, args, name, is_needed) \
	{offsetof(struct dcgm_functions, member), name, is_needed},
static const struct dcgm_symbol symbols[] = {DCGM_FUNCTIONS(DCGM_SYMBOL)};
#undef DCGM_SYMBOL

static const char *const usual_paths[] = {"libdcgm.so.4", "libdcgm.so.3"};

/* The name of what's missing and can't be done without; NULL: nothing. */
static const char *find_symbols(struct dcgm_lib *l)
{
	const char *missing = NULL;

	for (size_t i = 0; i < ARRAY_LEN(symbols); i++) {
		void *found = dlsym(l->handle, symbols[i].name);

		memcpy((char *)&l->fn + symbols[i].offset, &found, sizeof(found));
		if (found == NULL && symbols[i].is_needed)
			missing = symbols[i].name;
	}
	if (missing == NULL && l->fn.connect == NULL && l->fn.embed == NULL &&
		l->fn.embed_plain == NULL)
		missing = "dcgmConnect_v2";
	return missing;
}

static int open_one(const char *path, struct dcgm_lib *ret, struct err *e)
{
	struct dcgm_lib l = {.handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL)};
	const char *missing, *why;

	if (l.handle == NULL) {
		why = dlerror();
		return err_set(e, -ENOENT, "the DCGM library can't be loaded: %.160s",
			why != NULL ? why : path);
	}
	missing = find_symbols(&l);
	if (missing != NULL) {
		dlclose(l.handle);
		return err_set(e, -ENOSYS,
			"%.100s is no DCGM library that is known here: it lacks %s", path, missing);
	}
	*ret = l;
	return 0;
}

int dcgm_lib_open(const char *path, struct dcgm_lib *ret, struct err *e)
{
	int r = -ENOENT;

	if (path != NULL)
		return open_one(path, ret, e);
	for (size_t i = 0; r == -ENOENT && i < ARRAY_LEN(usual_paths); i++)
		r = open_one(usual_paths[i], ret, e);
	if (r == -ENOENT)
		err_set(e, r,
			"there is no DCGM library here (%s, %s): install datacenter-gpu-manager",
			usual_paths[0], usual_paths[1]);
	return r;
}

void dcgm_lib_close(struct dcgm_lib *l)
{
	if (l->handle != NULL)
		dlclose(l->handle);
	*l = (struct dcgm_lib){0};
}

/* What each return code means to us. A code without a row is a fault of the moment. */
struct dcgm_meaning {
	int code;
	enum value_state value;
	bool is_about_fields;
	const char *text;
};

static const struct dcgm_meaning meanings[] = {
	{DCGM_BAD_PARAM, VALUE_FAILED, true, "it refused an argument"},
	{DCGM_NOT_SUPPORTED, VALUE_UNSUPPORTED, true, "not supported by this card"},
	{DCGM_INIT_ERROR, VALUE_FAILED, false, "it could not be initialised"},
	{DCGM_NVML_ERROR, VALUE_FAILED, false, "NVML answered it with an error"},
	{DCGM_UNINITIALIZED, VALUE_FAILED, false, "it isn't initialised"},
	{DCGM_TIMEOUT, VALUE_FAILED, false, "the host engine didn't answer in time"},
	{DCGM_VERSION_MISMATCH, VALUE_UNSUPPORTED, false,
		"library and host engine differ in version"},
	{DCGM_UNKNOWN_FIELD, VALUE_UNSUPPORTED, true, "it doesn't know that field"},
	{DCGM_NO_DATA, VALUE_EMPTY, false, "no data yet"},
	{DCGM_STALE_DATA, VALUE_EMPTY, false, "its data is old"},
	{DCGM_NOT_WATCHED, VALUE_EMPTY, false, "the field isn't watched"},
	{DCGM_NO_PERMISSION, VALUE_FORBIDDEN, false,
		"no permission: profiling needs root, or NVreg_RestrictProfilingToAdminUsers=0"},
	{DCGM_GPU_IS_LOST, VALUE_LOST, false, "the GPU is lost"},
	{DCGM_RESET_REQUIRED, VALUE_LOST, false, "the GPU needs a reset"},
	{DCGM_FUNCTION_NOT_FOUND, VALUE_UNSUPPORTED, false, "this library lacks the call"},
	{DCGM_CONNECTION_NOT_VALID, VALUE_FAILED, false, "there is no host engine to connect to"},
	{DCGM_GPU_NOT_SUPPORTED, VALUE_UNSUPPORTED, false, "DCGM doesn't support this card"},
	{DCGM_MAX_LIMIT, VALUE_FAILED, false, "its groups are all taken"},
	{DCGM_REQUIRES_ROOT, VALUE_FORBIDDEN, false,
		"profiling needs root: start nv-hostengine (systemctl start nvidia-dcgm)"},
	{DCGM_FIELD_UNSUPPORTED, VALUE_UNSUPPORTED, true, "that field isn't had in this way"},
	{DCGM_MODULE_NOT_LOADED, VALUE_UNSUPPORTED, false,
		"its profiling module isn't loaded (is datacenter-gpu-manager complete?)"},
	{DCGM_IN_USE, VALUE_EMPTY, false, "another profiler uses the counters"},
	{DCGM_PROFILING_NOT_SUPPORTED, VALUE_UNSUPPORTED, true,
		"profiling isn't supported by this card"},
	{DCGM_PROFILING_LIBRARY, VALUE_EMPTY, false,
		"the counters can't be had; another profiler (Nsight, CUPTI) may use them"},
	{DCGM_PROFILING_MULTI_PASS, VALUE_UNSUPPORTED, true,
		"these figures can't be had at the same time"},
	{DCGM_DRIVER_TOO_OLD, VALUE_UNSUPPORTED, false, "the driver is too old for it"},
	{DCGM_PAUSED, VALUE_EMPTY, false, "it is paused (dcgmi profile --resume)"},
	{DCGM_NVML_NOT_LOADED, VALUE_FAILED, false, "it finds no NVML: no driver is loaded"},
};

static const struct dcgm_meaning *meaning_of(int code)
{
	static const struct dcgm_meaning other = {
		0, VALUE_FAILED, false, "an error of DCGM that has no name here"};

	for (size_t i = 0; i < ARRAY_LEN(meanings); i++) {
		if (meanings[i].code == code)
			return &meanings[i];
	}
	return &other;
}

const char *dcgm_code_text(int code)
{
	return code == DCGM_OK ? "no error" : meaning_of(code)->text;
}

enum value_state dcgm_code_value(int code)
{
	return code == DCGM_OK ? VALUE_PRESENT : meaning_of(code)->value;
}

bool dcgm_code_is_about_fields(int code)
{
	return code != DCGM_OK && meaning_of(code)->is_about_fields;
}
