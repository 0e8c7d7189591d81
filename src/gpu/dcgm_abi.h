/*
 * DCGM's binary interface as far as it's used here, declared on our own from its published headers (64-bit Linux). Sizes
 * are asserted, for the library is told them in version words, and a wrong one writes past our memory. No real library
 * was at hand when this was written: what follows is read out of public headers of both generations, not tried.
 *
 *  1. The files are libdcgm.so.4 (DCGM 4) and libdcgm.so.3 (DCGM 3). All calls return an int, 0 for well, else negative.
 *  2. Handles, groups and groups of fields are numbers as wide as a pointer. Enumerations are 4 bytes.
 *  3. A version word is sizeof | (n << 24): connection parameters 0x02000010, field values 0x02001020 (4128 bytes:
 *     a head of 32 and a value of up to 4096), in both generations.
 *  4. The parameters of an engine of our own end in a list that has a place for each module that the library knows: 10
 *     make 72 bytes, 0x01000048 (DCGM 3, and 4 up to 4.2, by their own assertions); 11, since there's a module for
 *     diagnosis of several nodes, make 80, 0x01000050 (our reckoning: no public assertion was found). Both words are
 *     tried, then the call without parameters.
 *  5. dcgmGetAllDevices fills at most 32 numbers (DCGM 2 and later); ours has room for more.
 *  6. Fields: 54 UUID and 57 bus id are texts; 1002 to 1008 and 1016 are doubles from 0 to 1; 1009 to 1012 are integers,
 *     bytes a second as the mean of the interval that was watched. 1016 isn't in every release.
 *  7. "Blank" values are above all real ones: doubles from 2^47 on, integers from INT64_MAX - 15 on; +1 not found, +2 not
 *     supported, +3 no permission, anything else: no value yet. Blank texts begin with "<<<".
 *  8. A watch fails for the whole group when one of its fields isn't had (-6, -36, -38), so fields are then watched one by
 *     one. Whoever else uses the counters is told by -34 (in use), -37 (the counters' library) or -54 (paused).
 *  9. What a connection has made (groups, watches) goes with it (persistAfterDisconnect 0). At most 64 groups exist in an
 *     engine, and their names must be unique.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum dcgm_code {
	DCGM_OK = 0,
	DCGM_BAD_PARAM = -1,
	DCGM_NOT_SUPPORTED = -6,
	DCGM_INIT_ERROR = -7,
	DCGM_NVML_ERROR = -8,
	DCGM_UNINITIALIZED = -10,
	DCGM_TIMEOUT = -11,
	DCGM_VERSION_MISMATCH = -12,
	DCGM_UNKNOWN_FIELD = -13,
	DCGM_NO_DATA = -14,
	DCGM_STALE_DATA = -15,
	DCGM_NOT_WATCHED = -16,
	DCGM_NO_PERMISSION = -17,
	DCGM_GPU_IS_LOST = -18,
	DCGM_RESET_REQUIRED = -19,
	DCGM_FUNCTION_NOT_FOUND = -20, /* ours too: the library lacks the call */
	DCGM_CONNECTION_NOT_VALID = -21,
	DCGM_GPU_NOT_SUPPORTED = -22,
	DCGM_MAX_LIMIT = -24,
	DCGM_REQUIRES_ROOT = -29,
	DCGM_FIELD_UNSUPPORTED = -32,
	DCGM_MODULE_NOT_LOADED = -33,
	DCGM_IN_USE = -34,
	DCGM_PROFILING_NOT_SUPPORTED = -36,
	DCGM_PROFILING_LIBRARY = -37,
	DCGM_PROFILING_MULTI_PASS = -38,
	DCGM_DRIVER_TOO_OLD = -44,
	DCGM_PAUSED = -54,
	DCGM_NVML_NOT_LOADED = -56,
};

#define DCGM_MODE_AUTO 1 /* the engine collects by itself */
#define DCGM_LOG_NONE 0
#define DCGM_GROUP_EMPTY 1
#define DCGM_ENTITY_GPU 1
#define DCGM_LIVE 1 /* flag: from the driver, not from what was collected */
#define DCGM_DEVICES_MAX 32
#define DCGM_VERSION_WORD(type, n) ((uint32_t)(sizeof(type) | (n) << 24))

#define DCGM_FIELD_UUID 54
#define DCGM_FIELD_BUS 57
#define DCGM_FIELD_SM_ACTIVE 1002
#define DCGM_FIELD_SM_OCCUPANCY 1003
#define DCGM_FIELD_TENSOR 1004
#define DCGM_FIELD_DRAM 1005
#define DCGM_FIELD_FP64 1006
#define DCGM_FIELD_FP32 1007
#define DCGM_FIELD_FP16 1008
#define DCGM_FIELD_PCIE_TX 1009
#define DCGM_FIELD_PCIE_RX 1010
#define DCGM_FIELD_NVLINK_TX 1011
#define DCGM_FIELD_NVLINK_RX 1012
#define DCGM_FIELD_INT 1016

#define DCGM_TYPE_DOUBLE 'd'
#define DCGM_TYPE_INT64 'i'
#define DCGM_TYPE_TEXT 's'

#define DCGM_BLANK_REAL 140737488355328.0
#define DCGM_BLANK_INT INT64_C(0x7ffffffffffffff0)
enum { DCGM_BLANK_NOT_FOUND = 1, DCGM_BLANK_NOT_SUPPORTED = 2, DCGM_BLANK_NO_PERMISSION = 3 };

struct dcgm_connect {
	uint32_t version, persist_after, timeout_ms, is_unix_socket;
};

struct dcgm_embed {
	uint32_t version, mode;
	uintptr_t handle; /* out */
	const char *log_file; /* NULL: none */
	int32_t severity;
	uint32_t n_denied;
	uint32_t denied[12]; /* more than any library reads */
};
#define DCGM_EMBED_10 UINT32_C(0x01000048)
#define DCGM_EMBED_11 UINT32_C(0x01000050)

struct dcgm_entity {
	uint32_t kind, id;
};

struct dcgm_value {
	uint32_t version, kind, id;
	uint16_t field, type;
	int32_t status;
	uint32_t unused;
	int64_t stamp_us; /* since 1970 */
	union {
		int64_t i64;
		double real;
		char text[256];
		char bytes[4096];
	} value;
};

_Static_assert(DCGM_VERSION_WORD(struct dcgm_connect, 2) == 0x02000010, "version word");
_Static_assert(DCGM_VERSION_WORD(struct dcgm_value, 2) == 0x02001020, "version word");
_Static_assert(offsetof(struct dcgm_value, field) == 12, "head");
_Static_assert(offsetof(struct dcgm_value, status) == 16, "head");
_Static_assert(offsetof(struct dcgm_value, stamp_us) == 24, "head");
_Static_assert(offsetof(struct dcgm_value, value) == 32, "head");
_Static_assert(sizeof(struct dcgm_entity) == 8, "entity");
_Static_assert(offsetof(struct dcgm_embed, handle) == 8, "parameters");
_Static_assert(offsetof(struct dcgm_embed, log_file) == 16, "parameters");
_Static_assert(offsetof(struct dcgm_embed, severity) == 24, "parameters");
_Static_assert(offsetof(struct dcgm_embed, denied) == 32, "parameters");
_Static_assert(sizeof(struct dcgm_embed) >= 80, "parameters");

/* X(member, (arguments), name, is_needed): without one that's needed the library is of no use. */
#define DCGM_FUNCTIONS(X) \
	X(init, (void), "dcgmInit", 1) \
	X(shutdown, (void), "dcgmShutdown", 0) \
	X(connect, (const char *, struct dcgm_connect *, uintptr_t *), "dcgmConnect_v2", 0) \
	X(disconnect, (uintptr_t), "dcgmDisconnect", 0) \
	X(embed, (struct dcgm_embed *), "dcgmStartEmbedded_v2", 0) \
	X(embed_plain, (int32_t, uintptr_t *), "dcgmStartEmbedded", 0) \
	X(unembed, (uintptr_t), "dcgmStopEmbedded", 0) \
	X(devices, (uintptr_t, uint32_t *, int32_t *), "dcgmGetAllDevices", 1) \
	X(group_create, (uintptr_t, int32_t, const char *, uintptr_t *), "dcgmGroupCreate", 1) \
	X(group_add, (uintptr_t, uintptr_t, uint32_t), "dcgmGroupAddDevice", 1) \
	X(fields_create, (uintptr_t, int32_t, uint16_t *, const char *, uintptr_t *), \
		"dcgmFieldGroupCreate", 1) \
	X(watch, (uintptr_t, uintptr_t, uintptr_t, long long, double, int32_t), "dcgmWatchFields", \
		1) \
	X(update, (uintptr_t, int32_t), "dcgmUpdateAllFields", 1) \
	X(latest, \
		(uintptr_t, struct dcgm_entity *, uint32_t, uint16_t *, uint32_t, uint32_t, \
			struct dcgm_value *), \
		"dcgmEntitiesGetLatestValues", 1)
