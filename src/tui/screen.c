/*
 * The terminal (screen.h), by ncursesw: it knows how this one moves its cursor and which colours it has. Keys and mouse
 * reports are read by us, for terminfo's entry for the mouse is wrong inside tmux and screen. What's needed for the way
 * back lies in one static struct, for a signal's handler reaches nothing else.
 *
 * Curses writes into a file in memory, for it would wait for a terminal that doesn't read. From there the bytes of one
 * picture go to the terminal as it takes them; pictures that come meanwhile are left out, and the next one is drawn whole.
 */
#include "tui/screen.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "tui/lend.h"

#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>
/* Last, and without its macros for functions: they have names as common as "move" and "clear". */
#define NCURSES_NOMACROS
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>

#define MODES_ON "\033[?2004h"
#define MODES_OFF "\033[?1006l\033[?1000l\033[?2004l"
#define MOUSE_ON "\033[?1000h\033[?1006h"
#define CANCEL "\030" /* ends a sequence of which the rest doesn't come */

enum { LEAVE_MS = 200, PIECE = 64 * 1024 };

struct screen {
	SCREEN *curses;
	FILE *sink; /* where curses writes: a file in memory */
	struct buf backlog; /* for the terminal, not taken by it yet: of one picture */
	size_t taken; /* bytes of it that were */
	bool is_behind; /* a picture was left out */
	struct grid shown; /* what the terminal has */
	bool is_forgotten;
	const struct theme *theme;
	bool wants_mouse, is_ascii;
	int cols, rows;
	int cursor_x, cursor_y;
	struct input input;
};

/* ---- the way back ---- */

static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

static struct way_back {
	volatile sig_atomic_t is_taken;
	int fd; /* while there's a screen the terminal opened anew: nobody else's writes are to fail for our not waiting */
	/*
	 * Or the one we share, when it's another user's (after su): its flags as they were, for nobody would give them
	 * back if we didn't. -1: it was opened anew.
	 */
	int flags;
	struct termios before;
	char bytes[256];
	size_t n;
	struct sigaction old[ARRAY_LEN(deadly)];
} way_back = {.fd = STDOUT_FILENO, .flags = -1};

/* A terminal that's shared doesn't make us wait as long as it's taken. */
static void share(bool is_taken)
{
	if (way_back.flags >= 0)
		fcntl(STDOUT_FILENO, F_SETFL, way_back.flags | (is_taken ? O_NONBLOCK : 0));
}

/* Async-signal-safe: write, tcsetattr, fcntl. */
static void give_back(void)
{
	ssize_t n;

	if (!way_back.is_taken)
		return;
	way_back.is_taken = 0;
	n = write(way_back.fd, way_back.bytes, way_back.n);
	(void)n;
	tcsetattr(STDIN_FILENO, TCSANOW, &way_back.before);
	share(false);
}

static void on_deadly(int sig, siginfo_t *info, void *context)
{
	int kept = errno;

	give_back();
	for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
		if (deadly[i] == sig)
			sigaction(sig, &way_back.old[i], NULL);
	errno = kept;
	/* A fault comes again when the instruction is done again; what was sent doesn't. */
	if (info->si_code <= 0 || sig == SIGABRT)
		raise(sig);
}

/* A capability without its padding, as far as it fits. */
static void put_cap(const char *name)
{
	char cap[16];
	const char *s;

	memcpy(cap, name, strlen(name) + 1);
	s = tigetstr(cap);
	if (!s || s == (char *)-1)
		return;
	while (*s && way_back.n < sizeof(way_back.bytes) - 1) {
		if (s[0] == '$' && s[1] == '<' && strchr(s, '>'))
			s = strchr(s, '>') + 1;
		else
			way_back.bytes[way_back.n++] = *s++;
	}
}

static void put_way_back(void)
{
	way_back.n = strlen(CANCEL MODES_OFF);
	memcpy(way_back.bytes, CANCEL MODES_OFF, way_back.n);
	put_cap("sgr0");
	put_cap("cnorm");
	put_cap("rmcup");
}

static void prepare_way_back(void)
{
	static bool is_registered;
	struct sigaction sa = {.sa_sigaction = on_deadly, .sa_flags = SA_SIGINFO | SA_RESTART};

	put_way_back();
	way_back.is_taken = 1;
	for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
		sigaction(deadly[i], &sa, &way_back.old[i]);
	if (!is_registered)
		atexit(give_back);
	is_registered = true;
}

static void forget_way_back(void)
{
	if (way_back.is_taken)
		for (size_t i = 0; i < ARRAY_LEN(deadly); i++)
			sigaction(deadly[i], &way_back.old[i], NULL);
	way_back.is_taken = 0;
}

/* ---- bytes to the terminal ---- */

/* What curses wrote goes behind what's waiting. */
static void collect(struct screen *s)
{
	int fd = fileno(s->sink);
	off_t n;

	fflush(s->sink);
	n = lseek(fd, 0, SEEK_CUR);
	if (n <= 0)
		return;
	buf_reserve(&s->backlog, (size_t)n + 1);
	n = pread(fd, s->backlog.data + s->backlog.len, (size_t)n, 0);
	if (n > 0) {
		s->backlog.len += (size_t)n;
		s->backlog.data[s->backlog.len] = '\0';
	}
	if (ftruncate(fd, 0) == 0)
		lseek(fd, 0, SEEK_SET);
}

static void say(struct screen *s, const char *bytes)
{
	collect(s);
	buf_puts(&s->backlog, bytes);
}

int screen_push(struct screen *s)
{
	return fd_push(way_back.fd, &s->backlog, &s->taken, PIECE);
}

bool screen_has_backlog(const struct screen *s)
{
	return s->backlog.len > s->taken;
}

bool screen_is_behind(const struct screen *s)
{
	return s->is_behind;
}

int screen_fd(const struct screen *s)
{
	(void)s;
	return way_back.fd;
}

/* Of a terminal that takes nothing, what it would have shown isn't worth waiting for: the way back is. */
static void push_way_back(struct screen *s)
{
	struct pollfd pfd = {.fd = way_back.fd, .events = POLLOUT};

	for (int turns = 0; turns < 2 && screen_push(s) == 0 && screen_has_backlog(s); turns++)
		poll(&pfd, 1, LEAVE_MS);
	if (!screen_has_backlog(s))
		return;
	/* Whoever stopped it couldn't use it either as we'd leave it. */
	tcflush(way_back.fd, TCOFLUSH);
	tcflow(way_back.fd, TCOON);
	buf_clear(&s->backlog);
	s->taken = 0;
	buf_put(&s->backlog, way_back.bytes, way_back.n);
	screen_push(s);
}

/* Without waiting until all was shown, for that may be never. */
static void leave(struct screen *s)
{
	say(s, MODES_OFF);
	endwin();
	collect(s);
	push_way_back(s);
	tcsetattr(STDIN_FILENO, TCSANOW, &way_back.before);
	share(false);
	buf_clear(&s->backlog);
	s->taken = 0;
	s->is_behind = false;
}

/* ---- colours ---- */

/* Pairs are numbered ink * PAPER_N + paper + 1. */
static void make_colours(const struct theme *t)
{
	if (COLORS < 8)
		return;
	for (int ink = 0; ink < INK_N; ink++)
		for (int paper = 0; paper < PAPER_N; paper++)
			init_pair((short)(ink * PAPER_N + paper + 1),
				(short)theme_ink(
					t, (enum ink)ink, (enum paper)paper, COLORS >= 256),
				(short)theme_paper(t, (enum paper)paper, COLORS >= 256));
}

static attr_t attrs_of(const struct screen *s, struct style style)
{
	uint8_t bits = style.attr;
	attr_t a = A_NORMAL;

	if (COLORS < 256)
		bits |= s->theme->attr[style.ink];
	if (COLORS < 8 && style.paper && style.paper != PAPER_TRACK)
		bits |= STYLE_REVERSE;
	if (s->theme->ink[INK_BAD] < 0) {
		bits |= s->theme->attr[style.ink];
		if (style.paper && style.paper != PAPER_TRACK)
			bits |= STYLE_REVERSE;
	}
	/* What stands on a paper is seen by that; reversed it would have the paper's colour on its own. */
	if (COLORS >= 8 && theme_paper(s->theme, (enum paper)style.paper, COLORS >= 256) >= 0)
		bits &= (uint8_t)~STYLE_REVERSE;
	if (bits & STYLE_BOLD)
		a |= A_BOLD;
	if (bits & STYLE_REVERSE)
		a |= A_REVERSE;
	if (bits & STYLE_UNDERLINE)
		a |= A_UNDERLINE;
	return a;
}

/* ---- keys that terminfo knows ---- */

static void learn_keys(struct input *in)
{
	static const struct {
		char cap[8];
		uint32_t key;
	} caps[] = {{"kcuu1", KEY_ARROW_UP}, {"kcud1", KEY_ARROW_DOWN}, {"kcub1", KEY_ARROW_LEFT},
		{"kcuf1", KEY_ARROW_RIGHT}, {"kpp", KEY_PAGE_UP}, {"knp", KEY_PAGE_DOWN},
		{"khome", KEY_FIRST}, {"kend", KEY_LAST}, {"kdch1", KEY_DELETE},
		{"kcbt", KEY_BACKTAB}, {"kf6", KEY_FN + 6}, {"kf7", KEY_FN + 7},
		{"kf8", KEY_FN + 8}, {"kf9", KEY_FN + 9}};

	for (size_t i = 0; i < ARRAY_LEN(caps); i++) {
		const char *s = tigetstr(caps[i].cap);

		if (s && s != (char *)-1)
			input_learn(in, s, caps[i].key);
	}
}

/* ---- life ---- */

/* ret_is_unknown: only because terminfo has never heard of it. */
static bool can_move_cursor(bool *ret_is_unknown)
{
	const char *term = getenv("TERM");
	char cup[] = "cup", *s;
	int error = 1;
	bool is_named = term && *term;

	if (!is_named || setupterm(NULL, STDOUT_FILENO, &error) == ERR) {
		*ret_is_unknown = is_named && error != 1;
		return false;
	}
	s = tigetstr(cup);
	/* newterm makes one of its own. */
	del_curterm(cur_term);
	return s && s != (char *)-1;
}

static int no_terminal(struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};
	const char *term = getenv("TERM");
	bool is_unknown = false;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return err_set(e, -ENOTTY,
			"a screen needs a terminal for its input and its output; --once prints one look without any");
	if (!can_move_cursor(&is_unknown)) {
		text_put_repr(&q, term ? term : "", term ? strnlen(term, 60) : 0);
		if (is_unknown)
			return err_set(e, -ENOTTY,
				"terminfo on this machine doesn't know this terminal (TERM is %s), so a screen can't move its cursor; TERM=xterm-256color serves most, --plain writes line by line",
				buf_str(&q));
		return err_set(e, -ENOTTY,
			"this terminal (TERM is %s) can't move its cursor; --plain writes line by line",
			buf_str(&q));
	}
	return 0;
}

/* By ourselves: curses has no terminal to set. All bytes go as they are, both ways. */
static void make_raw(void)
{
	struct termios t = way_back.before;

	t.c_iflag &= ~(tcflag_t)(BRKINT | PARMRK | ISTRIP | INLCR | IGNCR | ICRNL | IXON);
	t.c_oflag &= ~(tcflag_t)OPOST;
	t.c_lflag &= ~(tcflag_t)(ECHO | ECHONL | ICANON | ISIG | IEXTEN);
	t.c_cc[VMIN] = 1;
	t.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSANOW, &t);
}

static void set_up(struct screen *s)
{
	share(true);
	make_raw();
	nonl();
	leaveok(stdscr, TRUE);
	curs_set(0);
	if (has_colors()) {
		start_color();
		use_default_colors();
		make_colours(s->theme);
	}
	say(s, MODES_ON);
	if (s->wants_mouse)
		say(s, MOUSE_ON);
}

static void read_size(struct screen *s)
{
	struct winsize size;

	s->cols = COLS;
	s->rows = LINES;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row) {
		s->cols = size.ws_col;
		s->rows = size.ws_row;
	}
	if (s->cols > GRID_COLS_MAX)
		s->cols = GRID_COLS_MAX;
	if (s->rows > GRID_ROWS_MAX)
		s->rows = GRID_ROWS_MAX;
}

/* /dev/stdout would be the same open file: not waiting is ours alone. */
static int open_output(struct screen *s, struct err *e)
{
	static const int flags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int memory = memfd_create("gpustow-screen", MFD_CLOEXEC),
	    fd = open("/proc/self/fd/1", flags);

	if (fd < 0 && ttyname(STDOUT_FILENO))
		fd = open(ttyname(STDOUT_FILENO), flags);
	if (fd >= 0)
		way_back.fd = fd;
	else
		way_back.flags = fcntl(STDOUT_FILENO, F_GETFL);
	s->sink = memory >= 0 ? fdopen(memory, "w") : NULL;
	return s->sink ? 0 : err_sys(e, -errno, "there's no memory for what the terminal shows");
}

static void close_output(struct screen *s)
{
	if (s->sink)
		fclose(s->sink);
	if (way_back.fd != STDOUT_FILENO)
		close(way_back.fd);
	way_back.fd = STDOUT_FILENO;
	way_back.flags = -1;
	buf_done(&s->backlog);
}

int screen_open(struct screen **ret, const struct theme *theme, bool wants_mouse, struct err *e)
{
	static const int theirs[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
	struct screen *s;
	int r = no_terminal(e);

	if (r)
		return r;
	if (tcgetattr(STDIN_FILENO, &way_back.before) < 0)
		return err_sys(e, -errno, "the terminal's settings can't be read");
	s = xcalloc(1, sizeof(*s));
	r = open_output(s, e);
	if (!r && !(s->curses = newterm(NULL, s->sink, stdin)))
		r = err_set(e, -ENOTTY, "the terminal can't be used: terminfo lacks what's needed");
	if (r) {
		close_output(s);
		free(s);
		return r;
	}
	/* Signals are events of the loop; its handlers would jump into the middle of a picture. */
	for (size_t i = 0; i < ARRAY_LEN(theirs); i++)
		signal(theirs[i], SIG_DFL);
	s->theme = theme;
	s->wants_mouse = wants_mouse;
	s->is_ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
	s->is_forgotten = true;
	s->cursor_x = s->cursor_y = -1;
	prepare_way_back();
	learn_keys(&s->input);
	set_up(s);
	read_size(s);
	resizeterm(s->rows, s->cols);
	grid_resize(&s->shown, s->cols, s->rows);
	*ret = s;
	return 0;
}

void screen_close(struct screen *s)
{
	if (!s)
		return;
	leave(s);
	forget_way_back();
	delscreen(s->curses);
	close_output(s);
	grid_done(&s->shown);
	free(s);
}

void screen_size(const struct screen *s, int *ret_cols, int *ret_rows)
{
	*ret_cols = s->cols;
	*ret_rows = s->rows;
}

bool screen_is_ascii(const struct screen *s)
{
	return s->is_ascii;
}

/* ---- pictures ---- */

static void show_cell(const struct screen *s, int x, int y, const struct cell *c)
{
	wchar_t text[CELL_TEXT + 1] = {' '};
	int pair = COLORS >= 8 ? c->style.ink * PAPER_N + c->style.paper + 1 : 0;
	size_t n = strlen(c->text), k = 0;
	cchar_t cc;

	for (size_t i = 0; i < n && k < CCHARW_MAX;) {
		uint32_t cp;

		i += utf8_decode(c->text + i, n - i, &cp);
		text[k++] = (wchar_t)cp;
	}
	if (setcchar(&cc, text, attrs_of(s, c->style), (short)pair, NULL) == OK)
		mvadd_wch(y, x, &cc);
}

static bool show_cursor(struct screen *s, const struct frame *f)
{
	bool is_same = s->cursor_x == f->cursor_x && s->cursor_y == f->cursor_y;
	bool is_shown = f->cursor_x >= 0 && f->cursor_y >= 0;

	if (is_same && !is_shown)
		return false;
	if (is_shown != (s->cursor_x >= 0)) {
		leaveok(stdscr, !is_shown);
		curs_set(is_shown);
	}
	if (is_shown)
		move(f->cursor_y, f->cursor_x);
	s->cursor_x = f->cursor_x;
	s->cursor_y = f->cursor_y;
	return !is_same;
}

bool screen_show(struct screen *s, const struct frame *f)
{
	int cols = f->grid.cols < s->cols ? f->grid.cols : s->cols;
	/* The bottom row isn't ours: some terminals scroll when its end is written. */
	int rows = f->grid.rows < s->rows - 1 ? f->grid.rows : s->rows - 1;
	bool is_changed;

	/* Once the terminal reads again whoever waits for that shows the latest. */
	if (screen_push(s) < 0 || screen_has_backlog(s)) {
		s->is_behind = true;
		return false;
	}
	if (s->is_behind)
		s->is_forgotten = true;
	s->is_behind = false;
	is_changed = s->is_forgotten;
	if (s->is_forgotten) {
		erase();
		clearok(stdscr, TRUE);
		grid_resize(&s->shown, s->cols, s->rows);
		s->is_forgotten = false;
	}
	for (int y = 0; y < rows; y++)
		for (int x = 0; x < cols; x++) {
			const struct cell *c =
				&f->grid.cells[(size_t)y * (size_t)f->grid.cols + (size_t)x];
			struct cell *old = grid_at(&s->shown, x, y);

			if (cell_same(c, old))
				continue;
			*old = *c;
			is_changed = true;
			if (c->width)
				show_cell(s, x, y, c);
		}
	if (show_cursor(s, f))
		is_changed = true;
	if (is_changed)
		refresh();
	collect(s);
	return is_changed;
}

void screen_forget(struct screen *s)
{
	s->is_forgotten = true;
}

void screen_theme(struct screen *s, const struct theme *theme)
{
	s->theme = theme;
	if (has_colors())
		make_colours(theme);
	s->is_forgotten = true;
}

void screen_resized(struct screen *s)
{
	read_size(s);
	resizeterm(s->rows, s->cols);
	s->is_forgotten = true;
}

void screen_stop(struct screen *s)
{
	leave(s);
	way_back.is_taken = 0;
	kill(0, SIGTSTP);
	/* Goes on here. */
	way_back.is_taken = 1;
	refresh();
	set_up(s);
	screen_resized(s);
}

/* ---- another program's ---- */

void screen_lend(void)
{
	way_back.fd = STDOUT_FILENO;
	way_back.is_taken = tcgetattr(STDIN_FILENO, &way_back.before) == 0;
}

void screen_take_back(void)
{
	int error = 0;

	if (setupterm(NULL, STDOUT_FILENO, &error) == ERR)
		return;
	put_way_back();
	del_curterm(cur_term);
	give_back();
}

/* ---- input ---- */

int screen_read(struct screen *s, void (*take)(void *arg, const struct input_event *ev), void *arg)
{
	struct pollfd pfd = {.fd = STDIN_FILENO, .events = POLLIN};
	/* Not all that a flood brings: pictures and samples have their turn. */
	for (int turns = 0; turns < 8 && poll(&pfd, 1, 0) > 0; turns++) {
		char bytes[512];
		ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
		struct input_event ev;

		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			break;
		if (n <= 0)
			return -EIO;
		for (ssize_t i = 0; i < n; i++)
			if (input_byte(&s->input, bytes[i], &ev))
				take(arg, &ev);
	}
	return 0;
}

void screen_idle(struct screen *s, void (*take)(void *arg, const struct input_event *ev), void *arg)
{
	struct input_event ev;

	if (input_idle(&s->input, &ev))
		take(arg, &ev);
}

bool screen_is_waiting(const struct screen *s)
{
	return input_is_waiting(&s->input);
}
