/* Host lines of an ssh_config, and `ssh -G` for what they mean: see ssh_hosts.h. Nothing is connected to. */
#include "cli/ssh_hosts.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"
#include "base/text.h"
#include "cli/capture.h"

#include <fcntl.h>
#include <glob.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { FILE_MAX = 1 << 20, DEPTH_MAX = 16, FILES_MAX = 1000, ALIASES_MAX = 4096, SSH_MS = 15000 };

struct reading {
	struct ssh_aliases *aliases;
	size_t files;
};

void ssh_aliases_done(struct ssh_aliases *a)
{
	for (size_t i = 0; i < a->n; i++)
		free(a->names[i]);
	free(a->names);
	*a = (struct ssh_aliases){0};
}

bool ssh_aliases_have(const struct ssh_aliases *a, const char *name)
{
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->names[i], name) == 0)
			return true;
	return false;
}

/* The next word of a line, quotes taken off; NULL: no more. `*s` moves behind it. */
static char *next_word(const char **s)
{
	CLEANUP(buf_done) struct buf word = {0};
	const char *p = *s + strspn(*s, " \t\r");
	bool quoted = false;

	if (!*p || *p == '#')
		return NULL;
	for (; *p && (quoted || !strchr(" \t\r", *p)); p++) {
		if (*p == '"')
			quoted = !quoted;
		else if (*p == '\\' && (p[1] == '"' || p[1] == '\\' || p[1] == ' '))
			buf_putc(&word, *++p);
		else
			buf_putc(&word, *p);
	}
	*s = p;
	return buf_take(&word);
}

/* "Keyword value" or "Keyword=value". */
static char *next_keyword(const char **s)
{
	const char *p = *s + strspn(*s, " \t\r");
	size_t n = strcspn(p, " \t\r=\"#");
	char *word = n ? xstrndup(p, n) : NULL;

	p += n;
	p += strspn(p, " \t\r");
	*s = *p == '=' ? p + 1 : p;
	return word;
}

static bool is_alias(const char *word)
{
	size_t n = strlen(word);
	CLEANUP(buf_done) struct buf clean = {0};

	if (n == 0 || n > 255 || word[0] == '-' || strpbrk(word, "*?!") ||
		utf8_valid_len(word, n) != n)
		return false;
	text_put_clean(&clean, word, n);
	return strcmp(buf_str(&clean), word) == 0;
}

static void add_alias(struct ssh_aliases *a, char *word)
{
	if (!is_alias(word) || a->n >= ALIASES_MAX || ssh_aliases_have(a, word)) {
		free(word);
		return;
	}
	GROW(a->names, a->n, a->cap);
	a->names[a->n++] = word;
}

static int read_file(struct reading *r, const char *path, int depth);

/* As ssh: "~" is the home that the password file has, and what isn't absolute lies in ~/.ssh. */
static char *include_path(const char *word)
{
	const struct passwd *pw = getpwuid(getuid());
	const char *home = pw && pw->pw_dir ? pw->pw_dir : getenv("HOME");

	if (word[0] == '/' || !home)
		return xstrdup(word);
	if (word[0] == '~' && word[1] == '/')
		return xasprintf("%s%s", home, word + 1);
	return xasprintf("%s/.ssh/%s", home, word);
}

static void include(struct reading *r, const char *word, int depth)
{
	CLEANUP_FREE char *pattern = include_path(word);
	glob_t found = {0};

	if (depth < DEPTH_MAX && glob(pattern, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			(void)read_file(r, found.gl_pathv[i], depth + 1);
	globfree(&found);
}

static void read_line(struct reading *r, const char *line, int depth)
{
	CLEANUP_FREE char *keyword = next_keyword(&line);
	bool is_host = keyword && strcasecmp(keyword, "host") == 0,
	     is_include = keyword && strcasecmp(keyword, "include") == 0;
	char *word;

	while ((is_host || is_include) && (word = next_word(&line))) {
		if (is_host) {
			add_alias(r->aliases, word);
		} else {
			include(r, word, depth);
			free(word);
		}
	}
}

static int read_plain_file(const char *path, struct buf *b)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct sys_stat st = {0};
	int r = fd < 0 ? -errno : sys_fstat(fd, &st);

	if (r < 0)
		return r;
	return S_ISREG(st.mode)	  ? fd_read_all(fd, b, FILE_MAX)
	       : S_ISDIR(st.mode) ? -EISDIR
				  : -EINVAL;
}

static int read_file(struct reading *r, const char *path, int depth)
{
	CLEANUP(buf_done) struct buf text = {0};
	char *save = NULL;
	int code = ++r->files > FILES_MAX ? -EMFILE : read_plain_file(path, &text);

	if (code < 0 || !text.data)
		return code;
	for (char *line = strtok_r(text.data, "\n", &save); line;
		line = strtok_r(NULL, "\n", &save))
		read_line(r, line, depth);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int ssh_aliases_read(const char *path, struct ssh_aliases *ret, struct err *e)
{
	struct ssh_aliases a = {0};
	struct reading r = {.aliases = &a};
	int code = read_file(&r, path, 0);

	if (code < 0) {
		ssh_aliases_done(&a);
		return err_sys(e, code, "cannot read %s", path);
	}
	if (a.n)
		qsort(a.names, a.n, sizeof(*a.names), by_name);
	*ret = a;
	return 0;
}

/* --- ssh -G --- */

/* ssh's own first line says what it was; the path stands in it. */
static int ssh_failed(const char *alias, int code, const struct buf *complaints, struct err *e)
{
	CLEANUP(buf_done) struct buf clean = {0};
	const char *s = buf_str(complaints);

	text_put_clean(&clean, s, strcspn(s, "\r\n"));
	return err_set(e, -EIO, "ssh can't say what %s means (exit code %d)%s%s", alias, code,
		clean.len ? ": " : "", buf_str(&clean));
}

static int ask_ssh(const char *path, const char *alias, struct buf *ret, struct err *e)
{
	const char *const argv[] = {"ssh", "-G", "-F", path, "--", alias, NULL};
	CLEANUP(buf_done) struct buf complaints = {0};
	int code = 0, r = capture(argv, SSH_MS, FILE_MAX, ret, &complaints, &code, e);

	if (r < 0)
		return r;
	return code == 0 ? 0 : ssh_failed(alias, code, &complaints, e);
}

/* The value of a line "key value", or NULL; *from moves behind it. */
static const char *next_value(char **from, const char *key)
{
	size_t n = strlen(key);

	while (*from && **from) {
		char *line = *from, *end = strchr(line, '\n');

		*from = end ? end + 1 : line + strlen(line);
		if (strncmp(line, key, n) != 0 || line[n] != ' ')
			continue;
		if (end)
			*end = '\0';
		return line + n + 1;
	}
	return NULL;
}

/* First value of the key in ssh's answer; the answer stays whole. The caller frees. */
static char *value_of(const struct buf *answer, const char *key)
{
	CLEANUP_FREE char *copy = xstrdup(buf_str(answer));
	char *from = copy;
	const char *value = next_value(&from, key);

	return value && *value ? xstrdup(value) : NULL;
}

static char *all_identities(const struct buf *answer)
{
	CLEANUP_FREE char *copy = xstrdup(buf_str(answer));
	CLEANUP(buf_done) struct buf all = {0};
	char *from = copy;
	const char *value;

	while ((value = next_value(&from, "identityfile")))
		buf_printf(&all, "%s\n", value);
	return buf_take(&all);
}

int ssh_defaults_read(struct ssh_defaults *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf answer = {0};
	int r = ask_ssh("/dev/null", "localhost", &answer, e);

	if (r < 0)
		return r;
	ret->identities = all_identities(&answer);
	return 0;
}

void ssh_defaults_done(struct ssh_defaults *d)
{
	free(d->identities);
	*d = (struct ssh_defaults){0};
}

/* ssh lists its defaults only where nothing was configured, all of them; anything else is the user's. */
static char *own_identity(const struct buf *answer, const struct ssh_defaults *d)
{
	CLEANUP_FREE char *all = all_identities(answer);

	return strcmp(all, d->identities) == 0 ? NULL : value_of(answer, "identityfile");
}

static bool is_none(const char *s)
{
	return !s || strcasecmp(s, "none") == 0;
}

int ssh_resolve(const char *path, const char *alias, const struct ssh_defaults *d,
	struct host_config *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf answer = {0};
	CLEANUP(host_config_done) struct host_config h = {0};
	int r = ask_ssh(path, alias, &answer, e);
	CLEANUP_FREE char *hostname = value_of(&answer, "hostname"),
			  *port = value_of(&answer, "port"), *user = value_of(&answer, "user"),
			  *identity = own_identity(&answer, d),
			  *jump = value_of(&answer, "proxyjump"),
			  *command = value_of(&answer, "proxycommand");
	const struct {
		const char *key, *value;
	} pairs[] = {{"hostname", is_none(command) ? hostname : alias}, {"port", port},
		{"username", user}, {"nickname", alias},
		{"identityfile", is_none(identity) ? NULL : identity},
		{"proxyjump", is_none(jump) ? NULL : jump}};

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(pairs); i++)
		r = host_config_set(&h, pairs[i].key, pairs[i].value, e);
	if (r == 0)
		r = host_config_finish(&h, e);
	if (r < 0)
		return r;
	*ret = h;
	h = (struct host_config){0};
	return 0;
}
