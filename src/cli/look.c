/* The loop of a command that looks at hosts. What a look is for, the command decides; when a host has answered, this. */
#include "cli/look.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/hosts.h"
#include "core/profile.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 100, PROFILE_MS = 6000 };

bool look_has_answered(const struct fleet_host *h)
{
	return fleet_has_answered(h);
}

bool look_is_settled(const struct fleet_host *h)
{
	return look_has_answered(h) || h->state == HOST_DOWN || h->state == HOST_AUTH;
}

/* Counters tell of the time between two looks, so the first sample has none. */
bool look_is_profiled(const struct fleet_host *h)
{
	const struct sample *s = h->sample;

	if (!s || h->state != HOST_UP || !s->with_profiling ||
		s->snap.profiling.source == PROFILE_NONE || profile_has_any(&s->snap))
		return true;
	return clock_boot_ms() - h->started_ms - h->first_sample_ms >= PROFILE_MS;
}

char *look_address(const struct fleet_host *h)
{
	return fleet_address(h);
}

/* ---- the loop ---- */

static void look(struct look *h)
{
	int64_t spent_ms = clock_boot_ms() - h->begun_ms - ask_spent_ms(h->ask);

	if (h->is_done(h, h->arg)) {
		event_base_loopbreak(h->base);
	} else if (h->limit_ms && spent_ms >= h->limit_ms && !ask_is_open(h->ask)) {
		h->is_over = true;
		event_base_loopbreak(h->base);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	look(arg);
}

static void on_changed(void *arg, const struct fleet_host *host)
{
	struct look *h = arg;
	static const struct timeval at_once;

	(void)host;
	/* Not from inside the fleet's own work: it may be in the middle of it. */
	if (h->is_done)
		event_base_once(h->base, -1, EV_TIMEOUT, on_timer, h, &at_once);
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct look *h = arg;

	(void)what;
	h->signal_no = (int)sig;
	event_base_loopbreak(h->base);
}

static void on_asks(void *arg, const struct fleet_host *host, uint64_t question, const char *prompt,
	bool is_secret)
{
	struct look *h = arg;

	ask_put(h->ask, question, host->name, prompt, is_secret);
}

static void on_answered(void *arg, uint64_t question, const char *text)
{
	struct look *h = arg;

	fleet_answer(h->fleet, question, text);
}

void look_run(
	struct look *h, int64_t limit_ms, bool (*is_done)(struct look *h, void *arg), void *arg)
{
	static const struct timeval pace = {.tv_usec = LOOK_MS * 1000};

	h->is_done = is_done;
	h->arg = arg;
	h->limit_ms = limit_ms;
	h->begun_ms = clock_boot_ms();
	event_add(h->timer, &pace);
	event_base_dispatch(h->base);
	event_del(h->timer);
}

/* ---- life ---- */

static int add_hosts(struct look *h, const struct look_wish *w, struct err *e)
{
	bool is_local = w->only && strcmp(w->only, "local") == 0;
	size_t i = 0;
	int r;

	if (w->only && !is_local) {
		r = config_find(&h->config, w->only, &i, e);
		if (r < 0)
			return r;
		fleet_add(h->fleet, &h->config.servers[i]);
		return 0;
	}
	if (w->local || is_local)
		fleet_add(h->fleet, NULL);
	for (; !is_local && w->remote && i < h->config.n_servers; i++)
		fleet_add(h->fleet, &h->config.servers[i]);
	return 0;
}

int look_open(struct look *h, const struct program *p, const struct look_wish *w,
	struct config *config, struct err *e)
{
	struct fleet_owner owner = {.arg = h, .changed = on_changed};
	struct fleet_options o = {
		.interval_ms = w->interval_ms, .details = w->details, .profiling = w->profiling};
	bool wants_config = w->remote || (w->only && strcmp(w->only, "local") != 0);
	int r;

	*h = (struct look){0};
	if (config) {
		h->config = *config;
		*config = (struct config){0};
	}
	r = hosts_home(p, h->home, e);
	if (!r && wants_config && !config)
		r = global_config(p, &h->config, e);
	if (r < 0)
		return r;
	h->base = event_base_new();
	h->timer = event_new(h->base, -1, EV_PERSIST, on_timer, h);
	if (wants_config && isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
		h->ask = ask_new(h->base, on_answered, h);
	for (size_t i = 0; i < ARRAY_LEN(h->interrupts) && !h->ask; i++) {
		h->interrupts[i] = evsignal_new(h->base, i ? SIGTERM : SIGINT, on_signal, h);
		event_add(h->interrupts[i], NULL);
	}
	o.home = h->home;
	o.can_ask = h->ask != NULL;
	owner.asks = h->ask ? on_asks : NULL;
	h->fleet = fleet_new(h->base, &o, &owner);
	return add_hosts(h, w, e);
}

void look_close(struct look *h)
{
	h->is_done = NULL;
	if (h->fleet)
		fleet_free(h->fleet);
	ask_free(h->ask);
	for (size_t i = 0; i < ARRAY_LEN(h->interrupts); i++)
		if (h->interrupts[i])
			event_free(h->interrupts[i]);
	if (h->timer)
		event_free(h->timer);
	if (h->base)
		event_base_free(h->base);
	config_done(&h->config);
	*h = (struct look){0};
}
