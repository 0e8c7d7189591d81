/*
 * A host where the agent can't run: nvidia-smi's text, one command a sample over the same connection. It has no ledger and
 * no promises, and no job goes there.
 */
#include "fleet/host.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/text.h"
#include "gpu/smi_parse.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 30000
#define INTERVAL_MIN_MS \
	2000 /* each one starts a program on the node that asks the driver for everything */
#define AGENT_AGAIN_MS ((int64_t)10 * 60 * 1000)

/* Its XML has everything; where that fails (old drivers, wrappers) the two queries that older schedulers use. */
const char text_sample_command[] =
	"if command -v nvidia-smi >/dev/null 2>&1; then nvidia-smi -q -x; echo; echo gpustow-gpus; "
	"nvidia-smi --query-gpu=index,uuid,memory.total,memory.used,utilization.gpu --format=csv,noheader,nounits; "
	"echo gpustow-apps; nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits; "
	"else (exit 127); fi";

/* The part before the line `mark`, and what follows it; the whole and nothing when there's no such line. */
static const char *split(const char *text, size_t n, const char *mark, size_t *ret_before)
{
	const char *at = memmem(text, n, mark, strlen(mark));

	*ret_before = at ? (size_t)(at - text) : n;
	return at ? at + strlen(mark) : text + n;
}

/* What nvidia-smi says when it fails: its first line that isn't empty. */
static int no_cards(const char *text, size_t n, struct err *e)
{
	struct buf clean = {0};
	size_t at = 0, len;

	while (at < n && (unsigned char)text[at] <= ' ')
		at++;
	for (len = 0; at + len < n && text[at + len] != '\n' && len < 200; len++)
		;
	text_put_clean(&clean, text + at, len);
	if (!clean.len || !strncmp(buf_str(&clean), "gpustow-", 8))
		err_set(e, -ENODEV, "nvidia-smi is there, but names no GPU");
	else
		err_set(e, -ENODEV, "nvidia-smi says: %s", buf_str(&clean));
	buf_done(&clean);
	return -ENODEV;
}

int text_sample_parse(const char *text, size_t n, struct sample *ret, struct err *e)
{
	size_t n_xml, n_gpus;
	const char *gpus = split(text, n, "\ngpustow-gpus\n", &n_xml), *apps;
	struct sample s = {0};

	apps = split(gpus, (size_t)(text + n - gpus), "gpustow-apps\n", &n_gpus);
	if (smi_parse_xml(text, n_xml, &s.snap, NULL) &&
		smi_parse_csv(gpus, n_gpus, apps, (size_t)(text + n - apps), &s.snap, NULL))
		return no_cards(text, n, e);
	memcpy(s.snap.source, "nvidia-smi", 11);
	s.proc_row = xcalloc(s.snap.n_procs ? s.snap.n_procs : 1, sizeof(*s.proc_row));
	s.promised_mib = xcalloc(s.snap.n_cards ? s.snap.n_cards : 1, sizeof(*s.promised_mib));
	*ret = s;
	return 0;
}

static void poll_in(struct host *h, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(h->poll, &t);
}

static int64_t interval_ms(const struct host *h)
{
	return h->options->interval_ms < INTERVAL_MIN_MS ? INTERVAL_MIN_MS
							 : h->options->interval_ms;
}

/* It answers, and that is all. */
static void say_none(struct host *h, const char *what)
{
	char *why = xasprintf("%s; %s", what, h->agent_why);

	event_del(h->timer);
	host_set(h, HOST_NONE, why);
	free(why);
}

static void run(struct host *h);

static void take_text(struct host *h, int status, const char *out, size_t n)
{
	struct sample s = {0};
	struct err e = {0};

	if (status == TEXT_SAMPLE_NONE) {
		say_none(h, "there's no nvidia-smi");
	} else if (text_sample_parse(out, n, &s, &e)) {
		say_none(h, e.text);
	} else {
		s.wall_ms = clock_wall_ms();
		host_publish(h, &s);
		/* Its own pace, not the agent's. */
		event_del(h->timer);
	}
}

static void on_done(void *arg, int status, const char *out, size_t n, const char *err_text)
{
	static const int64_t delays_ms[] = {2000, 5000, 10000, 15000};
	struct host *h = arg;

	h->is_running = false;
	if (!h->is_text)
		return;
	if (status >= 0) {
		h->n_failures = 0;
		take_text(h, status, out, n);
		if (h->options->interval_ms)
			poll_in(h, interval_ms(h));
		return;
	}
	host_lost(h, link_failure(h->link), err_text);
	if (h->pub.state != HOST_AUTH)
		poll_in(h, delays_ms[h->n_failures < 4 ? h->n_failures : 3]);
	h->n_failures++;
}

static void run(struct host *h)
{
	if (h->is_running)
		return;
	if (clock_boot_ms() >= h->agent_again_ms) {
		/* Something may have been mended meanwhile; if not, on_down isn't heard while text is read. */
		h->agent_again_ms = clock_boot_ms() + AGENT_AGAIN_MS;
		link_retry(h->link);
	}
	h->is_running = true;
	link_run_text(h->link, text_sample_command, LIMIT_MS, TEXT_SAMPLE_MAX, on_done, h);
}

void host_text_poll(struct host *h)
{
	if (h->is_text)
		run(h);
}

void host_text_begin(struct host *h, const char *why)
{
	free(h->agent_why);
	h->agent_why = xstrdup(why);
	h->agent_again_ms = clock_boot_ms() + AGENT_AGAIN_MS;
	h->is_text = true;
	event_del(h->timer);
	run(h);
}

void host_text_end(struct host *h)
{
	h->is_text = false;
	event_del(h->poll);
}
