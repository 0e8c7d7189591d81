/* Shared by the documents of all commands of the queue: see record_json.h. */
#include "queue/record_json.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define UNREADABLE_MAX 4000

void record_time_text(int64_t wall_ms, char ret[RECORD_TIME_LEN])
{
	time_t t = (time_t)(wall_ms / 1000);
	struct tm tm;

	ret[0] = '\0';
	if (wall_ms > 0 && gmtime_r(&t, &tm))
		(void)strftime(ret, RECORD_TIME_LEN, "%Y-%m-%dT%H:%M:%S+00:00", &tm);
}

json_t *record_time(int64_t wall_ms)
{
	char text[RECORD_TIME_LEN];

	record_time_text(wall_ms, text);
	return text[0] ? json_string(text) : json_null();
}

static json_t *text_or_null(const char *s)
{
	return s ? json_string(s) : json_null();
}

static json_t *number_or_null(int64_t v, int64_t none)
{
	return v == none ? json_null() : json_integer(v);
}

static json_t *seconds_or_null(int64_t ms, int64_t none)
{
	if (ms == none)
		return json_null();
	return ms % 1000 ? json_real((double)ms / 1000) : json_integer(ms / 1000);
}

/* Stored JSON as the value it is; what can't be read any more as its text. */
static json_t *parsed(const char *json, json_t *otherwise)
{
	json_t *v = json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;

	if (!v && json) {
		json_decref(otherwise);
		return json_stringn(json, strnlen(json, UNREADABLE_MAX));
	}
	if (v)
		json_decref(otherwise);
	return v ? v : otherwise;
}

static json_t *ids(const int64_t *v, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(v[i]));
	return a;
}

/* It is, or was, somewhere: what a job that waits had before its last retry is history. */
static bool has_place(const struct job *j)
{
	return j->state != JOB_STATE_PENDING && j->bind.node;
}

static json_t *card_indices(const struct job *j)
{
	json_t *a = json_array();

	for (size_t i = 0; has_place(j) && i < j->bind.n_cards; i++)
		json_array_append_new(a, json_integer(j->bind.cards[i].index));
	return a;
}

static json_t *card_uuids(const struct job *j)
{
	json_t *a = json_array();

	for (size_t i = 0; has_place(j) && i < j->bind.n_cards; i++)
		json_array_append_new(a, json_string(j->bind.cards[i].uuid));
	return a;
}

static json_t *causes(int64_t bits)
{
	json_t *a = json_array();

	for (int i = 1; i < JOB_CAUSE_N; i++)
		if (bits >> i & 1)
			json_array_append_new(a, json_string(job_cause_name((enum job_cause)i)));
	return a;
}

int64_t record_elapsed_ms(const struct job *j, int64_t now_ms)
{
	if (j->state == JOB_STATE_RUNNING && j->started_ms)
		return now_ms > j->started_ms ? now_ms - j->started_ms : 0;
	return job_state_is_terminal(j->state) ? j->elapsed_ms : -1;
}

const char *record_state(const struct job *j)
{
	return job_is_held(j) ? "held" : job_state_name(j->state);
}

static void set(json_t *o, const char *key, json_t *v)
{
	/* Keys are ours: nothing to check in them. */
	json_object_set_new_nocheck(o, key, v);
}

/* nvidb's 9.1, in its order. */
static void put_theirs(json_t *o, const struct job *j, int64_t now_ms)
{
	set(o, "id", json_integer(j->id));
	set(o, "name", json_string(j->name ? j->name : ""));
	set(o, "state", json_string(job_state_name(j->state)));
	set(o, "command", json_string(j->command ? j->command : ""));
	set(o, "workdir", text_or_null(j->workdir));
	set(o, "env", parsed(j->env, json_object()));
	set(o, "priority", json_integer(j->priority));
	set(o, "gpus", json_integer(j->gpus));
	set(o, "vram_mb", json_integer(j->vram_mib > 0 ? j->vram_mib : 0));
	set(o, "node_constraint", text_or_null(j->node_constraint));
	set(o, "depends_on", ids(j->after, j->n_after));
	set(o, "depends_any", ids(j->after_any, j->n_after_any));
	set(o, "max_runtime_s", seconds_or_null(j->max_runtime_ms, 0));
	set(o, "submitter", text_or_null(j->submitter));
	set(o, "tags", parsed(j->tags, json_array()));
	set(o, "created_at", record_time(j->created_ms));
	set(o, "started_at", record_time(j->started_ms));
	set(o, "finished_at", record_time(j->finished_ms));
	set(o, "elapsed_s", seconds_or_null(record_elapsed_ms(j, now_ms), -1));
	set(o, "node", has_place(j) ? json_string(j->bind.node) : json_null());
	set(o, "gpu_ids", card_indices(j));
	set(o, "lane", text_or_null(j->lane));
	set(o, "lane_seq", j->lane ? json_integer(j->lane_seq) : json_null());
	set(o, "remote_pid", has_place(j) ? number_or_null(j->pid, 0) : json_null());
	set(o, "run_dir", text_or_null(j->run_dir));
	set(o, "exit_code", j->has_exit_code ? json_integer(j->exit_code) : json_null());
	set(o, "attempt", json_integer(job_attempt_count(j)));
	set(o, "max_retries", json_integer(j->max_retries));
	set(o, "last_error", text_or_null(j->last_error));
	set(o, "heartbeat_at", record_time(j->heartbeat_ms));
	set(o, "gpu_mem_mb", number_or_null(j->gpu_mem_mib, -1));
	set(o, "result", parsed(j->result, json_null()));
	set(o, "notes", text_or_null(j->notes));
	set(o, "progress", text_or_null(j->progress));
	set(o, "progress_at", record_time(j->progress_ms));
	set(o, "held_reason", text_or_null(j->held_reason));
	set(o, "held", json_boolean(job_is_held(j)));
}

static void put_ours(json_t *o, const struct job *j)
{
	bool is_handed = j->state == JOB_STATE_PENDING && j->is_bound;

	set(o, "key", text_or_null(j->key));
	set(o, "vram_source", json_string(vram_source_name(j->vram_source)));
	set(o, "peak_mb", number_or_null(j->peak_mib, -1));
	set(o, "gpu_uuids", card_uuids(j));
	set(o, "gpu_constraint", text_or_null(j->gpu_constraint));
	set(o, "gpu_model", text_or_null(j->gpu_model));
	set(o, "min_total_mb", number_or_null(j->min_total_mib, 0));
	set(o, "cpus", number_or_null(j->cpus, 0));
	set(o, "mem_mb", number_or_null(j->mem_mib, 0));
	set(o, "exclusive", json_boolean(j->exclusive));
	set(o, "idle", json_boolean(j->idle));
	set(o, "nvlink", json_boolean(j->nvlink));
	set(o, "login", json_boolean(j->login));
	set(o, "grace_s", seconds_or_null(j->grace_ms, -1));
	set(o, "signal", number_or_null(j->lead_signal, 0));
	set(o, "signal_before_s", j->lead_signal ? seconds_or_null(j->lead_ms, 0) : json_null());
	set(o, "oom_retries", number_or_null(j->oom_retries, -1));
	set(o, "retry_on", causes(j->retry_on));
	set(o, "on_dependency", json_string(on_dependency_name(j->on_dependency)));
	set(o, "handed_to", is_handed && j->bind.node ? json_string(j->bind.node) : json_null());
	set(o, "cancel_requested", json_boolean(j->cancel_ms != 0));
	set(o, "cancel_reason", text_or_null(j->cancel_reason));
	set(o, "cause", j->cause ? json_string(job_cause_name(j->cause)) : json_null());
	set(o, "cause_text", j->cause ? json_string(job_cause_text(j->cause)) : json_null());
}

json_t *record_job(const struct job *j, int64_t now_ms)
{
	json_t *o = json_object();

	put_theirs(o, j, now_ms);
	put_ours(o, j);
	return o;
}

json_t *record_event(const struct store_event *ev)
{
	return json_pack("{s:I, s:o, s:s, s:o, s:o, s:o, s:o}", "id", (json_int_t)ev->id, "ts",
		record_time(ev->ts_ms), "kind", event_kind_name(ev->kind), "job_id",
		number_or_null(ev->job, 0), "node", text_or_null(ev->node), "message",
		text_or_null(ev->message), "data", parsed(ev->data, json_object()));
}

json_t *record_alert(const struct store_alert *a)
{
	json_t *o = json_object();

	set(o, "id", json_integer(a->id));
	set(o, "ts", record_time(a->ts_ms));
	set(o, "kind", json_string(alert_kind_name(a->kind)));
	set(o, "severity", json_string(alert_severity_name(alert_kind_severity(a->kind))));
	set(o, "job_id", number_or_null(a->job, 0));
	set(o, "node", text_or_null(a->node));
	set(o, "title", text_or_null(a->title));
	set(o, "detail", text_or_null(a->detail));
	set(o, "acknowledged_at", record_time(a->acknowledged_ms));
	set(o, "notified_at", record_time(a->notified_ms));
	return o;
}
