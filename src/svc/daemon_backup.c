/*
 * The daemon's backups: a child of its own, `queue backup`, so that a slow disk holds up nobody. It keeps the time of the last
 * one in the record itself.
 */
#include "svc/daemon_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LIMIT_MS (30 * 60 * 1000)
#define AGAIN_MS (5 * 60 * 1000) /* after one that failed */
#define ANSWER_MAX 262144
#define LAST_BACKUP "last_backup_at" /* wall clock ms */
#define TRIED_BACKUP "backup_tried_at"

static int64_t meta_ms(struct daemon *d, const char *key)
{
	CLEANUP_FREE char *text = NULL;
	struct err e;
	int64_t v = 0;

	if (store_meta_get(d->store, key, &text, &e) < 0 || parse_int64(text, &v) < 0)
		return 0;
	return v;
}

/* Also after a clock that was set back. */
static bool is_past(int64_t since_ms, int64_t span_ms, int64_t now_ms)
{
	return now_ms < since_ms || now_ms - since_ms >= span_ms;
}

static bool is_due(struct daemon *d)
{
	const struct backup_settings *b = &d->config.now->settings.backup;
	int64_t now_ms = clock_wall_ms();

	return b->enabled && is_past(meta_ms(d, LAST_BACKUP), b->interval_ms, now_ms) &&
	       is_past(meta_ms(d, TRIED_BACKUP), AGAIN_MS, now_ms);
}

static void note_try(struct daemon *d)
{
	CLEANUP_FREE char *text = xasprintf("%" PRId64, clock_wall_ms());
	struct err e;

	if (store_begin(d->store, NULL, &e) < 0)
		return;
	if (store_meta_set(d->store, TRIED_BACKUP, text, &e) < 0)
		store_abort(d->store);
	else
		store_commit(d->store, &e);
}

static void read_answer(const struct child *c, struct buf *out)
{
	char bytes[4096];
	ssize_t n;

	while (out->len < ANSWER_MAX && (n = recv(child_fd(c), bytes, sizeof(bytes), 0)) > 0)
		buf_put(out, bytes, (size_t)n);
}

static void on_ended(void *arg, int status)
{
	struct daemon *d = arg;
	struct backup_run *b = &d->backup;
	CLEANUP(buf_done) struct buf out = {0}, clean = {0};
	const char *why;
	json_t *doc;

	read_answer(b->child, &out);
	doc = json_loadb(buf_str(&out), out.len, 0, NULL);
	json_decref(b->made);
	free(b->error);
	b->error = NULL;
	b->made = json_incref(json_object_get(doc, "backup"));
	if (!WIFEXITED(status) || WEXITSTATUS(status) || !b->made) {
		json_decref(b->made);
		b->made = NULL;
		why = json_string_value(json_object_get(doc, "error"));
		why = why ? why : child_said(b->child);
		text_put_clean(&clean, why, strnlen(why, 500));
		b->error = xstrdup(clean.len ? buf_str(&clean) : "the backup was ended");
	}
	json_decref(doc);
	daemon_complain(d, &b->last_error, "a backup failed", b->error);
	child_free(b->child, true);
	b->child = NULL;
	daemon_want(d, 0);
}

void backup_turn(struct daemon *d)
{
	const struct backup_settings *s = &d->config.now->settings.backup;
	CLEANUP_FREE char *keep = NULL, *directory = NULL, *env = NULL;
	struct backup_run *b = &d->backup;
	struct err e = {0};

	if (!d->o->backup || b->child || !is_due(d))
		return;
	note_try(d);
	keep = xasprintf("%" PRId64, s->keep);
	directory = !s->directory ? xasprintf("%s/backups", d->o->home)
		    : *s->directory == '/'
			    ? xstrdup(s->directory)
			    : xasprintf("%s/%s", d->o->home, s->directory);
	env = xasprintf("GPUSTOW_HOME=%s", d->o->home);
	{
		const char *const argv[] = {"/proc/self/exe", "queue", "backup", directory,
			"--keep", keep, "--json", "--local", "--db-path", store_path(d->store),
			NULL};
		const char *const envs[] = {env, NULL};
		struct child_spec spec = {.argv = argv, .env = envs};

		if (child_new(d->base, &spec, on_ended, d, &b->child, &e) < 0) {
			free(b->error);
			b->error = xstrdup(e.text);
			daemon_complain(d, &b->last_error, "a backup failed", b->error);
			return;
		}
	}
	/* The one that hangs is ended, and says so like any other that failed. */
	child_end(b->child, LIMIT_MS);
}

void backup_end(struct daemon *d)
{
	struct backup_run *b = &d->backup;

	if (b->child)
		child_free(b->child, true);
	json_decref(b->made);
	free(b->error);
	free(b->last_error);
}
