/* A counting gate on the loop. Knows nothing of what goes on inside. */
#include "fleet/gate.h"

#include "base/alloc.h"

#include <stdlib.h>

struct gate {
	struct event_base *base;
	unsigned max, inside;
	int64_t hold_ms;
	struct gate_seat *first;
	struct event *turn;
};

static void on_out(evutil_socket_t fd, short what, void *arg)
{
	gate_leave(arg);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct gate *g = arg;
	struct timeval hold = {.tv_sec = g->hold_ms / 1000, .tv_usec = g->hold_ms % 1000 * 1000};

	while (g->first && g->inside < g->max) {
		struct gate_seat *s = g->first;

		g->first = s->next;
		s->next = NULL;
		s->is_inside = true;
		g->inside++;
		event_add(s->out, &hold);
		s->enter(s->arg);
	}
}

static void look_soon(struct gate *g)
{
	static const struct timeval now = {0};

	event_add(g->turn, &now);
}

struct gate *gate_new(struct event_base *base, unsigned max, int64_t hold_ms)
{
	struct gate *g = xcalloc(1, sizeof(*g));

	g->base = base;
	g->max = max;
	g->hold_ms = hold_ms;
	g->turn = evtimer_new(base, on_turn, g);
	return g;
}

void gate_free(struct gate *g)
{
	if (!g)
		return;
	event_free(g->turn);
	free(g);
}

void gate_wait(
	struct gate *g, struct gate_seat *s, bool is_first, void (*enter)(void *arg), void *arg)
{
	struct gate_seat **at = &g->first;

	*s = (struct gate_seat){.gate = g, .enter = enter, .arg = arg, .is_first = is_first};
	s->out = evtimer_new(g->base, on_out, s);
	while (*at && ((*at)->is_first || !is_first))
		at = &(*at)->next;
	s->next = *at;
	*at = s;
	look_soon(g);
}

void gate_leave(struct gate_seat *s)
{
	struct gate *g = s->gate;

	if (!g)
		return;
	if (s->is_inside) {
		g->inside--;
	} else {
		for (struct gate_seat **at = &g->first; *at; at = &(*at)->next) {
			if (*at == s) {
				*at = s->next;
				break;
			}
		}
	}
	event_free(s->out);
	*s = (struct gate_seat){0};
	look_soon(g);
}
