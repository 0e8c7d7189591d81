/*
 * The daemon's backups: a child of its own, `queue backup`, so that a slow disk holds up nobody. It keeps the time of the last
 * one, and of one that failed, in the record itself.
 */
#include "svc/backup.h"
#include "svc/daemon_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LIMIT_MS (30 * 60 * 1000)
#define ANSWER_MAX 262144

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

static void fail(struct daemon *d, const char *why)
{
	free(d->backup.error);
	d->backup.error = xstrdup(why);
	daemon_complain(d, &d->backup.last_error, "a backup failed", why);
}

void backup_turn(struct daemon *d)
{
	const struct backup_settings *s = &d->config.now->settings.backup;
	CLEANUP_FREE char *keep = NULL, *directory = NULL, *env = NULL;
	struct backup_run *b = &d->backup;
	struct err e = {0};

	if (!d->o->backup || b->child || clock_boot_ms() < b->not_before_ms ||
		!backup_is_due(d->store, s, clock_wall_ms()))
		return;
	/* One that can't even begin leaves no trace in the record: not with each pass. */
	b->not_before_ms = clock_boot_ms() + BACKUP_LEASE_MS;
	keep = xasprintf("%" PRId64, s->keep);
	directory = backup_directory(s, d->o->home);
	/* One that isn't there would be taken for the file's own name. */
	if (fd_mkdirs(directory, &e) < 0) {
		fail(d, e.text);
		return;
	}
	env = xasprintf("GPUSTOW_HOME=%s", d->o->home);
	{
		const char *const argv[] = {"/proc/self/exe", "queue", "backup", directory,
			"--keep", keep, "--json", "--local", "--db-path", store_path(d->store),
			NULL};
		const char *const envs[] = {env, NULL};
		struct child_spec spec = {.argv = argv, .env = envs};

		if (child_new(d->base, &spec, on_ended, d, &b->child, &e) < 0) {
			fail(d, e.text);
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
