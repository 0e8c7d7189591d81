/*
 * A libdcgm without a GPU: DCGM's ABI over the scenario of the fake NVML. Stricter than the real one: a handle, group or
 * group of fields that isn't its own ends the program, and so does reading figures that nobody watches.
 * FAKE_4: DCGM 4, whose parameters of an embedded engine are larger. FAKE_BARE: lacks dcgmWatchFields.
 */
#include "fake.h"

#include "gpu/dcgm_abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HANDLE ((uintptr_t)0x7fffffff)
#define GROUPS_MAX 64
#ifdef FAKE_4
#define EMBED_WORD DCGM_EMBED_11
#else
#define EMBED_WORD DCGM_EMBED_10
#endif

struct fields {
	int n;
	uint16_t ids[32];
	char name[64];
};

static struct {
	bool is_up, is_reached;
	int n_groups, n_fields;
	int card_of[GROUPS_MAX]; /* -1: empty */
	char names[GROUPS_MAX][64];
	struct fields fields[GROUPS_MAX];
	bool is_watched[FAKE_CARDS][FAKE_COUNTERS];
} engine;

/* In the order of fake_counter_names. */
static const uint16_t ids[FAKE_COUNTERS] = {
	1002, 1003, 1004, 1006, 1007, 1008, 1016, 1005, 1009, 1010, 1011, 1012};

static void complain(const char *call, const char *what)
{
	fprintf(stderr, "fake dcgm: %s: %s\n", call, what);
	abort();
}

static int begin(const char *call, int card)
{
	int code = fake_rules(call, card, false);

	if (!fake_scenario()->allows_profiling)
		complain(call, "nobody asked for profiling");
	return code;
}

static int begin_at(const char *call, uintptr_t handle, int card)
{
	if (!engine.is_up || !engine.is_reached || handle != HANDLE)
		complain(call, "not a handle");
	return begin(call, card);
}

static int counter_of(uint16_t id)
{
	for (int i = 0; i < FAKE_COUNTERS; i++)
		if (ids[i] == id)
			return i;
	return -1;
}

static int card_of(const char *call, uint32_t id)
{
	int64_t card = (int64_t)id - fake_scenario()->dcgm_id;

	if (card < 0 || card >= fake_scenario()->n_cards)
		complain(call, "not a card");
	return (int)card;
}

EXPORT int dcgmInit(void);
int dcgmInit(void)
{
	int code = begin(__func__, -1);

	engine.is_up = code == DCGM_OK;
	return code;
}

EXPORT int dcgmShutdown(void);
int dcgmShutdown(void)
{
	engine.is_up = engine.is_reached = false;
	return begin(__func__, -1);
}

EXPORT int dcgmConnect_v2(const char *address, struct dcgm_connect *c, uintptr_t *ret);
int dcgmConnect_v2(const char *address, struct dcgm_connect *c, uintptr_t *ret)
{
	int code = begin(__func__, -1);

	if (!engine.is_up)
		complain(__func__, "not initialised");
	if (c->version != 0x02000010)
		return DCGM_VERSION_MISMATCH;
	if (c->persist_after)
		complain(__func__, "what it makes would stay behind");
	if (code != DCGM_OK)
		return code;
	if (!fake_scenario()->has_engine || c->is_unix_socket ||
		strcmp(address, "127.0.0.1:5555") != 0)
		return DCGM_CONNECTION_NOT_VALID;
	engine.is_reached = true;
	*ret = HANDLE;
	return DCGM_OK;
}

EXPORT int dcgmDisconnect(uintptr_t handle);
int dcgmDisconnect(uintptr_t handle)
{
	return begin_at(__func__, handle, -1);
}

EXPORT int dcgmStartEmbedded_v2(struct dcgm_embed *p);
int dcgmStartEmbedded_v2(struct dcgm_embed *p)
{
	int code = begin(__func__, -1);

	if (!engine.is_up)
		complain(__func__, "not initialised");
	if (p->version != EMBED_WORD)
		return DCGM_VERSION_MISMATCH;
	if (p->mode != DCGM_MODE_AUTO || p->n_denied != 0 || p->log_file != NULL)
		return DCGM_BAD_PARAM;
	if (code != DCGM_OK)
		return code;
	engine.is_reached = true;
	p->handle = HANDLE;
	return DCGM_OK;
}

EXPORT int dcgmStopEmbedded(uintptr_t handle);
int dcgmStopEmbedded(uintptr_t handle)
{
	return begin_at(__func__, handle, -1);
}

EXPORT int dcgmGetAllDevices(uintptr_t handle, uint32_t *ret, int32_t *ret_n);
int dcgmGetAllDevices(uintptr_t handle, uint32_t *ret, int32_t *ret_n)
{
	int code = begin_at(__func__, handle, -1);
	const struct fake_scenario *s = fake_scenario();

	for (int i = 0; code == DCGM_OK && i < s->n_cards; i++)
		ret[i] = (uint32_t)(s->dcgm_id + i);
	*ret_n = code == DCGM_OK ? s->n_cards : 0;
	return code;
}

EXPORT int dcgmGroupCreate(uintptr_t handle, int32_t kind, const char *name, uintptr_t *ret);
int dcgmGroupCreate(uintptr_t handle, int32_t kind, const char *name, uintptr_t *ret)
{
	int code = begin_at(__func__, handle, -1);

	if (code != DCGM_OK)
		return code;
	if (engine.n_groups == GROUPS_MAX)
		return DCGM_MAX_LIMIT;
	for (int i = 0; i < engine.n_groups; i++)
		if (strcmp(engine.names[i], name) == 0)
			complain(__func__, "that name is taken");
	if (kind != DCGM_GROUP_EMPTY)
		return DCGM_BAD_PARAM;
	snprintf(engine.names[engine.n_groups], 64, "%s", name);
	engine.card_of[engine.n_groups] = -1;
	*ret = (uintptr_t)++engine.n_groups;
	return DCGM_OK;
}

EXPORT int dcgmGroupAddDevice(uintptr_t handle, uintptr_t group, uint32_t id);
int dcgmGroupAddDevice(uintptr_t handle, uintptr_t group, uint32_t id)
{
	int card = card_of(__func__, id), code = begin_at(__func__, handle, card);

	if (group < 1 || group > (uintptr_t)engine.n_groups)
		complain(__func__, "not a group");
	if (code == DCGM_OK)
		engine.card_of[group - 1] = card;
	return code;
}

EXPORT int dcgmFieldGroupCreate(
	uintptr_t handle, int32_t n, uint16_t *from, const char *name, uintptr_t *ret);
int dcgmFieldGroupCreate(
	uintptr_t handle, int32_t n, uint16_t *from, const char *name, uintptr_t *ret)
{
	int code = begin_at(__func__, handle, -1);
	struct fields *f = &engine.fields[engine.n_fields];

	if (code != DCGM_OK)
		return code;
	if (n < 1 || n > 32 || engine.n_fields == GROUPS_MAX)
		return DCGM_BAD_PARAM;
	for (int i = 0; i < engine.n_fields; i++)
		if (strcmp(engine.fields[i].name, name) == 0)
			complain(__func__, "that name is taken");
	for (int i = 0; i < n; i++) {
		/* "err field1016 -13": this release doesn't know the field. */
		char call[16];

		snprintf(call, sizeof(call), "field%u", from[i]);
		code = fake_rules(call, -1, false);
		if (code != DCGM_OK)
			return code;
		f->ids[i] = from[i];
	}
	f->n = n;
	snprintf(f->name, sizeof(f->name), "%s", name);
	*ret = (uintptr_t)++engine.n_fields;
	return DCGM_OK;
}

#ifndef FAKE_BARE
EXPORT int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields, long long every_us,
	double keep_s, int32_t keep_n);
int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields, long long every_us,
	double keep_s, int32_t keep_n)
{
	const struct fake_counters *c;
	const struct fields *f;
	int card, code;

	if (group < 1 || group > (uintptr_t)engine.n_groups || engine.card_of[group - 1] < 0)
		complain(__func__, "not a group with a card");
	if (fields < 1 || fields > (uintptr_t)engine.n_fields)
		complain(__func__, "not a group of fields");
	if (every_us != 1000000 || keep_s != 30.0 || keep_n != 0)
		complain(__func__, "that isn't what the specification says");
	card = engine.card_of[group - 1];
	code = begin_at(__func__, handle, card);
	if (code != DCGM_OK)
		return code;
	c = &fake_scenario()->cards[card].dcgm;
	f = &engine.fields[fields - 1];
	if (!c->is_there)
		return DCGM_PROFILING_NOT_SUPPORTED;
	for (int i = 0; i < f->n; i++)
		if (c->v[counter_of(f->ids[i])] < 0)
			return DCGM_NOT_SUPPORTED;
	for (int i = 0; i < f->n; i++)
		engine.is_watched[card][counter_of(f->ids[i])] = true;
	return DCGM_OK;
}
#endif

EXPORT int dcgmUpdateAllFields(uintptr_t handle, int32_t waits);
int dcgmUpdateAllFields(uintptr_t handle, int32_t waits)
{
	(void)waits;
	return begin_at(__func__, handle, -1);
}

static void put_text(const char *from, struct dcgm_value *v)
{
	v->type = DCGM_TYPE_TEXT;
	snprintf(v->value.text, sizeof(v->value.text), "%s", from);
}

static void put_counter(int card, int counter, int64_t now_us, struct dcgm_value *v)
{
	const struct fake_scenario *s = fake_scenario();
	double real = s->cards[card].dcgm.v[counter];
	bool is_blank = fake_now_ms() < s->dcgm_after || real < 0;

	if (!engine.is_watched[card][counter])
		complain("dcgmEntitiesGetLatestValues", "nobody watches that field");
	v->stamp_us = now_us;
	v->type = counter < 8 ? DCGM_TYPE_DOUBLE : DCGM_TYPE_INT64;
	if (counter < 8)
		v->value.real = is_blank ? DCGM_BLANK_REAL : real;
	else
		v->value.i64 = is_blank ? DCGM_BLANK_INT : (int64_t)real;
}

EXPORT int dcgmEntitiesGetLatestValues(uintptr_t handle, struct dcgm_entity *who, uint32_t n_who,
	uint16_t *fields, uint32_t n, uint32_t flags, struct dcgm_value *ret);
int dcgmEntitiesGetLatestValues(uintptr_t handle, struct dcgm_entity *who, uint32_t n_who,
	uint16_t *fields, uint32_t n, uint32_t flags, struct dcgm_value *ret)
{
	int card = card_of(__func__, who[0].id), code = begin_at(__func__, handle, card);
	const struct fake_card *c = &fake_scenario()->cards[card];
	struct timespec t;

	if (code != DCGM_OK)
		return code;
	if (n_who != 1 || who[0].kind != DCGM_ENTITY_GPU)
		return DCGM_BAD_PARAM;
	clock_gettime(CLOCK_REALTIME, &t);
	/* The last one first: nobody said they'd come in order. */
	for (uint32_t i = 0; i < n; i++) {
		struct dcgm_value *v = &ret[n - 1 - i];

		*v = (struct dcgm_value){
			.version = 0x02001020, .kind = 1, .id = who[0].id, .field = fields[i]};
		if (fields[i] == DCGM_FIELD_UUID || fields[i] == DCGM_FIELD_BUS) {
			if (!(flags & DCGM_LIVE))
				complain(__func__, "nobody watches that field");
			put_text(fields[i] == DCGM_FIELD_UUID ? c->uuid : c->bus, v);
		} else if (counter_of(fields[i]) >= 0) {
			put_counter(card, counter_of(fields[i]),
				(int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000, v);
		} else {
			v->status = DCGM_UNKNOWN_FIELD;
		}
	}
	return DCGM_OK;
}
