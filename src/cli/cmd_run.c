/* `gpustow run JOBS_FILE`, and gpusched by name: options become a run's configuration. */
#include "cli/cmd_run_options.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/global.h"
#include "gpu/sim_spec.h"
#include "run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "1, 2": blanks are fine, duplicates collapse, an empty list is all. */
static int parse_gpus(const char *text, struct run_config *c, struct err *e)
{
	const char *p = text;

	while (p && *p) {
		size_t n = strcspn(p, ",");
		int64_t index;
		uint32_t i = 0;

		if (parse_int_py(p, n, &index) < 0 || index < 0 || index > 9999)
			return err_set(e, -EINVAL,
				"argument --gpus: '%s' is no list of GPU indices; write them as 0,1,3",
				text);
		while (i < c->n_gpus && c->gpus[i] != index)
			i++;
		if (i == GPU_MAX)
			return err_set(e, -EINVAL, "argument --gpus: more than %d GPUs", GPU_MAX);
		if (i == c->n_gpus)
			c->gpus[c->n_gpus++] = (int32_t)index;
		p += n + (p[n] == ',');
	}
	return 0;
}

/* What only the command can judge of its options; a mistake is one of usage. */
int cmd_run_check_options(const void *opts, int argc, char **argv, struct err *e)
{
	const struct run_options *o = opts;
	struct run_config c = {0};
	struct sim_spec sim;
	int r = parse_gpus(o->gpus, &c, e);

	if (!r && !*o->log_dir)
		r = err_set(e, -EINVAL, "argument --log-dir: '' is no directory");
	if (!r && o->sim && sim_spec_parse(o->sim, &sim, e) < 0)
		r = err_wrap(e, -EINVAL, "argument --sim");
	return r;
}

static bool terminal_can_move(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb");
}

static void fill(const struct program *p, const struct run_options *o, const char *jobs_path,
	struct run_config *c)
{
	bool is_gpusched = !strcmp(p->name, "gpusched");

	c->program = is_gpusched ? "gpusched" : "gpustow run";
	c->jobs_path = jobs_path;
	c->log_dir = o->log_dir;
	c->idle_threshold_mib = o->idle_threshold_mib;
	c->margin_mib = o->margin_mib;
	c->tolerance = o->tolerance;
	c->poll_s = o->poll_s;
	c->spike_buffer = o->spike_buffer;
	c->exclusive = o->exclusive;
	c->watch = o->watch;
	c->fresh = o->fresh;
	c->verbose = o->verbose;
	c->retry_failed = o->retry_failed;
	c->need_nvlink = o->nvlink;
	c->oom_retries = o->oom_retries;
	c->max_jobs = o->max_jobs;
	c->grace_ms = (int64_t)(o->grace_s * 1000);
	c->first_interrupt_drains = !is_gpusched && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
	c->has_panel = !is_gpusched && !o->json && terminal_can_move();
	c->json = o->json;
}

int cmd_run_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct run_options *o = opts;
	struct run_config c = {0};
	int r = parse_gpus(o->gpus, &c, e);

	if (!r && o->sim)
		r = global_set_sim(o->sim, "argument --sim", e);
	if (r < 0)
		return r;
	fill(p, o, argv[0], &c);
	return o->check ? run_check(&c, o->json, e) : run_main(&c, e);
}
