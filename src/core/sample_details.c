/*
 * The part of a "sample" that only watchers with details get: versions, the host, MIG instances, and behind the eight
 * values of each process row
 *
 *   [gi, ci (-1: none), sm, memory, encoder, decoder %, CPU %, RSS MiB, start (wall ms), user, command line,
 *    container, pod, Slurm job, systemd unit]
 *
 * where a figure that is absent is the reason as a word. A row past the limit of texts ends before its user.
 */
#include "core/sample_details.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "core/profile.h"

#include <string.h>

#define PLAIN_VALUES 8
/* Bytes of all process rows' texts, as JSON: beside 4096 rows of figures, or 1024, a message has room for these. */
#define TEXTS_MANY_MAX (192 * 1024)
#define TEXTS_MAX (512 * 1024)
#define MANY_ROWS 1024

/* ---- host ---- */

struct host_text {
	const char *key;
	size_t offset, size;
};

struct host_value {
	const char *key;
	size_t offset;
};

#define HOST_TEXT(member) \
	{ \
#member, offsetof(struct host_figures, member), \
			sizeof(((struct host_figures *)0)->member) \
	}
static const struct host_text host_texts[] = {
	HOST_TEXT(host_name), HOST_TEXT(os), HOST_TEXT(kernel), HOST_TEXT(boot_id)};

#define HOST_VALUE(member) \
	{ \
#member, offsetof(struct host_figures, member) \
	}
static const struct host_value host_values[] = {
	HOST_VALUE(cpu_pct),
	HOST_VALUE(mem_total_mib),
	HOST_VALUE(mem_used_mib),
	HOST_VALUE(swap_total_mib),
	HOST_VALUE(swap_used_mib),
	HOST_VALUE(load_1m_milli),
	HOST_VALUE(load_5m_milli),
	HOST_VALUE(load_15m_milli),
	HOST_VALUE(uptime_ms),
	HOST_VALUE(on_battery),
};

static json_t *encode_host(const struct host_figures *h)
{
	json_t *o = json_object();

	for (size_t i = 0; i < ARRAY_LEN(host_texts); i++)
		json_object_set_new_nocheck(
			o, host_texts[i].key, sample_text((const char *)h + host_texts[i].offset));
	json_object_set_new_nocheck(o, "cores", json_integer(h->cores));
	for (size_t i = 0; i < ARRAY_LEN(host_values); i++)
		json_object_set_new_nocheck(o, host_values[i].key,
			sample_value(
				*(const struct value *)((const char *)h + host_values[i].offset)));
	return o;
}

static int decode_host(const json_t *o, struct host_figures *h, struct err *e)
{
	int64_t cores;
	int r = wire_int(o, "cores", 0, INT32_MAX, &cores, e);

	for (size_t i = 0; !r && i < ARRAY_LEN(host_texts); i++)
		r = sample_take_text(json_object_get(o, host_texts[i].key),
			(char *)h + host_texts[i].offset, host_texts[i].size, host_texts[i].key, e);
	if (r)
		return r;
	h->cores = (int32_t)cores;
	for (size_t i = 0; i < ARRAY_LEN(host_values); i++)
		*(struct value *)((char *)h + host_values[i].offset) =
			sample_take_value(json_object_get(o, host_values[i].key));
	return 0;
}

/* ---- instances ---- */

static json_t *encode_instance(const struct gpu_instance *g)
{
	json_t *o = json_object();

	json_object_set_new_nocheck(o, "card", json_integer(g->card));
	json_object_set_new_nocheck(o, "gi", json_integer(g->gi - 1));
	json_object_set_new_nocheck(o, "ci", json_integer(g->ci - 1));
	json_object_set_new_nocheck(o, "uuid", sample_text(g->uuid));
	json_object_set_new_nocheck(o, "profile", sample_text(g->profile));
	json_object_set_new_nocheck(o, "mem_total_mib", sample_value(g->mem_total_mib));
	json_object_set_new_nocheck(o, "mem_used_mib", sample_value(g->mem_used_mib));
	json_object_set_new_nocheck(o, "sm_count", sample_value(g->sm_count));
	return o;
}

static int decode_instance(const json_t *o, uint32_t n_cards, struct gpu_instance *g, struct err *e)
{
	int64_t card, gi, ci;

	if (wire_int(o, "card", 0, (int64_t)n_cards - 1, &card, e) ||
		wire_int(o, "gi", -1, INT32_MAX - 1, &gi, e) ||
		wire_int(o, "ci", -1, INT32_MAX - 1, &ci, e) ||
		sample_take_text(json_object_get(o, "uuid"), g->uuid, sizeof(g->uuid), "uuid", e) ||
		sample_take_text(json_object_get(o, "profile"), g->profile, sizeof(g->profile),
			"profile", e))
		return -EINVAL;
	g->card = (uint32_t)card;
	g->gi = (int32_t)gi + 1;
	g->ci = (int32_t)ci + 1;
	g->mem_total_mib = sample_take_value(json_object_get(o, "mem_total_mib"));
	g->mem_used_mib = sample_take_value(json_object_get(o, "mem_used_mib"));
	g->sm_count = sample_take_value(json_object_get(o, "sm_count"));
	return 0;
}

static int decode_instances(const json_t *msg, struct sample *s, struct err *e)
{
	const json_t *a = json_object_get(msg, "instances");
	size_t n = json_array_size(a);
	int r = 0;

	if (n > GPU_INSTANCE_MAX)
		return err_set(e, -EINVAL, "the sample names more than %d MIG instances",
			GPU_INSTANCE_MAX);
	s->snap.instances = xcalloc(n, sizeof(*s->snap.instances));
	s->snap.n_instances = (uint32_t)n;
	for (size_t i = 0; !r && i < n; i++)
		r = decode_instance(
			json_array_get(a, i), s->snap.n_cards, &s->snap.instances[i], e);
	return r;
}

/* ---- process rows ---- */

static void put_values(const struct gpu_proc *p, const struct gpu_proc_more *m, json_t *row)
{
	const struct value values[] = {
		m->sm_pct, m->mem_pct, m->enc_pct, m->dec_pct, m->cpu_pct, m->rss_mib};

	json_array_append_new(row, json_integer(p->gi - 1));
	json_array_append_new(row, json_integer(p->ci - 1));
	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		json_array_append_new(row, sample_value(values[i]));
	json_array_append_new(row, json_integer(m->start_wall_ms));
}

/* What the text takes in JSON, at most: quotes and backslashes are doubled, the rest was cleaned. */
static size_t json_bytes(const json_t *text)
{
	const char *s = json_string_value(text);
	size_t n = json_string_length(text), bytes = n + 4;

	for (size_t i = 0; i < n; i++)
		bytes += s[i] == '"' || s[i] == '\\';
	return bytes;
}

/* Appends the texts if there's room for them. */
static void put_texts(const struct gpu_proc_more *m, size_t *room, json_t *row)
{
	const char *const texts[] = {
		m->user, m->cmdline, m->container, m->pod, m->slurm_job, m->unit};
	json_t *a = json_array();
	size_t bytes = 0;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		json_t *t = sample_text(texts[i]);

		bytes += json_bytes(t);
		json_array_append_new(a, t);
	}
	if (bytes <= *room) {
		const char state[] = {m->state, '\0'};

		*room -= bytes;
		json_array_extend(row, a);
		json_array_append_new(row, sample_text(state));
		json_array_append_new(row, json_integer(m->threads));
	} else {
		*room = 0;
	}
	json_decref(a);
}

static json_t *encode_profiling(const struct gpu_profiling *p)
{
	return json_pack("{s:s, s:o, s:o}", "source", profile_source_name(p->source), "error",
		sample_text(p->error), "why", sample_text(p->why));
}

void sample_put_details(const struct sample *s, json_t *msg)
{
	const struct gpu_snapshot *snap = &s->snap;
	json_t *procs = json_object_get(msg, "procs"), *instances = json_array();
	size_t room = snap->n_procs > MANY_ROWS ? TEXTS_MANY_MAX : TEXTS_MAX;

	for (uint32_t i = 0; snap->more && i < snap->n_procs; i++) {
		json_t *row = json_array_get(procs, i);

		put_values(&snap->procs[i], &snap->more[i], row);
		put_texts(&snap->more[i], &room, row);
	}
	for (uint32_t i = 0; i < snap->n_instances; i++)
		json_array_append_new(instances, encode_instance(&snap->instances[i]));
	json_object_set_new_nocheck(msg, "details", json_true());
	json_object_set_new_nocheck(msg, "driver", sample_text(snap->driver));
	json_object_set_new_nocheck(msg, "cuda", sample_text(snap->cuda));
	json_object_set_new_nocheck(msg, "library", sample_text(snap->library));
	json_object_set_new_nocheck(msg, "instances", instances);
	json_object_set_new_nocheck(msg, "foreign_pids", json_boolean(snap->has_foreign_pids));
	json_object_set_new_nocheck(msg, "driver_us", json_integer(snap->driver_us));
	if (snap->slowest.what[0] != '\0')
		json_object_set_new_nocheck(msg, "slowest",
			json_pack("{s:o, s:i, s:I}", "what", sample_text(snap->slowest.what),
				"index", (int)snap->slowest.index, "took_us",
				(json_int_t)snap->slowest.took_us));
	if (s->with_profiling)
		json_object_set_new_nocheck(msg, "profiling", encode_profiling(&snap->profiling));
	if (s->has_host)
		json_object_set_new_nocheck(msg, "host", encode_host(&s->host));
}

static int64_t number_at(const json_t *row, size_t i, int64_t otherwise)
{
	const json_t *v = json_array_get(row, i);

	return json_is_integer(v) ? json_integer_value(v) : otherwise;
}

static int32_t instance_at(const json_t *row, size_t i)
{
	int64_t v = number_at(row, i, -1);

	return v < 0 || v >= INT32_MAX ? 0 : (int32_t)v + 1;
}

/* The state of a process; 0 for what isn't one. */
static char letter_at(const json_t *row, size_t i)
{
	const char *s = json_string_value(json_array_get(row, i));

	return s && ((s[0] >= 'A' && s[0] <= 'Z') || (s[0] >= 'a' && s[0] <= 'z')) ? s[0] : 0;
}

static int64_t number_within(const json_t *row, size_t i)
{
	int64_t v = number_at(row, i, 0);

	return v > 0 && v < INT32_MAX ? v : 0;
}

static int take_row(const json_t *row, struct gpu_proc *p, struct gpu_proc_more *m, struct err *e)
{
	struct value *const values[] = {
		&m->sm_pct, &m->mem_pct, &m->enc_pct, &m->dec_pct, &m->cpu_pct, &m->rss_mib};
	const struct {
		char *to;
		size_t size;
	} texts[] = {
		{m->user, sizeof(m->user)},
		{m->cmdline, sizeof(m->cmdline)},
		{m->container, sizeof(m->container)},
		{m->pod, sizeof(m->pod)},
		{m->slurm_job, sizeof(m->slurm_job)},
		{m->unit, sizeof(m->unit)},
	};
	size_t at = PLAIN_VALUES;

	if (json_array_size(row) <= at)
		return 0;
	p->gi = instance_at(row, at++);
	p->ci = instance_at(row, at++);
	for (size_t i = 0; i < ARRAY_LEN(values); i++)
		*values[i] = sample_take_value(json_array_get(row, at++));
	m->start_wall_ms = number_at(row, at++, 0);
	for (size_t i = 0; i < ARRAY_LEN(texts) && at < json_array_size(row); i++) {
		int r = sample_take_text(
			json_array_get(row, at++), texts[i].to, texts[i].size, "process text", e);

		if (r)
			return r;
	}
	/* Agents of before have neither. */
	m->state = letter_at(row, at);
	m->threads = (int32_t)number_within(row, at + 1);
	return 0;
}

static int64_t member_us(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) && json_integer_value(v) > 0 ? json_integer_value(v) : 0;
}

/* How long the driver took; agents of before don't say. */
static int decode_slowest(const json_t *msg, struct gpu_snapshot *snap, struct err *e)
{
	const json_t *o = json_object_get(msg, "slowest");
	int64_t index;

	snap->has_foreign_pids = json_is_true(json_object_get(msg, "foreign_pids"));
	snap->driver_us = member_us(msg, "driver_us");
	if (!json_is_object(o))
		return 0;
	if (wire_int(o, "index", -1, INT32_MAX, &index, e) ||
		sample_take_text(json_object_get(o, "what"), snap->slowest.what,
			sizeof(snap->slowest.what), "what", e))
		return -EINVAL;
	snap->slowest.index = (int32_t)index;
	snap->slowest.took_us = member_us(o, "took_us");
	return 0;
}

/* Only where it was asked for; agents of before don't know it. */
static int decode_profiling(const json_t *o, struct sample *s, struct err *e)
{
	struct gpu_profiling *p = &s->snap.profiling;
	char source[16];

	if (!json_is_object(o))
		return 0;
	if (sample_take_text(json_object_get(o, "source"), source, sizeof(source), "source", e) ||
		sample_take_text(
			json_object_get(o, "error"), p->error, sizeof(p->error), "error", e) ||
		sample_take_text(json_object_get(o, "why"), p->why, sizeof(p->why), "why", e))
		return -EINVAL;
	p->source = profile_source_from_name(source);
	s->with_profiling = true;
	return 0;
}

int sample_take_details(const json_t *msg, const json_t *procs, struct sample *s, struct err *e)
{
	struct gpu_snapshot *snap = &s->snap;
	const json_t *host = json_object_get(msg, "host");
	int r = 0;

	if (!json_is_true(json_object_get(msg, "details")))
		return 0;
	s->with_details = snap->has_details = true;
	snap->more = xcalloc(snap->n_procs, sizeof(*snap->more));
	for (uint32_t i = 0; !r && i < snap->n_procs; i++)
		r = take_row(json_array_get(procs, i), &snap->procs[i], &snap->more[i], e);
	if (r || (r = decode_slowest(msg, snap, e)) || (r = decode_instances(msg, s, e)) ||
		(r = decode_profiling(json_object_get(msg, "profiling"), s, e)))
		return r;
	if (sample_take_text(json_object_get(msg, "driver"), snap->driver, sizeof(snap->driver),
		    "driver", e) ||
		sample_take_text(
			json_object_get(msg, "cuda"), snap->cuda, sizeof(snap->cuda), "cuda", e) ||
		sample_take_text(json_object_get(msg, "library"), snap->library,
			sizeof(snap->library), "library", e))
		return -EINVAL;
	if (!json_is_object(host))
		return 0;
	s->has_host = true;
	return decode_host(host, &s->host, e);
}
