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

/* Checks the handle, writes the log, applies the scenario's rules; *ret is the card. Aborts on a handle that isn't good. */
int fake_begin_device(const char *call, struct nvml_device *d, struct fake_card **ret);
int fake_open_handle(int card, int instance, struct nvml_device **ret);
int fake_text_out(const char *from, char *to, uint32_t size);
void fake_pci_of(const struct fake_card *c, struct nvml_pci *p, bool is_long);
/* Bytes in use on the device's card, without what's reserved. */
uint64_t fake_used_of(const struct nvml_device *d, const struct fake_card *c);

#define DEVICE(d) \
	struct fake_card *c; \
	int code = fake_begin_device(__func__, d, &c); \
	if (code != NVML_OK) \
	return code
