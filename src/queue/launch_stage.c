/*
 * Bodies that are too large for a launch message go ahead of it, in pieces, so that no launch waits behind one. A launch
 * whose body didn't arrive isn't sent: so it never started, and its bind is undone like a refused one.
 */
#include "fleet/stream.h"
#include "queue/launch.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

struct staging {
	struct stream *stream; /* NULL: over, one way or the other */
	char *why; /* it failed */
	int64_t until_ms; /* BOOTTIME */
	struct pass *pass;
};

void staging_free(struct staging *s)
{
	if (!s)
		return;
	stream_close(s->stream);
	free(s->why);
	free(s);
}

void staging_cut(struct staging *s)
{
	if (!s || !s->stream)
		return;
	stream_close(s->stream);
	s->stream = NULL;
	s->why = xstrdup("the link to the node was closed");
}

static void on_over(void *arg)
{
	struct staging *s = arg;

	s->stream = NULL;
	if (s->pass->is_held)
		held_news(s->pass);
}

static void on_failed(void *arg, const char *why)
{
	struct staging *s = arg;

	s->stream = NULL;
	free(s->why);
	s->why = xstrdup(why);
	if (s->pass->is_held)
		held_news(s->pass);
}

static void begin(struct pass *p, struct flight *f)
{
	struct pass_node *n = &p->nodes[f->node];
	struct stream_owner owner = {.over = on_over, .failed = on_failed};

	f->staging = owner.arg = xcalloc(1, sizeof(*f->staging));
	f->staging->pass = p;
	if (node_answers(n))
		f->staging->stream =
			stream_stage(n->link, f->token, f->body, strlen(f->body), &owner);
	if (!f->staging->stream)
		f->staging->why = xstrdup("the link to the node is down");
}

/* Done with: the launch may go, or it's given up. */
static void conclude(struct pass *p, struct flight *f)
{
	struct staging *s = f->staging;
	bool has_failed;

	if (s->stream && !s->why)
		s->why = xstrdup("it took too long");
	has_failed = s->why != NULL;
	if (has_failed) {
		p->nodes[f->node].has_refused = true;
		f->state = FLIGHT_OVER;
		note_add(p, NOTE_REFUSED, f->node, f->job, f->attempt)->text = xasprintf(
			"its command could not be sent to %s: %s", p->nodes[f->node].name, s->why);
	}
	staging_free(s);
	f->staging = NULL;
	if (!has_failed) {
		f->kept_ms = clock_boot_ms();
		p->is_lane_late |= f->is_lane && !p->lane_docs;
	}
	free(f->body);
	f->body = NULL;
}

bool launch_staging(struct pass *p)
{
	int64_t now_ms = clock_boot_ms();
	bool any = false;

	for (size_t i = 0; i < p->n_flights; i++) {
		struct flight *f = &p->flights[i];

		if (f->body && !f->staging && f->state == FLIGHT_BOUND) {
			begin(p, f);
			f->staging->until_ms = now_ms + p->config->settings.launch_timeout_ms;
		}
		if (!f->staging)
			continue;
		if (f->staging->stream && now_ms < f->staging->until_ms) {
			any = true;
			pass_look_at(p, f->staging->until_ms);
		} else {
			conclude(p, f);
		}
	}
	return any;
}
