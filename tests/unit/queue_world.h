/* A queue that doesn't exist, as the screen gets it: for golden screens, keys and the layout's fuzz of the queue's screen. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "tui/queue_keys.h"
#include "tui/queue_view.h"

#define QUEUE_NOW INT64_C(1700000000000)
#define QUEUE_HOSTILE "\x1b]52;c;x\x07\xe6\xb7\xb1\xe5\xb1\xa4\xe2\x80\xae"

struct queue_world {
	struct queue_model m;
	struct frame f;
	json_t *o;
	int64_t next_id;
};

static inline json_t *queue_world_card(int index, int seed)
{
	int64_t total = 40960, foreign = seed % 3 ? 0 : 6000, reserved = seed % 2 ? 12000 : 0;
	json_t *procs = json_array();

	if (foreign)
		json_array_append_new(
			procs, json_pack("{s:i, s:i, s:s, s:s, s:b}", "pid", 4000 + seed, "mem_mb",
				       6000, "name", "python", "user", "bob", "managed", 0));
	return json_pack(
		"{s:o, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:s, s:b, s:b, s:o}",
		"label", json_sprintf("%d", index), "name", "A100-SXM4-40GB", "index", index,
		"mem_total_mb", (json_int_t)total, "mem_used_mb", (json_int_t)(foreign + reserved),
		"external_mem_mb", (json_int_t)foreign, "reserved_mb", (json_int_t)reserved,
		"free_mb", (json_int_t)(total - foreign - reserved - 512), "util_percent",
		seed * 37 % 101, "temperature_c", 30 + seed * 13 % 60, "external_procs",
		foreign ? 1 : 0, "queue_jobs", seed % 2, "attribution", "processes", "present", 1,
		"in_service", 1, "processes", procs);
}

static inline json_t *queue_world_node(
	struct queue_world *w, const char *name, const char *state, int n_cards, int seed)
{
	json_t *n = json_object(), *cards = json_array();

	for (int i = 0; i < n_cards; i++)
		json_array_append_new(cards, queue_world_card(i, seed + i));
	json_object_set_new(n, "name", json_string_nocheck(name));
	json_object_set_new(n, "hostname", json_string("10.0.0.7"));
	json_object_set_new(n, "state", json_string(state));
	json_object_set_new(n, "enabled", json_true());
	json_object_set_new(n, "gpus", cards);
	json_array_append_new(json_object_get(w->o, "nodes"), n);
	return n;
}

static inline json_t *queue_world_job(
	struct queue_world *w, const char *state, const char *name, int64_t priority)
{
	json_t *j = json_object(), *n = json_object_get(json_object_get(w->o, "counts"), state);

	json_object_set_new(j, "id", json_integer(++w->next_id));
	json_object_set_new(j, "state", json_string(state));
	json_object_set_new(j, "name", json_string_nocheck(name));
	json_object_set_new(
		j, "command", json_string("python -m train --config configs/base.yaml --lr 0.001"));
	json_object_set_new(j, "priority", json_integer(priority));
	json_object_set_new(j, "gpus", json_integer(1));
	json_object_set_new(j, "vram_mb", json_integer(12000));
	json_array_append_new(json_object_get(w->o, "jobs"), j);
	json_object_set_new(
		json_object_get(w->o, "counts"), state, json_integer(json_integer_value(n) + 1));
	return j;
}

static inline void queue_world_on(json_t *j, const char *node, const char *card, int64_t since_ms)
{
	json_object_set_new(j, "node", json_string_nocheck(node));
	json_object_set_new(j, "cards", json_pack("[s]", card));
	json_object_set_new(j, "started_ms", json_integer(QUEUE_NOW - since_ms));
	json_object_set_new(j, "used_mb", json_integer(11000));
	json_object_set_new(j, "bound", json_true());
}

static inline void queue_world_init(struct queue_world *w)
{
	*w = (struct queue_world){0};
	w->o = json_pack("{s:I, s:I, s:{}, s:[], s:[], s:[]}", "now_ms", (json_int_t)QUEUE_NOW,
		"last_tick_ms", (json_int_t)(QUEUE_NOW - 3000), "counts", "nodes", "jobs",
		"alerts");
	queue_model_init(&w->m);
	frame_init(&w->f);
}

static inline void queue_world_take(struct queue_world *w)
{
	struct snap s;

	(void)snap_read(w->o, &s);
	queue_model_take(&w->m, &s, 0);
}

/* n_nodes of 8 cards with jobs on those with an odd number, some that wait and some that ended. */
static inline void queue_world_make(struct queue_world *w, int n_nodes, int n_cards)
{
	queue_world_init(w);
	for (int i = 0; i < n_nodes; i++) {
		char name[16];

		snprintf(name, sizeof(name), "gpu%d", i + 1);
		queue_world_node(w, name, "up", n_cards, i * n_cards);
		for (int c = 0; c < n_cards; c++) {
			char label[12], job[40];

			snprintf(label, sizeof(label), "%d", c);
			snprintf(job, sizeof(job), "train-%d-%d", i + 1, c);
			if ((i * n_cards + c) % 2)
				queue_world_on(queue_world_job(w, "running", job, 0), name, label,
					INT64_C(1000) * (100 + 977 * (i * n_cards + c)));
		}
	}
	for (int i = 0; i < 5; i++) {
		json_t *j = queue_world_job(w, "pending", "eval", i);

		if (i == 1)
			json_object_set_new(j, "after", json_pack("[I]", (json_int_t)1));
		if (i == 2)
			json_object_set_new(j, "after_any", json_pack("[I]", (json_int_t)2));
	}
	json_object_set_new(
		queue_world_job(w, "completed", "old", 0), "elapsed_ms", json_integer(5000));
	json_object_set_new(queue_world_job(w, "failed", "worse", 0), "exit_code", json_integer(3));
	queue_world_take(w);
}

static inline void queue_world_alert(
	struct queue_world *w, const char *title, int64_t job, const char *node)
{
	json_array_append_new(json_object_get(w->o, "alerts"),
		json_pack("{s:I, s:I, s:s, s:s, s:s}", "id",
			(json_int_t)json_array_size(json_object_get(w->o, "alerts")) + 1, "job_id",
			(json_int_t)job, "node", node, "severity", "error", "title", title));
	json_object_set_new(w->o, "open_alerts",
		json_integer((json_int_t)json_array_size(json_object_get(w->o, "alerts"))));
}

/* A bit of everything: lanes, held jobs, alerts, a node that's down, a drained one, wide and hostile names, absent values. */
static inline void queue_world_lab(struct queue_world *w)
{
	json_t *n, *c, *j;

	queue_world_init(w);
	n = queue_world_node(w, "\xe6\xb7\xb1\xe5\xb1\xa4-node", "up", 3, 1);
	c = json_array_get(json_object_get(n, "gpus"), 1);
	for (int i = 0; i < 6; i++) {
		static const char *const absent[] = {"mem_used_mb", "external_mem_mb", "free_mb",
			"util_percent", "temperature_c", "reserved_mb"};

		json_object_set_new(c, absent[i], json_null());
	}
	json_object_set_new(
		json_array_get(json_object_get(n, "gpus"), 2), "lane_paused", json_true());
	json_object_set_new(
		json_array_get(json_object_get(n, "gpus"), 2), "in_service", json_false());
	n = queue_world_node(w, "dead", "down", 1, 4);
	json_object_set_new(n, "why_not_placeable", json_string("down: no route to host"));
	n = queue_world_node(w, "empty", "up", 0, 0);
	json_object_set_new(n, "enabled", json_false());
	queue_world_on(queue_world_job(w, "running", "\xe8\xa8\x93\xe7\xb7\xb4", 0),
		"\xe6\xb7\xb1\xe5\xb1\xa4-node", "0", 3600000);
	json_object_set_new(json_array_get(json_object_get(w->o, "jobs"), 0), "progress",
		json_string("epoch 3/10"));
	for (int i = 0; i < 4; i++) {
		j = queue_world_job(w, "pending", i ? "lane" : QUEUE_HOSTILE, 9 - i);
		if (i < 3) {
			json_object_set_new(
				j, "lane", json_string("\xe6\xb7\xb1\xe5\xb1\xa4-node:0"));
			json_object_set_new(j, "lane_seq", json_integer(3 - i));
		}
	}
	json_object_set_new(j, "held", json_true());
	json_object_set_new(j, "held_why", json_string("job 1 failed"));
	json_object_set_new(j, "after", json_pack("[I, I]", (json_int_t)1, (json_int_t)2));
	json_object_set_new(json_object_get(w->o, "counts"), "held", json_integer(1));
	queue_world_alert(w, "job 9 failed, exit code 3", 9, "");
	queue_world_alert(w, "node dead doesn't answer", 0, "dead");
	queue_world_alert(w, QUEUE_HOSTILE, 0, "nowhere");
	queue_world_alert(w, "job 1 was lost", 1, "");
	queue_world_take(w);
}

static inline void queue_world_done(struct queue_world *w)
{
	queue_model_done(&w->m);
	frame_done(&w->f);
	json_decref(w->o);
}

static inline void queue_world_draw(struct queue_world *w, int cols, int rows)
{
	queue_draw(&w->m, &w->f, cols, rows, QUEUE_NOW);
}

static inline void queue_world_press(struct queue_world *w, uint32_t key)
{
	struct input_event ev = {.kind = EVENT_KEY, .key = key};

	queue_model_event(&w->m, &ev, &w->f, 1000);
}
