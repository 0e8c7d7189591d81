/*
 * Any bytes as queue.yml, as config.yml with its queue:, or, divided by the first "%\n", as both. Whatever is taken keeps its
 * limits, and what's dumped of it is read back as the same.
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "config/queue_inner.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool is_right)
{
	if (!is_right)
		abort();
}

static void check_settings(const struct queue_settings *s)
{
	CLEANUP(buf_done) struct buf text = {0}, again_text = {0};
	struct queue_config again = {0};
	struct err e = {0};

	check(s->headroom_mib >= 0 && s->idle_threshold_mib >= 0 && s->default_vram_mib >= -1);
	check(s->lock_ttl_ms >= 62000 && s->probe_timeout_ms >= 1000 &&
		s->launch_timeout_ms >= 1000);
	check(s->kill_grace_ms >= 0 && s->kill_grace_ms <= QUEUE_DAY);
	check(s->spike_buffer >= 0 && s->spike_buffer <= 10);
	check(s->job_root && *s->job_root && s->job_root[0] != '-' && s->local_node_name &&
		*s->local_node_name);
	check(s->placement <= QUEUE_PACK && s->node_loss <= NODE_LOSS_FAIL &&
		s->on_dependency < ON_DEPENDENCY_N);
	check(s->captured_output_bytes <= 1 << 20 && !(s->retry_on & 1));
	buf_puts(&text, "queue: ");
	queue_settings_json(s, &text);
	check(queue_config_parse(NULL, 0, "config.yml", text.data, text.len, "queue.yml", false,
		      &again, &e) == 0);
	check(again.warnings.len == 0);
	buf_puts(&again_text, "queue: ");
	queue_settings_json(&again.settings, &again_text);
	check(strcmp(buf_str(&text), buf_str(&again_text)) == 0);
	queue_config_done(&again);
}

static void check_config(const struct queue_config *c)
{
	size_t found;
	struct err e = {0};

	check(c->n_nodes == c->config.n_servers + c->settings.include_local);
	for (size_t i = 0; i < c->n_nodes && i < 50; i++) {
		check(c->nodes[i].name &&
			(c->nodes[i].host != NULL) == (i >= c->settings.include_local));
		check(queue_config_find(c, c->nodes[i].name, &found, &e) == 0 && found == i);
	}
	if (c->remote.host)
		check(c->remote.host[0] != '-' && c->remote.program &&
			c->remote.program[0] != '-' && c->remote.port >= 0 &&
			c->remote.port <= 65535);
	else
		check(!c->remote.program && !c->remote.n_ssh_options);
	check_settings(&c->settings);
}

/* A copy without a NUL behind it: a parser that reads on is caught. */
static char *copy(const uint8_t *data, size_t n)
{
	char *p = xmalloc(n ? n : 1);

	if (n)
		memcpy(p, data, n);
	return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *cut = size ? memmem(data, size, "%\n", 2) : NULL;
	size_t first = cut ? (size_t)(cut - data) : 0, n = size - (cut ? first + 2 : 0);
	CLEANUP_FREE char *config = cut ? copy(data, first) : NULL,
			  *queue = copy(size ? data + size - n : data, n);
	struct queue_config c = {0};
	struct err e = {0};

	/* Without a cut: the same bytes as the one file, then as the other. */
	for (int i = 0; i < (cut ? 1 : 2); i++) {
		int r = i ? queue_config_parse(
				    queue, n, "config.yml", NULL, 0, "queue.yml", true, &c, &e)
			  : queue_config_parse(config, first, "config.yml", queue, n, "queue.yml",
				    false, &c, &e);

		if (r == 0) {
			check_config(&c);
			queue_config_done(&c);
		} else {
			check(e.text[0] && !c.path);
		}
	}
	return 0;
}
