/* The monitor's loop (monitor.h): hosts, terminal and time to the model; the model's wishes to the world. */
#include "tui/monitor.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "fleet/fleet.h"
#include "tui/keep.h"
#include "tui/monitor_view.h"
#include "tui/talk.h"
#include "tui/terminal.h"

#include <event2/event.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	INTERVAL_MS = 1000,
	GATHER_MS = 200, /* samples that arrive together make one picture */
	TICK_MS = 1000,
	QUIT_MS = 1000, /* for the last settings */
	PLAIN_FIRST_MS = 10000 /* at the latest */
};

struct loop {
	const struct monitor_options *o;
	struct monitor m;
	struct frame frame;
	struct screen *screen;
	struct keep keep;
	struct event_base *base;
	struct fleet *fleet;
	struct terminal terminal;
	struct talk talk; /* of the plain form */
	struct event *tick, *gather;
	uint64_t n_requests;
	int signal_no;
	bool is_over, has_said;
};

/* ---- pictures ---- */

static struct view_time now(void)
{
	return (struct view_time){clock_boot_ms(), clock_wall_ms()};
}

static void draw(struct loop *l)
{
	int cols, rows;

	screen_size(l->screen, &cols, &rows);
	monitor_draw(&l->m, &l->frame, cols, rows, now());
	terminal_show(&l->terminal, &l->frame);
}

static void quit(struct loop *l)
{
	l->is_over = true;
	event_base_loopbreak(l->base);
}

/* ---- hosts ---- */

static void take_host(struct loop *l, size_t i)
{
	const struct fleet_host *h = fleet_at(l->fleet, i);
	CLEANUP_FREE char *address = fleet_address(h);
	bool has_answered = fleet_has_answered(h);
	struct show_host s = {.name = h->name,
		.address = address,
		.state = host_state_name(h->state),
		.why = h->why,
		.has_answered = has_answered,
		.sample = h->sample,
		.sample_age_ms = h->sample ? clock_boot_ms() - h->sample_at_ms : -1,
		.is_stale = h->sample && !has_answered,
		.clock_offset_ms = h->clock_offset_ms,
		.rtt_ms = h->rtt_ms,
		.connected_ms = h->connected_ms,
		.hello_ms = h->hello_ms,
		.first_sample_ms = h->first_sample_ms};

	monitor_take(&l->m, i, &s, h->sample_at_ms);
}

static bool has_settled(const struct loop *l)
{
	for (size_t i = 0; i < l->m.n_nodes; i++)
		if (!l->m.nodes[i].host.has_answered && !node_has_failed(&l->m.nodes[i]))
			return false;
	return true;
}

static void on_changed(void *arg, const struct fleet_host *h)
{
	struct loop *l = arg;

	/* The fleet tells while it's being filled, too. */
	for (size_t i = 0; l->fleet && i < fleet_count(l->fleet) && i < l->m.n_nodes; i++)
		if (fleet_at(l->fleet, i) == h)
			take_host(l, i);
	if (l->gather && !event_pending(l->gather, EV_TIMEOUT, NULL))
		terminal_timer(l->gather, GATHER_MS);
	if (l->o->is_plain && !l->has_said && has_settled(l))
		terminal_timer(l->tick, 0);
}

struct refusal {
	struct loop *l;
	uint64_t question;
};

static void on_refusal(evutil_socket_t fd, short what, void *arg)
{
	struct refusal *r = arg;

	(void)fd, (void)what;
	fleet_answer(r->l->fleet, r->question, NULL);
	free(r);
}

static void on_asks(void *arg, const struct fleet_host *h, uint64_t question, const char *prompt,
	bool is_secret)
{
	static const struct timeval at_once;
	struct loop *l = arg;
	uint32_t node = 0;

	while (node < fleet_count(l->fleet) && fleet_at(l->fleet, node) != h)
		node++;
	if (!monitor_ask(&l->m, question, node, prompt, is_secret)) {
		struct refusal *r = xcalloc(1, sizeof(*r));

		/* Not from inside the fleet's own work. */
		*r = (struct refusal){l, question};
		event_base_once(l->base, -1, EV_TIMEOUT, on_refusal, r, &at_once);
		return;
	}
	draw(l);
}

static void on_signalled(void *arg, const struct fleet_host *h, uint64_t request, const char *why)
{
	struct loop *l = arg;

	(void)request;
	if (why)
		monitor_notice(&l->m, INK_BAD, clock_boot_ms(), "%s: %s", h->name, why);
	else
		monitor_notice(
			&l->m, INK_GOOD, clock_boot_ms(), "%s: the signal was sent", h->name);
	if (l->screen)
		draw(l);
}

/* ---- the model's wishes ---- */

static void send_signal(struct loop *l)
{
	struct armed a = l->m.wishes.signal;
	struct err e = {0};

	l->m.wishes.signal.signo = 0;
	if (fleet_signal(l->fleet, a.node, ++l->n_requests, a.pid, a.start_ticks, a.signo, &e) < 0)
		monitor_notice(&l->m, INK_BAD, clock_boot_ms(), "%s", e.text);
	else
		monitor_notice(
			&l->m, INK_PLAIN, clock_boot_ms(), "sending it to process %d", a.pid);
}

static void give_answer(struct loop *l)
{
	struct wishes *w = &l->m.wishes;

	w->has_answer = false;
	fleet_answer(l->fleet, w->question, w->is_refused ? NULL : w->answer);
	explicit_bzero(w->answer, sizeof(w->answer));
}

static void grant(struct loop *l)
{
	struct wishes *w = &l->m.wishes;

	if (w->has_answer)
		give_answer(l);
	if (w->signal.signo)
		send_signal(l);
	for (uint32_t i = 0; w->has_retry && i < l->m.n_nodes; i++)
		if (w->retry == RETRY_FAILED ? node_has_failed(&l->m.nodes[i]) : i == w->retry)
			fleet_retry(l->fleet, i);
	if (w->new_theme)
		screen_theme(l->screen, theme_find(l->m.view.theme));
	if (w->redraw_all)
		screen_forget(l->screen);
	if (w->stop)
		screen_stop(l->screen);
	if (w->keep_settings)
		keep_write(&l->keep, &l->m.view);
	w->has_retry = w->new_theme = w->redraw_all = w->stop = w->keep_settings = false;
	if (w->quit)
		quit(l);
}

/* ---- the terminal ---- */

static void take_event(void *arg, const struct input_event *ev)
{
	struct loop *l = arg;

	monitor_event(&l->m, ev, &l->frame, clock_boot_ms());
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

static void on_gather(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	draw(arg);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;

	(void)fd, (void)what;
	monitor_tick(&l->m, clock_boot_ms());
	keep_write(&l->keep, &l->m.view);
	if (l->keep.has_failed)
		monitor_notice(&l->m, INK_WARN, clock_boot_ms(),
			"the layout can't be written to config.yml below %s; it lasts until the end",
			l->o->home);
	l->keep.has_failed = false;
	draw(l);
}

/* ---- life ---- */

static size_t count_hosts(const struct monitor_options *o)
{
	return 1 + (o->is_remote ? o->config->n_servers : 0);
}

static void prepare_model(struct loop *l)
{
	const struct config *c = l->o->config;

	monitor_init(&l->m, count_hosts(l->o));
	l->m.is_debug = l->o->is_debug;
	l->m.is_compact = l->o->is_compact;
	l->m.wants_dcgm = l->o->wants_dcgm;
	l->m.view.theme = theme_default(getenv("NO_COLOR"), getenv("COLORFGBG"))->name;
	for (size_t i = 0; i < c->n_view; i++)
		view_set(&l->m.view, c->view[i].key, c->view[i].value);
}

static void open_fleet(struct loop *l, bool can_ask)
{
	struct fleet_owner owner = {.arg = l,
		.changed = on_changed,
		.asks = can_ask ? on_asks : NULL,
		.signalled = on_signalled};
	struct fleet_options fo = {.interval_ms = INTERVAL_MS,
		.can_ask = can_ask,
		.details = true,
		.may_slow = true,
		.profiling = l->o->wants_dcgm,
		.home = l->o->home};

	l->fleet = fleet_new(l->base, &fo, &owner);
	fleet_add(l->fleet, NULL);
	for (size_t i = 0; l->o->is_remote && i < l->o->config->n_servers; i++)
		fleet_add(l->fleet, &l->o->config->servers[i]);
	for (size_t i = 0; i < fleet_count(l->fleet); i++)
		take_host(l, i);
}

static void open_terminal(struct loop *l)
{
	const struct terminal_owner owner = {
		.arg = l, .event = take_event, .draw = draw_again, .end = take_end};

	terminal_begin(&l->terminal, l->base, l->screen, &owner);
}

static void close_events(struct loop *l)
{
	struct event *all[] = {l->tick, l->gather};

	talk_done(&l->talk);
	terminal_done(&l->terminal);
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i])
			event_free(all[i]);
	l->gather = NULL;
}

static void loop_done(struct loop *l)
{
	/* First of all the terminal, whatever takes its time behind it. */
	screen_close(l->screen);
	l->screen = NULL;
	close_events(l);
	if (l->fleet)
		fleet_free(l->fleet);
	if (l->base)
		event_base_free(l->base);
	frame_done(&l->frame);
	monitor_done(&l->m);
}

static int run_screen(struct loop *l, struct err *e)
{
	static const struct timeval second = {.tv_sec = TICK_MS / 1000};
	int r = screen_open(&l->screen, theme_find(l->m.view.theme), l->m.view.mouse, e);

	if (r < 0)
		return r;
	l->frame.grid.ascii = screen_is_ascii(l->screen);
	keep_init(&l->keep, l->o->home, &l->m.view);
	open_terminal(l);
	l->gather = evtimer_new(l->base, on_gather, l);
	l->tick = event_new(l->base, -1, EV_PERSIST, on_tick, l);
	event_add(l->tick, &second);
	draw(l);
	open_fleet(l, true);
	draw(l);
	event_base_dispatch(l->base);
	screen_close(l->screen);
	l->screen = NULL;
	keep_done(&l->keep, &l->m.view, QUIT_MS);
	return l->signal_no ? 128 + l->signal_no : 0;
}

/* ---- line by line ---- */

static void say(struct loop *l)
{
	CLEANUP(buf_done) struct buf out = {0};

	l->has_said = true;
	monitor_plain(&l->m, now(), &out);
	if (l->talk.readable)
		buf_puts(&out, "Enter says it anew, q ends.\n");
	talk_say(&l->talk, &out);
}

static void on_plain_first(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	say(arg);
}

static void take_line(void *arg, const char *line)
{
	if (line[0] == 'q')
		quit(arg);
	else
		say(arg);
}

static void take_over(void *arg)
{
	quit(arg);
}

/* Input that has ended, or that's /dev/null: one answer, and no more. */
static int run_plain(struct loop *l)
{
	bool is_terminal = isatty(STDIN_FILENO);
	const struct talk_owner owner = {.arg = l, .line = take_line, .over = take_over};

	open_terminal(l);
	talk_begin(&l->talk, l->base, is_terminal, &owner);
	l->tick = evtimer_new(l->base, on_plain_first, l);
	terminal_timer(l->tick, PLAIN_FIRST_MS);
	open_fleet(l, false);
	if (is_terminal) {
		event_base_dispatch(l->base);
	} else {
		while (!l->is_over &&
			(event_pending(l->tick, EV_TIMEOUT, NULL) || talk_is_waiting(&l->talk)))
			event_base_loop(l->base, EVLOOP_ONCE);
	}
	return l->signal_no ? 128 + l->signal_no : 0;
}

int monitor_run(const struct monitor_options *o, struct err *e)
{
	struct loop l = {.o = o, .base = event_base_new()};
	int r;

	/* A key goes before samples: a hundred hosts may have something to say. */
	event_base_priority_init(l.base, 2);
	frame_init(&l.frame);
	prepare_model(&l);
	r = o->is_plain ? run_plain(&l) : run_screen(&l, e);
	loop_done(&l);
	return r;
}
