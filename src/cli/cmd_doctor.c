/* `gpustow doctor [HOST]`: one screen that says what is well and what isn't, and how to mend it. */
#include "cli/cmd_once.h"
#include "cli/doctor.h"

#include "base/cleanup.h"
#include "base/row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct doctor_options {
	bool json;
	double timeout_s;
	const char *sim;
};

static int look_around(const struct program *p, const struct doctor_options *o, const char *host,
	struct checklist *l, struct err *e)
{
	int64_t limit_ms = (int64_t)(o->timeout_s * 1000);
	bool expects_cards;

	if (host && strcmp(host, "local") != 0)
		return doctor_host(p, host, limit_ms, l, e);
	expects_cards = doctor_driver(l);
	doctor_machine(l);
	doctor_agent(limit_ms, expects_cards, l);
	return 0;
}

static int print(
	const struct doctor_options *o, const char *host, const struct checklist *l, struct err *e)
{
	static const char *const summary[CHECK_WEIGHT_N] = {
		"all is well", "it works; some things could be better", "something is broken"};
	CLEANUP(buf_done) struct buf out = {0};
	struct row_style style;

	if (o->json) {
		json_t *doc = json_pack("{s:i, s:s, s:b, s:o}", "schema_version", 1, "host",
			host ? host : "local", "ok", checklist_worst(l) != CHECK_BAD, "checks",
			checklist_json(l));
		CLEANUP_FREE char *text = json_dumps(doc, JSON_INDENT(2));

		json_decref(doc);
		buf_printf(&out, "%s\n", text ? text : "null");
		return command_print(&out, e);
	}
	once_terminal(&style);
	checklist_text(l, &style, &out);
	buf_printf(&out, "%s\n", summary[checklist_worst(l)]);
	return command_print(&out, e);
}

static int doctor_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct doctor_options *o = opts;
	CLEANUP(checklist_done) struct checklist l = {0};
	const char *host = argc ? argv[0] : NULL;
	int r = o->sim ? global_set_sim(o->sim, "--sim", e) : 0;

	if (!r)
		r = look_around(p, o, host, &l, e);
	if (!r)
		r = print(o, host, &l, e);
	return r < 0 ? r : checklist_worst(&l) == CHECK_BAD ? EXIT_FAILED : EXIT_OK;
}

static void defaults(void *opts)
{
	((struct doctor_options *)opts)->timeout_s = 15;
}

#define AT(member) .offset = offsetof(struct doctor_options, member)
static const struct option_spec options[] = {
	{.name = "json", .kind = OPTION_FLAG, AT(json), .text = "print one JSON document"},
	{.name = "timeout",
		.arg = "SECONDS",
		.kind = OPTION_REAL,
		AT(timeout_s),
		.min = 0.1,
		.max = 86400,
		.text = "how long to wait for an answer (default: 15)"},
	{.name = "sim", .arg = "CARDS", .kind = OPTION_TEXT, AT(sim), .text = "simulated cards"},
	OPTION_SPEC_END,
};

extern const struct command cmd_doctor;
const struct command cmd_doctor = {
	.name = "doctor",
	.args = "[HOST]",
	.summary = "say what is wrong with GPUs, driver or a host, and how to mend it",
	.about =
		"Without HOST: the driver and its library, device nodes, what is unwell about the cards, and\n"
		"what gpustow itself needs on this machine. With HOST (of config.yml): each step of the way\n"
		"there, with the time it took. Nothing is changed.\n"
		"\n"
		"Exit codes: 0 nothing is broken (there may be warnings); 1 something is; 2 a mistake in\n"
		"options, or no such host.",
	.examples = "$ gpustow doctor\n$ gpustow doctor gpu1 --json",
	.options = options,
	.options_size = sizeof(struct doctor_options),
	.defaults = defaults,
	.max_args = 1,
	.needs_locale = true,
	.exec = doctor_exec,
};
