/* `gpustow wait`: until cards are free. The rules are in show/vacancy.h; here are the hosts, the clock and the exit codes. */
#include "cli/look.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "show/vacancy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_TIME_OVER = 3, HOSTS_MAX = 1024 };

struct wait_options {
	const char *gpu, *free, *hold, *host, *sim;
	bool idle, json, quiet;
	int64_t count;
	double timeout_s, interval_s;
};

struct wait {
	const struct program *program;
	struct vacancy_wish wish;
	struct vacancy *hosts; /* parallel to the fleet's */
	uint64_t *seen; /* sequence number of the last sample taken, + 1 */
	bool *has_doubted;
	const struct fleet_host *found;
	uint32_t cards[GPU_MAX];
};

/* Not a reason to give up: another card may come. But a person should know now, not tomorrow. */
static void say_doubt(struct wait *w, size_t i, const struct fleet_host *h)
{
	CLEANUP(buf_done) struct buf b = {0}, name = {0};

	if (w->has_doubted[i])
		return;
	vacancy_doubt(&w->wish, h->sample, &b);
	if (!b.len)
		return;
	w->has_doubted[i] = true;
	text_put_clean(&name, h->name, strlen(h->name));
	fprintf(stderr, "%s: warning: %s: %s; waiting all the same\n", w->program->name,
		buf_str(&name), buf_str(&b));
}

static bool look(struct look *hosts, void *arg)
{
	struct wait *w = arg;

	for (size_t i = 0; i < fleet_count(hosts->fleet); i++) {
		const struct fleet_host *h = fleet_at(hosts->fleet, i);

		if (!look_has_answered(h) || !h->sample ||
			w->seen[i] == (uint64_t)h->sample_at_ms + 1)
			continue;
		w->seen[i] = (uint64_t)h->sample_at_ms + 1;
		vacancy_take(&w->hosts[i], &w->wish, h->sample, h->sample_at_ms);
		if (!h->sample->snap.error[0])
			say_doubt(w, i, h);
		if (vacancy_find(&w->hosts[i], &w->wish, h->sample, w->cards)) {
			w->found = h;
			return true;
		}
	}
	return false;
}

/* ---- answers ---- */

static json_t *answer_json(const struct wait *w, int64_t waited_ms)
{
	json_t *o = json_object(), *cards = json_array();
	CLEANUP(buf_done) struct buf name = {0};

	for (uint32_t i = 0; w->found && i < w->wish.count; i++) {
		const struct gpu_card *c = &w->found->sample->snap.cards[w->cards[i]];
		struct value v = vacancy_free_mib(w->found->sample, w->cards[i]);

		json_array_append_new(cards,
			json_pack("{s:i, s:s, s:o}", "index", c->index, "uuid", c->uuid, "free_mib",
				value_is_present(v) ? json_integer(v.v) : json_null()));
	}
	if (w->found)
		text_put_clean(&name, w->found->name, strlen(w->found->name));
	json_object_set_new(o, "ok", json_boolean(w->found != NULL));
	json_object_set_new(o, "host", w->found ? json_string(buf_str(&name)) : json_null());
	json_object_set_new(o, "cards", cards);
	json_object_set_new(o, "waited_ms", json_integer(waited_ms));
	return o;
}

/* "0,1", and where there are several hosts "gpu1:0,1": for CUDA_VISIBLE_DEVICES=$(gpustow wait ...). */
static void answer_text(const struct wait *w, bool with_host, struct buf *out)
{
	if (with_host) {
		text_put_clean(out, w->found->name, strlen(w->found->name));
		buf_putc(out, ':');
	}
	for (uint32_t i = 0; i < w->wish.count; i++) {
		const struct gpu_card *c = &w->found->sample->snap.cards[w->cards[i]];

		if (gpu_is_instance(c))
			buf_printf(out, "%s%s", i ? "," : "", c->uuid);
		else
			buf_printf(out, "%s%d", i ? "," : "", c->index);
	}
	buf_putc(out, '\n');
}

static int answer(const struct wait *w, const struct wait_options *o, const struct look *h,
	int64_t waited_ms, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (o->json) {
		json_t *doc = answer_json(w, waited_ms);
		CLEANUP_FREE char *text = json_dumps(doc, JSON_INDENT(2));

		json_decref(doc);
		buf_printf(&out, "%s\n", text ? text : "null");
	} else if (w->found && !o->quiet) {
		answer_text(w, fleet_count(h->fleet) > 1, &out);
	}
	return command_print(&out, e);
}

/* Why nothing was found: the hosts that never answered are the reason if there are any. */
static void say_over(const struct wait *w, const struct wait_options *o, const struct look *h)
{
	size_t n_silent = 0;
	const char *why = "";
	CLEANUP(buf_done) struct buf b = {0};

	for (size_t i = 0; i < fleet_count(h->fleet); i++) {
		const struct fleet_host *host = fleet_at(h->fleet, i);

		if (look_has_answered(host))
			continue;
		n_silent++;
		why = host->why;
	}
	text_put_clean(&b, why, strlen(why));
	if (n_silent)
		fprintf(stderr, "%s: not within %.15g s; %zu of %zu hosts didn't answer%s%s\n",
			w->program->name, o->timeout_s, n_silent, fleet_count(h->fleet),
			b.len ? ": " : "", buf_str(&b));
	else
		fprintf(stderr, "%s: not within %.15g s\n", w->program->name, o->timeout_s);
}

/* ---- options ---- */

static int take_options(const struct wait_options *o, struct vacancy_wish *ret, struct err *e)
{
	struct vacancy_wish w = {.is_idle = o->idle || !o->free};
	int64_t interval_ms = (int64_t)(o->interval_s * 1000);
	int r = vacancy_parse_cards(o->gpu, o->count, &w, e);

	if (r < 0)
		return r;
	if (o->free && parse_size_mib(o->free, strlen(o->free), &w.free_mib) < 0)
		return err_set(
			e, -EINVAL, "--free takes MiB, or a size as 20G, not '%.100s'", o->free);
	if (o->hold && strcmp(o->hold, "0") != 0 &&
		parse_duration_ms(o->hold, strlen(o->hold), &w.hold_ms) < 0)
		return err_set(
			e, -EINVAL, "--for takes seconds, or a time as 5m, not '%.100s'", o->hold);
	w.gap_ms = interval_ms * 3 > 5000 ? interval_ms * 3 : 5000;
	*ret = w;
	return 0;
}

static int run(struct wait *w, const struct wait_options *o, struct look *h, struct err *e)
{
	size_t n = fleet_count(h->fleet);
	int64_t begun_ms = clock_boot_ms();
	int r;

	w->hosts = xcalloc(n, sizeof(*w->hosts));
	w->seen = xcalloc(n, sizeof(*w->seen));
	w->has_doubted = xcalloc(n, sizeof(*w->has_doubted));
	look_run(h, (int64_t)(o->timeout_s * 1000), look, w);
	if (h->signal_no) {
		r = 128 + h->signal_no;
	} else {
		r = answer(w, o, h, clock_boot_ms() - begun_ms, e);
		if (!r && !w->found) {
			say_over(w, o, h);
			r = EXIT_TIME_OVER;
		}
	}
	free(w->hosts);
	free(w->seen);
	free(w->has_doubted);
	return r;
}

static int wait_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct wait_options *o = opts;
	CLEANUP(config_done) struct config config = {0};
	CLEANUP(look_close) struct look h = {0};
	struct look_wish wish = {
		.local = true, .only = o->host, .interval_ms = (int64_t)(o->interval_s * 1000)};
	struct wait w = {.program = p};
	int r = take_options(o, &w.wish, e);

	(void)argc, (void)argv;
	if (!r && o->sim)
		r = global_set_sim(o->sim, "--sim", e);
	if (!r)
		r = global_config(p, &config, e);
	if (r < 0)
		return r;
	wish.remote = !o->host && global_is_remote(p->global, &config);
	r = look_open(&h, p, &wish, &config, e);
	return r < 0 ? r : run(&w, o, &h, e);
}

static void defaults(void *opts)
{
	struct wait_options *o = opts;

	o->gpu = "any";
	o->interval_s = 1;
}

#define AT(member) .offset = offsetof(struct wait_options, member)
static const struct option_spec options[] = {
	{.name = "gpu",
		.arg = "CARDS",
		.kind = OPTION_TEXT,
		AT(gpu),
		.text = "any; 0,1 for exactly these; 2-of for any two, 2-of:0,1,3 for any two of these (default: any)"},
	{.name = "free",
		.arg = "SIZE",
		.kind = OPTION_TEXT,
		AT(free),
		.text = "so much memory must be free on each: MiB, or 20G"},
	{.name = "idle",
		.kind = OPTION_FLAG,
		AT(idle),
		.text = "nobody may use them; what's waited for when --free isn't given"},
	{.name = "for",
		.arg = "TIME",
		.kind = OPTION_TEXT,
		AT(hold),
		.text = "for so long without a break: seconds, or 5m (default: at once)"},
	{.name = "count",
		.arg = "N",
		.kind = OPTION_INT,
		AT(count),
		.min = 1,
		.max = GPU_MAX,
		.text = "so many cards of one machine at the same time (default: 1, or all of a list)"},
	{.name = "host",
		.arg = "NAME",
		.kind = OPTION_TEXT,
		AT(host),
		.text = "a host of config.yml in place of this machine; gpustow --remote wait takes whichever is first"},
	{.name = "timeout",
		.arg = "SECONDS",
		.kind = OPTION_REAL,
		AT(timeout_s),
		.min = 0.1,
		.max = 31536000,
		.text = "give up after that time, with exit code 3 (default: never)"},
	{.name = "interval",
		.arg = "SECONDS",
		.kind = OPTION_REAL,
		AT(interval_s),
		.min = 0.1,
		.max = 60,
		.text = "time between two looks (default: 1)"},
	{.name = "json", .kind = OPTION_FLAG, AT(json), .text = "print one JSON document"},
	{.letter = 'q',
		.name = "quiet",
		.kind = OPTION_FLAG,
		AT(quiet),
		.text = "print nothing, only end"},
	{.name = "sim", .arg = "CARDS", .kind = OPTION_TEXT, AT(sim), .text = "simulated cards"},
	OPTION_SPEC_END,
};

extern const struct command cmd_wait;
const struct command cmd_wait = {
	.name = "wait",
	.args = "",
	.summary = "wait until GPUs are free, and say which",
	.about =
		"It ends with 0 as soon as enough cards of one machine have been free for --for without a\n"
		"break, and prints their indices, as 0,1 (with several hosts gpu1:0,1), or the UUID of a MIG\n"
		"instance. Memory that's promised\n"
		"to jobs of gpustow on that card, this user's or another's, isn't free, used or not.\n"
		"Nothing is reserved: who is quicker has the card. gpustow run does reserve.\n"
		"\n"
		"Exit codes: 0 found; 1 it couldn't be asked; 2 a mistake in options; 3 not within --timeout.",
	.examples = "$ gpustow wait --gpu any --free 20G --for 60s && python train.py\n"
		    "$ CUDA_VISIBLE_DEVICES=$(gpustow wait --count 2 --idle) torchrun train.py",
	.options = options,
	.options_size = sizeof(struct wait_options),
	.defaults = defaults,
	.exec = wait_exec,
};
