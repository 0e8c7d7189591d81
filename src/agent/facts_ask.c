/*
 * When a job's directory is read (facts_of_end.h): after its end, so that the end can be told with its facts, and whenever
 * its queue observes. The reading is done elsewhere (chores.h).
 */
#include "agent/answer.h"
#include "agent/chores.h"
#include "agent/facts_of_end.h"
#include "agent/server.h"
#include "base/alloc.h"

#include <string.h>

static struct attempt *find(const struct agent *a, uint64_t number)
{
	for (size_t i = 0; i < a->attempts.n; i++) {
		const struct job_files *f = a->attempts.items[i]->files;

		if (f && f->number == number)
			return a->attempts.items[i];
	}
	return NULL;
}

static void is_read(
	struct agent *a, uint64_t number, const json_t *answer, int code, const struct err *e)
{
	struct attempt *at = find(a, number);
	struct job_files *f = at ? at->files : NULL;

	if (!f)
		return;
	f->number = 0;
	if (answer) {
		json_decref(f->read);
		f->read = json_copy((json_t *)(uintptr_t)answer);
		json_object_del(f->read, "code");
		json_object_del(f->read, "found");
		chores_take_found(answer, &f->says);
	} else if (f->asked_at_end && !f->has_end) {
		json_decref(f->read);
		f->read = facts_unread(e->text);
	}
	if (!f->asked_at_end || f->has_end)
		return;
	f->has_end = true;
	event_push(a, at);
}

static void ask(struct agent *a, struct attempt *at)
{
	bool has_ended = at->rec.state == ATTEMPT_ENDED;
	struct job_files *f = at->files;

	if (!f)
		f = at->files = xcalloc(1, sizeof(*f));
	/* One that's on its way will do, unless the end came in between: then its answer isn't waited for. */
	if (f->number && f->asked_at_end == has_ended)
		return;
	f->asked_at_end = has_ended;
	f->number = chores_read(a, at->dir, has_ended, &f->says, is_read);
}

void facts_attempt_changed(struct agent *a, struct attempt *at)
{
	if (at->dir && at->rec.state == ATTEMPT_ENDED && !facts_are_there(at))
		ask(a, at);
}

void facts_refresh(struct agent *a, const char *queue)
{
	for (size_t i = 0; i < a->attempts.n; i++) {
		struct attempt *at = a->attempts.items[i];

		if (at->dir && !strcmp(at->name.queue, queue))
			ask(a, at);
	}
}

bool facts_are_fresh(const struct agent *a, const char *queue)
{
	for (size_t i = 0; i < a->attempts.n; i++) {
		const struct attempt *at = a->attempts.items[i];

		if (at->files && at->files->number && !strcmp(at->name.queue, queue))
			return false;
	}
	return true;
}
