/* `queue notify test`: one made-up alert through all channels at the same time, to its end. */
#include "svc/notify_inner.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <stdio.h>

struct trial {
	struct notify_outcome *outcome;
	enum notify_channel channel;
	struct external *child;
	bool is_over;
};

static void tell(struct notify_outcome *o, const char *text)
{
	snprintf(o->text, sizeof(o->text), "%.*s", (int)sizeof(o->text) - 1, text);
}

static void on_trial(void *arg, const struct external_end *end)
{
	struct trial *t = arg;
	CLEANUP(buf_done) struct buf why = {0};
	enum notify_verdict v = notify_judge(t->channel, end, notify_limits.ms[t->channel], &why);

	t->outcome->worked = v == NOTIFY_TAKEN;
	t->outcome->is_on = v != NOTIFY_NOBODY;
	tell(t->outcome, buf_str(&why));
	t->is_over = true;
}

static void try_channel(struct trial *t, struct event_base *base, const struct notify_how *how,
	const struct notify_message *m)
{
	CLEANUP(buf_done) struct buf line = {0};
	const char *why = NULL;
	struct err e = {0};
	int r;

	t->is_over = true;
	t->outcome->channel = notify_channel_name(t->channel);
	t->outcome->is_on = notify_is_on(how->settings, t->channel);
	if (!t->outcome->is_on) {
		tell(t->outcome, how->settings->enabled ? "off" : "off (notify: false)");
		return;
	}
	if (t->channel == NOTIFY_DESKTOP && !notify_has_desktop(&why)) {
		t->outcome->is_on = false;
		tell(t->outcome, why);
		return;
	}
	buf_printf(&line, "%s\n", m->json);
	if (t->channel == NOTIFY_LOG)
		r = notify_log(how->home, &line, &e);
	else
		r = notify_start(base, how, t->channel, m, notify_limits.ms[t->channel], on_trial,
			t, &t->child, &e);
	t->outcome->worked = r == 0;
	t->is_over = r < 0 || t->channel == NOTIFY_LOG;
	tell(t->outcome, r < 0 ? e.text : "a line was written to alerts.log");
}

size_t notify_test(const struct notify_settings *settings, const char *home, const char *program,
	struct notify_outcome ret[8])
{
	CLEANUP(notify_message_done) struct notify_message m;
	struct trial trials[NOTIFY_CHANNELS] = {0};
	struct event_base *base = event_base_new();
	char host[NOTIFY_HOST_LEN];
	struct notify_how how = {settings, home, program, host};
	bool is_over = false;

	notify_host(host);
	notify_message_test("test", host, program, clock_wall_ms(), &m);
	for (unsigned c = 0; c < NOTIFY_CHANNELS; c++) {
		ret[c] = (struct notify_outcome){0};
		trials[c] = (struct trial){.outcome = &ret[c], .channel = (enum notify_channel)c};
		try_channel(&trials[c], base, &how, &m);
	}
	while (!is_over) {
		is_over = true;
		for (unsigned c = 0; c < NOTIFY_CHANNELS; c++)
			is_over &= trials[c].is_over;
		if (!is_over)
			event_base_loop(base, EVLOOP_ONCE);
	}
	for (unsigned c = 0; c < NOTIFY_CHANNELS; c++)
		external_free(trials[c].child);
	event_base_free(base);
	return NOTIFY_CHANNELS;
}
