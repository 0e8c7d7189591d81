/*
 * gpustow __fleet HOST...: the fleet's states as they change, one JSON object a line, for the tests of src/fleet and for
 * looking at a connection. HOST is [user@]host[:port], or "local". Not for people: hidden.
 */
#include "cli/command.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "config/config.h"
#include "fleet/fleet.h"
#include "fleet/link.h"

#include <event2/event.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>

struct options {
	const char *home, *jump, *identity, *auth, *agent_dir;
	const char *password_file;
	const char *answer; /* what is said to every question */
	int64_t interval_ms;
	int64_t seconds; /* 0: until every host has settled */
	bool details;
};

struct watch {
	const struct options *o;
	struct event_base *base;
	struct fleet *fleet;
	int64_t started_ms;
};

static void put_sample(json_t *line, const struct fleet_host *h)
{
	json_t *uuids = json_array();

	if (!h->sample) {
		json_decref(uuids);
		return;
	}
	for (uint32_t i = 0; i < h->sample->snap.n_cards; i++)
		json_array_append_new(uuids, json_string(h->sample->snap.cards[i].uuid));
	json_object_set_new(line, "cards", uuids);
	json_object_set_new(line, "procs", json_integer(h->sample->snap.n_procs));
	json_object_set_new(line, "source", json_string(h->sample->snap.source));
	json_object_set_new(line, "seq", json_integer((json_int_t)h->sample->snap.seq));
}

static void say(json_t *line)
{
	char *text = json_dumps(line, JSON_COMPACT);

	printf("%s\n", text);
	fflush(stdout);
	free(text);
	json_decref(line);
}

/* Nothing more is to be expected of it by itself. */
static bool is_settled(const struct fleet_host *h)
{
	switch (h->state) {
	case HOST_CONNECTING:
	case HOST_SUSPECT:
		return false;
	case HOST_UP:
		return h->sample != NULL;
	default:
		return true;
	}
}

static void look(struct watch *w)
{
	for (size_t i = 0; i < fleet_count(w->fleet); i++)
		if (!is_settled(fleet_at(w->fleet, i)))
			return;
	if (!w->o->seconds)
		event_base_loopbreak(w->base);
}

static void on_changed(void *arg, const struct fleet_host *h)
{
	struct watch *w = arg;
	json_t *line = json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "ms",
		(json_int_t)(clock_boot_ms() - w->started_ms), "host", h->name, "state",
		host_state_name(h->state), "why", h->why, "rtt_ms", (json_int_t)h->rtt_ms,
		"clock_offset_ms", (json_int_t)h->clock_offset_ms, "connected_ms",
		(json_int_t)h->connected_ms, "hello_ms", (json_int_t)h->hello_ms, "first_sample_ms",
		(json_int_t)h->first_sample_ms);

	put_sample(line, h);
	say(line);
	look(w);
}

static void on_asks(void *arg, const struct fleet_host *h, uint64_t question, const char *prompt,
	bool is_secret)
{
	struct watch *w = arg;

	say(json_pack("{s:s, s:s, s:b}", "host", h->name, "asks", prompt, "secret", is_secret));
	fleet_answer(w->fleet, question, w->o->answer);
}

static void on_end(evutil_socket_t fd, short what, void *arg)
{
	event_base_loopbreak(arg);
}

static void on_hup(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;

	for (size_t i = 0; i < fleet_count(w->fleet); i++)
		fleet_retry(w->fleet, i);
}

/* "[user@]host[:port]" in place. */
static void read_host(const struct options *o, char *text, char *password, struct host_config *ret)
{
	char *at = strrchr(text, '@'), *colon;

	*ret = (struct host_config){.nickname = xstrdup(text), .port = 22, .password = password};
	if (at) {
		*at = '\0';
		ret->username = text;
		text = at + 1;
	}
	colon = strrchr(text, ':');
	if (colon && strchr(text, ':') == colon) {
		*colon = '\0';
		ret->port = (int)strtol(colon + 1, NULL, 10);
	}
	ret->hostname = text;
	ret->proxyjump = (char *)o->jump;
	ret->identityfile = (char *)o->identity;
	ret->agent_dir = (char *)o->agent_dir;
	if (o->auth)
		ret->auth = !strcmp(o->auth, "key")	   ? AUTH_KEY
			    : !strcmp(o->auth, "password") ? AUTH_PASSWORD
							   : AUTH_AUTO;
}

static int read_password(const char *path, struct buf *b, struct err *e)
{
	CLEANUP_FCLOSE FILE *f = path ? fopen(path, "re") : NULL;
	char line[256];

	if (!path)
		return 0;
	if (!f || !fgets(line, sizeof(line), f))
		return err_sys(e, -errno, "%s can't be read", path);
	buf_put(b, line, strcspn(line, "\n"));
	return 0;
}

static void run(struct watch *w, int argc, char **argv, char *password, struct host_config *configs)
{
	struct event *end = evtimer_new(w->base, on_end, w->base),
		     *hup = evsignal_new(w->base, SIGHUP, on_hup, w);
	struct timeval limit = {.tv_sec = w->o->seconds};

	evsignal_add(hup, NULL);
	if (w->o->seconds)
		evtimer_add(end, &limit);
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "local")) {
			fleet_add(w->fleet, NULL);
		} else {
			read_host(w->o, argv[i], password, &configs[i]);
			fleet_add(w->fleet, &configs[i]);
		}
	}
	event_base_dispatch(w->base);
	event_free(hup);
	event_free(end);
}

static int fleet_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct options *o = opts;
	CLEANUP(buf_done) struct buf password = {0};
	struct host_config *configs = xcalloc((size_t)argc, sizeof(*configs));
	struct watch w = {.o = o, .started_ms = clock_boot_ms()};
	struct fleet_options options = {.interval_ms = o->interval_ms,
		.can_ask = o->answer != NULL,
		.details = o->details,
		.home = o->home};
	struct fleet_owner owner = {
		.arg = &w, .changed = on_changed, .asks = o->answer ? on_asks : NULL};
	int r = o->home ? read_password(o->password_file, &password, e)
			: err_set(e, -EINVAL, "--home DIR is needed");

	if (!r) {
		w.base = event_base_new();
		w.fleet = fleet_new(w.base, &options, &owner);
		run(&w, argc, argv, o->password_file ? (char *)buf_str(&password) : NULL, configs);
		fleet_free(w.fleet);
		event_base_free(w.base);
	}
	for (int i = 0; i < argc; i++)
		free(configs[i].nickname);
	free(configs);
	return r;
}

static const struct option_spec specs[] = {
	{.name = "home",
		.arg = "DIR",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct options, home),
		.text = "control sockets below it"},
	{.name = "jump",
		.arg = "HOSTS",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct options, jump),
		.text = "jump hosts"},
	{.name = "identity",
		.arg = "FILE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct options, identity),
		.text = "identity file"},
	{.name = "auth",
		.arg = "HOW",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct options, auth),
		.text = "auto, key or password"},
	{.name = "agent-dir",
		.arg = "DIR",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct options, agent_dir),
		.text = "the agent's place"},
	{.name = "password-file",
		.arg = "FILE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct options, password_file),
		.text = "its first line is the stored password"},
	{.name = "answer",
		.arg = "TEXT",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct options, answer),
		.text = "said to every question"},
	{.name = "interval",
		.arg = "MS",
		.kind = OPTION_INT,
		.offset = offsetof(struct options, interval_ms),
		.max = 60000,
		.text = "of samples"},
	{.name = "seconds",
		.arg = "N",
		.kind = OPTION_INT,
		.offset = offsetof(struct options, seconds),
		.max = 86400,
		.text = "how long; 0: until all have settled"},
	{.name = "details",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct options, details),
		.text = "ask for everything"},
	OPTION_SPEC_END,
};

extern const struct command cmd_fleet;
const struct command cmd_fleet = {
	.name = "__fleet",
	.args = "HOST...",
	.summary = "print the states of hosts as they change",
	.options = specs,
	.options_size = sizeof(struct options),
	.min_args = 1,
	.max_args = -1,
	.is_hidden = true,
	.exec = fleet_exec,
};
