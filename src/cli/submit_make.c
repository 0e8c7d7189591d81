/* Options to jobs: see submit.h. Everything a person may get wrong has its sentence here. */
#include "cli/submit.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/queue_lanes.h"
#include "cli/queue_remote.h"
#include "run/jobsfile.h"
#include "svc/forward.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what runs ---- */

/* A word as the shell reads it back. */
static void put_quoted(struct buf *b, const char *word)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";

	if (*word && word[strspn(word, plain)] == '\0') {
		buf_puts(b, word);
		return;
	}
	buf_putc(b, '\'');
	for (; *word; word++) {
		if (*word == '\'')
			buf_puts(b, "'\"'\"'");
		else
			buf_putc(b, *word);
	}
	buf_putc(b, '\'');
}

char *submit_expand_home(const char *path)
{
	const char *home = getenv("HOME");
	const struct passwd *pw = home && *home ? NULL : getpwuid(getuid());

	if (path[0] != '~' || (path[1] && path[1] != '/'))
		return xstrdup(path);
	return xasprintf("%s%s", home && *home ? home : pw ? pw->pw_dir : "", path + 1);
}

/* Sent along with a forwarded command. */
static const struct forward_file *sent_along(const struct program *p, const char *path)
{
	for (size_t i = 0; i < p->n_files; i++)
		if (!strcmp(p->files[i].name, path))
			return &p->files[i];
	return NULL;
}

static int read_path(const char *path, size_t max, struct buf *ret)
{
	CLEANUP_FREE char *real = submit_expand_home(path);
	CLEANUP_CLOSE int fd = strcmp(path, "-") != 0
				       ? open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
				       : dup(STDIN_FILENO);

	return fd < 0 ? -errno : fd_read_all(fd, ret, max);
}

int submit_read(const struct program *p, const char *what, const char *path, size_t max,
	struct buf *ret, struct err *e)
{
	const struct forward_file *sent = sent_along(p, path);
	int r = 0;

	if (sent && sent->bytes.len > max)
		r = -EFBIG;
	else if (sent)
		buf_put(ret, buf_str(&sent->bytes), sent->bytes.len);
	else
		r = read_path(path, max, ret);
	if (r == -EFBIG)
		return err_set(e, r, "the %s has more than %zu MiB", what, max / 1024 / 1024);
	return r < 0 ? err_sys(e, r, "the %s '%s' can't be read", what, path) : 0;
}

static bool is_blank(const struct buf *b)
{
	return !b->len || buf_str(b)[strspn(buf_str(b), " \t\r\n")] == '\0';
}

int submit_body(const struct program *p, const struct submit_options *o, int argc, char **argv,
	struct buf *ret, struct err *e)
{
	int r = 0;

	if (o->script)
		r = submit_read(p, "script", o->script, JOB_TEXT_MAX, ret, e);
	else if (argc == 1)
		buf_puts(ret, argv[0]);
	else
		for (int i = 0; i < argc; i++) {
			if (i)
				buf_putc(ret, ' ');
			put_quoted(ret, argv[i]);
		}
	if (r)
		return r;
	if (memchr(buf_str(ret), '\0', ret->len))
		return err_set(e, -EINVAL, "the command has a NUL byte; it must be a text");
	if (utf8_valid_len(buf_str(ret), ret->len) != ret->len)
		return err_set(e, -EINVAL, "the command isn't valid UTF-8");
	if (is_blank(ret))
		return err_set(e, -EINVAL,
			"there's no command; give it behind --, as in: job submit --vram 8G -- python train.py");
	return 0;
}

/* ---- values ---- */

static char *copy_of(const char *s)
{
	return s && *s ? xstrdup(s) : NULL;
}

static int take_size(const char *option, const char *text, int64_t *ret, struct err *e)
{
	if (queue_parse_size_mib(text, ret))
		return err_set(e, -EINVAL, "--%s takes MiB, or a size as 8G or 1.5T, not '%.100s'",
			option, text);
	return 0;
}

static int take_time(
	const char *option, const char *text, int64_t min_ms, int64_t *ret, struct err *e)
{
	if (queue_parse_duration_ms(text, ret) || *ret < min_ms)
		return err_set(e, -EINVAL,
			"--%s takes seconds, or a time as 90s, 15m, 2h, 1d, not '%.100s'", option,
			text);
	return 0;
}

/* "auto", a size; not given: what default_vram says. */
static int take_vram(struct queue *q, const char *text, struct job *j, struct err *e)
{
	if (!text) {
		j->vram_mib = q->config.settings.default_vram_mib;
		j->vram_source = j->vram_mib < 0 ? VRAM_NONE : VRAM_DEFAULT;
		return 0;
	}
	j->vram_mib = -1;
	j->vram_source = VRAM_NONE;
	if (!strcmp(text, "auto"))
		return 0;
	j->vram_source = VRAM_DECLARED;
	return take_size("vram", text, &j->vram_mib, e);
}

/* "USR1@120", "SIGTERM@5m", "10@60". */
static int take_signal(const char *text, struct job *j, struct err *e)
{
	static const struct {
		const char *name;
		int number;
	} known[] = {{"HUP", SIGHUP}, {"INT", SIGINT}, {"QUIT", SIGQUIT}, {"USR1", SIGUSR1},
		{"USR2", SIGUSR2}, {"ALRM", SIGALRM}, {"TERM", SIGTERM}, {"CONT", SIGCONT},
		{"WINCH", SIGWINCH}};
	const char *at = strchr(text, '@');
	CLEANUP_FREE char *word = xstrndup(text, at ? (size_t)(at - text) : strlen(text));
	const char *name = !strncmp(word, "SIG", 3) ? word + 3 : word;
	int64_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (!strcmp(name, known[i].name))
			n = known[i].number;
	if (!n && (parse_int64(word, &n) || n < 1 || n > 64))
		n = 0;
	if (!at || !n)
		return err_set(e, -EINVAL,
			"--signal takes SIGNAL@TIME as USR1@120 (that many seconds before the time limit), not '%.100s'",
			text);
	j->lead_signal = n;
	return take_time("signal", at + 1, 1, &j->lead_ms, e);
}

static int take_retry_on(const char *text, struct job *j, struct err *e)
{
	for (const char *at = text; *at; at += *at == ',') {
		size_t n = strcspn(at, ",");
		CLEANUP_FREE char *word = xstrndup(at, n);
		enum job_cause c;

		if (job_cause_from_name(word, &c) || c == JOB_CAUSE_NONE)
			return err_set(e, -EINVAL,
				"--retry-on takes causes as vanished,exit-code; there's no cause '%.60s' (`job submit --help` lists them)",
				word);
		if (c == JOB_CAUSE_CANCELLED || c == JOB_CAUSE_DEPENDENCY ||
			c == JOB_CAUSE_UNSCHEDULABLE)
			return err_set(e, -EINVAL,
				"--retry-on: a job is never tried again after '%s'", word);
		j->retry_on |= INT64_C(1) << c;
		at += n;
	}
	return 0;
}

static int take_needs(const struct option_list *from, int64_t **ret, size_t *ret_n, struct err *e)
{
	CLEANUP(id_list_done) struct id_list l = {0};

	for (size_t i = 0; i < from->n; i++) {
		int r = queue_parse_ids(from->items[i], &l, e);

		if (r)
			return r;
	}
	*ret = TAKE_PTR(l.v);
	*ret_n = l.n;
	return 0;
}

static int take_node(struct queue *q, const struct submit_options *o, struct job *j, struct err *e)
{
	CLEANUP(store_nodes_done) struct store_nodes rows = {0};
	const struct queue_node *node;
	int r;

	if (!o->node)
		return 0;
	r = queue_parse_node(q, o->node, &node, e);
	if (!r)
		r = store_nodes(q->store, &rows, e);
	if (r)
		return r;
	for (size_t i = 0; i < rows.n; i++)
		if (!strcmp(rows.v[i].name, node->name) && rows.v[i].is_ignored)
			return err_set(e, -EINVAL,
				"the node %s is ignored; `queue unignore %s` takes it back",
				node->name, node->name);
	j->node_constraint = xstrdup(node->name);
	return 0;
}

static char *tags_of(const struct option_list *tags)
{
	CLEANUP_FREE char *text = NULL;
	json_t *a;

	if (!tags->n)
		return NULL;
	a = json_array();
	for (size_t i = 0; i < tags->n; i++)
		json_array_append_new(a, json_string(tags->items[i]));
	text = json_dumps(a, JSON_COMPACT);
	json_decref(a);
	return TAKE_PTR(text);
}

/* Its cards are there, and they are enough; its node is the job's (W-26, W-33). */
static int take_lane(struct queue *q, const struct submit_options *o, struct job *j, struct err *e)
{
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP_FREE char *node = NULL, *cards = NULL;
	int64_t n = 1;
	size_t at;
	int r;

	if (!o->lane)
		return 0;
	r = cluster_load(q->store, &q->config, clock_wall_ms(), false, &c, e);
	if (!r)
		r = cluster_lane_resolve(&c, o->lane, &node, &cards, e);
	if (r)
		return r;
	for (const char *s = cards; *s; s++)
		n += *s == ',';
	if (j->gpus > n)
		return err_set(e, -EINVAL,
			"--gpus %" PRId64 " is more than lane %s:%s has (%" PRId64 ")", j->gpus,
			node, cards, n);
	if (j->node_constraint && strcmp(j->node_constraint, node) != 0)
		return err_set(e, -EINVAL, "lane %s:%s is on %s, and --node says %s", node, cards,
			node, j->node_constraint);
	if (queue_config_find(&q->config, node, &at, e))
		return err_set(e, -EINVAL, "the node %s isn't in the configuration any more", node);
	for (size_t i = 0; i < c.n_nodes; i++) {
		if (strcmp(cluster_node_name(&c.nodes[i]), node) != 0)
			continue;
		if (c.nodes[i].row && c.nodes[i].row->is_ignored)
			return err_set(e, -EINVAL,
				"the node %s is ignored; `queue unignore %s` takes it back", node,
				node);
		r = cluster_lane_has_cards(&c.nodes[i], cards, o->gpu, j->gpus, e);
		if (r)
			return r;
	}
	free(j->node_constraint);
	j->node_constraint = xstrdup(node);
	j->lane = xasprintf("%s:%s", node, cards);
	return 0;
}

/* Options that need more than a copy, in the order in which a person would hear of them. */
static int take_values(
	struct queue *q, const struct submit_options *o, struct job *j, struct err *e)
{
	int r = take_vram(q, o->vram, j, e);

	if (!r)
		r = take_node(q, o, j, e);
	if (!r)
		r = take_lane(q, o, j, e);
	if (!r && o->timeout)
		r = take_time("timeout", o->timeout, 1, &j->max_runtime_ms, e);
	if (!r && o->grace)
		r = take_time("grace", o->grace, 0, &j->grace_ms, e);
	if (!r && o->signal)
		r = take_signal(o->signal, j, e);
	if (!r && o->signal && !o->timeout)
		r = err_set(e, -EINVAL, "--signal comes before a time limit; give --timeout too");
	if (!r && o->min_total)
		r = take_size("min-total", o->min_total, &j->min_total_mib, e);
	if (!r && o->mem)
		r = take_size("mem", o->mem, &j->mem_mib, e);
	if (!r && o->retry_on)
		r = take_retry_on(o->retry_on, j, e);
	if (!r && o->on_dependency && on_dependency_from_name(o->on_dependency, &j->on_dependency))
		r = err_set(e, -EINVAL, "--on-dependency takes hold, fail or run, not '%.60s'",
			o->on_dependency);
	if (!r)
		r = take_needs(&o->after, &j->after, &j->n_after, e);
	if (!r)
		r = take_needs(&o->after_any, &j->after_any, &j->n_after_any, e);
	return r;
}

static int check_gpus(const struct submit_options *o, struct err *e)
{
	if (o->gpus == 0 && (o->vram || o->gpu || o->gpu_model || o->min_total || o->exclusive ||
				    o->idle || o->nvlink))
		return err_set(e, -EINVAL,
			"--gpus 0 is a job without a GPU; --vram, --gpu, --gpu-model, --min-total, --exclusive, --idle and --nvlink say nothing to it");
	if (o->at && !o->lane)
		return err_set(e, -EINVAL, "--at is a place in a lane; say which by --lane");
	if (o->gpu && !o->node && !o->lane)
		return err_set(e, -EINVAL, "--gpu names a card of one node; say which by --node");
	return 0;
}

/* The job that all of this submit are copies of; without name, command and environment. */
static int make_template(
	struct queue *q, const struct submit_options *o, struct job *j, struct err *e)
{
	int r = check_gpus(o, e);

	job_init(j);
	if (r)
		return r;
	j->gpus = o->gpus;
	j->priority = o->priority;
	j->max_retries = o->retries;
	j->oom_retries = o->oom_retries;
	j->cpus = o->cpus;
	j->exclusive = o->exclusive;
	j->idle = o->idle;
	j->nvlink = o->nvlink;
	j->login = o->login;
	j->on_dependency = q->config.settings.on_dependency;
	j->gpu_constraint = copy_of(o->gpu);
	j->gpu_model = copy_of(o->gpu_model);
	j->notes = copy_of(o->note);
	j->tags = tags_of(&o->tags);
	j->submitter = o->submitter ? copy_of(o->submitter) : queue_submitter(q->program);
	j->workdir = o->workdir ? submit_expand_home(o->workdir) : NULL;
	return take_values(q, o, j, e);
}

/* ---- one, many ---- */

static char *dup_or_null(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static int64_t *dup_ids(const int64_t *v, size_t n)
{
	int64_t *copy = n ? xreallocarray(NULL, n, sizeof(*v)) : NULL;

	if (n)
		memcpy(copy, v, n * sizeof(*v));
	return copy;
}

/* Everything that was asked for; nothing of where it is. */
static void copy_job(const struct job *from, struct job *ret)
{
	*ret = *from;
	ret->name = dup_or_null(from->name);
	ret->command = dup_or_null(from->command);
	ret->workdir = dup_or_null(from->workdir);
	ret->submitter = dup_or_null(from->submitter);
	ret->env = dup_or_null(from->env);
	ret->tags = dup_or_null(from->tags);
	ret->key = dup_or_null(from->key);
	ret->node_constraint = dup_or_null(from->node_constraint);
	ret->lane = dup_or_null(from->lane);
	ret->gpu_constraint = dup_or_null(from->gpu_constraint);
	ret->gpu_model = dup_or_null(from->gpu_model);
	ret->notes = dup_or_null(from->notes);
	ret->after = dup_ids(from->after, from->n_after);
	ret->after_any = dup_ids(from->after_any, from->n_after_any);
}

static struct job *add(struct submit_jobs *l)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 8;
		l->v = xreallocarray(l->v, l->cap, sizeof(*l->v));
		l->lines = xreallocarray(l->lines, l->cap, sizeof(*l->lines));
		l->after = xreallocarray(l->after, l->cap, sizeof(*l->after));
		l->names = xreallocarray(l->names, l->cap, sizeof(*l->names));
	}
	l->lines[l->n] = 0;
	l->after[l->n] = l->names[l->n] = NULL;
	return &l->v[l->n++];
}

void submit_jobs_done(struct submit_jobs *l)
{
	for (size_t i = 0; i < l->n; i++) {
		job_done(&l->v[i]);
		free(l->after[i]);
		free(l->names[i]);
	}
	free(l->v);
	free(l->lines);
	free(l->after);
	free(l->names);
	*l = (struct submit_jobs){0};
}

static char *expanded(const struct expand *x, size_t i, const char *text)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!text)
		return NULL;
	expand_text(x, i, text, &b);
	return buf_take(&b);
}

static char *name_of(const struct submit_options *o, const struct expand *x, size_t i)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!x->n)
		return copy_of(o->name);
	if (o->name)
		expand_text(x, i, o->name, &b);
	/* A name that is the same for all of them gets what tells them apart. */
	if (!o->name || !strcmp(buf_str(&b), o->name)) {
		if (b.len)
			buf_putc(&b, ' ');
		expand_label(x, i, &b);
	}
	return buf_take(&b);
}

static void add_expanded(const struct submit_options *o, const struct expand *x,
	const struct job *template, const char *body, const json_t *env, struct submit_jobs *ret)
{
	size_t n = expand_count(x);

	for (size_t i = 0; i < n; i++) {
		struct job *j = add(ret);
		json_t *own = json_copy((json_t *)(uintptr_t)env);

		copy_job(template, j);
		expand_env(x, i, own);
		j->command = expanded(x, i, body);
		free(j->workdir);
		j->workdir = expanded(x, i, template->workdir);
		j->name = name_of(o, x, i);
		j->env = json_object_size(own) ? json_dumps(own, JSON_COMPACT) : NULL;
		j->key = !o->key  ? NULL
			 : n == 1 ? xstrdup(o->key)
				  : xasprintf("%s/%zu", o->key, i + 1);
		json_decref(own);
	}
}

/* ---- a jobs file ---- */

static int file_errors(const struct jobsfile *f, const char *path, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};

	for (size_t i = 0; i < f->n_errors && i < 20; i++)
		buf_printf(&b, "%s%s line %" PRIu32 ": %s", i ? "\n" : "", path,
			f->errors[i].lineno, f->errors[i].text);
	if (f->n_errors > 20)
		buf_printf(&b, "\nand %zu more", f->n_errors - 20);
	return err_set(e, -EINVAL, "%s", buf_str(&b));
}

static void add_line(const struct submit_options *o, const struct jobline *line,
	const struct job *template, const json_t *env, struct submit_jobs *ret)
{
	struct job *j = add(ret);
	size_t at = ret->n - 1;

	copy_job(template, j);
	ret->lines[at] = line->lineno;
	ret->after[at] = dup_or_null(line->after);
	ret->names[at] = dup_or_null(line->name);
	j->command = xstrndup(line->command, line->command_len);
	free(j->name);
	j->name = line->name ? xstrdup(line->name) : copy_of(o->name);
	j->env = json_object_size(env) ? json_dumps(env, JSON_COMPACT) : NULL;
	j->key = o->key ? xasprintf("%s/%s", o->key, line->key) : NULL;
	j->gpus = line->gpus;
	if (line->vram_mib >= 0) {
		j->vram_mib = line->vram_mib;
		j->vram_source = VRAM_DECLARED;
	}
	if (line->timeout_ms)
		j->max_runtime_ms = line->timeout_ms;
	if (line->retries >= 0)
		j->oom_retries = line->retries;
	if (line->gpu) {
		free(j->gpu_constraint);
		j->gpu_constraint = xstrdup(line->gpu);
	}
}

static uint32_t lane_size(const char *lane)
{
	uint32_t n = 1;

	for (; *lane; lane++)
		n += *lane == ',';
	return n;
}

static int check_line(
	const struct jobline *line, const struct job *template, const char *path, struct err *e)
{
	if (template->lane && line->gpus > lane_size(template->lane))
		return err_set(e, -EINVAL,
			"%s line %" PRIu32 ": gpus=%" PRIu32 " is more than lane %s has", path,
			line->lineno, line->gpus, template->lane);
	if (line->gpu && !template->node_constraint)
		return err_set(e, -EINVAL,
			"%s line %" PRIu32
			": gpu= names a card of one node; submit the file with --node",
			path, line->lineno);
	return 0;
}

static int add_file(const struct program *p, const struct submit_options *o,
	const struct job *template, const json_t *env, struct submit_jobs *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf bytes = {0};
	CLEANUP(jobsfile_done) struct jobsfile f = {0};
	int r = submit_read(p, "jobs file", o->file, JOBSFILE_MAX, &bytes, e);

	if (r)
		return r;
	jobsfile_parse(buf_str(&bytes), bytes.len, 0, &f);
	if (f.n_errors)
		return file_errors(&f, o->file, e);
	for (size_t i = 0; i < f.n; i++) {
		/* A cancelled line is one that its writer doesn't want run. */
		if (f.lines[i].cancel)
			continue;
		r = check_line(&f.lines[i], template, o->file, e);
		if (r)
			return r;
		add_line(o, &f.lines[i], template, env, ret);
	}
	return ret->n ? 0 : err_set(e, -EINVAL, "the jobs file '%s' has no jobs", o->file);
}

/* ---- all of it ---- */

static int check_sources(const struct submit_options *o, int argc, struct err *e)
{
	if (o->file && (o->script || argc))
		return err_set(e, -EINVAL,
			"--file has the commands; give no command and no --script with it");
	if (o->file && (o->array || o->sweep.n))
		return err_set(e, -EINVAL,
			"--array and --sweep multiply one command, not the lines of a --file");
	return 0;
}

static int make_expand(const struct submit_options *o, struct expand *x, struct err *e)
{
	int r = 0;

	for (size_t i = 0; !r && i < o->sweep.n; i++)
		r = expand_sweep(x, o->sweep.items[i], e);
	if (!r && o->array)
		r = expand_array(x, o->array, e);
	return r;
}

static int check_used(
	const struct submit_options *o, const struct expand *x, const char *body, struct err *e)
{
	const char *texts[] = {body, o->name, o->workdir};
	const char *name = expand_unused(x, texts, ARRAY_LEN(texts));

	return name ? err_set(e, -EINVAL,
			      "--sweep %s: neither {%s} nor $GPUSTOW_SWEEP_%s stands in the command; all its jobs would be the same",
			      name, name, name)
		    : 0;
}

int submit_make(struct queue *q, const struct submit_options *o, int argc, char **argv,
	struct submit_jobs *ret, struct err *e)
{
	CLEANUP(expand_done) struct expand x = {0};
	CLEANUP(buf_done) struct buf body = {0};
	CLEANUP(job_done) struct job template = {0};
	json_t *env = NULL;
	int r = check_sources(o, argc, e);

	if (!r)
		r = make_expand(o, &x, e);
	if (!r && !o->file)
		r = submit_body(q->program, o, argc, argv, &body, e);
	if (!r && !o->file)
		r = check_used(o, &x, buf_str(&body), e);
	if (!r)
		r = make_template(q, o, &template, e);
	if (!r)
		r = submit_env(o, &env, e);
	if (!r && o->file)
		r = add_file(q->program, o, &template, env, ret, e);
	else if (!r)
		add_expanded(o, &x, &template, buf_str(&body), env, ret);
	json_decref(env);
	return r;
}
