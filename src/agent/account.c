/* Asks passwd, and makes of it what a job needs (account.h). Keeps nothing. */
#include "agent/account.h"
#include "base/alloc.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin"
#define SHELL_DEFAULT "/bin/sh"

static void take(const char *from, char *ret, size_t size)
{
	size_t n = from ? strlen(from) : 0;

	if (n < size)
		memcpy(ret, from ? from : "", n + 1);
}

void account_read(struct account *ret)
{
	char space[4096];
	struct passwd pw, *found = NULL;

	*ret = (struct account){.is_known = true};
	if (getpwuid_r(geteuid(), &pw, space, sizeof(space), &found) == 0 && found) {
		take(found->pw_name, ret->user, sizeof(ret->user));
		if (found->pw_dir && found->pw_dir[0] == '/')
			take(found->pw_dir, ret->home, sizeof(ret->home));
		if (found->pw_shell && found->pw_shell[0] == '/')
			take(found->pw_shell, ret->shell, sizeof(ret->shell));
	}
#ifdef GPUSTOW_FAULT_POINTS
	/* The tests must not write into the home of who runs them. */
	const char *told = getenv("GPUSTOW_TEST_HOME");

	if (told && told[0] == '/')
		take(told, ret->home, sizeof(ret->home));
#endif
}

int account_path(const struct account *a, const char *path, char **ret, struct err *e)
{
	const char *below = path;

	if (path[0] == '/') {
		*ret = xstrdup(path);
		return 0;
	}
	if (path[0] == '~' && (path[1] == '/' || !path[1]))
		below = path[1] ? path + 2 : "";
	if (!a->home[0])
		return err_set(e, -ENOENT,
			"this account has no home directory by passwd; name an absolute path instead of \"%.200s\"",
			path);
	*ret = *below ? xasprintf("%s/%s", strcmp(a->home, "/") ? a->home : "", below)
		      : xstrdup(a->home);
	return 0;
}

static void put_var(json_t *env, const char *name, const char *value)
{
	char *s = value && *value ? xasprintf("%s=%s", name, value) : NULL;

	/* What isn't UTF-8 can't be kept in a claim, and is left out. */
	if (s)
		json_array_append_new(env, json_string(s));
	free(s);
}

void account_put_vars(const struct account *a, json_t *env)
{
	const char *path = getenv("PATH");

	put_var(env, "HOME", a->home);
	put_var(env, "USER", a->user);
	put_var(env, "LOGNAME", a->user);
	put_var(env, "SHELL", a->shell[0] ? a->shell : SHELL_DEFAULT);
	put_var(env, "PATH", path && *path ? path : PATH_DEFAULT);
	put_var(env, "LANG", getenv("LANG"));
}
