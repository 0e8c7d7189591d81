/*
 * One complete picture of all hosts, as `gpustow --once` prints it: text for people, one document for programs
 * (docs/once.md has every key). Pure: values in, text out; the time is a value too. Everything is borrowed.
 */
#pragma once

#include "base/buf.h"
#include "base/row.h"
#include "core/sample.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ONCE_SCHEMA_VERSION 1

struct show_host {
	const char *name; /* "local", or the nickname */
	const char *address; /* "alice@gpu1:22"; NULL: this machine */
	const char *state; /* host_state_name */
	const char *why; /* the sentence behind the state; "" */
	bool has_answered; /* what was asked of it was answered: cards, or that it has none */
	const struct sample *sample; /* NULL: none yet */
	int64_t sample_age_ms; /* -1 without a sample */
	bool is_stale; /* the sample is from before the host stopped answering */
	int64_t clock_offset_ms; /* its wall clock less ours */
	/* How long each step took since the beginning, ms; -1: not reached, or unknown. */
	int64_t connected_ms, hello_ms, first_sample_ms, rtt_ms;
};

struct show_fleet {
	const struct show_host *hosts;
	size_t n;
	int64_t now_wall_ms;
};

struct once_style {
	struct row_style row;
	bool is_compact; /* tables aren't stretched to the width */
	bool with_timings;
};

void once_text(const struct show_fleet *f, const struct once_style *style, struct buf *out);
/* The caller's reference. */
json_t *once_json(const struct show_fleet *f, bool with_timings);

/* ---- shared by the two, and by others who show cards ---- */

/* Memory by user over some processes: the user's name where the node told it, else the uid. */
struct show_use {
	char user[40];
	int64_t mib;
	bool is_partial; /* of some of the processes the memory isn't known */
};
/* card: position (of a MIG instance: only what runs in it), or -1 for all cards of the sample; adds to what's in *uses (owned array). instance: position in snap.instances, or -1. */
struct show_uses {
	struct show_use *items;
	size_t n, cap;
};
void show_uses_add(struct show_uses *u, const struct sample *s, int card, int instance);
void show_uses_sort(struct show_uses *u); /* most memory first */
void show_uses_done(struct show_uses *u);
/* "alice(1.2G) bob(300M) +2 more", or "-". */
void show_uses_put(const struct show_uses *u, size_t most, struct buf *out);

/* Bytes a second that a link of that generation and width carries each way, in KiB/s; 0 unknown. */
int64_t show_link_capacity_kib_s(int64_t gen, int64_t width);
/* Without "NVIDIA" and "GeForce". */
void show_card_name(const char *name, struct buf *out);
/* Utilisation below 5 %, memory below 10 %: somebody could take it. Absent figures: not idle. */
bool show_card_is_idle(const struct gpu_card *c);
