/*
 * One server: what each of its keys may hold, as text. The reader of config.yml and the command line both come through
 * here, so a value is right or wrong in one place. Whatever may reach ssh's command line begins with no hyphen and holds
 * nothing that a shell or ssh_config would take for more than a name.
 */
#include "config/config_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { VALUE_MAX = 1024, GPU_INDEX_MAX = 1023, HOPS_MAX = 16 };

static const char *const auth_names[] = {"auto", "key", "password"};

const char *host_auth_name(enum host_auth auth)
{
	return auth_names[auth];
}

void host_config_done(struct host_config *h)
{
	if (!h)
		return;
	free(h->nickname);
	free(h->hostname);
	free(h->username);
	free(h->identityfile);
	if (h->password)
		explicit_bzero(h->password, strlen(h->password));
	free(h->password);
	free(h->proxyjump);
	free(h->agent_dir);
	free(h->gpus);
	*h = (struct host_config){0};
}

static int bad(struct err *e, const char *key, const char *value, const char *right)
{
	CLEANUP(buf_done) struct buf q = {0};

	text_put_repr(&q, value, strnlen(value, 80));
	return err_set(e, -EINVAL, "%s: %s won't do; %s", key, buf_str(&q), right);
}

bool config_is_printable(const char *s)
{
	CLEANUP(buf_done) struct buf clean = {0};
	size_t n = strlen(s);

	if (utf8_valid_len(s, n) != n || strstr(s, "\xe2\x80\xa8") || strstr(s, "\xe2\x80\xa9") ||
		strstr(s, "\xef\xbf\xbe") || strstr(s, "\xef\xbf\xbf"))
		return false;
	text_put_clean(&clean, s, n);
	return strcmp(buf_str(&clean), s) == 0;
}

static bool is_name(const char *s, size_t n, const char *forbidden)
{
	if (n == 0 || s[0] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f || strchr(forbidden, s[i]))
			return false;
	return true;
}

static int parse_port(const char *s, size_t n, int *ret)
{
	int64_t v;
	char text[8];

	if (n == 0 || n >= sizeof(text) || strspn(s, "0123456789") < n)
		return -EINVAL;
	memcpy(text, s, n);
	text[n] = '\0';
	if (parse_int64(text, &v) < 0 || v < 1 || v > 65535)
		return -ERANGE;
	*ret = (int)v;
	return 0;
}

static int set_text(char **slot, const char *value)
{
	free(*slot);
	*slot = xstrdup(value);
	return 0;
}

static int set_hostname(struct host_config *h, const char *value, struct err *e)
{
	const char *at = strrchr(value, '@');

	if (at)
		return bad(e, "hostname", value, "the part before @ goes into username:");
	/* A bare IPv6 address is fine; [::1] isn't what ssh takes as a host. */
	if (!is_name(value, strlen(value), "\"'`$\\;&|<>(){}*?!#,/[]"))
		return bad(e, "hostname", value, "write a host's name, address or ssh alias");
	return set_text(&h->hostname, value);
}

static int set_username(struct host_config *h, const char *value, struct err *e)
{
	if (!is_name(value, strlen(value), "\"'`$;&|<>(){}*?!#,/:@"))
		return bad(e, "username", value, "write the account's name on that host");
	return set_text(&h->username, value);
}

static int set_auth(struct host_config *h, const char *value, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(auth_names); i++)
		if (strcmp(value, auth_names[i]) == 0) {
			h->auth = (enum host_auth)i;
			return 0;
		}
	return bad(e, "auth", value, "write auto, key or password");
}

/* [user@]host[:port], an IPv6 address in brackets when a port follows or not. */
static bool is_hop(const char *s, size_t n)
{
	const char *at = memrchr(s, '@', n), *host = at ? at + 1 : s;
	size_t left = n - (size_t)(host - s), len;
	int port;

	if (at && !is_name(s, (size_t)(at - s), "\"'`$;&|<>(){}*?!#,/:@"))
		return false;
	if (left > 0 && host[0] == '[') {
		const char *close = memchr(host, ']', left);

		if (!close || close == host + 1 ||
			strspn(host + 1, "0123456789abcdefABCDEF:.") < (size_t)(close - host - 1))
			return false;
		len = (size_t)(close - host) + 1;
	} else {
		const char *colon = memchr(host, ':', left);

		len = colon ? (size_t)(colon - host) : left;
		if (!is_name(host, len, "\"'`$\\;&|<>(){}*?!#,/[]:"))
			return false;
	}
	if (len == left)
		return true;
	return host[len] == ':' && parse_port(host + len + 1, left - len - 1, &port) == 0;
}

static int set_proxyjump(struct host_config *h, const char *value, struct err *e)
{
	CLEANUP(buf_done) struct buf hops = {0};
	size_t n_hops = 0;
	bool has_none = false;

	for (const char *p = value;; p++) {
		size_t n = strcspn(p, ",");
		const char *hop = p;

		p += n;
		utf8_trim(&hop, &n);
		if (n == 4 && strncasecmp(hop, "none", 4) == 0)
			has_none = true;
		else if (!is_hop(hop, n))
			return bad(e, "proxyjump", value,
				"write [user@]host[:port], several with commas, an IPv6 address in brackets");
		if (++n_hops > HOPS_MAX)
			return bad(e, "proxyjump", value, "16 hops are the most");
		buf_printf(&hops, "%s%.*s", hops.len ? "," : "", (int)n, hop);
		if (!*p)
			break;
	}
	if (has_none && n_hops > 1)
		return bad(
			e, "proxyjump", value, "none stands alone: it means a direct connection");
	free(h->proxyjump);
	h->proxyjump = has_none ? NULL : buf_take(&hops);
	return 0;
}

int host_config_add_gpu(struct host_config *h, int64_t index)
{
	if (index < 0 || index > GPU_INDEX_MAX)
		return -ERANGE;
	h->has_gpus = true;
	for (size_t i = 0; i < h->n_gpus; i++)
		if (h->gpus[i] == index)
			return 0;
	h->gpus = xreallocarray(h->gpus, h->n_gpus + 1, sizeof(*h->gpus));
	h->gpus[h->n_gpus++] = (int32_t)index;
	return 0;
}

static int set_gpus(struct host_config *h, const char *value, struct err *e)
{
	h->n_gpus = 0;
	h->has_gpus = true;
	if (strcmp(value, "none") == 0)
		return 0;
	for (const char *p = value;; p++) {
		size_t n = strcspn(p, ",");
		CLEANUP_FREE char *word = NULL;
		const char *s = p;
		int64_t index;

		p += n;
		utf8_trim(&s, &n);
		word = xstrndup(s, n);
		if (parse_int64(word, &index) < 0 || host_config_add_gpu(h, index) < 0)
			return bad(e, "gpus", value,
				"write the GPUs' numbers as 0,1,3, or none for no GPU jobs there");
		if (!*p)
			return 0;
	}
}

static int set_port(struct host_config *h, const char *value, struct err *e)
{
	if (parse_port(value, strlen(value), &h->port) < 0)
		return bad(e, "port", value, "write a number from 1 to 65535");
	return 0;
}

static int set_path(char **slot, const char *key, const char *value, struct err *e)
{
	if (value[0] == '-')
		return bad(e, key, value, "a path can't begin with a hyphen; write ./ in front");
	return set_text(slot, value);
}

int host_config_set(struct host_config *h, const char *key, const char *value, struct err *e)
{
	bool is_secret = strcmp(key, "password") == 0;

	if (!value || !*value)
		return 0;
	if (strlen(value) > VALUE_MAX)
		return err_set(e, -EINVAL, "%s: it has more than %d bytes", key, VALUE_MAX);
	/* A wrong password is never repeated. */
	if (!config_is_printable(value))
		return err_set(
			e, -EINVAL, "%s: it holds control characters; write plain text", key);
	if (is_secret)
		return set_text(&h->password, value);
	if (strcmp(key, "hostname") == 0)
		return set_hostname(h, value, e);
	if (strcmp(key, "port") == 0)
		return set_port(h, value, e);
	if (strcmp(key, "username") == 0)
		return set_username(h, value, e);
	if (strcmp(key, "nickname") == 0)
		return set_text(&h->nickname, value);
	if (strcmp(key, "auth") == 0)
		return set_auth(h, value, e);
	if (strcmp(key, "identityfile") == 0)
		return set_path(&h->identityfile, key, value, e);
	if (strcmp(key, "proxyjump") == 0)
		return set_proxyjump(h, value, e);
	if (strcmp(key, "agent_dir") == 0)
		return set_path(&h->agent_dir, key, value, e);
	if (strcmp(key, "gpus") == 0)
		return set_gpus(h, value, e);
	return err_set(e, -EINVAL, "%s: a server has no such key", key);
}

int host_config_finish(struct host_config *h, struct err *e)
{
	if (!h->hostname)
		return err_set(e, -EINVAL, "hostname: is missing; every server needs one");
	if (!h->port)
		h->port = 22;
	if (!h->nickname)
		h->nickname = xasprintf("%s%s%s:%d", h->username ? h->username : "",
			h->username ? "@" : "", h->hostname, h->port);
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

bool host_config_same_place(const struct host_config *a, const struct host_config *b)
{
	return strcasecmp(a->hostname, b->hostname) == 0 && a->port == b->port &&
	       same_text(a->username, b->username);
}

bool host_config_same(const struct host_config *a, const struct host_config *b)
{
	return host_config_same_place(a, b) && strcmp(a->hostname, b->hostname) == 0 &&
	       same_text(a->nickname, b->nickname) && a->auth == b->auth &&
	       same_text(a->identityfile, b->identityfile) && same_text(a->password, b->password) &&
	       same_text(a->proxyjump, b->proxyjump) && same_text(a->agent_dir, b->agent_dir) &&
	       a->has_gpus == b->has_gpus && a->n_gpus == b->n_gpus &&
	       (a->n_gpus == 0 || memcmp(a->gpus, b->gpus, a->n_gpus * sizeof(*a->gpus)) == 0);
}
