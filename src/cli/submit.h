/*
 * `job submit`: from options, words, files and the submitting environment to jobs of the store. What is checked here is what
 * a person can get wrong; the store checks again what must hold.
 */
#pragma once

#include "cli/queue_common.h"
#include "queue/expand.h"

struct submit_options {
	struct queue_options q;
	const char *name, *vram, *node, *lane, *at, *workdir, *timeout, *submitter, *note, *script,
		*file;
	const char *gpu, *gpu_model, *min_total, *mem, *grace, *signal, *export, *array, *key;
	const char *retry_on, *on_dependency, *wait_timeout;
	int64_t gpus, priority, retries, oom_retries, cpus;
	bool wait, exclusive, idle, nvlink, login, dry_run;
	struct option_list env, after, after_any, tags, sweep;
};

extern const struct option_spec submit_specs[];
void submit_defaults(void *opts);

/* A growing list of jobs; texts are owned by them. */
struct submit_jobs {
	struct job *v;
	uint32_t *lines; /* of the jobs file, parallel; 0 */
	char **after; /* raw after= of the line: names or line's job numbers; parallel, NULL */
	char **names; /* of the lines, for after= */
	size_t n, cap;
};
void submit_jobs_done(struct submit_jobs *l);

/* All jobs that these options ask for, nothing written yet. -EINVAL and the like with the sentence. */
int submit_make(struct queue *q, const struct submit_options *o, int argc, char **argv,
	struct submit_jobs *ret, struct err *e);
/* The body: words quoted and joined, one word verbatim, or --script's bytes; "-" reads standard input. */
int submit_body(const struct program *p, const struct submit_options *o, int argc, char **argv,
	struct buf *ret, struct err *e);
/*
 * A file that --script or --file names, at most max bytes; "-" is standard input, `~` this machine's home. Of a command that came
 * from another machine it's what came along. what: "script" or "jobs file", for the sentence.
 */
int submit_read(const struct program *p, const char *what, const char *path, size_t max,
	struct buf *ret, struct err *e);
char *submit_expand_home(
	const char *path); /* "~" and "~/x" as the submitting shell would have it; to free */
/* What --export says, as an object of names and values of this environment; added to *env. */
int submit_export(const char *what, json_t *env, struct err *e);
/* --export ALL|NONE|A,B and --env K=V into one object; with a sentence for a bad name. */
int submit_env(const struct submit_options *o, json_t **ret, struct err *e);
