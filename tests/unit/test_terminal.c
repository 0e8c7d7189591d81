/*
 * The terminal's side of a screen's loop, on a real pty: every key is followed by a picture at once, with no clock beside it that
 * could make up for one that was forgotten. The child says what it's told: e event, d draw, x end.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/fd.h"
#include "tui/terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 30000

struct child {
	struct event_base *base;
	int report;
};

static void say(struct child *c, const char *text)
{
	(void)fd_write_all(c->report, text, strlen(text));
}

static void on_event(void *arg, const struct input_event *ev)
{
	(void)ev;
	say(arg, "e");
}

static void on_draw(void *arg)
{
	say(arg, "d");
}

static void on_end(void *arg, int signal_no)
{
	struct child *c = arg;
	char text[16];

	snprintf(text, sizeof(text), "x%d.", signal_no);
	say(c, text);
	event_base_loopbreak(c->base);
}

static int run_child(int report)
{
	struct child c = {.base = event_base_new(), .report = report};
	const struct terminal_owner owner = {
		.arg = &c, .event = on_event, .draw = on_draw, .end = on_end};
	struct terminal t = {0};
	struct screen *s = NULL;
	struct err e = {0};

	if (screen_open(&s, theme_find("muted"), false, &e) < 0)
		return 3;
	event_base_priority_init(c.base, 2);
	terminal_begin(&t, c.base, s, &owner);
	say(&c, "r");
	event_base_dispatch(c.base);
	terminal_done(&t);
	screen_close(s);
	event_base_free(c.base);
	return 0;
}

struct scene {
	pid_t pid;
	int master, report;
};

static int set_up(void **state)
{
	static struct scene s;
	int pair[2], slave;
	struct winsize size = {.ws_row = 24, .ws_col = 80};

	assert_int_equal(pipe(pair), 0);
	assert_int_equal(openpty(&s.master, &slave, NULL, NULL, &size), 0);
	s.pid = fork();
	assert_true(s.pid >= 0);
	if (!s.pid) {
		setsid();
		ioctl(slave, TIOCSCTTY, 0);
		dup2(slave, 0);
		dup2(slave, 1);
		setenv("TERM", "xterm-256color", 1);
		close(s.master);
		close(slave);
		close(pair[0]);
		_exit(run_child(pair[1]));
	}
	close(slave);
	close(pair[1]);
	s.report = pair[0];
	*state = &s;
	return 0;
}

static int tear_down(void **state)
{
	struct scene *s = *state;

	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	if (s->master >= 0)
		close(s->master);
	close(s->report);
	return 0;
}

/* What the child says next, until it has said `n` bytes. What it draws is read away, so that it never waits for us. */
static void hears(struct scene *s, const char *want)
{
	char got[64] = "", junk[4096];
	size_t n = 0;

	while (n < strlen(want)) {
		struct pollfd p[2] = {
			{.fd = s->report, .events = POLLIN}, {.fd = s->master, .events = POLLIN}};

		assert_true(poll(p, 2, DEADLINE_MS) > 0);
		if (p[1].revents & POLLIN)
			assert_true(read(s->master, junk, sizeof(junk)) > 0);
		if (p[0].revents) {
			ssize_t k = read(s->report, got + n, strlen(want) - n);

			assert_true(k > 0);
			n += (size_t)k;
		}
	}
	assert_string_equal(got, want);
}

static void types(struct scene *s, const char *keys)
{
	assert_int_equal(write(s->master, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static void every_key_has_its_picture(void **state)
{
	struct scene *s = *state;

	hears(s, "r");
	types(s, "j");
	hears(s, "ed");
	types(s, "\033[A");
	hears(s, "ed");
}

/* A lone Esc could be the start of an arrow: it's one when nothing follows. */
static void lone_escape(void **state)
{
	struct scene *s = *state;

	hears(s, "r");
	types(s, "\033");
	hears(s, "ded");
}

static void another_size(void **state)
{
	struct scene *s = *state;
	struct winsize size = {.ws_row = 40, .ws_col = 120};

	hears(s, "r");
	assert_int_equal(ioctl(s->master, TIOCSWINSZ, &size), 0);
	hears(s, "d");
}

static void told_to_end(void **state)
{
	struct scene *s = *state;

	hears(s, "r");
	kill(s->pid, SIGTERM);
	hears(s, "x15.");
}

static void terminal_is_gone(void **state)
{
	struct scene *s = *state;
	char got[8] = "";

	hears(s, "r");
	close(s->master);
	s->master = -1;
	/* By the hang-up's signal or by the end of its input, whichever is seen first. */
	assert_true(read(s->report, got, 3) >= 3);
	assert_true(!strncmp(got, "x0.", 3) || !strncmp(got, "x1.", 3));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_key_has_its_picture),
		TEST(lone_escape),
		TEST(another_size),
		TEST(told_to_end),
		TEST(terminal_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
