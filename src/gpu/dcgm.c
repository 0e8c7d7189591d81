/*
 * One connection to a DCGM engine. The cards are watched each by itself, so that one that can't be profiled hides no other;
 * where a card doesn't have all of the figures they're watched one by one.
 */
#include "gpu/dcgm.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/sys.h"
#include "gpu/dcgm_lib.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 500
#define WATCH_US 1000000
#define KEEP_S 30.0
#define OLD_MS 10000 /* a value older than that tells nothing of now */
#define RATIO_MAX 1.05 /* sampled counters may pass 1 by a hair */
#define DEVICES_ROOM 128

struct seat {
	uint32_t id; /* DCGM's */
	uintptr_t group;
	char uuid[GPU_UUID_LEN];
	char bus_id[GPU_BUS_LEN];
	int code; /* why nothing can be had of it; 0 */
	int figure_code[PROFILE_N]; /* why this figure can't be had; 0: it's watched */
};

struct dcgm {
	struct dcgm_lib lib;
	bool is_up, is_embedded, is_connected;
	uintptr_t handle;
	uint32_t n_seats;
	struct seat seats[DCGM_DEVICES_MAX];
	/* Groups of fields: all of them, and each alone, made when first needed. */
	uintptr_t all, one[PROFILE_N];
	bool has_int; /* this release knows the field */
	int one_code[PROFILE_N]; /* 1: not made yet; 0; or why it can't be made */
};

static const uint16_t field_of[PROFILE_N] = {
	[PROFILE_SM_ACTIVE] = DCGM_FIELD_SM_ACTIVE,
	[PROFILE_SM_OCCUPANCY] = DCGM_FIELD_SM_OCCUPANCY,
	[PROFILE_TENSOR] = DCGM_FIELD_TENSOR,
	[PROFILE_FP64] = DCGM_FIELD_FP64,
	[PROFILE_FP32] = DCGM_FIELD_FP32,
	[PROFILE_FP16] = DCGM_FIELD_FP16,
	[PROFILE_INT] = DCGM_FIELD_INT,
	[PROFILE_DRAM] = DCGM_FIELD_DRAM,
	[PROFILE_PCIE_TX] = DCGM_FIELD_PCIE_TX,
	[PROFILE_PCIE_RX] = DCGM_FIELD_PCIE_RX,
	[PROFILE_NVLINK_TX] = DCGM_FIELD_NVLINK_TX,
	[PROFILE_NVLINK_RX] = DCGM_FIELD_NVLINK_RX,
};

const char *dcgm_step_name(enum dcgm_step s)
{
	static const char *const names[DCGM_STEP_N] = {
		[DCGM_STEP_NONE] = "",
		[DCGM_STEP_IMPORT] = "dcgm_import_failed",
		[DCGM_STEP_CONNECT] = "dcgm_connect_failed",
		[DCGM_STEP_GROUP] = "dcgm_group_failed",
		[DCGM_STEP_UPDATE] = "dcgm_update_failed",
		[DCGM_STEP_LATEST] = "dcgm_get_latest_failed",
	};

	return names[s];
}

/* ---- reaching an engine ---- */

static bool is_there(const char *path)
{
	struct sys_stat st;

	return sys_stat_at(AT_FDCWD, path, 0, &st) == 0;
}

static int connect_to(struct dcgm *d, const char *address)
{
	struct dcgm_connect c = {.version = DCGM_VERSION_WORD(struct dcgm_connect, 2),
		.timeout_ms = CONNECT_MS,
		.is_unix_socket = address[0] == '/'};

	if (address[0] == '/' && !is_there(address))
		return DCGM_CONNECTION_NOT_VALID;
	return d->lib.fn.connect(address, &c, &d->handle);
}

/* An engine that runs already: it may do more than we may, and several clients share its watches. */
static int connect_any(struct dcgm *d)
{
	static const char *const addresses[] = {
		"127.0.0.1:5555",
		"localhost:5555",
		"127.0.0.1",
		"localhost",
		"/var/run/dcgm/dcgm.sock",
		"/run/dcgm/dcgm.sock",
		"/var/run/nvidia-dcgm/dcgm.sock",
		"/run/nvidia-dcgm/dcgm.sock",
	};
	int code = DCGM_FUNCTION_NOT_FOUND;

	for (size_t i = 0; d->lib.fn.connect != NULL && i < ARRAY_LEN(addresses); i++) {
		code = connect_to(d, addresses[i]);
		if (code == DCGM_OK)
			return code;
	}
	return code;
}

static int embed_as(struct dcgm *d, uint32_t version)
{
	struct dcgm_embed p = {
		.version = version, .mode = DCGM_MODE_AUTO, .severity = DCGM_LOG_NONE};
	int code = d->lib.fn.embed(&p);

	if (code == DCGM_OK)
		d->handle = p.handle;
	return code;
}

/* An engine of our own. Which size its parameters have, only the library knows (dcgm_abi.h, 4). */
static int embed_any(struct dcgm *d)
{
	static const uint32_t versions[] = {DCGM_EMBED_10, DCGM_EMBED_11};
	int code = DCGM_FUNCTION_NOT_FOUND;

	for (size_t i = 0; d->lib.fn.embed != NULL && i < ARRAY_LEN(versions); i++) {
		code = embed_as(d, versions[i]);
		if (code == DCGM_OK && d->handle != 0)
			return code;
		if (code != DCGM_OK && code != DCGM_VERSION_MISMATCH && code != DCGM_BAD_PARAM)
			return code;
	}
	if (d->lib.fn.embed_plain != NULL)
		code = d->lib.fn.embed_plain(DCGM_MODE_AUTO, &d->handle);
	return code == DCGM_OK && d->handle == 0 ? DCGM_INIT_ERROR : code;
}

static int reach(struct dcgm *d, struct err *e)
{
	int code = connect_any(d), own;

	if (code == DCGM_OK) {
		d->is_connected = true;
		return 0;
	}
	own = embed_any(d);
	if (own == DCGM_OK) {
		d->is_embedded = true;
		return 0;
	}
	return err_set(e, -EIO,
		"DCGM has no host engine (%s, DCGM %d), and none of our own starts: %s (DCGM %d)",
		dcgm_code_text(code), code, dcgm_code_text(own), own);
}

/* ---- cards, groups, watches ---- */

/* Printable ASCII only; "" for a blank one. */
static void take_text(const struct dcgm_value *v, char *to, size_t size)
{
	size_t i = 0;

	if (v->status != DCGM_OK || v->type != DCGM_TYPE_TEXT ||
		strncmp(v->value.text, "<<<", 3) == 0)
		return;
	for (; i < size - 1 && i < sizeof(v->value.text) && v->value.text[i] > ' ' &&
		v->value.text[i] <= '~';
		i++)
		to[i] = v->value.text[i];
	to[i] = '\0';
}

static void identify(struct dcgm *d, struct seat *s)
{
	static const uint16_t wanted[] = {DCGM_FIELD_UUID, DCGM_FIELD_BUS};
	CLEANUP_FREE struct dcgm_value *v = xcalloc(ARRAY_LEN(wanted), sizeof(*v));
	struct dcgm_entity who = {DCGM_ENTITY_GPU, s->id};
	uint16_t fields[ARRAY_LEN(wanted)];

	memcpy(fields, wanted, sizeof(fields));
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		v[i].version = DCGM_VERSION_WORD(struct dcgm_value, 2);
	if (d->lib.fn.latest(d->handle, &who, 1, fields, ARRAY_LEN(wanted), DCGM_LIVE, v) !=
		DCGM_OK)
		return;
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
		if (v[i].field == DCGM_FIELD_UUID)
			take_text(&v[i], s->uuid, sizeof(s->uuid));
		else if (v[i].field == DCGM_FIELD_BUS)
			take_text(&v[i], s->bus_id, sizeof(s->bus_id));
	}
}

static int find_cards(struct dcgm *d, struct err *e)
{
	uint32_t ids[DEVICES_ROOM];
	int32_t n = 0;
	int code = d->lib.fn.devices(d->handle, ids, &n);

	if (code != DCGM_OK)
		return err_set(e, -EIO, "DCGM can't name the cards: %s (DCGM %d)",
			dcgm_code_text(code), code);
	if (n <= 0)
		return err_set(e, -ENODEV, "DCGM knows of no card");
	for (int32_t i = 0; i < n && i < DCGM_DEVICES_MAX; i++) {
		struct seat *s = &d->seats[d->n_seats++];

		s->id = ids[i];
		identify(d, s);
	}
	return 0;
}

/* Names in an engine must be unique among all its clients. */
static int make_fields(struct dcgm *d, uint16_t *fields, size_t n, const char *what, uintptr_t *ret)
{
	char name[64];

	snprintf(name, sizeof(name), "gpustow-%d-%s", (int)getpid(), what);
	return d->lib.fn.fields_create(d->handle, (int32_t)n, fields, name, ret);
}

static int make_all(struct dcgm *d)
{
	uint16_t fields[PROFILE_N];
	size_t n = 0;
	int code;

	for (size_t i = 0; i < PROFILE_N; i++)
		if (i != PROFILE_INT)
			fields[n++] = field_of[i];
	/* The one that older releases don't know comes last, and is left out for them. */
	fields[n] = field_of[PROFILE_INT];
	d->has_int = true;
	code = make_fields(d, fields, n + 1, "all", &d->all);
	if (!dcgm_code_is_about_fields(code))
		return code;
	d->has_int = false;
	return make_fields(d, fields, n, "most", &d->all);
}

static int make_one(struct dcgm *d, size_t figure)
{
	uint16_t field = field_of[figure];
	char what[16];

	if (d->one_code[figure] == 1) {
		snprintf(what, sizeof(what), "%u", field);
		d->one_code[figure] = make_fields(d, &field, 1, what, &d->one[figure]);
	}
	return d->one_code[figure];
}

static int watch(struct dcgm *d, struct seat *s, uintptr_t fields)
{
	return d->lib.fn.watch(d->handle, s->group, fields, WATCH_US, KEEP_S, 0);
}

/* Each by itself; the card's code is the first failure if none can be had. */
static void watch_one_by_one(struct dcgm *d, struct seat *s, int code)
{
	bool has_any = false;

	for (size_t i = 0; i < PROFILE_N; i++) {
		s->figure_code[i] = make_one(d, i);
		if (s->figure_code[i] == DCGM_OK)
			s->figure_code[i] = watch(d, s, d->one[i]);
		has_any |= s->figure_code[i] == DCGM_OK;
	}
	s->code = has_any ? DCGM_OK : code;
}

static void watch_card(struct dcgm *d, struct seat *s)
{
	char name[64];
	int code;

	snprintf(name, sizeof(name), "gpustow-%d-gpu%u", (int)getpid(), s->id);
	code = d->lib.fn.group_create(d->handle, DCGM_GROUP_EMPTY, name, &s->group);
	if (code == DCGM_OK)
		code = d->lib.fn.group_add(d->handle, s->group, s->id);
	if (code == DCGM_OK) {
		code = watch(d, s, d->all);
		if (dcgm_code_is_about_fields(code)) {
			watch_one_by_one(d, s, code);
			return;
		}
		if (!d->has_int)
			s->figure_code[PROFILE_INT] = DCGM_UNKNOWN_FIELD;
	}
	s->code = code;
}

static int watch_cards(struct dcgm *d, struct err *e)
{
	bool has_any = false;
	int code = make_all(d);

	if (code != DCGM_OK)
		return err_set(e, -EIO, "DCGM can't group the fields of profiling: %s (DCGM %d)",
			dcgm_code_text(code), code);
	for (uint32_t i = 0; i < d->n_seats; i++) {
		watch_card(d, &d->seats[i]);
		has_any |= d->seats[i].code == DCGM_OK;
		if (d->seats[i].code != DCGM_OK)
			code = d->seats[i].code;
	}
	if (has_any)
		return 0;
	return err_set(
		e, -EIO, "DCGM can't profile any card: %s (DCGM %d)", dcgm_code_text(code), code);
}

/* ---- figures ---- */

static struct value blank(int64_t which)
{
	if (which == DCGM_BLANK_NOT_SUPPORTED)
		return value_absent(VALUE_UNSUPPORTED);
	if (which == DCGM_BLANK_NO_PERMISSION)
		return value_absent(VALUE_FORBIDDEN);
	return value_absent(VALUE_EMPTY);
}

static struct value ratio_of(double r)
{
	if (r >= DCGM_BLANK_REAL && r < DCGM_BLANK_REAL + 16)
		return blank((int64_t)(r - DCGM_BLANK_REAL));
	if (!(r >= 0) || r > RATIO_MAX)
		return value_absent(VALUE_FAILED);
	return value_of(r > 1 ? 100 : (int64_t)(r * 100 + 0.5));
}

static struct value rate_of(int64_t bytes)
{
	if (bytes >= DCGM_BLANK_INT)
		return blank(bytes - DCGM_BLANK_INT);
	if (bytes < 0 || bytes > INT64_C(1) << 50)
		return value_absent(VALUE_FAILED);
	return value_of(bytes / 1024);
}

struct value dcgm_figure(enum profile_figure figure, const struct dcgm_value *v, int64_t wall_ms)
{
	if (v->status != DCGM_OK)
		return value_absent(dcgm_code_value(v->status));
	if (v->stamp_us > 0 && wall_ms - v->stamp_us / 1000 > OLD_MS)
		return value_absent(VALUE_EMPTY);
	if (v->type == DCGM_TYPE_DOUBLE && figure <= PROFILE_DRAM)
		return ratio_of(v->value.real);
	if (v->type == DCGM_TYPE_INT64 && figure > PROFILE_DRAM)
		return rate_of(v->value.i64);
	return value_absent(VALUE_FAILED);
}

static size_t figure_of_field(uint16_t field)
{
	for (size_t i = 0; i < PROFILE_N; i++)
		if (field_of[i] == field)
			return i;
	return PROFILE_N;
}

/* The figures that are watched; a code when the whole question failed. */
static int read_card(struct dcgm *d, const struct seat *s, int64_t wall_ms, struct dcgm_card *ret)
{
	CLEANUP_FREE struct dcgm_value *v = xcalloc(PROFILE_N, sizeof(*v));
	struct dcgm_entity who = {DCGM_ENTITY_GPU, s->id};
	uint16_t fields[PROFILE_N];
	uint32_t n = 0;
	int code;

	for (size_t i = 0; i < PROFILE_N; i++) {
		ret->v[i] = value_absent(dcgm_code_value(s->figure_code[i]));
		if (s->figure_code[i] != DCGM_OK)
			continue;
		ret->v[i] = value_absent(VALUE_EMPTY);
		v[n].version = DCGM_VERSION_WORD(struct dcgm_value, 2);
		fields[n++] = field_of[i];
	}
	code = d->lib.fn.latest(d->handle, &who, 1, fields, n, 0, v);
	for (uint32_t i = 0; i < n && code == DCGM_OK; i++) {
		size_t figure = figure_of_field(v[i].field);

		/* In whatever order they come. */
		if (figure < PROFILE_N && s->figure_code[figure] == DCGM_OK)
			ret->v[figure] = dcgm_figure((enum profile_figure)figure, &v[i], wall_ms);
	}
	return code;
}

static void put_reason(int code, struct dcgm_card *ret)
{
	for (size_t i = 0; i < PROFILE_N; i++)
		ret->v[i] = value_absent(dcgm_code_value(code));
}

int dcgm_read(struct dcgm *d, int64_t wall_ms, struct dcgm_report *ret, enum dcgm_step *ret_step,
	struct err *e)
{
	int code = DCGM_OK;
	bool has_any = false;

	*ret = (struct dcgm_report){.n_cards = d->n_seats};
	for (uint32_t i = 0; i < d->n_seats; i++) {
		const struct seat *s = &d->seats[i];
		struct dcgm_card *c = &ret->cards[i];
		int this = s->code;

		memcpy(c->uuid, s->uuid, sizeof(c->uuid));
		memcpy(c->bus_id, s->bus_id, sizeof(c->bus_id));
		if (this == DCGM_OK)
			this = read_card(d, s, wall_ms, c);
		if (this != DCGM_OK) {
			put_reason(this, c);
			code = this;
		}
		has_any |= this == DCGM_OK;
	}
	if (has_any)
		return 0;
	*ret_step = DCGM_STEP_LATEST;
	return err_set(e, -EIO, "DCGM gives no figures of any card: %s (DCGM %d)",
		dcgm_code_text(code), code);
}

/* ---- life ---- */

static int start(struct dcgm *d, const char *path, enum dcgm_step *ret_step, struct err *e)
{
	int r, code;

	*ret_step = DCGM_STEP_IMPORT;
	r = dcgm_lib_open(path, &d->lib, e);
	if (r < 0)
		return r;
	code = d->lib.fn.init();
	if (code != DCGM_OK)
		return err_set(
			e, -EIO, "DCGM does not start: %s (DCGM %d)", dcgm_code_text(code), code);
	d->is_up = true;
	*ret_step = DCGM_STEP_CONNECT;
	r = reach(d, e);
	if (r < 0)
		return r;
	*ret_step = DCGM_STEP_GROUP;
	r = find_cards(d, e);
	if (!r)
		r = watch_cards(d, e);
	if (r < 0)
		return r;
	*ret_step = DCGM_STEP_UPDATE;
	code = d->lib.fn.update(d->handle, 1);
	if (code != DCGM_OK)
		return err_set(e, -EIO, "DCGM collects no figures: %s (DCGM %d)",
			dcgm_code_text(code), code);
	*ret_step = DCGM_STEP_NONE;
	return 0;
}

int dcgm_open(const char *path, struct dcgm **ret, enum dcgm_step *ret_step, struct err *e)
{
	struct dcgm *d = xcalloc(1, sizeof(*d));
	int r;

	for (size_t i = 0; i < PROFILE_N; i++)
		d->one_code[i] = 1;
	r = start(d, path, ret_step, e);
	if (r < 0) {
		dcgm_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

void dcgm_free(struct dcgm *d)
{
	if (d == NULL)
		return;
	if (d->is_connected && d->lib.fn.disconnect != NULL)
		d->lib.fn.disconnect(d->handle);
	if (d->is_embedded && d->lib.fn.unembed != NULL)
		d->lib.fn.unembed(d->handle);
	if (d->is_up && d->lib.fn.shutdown != NULL)
		d->lib.fn.shutdown();
	dcgm_lib_close(&d->lib);
	free(d);
}
