/*
 * Nodes, GPUs and reasons as JSON: nvidb's keys as its spec 9.4 has them, in its order and units, then ours. What isn't known
 * is null.
 */
#include "queue/cluster_inner.h"

#include "base/cleanup.h"
#include "queue/record_json.h"

#include <stdio.h>
#include <string.h>

static json_t *text_or_null(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

static json_t *figure(int64_t v)
{
	return v >= 0 ? json_integer(v) : json_null();
}

/* ---- GPUs ---- */

static const char *job_name(const struct cluster *c, int64_t id)
{
	const struct job *j = id ? cluster_live(c, id) : NULL;

	return j ? j->name : NULL;
}

static json_t *procs_json(const struct cluster *c, const struct inv_card *card)
{
	json_t *a = json_array();

	for (size_t i = 0; i < card->n_procs_kept; i++) {
		const struct inv_proc *p = &card->procs[i];
		char kind[2] = {p->kind, 0};
		json_t *o = json_object();

		json_object_set_new(o, "pid", json_integer(p->pid));
		json_object_set_new(o, "mem_mb", figure(p->mem_mib));
		json_object_set_new(o, "name", text_or_null(p->name));
		json_object_set_new(o, "user", text_or_null(p->user));
		json_object_set_new(o, "type", json_string(kind));
		json_object_set_new(o, "job_id", p->job ? json_integer(p->job) : json_null());
		json_object_set_new(o, "job_name", text_or_null(job_name(c, p->job)));
		json_object_set_new(o, "managed", json_boolean(p->is_managed));
		json_array_append_new(a, o);
	}
	return a;
}

static json_t *used_percent(const struct inv_card *i)
{
	if (i->used_mib < 0 || i->total_mib <= 0)
		return json_null();
	int64_t tenths = i->used_mib * 1000 / i->total_mib;

	return json_real((double)tenths / 10);
}

static void put_ours(json_t *o, const struct cluster_node *n, const struct cluster_card *card)
{
	const struct inv_card *i = card->inv;
	char label[GPU_LABEL_LEN];
	bool is_open = card->is_usable && n->is_usable;

	inv_card_label(i, label);
	json_object_set_new(o, "uuid", text_or_null(i->uuid));
	json_object_set_new(o, "label", json_string(label));
	json_object_set_new(o, "parent", text_or_null(i->parent));
	json_object_set_new(o, "mig_profile", text_or_null(i->profile));
	json_object_set_new(o, "is_mig_parent", json_boolean(i->is_mig_parent));
	json_object_set_new(o, "state", json_string(gpu_state_name(i->state)));
	json_object_set_new(o, "present", json_boolean(i->is_present));
	json_object_set_new(o, "allowed", json_boolean(card->is_allowed));
	json_object_set_new(o, "in_service", json_boolean(card->is_in_service));
	json_object_set_new(o, "out_of_service_reason", text_or_null(card->out_why));
	json_object_set_new(o, "placeable", json_boolean(is_open));
	json_object_set_new(o, "why_not_placeable",
		is_open ? json_null() : text_or_null(card->is_usable ? n->why_not : card->why_not));
	json_object_set_new(o, "promised_mb", json_integer(card->room.promised_mib));
	json_object_set_new(o, "other_queues_mb", json_integer(card->others_mib));
	json_object_set_new(o, "headroom_mb", json_integer(card->room.headroom_mib));
	json_object_set_new(o, "xid", i->xid ? json_integer(i->xid) : json_null());
	json_object_set_new(o, "xid_at", record_time(i->xid ? i->xid_ms : 0));
	json_object_set_new(o, "process_count", json_integer((json_int_t)i->n_procs));
}

json_t *cluster_gpu_json(const struct cluster *c, size_t node, size_t card)
{
	const struct cluster_node *n = &c->nodes[node];
	const struct cluster_card *k = &n->cards[card];
	const struct inv_card *i = k->inv;
	json_t *o = json_object();

	json_object_set_new(o, "node", json_string(cluster_node_name(n)));
	json_object_set_new(o, "index", json_integer(i->index));
	json_object_set_new(o, "name", text_or_null(i->name));
	json_object_set_new(o, "mem_total_mb", figure(i->total_mib));
	json_object_set_new(o, "mem_used_mb", figure(i->used_mib));
	json_object_set_new(o, "mem_used_percent", used_percent(i));
	json_object_set_new(o, "external_mem_mb",
		i->used_mib < 0 ? json_null() : json_integer(k->room.foreign_mib));
	json_object_set_new(o, "external_procs", json_integer(i->external_procs));
	json_object_set_new(o, "queue_mem_mb", json_integer(k->queue_mem_mib));
	json_object_set_new(o, "attribution", json_string(i->is_blind ? "blind" : "processes"));
	json_object_set_new(o, "reserved_mb", json_integer(k->reserved_mib));
	json_object_set_new(o, "queue_jobs", json_integer(k->queue_jobs));
	json_object_set_new(o, "free_mb",
		i->used_mib < 0 || i->total_mib < 0 ? json_null() : json_integer(k->free_mib));
	json_object_set_new(o, "util_percent", figure(i->util_pct));
	json_object_set_new(o, "mem_util_percent", figure(i->mem_util_pct));
	json_object_set_new(o, "temperature_c", figure(i->temperature_c));
	json_object_set_new(o, "processes", procs_json(c, i));
	json_object_set_new(o, "updated_at", record_time(n->inv.sampled_wall_ms));
	put_ours(o, n, k);
	return o;
}

/* ---- nodes ---- */

static const char *hostname_of(const struct cluster_node *n)
{
	if (n->row && n->row->hostname)
		return n->row->hostname;
	if (n->config && !n->config->host)
		return "localhost";
	return n->config ? n->config->host->hostname : NULL;
}

static int64_t port_of(const struct cluster_node *n)
{
	if (n->row)
		return n->row->port;
	return n->config && n->config->host ? n->config->host->port : 0;
}

static const char *username_of(const struct cluster_node *n)
{
	if (n->row && n->row->username)
		return n->row->username;
	return n->config && n->config->host ? n->config->host->username : NULL;
}

static json_t *gpus_json(const struct cluster *c, size_t node, bool mask_allowlist)
{
	const struct cluster_node *n = &c->nodes[node];
	json_t *a = json_array();

	for (size_t i = 0; i < n->inv.n_cards; i++)
		if (!mask_allowlist || n->cards[i].is_allowed)
			json_array_append_new(a, cluster_gpu_json(c, node, i));
	return a;
}

json_t *cluster_node_json(const struct cluster *c, size_t node, bool mask_allowlist)
{
	const struct cluster_node *n = &c->nodes[node];
	const struct store_node *r = n->row;
	json_t *o = json_object(), *gpus = gpus_json(c, node, mask_allowlist);

	json_object_set_new(o, "name", json_string(cluster_node_name(n)));
	json_object_set_new(o, "hostname", text_or_null(hostname_of(n)));
	json_object_set_new(o, "port", json_integer(port_of(n)));
	json_object_set_new(o, "username", text_or_null(username_of(n)));
	json_object_set_new(o, "state", json_string(r && r->state ? r->state : "unknown"));
	json_object_set_new(o, "enabled", json_boolean(!(r && r->is_drained)));
	json_object_set_new(o, "ignored", json_boolean(r && r->is_ignored));
	json_object_set_new(o, "last_seen", record_time(r ? r->last_seen_ms : 0));
	json_object_set_new(o, "last_error", text_or_null(r ? r->last_error : NULL));
	json_object_set_new(o, "gpu_count", json_integer((json_int_t)json_array_size(gpus)));
	json_object_set_new(o, "probed_at", record_time(r ? r->probed_ms : 0));
	json_object_set_new(o, "gpus", gpus);
	json_object_set_new(o, "configured", json_boolean(n->config != NULL));
	json_object_set_new(o, "placeable", json_boolean(n->is_usable));
	json_object_set_new(o, "why_not_placeable", text_or_null(n->why_not));
	json_object_set_new(o, "jobs", json_integer(n->n_jobs));
	json_object_set_new(o, "cpu_jobs", json_integer(n->n_cpu_jobs));
	json_object_set_new(o, "cpus", n->inv.cores > 0 ? json_integer(n->inv.cores) : json_null());
	json_object_set_new(o, "cpus_declared", json_integer(n->cpus_used));
	json_object_set_new(o, "mem_total_mb", figure(n->inv.mem_total_mib));
	json_object_set_new(o, "mem_available_mb", figure(n->inv.mem_available_mib));
	json_object_set_new(o, "mem_declared_mb", json_integer(n->mem_used_mib));
	json_object_set_new(o, "source", text_or_null(n->inv.source));
	json_object_set_new(o, "gpu_error", text_or_null(n->inv.error));
	return o;
}

/* ---- reasons ---- */

static const char *const words[] = {
	[WHY_NONE] = "starts",
	[WHY_MEMORY] = "memory",
	[WHY_NO_IDLE] = "no-idle-gpu",
	[WHY_FEW_CARDS] = "few-gpus",
	[WHY_PROMISED] = "promised",
	[WHY_JOBS_LIMIT] = "jobs-limit",
	[WHY_GUARDED] = "guarded",
	[WHY_BLOCKED] = "blocked",
	[WHY_NO_NODE] = "no-node",
	[WHY_NVLINK] = "nvlink",
	[WHY_THRESHOLD] = "idle-threshold",
	[WHY_NOT_IDLE] = "not-idle",
	[WHY_OUT_OF_SERVICE] = "out-of-service",
	[WHY_HOST] = "host",
	[WHY_TOO_MANY_CARDS] = "too-many-gpus",
	[WHY_TOO_BIG] = "too-big",
	[WHY_NO_CARD] = "no-such-gpu",
	[WHY_NOT_JOINED] = "not-joined",
	[WHY_HOST_TOO_SMALL] = "host-too-small",
};

static const char *word_of(const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	const struct job *j = &c->pending.v[i];
	const struct store_unmet_row *rows;

	if (p->decisions[i].why != WHY_BLOCKED)
		return words[p->decisions[i].why];
	if (job_is_held(j))
		return "held";
	return cluster_unmet_of(c, j, &rows) ? "needs" : "nodes-unasked";
}

static void add_once(json_t *list, int64_t id)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_integer_value(json_array_get(list, i)) == id)
			return;
	json_array_append_new(list, json_integer(id));
}

/* Prerequisites; else what is on the cards kept for it, or on the best one. */
static json_t *blockers_json(const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	const struct plan_decision *d = &p->decisions[i];
	const struct job *j = &c->pending.v[i];
	const struct store_unmet_row *rows;
	size_t n = cluster_unmet_of(c, j, &rows);
	json_t *a = json_array();
	int32_t node = d->guard_cards ? d->guard_node : d->best_card >= 0 ? d->best_node : -1;
	uint64_t cards = d->guard_cards	     ? d->guard_cards
			 : d->best_card >= 0 ? UINT64_C(1) << d->best_card
					     : 0;

	for (size_t k = 0; k < n; k++)
		if (cluster_row_blocks(j, &rows[k]))
			add_once(a, rows[k].needs);
	for (size_t k = 0; node >= 0 && k < c->inner->charges[node].n; k++) {
		const struct charge *x = &c->inner->charges[node].v[k];
		if (x->job && (cards >> x->card & 1) &&
			c->inner->charges[node].running[k].beside_guard != (uint64_t)j->id)
			add_once(a, x->job);
	}
	return a;
}

static json_t *best_json(const struct cluster *c, const struct plan_decision *d)
{
	char label[GPU_LABEL_LEN];

	if (d->best_node < 0 || d->best_card < 0)
		return json_null();
	inv_card_label(&c->nodes[d->best_node].inv.cards[d->best_card], label);
	return json_pack("{s:s, s:s, s:I}", "node", cluster_node_name(&c->nodes[d->best_node]),
		"gpu", label, "free_mib",
		(json_int_t)(d->best_free_mib > 0 ? d->best_free_mib : 0));
}

json_t *cluster_why_json(const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	CLEANUP(buf_done) struct buf text = {0};
	const struct plan_decision *d = &p->decisions[i];
	enum vram_source source;
	int64_t need = cluster_need_mib(c, p, i, &source);
	struct estimate e = cluster_estimate(c, p, i);
	json_t *o = json_object();

	cluster_why(c, p, i, &text);
	json_object_set_new(o, "reason", json_string(word_of(c, p, i)));
	json_object_set_new(o, "text", json_string(buf_str(&text)));
	json_object_set_new(o, "never", json_boolean(d->what == PLAN_NEVER));
	json_object_set_new(o, "need_mib", figure(need));
	json_object_set_new(o, "vram_source", json_string(vram_source_name(source)));
	json_object_set_new(o, "best", best_json(c, d));
	json_object_set_new(o, "blocked_by", blockers_json(c, p, i));
	json_object_set_new(o, "guard",
		d->why == WHY_GUARDED ? json_integer((json_int_t)d->guard_id) : json_null());
	json_object_set_new(
		o, "estimate_s", e.ms >= 0 ? json_integer((e.ms + 999) / 1000) : json_null());
	return o;
}
