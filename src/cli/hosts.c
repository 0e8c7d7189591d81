/* Shared by the commands about hosts: see hosts.h. Shows no password anywhere. */
#include "cli/hosts.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int hosts_home(const struct program *p, char ret[HOSTS_PATH], struct err *e)
{
	bool is_nvidb = strcmp(p->name, "nvidb") == 0;

	return home_path(is_nvidb ? "NVIDB_HOME" : "GPUSTOW_HOME", is_nvidb ? ".nvidb" : ".gpustow",
		ret, HOSTS_PATH, e);
}

static void say_warnings(const struct program *p, const struct config *c)
{
	CLEANUP(buf_done) struct buf out = {0};
	const char *line = buf_str(&c->warnings);

	while (*line) {
		size_t n = strcspn(line, "\n");

		buf_printf(&out, "%s: warning: ", p->name);
		text_put_clean(&out, line, n);
		buf_putc(&out, '\n');
		line += n + (line[n] == '\n');
	}
	(void)fd_write_all(STDERR_FILENO, buf_str(&out), out.len);
}

int hosts_load(const struct program *p, const char *home, struct config *ret, struct err *e)
{
	int r = config_load(home, ret, e);

	if (r == 0)
		say_warnings(p, ret);
	return r;
}

void hosts_put_place(struct buf *b, const struct host_config *h)
{
	bool is_v6 = strchr(h->hostname, ':') != NULL;

	if (h->username)
		buf_printf(b, "%s@", h->username);
	buf_printf(b, is_v6 ? "[%s]:%d" : "%s:%d", h->hostname, h->port);
}

static json_t *text_or_null(const char *s)
{
	return s ? json_string(s) : json_null();
}

json_t *hosts_json(const struct host_config *h)
{
	json_t *o = json_object(), *gpus = h->has_gpus ? json_array() : json_null();

	for (size_t i = 0; i < h->n_gpus; i++)
		json_array_append_new(gpus, json_integer(h->gpus[i]));
	json_object_set_new(o, "nickname", json_string(h->nickname));
	json_object_set_new(o, "hostname", json_string(h->hostname));
	json_object_set_new(o, "port", json_integer(h->port));
	json_object_set_new(o, "username", text_or_null(h->username));
	json_object_set_new(o, "auth", json_string(host_auth_name(h->auth)));
	json_object_set_new(o, "identityfile", text_or_null(h->identityfile));
	json_object_set_new(o, "proxyjump", text_or_null(h->proxyjump));
	json_object_set_new(o, "agent_dir", text_or_null(h->agent_dir));
	json_object_set_new(o, "gpus", gpus);
	json_object_set_new(o, "has_password", json_boolean(h->password != NULL));
	return o;
}

json_t *hosts_json_all(const struct config *c)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->n_servers; i++)
		json_array_append_new(list, hosts_json(&c->servers[i]));
	return list;
}

int hosts_print_json(json_t *o, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP_FREE char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(15));

	json_decref(o);
	if (!text)
		return err_set(e, -EILSEQ, "the answer holds text that JSON can't carry");
	buf_printf(&out, "%s\n", text);
	return command_print(&out, e);
}
