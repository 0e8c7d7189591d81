/* See turn.h. Trying is enough: flock(2) keeps no order among those who wait in it either. */
#include "queue/turn.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

#define AT_ONCE_MS 20 /* the loop may well stand still for so long, but not each time */
#define AGAIN_MS 50

static void forget(struct turn *t)
{
	if (t->who)
		t->waited_ms += clock_boot_ms() - t->since_ms;
	free(t->who);
	t->who = NULL;
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct turn *t = arg;

	(void)fd, (void)what;
	t->come(t->arg);
	/* Nobody may have wanted it any more. */
	if (!event_pending(t->again, EV_TIMEOUT, NULL))
		forget(t);
}

void turn_init(struct turn *t, struct event_base *base, struct store *s, void (*come)(void *arg),
	void *arg)
{
	*t = (struct turn){.store = s, .come = come, .arg = arg};
	t->again = evtimer_new(base, on_again, t);
}

static void try_again(struct turn *t, const struct err *e)
{
	static const struct timeval again = {.tv_usec = AGAIN_MS * 1000};

	if (!t->who)
		t->since_ms = clock_boot_ms();
	free(t->who);
	t->who = xstrdup(e->text);
	event_add(t->again, &again);
}

bool turn_take(struct turn *t)
{
	struct err e = {0};
	int r;

	if (event_pending(t->again, EV_TIMEOUT, NULL))
		return false;
	r = store_lock(t->store, AT_ONCE_MS, &e);
	if (r == -EBUSY) {
		try_again(t, &e);
		return false;
	}
	t->is_held = !r;
	forget(t);
	return true;
}

void turn_end(struct turn *t)
{
	if (t->is_held)
		store_unlock(t->store);
	t->is_held = false;
}

void turn_done(struct turn *t)
{
	if (t->again)
		event_free(t->again);
	free(t->who);
	*t = (struct turn){0};
}
