/*
 * The environment that a job takes along: what --export names of the submitter's own, then --env over it. What belongs to this
 * terminal, this login or another job's place is never taken by ALL; a name given one by one is.
 */
#include "cli/submit.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define ENV_BYTES_MAX (1024 * 1024)

extern char **environ;

static bool is_name(const char *s, size_t n)
{
	if (!n || isdigit((unsigned char)s[0]))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_')
			return false;
	return true;
}

/* Of this terminal, this login, this machine, or of the job that submits: wrong anywhere else. */
static bool is_local(const char *s, size_t n)
{
	static const char *const names[] = {"PWD", "OLDPWD", "SHLVL", "_", "TERM", "TERMCAP",
		"COLORTERM", "COLUMNS", "LINES", "WINDOWID", "DISPLAY", "WAYLAND_DISPLAY",
		"XAUTHORITY", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "HOST", "MAIL",
		"TMPDIR", "STY", "WINDOW", "DBUS_SESSION_BUS_ADDRESS", "CUDA_VISIBLE_DEVICES",
		"CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"};
	static const char *const starts[] = {"SSH_", "TMUX", "XDG_", "SLURM_", "SBATCH_",
		"GPUSTOW_", "NVIDB_", "SYSTEMD_", "INVOCATION_ID", "JOURNAL_STREAM", "VTE_",
		"GNOME_", "KITTY_", "ALACRITTY_", "WEZTERM_", "ITERM_", "VSCODE_"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == n && !memcmp(names[i], s, n))
			return true;
	for (size_t i = 0; i < ARRAY_LEN(starts); i++)
		if (n >= strlen(starts[i]) && !memcmp(starts[i], s, strlen(starts[i])))
			return true;
	return false;
}

static int put(json_t *env, const char *name, const char *value, struct err *e)
{
	if (utf8_valid_len(value, strlen(value)) != strlen(value))
		return err_set(e, -EINVAL,
			"the value of %s isn't valid UTF-8, and can't be kept with the job", name);
	json_object_set_new(env, name, json_string(value));
	return 0;
}

static int export_all(json_t *env, struct err *e)
{
	for (char **v = environ; v && *v; v++) {
		size_t n = strcspn(*v, "=");
		CLEANUP_FREE char *name = xstrndup(*v, n);

		/* Shell functions and other odd names can't be variables of a job; a value of bytes is passed over. */
		if (!(*v)[n] || !is_name(*v, n) || is_local(*v, n) ||
			utf8_valid_len(*v + n + 1, strlen(*v + n + 1)) != strlen(*v + n + 1))
			continue;
		if (put(env, name, *v + n + 1, e) < 0)
			return -EINVAL;
	}
	return 0;
}

static int export_named(json_t *env, const char *list, struct err *e)
{
	for (const char *at = list; *at; at += *at == ',') {
		size_t n = strcspn(at, ",");
		CLEANUP_FREE char *name = xstrndup(at, n);
		const char *value = getenv(name);

		if (!is_name(name, n))
			return err_set(e, -EINVAL,
				"--export takes ALL, NONE, or names of variables as A,B; '%.100s' is no name",
				name);
		if (!value)
			return err_set(e, -EINVAL,
				"--export names %s, which isn't set here; set it, or use --env %s=VALUE",
				name, name);
		if (put(env, name, value, e) < 0)
			return -EINVAL;
		at += n;
	}
	return 0;
}

static int add_given(json_t *env, const char *pair, struct err *e)
{
	size_t n = strcspn(pair, "=");
	CLEANUP_FREE char *name = xstrndup(pair, n);

	if (!pair[n])
		return err_set(e, -EINVAL, "--env takes KEY=VALUE, not '%.100s'", pair);
	if (!is_name(pair, n))
		return err_set(e, -EINVAL,
			"--env: '%.100s' is no name of a variable (letters, digits and _, not a digit first)",
			name);
	return put(env, name, pair + n + 1, e);
}

static int check_size(const json_t *env, struct err *e)
{
	const char *key;
	json_t *value;
	size_t n = 0;

	json_object_foreach((json_t *)(uintptr_t)env, key, value) n +=
		strlen(key) + json_string_length(value) + 2;
	return n > ENV_BYTES_MAX ? err_set(e, -E2BIG,
					   "the job's environment has more than 1 MiB; export less")
				 : 0;
}

int submit_export(const char *what, json_t *env, struct err *e)
{
	if (!strcmp(what, "ALL"))
		return export_all(env, e);
	return strcmp(what, "NONE") != 0 ? export_named(env, what, e) : 0;
}

int submit_env(const struct submit_options *o, json_t **ret, struct err *e)
{
	json_t *env = json_object();
	int r = o->export ? submit_export(o->export, env, e) : 0;

	for (size_t i = 0; !r && i < o->env.n; i++)
		r = add_given(env, o->env.items[i], e);
	if (!r)
		r = check_size(env, e);
	if (r) {
		json_decref(env);
		return r;
	}
	*ret = env;
	return 0;
}
