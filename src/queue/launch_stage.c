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
};

void staging_free(struct staging *s)
{
	if (!s)
		return;
	stream_close(s->stream);
	free(s->why);
	free(s);
}

static void on_over(void *arg)
{
	struct staging *s = arg;

	s->stream = NULL;
}

static void on_failed(void *arg, const char *why)
{
	struct staging *s = arg;

	s->stream = NULL;
	free(s->why);
	s->why = xstrdup(why);
}

static void begin(struct pass *p, struct flight *f)
{
	struct pass_node *n = &p->nodes[f->node];
	struct stream_owner owner = {.over = on_over, .failed = on_failed};

	f->staging = owner.arg = xcalloc(1, sizeof(*f->staging));
	if (node_answers(n))
		f->staging->stream =
			stream_stage(n->link, f->token, f->body, strlen(f->body), &owner);
	if (!f->staging->stream)
		f->staging->why = xstrdup("the link to the node is down");
}

static bool is_one_under_way(const struct pass *p)
{
	for (size_t i = 0; i < p->n_flights; i++)
		if (p->flights[i].staging && p->flights[i].staging->stream)
			return true;
	return false;
}

/* Done with: the launch may go, or it's given up. */
static void conclude(struct pass *p, struct flight *f)
{
	struct staging *s = f->staging;

	if (s->stream && !s->why)
		s->why = xstrdup("it took too long");
	if (s->why) {
		p->nodes[f->node].has_refused = true;
		f->state = FLIGHT_OVER;
		note_add(p, NOTE_REFUSED, f->node, f->job, f->attempt)->text = xasprintf(
			"its command could not be sent to %s: %s", p->nodes[f->node].name, s->why);
	}
	staging_free(s);
	f->staging = NULL;
	free(f->body);
	f->body = NULL;
}

void launch_stage_bodies(struct pass *p)
{
	int64_t until = clock_boot_ms() + p->config->settings.launch_timeout_ms;

	for (size_t i = 0; i < p->n_flights; i++)
		if (p->flights[i].body && p->flights[i].state == FLIGHT_BOUND)
			begin(p, &p->flights[i]);
	while (!p->signal_no && is_one_under_way(p) && clock_boot_ms() < until)
		pass_turn(p);
	for (size_t i = 0; i < p->n_flights; i++)
		if (p->flights[i].staging)
			conclude(p, &p->flights[i]);
}
