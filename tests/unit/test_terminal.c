/*
 * The terminal's side of a screen's loop, on a real pty: every key is followed by a picture at once, with no clock beside it that
 * could make up for one that was forgotten; and a terminal that doesn't read delays nothing. The child says what it's told:
 * e event, d draw, x end. Each of its pictures has its number in every line.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "tui/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define DEADLINE_MS 30000

enum { COLS = 80, ROWS = 24, MANY = 150 };

struct child {
	struct event_base *base;
	struct terminal terminal;
	struct frame f;
	int report, events;
};

static void say(struct child *c, const char *text)
{
	(void)fd_write_all(c->report, text, strlen(text));
}

static void on_event(void *arg, const struct input_event *ev)
{
	struct child *c = arg;

	(void)ev;
	c->events++;
	say(c, "e");
}

/* No two neighbours have a letter at the same place, so that a picture costs its terminal what a whole one does. */
static void on_draw(void *arg)
{
	struct child *c = arg;

	frame_begin(&c->f, COLS, ROWS);
	for (int y = 0; y < ROWS - 1; y++) {
		struct pen p = pen_at(&c->f.grid, 0, y, COLS);

		pen_printf(&p, STYLE(INK_PLAIN), "picture %04d ", c->events);
		for (int i = 0; pen_left(&p) > 0; i++)
			pen_printf(&p, STYLE(INK_PLAIN), "%c", 'a' + (c->events + i) % 26);
	}
	terminal_show(&c->terminal, &c->f);
	say(c, "d");
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
	struct screen *s = NULL;
	struct err e = {0};

	if (screen_open(&s, theme_find("muted"), false, &e) < 0)
		return 3;
	event_base_priority_init(c.base, 2);
	frame_init(&c.f);
	terminal_begin(&c.terminal, c.base, s, &owner);
	say(&c, "r");
	event_base_dispatch(c.base);
	terminal_done(&c.terminal);
	screen_close(s);
	frame_done(&c.f);
	event_base_free(c.base);
	return 0;
}

struct scene {
	pid_t pid;
	int master, slave, report;
	struct termios before;
};

/* As after su: what was opened before serves, and it can't be opened again. */
static void lock_out(int slave)
{
	if (fchmod(slave, 0) < 0 || (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0) ||
		open(ttyname(slave), O_WRONLY | O_NOCTTY) >= 0)
		_exit(4);
}

static int begin(void **state, bool is_anothers)
{
	static struct scene s;
	int pair[2], slave;
	struct winsize size = {.ws_row = ROWS, .ws_col = COLS};

	assert_int_equal(pipe(pair), 0);
	assert_int_equal(openpty(&s.master, &slave, NULL, NULL, &size), 0);
	assert_int_equal(tcgetattr(slave, &s.before), 0);
	s.slave = slave;
	s.pid = fork();
	assert_true(s.pid >= 0);
	if (!s.pid) {
		setsid();
		ioctl(slave, TIOCSCTTY, 0);
		dup2(slave, 0);
		dup2(slave, 1);
		setenv("TERM", "xterm-256color", 1);
		if (is_anothers)
			lock_out(slave);
		close(s.master);
		close(slave);
		close(pair[0]);
		_exit(run_child(pair[1]));
	}
	close(pair[1]);
	s.report = pair[0];
	*state = &s;
	return 0;
}

static int set_up(void **state)
{
	return begin(state, false);
}

static int set_up_of_another(void **state)
{
	return begin(state, true);
}

static int tear_down(void **state)
{
	struct scene *s = *state;

	if (s->pid) {
		kill(s->pid, SIGKILL);
		waitpid(s->pid, NULL, 0);
	}
	if (s->master >= 0)
		close(s->master);
	close(s->slave);
	close(s->report);
	return 0;
}

/* What the child says next, until it has said that. What it draws is read, or lies there. */
static void hears_what(struct scene *s, const char *want, bool is_reading)
{
	char got[64] = "", junk[4096];
	size_t n = 0;

	while (n < strlen(want)) {
		struct pollfd p[2] = {{.fd = s->report, .events = POLLIN},
			{.fd = s->master, .events = is_reading ? POLLIN : 0}};

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

static void hears(struct scene *s, const char *want)
{
	hears_what(s, want, true);
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

/* ---- a terminal that doesn't read ---- */

/* Keys and pictures until there's no room for more; all of them are answered. */
static void type_blindly(struct scene *s)
{
	for (int i = 0; i < MANY; i++) {
		types(s, "j");
		hears_what(s, "ed", false);
	}
}

/* All that comes until it ends in, or has, those words. */
static void reads_until(struct scene *s, struct buf *b, const char *words)
{
	while (!strstr(buf_str(b), words)) {
		struct pollfd p = {.fd = s->master, .events = POLLIN};
		char bytes[4096];
		ssize_t n;

		assert_true(poll(&p, 1, DEADLINE_MS) > 0);
		n = read(s->master, bytes, sizeof(bytes));
		assert_true(n > 0);
		for (ssize_t i = 0; i < n; i++)
			buf_putc(b, bytes[i] ? bytes[i] : '@');
	}
}

static void assert_restored(struct scene *s)
{
	struct termios now;

	assert_int_equal(tcgetattr(s->slave, &now), 0);
	assert_int_equal(now.c_lflag, s->before.c_lflag);
	assert_int_equal(now.c_iflag, s->before.c_iflag);
	assert_int_equal(now.c_oflag, s->before.c_oflag);
}

static void assert_ends(struct scene *s)
{
	int status;

	assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
	s->pid = 0;
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_restored(s);
}

/* The last picture comes whole: each of its lines from its first letter on. */
static void assert_catches_up(struct scene *s)
{
	CLEANUP(buf_done) struct buf b = {0};
	char last[32];

	snprintf(last, sizeof(last), "%04d", MANY);
	for (int i = 0; i < ROWS - 1; i++) {
		reads_until(s, &b, last);
		buf_drop(&b, (size_t)(strstr(buf_str(&b), last) - buf_str(&b)) + strlen(last));
	}
}

static void nobody_reads(void **state)
{
	struct scene *s = *state;

	hears(s, "r");
	type_blindly(s);
	assert_catches_up(s);
	hears(s, "d");
	types(s, "j");
	hears(s, "ed");
}

static void stopped_and_started(void **state)
{
	struct scene *s = *state;

	hears(s, "r");
	assert_int_equal(tcflow(s->slave, TCOOFF), 0);
	type_blindly(s);
	assert_int_equal(tcflow(s->slave, TCOON), 0);
	assert_catches_up(s);
}

static void told_to_end_while_nobody_reads(void **state)
{
	struct scene *s = *state;
	CLEANUP(buf_done) struct buf b = {0};

	hears(s, "r");
	type_blindly(s);
	kill(s->pid, SIGTERM);
	hears_what(s, "x15.", false);
	assert_ends(s);
	reads_until(s, &b, "\033[?1049l");
}

static void told_to_end_while_stopped(void **state)
{
	struct scene *s = *state;
	CLEANUP(buf_done) struct buf b = {0};

	hears(s, "r");
	assert_int_equal(tcflow(s->slave, TCOOFF), 0);
	type_blindly(s);
	kill(s->pid, SIGHUP);
	hears_what(s, "x1.", false);
	assert_ends(s);
	reads_until(s, &b, "\033[?1049l");
}

/* Nothing of a terminal that's shared is left as it was only for the screen's sake. */
static void the_terminal_is_another_users(void **state)
{
	struct scene *s = *state;
	CLEANUP(buf_done) struct buf b = {0};

	hears(s, "r");
	assert_true(fcntl(s->slave, F_GETFL) & O_NONBLOCK);
	type_blindly(s);
	assert_catches_up(s);
	hears(s, "d");
	type_blindly(s);
	kill(s->pid, SIGTERM);
	hears_what(s, "x15.", false);
	assert_ends(s);
	reads_until(s, &b, "\033[?1049l");
	assert_false(fcntl(s->slave, F_GETFL) & O_NONBLOCK);
}

static void a_crash_gives_another_users_terminal_back(void **state)
{
	struct scene *s = *state;
	CLEANUP(buf_done) struct buf b = {0};

	hears(s, "r");
	kill(s->pid, SIGSEGV);
	reads_until(s, &b, "\033[?1049l");
	assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
	s->pid = 0;
	assert_restored(s);
	assert_false(fcntl(s->slave, F_GETFL) & O_NONBLOCK);
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
		TEST(nobody_reads),
		TEST(stopped_and_started),
		TEST(told_to_end_while_nobody_reads),
		TEST(told_to_end_while_stopped),
		cmocka_unit_test_setup_teardown(
			the_terminal_is_another_users, set_up_of_another, tear_down),
		cmocka_unit_test_setup_teardown(
			a_crash_gives_another_users_terminal_back, set_up_of_another, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
