/* A counting gate on the loop. Knows nothing of what goes on inside. */
#include "fleet/gate.h"

#include "base/alloc.h"

#include <stdlib.h>

struct gate {
	unsigned max, inside;
	struct gate_seat *first;
	struct event *turn;
};

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct gate *g = arg;

	while (g->first && g->inside < g->max) {
		struct gate_seat *s = g->first;

		g->first = s->next;
		s->next = NULL;
		s->is_inside = true;
		g->inside++;
		s->enter(s->arg);
	}
}

static void look_soon(struct gate *g)
{
	static const struct timeval now = {0};

	event_add(g->turn, &now);
}

struct gate *gate_new(struct event_base *base, unsigned max)
{
	struct gate *g = xcalloc(1, sizeof(*g));

	g->max = max;
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

void gate_wait(struct gate *g, struct gate_seat *s, void (*enter)(void *arg), void *arg)
{
	struct gate_seat **last = &g->first;

	*s = (struct gate_seat){.gate = g, .enter = enter, .arg = arg};
	while (*last)
		last = &(*last)->next;
	*last = s;
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
	*s = (struct gate_seat){0};
	look_soon(g);
}
