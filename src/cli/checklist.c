/* The checklist: see checklist.h. Plain ANSI: an alternate screen, a cursor put at home, lines erased to their ends. */
#include "cli/checklist.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/tty.h"

#include <string.h>
#include <unistd.h>

enum { HEAD_ROWS = 2, FOOT_ROWS = 1, ESC_MS = 50 };

size_t checklist_count(const struct checklist *c)
{
	size_t n = 0;

	for (size_t i = 0; i < c->n; i++)
		n += c->items[i].is_checked;
	return n;
}

static void set_all(struct checklist *c, bool inverts, bool on)
{
	for (size_t i = 0; i < c->n; i++)
		c->items[i].is_checked = inverts ? !c->items[i].is_checked : on;
}

static void move(struct checklist *c, long by)
{
	if (by < 0)
		c->cursor = c->cursor < (size_t)-by ? 0 : c->cursor - (size_t)-by;
	else if (c->n)
		c->cursor = c->cursor + (size_t)by < c->n ? c->cursor + (size_t)by : c->n - 1;
}

static enum checklist_answer press(struct checklist *c, char key)
{
	switch (key) {
	case 'k':
		move(c, -1);
		break;
	case 'j':
		move(c, 1);
		break;
	case ' ':
		if (c->n)
			c->items[c->cursor].is_checked = !c->items[c->cursor].is_checked;
		break;
	case 'a':
	case 'n':
		set_all(c, false, key == 'a');
		break;
	case 'i':
		set_all(c, true, false);
		break;
	case 's':
	case '\r':
	case '\n':
		return CHECKLIST_SAVE;
	case 'q':
	case 3:
	case 4:
		return CHECKLIST_CANCEL;
	default:
		break;
	}
	return CHECKLIST_OPEN;
}

/* ESC [ parameters letter, or ESC O letter; anything else after ESC is one byte. Returns its length. */
static size_t sequence(struct checklist *c, const char *s, size_t n)
{
	size_t i = 2;

	if (n < 2 || (s[1] != '[' && s[1] != 'O'))
		return n < 2 ? n : 2;
	while (i < n && s[1] == '[' && (unsigned char)s[i] >= 0x20 && (unsigned char)s[i] < 0x40)
		i++;
	if (i == n)
		return n;
	if (s[i] == 'A' || s[i] == 'B')
		move(c, s[i] == 'A' ? -1 : 1);
	else if (s[i] == 'H' || s[i] == 'F')
		move(c, s[i] == 'H' ? -(long)c->n : (long)c->n);
	else if (s[i] == '~' && (s[2] == '5' || s[2] == '6'))
		move(c, s[2] == '5' ? -10 : 10);
	return i + 1;
}

enum checklist_answer checklist_feed(struct checklist *c, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n;) {
		enum checklist_answer answer;

		if (bytes[i] == '\x1b') {
			if (n - i == 1)
				return CHECKLIST_CANCEL;
			i += sequence(c, bytes + i, n - i);
			continue;
		}
		answer = press(c, bytes[i++]);
		if (answer != CHECKLIST_OPEN)
			return answer;
	}
	return CHECKLIST_OPEN;
}

/* As much of s as fits. */
static void put_cut(struct buf *out, const char *s, int cols)
{
	size_t n = strlen(s), used = 0;

	for (size_t i = 0; i < n;) {
		uint32_t cp;
		size_t k = utf8_decode(s + i, n - i, &cp), w = text_width(s + i, k);

		if (used + w > (size_t)cols)
			break;
		buf_put(out, s + i, k);
		used += w;
		i += k;
	}
}

static void put_line(struct buf *out, const char *s, int cols, const char *end)
{
	put_cut(out, s, cols);
	buf_printf(out, "\x1b[K%s", end);
}

static void put_item(const struct checklist *c, size_t i, int cols, struct buf *out)
{
	CLEANUP(buf_done) struct buf line = {0};
	bool is_here = i == c->cursor;

	buf_printf(&line, "%c [%c] %s", is_here ? '>' : ' ', c->items[i].is_checked ? 'x' : ' ',
		c->items[i].label);
	if (is_here)
		buf_puts(out, "\x1b[7m");
	put_cut(out, buf_str(&line), cols);
	buf_printf(out, "%s\x1b[K\r\n", is_here ? "\x1b[0m" : "");
}

void checklist_put(struct checklist *c, int rows, int cols, struct buf *out)
{
	CLEANUP(buf_done) struct buf foot = {0};
	size_t shown = rows > HEAD_ROWS + FOOT_ROWS ? (size_t)(rows - HEAD_ROWS - FOOT_ROWS) : 1;
	size_t end;

	if (c->cursor < c->top)
		c->top = c->cursor;
	if (c->cursor >= c->top + shown)
		c->top = c->cursor - shown + 1;
	if (c->top + shown > c->n)
		c->top = c->n > shown ? c->n - shown : 0;
	end = c->top + shown < c->n ? c->top + shown : c->n;
	buf_puts(out, "\x1b[H");
	put_line(out, c->title, cols, "\r\n");
	put_line(out, "up/down move  space toggle  a all  n none  i invert  s save  q cancel", cols,
		"\r\n");
	for (size_t i = c->top; i < end; i++)
		put_item(c, i, cols, out);
	buf_printf(&foot, "%zu of %zu chosen", checklist_count(c), c->n);
	put_line(out, buf_str(&foot), cols, "");
	buf_puts(out, "\x1b[J");
}

static void show(struct checklist *c)
{
	CLEANUP(buf_done) struct buf out = {0};
	int rows, cols;

	tty_size(&rows, &cols);
	checklist_put(c, rows, cols, &out);
	(void)fd_write_all(STDOUT_FILENO, out.data, out.len);
}

/* Reads what has come; an Esc waits a moment for the rest of its sequence. 0: the terminal is gone. */
static ssize_t read_keys(struct tty *t, char *bytes, size_t size)
{
	ssize_t n = read(STDIN_FILENO, bytes, size), more;

	if (n == 1 && bytes[0] == '\x1b' && tty_wait(t, ESC_MS) == 1) {
		more = read(STDIN_FILENO, bytes + 1, size - 1);
		n += more > 0 ? more : 0;
	}
	return n;
}

static int loop(struct checklist *c, struct tty *t, bool *ret_save)
{
	for (;;) {
		enum checklist_answer answer = CHECKLIST_OPEN;
		char bytes[64];
		int ready;

		show(c);
		ready = tty_wait(t, -1);
		if (ready == -EINTR)
			continue;
		if (ready < 0)
			return -ECANCELED;
		if (ready == 1) {
			ssize_t n = read_keys(t, bytes, sizeof(bytes));

			if (n <= 0)
				return -ECANCELED;
			answer = checklist_feed(c, bytes, (size_t)n);
		}
		if (answer != CHECKLIST_OPEN) {
			*ret_save = answer == CHECKLIST_SAVE;
			return 0;
		}
	}
}

int checklist_run(struct checklist *c, bool *ret_save, struct err *e)
{
	static const char enter[] = "\x1b[?1049h\x1b[?25l",
			  leave[] = "\x1b[H\x1b[2J\x1b[?25h\x1b[?1049l";
	CLEANUP(tty_end) struct tty t = {0};
	int r = tty_begin(&t, e);

	if (r < 0)
		return r;
	(void)fd_write_all(STDOUT_FILENO, enter, sizeof(enter) - 1);
	r = loop(c, &t, ret_save);
	(void)fd_write_all(STDOUT_FILENO, leave, sizeof(leave) - 1);
	return r < 0 ? err_set(e, r, "interrupted; nothing was changed") : 0;
}
