/*
 * The document of `gpustow --once --json`. Every key is in docs/once.md, and a test holds the two together. A key is always
 * there: what isn't known is null, and for a card's figures the reason stands in "absent". Units are in the keys.
 */
#include "show/once.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "core/profile.h"
#include "show/health.h"
#include "core/xid.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Names come from drivers, processes and people: valid and harmless text, or null for "". */
static json_t *text_or_null(const char *s)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!s || !s[0])
		return json_null();
	text_put_clean(&b, s, strlen(s));
	return json_string(buf_str(&b));
}

static json_t *value_or_null(struct value v)
{
	return value_is_present(v) ? json_integer(v.v) : json_null();
}

static json_t *number_or_null(int64_t v, bool is_there)
{
	return is_there ? json_integer(v) : json_null();
}

static void set(json_t *o, const char *key, json_t *v)
{
	json_object_set_new_nocheck(o, key, v);
}

/* ---- a card ---- */

static json_t *throttle_words(struct value bits)
{
	json_t *list = json_array();

	for (unsigned i = 0; value_is_present(bits) && i < 63; i++)
		if ((uint64_t)bits.v >> i & 1 && health_throttle_word(i))
			json_array_append_new(list, json_string(health_throttle_word(i)));
	return list;
}

static json_t *health_list(const struct gpu_card *c)
{
	struct health_fact facts[HEALTH_FACTS_MAX];
	size_t n = health_of(c, facts);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s}", "kind", facts[i].kind, "weight",
				      health_weight_name(facts[i].weight), "text", facts[i].text));
	return list;
}

static void set_metrics(json_t *o, const struct gpu_card *c)
{
	json_t *absent = json_object();

	for (size_t i = 0; i < METRIC_N; i++) {
		set(o, metric_info[i].key, value_or_null(c->m[i]));
		if (!value_is_present(c->m[i]))
			set(absent, metric_info[i].key,
				json_string(value_state_name(c->m[i].state)));
	}
	set(o, "absent", absent);
}

/* An instance has few figures of its own: these, where the card's counters tell them apart. */
static void set_instance_profile(json_t *o, const struct gpu_snapshot *s, const char *uuid)
{
	int at = gpu_find_uuid(s, uuid);

	for (size_t m = METRIC_PROFILE_FIRST; m < METRIC_N; m++)
		set(o, metric_info[m].key,
			value_or_null(
				at < 0 ? value_absent(VALUE_UNSUPPORTED) : s->cards[at].m[m]));
}

static json_t *instances_of(const struct sample *s, uint32_t card)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < s->snap.n_instances; i++) {
		const struct gpu_instance *g = &s->snap.instances[i];
		json_t *o = json_object();

		if (g->card != card) {
			json_decref(o);
			continue;
		}
		set(o, "uuid", text_or_null(g->uuid));
		set(o, "profile", text_or_null(g->profile));
		set(o, "gpu_instance", number_or_null(g->gi - 1, g->gi > 0));
		set(o, "compute_instance", number_or_null(g->ci - 1, g->ci > 0));
		set(o, "mem_total_mib", value_or_null(g->mem_total_mib));
		set(o, "mem_used_mib", value_or_null(g->mem_used_mib));
		set(o, "sm_count", value_or_null(g->sm_count));
		set_instance_profile(o, &s->snap, g->uuid);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *peers_of(const struct sample *s, const struct gpu_card *c)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < s->snap.n_cards; i++)
		if (c->nvlink_peers >> i & 1)
			json_array_append_new(list, json_integer(s->snap.cards[i].index));
	return list;
}

/* What our own jobs were promised there and don't hold yet. */
static int64_t reserved_mib(const struct sample *s, uint32_t card)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < s->n_rows; i++)
		if (gpu_whole_of(&s->snap, s->rows[i].card) == card &&
			s->rows[i].budget_mib > s->rows[i].held_mib)
			sum += s->rows[i].budget_mib - s->rows[i].held_mib;
	return sum;
}

/* On the card, and on the instances that it was cut into. */
static int64_t others_promised_mib(const struct sample *s, uint32_t card)
{
	int64_t sum = 0;

	for (uint32_t i = 0; s->promised_mib && i < s->snap.n_cards; i++)
		if (gpu_whole_of(&s->snap, i) == card)
			sum += s->promised_mib[i];
	return sum;
}

/* What the last XID means; null without one, or when it isn't known here. */
static json_t *xid_json(const struct gpu_card *c)
{
	struct value last = c->m[METRIC_XID_LAST];
	CLEANUP(buf_done) struct buf b = {0};

	xid_put(value_is_present(last) ? xid_find(last.v) : NULL, &b);
	return text_or_null(b.len ? buf_str(&b) : NULL);
}

static json_t *card_json(const struct sample *s, uint32_t i)
{
	const struct gpu_card *c = &s->snap.cards[i];
	json_t *o = json_object();

	set(o, "index", json_integer(c->index));
	set(o, "uuid", text_or_null(c->uuid));
	set(o, "name", text_or_null(c->name));
	set(o, "architecture", text_or_null(c->arch));
	set(o, "bus_id", text_or_null(c->bus_id));
	set(o, "state", json_string(gpu_state_name(c->state)));
	set(o, "is_idle", json_boolean(show_card_is_idle(c)));
	set(o, "has_unified_memory", json_boolean(c->is_unified));
	set(o, "is_blind", json_boolean(c->is_blind));
	set(o, "numa_node", number_or_null(c->numa, c->numa >= 0));
	set(o, "nvlink_peers", peers_of(s, c));
	set(o, "jobs_reserved_mib", json_integer(reserved_mib(s, i)));
	set(o, "others_promised_mib", json_integer(others_promised_mib(s, i)));
	set_metrics(o, c);
	set(o, "throttle", throttle_words(c->m[METRIC_THROTTLE]));
	set(o, "xid_text", xid_json(c));
	set(o, "health", health_list(c));
	set(o, "instances", instances_of(s, i));
	return o;
}

/* ---- a process ---- */

/* As nvidia-smi writes it: "C", "G", "C+G", with M for a client of MPS. */
static json_t *kind_json(uint32_t kind)
{
	char text[8] = "";

	snprintf(text, sizeof(text), "%s%s%s", kind & GPU_PROC_COMPUTE ? "+C" : "",
		kind & GPU_PROC_GRAPHICS ? "+G" : "", kind & GPU_PROC_MPS ? "+M" : "");
	return text[0] ? json_string(text + 1) : json_null();
}

static void set_job(json_t *o, const struct sample *s, uint32_t i)
{
	uint32_t row = s->proc_row ? s->proc_row[i] : 0;
	const struct ledger_row *r = row && row <= s->n_rows ? &s->rows[row - 1] : NULL;

	set(o, "job",
		r ? json_pack("{s:s, s:I, s:i}", "queue", r->name.queue, "job",
			    (json_int_t)r->name.job, "attempt", (int)r->name.attempt)
		  : json_null());
}

static json_t *process_json(const struct sample *s, uint32_t i)
{
	static const struct gpu_proc_more nothing;
	const struct gpu_proc *p = &s->snap.procs[i];
	const struct gpu_proc_more *m = s->snap.more ? &s->snap.more[i] : &nothing;
	json_t *o = json_object();

	set(o, "pid", json_integer(p->pid));
	set(o, "gpu_index", json_integer(s->snap.cards[p->card].index));
	set(o, "gpu_uuid", text_or_null(s->snap.cards[gpu_whole_of(&s->snap, p->card)].uuid));
	set(o, "gpu_instance", number_or_null(p->gi - 1, p->gi > 0));
	set(o, "compute_instance", number_or_null(p->ci - 1, p->ci > 0));
	set(o, "type", kind_json(p->kind));
	set(o, "name", text_or_null(p->comm));
	set(o, "command", text_or_null(m->cmdline));
	set(o, "uid", number_or_null(p->uid, p->uid != (uint32_t)-1));
	set(o, "user", text_or_null(m->user));
	set(o, "used_mib", value_or_null(p->used_mib));
	set(o, "sm_pct", value_or_null(m->sm_pct));
	set(o, "mem_pct", value_or_null(m->mem_pct));
	set(o, "enc_pct", value_or_null(m->enc_pct));
	set(o, "dec_pct", value_or_null(m->dec_pct));
	set(o, "cpu_pct", value_or_null(m->cpu_pct));
	set(o, "rss_mib", value_or_null(m->rss_mib));
	set(o, "started_wall_ms", number_or_null(m->start_wall_ms, m->start_wall_ms > 0));
	set(o, "container", text_or_null(m->container));
	set(o, "pod", text_or_null(m->pod));
	set(o, "slurm_job", text_or_null(m->slurm_job));
	set(o, "unit", text_or_null(m->unit));
	set_job(o, s, i);
	return o;
}

/* ---- a host ---- */

static json_t *machine_json(const struct sample *s)
{
	static const struct host_figures nothing;
	const struct host_figures *h = s && s->has_host ? &s->host : &nothing;
	json_t *o = json_object();

	set(o, "host_name", text_or_null(h->host_name));
	set(o, "os", text_or_null(h->os));
	set(o, "kernel", text_or_null(h->kernel));
	set(o, "boot_id", text_or_null(h->boot_id));
	set(o, "cores", number_or_null(h->cores, h->cores > 0));
	set(o, "cpu_pct", value_or_null(h->cpu_pct));
	set(o, "mem_total_mib", value_or_null(h->mem_total_mib));
	set(o, "mem_used_mib", value_or_null(h->mem_used_mib));
	set(o, "swap_total_mib", value_or_null(h->swap_total_mib));
	set(o, "swap_used_mib", value_or_null(h->swap_used_mib));
	set(o, "load_1m_milli", value_or_null(h->load_1m_milli));
	set(o, "load_5m_milli", value_or_null(h->load_5m_milli));
	set(o, "load_15m_milli", value_or_null(h->load_15m_milli));
	set(o, "uptime_ms", value_or_null(h->uptime_ms));
	set(o, "on_battery",
		value_is_present(h->on_battery) ? json_boolean(h->on_battery.v) : json_null());
	return o;
}

static json_t *slowest_json(const struct gpu_snapshot *s)
{
	json_t *o;

	if (!s || !s->slowest.what[0])
		return json_null();
	o = json_object();
	set(o, "what", text_or_null(s->slowest.what));
	set(o, "gpu_index", number_or_null(s->slowest.index, s->slowest.index >= 0));
	set(o, "took_us", json_integer(s->slowest.took_us));
	return o;
}

static json_t *profiling_json(const struct gpu_snapshot *s)
{
	static const struct gpu_profiling nothing;
	const struct gpu_profiling *p = s ? &s->profiling : &nothing;
	json_t *o = json_object();

	set(o, "source", text_or_null(profile_source_name(p->source)));
	set(o, "error", text_or_null(p->error));
	set(o, "why", text_or_null(p->why));
	return o;
}

static json_t *timings_json(const struct show_host *h)
{
	json_t *o = json_object();

	set(o, "connected_ms", number_or_null(h->connected_ms, h->connected_ms >= 0));
	set(o, "hello_ms", number_or_null(h->hello_ms, h->hello_ms >= 0));
	set(o, "first_sample_ms", number_or_null(h->first_sample_ms, h->first_sample_ms >= 0));
	set(o, "round_trip_ms", number_or_null(h->rtt_ms, h->rtt_ms >= 0));
	return o;
}

static json_t *host_json(const struct show_host *h, bool with_timings)
{
	const struct gpu_snapshot *s = h->sample ? &h->sample->snap : NULL;
	json_t *o = json_object(), *cards = json_array(), *processes = json_array();

	for (uint32_t i = 0; s && i < s->n_cards; i++)
		if (!gpu_is_instance(&s->cards[i]))
			json_array_append_new(cards, card_json(h->sample, i));
	for (uint32_t i = 0; s && i < s->n_procs; i++)
		json_array_append_new(processes, process_json(h->sample, i));
	set(o, "name", text_or_null(h->name));
	set(o, "address", text_or_null(h->address));
	set(o, "state", json_string(h->state));
	set(o, "why", text_or_null(h->why));
	set(o, "has_answered", json_boolean(h->has_answered));
	set(o, "is_stale", json_boolean(h->is_stale));
	set(o, "source", text_or_null(s ? s->source : NULL));
	set(o, "source_error", text_or_null(s ? s->error : NULL));
	set(o, "driver_version", text_or_null(s ? s->driver : NULL));
	set(o, "cuda_version", text_or_null(s ? s->cuda : NULL));
	set(o, "library_version", text_or_null(s ? s->library : NULL));
	set(o, "sample_age_ms", number_or_null(h->sample_age_ms, s && h->sample_age_ms >= 0));
	set(o, "clock_offset_ms", number_or_null(h->clock_offset_ms, s != NULL));
	set(o, "driver_took_us", number_or_null(s ? s->driver_us : 0, s && s->driver_us > 0));
	set(o, "slowest_call", slowest_json(s));
	set(o, "has_foreign_pids", json_boolean(s && s->has_foreign_pids));
	set(o, "profiling", profiling_json(s));
	set(o, "machine", machine_json(h->sample));
	set(o, "cards", cards);
	set(o, "processes", processes);
	if (with_timings)
		set(o, "timings", timings_json(h));
	return o;
}

static json_t *time_json(int64_t wall_ms)
{
	time_t seconds = (time_t)(wall_ms / 1000);
	char text[40] = "";
	struct tm tm;

	if (gmtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return text_or_null(text);
}

json_t *once_json(const struct show_fleet *f, bool with_timings)
{
	json_t *o = json_object(), *hosts = json_array(), *errors = json_array();

	for (size_t i = 0; i < f->n; i++) {
		const struct show_host *h = &f->hosts[i];
		json_t *error;

		json_array_append_new(hosts, host_json(h, with_timings));
		if (h->has_answered)
			continue;
		error = json_object();
		set(error, "host", text_or_null(h->name));
		set(error, "state", json_string(h->state));
		set(error, "why", text_or_null(h->why));
		json_array_append_new(errors, error);
	}
	set(o, "schema_version", json_integer(ONCE_SCHEMA_VERSION));
	set(o, "generated_at", time_json(f->now_wall_ms));
	set(o, "generated_at_wall_ms", json_integer(f->now_wall_ms));
	set(o, "hosts", hosts);
	set(o, "errors", errors);
	return o;
}
