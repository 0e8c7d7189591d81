/*
 * The doctor's visit to a host: resolve, connect, host key, login, shell, agent, figures, clock. It goes the way that every
 * other command goes, and says how far it came.
 */
#include "cli/doctor.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/capture.h"
#include "cli/hosts.h"
#include "core/wire.h"
#include "fleet/link.h"
#include "fleet/ssh_command.h"
#include "fleet/ssh_site.h"
#include "show/health.h"
#include "core/xid.h"

#include <stdlib.h>
#include <string.h>

enum { SKEW_MS = 5000, CAPTURE_MS = 5000, CAPTURE_MAX = 65536 };

/* The agent alone has seen them: the driver tells an XID once, to whoever listens. */
static void doctor_xids(struct checklist *l, const struct sample *s)
{
	static const enum check_weight weights[] = {
		[HEALTH_NOTE] = CHECK_OK, [HEALTH_WARNING] = CHECK_WARN, [HEALTH_BAD] = CHECK_BAD};

	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		const struct gpu_card *c = &s->snap.cards[i];
		struct value last = c->m[METRIC_XID_LAST];
		const struct xid_info *x = xid_find(last.v);
		const char *mend = x ? x->mend : "NVIDIA's catalogue of XID errors has its number";

		if (!gpu_is_instance(c) && value_is_present(last) && last.v > 0)
			checklist_add(l, weights[health_of_xid(x)], "xid", *mend ? mend : NULL,
				"card %d: XID %lld%s%s", c->index, (long long)last.v, x ? ", " : "",
				x ? x->what : "");
	}
}

void doctor_sample(struct checklist *l, const struct sample *s)
{
	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		const struct gpu_card *c = &s->snap.cards[i];
		struct health_fact facts[HEALTH_FACTS_MAX];
		size_t n = gpu_is_instance(c) ? 0 : health_of(c, facts);

		for (size_t k = 0; k < n; k++)
			if (facts[k].weight != HEALTH_NOTE && strcmp(facts[k].kind, "xid") != 0)
				checklist_add(l,
					facts[k].weight == HEALTH_BAD ? CHECK_BAD : CHECK_WARN,
					"card", NULL, "card %d: %s", c->index, facts[k].text);
		if (value_is_present(c->m[METRIC_PERSISTENCE]) && !c->m[METRIC_PERSISTENCE].v)
			checklist_add(l, CHECK_WARN, "persistence",
				"nvidia-smi -pm 1, or start nvidia-persistenced",
				"card %d: persistence mode is off, so the driver starts anew for each first user",
				c->index);
	}
}

/* ---- a visit ---- */

struct visit {
	struct event_base *base;
	struct link *link;
	struct checklist *l;
	bool is_up, has_sample, has_failed;
	bool is_local, expects_no_cards;
	char why[1024];
	struct link_hello hello;
	int64_t begun_ms, up_ms, hello_wall_ms, sample_ms;
	struct sample sample;
};

static void on_up(void *arg, const struct link_hello *hello)
{
	struct visit *v = arg;

	v->is_up = true;
	v->hello = *hello;
	v->up_ms = clock_boot_ms();
	v->hello_wall_ms = clock_wall_ms();
	link_send(v->link, json_pack("{s:s, s:i, s:b}", "op", "sample", "id", 1, "details", 1));
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	struct visit *v = arg;
	struct err e = {0};

	if (strcmp(op, "sample") != 0 || v->has_sample)
		return;
	if (sample_decode(msg, &v->sample, &e) < 0) {
		checklist_add(v->l, CHECK_BAD, "figures",
			"the two are of different releases: start the newer gpustow once more",
			"%s", e.text);
		v->has_failed = true;
	}
	v->has_sample = !v->has_failed;
	v->sample_ms = clock_boot_ms();
	event_base_loopbreak(v->base);
}

static void on_down(void *arg, const char *why)
{
	struct visit *v = arg;
	CLEANUP(buf_done) struct buf b = {0};

	buf_puts(&b, why);
	memcpy(v->why, buf_str(&b), b.len < sizeof(v->why) ? b.len + 1 : sizeof(v->why));
	v->why[sizeof(v->why) - 1] = '\0';
	v->has_failed = true;
	event_base_loopbreak(v->base);
}

static void go(struct visit *v, int64_t limit_ms)
{
	struct timeval limit = {.tv_sec = limit_ms / 1000, .tv_usec = limit_ms % 1000 * 1000};

	v->begun_ms = clock_boot_ms();
	event_base_loopexit(v->base, &limit);
	event_base_dispatch(v->base);
}

static void say_figures(struct visit *v)
{
	const struct gpu_snapshot *s = &v->sample.snap;

	if (!v->has_sample) {
		checklist_add(v->l, CHECK_BAD, "figures",
			"look at the checks of the driver on that machine: it may hang",
			"no figures came in time");
		return;
	}
	if (v->expects_no_cards && !s->n_cards)
		checklist_add(v->l, CHECK_OK, "figures", NULL, "no cards, as expected");
	else if (s->error[0])
		checklist_add(
			v->l, s->n_cards ? CHECK_WARN : CHECK_BAD, "figures", NULL, "%s", s->error);
	else
		checklist_add(v->l, CHECK_OK, "figures", NULL, "%u card%s, by %s",
			gpu_count_whole(s), gpu_count_whole(s) == 1 ? "" : "s", s->source);
	checklist_took(v->l, v->sample_ms - v->up_ms);
	doctor_xids(v->l, &v->sample);
	/* On this machine all that was looked at already. */
	if (v->is_local)
		return;
	doctor_sample(v->l, &v->sample);
	if (s->has_foreign_pids)
		checklist_add(v->l, CHECK_WARN, "container",
			"start the container with --pid=host to see whose memory it is",
			"its agent is in a pid namespace of its own: processes on the cards have no names");
}

static void say_clock(struct visit *v)
{
	int64_t rtt = link_rtt_ms(v->link),
		skew = v->hello.wall_ms - v->hello_wall_ms + (rtt > 0 ? rtt / 2 : 0);

	if (skew > SKEW_MS || skew < -SKEW_MS)
		checklist_add(v->l, CHECK_WARN, "clock",
			"let NTP (chrony, systemd-timesyncd) keep it",
			"its clock is %lld ms %s ours", (long long)(skew < 0 ? -skew : skew),
			skew < 0 ? "behind" : "ahead of");
	else
		checklist_add(v->l, CHECK_OK, "clock", NULL, "its clock is right, within %lld ms",
			(long long)(skew < 0 ? -skew : skew));
	if (rtt >= 0) {
		checklist_add(v->l, CHECK_OK, "round trip", NULL, "one question and its answer");
		checklist_took(v->l, rtt);
	}
}

static void visit_close(struct visit *v)
{
	link_free(v->link);
	event_base_free(v->base);
	sample_done(&v->sample);
}

/* ---- this machine's agent ---- */

void doctor_agent(int64_t limit_ms, bool expects_cards, struct checklist *l)
{
	struct visit v = {.l = l, .expects_no_cards = !expects_cards, .is_local = true};
	struct link_owner owner = {.arg = &v, .up = on_up, .message = on_message, .down = on_down};
	struct link_who who = {.who = "doctor"};

	v.base = event_base_new();
	v.link = link_new_local(v.base, &who, &owner);
	go(&v, limit_ms);
	if (!v.is_up) {
		checklist_add(l, CHECK_BAD, "agent",
			"look at the lines about its program and root, and at the file log in the root",
			"the agent doesn't answer: %s", v.why[0] ? v.why : "no answer in time");
	} else {
		checklist_add(l, CHECK_OK, "agent", NULL, "the agent answers, pid %lld",
			(long long)v.hello.pid);
		checklist_took(l, v.up_ms - v.begun_ms);
		say_figures(&v);
	}
	visit_close(&v);
}

/* ---- a host ---- */

static void say_resolved(struct checklist *l, const struct host_config *h, const char *ssh_config)
{
	CLEANUP(ssh_argv_done) struct ssh_argv argv = {0};
	CLEANUP(buf_done) struct buf out = {0}, complaints = {0}, place = {0}, by_hand = {0};
	CLEANUP_FREE char *user = NULL, *host = NULL;
	int64_t begun_ms = clock_boot_ms();
	struct err e = {0};
	int code = 0, r;

	hosts_put_place(&place, h);
	ssh_by_hand(h, &by_hand);
	checklist_add(l, CHECK_OK, "config", NULL, "%s is %s, by hand: %s", h->nickname,
		buf_str(&place), buf_str(&by_hand));
	ssh_argv_make(h, ssh_config, false, false, "-G", NULL, &argv);
	r = capture(
		(const char *const *)argv.v, CAPTURE_MS, CAPTURE_MAX, &out, &complaints, &code, &e);
	if (r < 0 || code || ssh_read_resolved(buf_str(&out), &user, &host) < 0)
		checklist_add(l, CHECK_BAD, "resolve",
			r < 0 ? "install the OpenSSH client"
			      : "mend what ssh complains of in its configuration",
			"ssh can't say what it would do: %s",
			r < 0 ? e.text : buf_str(&complaints));
	else
		checklist_add(l, CHECK_OK, "resolve", NULL, "ssh takes it as %s@%s", user, host);
	checklist_took(l, clock_boot_ms() - begun_ms);
}

/* The steps that were taken before the failure are fine; the sentence itself names the way out. */
static void say_failure(struct visit *v, int64_t ms)
{
	static const struct {
		const char *id, *mend;
	} rows[] = {
		[LINK_FAIL_NONE] = {"connect", NULL},
		[LINK_FAIL_NET] = {"connect",
			"look whether the machine is on, the name and port are right, and sshd runs there"},
		[LINK_FAIL_AUTH] = {"login",
			"log in once by hand, or give the key or password that it wants"},
		[LINK_FAIL_HOST_KEY] = {"host key",
			"log in once by hand and compare the key before you accept it"},
		[LINK_FAIL_AGENT] = {"agent",
			"its cards are still shown, by nvidia-smi's text; jobs don't go there"},
		[LINK_FAIL_SHELL] = {"shell",
			"the login must run a command and not wait or end: look at its rc files"},
	};
	enum link_failure f = link_failure(v->link);
	static const char *const before[] = {"connect", "host key", "login", "shell"};
	size_t n = f == LINK_FAIL_HOST_KEY ? 1
		   : f == LINK_FAIL_AUTH   ? 2
		   : f == LINK_FAIL_SHELL  ? 3
		   : f == LINK_FAIL_AGENT  ? 4
					   : 0;

	for (size_t i = 0; i < n; i++)
		checklist_add(v->l, CHECK_OK, before[i], NULL, "went well");
	checklist_add(v->l, f == LINK_FAIL_AGENT ? CHECK_WARN : CHECK_BAD, rows[f].id, rows[f].mend,
		"%s", v->why[0] ? v->why : "no answer in time");
	checklist_took(v->l, ms);
}

static void say_steps(struct visit *v)
{
	struct link_ssh_steps steps = {0};

	link_ssh_steps(v->link, &steps);
	checklist_add(v->l, CHECK_OK, "connect", NULL,
		"connected, host key known, logged in, and the shell does what it's told");
	if (steps.connected_at_ms >= v->begun_ms)
		checklist_took(v->l, steps.connected_at_ms - v->begun_ms);
	checklist_add(v->l, CHECK_OK, "agent", NULL, "the agent runs there (%s%s), pid %lld",
		steps.cpu[0] ? steps.cpu : "processor unknown",
		steps.was_uploaded ? ", sent just now" : "", (long long)v->hello.pid);
	if (steps.connected_at_ms >= v->begun_ms)
		checklist_took(v->l, v->up_ms - steps.connected_at_ms);
}

/* What the node's shell says of itself. */
struct said {
	struct visit *v;
	bool is_there;
};

static void on_said(void *arg, int status, const char *out, size_t n, const char *err_text)
{
	struct said *s = arg;
	CLEANUP_FREE char *text = NULL;

	(void)err_text;
	if (status == 0 && n && (text = strndup(out, n)))
		checklist_add(s->v->l, CHECK_OK, "system", NULL, "%.300s", text);
	event_base_loopbreak(s->v->base);
}

static void ask_system(struct visit *v, int64_t limit_ms)
{
	struct said s = {.v = v};

	link_run_text(v->link,
		"echo $(uname -sm; getconf GNU_LIBC_VERSION 2>/dev/null; df -Pk $HOME 2>/dev/null | tail -n 1 | (read a b c d e && echo home has $d KiB free); command -v nvidia-smi)",
		limit_ms, 4096, on_said, &s);
	go(v, limit_ms);
}

static int visit_host(const struct program *p, const struct host_config *h, int64_t limit_ms,
	struct checklist *l, struct err *e)
{
	struct visit v = {.l = l};
	struct link_owner owner = {.arg = &v, .up = on_up, .message = on_message, .down = on_down};
	struct link_who who = {.who = "doctor"};
	char home[HOSTS_PATH];
	struct link_ssh_options o = {.home = home};
	int r = hosts_home(p, home, e);

	if (r < 0)
		return r;
	v.base = event_base_new();
	r = ssh_site_new(v.base, home, false, &o.site, e);
	if (r < 0) {
		visit_close(&v);
		return r == -EINVAL ? -EIO : r;
	}
	say_resolved(l, h, o.site->config);
	v.link = link_new_ssh(v.base, h, &o, &who, &owner, e);
	if (!v.link) {
		visit_close(&v);
		ssh_site_free(o.site);
		return -EIO;
	}
	go(&v, limit_ms);
	if (!v.is_up) {
		say_failure(&v, clock_boot_ms() - v.begun_ms);
		if (link_failure(v.link) == LINK_FAIL_AGENT)
			ask_system(&v, limit_ms);
	} else {
		say_steps(&v);
		say_figures(&v);
		say_clock(&v);
		ask_system(&v, limit_ms);
	}
	link_free(TAKE_PTR(v.link));
	ssh_site_free(o.site);
	visit_close(&v);
	return 0;
}

int doctor_host(const struct program *p, const char *name, int64_t limit_ms, struct checklist *l,
	struct err *e)
{
	CLEANUP(config_done) struct config c = {0};
	size_t i = 0;
	int r = global_config(p, &c, e);

	if (!r)
		r = config_find(&c, name, &i, e);
	return r < 0 ? r : visit_host(p, &c.servers[i], limit_ms, l, e);
}
