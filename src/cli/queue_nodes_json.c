/* Nodes and cards as JSON, key by key as nvidb's 9.4: see queue_nodes.h. Keys of ours stand behind theirs. */
#include "cli/queue_nodes.h"

#include "base/cleanup.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <string.h>

static void set(json_t *o, const char *key, json_t *v)
{
	json_object_set_new(o, key, v);
}

static json_t *text_or_null(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

/* -1 is unknown: never 0. */
static json_t *known(int64_t v)
{
	return v >= 0 ? json_integer(v) : json_null();
}

static const struct job *live_job(const struct cluster *c, int64_t id)
{
	for (size_t i = 0; id && i < c->live.n; i++)
		if (c->live.v[i].id == id)
			return &c->live.v[i];
	return NULL;
}

static json_t *process_json(const struct cluster *c, const struct inv_proc *p)
{
	const struct job *j = live_job(c, p->job);
	char kind[2] = {p->kind, '\0'};
	json_t *o = json_object();

	set(o, "pid", json_integer(p->pid));
	set(o, "mem_mb", known(p->mem_mib));
	set(o, "name", text_or_null(p->name));
	set(o, "user", text_or_null(p->user));
	set(o, "type", text_or_null(kind));
	set(o, "job_id", p->job ? json_integer(p->job) : json_null());
	set(o, "job_name", j ? json_string(j->name ? j->name : "") : json_null());
	set(o, "managed", json_boolean(p->is_managed));
	return o;
}

static void put_theirs(json_t *o, const struct cluster *c, const struct cluster_node *n,
	const struct cluster_card *k)
{
	const struct inv_card *v = k->inv;
	json_t *procs = json_array();

	for (size_t i = 0; i < v->n_procs_kept; i++)
		json_array_append_new(procs, process_json(c, &v->procs[i]));
	set(o, "node", json_string(n->row->name));
	set(o, "index", json_integer(v->index));
	set(o, "name", text_or_null(v->name));
	set(o, "mem_total_mb", known(v->total_mib));
	set(o, "mem_used_mb", known(v->used_mib));
	set(o, "mem_used_percent",
		v->used_mib >= 0 && v->total_mib > 0
			? json_real((double)(v->used_mib * 1000 / v->total_mib) / 10)
			: json_null());
	set(o, "external_mem_mb", known(v->external_mib));
	set(o, "external_procs", known(v->external_procs));
	set(o, "queue_mem_mb", known(k->queue_mem_mib));
	set(o, "attribution", json_string(v->is_blind ? "blind" : "processes"));
	set(o, "reserved_mb", known(k->reserved_mib));
	set(o, "queue_jobs", json_integer(k->queue_jobs));
	set(o, "free_mb", known(k->free_mib));
	set(o, "util_percent", known(v->util_pct));
	set(o, "mem_util_percent", known(v->mem_util_pct));
	set(o, "temperature_c", known(v->temperature_c));
	set(o, "processes", procs);
	set(o, "updated_at", record_time(n->inv.sampled_wall_ms));
}

static json_t *card_json(const struct cluster *c, const struct cluster_node *n, size_t i)
{
	const struct cluster_card *k = &n->cards[i];
	const struct inv_card *v = k->inv;
	CLEANUP(buf_done) struct buf id = {0};
	json_t *o = json_object();

	queue_card_put(&n->inv, i, &id);
	put_theirs(o, c, n, k);
	set(o, "id", json_string(buf_str(&id)));
	set(o, "uuid", text_or_null(v->uuid));
	set(o, "mig_parent", text_or_null(v->parent));
	set(o, "mig_profile", text_or_null(v->profile));
	set(o, "is_mig_parent", json_boolean(v->is_mig_parent));
	set(o, "present", json_boolean(v->is_present));
	set(o, "allowed", json_boolean(k->is_allowed));
	set(o, "in_service", json_boolean(k->is_in_service));
	set(o, "out_reason", k->is_in_service ? json_null() : text_or_null(k->out_why));
	set(o, "promised_mb", known(v->promised_mib));
	set(o, "process_count", json_integer((json_int_t)v->n_procs));
	set(o, "xid", v->xid > 0 ? json_integer(v->xid) : json_null());
	set(o, "xid_at", record_time(v->xid_ms));
	return o;
}

static json_t *node_json(
	const struct cluster *c, const struct cluster_node *n, const struct nodes_view *view)
{
	const struct store_node *row = n->row;
	json_t *o = json_object(), *gpus = json_array();
	size_t n_whole = 0;

	for (size_t i = 0; i < n->inv.n_cards; i++) {
		if (view->is_masked && !n->cards[i].is_allowed)
			continue;
		n_whole += !n->inv.cards[i].parent[0];
		json_array_append_new(gpus, card_json(c, n, i));
	}
	set(o, "name", json_string(row->name));
	set(o, "hostname", text_or_null(row->hostname));
	set(o, "port", row->port ? json_integer(row->port) : json_null());
	set(o, "username", text_or_null(row->username));
	set(o, "state", row->state && *row->state ? json_string(row->state) : json_string("unknown"));
	set(o, "enabled", json_boolean(!row->is_drained));
	set(o, "ignored", json_boolean(row->is_ignored));
	set(o, "last_seen", record_time(row->last_seen_ms));
	set(o, "last_error", text_or_null(row->last_error));
	set(o, "gpu_count", json_integer((json_int_t)n_whole));
	set(o, "probed_at", record_time(row->probed_ms));
	set(o, "gpus", gpus);
	set(o, "usable", json_boolean(n->is_usable));
	set(o, "why_not", text_or_null(n->why_not));
	set(o, "configured", json_boolean(n->config != NULL));
	set(o, "source", text_or_null(n->inv.source));
	set(o, "jobs", json_integer((json_int_t)n->n_jobs));
	set(o, "cpu_jobs", json_integer((json_int_t)n->n_cpu_jobs));
	set(o, "cores", n->inv.cores > 0 ? json_integer(n->inv.cores) : json_null());
	set(o, "cores_declared", json_integer(n->cpus_used));
	set(o, "host_mem_mb", n->inv.mem_total_mib > 0 ? json_integer(n->inv.mem_total_mib) : json_null());
	set(o, "host_mem_declared_mb", json_integer(n->mem_used_mib));
	return o;
}

json_t *queue_nodes_json(const struct cluster *c, const struct nodes_view *v)
{
	json_t *a = json_array();

	for (size_t i = 0; i < c->n_nodes; i++)
		if (v->with_ignored || !c->nodes[i].row->is_ignored)
			json_array_append_new(a, node_json(c, &c->nodes[i], v));
	return a;
}

json_t *queue_nodes_ignored(const struct cluster *c)
{
	json_t *a = json_array();

	for (size_t i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].row->is_ignored)
			json_array_append_new(a, json_string(c->nodes[i].row->name));
	return a;
}
