/*
 * What there is to say about a card's health, from its figures alone: one fact each, with its weight, in words that name
 * the way out. The same facts make the line below a card and the list in JSON. Pure.
 */
#pragma once

#include "base/buf.h"
#include "core/gpu.h"
#include "core/xid.h"

#include <stddef.h>

enum health_weight { HEALTH_NOTE, HEALTH_WARNING, HEALTH_BAD };

struct health_fact {
	const char *
		kind; /* "state", "throttle", "remap", "retired", "ecc", "recovery", "xid", "mig", "driver_memory" */
	enum health_weight weight;
	char text[200]; /* a clause without a full stop */
};

#define HEALTH_FACTS_MAX 24
const char *health_weight_name(enum health_weight w); /* "note", "warning", "bad" */
enum health_weight health_of_xid(const struct xid_info *x); /* x NULL: a warning */
/* Returns how many, worst first. */
size_t health_of(const struct gpu_card *c, struct health_fact ret[HEALTH_FACTS_MAX]);

/* The words of throttle_bits: "sw_power_cap", ... NULL: that bit isn't known. */
const char *health_throttle_word(unsigned bit);
