/*
 * OpenSSH's words for its failures, in one table. The first entry whose words stand anywhere in the text decides: what
 * wants a person comes first, then what may go by itself, since a failed jump host makes the outer ssh complain too.
 */
#include "fleet/ssh_failure.h"

#include "base/text.h"

#include <string.h>

enum way_out { WAY_NONE, WAY_CHANGED, WAY_UNKNOWN, WAY_AUTH, WAY_CONFIG };

static const struct {
	const char *words;
	enum link_failure kind;
	enum way_out way;
} table[] = {
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", LINK_FAIL_HOST_KEY, WAY_CHANGED},
	{"REVOKED HOST KEY DETECTED", LINK_FAIL_HOST_KEY, WAY_CHANGED},
	{"Host key verification failed", LINK_FAIL_HOST_KEY, WAY_UNKNOWN},
	{"host key is known for", LINK_FAIL_HOST_KEY, WAY_UNKNOWN},
	{"Too many authentication failures", LINK_FAIL_AUTH, WAY_AUTH},
	{"Permission denied (", LINK_FAIL_AUTH, WAY_AUTH},
	{"No more authentication methods to try", LINK_FAIL_AUTH, WAY_AUTH},
	{"no such identity", LINK_FAIL_AUTH, WAY_AUTH},
	{"Bad owner or permissions", LINK_FAIL_AUTH, WAY_CONFIG},
	{"Bad configuration option", LINK_FAIL_AUTH, WAY_CONFIG},
	{"bad configuration option", LINK_FAIL_AUTH, WAY_CONFIG},
	{"Unable to negotiate with", LINK_FAIL_AUTH, WAY_CONFIG},
	{"no matching ", LINK_FAIL_AUTH, WAY_CONFIG},
	{"Could not resolve hostname", LINK_FAIL_NET, WAY_NONE},
	{"Connection refused", LINK_FAIL_NET, WAY_NONE},
	{"timed out", LINK_FAIL_NET, WAY_NONE},
	{"No route to host", LINK_FAIL_NET, WAY_NONE},
	{"Network is unreachable", LINK_FAIL_NET, WAY_NONE},
	{"System is booting up", LINK_FAIL_NET, WAY_NONE},
	{"not responding", LINK_FAIL_NET, WAY_NONE},
	{"open failed", LINK_FAIL_NET, WAY_NONE},
	{"Connection reset", LINK_FAIL_NET, WAY_NONE},
	{"Connection closed", LINK_FAIL_NET, WAY_NONE},
	{"kex_exchange_identification", LINK_FAIL_NET, WAY_NONE},
	{"banner exchange", LINK_FAIL_NET, WAY_NONE},
	{"Broken pipe", LINK_FAIL_NET, WAY_NONE},
};

/* The line of `text` that `at` points into, without white space at its ends, cleaned. */
static void put_line(struct buf *out, const char *text, const char *at)
{
	const char *start = at, *end = at + strcspn(at, "\r\n");

	while (start > text && start[-1] != '\n')
		start--;
	while (start < end && (*start == ' ' || *start == '@'))
		start++;
	while (end > start && (end[-1] == ' ' || end[-1] == '.'))
		end--;
	text_put_clean(out, start, (size_t)(end - start) < 300 ? (size_t)(end - start) : 300);
}

/* The last line that isn't empty; NULL without. */
static const char *last_line(const char *text)
{
	const char *last = NULL;

	for (const char *at = text; *at;) {
		size_t n = strcspn(at, "\r\n");

		if (n)
			last = at;
		at += n;
		at += strspn(at, "\r\n");
	}
	return last;
}

/* ssh names the very command that removes the old key; and which file and line it stands in. */
static void put_changed(struct buf *out, const char *said, const char *command)
{
	const char *remove = strstr(said, "ssh-keygen -f");

	buf_puts(out,
		"the host key is another one than before: either the machine was installed anew, or somebody sits in "
		"between. If the new key is right, run `");
	if (remove)
		put_line(out, remove, remove);
	else
		buf_puts(out, "ssh-keygen -R HOST");
	buf_printf(out, "` and then `%s true` to accept it", command);
}

static void put_unknown(struct buf *out, const char *command)
{
	buf_printf(out,
		"the host key isn't known yet, and unknown keys aren't accepted silently: run `%s -o "
		"StrictHostKeyChecking=ask true` in a terminal, compare the fingerprint, and accept it",
		command);
}

static void put_auth(struct buf *out, const char *said, const char *at, const char *command)
{
	const char *load = strstr(said, "Load key ");

	put_line(out, said, at);
	if (load) {
		buf_puts(out, "; ");
		put_line(out, said, load);
	}
	buf_printf(out,
		": see whether `%s true` lets you in, with a key in your agent or a password in config.yml",
		command);
}

static void put_sentence(
	struct buf *out, enum way_out way, const char *said, const char *at, const char *command)
{
	switch (way) {
	case WAY_CHANGED:
		put_changed(out, said, command);
		break;
	case WAY_UNKNOWN:
		put_unknown(out, command);
		break;
	case WAY_AUTH:
		put_auth(out, said, at, command);
		break;
	case WAY_CONFIG:
		put_line(out, said, at);
		buf_printf(out, ": `%s true` shows the same; mend ssh's configuration", command);
		break;
	case WAY_NONE:
		put_line(out, said, at);
		break;
	}
}

static enum link_failure shell_failure(
	int status, const char *said, const char *noise, struct buf *out)
{
	const char *last = last_line(said);

	buf_printf(out, "the login shell ended with status %d before it came to gpustow's line",
		status);
	if (*noise)
		buf_printf(out, "; the last it printed was \"%s\"", noise);
	if (last) {
		buf_puts(out, "; on stderr: \"");
		put_line(out, said, last);
		buf_puts(out, "\"");
	}
	buf_puts(out,
		". Look for an exit, exec or read in the account's login files (~/.bashrc, ~/.profile, ...)");
	return LINK_FAIL_SHELL;
}

enum link_failure ssh_failure(
	int status, const char *said, const char *command, const char *noise, struct buf *out)
{
	const char *last;

	if (status != 255)
		return shell_failure(status, said, noise, out);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const char *at = strstr(said, table[i].words);

		if (at) {
			put_sentence(out, table[i].way, said, at, command);
			return table[i].kind;
		}
	}
	last = last_line(said);
	if (last)
		put_line(out, said, last);
	else
		buf_puts(out, "the connection was lost, and ssh said nothing");
	return LINK_FAIL_NET;
}
