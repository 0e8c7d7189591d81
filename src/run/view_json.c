/*
 * The run as one JSON document. Base units are in the keys, what isn't known is null, and states are words; a figure is
 * never inside a string. Keys are only ever added.
 */
#include "run/view.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

static void set(json_t *o, const char *key, json_t *value)
{
	json_object_set_new(o, key, value ? value : json_null());
}

/* A command may hold any bytes; JSON holds only text. */
static void set_text(json_t *o, const char *key, const char *s)
{
	CLEANUP(buf_done) struct buf clean = {0};
	size_t n = s ? strlen(s) : 0;

	if (!s) {
		set(o, key, NULL);
	} else if (utf8_valid_len(s, n) == n) {
		set(o, key, json_stringn(s, n));
	} else {
		text_put_clean(&clean, s, n);
		set(o, key, json_stringn(buf_str(&clean), clean.len));
	}
}

static void set_int(json_t *o, const char *key, int64_t v)
{
	set(o, key, json_integer(v));
}

/* Null below zero: how the view says that it doesn't know. */
static void set_known(json_t *o, const char *key, int64_t v)
{
	set(o, key, v < 0 ? NULL : json_integer(v));
}

static void set_real(json_t *o, const char *key, double v, bool is_known)
{
	set(o, key, is_known && isfinite(v) ? json_real(v) : NULL);
}

static void set_bool(json_t *o, const char *key, bool v)
{
	set(o, key, json_boolean(v));
}

static const char *state_name(enum view_state s)
{
	switch (s) {
	case VIEW_RUNNING:
		return "running";
	case VIEW_HANDED:
		return "starting";
	case VIEW_PENDING:
		return "pending";
	case VIEW_DONE:
	case VIEW_DONE_BEFORE:
		break;
	}
	return "done";
}

static bool is_done(const struct view_job *j)
{
	return j->state == VIEW_DONE || j->state == VIEW_DONE_BEFORE;
}

static json_t *gpus(const struct view_job *j)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < j->n_gpus; i++)
		json_array_append_new(a, json_integer(j->gpus[i]));
	return a;
}

/* "use" of a job that was never seen on a card is empty, not zeros. */
static json_t *use(const struct view_job *j)
{
	json_t *a = json_array();

	for (uint32_t i = 0; i < j->n_use; i++) {
		json_t *row = json_object();

		set_int(row, "gpu", j->use[i].gpu);
		/* Nobody has looked yet, or saw nothing: not the same as none. */
		set_known(row, "now_mib",
			j->state == VIEW_RUNNING && j->is_sampled ? j->use[i].now_mib : -1);
		set_known(row, "peak_mib", j->is_sampled || is_done(j) ? j->use[i].peak_mib : -1);
		json_array_append_new(a, row);
	}
	return a;
}

static void set_attempt(json_t *o, const struct view_job *j)
{
	bool is_pending = j->state == VIEW_PENDING;

	set(o, "gpus", is_pending ? NULL : gpus(j));
	set(o, "use", is_pending ? NULL : use(j));
	set_bool(o, "is_sampled", j->is_sampled);
	set(o, "started_wall_ms", j->started_wall_ms > 0 ? json_integer(j->started_wall_ms) : NULL);
	set_real(o, "seconds", j->seconds, !is_pending && j->seconds >= 0);
	set_bool(o, "is_cancelling", j->is_cancelling);
	set_bool(o, "is_timing_out", j->is_timing_out);
	set_bool(o, "was_taken_over", j->was_taken_over);
	set(o, "pid", j->pid > 0 ? json_integer(j->pid) : NULL);
	set_text(o, "log", j->log);
}

static void set_result(json_t *o, const struct view_job *j)
{
	bool done = is_done(j);

	set_text(o, "status", done ? j->status : NULL);
	set_text(o, "verdict", done ? j->verdict : NULL);
	set(o, "returncode", done && j->has_returncode ? json_integer(j->returncode) : NULL);
	set_real(o, "avg_util_pct", j->avg_util, j->has_util);
	set_known(o, "suggested_vram_mib", done ? j->suggested_mib : -1);
}

static json_t *job(const struct view_job *j)
{
	json_t *o = json_object();
	bool is_pending = j->state == VIEW_PENDING;

	set(o, "job", j->no ? json_integer((json_int_t)j->no) : NULL);
	set_text(o, "name", j->name);
	set_text(o, "key", j->key);
	set_text(o, "command", j->command);
	set(o, "line", j->lineno ? json_integer(j->lineno) : NULL);
	set(o, "state", json_string(state_name(j->state)));
	set_bool(o, "ended_in_earlier_run", j->state == VIEW_DONE_BEFORE);
	set_known(o, "vram_mib", j->declared_mib);
	set_int(o, "gpus_wanted", j->want_gpus);
	set_int(o, "attempts", j->attempts);
	set_known(o, "vram_after_oom_mib", j->bumped_mib);
	set_text(o, "why", j->why);
	set_known(o, "waiting_ms", is_pending ? j->waiting_ms : -1);
	set_attempt(o, j);
	set_result(o, j);
	return o;
}

static json_t *card(const struct view_card *c)
{
	json_t *o = json_object();

	set_int(o, "index", c->index);
	set_known(o, "gpu_instance", c->gi - 1);
	set_known(o, "compute_instance", c->ci - 1);
	set_text(o, "uuid", c->uuid && *c->uuid ? c->uuid : NULL);
	set_text(o, "name", c->name && *c->name ? c->name : NULL);
	set_text(o, "state", c->state);
	set_known(o, "total_mib", c->total_mib);
	set_known(o, "used_mib", c->used_mib);
	set_known(o, "own_mib", c->own_mib);
	set_known(o, "foreign_mib", c->foreign_mib);
	set_known(o, "budget_mib", c->budget_mib);
	set_int(o, "promised_to_others_mib", c->promised_mib);
	/* Below zero is a figure here: more is promised than there is. */
	set(o, "free_mib",
		c->total_mib < 0 || c->foreign_mib < 0 ? NULL : json_integer(c->free_mib));
	set_known(o, "util_gpu_pct", c->util_pct);
	set_bool(o, "is_usable", c->is_usable);
	set_int(o, "jobs", c->n_jobs);
	return o;
}

static json_t *counts(const struct run_view *v)
{
	json_t *o = json_object();

	set_int(o, "lines", (int64_t)v->n_lines);
	set_int(o, "running", (int64_t)v->n_running);
	set_int(o, "pending", (int64_t)v->n_pending);
	set_int(o, "done", (int64_t)v->n_done);
	set_int(o, "ok", (int64_t)v->n_ok);
	set_int(o, "failed", (int64_t)v->n_failed);
	set_int(o, "cancelled", (int64_t)v->n_cancelled);
	set_int(o, "under_declared", (int64_t)v->n_over);
	set_int(o, "over_declared", (int64_t)v->n_under);
	set_int(o, "done_before", (int64_t)v->n_done_before);
	set_int(o, "failed_before", (int64_t)v->n_failed_before);
	return o;
}

static json_t *scheduler(const struct run_view *v)
{
	json_t *o = json_object();

	set(o, "pid", v->scheduler_pid > 0 ? json_integer(v->scheduler_pid) : NULL);
	set_bool(o, "is_running", v->scheduler_pid > 0);
	set_bool(o, "is_draining", v->is_draining);
	set_bool(o, "is_stopping", v->is_stopping);
	set_bool(o, "is_watching", v->is_watching);
	return o;
}

json_t *view_json(const struct run_view *v)
{
	json_t *o = json_object(), *cards = json_array(), *jobs = json_array();

	for (size_t i = 0; i < v->n_cards; i++)
		json_array_append_new(cards, card(&v->cards[i]));
	for (size_t i = 0; i < v->n_jobs; i++)
		json_array_append_new(jobs, job(&v->jobs[i]));
	set_int(o, "schema", 1);
	set_text(o, "program", v->program);
	set_text(o, "jobs_file", v->jobs_file);
	set_text(o, "log_dir", v->log_dir);
	set_int(o, "now_wall_ms", v->now_wall_ms);
	set(o, "scheduler", scheduler(v));
	set_text(o, "source", v->source);
	set_text(o, "source_error", v->source_error);
	set_known(o, "sample_age_ms", v->sample_age_ms);
	set(o, "counts", counts(v));
	set(o, "cards", cards);
	set(o, "jobs", jobs);
	return o;
}
