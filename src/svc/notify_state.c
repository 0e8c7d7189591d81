/*
 * What the channels have taken, on the disk: <home>/notify-state.json. Losing it means that alerts which weren't delivered
 * to all channels go to all of them again; nothing worse, so a broken one is left behind.
 */
#include "svc/notify_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (4 * 1024 * 1024)

void notify_state_done(struct notify_state *s)
{
	free(s->v);
	*s = (struct notify_state){0};
}

struct notify_entry *notify_state_find(struct notify_state *s, int64_t alert)
{
	size_t from = 0, to = s->n;

	while (from < to) {
		size_t at = from + (to - from) / 2;

		if (s->v[at].alert == alert)
			return &s->v[at];
		if (s->v[at].alert < alert)
			from = at + 1;
		else
			to = at;
	}
	return NULL;
}

struct notify_entry *notify_state_add(struct notify_state *s, int64_t alert, int64_t now_ms)
{
	size_t at = s->n;

	GROW(s->v, s->n, s->cap);
	while (at > 0 && s->v[at - 1].alert > alert)
		at--;
	memmove(s->v + at + 1, s->v + at, (s->n - at) * sizeof(*s->v));
	s->n++;
	s->v[at] = (struct notify_entry){.alert = alert, .since_ms = now_ms};
	s->is_dirty = true;
	return &s->v[at];
}

void notify_state_remove(struct notify_state *s, int64_t alert)
{
	struct notify_entry *en = notify_state_find(s, alert);

	if (!en)
		return;
	s->n--;
	memmove(en, en + 1, (s->n - (size_t)(en - s->v)) * sizeof(*en));
	s->is_dirty = true;
}

/* ---- out ---- */

static json_t *entry_json(const struct notify_entry *en)
{
	json_t *done = json_array(), *tries = json_object(), *o;

	for (int c = 0; c < NOTIFY_CHANNELS; c++) {
		const char *name = notify_channel_name((enum notify_channel)c);

		if (en->done >> c & 1)
			json_array_append_new(done, json_string(name));
		if (en->tries[c])
			json_object_set_new(tries, name,
				json_pack("[I, I]", (json_int_t)en->tries[c],
					(json_int_t)en->next_ms[c]));
	}
	o = json_pack("{s:I, s:I, s:o, s:o}", "id", (json_int_t)en->alert, "since",
		(json_int_t)en->since_ms, "done", done, "tries", tries);
	if (en->was_held)
		json_object_set_new(o, "held", json_true());
	return o;
}

static json_t *health_json(const struct notify_health *h)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "failures", (json_int_t)h->failures,
		"next", (json_int_t)h->next_ms, "failed", (json_int_t)h->failed_ms, "given_up",
		(json_int_t)h->given_up, "given_up_at", (json_int_t)h->given_up_ms, "error",
		h->error);
}

void notify_state_json(const struct notify_state *s, const char *queue, struct buf *ret)
{
	json_t *alerts = json_array(), *channels = json_object(), *o;
	CLEANUP_FREE char *text = NULL;

	for (size_t i = 0; i < s->n; i++)
		json_array_append_new(alerts, entry_json(&s->v[i]));
	for (int c = 0; c < NOTIFY_CHANNELS; c++)
		json_object_set_new(channels, notify_channel_name((enum notify_channel)c),
			health_json(&s->health[c]));
	o = json_pack("{s:i, s:s, s:o, s:o}", "version", 1, "queue", queue, "channels", channels,
		"alerts", alerts);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	buf_printf(ret, "%s\n", text ? text : "{}");
}

/* ---- in ---- */

static int64_t number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static uint32_t count(json_int_t v)
{
	return v < 0 ? 0 : v > INT_MAX ? INT_MAX : (uint32_t)v;
}

static void read_entry(const json_t *o, struct notify_state *s)
{
	const json_t *done = json_object_get(o, "done"), *tries = json_object_get(o, "tries");
	int64_t id = number(o, "id");
	struct notify_entry *en;

	if (id <= 0 || notify_state_find(s, id))
		return;
	en = notify_state_add(s, id, number(o, "since"));
	en->was_held = json_is_true(json_object_get(o, "held"));
	for (int c = 0; c < NOTIFY_CHANNELS; c++) {
		const char *name = notify_channel_name((enum notify_channel)c);
		const json_t *t = json_object_get(tries, name);

		for (size_t i = 0; i < json_array_size(done); i++) {
			const char *word = json_string_value(json_array_get(done, i));

			if (word && strcmp(word, name) == 0)
				en->done |= 1u << c;
		}
		en->tries[c] = count(json_integer_value(json_array_get(t, 0)));
		en->next_ms[c] = json_integer_value(json_array_get(t, 1));
	}
}

static void read_health(const json_t *o, struct notify_health *h)
{
	const char *error = json_string_value(json_object_get(o, "error"));

	h->failures = count(number(o, "failures"));
	h->next_ms = number(o, "next");
	h->failed_ms = number(o, "failed");
	h->given_up = number(o, "given_up");
	h->given_up_ms = number(o, "given_up_at");
	snprintf(h->error, sizeof(h->error), "%s", error ? error : "");
}

int notify_state_parse(
	const char *text, size_t n, const char *queue, struct notify_state *ret, struct err *e)
{
	json_error_t why;
	json_t *o = json_loadb(text, n, 0, &why);
	const json_t *alerts = json_object_get(o, "alerts");
	const char *whose = json_string_value(json_object_get(o, "queue"));
	struct notify_state s = {0};

	if (!json_is_object(o) || !json_is_array(alerts) || !whose) {
		json_decref(o);
		return err_set(e, -EINVAL, "isn't what was written there");
	}
	if (strcmp(whose, queue) == 0) {
		for (size_t i = 0; i < json_array_size(alerts) && i < NOTIFY_ENTRIES_MAX; i++)
			read_entry(json_array_get(alerts, i), &s);
		for (int c = 0; c < NOTIFY_CHANNELS; c++)
			read_health(json_object_get(json_object_get(o, "channels"),
					    notify_channel_name((enum notify_channel)c)),
				&s.health[c]);
	}
	json_decref(o);
	s.is_dirty = false;
	*ret = s;
	return 0;
}

int notify_state_load(const char *home, const char *queue, struct notify_state *ret, struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/notify-state.json", home);
	CLEANUP(buf_done) struct buf text = {0};
	int r = fd_read_file_at(AT_FDCWD, path, &text, FILE_MAX);

	*ret = (struct notify_state){0};
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_sys(e, r, "%s can't be read, so alerts may come twice", path);
	r = notify_state_parse(buf_str(&text), text.len, queue, ret, e);
	return r < 0 ? err_wrap(e, r, "%s is left out, so alerts may come twice", path) : 0;
}

int notify_state_save(const char *home, const char *queue, struct notify_state *s, struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/notify-state.json", home);
	CLEANUP(buf_done) struct buf text = {0};
	int r;

	if (!s->is_dirty)
		return 0;
	notify_state_json(s, queue, &text);
	r = fd_replace_at(AT_FDCWD, path, buf_str(&text), text.len, true);
	if (r < 0)
		return err_sys(e, r,
			"%s can't be written, so alerts may come twice after a restart", path);
	s->is_dirty = false;
	return 0;
}
