/* `gpustow --once`: all hosts asked at the same time, one picture printed, the exit code says whether all answered. */
#include "cli/cmd_once.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/row.h"
#include "base/text.h"
#include "cli/look.h"
#include "show/once.h"

#include <langinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PROFILE_INTERVAL_MS = 500 };

void once_terminal(struct row_style *ret)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;
	int64_t n;

	*ret = (struct row_style){.color = command_wants_color(STDOUT_FILENO),
		.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0};
	if (columns && parse_int64(columns, &n) == 0 && n > 0 && n < 10000)
		ret->cols = (size_t)n;
	else if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
		ret->cols = size.ws_col;
}

static bool all_settled(struct look *h, void *arg)
{
	const struct global_options *g = arg;

	for (size_t i = 0; i < fleet_count(h->fleet); i++)
		if (!look_is_settled(fleet_at(h->fleet, i)) ||
			(g->dcgm && !look_is_profiled(fleet_at(h->fleet, i))))
			return false;
	return true;
}

/* What's shown of a host; `address` and `why` stay the caller's. */
static struct show_host shown(
	const struct fleet_host *h, const char *address, const char *why, int64_t now_ms)
{
	bool has_answered = look_has_answered(h);

	return (struct show_host){.name = h->name,
		.address = address,
		.state = host_state_name(h->state),
		.why = why,
		.has_answered = has_answered,
		.sample = h->sample,
		.sample_age_ms = h->sample ? now_ms - h->sample_at_ms : -1,
		.is_stale = h->sample && !has_answered,
		.clock_offset_ms = h->clock_offset_ms,
		.rtt_ms = h->rtt_ms,
		.connected_ms = h->connected_ms,
		.hello_ms = h->hello_ms,
		.first_sample_ms = h->first_sample_ms};
}

struct picture {
	struct show_fleet fleet;
	struct show_host *hosts;
	char **texts; /* owned: an address and a sentence for each host */
};

static char *why_of(const struct look *h, const struct fleet_host *host)
{
	if (!look_is_settled(host) && h->is_over)
		return xasprintf("no answer within %lld.%lld s%s%s",
			(long long)(h->limit_ms / 1000), (long long)(h->limit_ms % 1000 / 100),
			host->why[0] ? "; " : "", host->why);
	return xstrdup(host->why);
}

static void picture_make(const struct look *h, struct picture *ret)
{
	size_t n = fleet_count(h->fleet);
	int64_t now_ms = clock_boot_ms();

	*ret = (struct picture){
		.hosts = xcalloc(n, sizeof(*ret->hosts)), .texts = xcalloc(2 * n, sizeof(char *))};
	for (size_t i = 0; i < n; i++) {
		const struct fleet_host *host = fleet_at(h->fleet, i);

		ret->texts[2 * i] = look_address(host);
		ret->texts[2 * i + 1] = why_of(h, host);
		ret->hosts[i] = shown(host, ret->texts[2 * i], ret->texts[2 * i + 1], now_ms);
	}
	ret->fleet =
		(struct show_fleet){.hosts = ret->hosts, .n = n, .now_wall_ms = clock_wall_ms()};
}

static void picture_done(struct picture *p)
{
	for (size_t i = 0; p->texts && i < 2 * p->fleet.n; i++)
		free(p->texts[i]);
	free(p->texts);
	free(p->hosts);
}

static int print(
	const struct program *p, const struct config *c, const struct picture *pic, struct err *e)
{
	const struct global_options *g = p->global;
	struct once_style style = {
		.is_compact = g->compact || c->compact, .with_timings = g->debug};
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP_FREE char *text = NULL;
	json_t *doc;

	if (!g->json) {
		once_terminal(&style.row);
		once_text(&pic->fleet, &style, &out);
		return command_print(&out, e);
	}
	doc = once_json(&pic->fleet, g->debug);
	text = json_dumps(doc, JSON_INDENT(2));
	json_decref(doc);
	if (!text)
		return err_set(e, -EIO, "the document can't be written as JSON");
	buf_puts(&out, text);
	buf_putc(&out, '\n');
	return command_print(&out, e);
}

/* Who didn't answer is named where errors go, too: the text may be far up, the document in a file. */
static int say_failed(const struct program *p, const struct picture *pic)
{
	int code = EXIT_OK;

	for (size_t i = 0; i < pic->fleet.n; i++) {
		const struct show_host *h = &pic->hosts[i];
		CLEANUP(buf_done) struct buf b = {0};

		if (h->has_answered)
			continue;
		code = EXIT_FAILED;
		buf_printf(&b, "%s: ", p->name);
		text_put_clean(&b, h->name, strlen(h->name));
		buf_printf(&b, " didn't answer (%s)%s", h->state, h->why[0] ? ": " : "");
		text_put_clean(&b, h->why, strlen(h->why));
		fprintf(stderr, "%s\n", buf_str(&b));
	}
	return code;
}

int cmd_once_exec(const struct program *p, struct err *e)
{
	const struct global_options *g = p->global;
	CLEANUP(config_done) struct config config = {0};
	CLEANUP(look_close) struct look h = {0};
	CLEANUP(picture_done) struct picture pic = {0};
	struct look_wish wish = {.local = true,
		.details = true,
		.profiling = g->dcgm,
		.interval_ms = g->dcgm ? PROFILE_INTERVAL_MS : 0};
	int r = global_config(p, &config, e);

	if (r < 0)
		return r;
	wish.remote = global_is_remote(g, &config);
	r = look_open(&h, p, &wish, &config, e);
	if (r < 0)
		return r;
	look_run(&h, (int64_t)(g->timeout_s * 1000), all_settled, (void *)g);
	if (h.signal_no)
		return 128 + h.signal_no;
	picture_make(&h, &pic);
	r = print(p, &h.config, &pic, e);
	return r < 0 ? r : say_failed(p, &pic);
}
