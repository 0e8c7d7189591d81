/* `gpustow run status|why|cancel|retry`: a request to the scheduler of a log directory, or to its journal when none runs. */
#include "cli/cmd_run_options.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "run/run.h"
#include "run/run_control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_run_control_check(const void *opts, int argc, char **argv, struct err *e)
{
	const struct run_control_options *o = opts;

	return *o->log_dir ? 0 : err_set(e, -EINVAL, "argument --log-dir: '' is no directory");
}

/* Without a scheduler: on the journal. */
static int do_offline(
	const struct run_config *c, const json_t *request, bool writes, json_t **ret, struct err *e)
{
	struct run r;
	int code = run_offline_open(&r, c, writes, e), closed;

	if (!code)
		*ret = run_control_do(&r, request);
	closed = run_offline_close(&r, !code && writes, e);
	if (!code && closed < 0) {
		json_decref(*ret);
		*ret = NULL;
	}
	return code ? code : closed;
}

static void config_of(const struct run_control_options *o, struct run_config *c)
{
	*c = (struct run_config){.program = "gpustow run",
		.log_dir = o->log_dir,
		.poll_s = 0.2,
		.tolerance = 0.1,
		.margin_mib = 512,
		.idle_threshold_mib = 200,
		.spike_buffer = 0.1,
		.grace_ms = 10000};
}

/* Takes the request. */
static int ask(const struct run_control_options *o, json_t *request, bool writes, json_t **ret,
	struct err *e)
{
	struct run_config c;
	int r = run_control_ask(o->log_dir, request, ret, e);

	config_of(o, &c);
	/* One that ended just now left all that can be looked at; what it did of a change, only it could say. */
	if (r == -ESRCH || (r == -EPIPE && !writes))
		r = do_offline(&c, request, writes, ret, e);
	json_decref(request);
	return r;
}

static json_t *words(int argc, char **argv)
{
	json_t *list = json_array();

	for (int i = 0; i < argc; i++)
		json_array_append_new(list, json_string(argv[i]));
	return list;
}

static void print_json(const json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

int cmd_run_status_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct run_control_options *o = opts;
	json_t *answer = NULL;
	int r = ask(o, json_pack("{s:s}", "op", "status"), false, &answer, e);

	if (r < 0)
		return r;
	if (o->json)
		print_json(json_object_get(answer, "view"));
	else
		fputs(text_of(answer, "text"), stdout);
	json_decref(answer);
	return EXIT_OK;
}

/* Names that weren't found or couldn't be helped: said on stderr, and the exit code. */
static int say_failed(const struct program *p, const json_t *answer)
{
	const json_t *failed = json_object_get(answer, "failed");
	json_t *row;
	size_t i;

	json_array_foreach(failed, i, row) fprintf(
		stderr, "%s: job %s: %s\n", p->name, text_of(row, "job"), text_of(row, "why"));
	return json_array_size(failed) ? EXIT_FAILED : EXIT_OK;
}

int cmd_run_why_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct run_control_options *o = opts;
	json_t *answer = NULL, *row;
	int r = ask(o, json_pack("{s:s,s:o}", "op", "why", "jobs", words(argc, argv)), false,
		&answer, e);
	size_t i;

	if (r < 0)
		return r;
	if (o->json)
		print_json(answer);
	else if (!json_array_size(json_object_get(answer, "jobs")) && !argc)
		puts("nothing waits");
	json_array_foreach(json_object_get(answer, "jobs"), i, row) if (!o->json)
		printf("job %" JSON_INTEGER_FORMAT " (%s): %s\n",
			json_integer_value(json_object_get(row, "job")), text_of(row, "state"),
			text_of(row, "why"));
	r = say_failed(p, answer);
	json_decref(answer);
	return r;
}

static int print_changes(
	const struct program *p, const struct run_control_options *o, json_t *answer)
{
	json_t *row;
	size_t i;
	int r;

	if (o->json)
		print_json(answer);
	json_array_foreach(json_object_get(answer, "jobs"), i, row) if (!o->json)
		printf("job %" JSON_INTEGER_FORMAT " %s\n",
			json_integer_value(json_object_get(row, "job")), text_of(row, "did"));
	if (!o->json && !json_array_size(json_object_get(answer, "jobs")) &&
		!json_array_size(json_object_get(answer, "failed")))
		puts("nothing to do");
	r = say_failed(p, answer);
	json_decref(answer);
	return r;
}

/* Jobs in flight without a scheduler are stopped through the node, by a run that starts nothing. */
static int settle_cancelled(
	const struct run_control_options *o, const json_t *answer, struct err *e)
{
	CLEANUP_FREE uint64_t *numbers =
		xcalloc(json_array_size(json_object_get(answer, "jobs")) + 1, sizeof(*numbers));
	struct run_config c;
	json_t *row;
	size_t i;

	config_of(o, &c);
	c.only_settle = true;
	c.json = o->json;
	c.cancel_no = numbers;
	json_array_foreach(json_object_get(answer, "jobs"), i,
		row) if (numbers && strstr(text_of(row, "did"), "being stopped"))
		numbers[c.n_cancel++] = (uint64_t)json_integer_value(json_object_get(row, "job"));
	return c.n_cancel ? run_main(&c, e) : 0;
}

int cmd_run_cancel_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct run_control_options *o = opts;
	json_t *request = json_pack("{s:s,s:o}", "op", "cancel", "jobs", words(argc, argv)),
	       *answer = NULL;
	struct run_config c;
	int r = run_control_ask(o->log_dir, request, &answer, e);

	config_of(o, &c);
	if (r == -ESRCH) {
		r = do_offline(&c, request, true, &answer, e);
		if (!r)
			r = settle_cancelled(o, answer, e);
	}
	json_decref(request);
	if (r < 0) {
		json_decref(answer);
		return r;
	}
	return print_changes(p, o, answer);
}

int cmd_run_retry_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct run_control_options *o = opts;
	json_t *answer = NULL;
	int r;

	if (!argc && !o->failed)
		return err_set(e, -EINVAL,
			"say which jobs: numbers or names, or --failed for all that failed");
	r = ask(o,
		json_pack("{s:s,s:o,s:b}", "op", "retry", "jobs", words(argc, argv), "failed",
			o->failed),
		true, &answer, e);
	return r < 0 ? r : print_changes(p, o, answer);
}
