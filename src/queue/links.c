/*
 * Links of one pass: to all nodes at once, and nobody waits for a dead one.
 *
 * How long a node is waited for, from when the last other one answered:
 *   up, or never seen before   3 s
 *   down, by the last pass     1.5 s: enough to show life, and it's asked less and less often
 *   any whose shell has spoken 8 s: it's there, and slow (an agent on its way, a login that takes its time)
 * and none for longer than probe_timeout.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "fleet/ssh_site.h"
#include "fleet/text_sample.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_MS 3000
#define WAIT_DOWN_MS 1500
#define WAIT_ALIVE_MS 8000
#define FLUSH_MS 300
#define LOCAL_HOST "localhost"

/* ---- whom to ask ---- */

static const struct store_node *row_named(const struct pass *p, const char *name)
{
	for (size_t i = 0; i < p->rows.n; i++)
		if (!strcmp(p->rows.v[i].name, name))
			return &p->rows.v[i];
	return NULL;
}

struct pass_node *pass_node_named(const struct pass *p, const char *name)
{
	for (size_t i = 0; name && i < p->n_nodes; i++)
		if (!strcmp(p->nodes[i].name, name))
			return &p->nodes[i];
	return NULL;
}

struct pass_node *pass_node_of(const struct pass *p, const struct job_bind *b)
{
	struct pass_node *n = pass_node_named(p, b->node);

	for (size_t i = 0; !n && i < p->n_nodes; i++)
		if (b->root_id[0] && !strcmp(p->nodes[i].hello.root_id, b->root_id))
			n = &p->nodes[i];
	return n;
}

static bool has_work(const struct pass *p, const char *name)
{
	for (size_t i = 0; i < p->live.n; i++)
		if (p->live.v[i].bind.node && !strcmp(p->live.v[i].bind.node, name))
			return true;
	for (size_t i = 0; i < p->reaps.n; i++)
		if (p->reaps.v[i].bind.node && !strcmp(p->reaps.v[i].bind.node, name))
			return true;
	return false;
}

static void add_node(struct pass *p, const char *name, const struct queue_node *config)
{
	struct pass_node *n = &p->nodes[p->n_nodes];
	struct err ignored;

	*n = (struct pass_node){.pass = p, .index = p->n_nodes, .name = name, .config = config};
	n->row = row_named(p, name);
	n->claims = json_object();
	n->acks = json_array();
	if (n->row && n->row->inventory)
		inventory_decode(n->row->inventory, &n->known, &ignored);
	p->n_nodes++;
}

static bool same_word(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

/* Its place has another name in the configuration by now: asked under that one, and its work is known by its root (W-42). */
static bool was_renamed(const struct pass *p, const struct store_node *row)
{
	for (size_t i = 0; i < p->config->n_nodes; i++) {
		const struct host_config *h = p->config->nodes[i].host;

		if (!h && !row->port && same_word(row->hostname, LOCAL_HOST))
			return true;
		if (h && h->port == row->port && same_word(h->hostname, row->hostname) &&
			same_word(h->username, row->username))
			return true;
	}
	return false;
}

static void list_nodes(struct pass *p)
{
	const struct queue_config *c = p->config;

	p->nodes = xcalloc(c->n_nodes + p->rows.n + 1, sizeof(*p->nodes));
	for (size_t i = 0; i < c->n_nodes; i++)
		add_node(p, c->nodes[i].name, &c->nodes[i]);
	/* What isn't configured any more is watched until its work is over. */
	for (size_t i = 0; i < p->rows.n; i++)
		if (!pass_node_named(p, p->rows.v[i].name) && has_work(p, p->rows.v[i].name) &&
			!was_renamed(p, &p->rows.v[i]))
			add_node(p, p->rows.v[i].name, NULL);
}

static bool was(const struct pass_node *n, const char *state)
{
	return n->row && n->row->state && !strcmp(n->row->state, state);
}

static bool was_down(const struct pass_node *n)
{
	return was(n, NODE_DOWN);
}

/* Nobody has answered there for long: asked less and less often (nodes.c). A clock that was set back doesn't keep it out. */
static bool is_in_backoff(const struct pass_node *n)
{
	return (was_down(n) || was(n, NODE_TEXT)) && n->pass->now_ms >= n->row->probed_ms &&
	       n->pass->now_ms < n->row->next_try_ms;
}

static bool is_wanted(const struct pass_node *n)
{
	if (n->row && n->row->is_ignored)
		return false;
	return !n->row || !is_in_backoff(n);
}

/* ---- what a link says ---- */

static void set_why(struct pass_node *n, const char *why)
{
	char *copy = xstrdup(why);

	free(n->why);
	n->why = copy;
}

static void fail(struct pass_node *n, const char *why)
{
	set_why(n, why);
	n->contact = CONTACT_FAILED;
}

static void on_up(void *arg, const struct link_hello *hello)
{
	struct pass_node *n = arg;

	n->hello = *hello;
	if (n->is_stale) {
		fail(n, LINK_STALE);
		return;
	}
	n->clock_offset_ms = hello->wall_ms + link_rtt_ms(n->link) / 2 - clock_wall_ms();
	if (n->contact != CONTACT_OPENING)
		return;
	n->contact = CONTACT_UP;
	exchange_begin(n);
}

static void on_down(void *arg, const char *why)
{
	struct pass_node *n = arg;
	enum link_failure kind = link_failure(n->link);
	bool is_local = n->config && !n->config->host;

	n->n_downs++;
	n->has_no_agent |= kind == LINK_FAIL_AGENT;
	/* This machine's agent may just be leaving its place to another one: once more, at once. */
	if (n->contact == CONTACT_OPENING && is_local && n->n_downs < 3)
		return;
	if (n->contact == CONTACT_OPENING && !n->is_stale && !strcmp(why, LINK_STALE))
		n->is_stale = true;
	else if (n->contact == CONTACT_OPENING && kind == LINK_FAIL_AGENT)
		set_why(n, why);
	else if (n->contact != CONTACT_FAILED)
		fail(n, why);
}

/* ---- opening ---- */

static const struct host_config *host_of(struct pass_node *n)
{
	if (n->config)
		return n->config->host;
	n->made = (struct host_config){.nickname = (char *)(uintptr_t)n->name,
		.hostname = n->row->hostname,
		.port = n->row->port ? (int)n->row->port : 22,
		.username = n->row->username};
	return &n->made;
}

static bool is_this_machine(const struct pass_node *n)
{
	if (n->config)
		return !n->config->host;
	return !n->row->hostname || (!strcmp(n->row->hostname, LOCAL_HOST) && !n->row->port);
}

static void open_one(struct pass *p, struct pass_node *n)
{
	const struct link_who who = {.who = "queue",
		.queue = n->is_stale ? NULL : store_queue(p->store),
		.incarnation = (uint64_t)p->lease.incarnation,
		.epoch = (uint64_t)p->lease.epoch};
	const struct link_owner owner = {
		.arg = n, .up = on_up, .message = exchange_message, .down = on_down};
	struct link_ssh_options ssh = {.home = p->options->home, .site = p->site};
	struct err e = {0};

	n->contact = CONTACT_OPENING;
	if (is_this_machine(n)) {
		n->link = link_new_local(p->base, &who, &owner);
		return;
	}
	if (!p->site && !p->no_site.text[0] &&
		ssh_site_new(p->base, p->options->home, false, &p->site, &p->no_site) < 0)
		p->site = NULL;
	if (!p->site) {
		fail(n, p->no_site.text);
		return;
	}
	ssh.site = p->site;
	n->link = link_new_ssh(p->base, host_of(n), &ssh, &who, &owner, &e);
	if (!n->link)
		fail(n, e.text);
}

int links_open(struct pass *p, struct err *e)
{
	(void)e;
	list_nodes(p);
	for (size_t i = 0; i < p->n_nodes; i++)
		if (is_wanted(&p->nodes[i]))
			open_one(p, &p->nodes[i]);
	p->answered_ms = clock_boot_ms();
	return 0;
}

/* ---- waiting ---- */

static bool has_spoken(const struct pass_node *n)
{
	struct link_ssh_steps steps;

	if (n->contact == CONTACT_UP)
		return true;
	if (!n->link || is_this_machine(n))
		return false;
	link_ssh_steps(n->link, &steps);
	return steps.connected_at_ms >= 0;
}

static int64_t deadline_of(const struct pass_node *n)
{
	const struct pass *p = n->pass;
	int64_t wait = has_spoken(n) ? WAIT_ALIVE_MS : was_down(n) ? WAIT_DOWN_MS : WAIT_MS;
	int64_t at = p->answered_ms + wait,
		last = p->begun_ms + p->config->settings.probe_timeout_ms;

	return at < last ? at : last;
}

static bool is_waited_for(const struct pass_node *n)
{
	return (n->contact == CONTACT_OPENING || n->contact == CONTACT_UP) &&
	       clock_boot_ms() < deadline_of(n);
}

static bool is_anyone_waited_for(const struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++)
		if (is_waited_for(&p->nodes[i]))
			return true;
	return false;
}

/* Two links to one agent would only push each other out: the answers so far say enough. */
static bool has_twin(const struct pass *p, const struct pass_node *n)
{
	for (size_t i = 0; i < p->n_nodes; i++)
		if (&p->nodes[i] != n && p->nodes[i].hello.root_id[0] &&
			!strcmp(p->nodes[i].hello.root_id, n->hello.root_id))
			return true;
	return false;
}

static void part_twins(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (!n->link || !n->hello.root_id[0] || !has_twin(p, n))
			continue;
		link_free(n->link);
		n->link = NULL;
		if (n->contact != CONTACT_FAILED)
			fail(n, "it is another node's machine");
	}
}

/*
 * Two links of one pass to one agent are of equal rank: the second is turned away before it's told whose root it is. So it
 * asks once more without wanting to command anything.
 */
static void ask_the_stale(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (!n->is_stale || n->has_asked || n->contact != CONTACT_OPENING)
			continue;
		n->has_asked = true;
		link_free(n->link);
		n->link = NULL;
		open_one(p, n);
	}
}

static void on_text(void *arg, int status, const char *out, size_t n, const char *err_text)
{
	struct pass_node *node = arg;
	struct err e;

	(void)err_text;
	if (node->contact != CONTACT_OPENING)
		return;
	if (status == 0 && !text_sample_parse(out, n, &node->sample, &e)) {
		node->sample.wall_ms = clock_wall_ms();
		node->has_sample = true;
	}
	node->contact = CONTACT_FAILED;
}

static void ask_for_text(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (!n->has_no_agent || n->has_asked || n->contact != CONTACT_OPENING)
			continue;
		n->has_asked = true;
		link_run_text(n->link, text_sample_command, p->config->settings.probe_timeout_ms,
			TEXT_SAMPLE_MAX, on_text, n);
	}
}

void links_wait(struct pass *p)
{
	while (!p->signal_no && is_anyone_waited_for(p)) {
		pass_turn(p);
		ask_the_stale(p);
		ask_for_text(p);
		part_twins(p);
	}
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (n->contact == CONTACT_UP)
			fail(n, "it said hello, but didn't answer what it was asked in time");
		else if (n->contact == CONTACT_OPENING)
			fail(n, n->has_no_agent ? n->why : "it didn't answer in time");
	}
}

bool node_answers(const struct pass_node *n)
{
	return n->contact == CONTACT_ANSWERED && !n->refused && n->link && link_is_up(n->link);
}

void links_flush(struct pass *p)
{
	int64_t until = clock_boot_ms() + FLUSH_MS;
	bool again = true;

	while (again && clock_boot_ms() < until) {
		again = false;
		for (size_t i = 0; i < p->n_nodes; i++)
			again |= p->nodes[i].link && link_unsent(p->nodes[i].link);
		if (again)
			pass_turn(p);
	}
}

void links_close(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		link_free(n->link);
		free(n->why);
		free(n->refused);
		json_decref(n->claims);
		json_decref(n->lanes);
		json_decref(n->acks);
		sample_done(&n->sample);
		inventory_done(&n->known);
		inventory_done(&n->inventory);
	}
	free(p->nodes);
	p->nodes = NULL;
	p->n_nodes = 0;
	ssh_site_free(p->site);
	p->site = NULL;
}
