/*
 * Any bytes as config.yml: read, and edited in each way. What comes out of an edit must be readable and hold what the old
 * file held; the first byte says which edit.
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "config/config_inner.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct config *c)
{
	for (size_t i = 0; i < c->n_servers; i++) {
		const struct host_config *h = &c->servers[i];

		if (!h->nickname || !h->hostname || h->hostname[0] == '-' || h->port < 1 ||
			h->port > 65535)
			abort();
		if ((h->username && h->username[0] == '-') ||
			(h->proxyjump && h->proxyjump[0] == '-'))
			abort();
		if (h->n_gpus && (!h->has_gpus || h->gpus[0] < 0))
			abort();
	}
}

/* Nothing but the server that went is missing, nothing but the new one is new. */
static void check_edit(
	const struct edit *edit, const struct config *before, const char *bytes, size_t n)
{
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP(config_done) struct config after = {0};
	struct err e = {0};
	size_t want = before->n_servers + edit->n_add - (edit->remove != NULL);

	if (edit_apply(edit, bytes, n, "config.yml", &out, &e) < 0) {
		if (!e.text[0] || out.len)
			abort();
		return;
	}
	if (config_parse(buf_str(&out), out.len, "config.yml", &after, &e) < 0)
		abort();
	check(&after);
	if (after.n_servers != want || after.remote != before->remote ||
		after.compact != before->compact)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct host_config host = {
		.hostname = (char *)"new", .nickname = (char *)"a: #b", .port = 22};
	struct edit edit = {0};
	struct config c = {0};
	struct err e = {0};
	size_t n = size ? size - 1 : 0;
	/* A copy without a NUL behind it: a parser that reads on is caught. */
	char *text = malloc(n ? n : 1);

	if (!text)
		abort();
	if (n)
		memcpy(text, data + 1, n);
	if (config_parse(text, n, "config.yml", &c, &e) == 0) {
		check(&c);
		if (data && size && data[0] % 3 == 0)
			edit = (struct edit){.add = &host, .n_add = 1};
		else if (data && size && data[0] % 3 == 1 && c.n_servers)
			edit.remove = c.servers[data[0] / 3 % c.n_servers].nickname;
		else
			edit = (struct edit){.section = "view", .key = "mode", .value = "'nodes'"};
		check_edit(&edit, &c, text, n);
		config_done(&c);
	} else if (!e.text[0] || c.path) {
		abort();
	}
	free(text);
	return 0;
}
