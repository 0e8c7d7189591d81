/* Where the home directory is: from the environment, else below the user's own. It makes nothing. */
#include "config/config_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* $HOME, else what the password file says; NULL: neither. */
static const char *user_home(void)
{
	const char *home = getenv("HOME");
	const struct passwd *pw;

	if (home && home[0] == '/')
		return home;
	pw = getpwuid(geteuid());
	return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

char *home_expand(const char *path)
{
	const char *home = path[0] == '~' && (!path[1] || path[1] == '/') ? user_home() : NULL;

	return home ? xasprintf("%s%s", home, path + 1) : xstrdup(path);
}

const char *config_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static char *absolute(const char *path, struct err *e)
{
	char cwd[PATH_MAX];

	if (path[0] == '/')
		return xstrdup(path);
	if (getcwd(cwd, sizeof(cwd)))
		return xasprintf("%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, path);
	err_sys(e, -errno, "cannot tell the current directory, below which %s would be", path);
	return NULL;
}

int home_path(const char *variable, const char *name, char *ret, size_t size, struct err *e)
{
	const char *set = getenv(variable), *home = user_home();
	CLEANUP_FREE char *wanted = NULL, *path = NULL;
	size_t n;

	if (set && *set)
		wanted = home_expand(set);
	else if (home)
		wanted = xasprintf("%s/%s", home, name);
	else
		return err_set(e, -ENOENT, "there's no home directory; set HOME or %s", variable);
	path = absolute(wanted, e);
	if (!path)
		return -ENOENT;
	/* "/x/" is "/x": its name is shown, and files' names are appended. */
	for (n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = '\0';
	if (n >= size)
		return err_set(e, -ENAMETOOLONG, "the path in %s is too long", variable);
	memcpy(ret, path, n + 1);
	return 0;
}
