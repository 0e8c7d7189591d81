/*
 * What a node is told of a job: cards, policy, directory, body, environment. The environment has what the queue says first
 * and what the user says last, so the user's word counts; a card named there that wasn't allotted is told of.
 */
#include "queue/launch.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BODY_INLINE_MAX (128 * 1024) /* bytes; JSON may make six of one */
#define UMASK 022

static void put_var(json_t *env, const char *name, const char *value)
{
	CLEANUP_FREE char *s = xasprintf("%s=%s", name, value);
	json_t *text = json_string(s);

	/* What isn't UTF-8 can't be said in JSON; the store takes none in. */
	if (text)
		json_array_append_new(env, text);
}

/* Under both names, as jobs expect them. */
static void put_both(json_t *env, const char *name, const char *value)
{
	static const char *const prefixes[] = {"GPUSTOW_", "NVIDB_"};

	for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
		CLEANUP_FREE char *whole = xasprintf("%s%s", prefixes[i], name);

		put_var(env, whole, value);
	}
}

static void put_both_int(json_t *env, const char *name, int64_t value)
{
	CLEANUP_FREE char *s = xasprintf("%" PRId64, value);

	put_both(env, name, s);
}

/* Indices count what the driver shows: with a card missing they'd name others, and instances have none of their own. */
static bool needs_uuids(const struct job_bind *b, const struct inventory *inv)
{
	for (size_t i = 0; i < inv->n_cards; i++) {
		const struct inv_card *c = &inv->cards[i];

		if (!c->parent[0] && (!c->is_present || c->state != GPU_OK))
			return true;
		for (size_t k = 0; c->parent[0] && k < b->n_cards; k++)
			if (!strcmp(c->uuid, b->cards[k].uuid))
				return true;
	}
	return false;
}

static void put_visible(const struct job_bind *b, const struct inventory *inv, struct buf *out)
{
	bool uuids = needs_uuids(b, inv);

	for (size_t i = 0; i < b->n_cards; i++) {
		if (i)
			buf_putc(out, ',');
		if (uuids)
			buf_puts(out, b->cards[i].uuid);
		else
			buf_printf(out, "%d", b->cards[i].index);
	}
}

static bool is_allotted(const struct job_bind *b, const char *word)
{
	for (size_t i = 0; i < b->n_cards; i++) {
		char index[16];

		snprintf(index, sizeof(index), "%d", b->cards[i].index);
		if (!strcmp(word, index) || !strcmp(word, b->cards[i].uuid))
			return true;
	}
	return false;
}

static void check_visible(struct pass *p, const struct job *j, const char *value)
{
	CLEANUP_FREE char *copy = xstrdup(value);
	char *save = NULL;

	for (char *word = strtok_r(copy, ", ", &save); word; word = strtok_r(NULL, ", ", &save))
		if (!is_allotted(&j->bind, word)) {
			pass_say_error(p, NULL, j->id,
				"its own CUDA_VISIBLE_DEVICES=%s names a card that it wasn't allotted; it runs all the same, and others may have that card",
				value);
			return;
		}
}

static void put_users(struct pass *p, const struct job *j, json_t *env)
{
	json_t *users = j->env ? json_loads(j->env, 0, NULL) : NULL, *value;
	const char *name;

	json_object_foreach(users, name, value)
	{
		if (!json_is_string(value))
			continue;
		put_var(env, name, json_string_value(value));
		if (!strcmp(name, "CUDA_VISIBLE_DEVICES"))
			check_visible(p, j, json_string_value(value));
	}
	json_decref(users);
}

static json_t *make_env(struct pass *p, const struct job *j, const struct inventory *inv)
{
	CLEANUP(buf_done) struct buf visible = {0};
	json_t *env = json_array();

	put_both_int(env, "JOB_ID", j->id);
	put_both(env, "JOB_NAME", j->name ? j->name : "");
	put_both(env, "NODE", j->bind.node);
	put_both_int(env, "ATTEMPT", job_attempt_count(j));
	put_both(env, "QUEUE", store_queue(p->store));
	put_visible(&j->bind, inv, &visible);
	put_var(env, "CUDA_VISIBLE_DEVICES", buf_str(&visible));
	put_var(env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
	put_var(env, "PYTHONUNBUFFERED", "1");
	put_users(p, j, env);
	return env;
}

static json_t *make_cards(const struct job *j)
{
	json_t *cards = json_array();

	for (size_t i = 0; i < j->bind.n_cards; i++)
		json_array_append_new(
			cards, json_pack("{s:s, s:I}", "uuid", j->bind.cards[i].uuid,
				       "declared_mib", (json_int_t)j->bind.cards[i].mib));
	return cards;
}

/* The queue's headroom is what the node's check must leave free beside the newcomer's need: its margin there. */
json_t *launch_limits(const struct queue_settings *s)
{
	return json_pack("{s:I, s:I, s:f, s:b, s:I}", "margin_mib", (json_int_t)s->headroom_mib,
		"idle_threshold_mib", (json_int_t)s->idle_threshold_mib, "spike_buffer",
		s->spike_buffer, "high_water", s->spike_buffer > 0, "max_jobs_per_card",
		(json_int_t)s->max_jobs_per_gpu);
}

static json_t *make_policy(const struct queue_settings *s, const struct job *j)
{
	json_t *o = launch_limits(s);

	json_object_set_new(o, "exclusive", json_boolean(j->exclusive));
	return o;
}

static json_t *make_dir(struct pass *p, const struct job *j)
{
	return json_sprintf("%s/%s/%" PRId64 ".%" PRId64, p->config->settings.job_root,
		store_queue(p->store), j->id, j->attempt);
}

void launch_make(struct pass *p, const struct job *j, const struct inventory *inv, struct flight *f)
{
	const struct queue_settings *s = &p->config->settings;
	json_t *o = json_pack("{s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:b, s:s}", "job",
		(json_int_t)j->id, "attempt", (json_int_t)j->attempt, "token", j->bind.token,
		"cards", make_cards(j), "policy", make_policy(s, j), "env", make_env(p, j, inv),
		"dir", make_dir(p, j), "login", j->login, "cwd", j->workdir ? j->workdir : "");

	json_object_set_new(o, "timeout_ms", json_integer((json_int_t)j->max_runtime_ms));
	json_object_set_new(o, "grace_ms",
		json_integer((json_int_t)(j->grace_ms >= 0 ? j->grace_ms : s->kill_grace_ms)));
	json_object_set_new(o, "lead_signal", json_integer((json_int_t)j->lead_signal));
	json_object_set_new(o, "lead_ms", json_integer((json_int_t)j->lead_ms));
	json_object_set_new(o, "umask", json_integer(UMASK));
	if (strlen(j->command) <= BODY_INLINE_MAX) {
		json_object_set_new(o, "body", json_string(j->command));
	} else {
		json_object_set_new(o, "staged", json_true());
		f->body = xstrdup(j->command);
	}
	f->launch = o;
}
