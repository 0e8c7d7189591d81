/* The directory that SSH links share. Everything in it may vanish at any time and costs only time then. */
#include "fleet/ssh_site.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/parse.h"
#include "fleet/agent_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define HANDSHAKES 6
#define HANDSHAKE_MS 500
#define MEMORY_LEN 128

/* ---- the directory ---- */

/* It stands in a command line that ssh itself gives to a shell, unquoted: only characters that mean themselves. */
static bool is_plain(const char *dir)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_-.+,=@:";

	return dir[0] == '/' && strspn(dir, plain) == strlen(dir) && strlen(dir) <= SSH_DIR_MAX;
}

static int use_dir(const char *dir, struct err *e)
{
	int r = fd_mkdirs(dir, e);

	return r ? r : fd_check_private_dir(dir, e);
}

/* Below the home if that's short and plain and sockets can be made there; else in a place that always is. */
static int find_dir(const char *home, char ret[SSH_DIR_MAX + 1], struct err *e)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	unsigned uid = (unsigned)geteuid();
	char *dirs[] = {
		xasprintf("%s/ssh", home),
		runtime && *runtime ? xasprintf("%s/gpustow-ssh", runtime) : xstrdup(""),
		xasprintf("/tmp/gpustow-%u/ssh", uid),
	};
	int r = -ENAMETOOLONG;

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		struct err one = {0};

		if (r && is_plain(dirs[i]) && !(r = use_dir(dirs[i], &one)))
			memcpy(ret, dirs[i], strlen(dirs[i]) + 1);
		if (one.text[0])
			err_set(e, r, "there's no place for ssh's sockets: %s", one.text);
		free(dirs[i]);
	}
	if (!r && e)
		e->text[0] = '\0';
	return r;
}

/* ---- the configuration ---- */

/*
 * Of each option the first value that's found counts. So what would take the channel from us comes before the user's own
 * file, and what is a matter of taste (multiplexing, above all) after it.
 */
void ssh_config_text(const char *dir, bool is_batch, int persist_s, struct buf *out)
{
	buf_puts(out,
		"# Made by gpustow for its own ssh connections; it's made anew when it's missing.\n"
		"IgnoreUnknown SessionType,StdinNull,ForkAfterAuthentication\n"
		"SessionType default\n"
		"StdinNull no\n"
		"ForkAfterAuthentication no\n"
		"RemoteCommand none\n"
		"RequestTTY no\n"
		"EscapeChar none\n"
		"PermitLocalCommand no\n"
		"ForwardX11 no\n"
		"ForwardAgent no\n"
		"ClearAllForwardings yes\n"
		"ExitOnForwardFailure yes\n"
		"LogLevel INFO\n"
		"ConnectTimeout 8\n"
		"ConnectionAttempts 1\n"
		"ServerAliveInterval 5\n"
		"ServerAliveCountMax 3\n");
	if (is_batch)
		buf_puts(out, "BatchMode yes\n");
	buf_printf(out,
		"Include ~/.ssh/config\n"
		"Include /etc/ssh/ssh_config\n"
		"Host *\n"
		"\tControlMaster auto\n"
		"\tControlPath %s/%%C\n"
		"\tControlPersist %d\n",
		dir, persist_s);
}

static int persist_s(void)
{
#ifdef GPUSTOW_FAULT_POINTS
	const char *told = getenv("GPUSTOW_TEST_SSH_PERSIST");
	int64_t s;

	if (told && !parse_int64(told, &s) && s > 0 && s < 3600)
		return (int)s;
#endif
	return SSH_PERSIST_S;
}

static void hash_name(const char *prefix, const char *text, size_t n, char ret[32])
{
	uint8_t sum[32];

	sha256(text, n, sum);
	memcpy(ret, prefix, strlen(prefix));
	hex_encode(sum, 8, ret + strlen(prefix));
}

static int write_config(struct ssh_site *s, bool is_batch, struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP(buf_done) struct buf there = {0};
	char name[32];
	int r = 0;

	ssh_config_text(s->dir, is_batch, persist_s(), &text);
	hash_name("config-", text.data, text.len, name);
	s->config = xasprintf("%s/%s", s->dir, name);
	if (fd_read_file_at(AT_FDCWD, s->config, &there, 65536) || there.len != text.len ||
		memcmp(there.data, text.data, text.len) != 0)
		r = fd_replace_at(AT_FDCWD, s->config, text.data, text.len, false);
	return r ? err_sys(e, r, "%s can't be written", s->config) : 0;
}

/* The program's name for SSH_ASKPASS. Another gpustow of this user may put its own there: all of them answer alike. */
static void link_askpass(struct ssh_site *s)
{
	char exe[4096], there[4096], hex[17];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1), m;
	CLEANUP_FREE char *temporary = NULL;

	s->askpass = xasprintf("%s/gpustow-askpass", s->dir);
	if (n <= 0)
		return;
	exe[n] = '\0';
	m = readlink(s->askpass, there, sizeof(there) - 1);
	if (m == n && !memcmp(there, exe, (size_t)n))
		return;
	random_hex(8, hex);
	temporary = xasprintf("%s/.new-%s", s->dir, hex);
	if (symlink(exe, temporary) || rename(temporary, s->askpass))
		unlink(temporary);
}

/* Sockets for questions whose program died. */
static void sweep(const struct ssh_site *s)
{
	CLEANUP_CLOSEDIR DIR *d = opendir(s->dir);
	const struct dirent *entry;

	while (d && (entry = readdir(d))) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		CLEANUP_CLOSE int fd = -1;

		if (strncmp(entry->d_name, "ask-", 4) != 0 ||
			snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", s->dir,
				entry->d_name) >= (int)sizeof(address.sun_path))
			continue;
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
			errno == ECONNREFUSED)
			unlink(address.sun_path);
	}
}

int ssh_site_new(struct event_base *base, const char *home, bool can_ask, struct ssh_site **ret,
	struct err *e)
{
	struct ssh_site *s = xcalloc(1, sizeof(*s));
	struct err own = {0};
	int r = find_dir(home, s->dir, &own);

	if (r == -ENAMETOOLONG && !own.text[0])
		err_set(&own, r, "there's no place with a short and plain name for ssh's sockets");
	if (!r)
		r = write_config(s, !can_ask, &own);
	if (r) {
		ssh_site_free(s);
		return err_set(e, r, "%s", own.text);
	}
	link_askpass(s);
	sweep(s);
	s->gate = gate_new(base, HANDSHAKES, HANDSHAKE_MS);
	s->n_agents = agent_file_carried(s->agents, ARRAY_LEN(s->agents));
	*ret = s;
	return 0;
}

void ssh_site_free(struct ssh_site *s)
{
	if (!s)
		return;
	gate_free(s->gate);
	free(s->config);
	free(s->askpass);
	free(s);
}

/* ---- memory ---- */

/* The next word of *at, cut off there; NULL at the end. */
static char *next_word(char **at)
{
	char *word = *at + strspn(*at, " \n");
	size_t n = strcspn(word, " \n");

	*at = word + n + (word[n] ? 1 : 0);
	word[n] = '\0';
	return n ? word : NULL;
}

void ssh_site_recall(const struct ssh_site *s, const char *key, struct ssh_memory *ret)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP_FREE char *path = NULL;
	char name[32], *cpu, *seen, *refused, *at;
	int64_t seen_ms;

	*ret = (struct ssh_memory){0};
	hash_name("host-", key, strlen(key), name);
	path = xasprintf("%s/%s", s->dir, name);
	if (fd_read_file_at(AT_FDCWD, path, &b, 256) || !b.len)
		return;
	at = b.data;
	cpu = next_word(&at);
	seen = next_word(&at);
	refused = next_word(&at);
	if (!cpu || strlen(cpu) >= sizeof(ret->cpu) || !seen || parse_int64(seen, &seen_ms))
		return;
	memcpy(ret->cpu, cpu, strlen(cpu) + 1);
	ret->seen_wall_ms = seen_ms;
	if (refused && strlen(refused) == 64)
		memcpy(ret->refused, refused, 65);
}

/*
 * All of one length, so that one is written over the other: each contact writes, and a new file with its rename would cost
 * more than all else that a link does here. Whoever reads half of one has a memory less.
 */
void ssh_site_remember(const struct ssh_site *s, const char *key, const struct ssh_memory *m)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP_FREE char *path = NULL;
	CLEANUP_CLOSE int fd = -1;
	char name[32];

	hash_name("host-", key, strlen(key), name);
	path = xasprintf("%s/%s", s->dir, name);
	buf_printf(&b, "%s %lld %s", m->cpu[0] ? m->cpu : "-", (long long)m->seen_wall_ms,
		m->refused[0] ? m->refused : "-");
	while (b.len < MEMORY_LEN - 1)
		buf_putc(&b, ' ');
	buf_putc(&b, '\n');
	fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fd_pwrite_all(fd, b.data, b.len, 0) < 0)
		fd_replace_at(AT_FDCWD, path, b.data, b.len, false);
}
