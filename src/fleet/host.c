/*
 * One host's states (fleet.h has the picture). It decides what a link's news mean for a person who looks at the fleet;
 * it starts no connection by itself, the link does.
 */
#include "fleet/host.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_SAMPLE_MS 15000 /* a driver that isn't kept awake takes seconds for each card */
#define SILENCE_MIN_MS 2000
#define SUSPECT_MS 8000
#define TEXT_LEN sizeof(((struct fleet_host *)0)->why)

static void set_timer(struct event *ev, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(ev, &t);
}

static void put_why(struct host *h, const char *why)
{
	size_t n = why ? strlen(why) : 0;

	if (n >= TEXT_LEN) {
		n = TEXT_LEN - 1;
		/* Not in the middle of a character. */
		while (n && ((unsigned char)why[n] & 0xC0) == 0x80)
			n--;
	}
	if (n)
		memcpy(h->pub.why, why, n);
	h->pub.why[n] = '\0';
}

void host_set(struct host *h, enum host_state state, const char *why)
{
	h->pub.state = state;
	put_why(h, why);
	if (h->owner->changed)
		h->owner->changed(h->owner->arg, &h->pub);
}

static bool is_well(const struct host *h)
{
	return h->pub.state == HOST_UP || h->pub.state == HOST_TEXT || h->pub.state == HOST_NONE;
}

static int64_t silence_ms(const struct host *h)
{
	int64_t ms = (h->options->may_slow ? 4 : 2) * h->options->interval_ms;

	if (!h->pub.sample || !h->options->interval_ms)
		return FIRST_SAMPLE_MS;
	return ms < SILENCE_MIN_MS ? SILENCE_MIN_MS : ms;
}

void host_lost(struct host *h, enum link_failure kind, const char *why)
{
	if (kind == LINK_FAIL_AUTH || kind == LINK_FAIL_HOST_KEY) {
		event_del(h->timer);
		host_set(h, HOST_AUTH, why);
	} else if (is_well(h)) {
		set_timer(h->timer, SUSPECT_MS);
		host_set(h, HOST_SUSPECT, why);
	} else if (h->pub.state == HOST_SUSPECT) {
		/* The first reason stands, and its clock runs on. */
		return;
	} else {
		event_del(h->timer);
		host_set(h, HOST_DOWN, why);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct host *h = arg;

	if (h->pub.state == HOST_SUSPECT) {
		char *why = xstrdup(h->pub.why);

		host_set(h, HOST_DOWN, why);
		free(why);
	} else if (!h->link) {
		host_set(h, HOST_DOWN, h->no_link.text);
	} else if (is_well(h)) {
		set_timer(h->timer, SUSPECT_MS);
		host_set(h, HOST_SUSPECT,
			"it is connected, but no sample has come for two intervals");
	}
}

/* ---- samples ---- */

void host_publish(struct host *h, struct sample *s)
{
	struct sample *old = h->sample;
	bool has_none = !s->snap.n_cards;
	enum host_state state = has_none ? HOST_NONE : h->is_text ? HOST_TEXT : HOST_UP;
	const char *why = h->is_text ? h->agent_why : NULL;

	h->sample = xcalloc(1, sizeof(*h->sample));
	*h->sample = *s;
	*s = (struct sample){0};
	if (has_none)
		why = h->sample->snap.error[0] ? h->sample->snap.error : "it has no GPU";
	h->pub.sample = h->sample;
	h->pub.sample_at_ms = clock_boot_ms();
	if (h->pub.first_sample_ms < 0)
		h->pub.first_sample_ms = h->pub.sample_at_ms - h->pub.started_ms;
	if (h->options->interval_ms)
		set_timer(h->timer, silence_ms(h));
	else
		event_del(h->timer);
	host_set(h, state, why);
	if (old)
		sample_done(old);
	free(old);
}

/* One that can't be read makes the samples that build on it unreadable, which is told then. */
static void take_base(struct host *h, const json_t *msg)
{
	struct err e = {0};

	if (sample_base_decode(msg, &h->base, &e))
		sample_base_done(&h->base);
}

static void take_sample(struct host *h, const json_t *msg)
{
	struct sample s = {0};
	struct err e = {0};

	if (sample_decode_on(msg, &h->base, &s, &e)) {
		char *why = xasprintf("its sample can't be read: %s", e.text);

		host_lost(h, LINK_FAIL_NET, why);
		free(why);
		return;
	}
	host_publish(h, &s);
}

/* ---- the link's news ---- */

static void ask(struct host *h)
{
	int details = h->options->details;

	if (h->options->interval_ms)
		link_send(
			h->link, json_pack("{s:s, s:I, s:b, s:b, s:b, s:b}", "op", "watch",
					 "interval_ms", (json_int_t)h->options->interval_ms,
					 "details", details, "base", details, "may_slow",
					 h->options->may_slow, "profiling", h->options->profiling));
	else
		link_send(h->link,
			json_pack("{s:s, s:i, s:b}", "op", "sample", "id", 1, "details", details));
}

static void on_up(void *arg, const struct link_hello *hello)
{
	struct host *h = arg;
	int64_t now_ms = clock_boot_ms();
	struct link_ssh_steps steps;

	host_text_end(h);
	sample_base_done(&h->base);
	h->n_failures = 0;
	h->pub.rtt_ms = link_rtt_ms(h->link);
	h->pub.clock_offset_ms = hello->wall_ms + h->pub.rtt_ms / 2 - clock_wall_ms();
	link_ssh_steps(h->link, &steps);
	h->pub.connected_ms =
		(steps.connected_at_ms < 0 ? now_ms : steps.connected_at_ms) - h->pub.started_ms;
	h->pub.hello_ms = now_ms - h->pub.started_ms;
	set_timer(h->timer, FIRST_SAMPLE_MS);
	host_set(h, HOST_UP, NULL);
	ask(h);
}

/* ---- signals ---- */

static void tell_signalled(struct host *h, size_t i, const char *why)
{
	uint64_t request = h->signals[i];

	h->signals[i] = h->signals[--h->n_signals];
	if (h->owner->signalled)
		h->owner->signalled(h->owner->arg, &h->pub, request, why);
}

static void take_signalled(struct host *h, const json_t *msg, bool is_error)
{
	const char *text = json_string_value(json_object_get(msg, "text"));
	json_int_t id = json_integer_value(json_object_get(msg, "id"));

	for (size_t i = 0; i < h->n_signals; i++)
		if ((json_int_t)h->signals[i] == id) {
			tell_signalled(h, i,
				!is_error ? NULL
				: text	  ? text
					  : "it said no, and not why");
			return;
		}
}

int host_signal(struct host *h, uint64_t request, int32_t pid, uint64_t start_ticks, int signo,
	struct err *e)
{
	if (h->is_text || !h->link || !link_is_up(h->link))
		return err_set(e, -ENOTCONN,
			"nothing was sent: there's no agent to send it by on this node just now");
	if (h->n_signals == HOST_SIGNALS_MAX)
		return err_set(e, -EBUSY, "nothing was sent: %d signals wait for their answers",
			HOST_SIGNALS_MAX);
	h->signals[h->n_signals++] = request;
	link_send(h->link,
		json_pack("{s:s, s:I, s:i, s:I, s:i}", "op", "signal", "id", (json_int_t)request,
			"pid", (int)pid, "start_ticks", (json_int_t)start_ticks, "signo", signo));
	return 0;
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	struct host *h = arg;

	h->pub.rtt_ms = link_rtt_ms(h->link);
	if (!strcmp(op, "sample"))
		take_sample(h, msg);
	else if (!strcmp(op, "sample-base"))
		take_base(h, msg);
	else if (!strcmp(op, "signalled") || !strcmp(op, "error"))
		take_signalled(h, msg, op[0] == 'e');
}

static void on_down(void *arg, const char *why)
{
	struct host *h = arg;

	while (h->n_signals)
		tell_signalled(
			h, 0, "the connection was lost before the answer; it may have been sent");
	if (h->is_text)
		return;
	if (link_failure(h->link) == LINK_FAIL_AGENT)
		host_text_begin(h, why);
	else
		host_lost(h, link_failure(h->link), why);
}

/* A question's number names the host too. */
static void on_asks(void *arg, uint64_t question, const char *prompt, bool is_secret)
{
	struct host *h = arg;

	if (h->owner->asks)
		h->owner->asks(h->owner->arg, &h->pub, (uint64_t)(h->index + 1) << 32 | question,
			prompt, is_secret);
	else
		link_answer(h->link, question, NULL);
}

/* ---- life ---- */

static void connect_to(
	struct host *h, struct event_base *base, struct ssh_site *site, const char *no_site)
{
	struct link_who who = {.who = "fleet"};
	struct link_owner owner = {.arg = h, .up = on_up, .message = on_message, .down = on_down};
	struct link_ssh_options o = {.home = h->options->home,
		.can_ask = h->options->can_ask,
		.site = site,
		.asks = on_asks};

	if (!h->pub.config)
		h->link = link_new_local(base, &who, &owner);
	else if (!site)
		err_set(&h->no_link, -EINVAL, "%s", no_site);
	else
		h->link = link_new_ssh(base, h->pub.config, &o, &who, &owner, &h->no_link);
	/* Told from the loop, as everything else is. */
	if (!h->link)
		set_timer(h->timer, 0);
}

static void on_poll(evutil_socket_t fd, short what, void *arg)
{
	host_text_poll(arg);
}

struct host *host_new(struct event_base *base, const struct host_config *config, size_t index,
	const struct fleet_options *o, const struct fleet_owner *owner, struct ssh_site *site,
	const char *no_site)
{
	struct host *h = xcalloc(1, sizeof(*h));

	h->pub = (struct fleet_host){.config = config,
		.name = config ? config->nickname : "local",
		.rtt_ms = -1,
		.started_ms = clock_boot_ms(),
		.connected_ms = -1,
		.hello_ms = -1,
		.first_sample_ms = -1};
	h->options = o;
	h->owner = owner;
	h->index = index;
	h->timer = evtimer_new(base, on_timer, h);
	h->poll = evtimer_new(base, on_poll, h);
	connect_to(h, base, site, no_site);
	return h;
}

void host_retry(struct host *h)
{
	if (!h->link)
		return;
	host_text_end(h);
	if (h->pub.state == HOST_AUTH || h->pub.state == HOST_DOWN)
		host_set(h, HOST_CONNECTING, NULL);
	link_retry(h->link);
}

void host_free(struct host *h)
{
	if (!h)
		return;
	link_free(h->link);
	event_free(h->timer);
	event_free(h->poll);
	if (h->sample)
		sample_done(h->sample);
	free(h->sample);
	sample_base_done(&h->base);
	free(h->agent_why);
	free(h);
}
