/* The queue screen's loop (queue.h): terminal, time and the three processes (queue_child.h) to the model; its wishes to them. */
#include "tui/queue.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "tui/keep.h"
#include "tui/queue_child.h"
#include "tui/queue_plain.h"
#include "tui/queue_view.h"
#include "tui/talk.h"
#include "tui/terminal.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLOCK_MS = 1000, QUIT_MS = 1000, FIRST_MS = 10000, PIECE = 256 * 1024 };

struct loop;
struct channel {
	struct loop *l;
	enum queue_role role;
	struct queue_child *child;
	struct buf in;
	struct event *readable;
	bool is_busy; /* a tick, a look, a log: one at a time */
	int64_t next_id; /* logs and details: asked for while one was on its way */
};

struct loop {
	const struct queue_screen_options *o;
	struct queue_model m;
	struct view_settings view;
	struct keep keep;
	struct frame frame;
	struct screen *screen;
	struct event_base *base;
	struct queue_child children[QUEUE_ROLE_N];
	struct channel ch[QUEUE_ROLE_N];
	struct terminal terminal;
	struct event *clock, *refresh; /* the plain form has no clock */
	struct queue_plain plain;
	struct talk talk; /* of the plain form */
	int64_t shown_id, next_shown; /* a detail that's on its way, and the one wanted after it */
	int signal_no;
	bool is_over;
	char fatal[512];
};

static void quit(struct loop *l)
{
	l->is_over = true;
	event_base_loopbreak(l->base);
}

static void say_news(struct loop *l)
{
	CLEANUP(buf_done) struct buf b = {0};

	queue_plain_news(&l->plain, &l->m, clock_wall_ms(), &b);
	talk_say(&l->talk, &b);
}

static void draw(struct loop *l)
{
	int cols, rows;

	if (!l->screen) {
		say_news(l);
		return;
	}
	l->m.is_working = l->ch[QUEUE_TICKS].is_busy;
	screen_size(l->screen, &cols, &rows);
	queue_draw(&l->m, &l->frame, cols, rows, clock_wall_ms());
	terminal_show(&l->terminal, &l->frame);
}

/* ---- to the processes ---- */

/* Takes o. What can't be written at once isn't: nothing here waits. */
static bool tell(struct channel *c, json_t *o)
{
	CLEANUP_FREE char *s = json_dumps(o, JSON_COMPACT);
	CLEANUP(buf_done) struct buf line = {0};
	ssize_t n;

	json_decref(o);
	buf_printf(&line, "%s\n", s ? s : "{}");
	n = c->child->fd < 0 ? -1
			     : send(c->child->fd, line.data, line.len, MSG_DONTWAIT | MSG_NOSIGNAL);
	/* Lines are short; half of one would be the end of the talk. */
	if (n >= 0 && (size_t)n == line.len)
		return true;
	queue_model_notice(&c->l->m, true, clock_boot_ms(),
		"it can't be done now: the process that does it is busy");
	return false;
}

static void look(struct loop *l)
{
	struct channel *c = &l->ch[QUEUE_RECORD];

	if (!c->is_busy)
		c->is_busy = tell(c, json_pack("{s:s}", "do", "look"));
}

static void ask_tick(struct loop *l, bool is_forced)
{
	struct channel *c = &l->ch[QUEUE_TICKS];

	if (!c->is_busy)
		c->is_busy = tell(c, json_pack("{s:s, s:b}", "do", "tick", "forced", is_forced));
}

static void ask_log(struct loop *l, int64_t id)
{
	struct channel *c = &l->ch[QUEUE_LOGS];

	if (c->is_busy) {
		c->next_id = id;
		return;
	}
	c->next_id = 0;
	c->is_busy = tell(c, json_pack("{s:s, s:I}", "do", "log", "id", (json_int_t)id));
}

static void ask_shown(struct loop *l, int64_t id)
{
	if (l->shown_id) {
		l->next_shown = id;
		return;
	}
	l->next_shown = 0;
	if (tell(&l->ch[QUEUE_RECORD], json_pack("{s:s, s:I}", "do", "show", "id", (json_int_t)id)))
		l->shown_id = id;
}

static void act(struct loop *l, const char *what, const struct queue_want *w)
{
	tell(&l->ch[QUEUE_RECORD],
		json_pack("{s:s, s:I, s:I, s:s}", "do", what, "id", (json_int_t)w->id, "by",
			(json_int_t)w->by, "node", w->node));
}

static void set_theme(struct loop *l, int64_t i)
{
	l->view.theme = themes[i].name;
	screen_theme(l->screen, &themes[i]);
	keep_write(&l->keep, &l->view);
}

static void grant_one(struct loop *l, const struct queue_want *w)
{
	static const char *const acts[] = {[WISH_CANCEL] = "cancel",
		[WISH_REQUEUE] = "requeue",
		[WISH_PRIORITY] = "priority",
		[WISH_MOVE] = "move",
		[WISH_DRAIN] = "drain",
		[WISH_RESUME] = "resume",
		[WISH_ACK] = "ack"};

	switch (w->what) {
	case WISH_TICK:
		ask_tick(l, true);
		break;
	case WISH_SHOW:
		ask_shown(l, w->id);
		break;
	case WISH_LOG:
		ask_log(l, w->id);
		break;
	case WISH_THEME:
		set_theme(l, w->by);
		break;
	case WISH_REDRAW:
		if (l->screen)
			screen_forget(l->screen);
		break;
	case WISH_STOP:
		screen_stop(l->screen);
		break;
	case WISH_QUIT:
		quit(l);
		break;
	default:
		act(l, acts[w->what], w);
		break;
	}
}

static void grant(struct loop *l)
{
	struct queue_want w;

	while ((w = queue_model_wish(&l->m)).what != WISH_NONE)
		grant_one(l, &w);
}

/* ---- from the processes ---- */

static void take_snapshot(struct loop *l, const json_t *o)
{
	struct snap s;

	l->ch[QUEUE_RECORD].is_busy = false;
	if (!snap_read(o, &s))
		queue_model_take(&l->m, &s, clock_boot_ms());
}

static void take_notice(struct loop *l, const json_t *o)
{
	const char *text = json_string_value(json_object_get(o, "notice"));

	if (text && *text)
		queue_model_notice(&l->m, json_is_true(json_object_get(o, "bad")), clock_boot_ms(),
			"%s", text);
	/* What was changed is to have its effect. */
	if (json_is_true(json_object_get(o, "acted")) && l->m.is_auto)
		ask_tick(l, true);
}

static void take_log(struct loop *l, const json_t *o)
{
	struct channel *c = &l->ch[QUEUE_LOGS];

	c->is_busy = false;
	queue_model_take_log(&l->m, json_integer_value(json_object_get(o, "id")),
		json_string_value(json_object_get(o, "text")),
		json_string_value(json_object_get(o, "error")));
	if (c->next_id)
		ask_log(l, c->next_id);
}

static void take_shown(struct loop *l, json_t *o)
{
	l->shown_id = 0;
	queue_model_take_shown(&l->m, o);
	if (l->next_shown)
		ask_shown(l, l->next_shown);
}

static void take_line(struct channel *c, const char *line, size_t n)
{
	struct loop *l = c->l;
	json_t *o = json_loadb(line, n, 0, NULL), *v;
	const char *fatal = json_string_value(json_object_get(o, "fatal"));

	if (fatal) {
		snprintf(l->fatal, sizeof(l->fatal), "%s", fatal);
		snprintf(l->m.error, sizeof(l->m.error), "%s", fatal);
		if (c->role == QUEUE_RECORD)
			c->is_busy = false;
	}
	if ((v = json_object_get(o, "snapshot")))
		take_snapshot(l, v);
	if ((v = json_object_get(o, "shown")))
		take_shown(l, v);
	if ((v = json_object_get(o, "log")))
		take_log(l, v);
	if (json_object_get(o, "ticked")) {
		c->is_busy = false;
		look(l);
	}
	take_notice(l, o);
	json_decref(o);
}

static void take_lines(struct channel *c)
{
	size_t at = 0;

	for (;;) {
		const char *nl =
			c->in.len > at ? memchr(c->in.data + at, '\n', c->in.len - at) : NULL;

		if (!nl)
			break;
		take_line(c, c->in.data + at, (size_t)(nl - c->in.data) - at);
		at = (size_t)(nl - c->in.data) + 1;
	}
	buf_drop(&c->in, at);
}

static void lose(struct channel *c)
{
	static const char *const what[] = {"reads the queue", "looks at the nodes", "reads logs"};

	if (c->readable)
		event_free(c->readable);
	c->readable = NULL;
	close(c->child->fd);
	c->child->fd = -1;
	c->is_busy = false;
	if (!c->l->m.error[0])
		snprintf(c->l->m.error, sizeof(c->l->m.error),
			"the process that %s has ended; quit and start again", what[c->role]);
}

/* false: it's over with that one. */
static bool read_channel(struct channel *c)
{
	ssize_t n;

	buf_reserve(&c->in, PIECE);
	n = read(c->child->fd, c->in.data + c->in.len, PIECE);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0 || c->in.len + (size_t)n > QUEUE_LINE_MAX) {
		lose(c);
		return false;
	}
	c->in.len += (size_t)n;
	c->in.data[c->in.len] = '\0';
	take_lines(c);
	return true;
}

static void on_channel(evutil_socket_t fd, short what, void *arg)
{
	struct channel *c = arg;

	(void)fd, (void)what;
	read_channel(c);
	grant(c->l);
	if (!c->l->is_over)
		draw(c->l);
}

/* ---- the terminal and time ---- */

static void take_event(void *arg, const struct input_event *ev)
{
	struct loop *l = arg;

	queue_model_event(&l->m, ev, &l->frame, clock_boot_ms());
	grant(l);
}

/* The last event may have ended it. */
static void draw_again(void *arg)
{
	struct loop *l = arg;

	if (!l->is_over)
		draw(l);
}

static void take_end(void *arg, int signal_no)
{
	struct loop *l = arg;

	l->signal_no = signal_no;
	quit(l);
}

static void on_clock(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;

	(void)fd, (void)what;
	queue_model_tick(&l->m, clock_boot_ms());
	keep_write(&l->keep, &l->view);
	draw(l);
}

static void on_refresh(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;

	(void)fd, (void)what;
	look(l);
	if (l->m.is_auto)
		ask_tick(l, false);
}

/* ---- life ---- */

/* Before the screen: a queue that can't be read at all is one sentence. A slow disk isn't waited for longer than this. */
static int wait_first(struct loop *l, struct err *e)
{
	struct channel *c = &l->ch[QUEUE_RECORD];
	int64_t until = clock_boot_ms() + FIRST_MS;

	while (!l->m.has_snap && !l->fatal[0]) {
		struct pollfd p = {.fd = c->child->fd, .events = POLLIN};
		int64_t left = until - clock_boot_ms();

		if (left <= 0 || poll(&p, 1, (int)left) <= 0)
			break;
		if (!read_channel(c))
			break;
	}
	l->m.n_wants = 0;
	if (l->fatal[0] && !l->m.has_snap)
		return err_set(e, -EIO, "%s", l->fatal);
	return 0;
}

static void stop_all(struct loop *l)
{
	for (int i = 0; i < QUEUE_ROLE_N; i++) {
		if (l->ch[i].readable)
			event_free(l->ch[i].readable);
		buf_done(&l->ch[i].in);
	}
	queue_child_stop(l->children, QUIT_MS);
}

static void open_events(struct loop *l)
{
	const struct terminal_owner owner = {
		.arg = l, .event = take_event, .draw = draw_again, .end = take_end};

	terminal_begin(&l->terminal, l->base, l->screen, &owner);
	for (int i = 0; i < QUEUE_ROLE_N; i++) {
		struct channel *c = &l->ch[i];

		if (c->child->fd < 0)
			continue;
		evutil_make_socket_nonblocking(c->child->fd);
		c->readable = event_new(l->base, c->child->fd, EV_READ | EV_PERSIST, on_channel, c);
		event_add(c->readable, NULL);
	}
	if (l->screen) {
		l->clock = event_new(l->base, -1, EV_PERSIST, on_clock, l);
		terminal_timer(l->clock, CLOCK_MS);
	}
	l->refresh = event_new(l->base, -1, EV_PERSIST, on_refresh, l);
	terminal_timer(l->refresh, l->o->refresh_ms);
}

static void close_events(struct loop *l)
{
	struct event *all[] = {l->clock, l->refresh};

	talk_done(&l->talk);
	terminal_done(&l->terminal);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i])
			event_free(all[i]);
}

static int run(struct loop *l, struct err *e)
{
	int r = screen_open(&l->screen, theme_find(l->view.theme), l->view.mouse, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < themes_n; i++)
		if (!strcmp(themes[i].name, l->view.theme))
			l->m.theme = (int)i;
	l->frame.grid.ascii = screen_is_ascii(l->screen);
	keep_init(&l->keep, l->o->home, &l->view);
	l->base = event_base_new();
	/* A key goes before all that the processes say. */
	event_base_priority_init(l->base, 2);
	open_events(l);
	draw(l);
	on_refresh(-1, 0, l);
	event_base_dispatch(l->base);
	screen_close(l->screen);
	l->screen = NULL;
	keep_done(&l->keep, &l->view, QUIT_MS);
	return l->signal_no ? 128 + l->signal_no : 0;
}

/* ---- line by line ---- */

static void take_typed(void *arg, const char *line)
{
	CLEANUP(buf_done) struct buf out = {0};
	struct loop *l = arg;

	queue_plain_line(&l->plain, &l->m, line, clock_boot_ms(), clock_wall_ms(), &out);
	talk_say(&l->talk, &out);
	grant(l);
	say_news(l);
}

static void take_over(void *arg)
{
	quit(arg);
}

/* Input that isn't a person's: one answer, and no more. */
static int run_plain(struct loop *l)
{
	bool is_terminal = isatty(STDIN_FILENO);
	const struct talk_owner owner = {.arg = l, .line = take_typed, .over = take_over};

	l->base = event_base_new();
	event_base_priority_init(l->base, 2);
	talk_begin(&l->talk, l->base, is_terminal, &owner);
	open_events(l);
	say_news(l);
	if (is_terminal) {
		on_refresh(-1, 0, l);
		event_base_dispatch(l->base);
	} else {
		while (!l->is_over && talk_is_waiting(&l->talk))
			event_base_loop(l->base, EVLOOP_ONCE);
	}
	return l->signal_no ? 128 + l->signal_no : 0;
}

int queue_screen_run(const struct queue_screen_options *o, struct err *e)
{
	struct loop l = {.o = o};
	int r = 0;

	for (int i = 0; i < QUEUE_ROLE_N; i++) {
		l.children[i] = (struct queue_child){.fd = -1};
		l.ch[i] = (struct channel){
			.l = &l, .role = (enum queue_role)i, .child = &l.children[i]};
	}
	for (int i = 0; i < QUEUE_ROLE_N && !r; i++)
		r = queue_child_start(l.children, (enum queue_role)i, o, e);
	queue_model_init(&l.m);
	frame_init(&l.frame);
	view_defaults(&l.view);
	l.view.theme = theme_default(getenv("NO_COLOR"), getenv("COLORFGBG"))->name;
	for (size_t i = 0; i < o->config->n_view; i++)
		view_set(&l.view, o->config->view[i].key, o->config->view[i].value);
	if (!r)
		r = wait_first(&l, e);
	if (!r)
		r = o->is_plain ? run_plain(&l) : run(&l, e);
	close_events(&l);
	stop_all(&l);
	if (l.base)
		event_base_free(l.base);
	frame_done(&l.frame);
	queue_model_done(&l.m);
	return r;
}
