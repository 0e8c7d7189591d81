/*
 * Whom a pass asks, and how long it waits for whom; nobody waits for a dead one.
 *
 * A pass that stands alone waits for a node, from when the last other one answered:
 *   up, or never seen before   3 s
 *   down, by the last pass     1.5 s: enough to show life, and it's asked less and less often
 *   any whose shell has spoken 8 s: it's there, and slow (an agent on its way, a login that takes its time)
 * and for none longer than probe_timeout.
 *
 * A daemon has its links already. It waits for a node four times as long as that one usually takes, a second at most, and not
 * at all while it owes an answer from before; when that comes, it's for the next pass.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "fleet/text_sample.h"

#include <stdlib.h>
#include <string.h>

#define WAIT_MS 3000
#define WAIT_DOWN_MS 1500
#define WAIT_ALIVE_MS 8000
#define WAIT_LONG_EACH \
	4 /* one failure of so many: a node that was down has as long as one that spoke */
#define HELD_MIN_MS 100
#define HELD_MAX_MS 1000
#define HELD_TIMES 4
#define REUSE_MS 500 /* an answer that nothing has happened since may serve another pass */
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

/* ---- what a link says ---- */

static void fail(struct pass_node *n, const char *why)
{
	char *copy = xstrdup(why);

	free(n->why);
	n->why = copy;
	n->contact = CONTACT_FAILED;
}

static void take_answer(struct pass_node *n)
{
	struct pool_link *l = n->held;

	n->claims = l->claims;
	n->lanes = l->lanes;
	n->sample = l->sample;
	n->has_sample = true;
	n->contact = CONTACT_ANSWERED;
	n->pass->answered_ms = clock_boot_ms();
}

static void take_hello(struct pass_node *n)
{
	n->hello = n->held->hello;
	n->clock_offset_ms = n->held->clock_offset_ms;
}

static void is_up_now(struct pass_node *n)
{
	struct pool_link *l = n->held;

	take_hello(n);
	if (l->is_stale) {
		fail(n, LINK_STALE);
	} else if (n->contact == CONTACT_OPENING) {
		n->contact = CONTACT_UP;
		exchange_begin(n);
	} else if (n->contact == CONTACT_UP && l->answered_ms) {
		take_answer(n);
	}
}

void links_changed(struct pass_node *n)
{
	struct pool_link *l = n->held;
	bool is_local = n->config && !n->config->host;

	if (n->pass->stage == PASS_OVER)
		return;
	if (l->is_up) {
		is_up_now(n);
		return;
	}
	if (l->is_parted)
		take_hello(n);
	n->has_no_agent |= l->has_no_agent;
	if (!l->why || n->contact == CONTACT_NONE || n->contact == CONTACT_FAILED)
		return;
	/* This machine's agent may just be leaving its place to another one: once more, at once. */
	if (n->contact == CONTACT_OPENING && is_local && l->n_downs < 3 && !l->is_parted)
		return;
	/* nvidia-smi's text is asked for first. */
	if (n->contact == CONTACT_OPENING && l->has_no_agent && !n->has_asked) {
		free(n->why);
		n->why = xstrdup(l->why);
		return;
	}
	fail(n, l->why);
}

/* ---- opening ---- */

static const struct host_config *host_of(struct pass_node *n)
{
	if (n->config || !n->row)
		return n->config ? n->config->host : NULL;
	n->made = (struct host_config){.nickname = (char *)(uintptr_t)n->name,
		.hostname = n->row->hostname,
		.port = n->row->port ? (int)n->row->port : 22,
		.username = n->row->username};
	return &n->made;
}

static bool is_this_machine(const struct pass_node *n)
{
	if (n->config || !n->row)
		return n->config && !n->config->host;
	return !n->row->hostname || (!strcmp(n->row->hostname, LOCAL_HOST) && !n->row->port);
}

static void attach(struct pass *p, struct pass_node *n)
{
	struct pool_link *l = pool_get(p->pool, n->name, is_this_machine(n) ? NULL : host_of(n));

	n->held = l;
	l->node = n;
	n->link = l->link;
}

/* A daemon's link, as it is by now. */
static void look_at_held(struct pass_node *n)
{
	struct pool_link *l = n->held;
	int64_t now_ms = clock_boot_ms();

	if (l->is_up || l->is_parted)
		take_hello(n);
	n->has_no_agent = l->has_no_agent;
	if (l->is_up && !l->is_stale) {
		n->contact = CONTACT_UP;
		if (!pool_owes(l) && l->answered_ms && !l->is_used_up && !n->pass->is_asked_for &&
			now_ms - l->answered_ms < REUSE_MS)
			take_answer(n);
		else if (!pool_owes(l))
			exchange_begin(n);
	} else if (l->why) {
		fail(n, l->why);
		n->has_sample = l->has_no_agent && l->has_sample;
		if (n->has_sample)
			n->sample = l->sample;
	}
}

void links_open(struct pass *p)
{
	for (size_t i = 0; i < p->pool->n; i++)
		p->pool->v[i]->node = NULL;
	list_nodes(p);
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (n->row && n->row->is_ignored)
			continue;
		if (!p->is_held && is_in_backoff(n))
			continue;
		attach(p, n);
		if (p->is_held)
			look_at_held(n);
		else if (n->link)
			n->contact = CONTACT_OPENING;
		else
			fail(n, n->held->why);
	}
	pool_sweep(p->pool);
	p->answered_ms = clock_boot_ms();
}

/* ---- waiting ---- */

static bool has_spoken(const struct pass_node *n)
{
	struct link_ssh_steps steps;

	/* This machine is there; its agent may just be starting. */
	if (n->contact == CONTACT_UP || is_this_machine(n))
		return true;
	if (!n->link)
		return false;
	link_ssh_steps(n->link, &steps);
	return steps.connected_at_ms >= 0;
}

static int64_t patience(const struct pool_link *l)
{
	int64_t ms = HELD_TIMES * l->usual_ms;

	return ms < HELD_MIN_MS ? HELD_MIN_MS : ms > HELD_MAX_MS ? HELD_MAX_MS : ms;
}

/* Seldom it's waited for as long as a slow handshake takes: else who has one would never be seen again. */
static int64_t wait_for_silent(const struct pass_node *n)
{
	if (!was_down(n))
		return WAIT_MS;
	return n->row->n_failures % WAIT_LONG_EACH == WAIT_LONG_EACH - 1 ? WAIT_ALIVE_MS
									 : WAIT_DOWN_MS;
}

static int64_t deadline_of(const struct pass_node *n)
{
	const struct pass *p = n->pass;
	int64_t wait, at, last = p->begun_ms + p->config->settings.probe_timeout_ms;

	if (p->is_held)
		return n->held->asked_ms + patience(n->held);
	wait = has_spoken(n) ? WAIT_ALIVE_MS : wait_for_silent(n);
	at = p->answered_ms + wait;
	return at < last ? at : last;
}

static bool is_waited_for(const struct pass_node *n)
{
	return (n->contact == CONTACT_OPENING || n->contact == CONTACT_UP) &&
	       clock_boot_ms() < deadline_of(n);
}

static void on_text(void *arg, int status, const char *out, size_t n, const char *err_text)
{
	struct pool_link *l = arg;
	struct pass_node *node = l->node;
	struct err e;

	(void)err_text;
	if (l->has_sample || l->is_up)
		return;
	if (status == 0 && !text_sample_parse(out, n, &l->sample, &e)) {
		l->sample.wall_ms = clock_wall_ms();
		l->has_sample = true;
	}
	if (!node || node->contact != CONTACT_OPENING)
		return;
	node->sample = l->sample;
	node->has_sample = l->has_sample;
	node->contact = CONTACT_FAILED;
}

static void ask_for_text(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (!n->has_no_agent || n->has_asked || !n->link || link_is_up(n->link))
			continue;
		if (!p->is_held && n->contact != CONTACT_OPENING)
			continue;
		n->has_asked = true;
		link_run_text(n->link, text_sample_command, p->config->settings.probe_timeout_ms,
			TEXT_SAMPLE_MAX, on_text, n->held);
	}
}

bool links_turn(struct pass *p)
{
	bool any = false;

	pool_ask_the_stale(p->pool);
	ask_for_text(p);
	pool_part_twins(p->pool);
	for (size_t i = 0; i < p->n_nodes; i++) {
		if (!is_waited_for(&p->nodes[i]))
			continue;
		any = true;
		pass_look_at(p, deadline_of(&p->nodes[i]));
	}
	return any;
}

void links_conclude(struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (p->is_held && n->contact == CONTACT_UP &&
			clock_boot_ms() - n->held->asked_ms < WAIT_MS)
			n->contact = CONTACT_NONE; /* late: in the next pass */
		else if (n->contact == CONTACT_UP)
			fail(n, "it said hello, but didn't answer what it was asked in time");
		else if (n->contact == CONTACT_OPENING)
			fail(n, n->has_no_agent ? n->why : "it didn't answer in time");
	}
}

static bool has_twin(const struct pass *p, const struct pass_node *n)
{
	for (size_t i = 0; i < p->n_nodes; i++)
		if (&p->nodes[i] != n && !strcmp(p->nodes[i].hello.root_id, n->hello.root_id))
			return true;
	return false;
}

/* A link of this same pass has the same rank: only the one behind it is turned away so. */
static bool is_outrun(const struct pass_node *n)
{
	const struct store_lease *l = &n->pass->lease;
	uint64_t incarnation = (uint64_t)l->incarnation, epoch = (uint64_t)l->epoch;
	const uint64_t *above = n->held ? n->held->above : NULL;

	if (!above || !n->held->is_stale || !above[0])
		return false;
	if (above[0] != incarnation || above[1] != epoch)
		return above[0] > incarnation || (above[0] == incarnation && above[1] > epoch);
	return n->hello.root_id[0] && !has_twin(n->pass, n);
}

int links_check_record(struct pass *p, struct err *e)
{
	const struct pass_node *first = NULL;
	uint64_t above[2] = {0};
	int r;

	for (size_t i = 0; i < p->n_nodes; i++) {
		const struct pass_node *n = &p->nodes[i];

		if (!is_outrun(n))
			continue;
		first = n;
		for (size_t k = 0; k < 2; k++)
			above[k] = n->held->above[k] > above[k] ? n->held->above[k] : above[k];
	}
	if (!first || above[0] > INT64_MAX - 1 || above[1] > INT64_MAX - 1)
		return 0;
	r = store_lease_outrun(p->store, &p->lease, (int64_t)above[0], (int64_t)above[1], e);
	if (r < 0)
		return r;
	return err_set(e, -EAGAIN,
		"%s has work of a later state of this queue: its database was put back, or is one of two copies. "
		"What the nodes have is looked at before anything starts",
		first->name);
}

bool node_answers(const struct pass_node *n)
{
	return n->contact == CONTACT_ANSWERED && !n->refused && n->link && link_is_up(n->link);
}

bool links_unsent(const struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++)
		if (p->nodes[i].link && link_unsent(p->nodes[i].link))
			return true;
	return false;
}

void links_close(struct pass *p)
{
	lanes_drop(p);
	for (size_t i = 0; i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];

		if (n->held)
			n->held->node = NULL;
		free(n->why);
		free(n->refused);
		json_decref(n->acks);
		inventory_done(&n->known);
		inventory_done(&n->inventory);
	}
	free(p->nodes);
	p->nodes = NULL;
	p->n_nodes = 0;
}
