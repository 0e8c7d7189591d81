/* Inside of the fake library: its handles, and what each of its calls begins with. */
#pragma once

#include "scenario.h"

#include "gpu/nvml_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define MIB (UINT64_C(1024) * 1024)

struct nvml_device {
	uint32_t magic;
	int card;
	int instance; /* -1: the whole card */
	int generation;
	int64_t opened_ms;
	bool is_dead;
};

/* fake_rule.c: writes the call down, and does what the scenario says of it. Its code, 0 without. card -1: about none. */
int fake_rules(const char *call, int card, bool is_instance);

/* Checks the handle, writes the log, applies the scenario's rules; *ret is the card. Aborts on a handle that isn't good. */
int fake_begin_device(const char *call, struct nvml_device *d, struct fake_card **ret);
/* The same for a call about no card. */
int fake_begin(const char *call);
int fake_open_handle(int card, int instance, struct nvml_device **ret);
int fake_text_out(const char *from, char *to, uint32_t size);
void fake_pci_of(const struct fake_card *c, struct nvml_pci *p, bool is_long);
/* Bytes in use on the device's card, without what's reserved. */
int64_t fake_memory_of(const struct nvml_device *d, const struct fake_card *c);
int64_t fake_reserved_of(const struct nvml_device *d, const struct fake_card *c);
uint64_t fake_used_of(const struct nvml_device *d, const struct fake_card *c);

/*
 * What the fake itself costs, so that a measurement can take it off: nanoseconds of CPU, added up in the 8 bytes of the
 * file that GPUSTOW_FAKE_NVML_CPU names. Not named: nothing is measured.
 */
int64_t fake_cpu_begin(void);
void fake_cpu_end(const int64_t *begun);

#define DEVICE(d) \
	int64_t begun __attribute__((cleanup(fake_cpu_end), unused)) = fake_cpu_begin(); \
	struct fake_card *c; \
	int code = fake_begin_device(__func__, d, &c); \
	if (code != NVML_OK) \
	return code
