/* Keys, sizes and signals as events on the loop: see terminal.h. */
#include "tui/terminal.h"

#include "base/cleanup.h"

#include <signal.h>
#include <unistd.h>

void terminal_timer(struct event *ev, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(ev, &t);
}

static void end(struct terminal *t, int signal_no)
{
	t->is_over = true;
	t->owner.end(t->owner.arg, signal_no);
}

static void draw(struct terminal *t)
{
	if (!t->is_over)
		t->owner.draw(t->owner.arg);
}

static void push(struct terminal *t)
{
	if (screen_push(t->screen) < 0)
		end(t, 0);
	else if (screen_has_backlog(t->screen))
		event_add(t->writable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct terminal *t = arg;

	(void)fd, (void)what;
	push(t);
	if (!screen_has_backlog(t->screen) && screen_is_behind(t->screen))
		draw(t);
}

void terminal_show(struct terminal *t, const struct frame *f)
{
	if (t->is_over)
		return;
	screen_show(t->screen, f);
	push(t);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct terminal *t = arg;

	(void)fd, (void)what;
	if (screen_read(t->screen, t->owner.event, t->owner.arg) < 0) {
		end(t, 0);
		return;
	}
	if (screen_is_waiting(t->screen))
		terminal_timer(t->esc, INPUT_ESC_MS);
	draw(t);
}

static void on_esc(evutil_socket_t fd, short what, void *arg)
{
	struct terminal *t = arg;

	(void)fd, (void)what;
	screen_idle(t->screen, t->owner.event, t->owner.arg);
	draw(t);
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct terminal *t = arg;

	(void)what;
	if (sig != SIGWINCH) {
		end(t, (int)sig);
	} else if (t->screen) {
		screen_resized(t->screen);
		draw(t);
	}
}

void terminal_begin(struct terminal *t, struct event_base *base, struct screen *screen,
	const struct terminal_owner *owner)
{
	static const int caught[] = {SIGTERM, SIGHUP, SIGINT, SIGWINCH};

	*t = (struct terminal){.base = base, .screen = screen, .owner = *owner};
	for (size_t i = 0; i < ARRAY_LEN(caught); i++) {
		t->signals[i] = evsignal_new(base, caught[i], on_signal, t);
		event_add(t->signals[i], NULL);
	}
	if (!screen)
		return;
	t->readable = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_readable, t);
	t->writable = event_new(base, screen_fd(screen), EV_WRITE, on_writable, t);
	t->esc = evtimer_new(base, on_esc, t);
	event_priority_set(t->readable, 0);
	event_priority_set(t->esc, 0);
	event_add(t->readable, NULL);
}

void terminal_done(struct terminal *t)
{
	struct event *all[] = {t->readable, t->writable, t->esc, t->signals[0], t->signals[1],
		t->signals[2], t->signals[3]};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i])
			event_free(all[i]);
	*t = (struct terminal){0};
}
