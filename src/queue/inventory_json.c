/*
 * An inventory as JSON and back: the text that stands with a node's row. Written and read by us alone, but read as
 * something from outside: sizes are bounded, wrong kinds are as if they weren't there. Unknown figures are left out.
 */
#include "queue/inventory.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INVENTORY_VERSION 1

static void put_int(json_t *o, const char *key, int64_t v, int64_t unknown)
{
	if (v != unknown)
		json_object_set_new_nocheck(o, key, json_integer(v));
}

static void put_text(json_t *o, const char *key, const char *v)
{
	if (v && *v)
		json_object_set_new_nocheck(o, key, json_string(v));
}

static void put_bool(json_t *o, const char *key, bool v)
{
	if (v)
		json_object_set_new_nocheck(o, key, json_true());
}

static json_t *procs_encode(const struct inv_card *c)
{
	json_t *a = json_array();

	for (size_t i = 0; i < c->n_procs_kept; i++) {
		const struct inv_proc *p = &c->procs[i];
		char kind[2] = {p->kind, 0};
		json_t *o = json_object();

		put_int(o, "pid", p->pid, 0);
		put_int(o, "mem", p->mem_mib, -1);
		put_text(o, "name", p->name);
		put_text(o, "user", p->user);
		put_text(o, "kind", kind);
		put_bool(o, "managed", p->is_managed);
		put_int(o, "job", p->job, 0);
		json_array_append_new(a, o);
	}
	return a;
}

/* A name for each figure, once for both ways. */
static const struct figure {
	const char *key;
	size_t at;
	int64_t unknown;
} figures[] = {
#define F(key, member, unknown) \
	{ \
		key, offsetof(struct inv_card, member), unknown \
	}
	F("total", total_mib, -1),
	F("used", used_mib, -1),
	F("util", util_pct, -1),
	F("mem_util", mem_util_pct, -1),
	F("temp", temperature_c, -1),
	F("external", external_mib, -1),
	F("external_procs", external_procs, 0),
	F("external_computing", external_computing, 0),
	F("promised", promised_mib, 0),
	F("others_lanes", others_lanes_mib, 0),
	F("xid", xid, 0),
	F("xid_ms", xid_ms, 0),
#undef F
};

static json_t *card_encode(const struct inv_card *c)
{
	json_t *o = json_object();

	put_text(o, "uuid", c->uuid);
	put_text(o, "parent", c->parent);
	json_object_set_new_nocheck(o, "index", json_integer(c->index));
	put_int(o, "gi", c->gi, -1);
	put_int(o, "ci", c->ci, -1);
	put_text(o, "name", c->name);
	put_text(o, "profile", c->profile);
	put_bool(o, "present", c->is_present);
	put_bool(o, "mig_parent", c->is_mig_parent);
	put_bool(o, "needs_reset", c->needs_reset);
	put_bool(o, "blind", c->is_blind);
	put_text(o, "state", c->state == GPU_OK ? NULL : gpu_state_name(c->state));
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		put_int(o, figures[i].key, *(const int64_t *)((const char *)c + figures[i].at),
			figures[i].unknown);
	put_int(o, "numa", c->numa, -1);
	put_int(o, "peers", (int64_t)c->nvlink_peers, 0);
	put_int(o, "n_procs", (int64_t)c->n_procs, 0);
	if (c->n_procs_kept > 0)
		json_object_set_new_nocheck(o, "procs", procs_encode(c));
	return o;
}

/* ["queue", job, attempt, card, declared, budget, held, peak, flags] */
static json_t *charge_encode(const struct inv_charge *c)
{
	return json_pack("[s,I,I,I,I,I,I,I,I]", c->name.queue, (json_int_t)c->name.job,
		(json_int_t)c->name.attempt, (json_int_t)c->card, (json_int_t)c->declared_mib,
		(json_int_t)c->budget_mib, (json_int_t)c->held_mib, (json_int_t)c->peak_mib,
		(json_int_t)(c->is_sampled | c->has_ended << 1));
}

char *inventory_encode(const struct inventory *v)
{
	json_t *o = json_object(), *cards = json_array(), *charges = json_array();
	char *text;

	json_object_set_new(o, "v", json_integer(INVENTORY_VERSION));
	put_int(o, "sampled_ms", v->sampled_wall_ms, 0);
	put_text(o, "source", v->source);
	put_text(o, "error", v->error);
	put_int(o, "cores", v->cores, 0);
	put_int(o, "mem_total", v->mem_total_mib, -1);
	put_int(o, "mem_available", v->mem_available_mib, -1);
	put_text(o, "host_name", v->host_name);
	for (size_t i = 0; i < v->n_cards; i++)
		json_array_append_new(cards, card_encode(&v->cards[i]));
	for (size_t i = 0; i < v->n_charges; i++)
		json_array_append_new(charges, charge_encode(&v->charges[i]));
	json_object_set_new(o, "cards", cards);
	json_object_set_new(o, "charges", charges);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	if (!text)
		abort(); /* nothing in it can't be written */
	return text;
}

/* ---- and back ---- */

static int64_t get_int(const json_t *o, const char *key, int64_t unknown)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? json_integer_value(v) : unknown;
}

static char *get_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? xstrdup(s) : NULL;
}

static void get_small(const json_t *o, const char *key, char *ret, size_t size)
{
	const char *s = json_string_value(json_object_get(o, key));

	snprintf(ret, size, "%s", s ? s : "");
}

static void procs_decode(const json_t *a, struct inv_card *ret)
{
	size_t n = json_array_size(a);

	ret->n_procs_kept = n < INVENTORY_PROCS_MAX ? n : INVENTORY_PROCS_MAX;
	if (ret->n_procs_kept == 0)
		return;
	ret->procs = xcalloc(ret->n_procs_kept, sizeof(*ret->procs));
	for (size_t i = 0; i < ret->n_procs_kept; i++) {
		const json_t *o = json_array_get(a, i);
		const char *kind = json_string_value(json_object_get(o, "kind"));

		ret->procs[i] = (struct inv_proc){.pid = get_int(o, "pid", 0),
			.mem_mib = get_int(o, "mem", -1),
			.name = get_text(o, "name"),
			.user = get_text(o, "user"),
			.kind = kind && *kind ? *kind : 'C',
			.is_managed = json_is_true(json_object_get(o, "managed")),
			.job = get_int(o, "job", 0)};
	}
}

static void card_decode(const json_t *o, struct inv_card *ret)
{
	const char *state = json_string_value(json_object_get(o, "state"));

	*ret = (struct inv_card){.index = (int32_t)get_int(o, "index", -1),
		.gi = (int32_t)get_int(o, "gi", -1),
		.ci = (int32_t)get_int(o, "ci", -1),
		.name = get_text(o, "name"),
		.profile = get_text(o, "profile"),
		.is_present = json_is_true(json_object_get(o, "present")),
		.is_mig_parent = json_is_true(json_object_get(o, "mig_parent")),
		.needs_reset = json_is_true(json_object_get(o, "needs_reset")),
		.is_blind = json_is_true(json_object_get(o, "blind")),
		.numa = (int32_t)get_int(o, "numa", -1),
		.nvlink_peers = (uint64_t)get_int(o, "peers", 0),
		.n_procs = (size_t)get_int(o, "n_procs", 0)};
	if (state && gpu_state_from_name(state, &ret->state) < 0)
		ret->state = GPU_FAILED;
	get_small(o, "uuid", ret->uuid, sizeof(ret->uuid));
	get_small(o, "parent", ret->parent, sizeof(ret->parent));
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		*(int64_t *)((char *)ret + figures[i].at) =
			get_int(o, figures[i].key, figures[i].unknown);
	procs_decode(json_object_get(o, "procs"), ret);
}

static bool charge_decode(const json_t *a, size_t n_cards, struct inv_charge *ret)
{
	const char *queue = json_string_value(json_array_get(a, 0));
	int64_t v[9] = {0};

	if (!queue || !id_is_valid(queue) || json_array_size(a) < 9)
		return false;
	for (size_t i = 1; i < 9; i++)
		v[i] = json_integer_value(json_array_get(a, i));
	if (v[3] < 0 || (size_t)v[3] >= n_cards)
		return false;
	*ret = (struct inv_charge){.name = {.job = (uint64_t)v[1], .attempt = (uint32_t)v[2]},
		.card = (uint32_t)v[3],
		.declared_mib = v[4],
		.budget_mib = v[5],
		.held_mib = v[6],
		.peak_mib = v[7],
		.is_sampled = v[8] & 1,
		.has_ended = v[8] & 2};
	memcpy(ret->name.queue, queue, ID_LEN);
	return true;
}

static void lists_decode(const json_t *o, struct inventory *ret)
{
	const json_t *cards = json_object_get(o, "cards"), *charges = json_object_get(o, "charges");
	size_t n_cards = json_array_size(cards), n_charges = json_array_size(charges);

	if (n_cards > GPU_MAX)
		n_cards = GPU_MAX;
	if (n_charges > INVENTORY_CHARGES_MAX)
		n_charges = INVENTORY_CHARGES_MAX;
	ret->cards = xcalloc(n_cards + 1, sizeof(*ret->cards));
	ret->charges = xcalloc(n_charges + 1, sizeof(*ret->charges));
	for (size_t i = 0; i < n_cards; i++)
		card_decode(json_array_get(cards, i), &ret->cards[ret->n_cards++]);
	for (size_t i = 0; i < n_charges; i++)
		ret->n_charges += charge_decode(
			json_array_get(charges, i), n_cards, &ret->charges[ret->n_charges]);
}

int inventory_decode(const char *json, struct inventory *ret, struct err *e)
{
	struct inventory v = {.mem_total_mib = -1, .mem_available_mib = -1};
	json_error_t je;
	json_t *o;

	if (!json) {
		*ret = v;
		return 0;
	}
	o = json_loads(json, 0, &je);
	if (!json_is_object(o)) {
		json_decref(o);
		return err_set(e, -EBADMSG,
			"what the queue remembers of the node's GPUs can't be read (%s); the next look at the node mends that",
			je.text);
	}
	v.sampled_wall_ms = get_int(o, "sampled_ms", 0);
	v.source = get_text(o, "source");
	v.error = get_text(o, "error");
	v.cores = get_int(o, "cores", 0);
	v.mem_total_mib = get_int(o, "mem_total", -1);
	v.mem_available_mib = get_int(o, "mem_available", -1);
	v.host_name = get_text(o, "host_name");
	lists_decode(o, &v);
	json_decref(o);
	*ret = v;
	return 0;
}
