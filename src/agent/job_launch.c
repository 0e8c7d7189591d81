/*
 * What a launch says of a job of the queue, turned into what a claim needs (job_dir.h): absolute paths, the environment's
 * beginning, the shell. Touches no disk but to see which shell there is.
 */
#include "agent/job_dir.h"
#include "base/alloc.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Replaces a member that is a path of the account's by the absolute one. */
static int expand_member(json_t *job, const char *key, const struct account *a, struct err *e)
{
	const json_t *v = json_object_get(job, key);
	CLEANUP_FREE char *path = NULL;
	int r;

	if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
		return err_set(e, -EINVAL, "\"%s\" must be text without NUL bytes", key);
	r = account_path(a, json_string_value(v), &path, e);
	if (!r)
		json_object_set_new(job, key, json_string(path));
	return r;
}

static bool has_dots(const char *path)
{
	for (const char *s = path; s; s = strchr(s, '/')) {
		s += strspn(s, "/");
		size_t n = strcspn(s, "/");

		if ((n == 1 && s[0] == '.') || (n == 2 && !strncmp(s, "..", 2)))
			return true;
	}
	return false;
}

/* It's emptied before it's used, so it must be a place that can't be anything but this attempt's. */
static int check_dir(const char *dir, const struct attempt_name *n, struct err *e)
{
	char name[ATTEMPT_NAME_LEN];
	size_t len = strlen(dir), tail;

	attempt_name_format(n, name);
	tail = strlen(name);
	if (len > JOB_DIR_MAX)
		return err_set(e, -ENAMETOOLONG, "\"dir\" is longer than %d bytes", JOB_DIR_MAX);
	if (len < tail + 1 || dir[len - tail - 1] != '/' || strcmp(dir + len - tail, name) != 0)
		return err_set(e, -EINVAL, "\"dir\" must end in /%s", name);
	if (has_dots(dir))
		return err_set(e, -EINVAL, "\"dir\" must not have . or .. in it");
	return 0;
}

/* Both prefixes: a script written for nvidb finds what it knows. */
static void put_file_vars(json_t *env, const char *dir)
{
	static const struct {
		const char *name, *file;
	} vars[] = {{"JOB_DIR", ""}, {"STATUS_FILE", "/status"}, {"RESULT_FILE", "/result.json"}};

	for (size_t i = 0; i < ARRAY_LEN(vars); i++) {
		CLEANUP_FREE char *own =
			xasprintf("GPUSTOW_%s=%s%s", vars[i].name, dir, vars[i].file);
		CLEANUP_FREE char *old =
			xasprintf("NVIDB_%s=%s%s", vars[i].name, dir, vars[i].file);

		json_array_append_new(env, json_string(own));
		json_array_append_new(env, json_string(old));
	}
}

int job_dir_expand(json_t *job, const struct attempt_name *n, const struct account *a, json_t *env,
	struct err *e)
{
	static const char *const not_said[] = {"argv", "output", "error_output", "oom_kills"};
	int r = expand_member(job, "dir", a, e);

	if (!r)
		r = check_dir(json_string_value(json_object_get(job, "dir")), n, e);
	if (!r)
		r = expand_member(job, "cwd", a, e);
	if (r)
		return r;
	if (!json_object_get(job, "body") && !json_is_true(json_object_get(job, "staged")))
		return err_set(
			e, -EINVAL, "a job with a \"dir\" needs a \"body\", or must be \"staged\"");
	for (size_t i = 0; i < ARRAY_LEN(not_said); i++)
		json_object_del(job, not_said[i]);
	account_put_vars(a, env);
	put_file_vars(env, json_string_value(json_object_get(job, "dir")));
	return 0;
}

/* ---- the shell ---- */

static const char *find_shell(void)
{
	static const char *const shells[] = {"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash",
		"/run/current-system/sw/bin/bash"};

	for (size_t i = 0; i < ARRAY_LEN(shells); i++)
		if (access(shells[i], X_OK) == 0)
			return shells[i];
	return "/bin/sh";
}

static const char *value_of(char *const *env, const char *name)
{
	size_t n = strlen(name);

	for (; *env; env++)
		if (!strncmp(*env, name, n) && (*env)[n] == '=')
			return *env + n + 1;
	return NULL;
}

/*
 * The text is read by the very shell that read the login files, for what they define (conda's and modules' functions)
 * dies with it. What was allotted comes as arguments and is put back in between. Single quotes: the shell expands it.
 */
static char *login_script(const char *visible, const char *order)
{
	return xasprintf("%s%sshift $#; . \"$0\"",
		visible ? "export CUDA_VISIBLE_DEVICES=\"$1\"; " : "",
		order ? "export CUDA_DEVICE_ORDER=\"$2\"; " : "");
}

static void fill_argv(struct claim_spec *s)
{
	const char *visible = value_of(s->env, "CUDA_VISIBLE_DEVICES");
	const char *order = value_of(s->env, "CUDA_DEVICE_ORDER");
	size_t n = 0;

	s->argv = xcalloc(8, sizeof(*s->argv));
	s->argv[n++] = xstrdup(find_shell());
	if (s->login) {
		s->argv[n++] = xstrdup("-l");
		s->argv[n++] = xstrdup("-c");
		s->argv[n++] = login_script(visible, order);
	}
	s->argv[n++] = xasprintf("%s/run.sh", s->dir);
	if (s->login) {
		s->argv[n++] = xstrdup(visible ? visible : "");
		s->argv[n++] = xstrdup(order ? order : "");
	}
}

void job_dir_fill(struct claim_spec *s)
{
	if (!s->dir || s->argv)
		return;
	fill_argv(s);
	s->output = xasprintf("%s/stdout.log", s->dir);
	s->error_output = xasprintf("%s/stderr.log", s->dir);
}
