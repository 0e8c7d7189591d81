/* A snapshot out of its JSON (queue_snap.h): bounded, and whatever is missing is unknown. */
#include "tui/queue_snap.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[SNAP_STATE_N] = {
	"pending", "running", "completed", "failed", "cancelled", "timeout", "lost"};

const char *snap_state_name(enum snap_state s)
{
	return state_names[s];
}

static int64_t number(const json_t *o, const char *key, int64_t none)
{
	const json_t *v = json_object_get(o, key);

	return json_is_number(v) ? (int64_t)json_number_value(v) : none;
}

static bool flag(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

static void text(const json_t *o, const char *key, char *ret, size_t cap)
{
	const char *s = json_string_value(json_object_get(o, key));

	snprintf(ret, cap, "%s", s ? s : "");
}

static char *owned(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return xstrdup(s ? s : "");
}

static size_t sized(const json_t *list, size_t max)
{
	size_t n = json_array_size(list);

	return n < max ? n : max;
}

/* ---- nodes ---- */

static void read_procs(const json_t *list, struct snap_card *ret)
{
	ret->n_procs = sized(list, SNAP_PROCS_MAX);
	ret->procs = xcalloc(ret->n_procs ? ret->n_procs : 1, sizeof(*ret->procs));
	for (size_t i = 0; i < ret->n_procs; i++) {
		const json_t *o = json_array_get(list, i);
		struct snap_proc *p = &ret->procs[i];

		p->pid = number(o, "pid", -1);
		p->mem_mib = number(o, "mem_mb", -1);
		text(o, "user", p->user, sizeof(p->user));
		text(o, "name", p->name, sizeof(p->name));
		p->is_ours = flag(o, "managed");
	}
}

static void read_card(const json_t *o, struct snap_card *ret)
{
	const char *attribution = json_string_value(json_object_get(o, "attribution"));

	text(o, "label", ret->label, sizeof(ret->label));
	text(o, "name", ret->name, sizeof(ret->name));
	text(o, "why_not_placeable", ret->why, sizeof(ret->why));
	text(o, "lane_blocked", ret->lane_why, sizeof(ret->lane_why));
	ret->is_lane_paused = flag(o, "lane_paused");
	ret->total_mib = number(o, "mem_total_mb", -1);
	ret->used_mib = number(o, "mem_used_mb", -1);
	ret->foreign_mib = number(o, "external_mem_mb", -1);
	ret->reserved_mib = number(o, "reserved_mb", 0);
	ret->free_mib = number(o, "free_mb", -1);
	ret->util_pct = number(o, "util_percent", -1);
	ret->temperature_c = number(o, "temperature_c", -1);
	ret->n_external = number(o, "external_procs", 0);
	ret->n_jobs = (uint32_t)number(o, "queue_jobs", 0);
	ret->is_blind = attribution && !strcmp(attribution, "blind");
	ret->is_present = flag(o, "present");
	ret->is_in_service = flag(o, "in_service");
	read_procs(json_object_get(o, "processes"), ret);
}

static void read_node(const json_t *o, struct snap_node *ret)
{
	const json_t *cards = json_object_get(o, "gpus"), *c;
	size_t i;

	text(o, "name", ret->name, sizeof(ret->name));
	text(o, "hostname", ret->hostname, sizeof(ret->hostname));
	text(o, "state", ret->state, sizeof(ret->state));
	text(o, "why_not_placeable", ret->why, sizeof(ret->why));
	ret->is_drained = !flag(o, "enabled");
	ret->cards = xcalloc(json_array_size(cards) + 1, sizeof(*ret->cards));
	json_array_foreach(cards, i, c)
	{
		/* One that's split isn't a place for jobs: its slices are. */
		if (flag(c, "is_mig_parent") || ret->n_cards >= SNAP_CARDS_MAX)
			continue;
		read_card(c, &ret->cards[ret->n_cards++]);
	}
}

/* ---- jobs ---- */

static enum snap_state state_of(const json_t *o)
{
	const char *s = json_string_value(json_object_get(o, "state"));

	for (int i = 0; s && i < SNAP_STATE_N; i++)
		if (!strcmp(s, state_names[i]))
			return (enum snap_state)i;
	return SNAP_LOST;
}

static void read_needs(const json_t *o, struct snap_job *ret)
{
	static const char *const keys[] = {"after", "after_any"};
	size_t all = json_array_size(json_object_get(o, keys[0])) +
		     json_array_size(json_object_get(o, keys[1]));

	ret->needs = xcalloc(all ? all : 1, sizeof(*ret->needs));
	for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
		const json_t *list = json_object_get(o, keys[k]), *id;
		size_t i;

		json_array_foreach(list, i, id) if (ret->n_needs < SNAP_NEEDS_MAX)
			ret->needs[ret->n_needs++] =
			(struct snap_need){json_integer_value(id), k == 1};
	}
}

static void read_job(const json_t *o, struct snap_job *ret)
{
	const json_t *cards = json_object_get(o, "cards");

	ret->id = number(o, "id", 0);
	ret->state = state_of(o);
	ret->priority = number(o, "priority", 0);
	ret->gpus = number(o, "gpus", 0);
	ret->vram_mib = number(o, "vram_mb", -1);
	ret->used_mib = number(o, "used_mb", -1);
	ret->started_ms = number(o, "started_ms", 0);
	ret->elapsed_ms = number(o, "elapsed_ms", -1);
	ret->exit_code = number(o, "exit_code", 0);
	ret->has_exit_code = json_is_integer(json_object_get(o, "exit_code"));
	ret->lane_seq = number(o, "lane_seq", 0);
	ret->is_held = flag(o, "held");
	ret->is_bound = flag(o, "bound");
	ret->is_cancelling = flag(o, "cancelling");
	text(o, "node", ret->node, sizeof(ret->node));
	text(o, "lane", ret->lane, sizeof(ret->lane));
	ret->n_cards = sized(cards, SNAP_JOB_CARDS);
	for (size_t i = 0; i < ret->n_cards; i++) {
		const char *s = json_string_value(json_array_get(cards, i));

		snprintf(ret->cards[i], sizeof(ret->cards[i]), "%s", s ? s : "");
	}
	ret->name = owned(o, "name");
	ret->command = owned(o, "command");
	ret->progress = owned(o, "progress");
	ret->held_why = owned(o, "held_why");
	read_needs(o, ret);
}

static void read_alert(const json_t *o, struct snap_alert *ret)
{
	const char *severity = json_string_value(json_object_get(o, "severity"));

	ret->id = number(o, "id", 0);
	ret->job = number(o, "job_id", 0);
	ret->is_error = severity && !strcmp(severity, "error");
	text(o, "node", ret->node, sizeof(ret->node));
	text(o, "kind", ret->kind, sizeof(ret->kind));
	ret->title = owned(o, "title");
}

/* ---- all of it ---- */

static void read_head(const json_t *o, struct snap *ret)
{
	const json_t *counts = json_object_get(o, "counts");

	ret->now_ms = number(o, "now_ms", 0);
	ret->last_tick_ms = number(o, "last_tick_ms", 0);
	ret->has_keeper = flag(o, "keeper_installed");
	ret->is_keeper_up = flag(o, "keeper_running");
	for (int i = 0; i < SNAP_STATE_N; i++)
		ret->by_state[i] = number(counts, state_names[i], 0);
	ret->held = number(counts, "held", 0);
	ret->open_alerts = number(o, "open_alerts", 0);
	ret->hidden_jobs = number(o, "hidden_jobs", 0);
}

int snap_read(const json_t *o, struct snap *ret)
{
	const json_t *nodes = json_object_get(o, "nodes"), *jobs = json_object_get(o, "jobs"),
		     *alerts = json_object_get(o, "alerts");

	*ret = (struct snap){0};
	if (!json_is_array(nodes) || !json_is_array(jobs) || !json_is_array(alerts))
		return -EINVAL;
	read_head(o, ret);
	ret->n_nodes = sized(nodes, SNAP_NODES_MAX);
	ret->nodes = xcalloc(ret->n_nodes ? ret->n_nodes : 1, sizeof(*ret->nodes));
	for (size_t i = 0; i < ret->n_nodes; i++)
		read_node(json_array_get(nodes, i), &ret->nodes[i]);
	ret->n_jobs = sized(jobs, SNAP_JOBS_MAX);
	ret->jobs = xcalloc(ret->n_jobs ? ret->n_jobs : 1, sizeof(*ret->jobs));
	for (size_t i = 0; i < ret->n_jobs; i++)
		read_job(json_array_get(jobs, i), &ret->jobs[i]);
	ret->n_alerts = sized(alerts, SNAP_ALERTS_MAX);
	ret->alerts = xcalloc(ret->n_alerts ? ret->n_alerts : 1, sizeof(*ret->alerts));
	for (size_t i = 0; i < ret->n_alerts; i++)
		read_alert(json_array_get(alerts, i), &ret->alerts[i]);
	return 0;
}

static void job_free_texts(struct snap_job *j)
{
	free(j->name);
	free(j->command);
	free(j->progress);
	free(j->held_why);
	free(j->needs);
}

void snap_done(struct snap *s)
{
	for (size_t i = 0; i < s->n_nodes; i++) {
		for (size_t k = 0; k < s->nodes[i].n_cards; k++)
			free(s->nodes[i].cards[k].procs);
		free(s->nodes[i].cards);
	}
	for (size_t i = 0; i < s->n_jobs; i++)
		job_free_texts(&s->jobs[i]);
	for (size_t i = 0; i < s->n_alerts; i++)
		free(s->alerts[i].title);
	free(s->nodes);
	free(s->jobs);
	free(s->alerts);
	*s = (struct snap){0};
}

const struct snap_job *snap_job(const struct snap *s, int64_t id)
{
	for (size_t i = 0; i < s->n_jobs; i++)
		if (s->jobs[i].id == id)
			return &s->jobs[i];
	return NULL;
}
