/*
 * The links of a controller: one for each node's name. They outlive the passes of a daemon; a pass that stands alone makes
 * them and lets go of them. Each brings its own back-off and its pings (fleet/link.h); here are who commands which root, and
 * the question that's open.
 */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "fleet/ssh_site.h"
#include "fleet/text_sample.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_STALE_MS 30000
/* A link that's made anew in the same epoch has a higher number than the one before it, however often that one came back. */
#define NUMBERS_EACH ((uint64_t)1 << 20)
#define RETRY_PERSON_MS 60000 /* what waits for a person is tried again so often */
#define TEXT_LIMIT_MS 25000

static void set_why(struct pool_link *l, const char *why)
{
	char *copy = why ? xstrdup(why) : NULL;

	free(l->why);
	l->why = copy;
}

/* ---- the host it leads to ---- */

static char *copy_text(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static void copy_host(const struct host_config *from, struct host_config *to)
{
	*to = (struct host_config){.nickname = copy_text(from->nickname),
		.hostname = copy_text(from->hostname),
		.port = from->port,
		.username = copy_text(from->username),
		.auth = from->auth,
		.identityfile = copy_text(from->identityfile),
		.password = copy_text(from->password),
		.proxyjump = copy_text(from->proxyjump),
		.agent_dir = copy_text(from->agent_dir)};
}

static bool same_text(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

static bool same_host(const struct host_config *a, const struct host_config *b)
{
	return same_text(a->hostname, b->hostname) && a->port == b->port &&
	       same_text(a->username, b->username) && a->auth == b->auth &&
	       same_text(a->identityfile, b->identityfile) && same_text(a->password, b->password) &&
	       same_text(a->proxyjump, b->proxyjump) && same_text(a->agent_dir, b->agent_dir);
}

/* ---- the answer ---- */

static void drop_answer(struct pool_link *l)
{
	if (l->node) {
		l->node->claims = l->node->lanes = NULL;
		l->node->has_sample = false;
		l->node->sample = (struct sample){0};
	}
	json_decref(l->claims);
	json_decref(l->lanes);
	l->claims = l->lanes = NULL;
	sample_done(&l->sample);
	l->sample = (struct sample){0};
	l->is_observed = l->has_sample = l->is_used_up = false;
	l->answered_ms = 0;
}

bool pool_owes(const struct pool_link *l)
{
	return l->question && !l->answered_ms;
}

static json_int_t observe_id(const struct pool_link *l)
{
	return 2 * (json_int_t)l->question;
}

static json_int_t sample_id(const struct pool_link *l)
{
	return observe_id(l) + 1;
}

void pool_ask(struct pool_link *l, json_t *want)
{
	drop_answer(l);
	l->claims = json_object();
	l->lanes = json_object();
	l->question++;
	l->asked_ms = clock_boot_ms();
	link_send(l->link,
		json_pack("{s:s, s:I, s:o}", "op", "observe", "id", observe_id(l), "want", want));
	link_send(l->link, json_pack("{s:s, s:I}", "op", "sample", "id", sample_id(l)));
}

static void tell(struct pool_link *l, bool is_news)
{
	if (l->node)
		links_changed(l->node);
	if (l->pool->changed)
		l->pool->changed(l->pool->arg, l, is_news);
}

static void look_whether_all_is_here(struct pool_link *l)
{
	int64_t took;

	if (!l->is_observed || !l->has_sample || l->answered_ms)
		return;
	l->answered_ms = clock_boot_ms();
	took = l->answered_ms - l->asked_ms;
	l->usual_ms = l->usual_ms < 0 ? took : (3 * l->usual_ms + took) / 4;
	tell(l, false);
}

static void on_observed(struct pool_link *l, const json_t *msg)
{
	json_t *claim;
	size_t i;

	if (!pool_owes(l) || json_integer_value(json_object_get(msg, "id")) != observe_id(l))
		return;
	json_array_foreach(json_object_get(msg, "claims"), i, claim)
	{
		char key[64];

		snprintf(key, sizeof(key), "%lld.%lld",
			(long long)json_integer_value(json_object_get(claim, "job")),
			(long long)json_integer_value(json_object_get(claim, "attempt")));
		json_object_set(l->claims, key, claim);
	}
	lanes_observed(l, json_object_get(msg, "lanes"));
	/* Absence means something only once all of the answer is here. */
	l->is_observed = !json_is_true(json_object_get(msg, "more"));
	look_whether_all_is_here(l);
}

static void on_sample(struct pool_link *l, const json_t *msg)
{
	json_int_t id = json_integer_value(json_object_get(msg, "id"));
	bool is_answer = pool_owes(l) && id == sample_id(l) && !l->has_sample;
	struct sample s = {0};
	struct err e = {0};

	if (!is_answer && (id || !l->pool->pushed))
		return;
	if (sample_decode(msg, &s, &e) < 0) {
		if (l->node)
			pass_say_error(
				l->node->pass, l->name, 0, "its sample can't be read: %s", e.text);
		return;
	}
	if (is_answer) {
		l->sample = s;
		l->has_sample = true;
		look_whether_all_is_here(l);
	} else {
		l->pool->pushed(l->pool->arg, l, &s);
		sample_done(&s);
	}
}

/* ---- what a link says ---- */

static void send_watch(struct pool_link *l)
{
	link_send(l->link,
		json_pack("{s:s, s:I}", "op", "watch", "interval_ms", (json_int_t)l->watch_ms));
}

static void on_up(void *arg, const struct link_hello *hello)
{
	struct pool_link *l = arg;

	l->hello = *hello;
	l->is_up = true;
	l->has_no_agent = false;
	l->question = 0;
	l->changed_ms = clock_boot_ms();
	l->clock_offset_ms = hello->wall_ms + link_rtt_ms(l->link) / 2 - clock_wall_ms();
	if (l->is_stale)
		set_why(l, LINK_STALE);
	else
		set_why(l, NULL);
	if (l->watch_ms)
		send_watch(l);
	tell(l, true);
}

static void on_down(void *arg, const char *why)
{
	struct pool_link *l = arg;
	bool is_news = l->is_up || !l->why;

	l->n_downs++;
	if (is_news)
		l->changed_ms = clock_boot_ms();
	l->is_up = false;
	l->has_no_agent = link_failure(l->link) == LINK_FAIL_AGENT;
	l->question = 0;
	drop_answer(l);
	if (!l->is_parted)
		l->hello = (struct link_hello){0};
	if (!l->is_stale && !strcmp(why, LINK_STALE)) {
		/* It's asked who it is, before anything is said of it. */
		l->is_stale = true;
		link_stale_fence(l->link, l->above);
		l->retry_ms = 0;
		if (l->pool->changed)
			l->pool->changed(l->pool->arg, l, false);
		return;
	}
	set_why(l, why);
	tell(l, is_news);
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	struct pool_link *l = arg;

	if (!strcmp(op, "observed"))
		on_observed(l, msg);
	else if (!strcmp(op, "sample"))
		on_sample(l, msg);
	else if (l->node)
		exchange_message(l->node, op, msg);
}

/* ---- making and letting go ---- */

static void open_link(struct pool_link *l)
{
	struct link_pool *p = l->pool;
	const struct link_who who = {.who = "queue",
		.queue = l->is_stale ? NULL : p->queue,
		.incarnation = (uint64_t)p->lease.incarnation,
		.epoch = (uint64_t)p->lease.epoch,
		.number = p->n_closed * NUMBERS_EACH};
	const struct link_owner owner = {
		.arg = l, .up = on_up, .message = on_message, .down = on_down};
	struct link_ssh_options ssh = {.home = p->home};
	struct err e = {0};

	l->changed_ms = clock_boot_ms();
	if (!l->host.hostname) {
		l->link = link_new_local(p->base, &who, &owner);
	} else {
		if (!p->site && !p->no_site.text[0] &&
			ssh_site_new(p->base, p->home, false, &p->site, &p->no_site) < 0)
			p->site = NULL;
		ssh.site = p->site;
		if (p->site)
			l->link = link_new_ssh(p->base, &l->host, &ssh, &who, &owner, &e);
		if (!l->link)
			set_why(l, p->site ? e.text : p->no_site.text);
	}
	if (l->node)
		l->node->link = l->link;
}

static void close_link(struct pool_link *l, bool for_good)
{
	if (l->pool->closing)
		l->pool->closing(l->pool->arg, l, for_good);
	if (l->link)
		l->pool->n_closed++;
	link_free(l->link);
	l->link = NULL;
	l->is_up = false;
	l->question = 0;
	drop_answer(l);
	if (l->node)
		l->node->link = NULL;
}

static void free_one(struct pool_link *l)
{
	close_link(l, true);
	if (l->node)
		l->node->held = NULL;
	host_config_done(&l->host);
	free(l->why);
	free(l->name);
	free(l);
}

void pool_reopen(struct pool_link *l)
{
	close_link(l, false);
	l->is_stale = l->is_parted = false;
	l->hello = (struct link_hello){0};
	open_link(l);
}

void pool_init(struct link_pool *p, struct event_base *base, const char *home, const char *queue,
	const struct store_lease *lease)
{
	*p = (struct link_pool){.base = base, .home = home, .queue = queue, .lease = *lease};
}

static struct pool_link *add(struct link_pool *p, const char *name, const struct host_config *host)
{
	struct pool_link *l = xcalloc(1, sizeof(*l));

	l->pool = p;
	l->name = xstrdup(name);
	l->usual_ms = l->used_mib = -1;
	if (host)
		copy_host(host, &l->host);
	GROW(p->v, p->n, p->cap);
	p->v[p->n++] = l;
	return l;
}

struct pool_link *pool_get(struct link_pool *p, const char *name, const struct host_config *host)
{
	static const struct host_config here = {0};
	struct pool_link *l = NULL;

	for (size_t i = 0; !l && i < p->n; i++)
		if (!strcmp(p->v[i]->name, name))
			l = p->v[i];
	if (l && !same_host(&l->host, host ? host : &here)) {
		close_link(l, false);
		host_config_done(&l->host);
		l->host = (struct host_config){0};
		if (host)
			copy_host(host, &l->host);
		set_why(l, NULL);
		l->is_stale = l->is_parted = l->has_no_agent = false;
		l->hello = (struct link_hello){0};
		l->n_downs = 0;
		open_link(l);
	} else if (!l) {
		l = add(p, name, host);
		open_link(l);
	}
	return l;
}

void pool_sweep(struct link_pool *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++) {
		if (p->v[i]->node)
			p->v[n++] = p->v[i];
		else
			free_one(p->v[i]);
	}
	p->n = n;
}

void pool_clear(struct link_pool *p)
{
	for (size_t i = 0; i < p->n; i++)
		free_one(p->v[i]);
	free(p->v);
	p->v = NULL;
	p->n = p->cap = 0;
	ssh_site_free(p->site);
	p->site = NULL;
	p->no_site = (struct err){0};
}

/* ---- who commands which root ---- */

static bool has_twin(const struct link_pool *p, const struct pool_link *l)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i] != l && p->v[i]->hello.root_id[0] &&
			!strcmp(p->v[i]->hello.root_id, l->hello.root_id))
			return true;
	return false;
}

/* The answers so far say enough. */
void pool_part_twins(struct link_pool *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct pool_link *l = p->v[i];

		if (!l->link || !l->hello.root_id[0] || !has_twin(p, l))
			continue;
		close_link(l, false);
		l->is_parted = true;
		l->retry_ms = clock_boot_ms() + RETRY_STALE_MS;
		set_why(l, "it is another node's machine");
		tell(l, true);
	}
}

void pool_ask_the_stale(struct link_pool *p)
{
	for (size_t i = 0; i < p->n; i++) {
		struct pool_link *l = p->v[i];

		if (!l->is_stale || l->retry_ms)
			continue;
		close_link(l, false);
		l->retry_ms = clock_boot_ms() + RETRY_STALE_MS;
		open_link(l);
	}
}

static bool waits_for_person(const struct pool_link *l)
{
	enum link_failure kind = l->link && !l->is_up ? link_failure(l->link) : LINK_FAIL_NONE;

	return kind == LINK_FAIL_AUTH || kind == LINK_FAIL_HOST_KEY || kind == LINK_FAIL_AGENT ||
	       kind == LINK_FAIL_SHELL;
}

void pool_retry(struct link_pool *p)
{
	int64_t now = clock_boot_ms();

	for (size_t i = 0; i < p->n; i++) {
		struct pool_link *l = p->v[i];

		if (l->is_stale || l->is_parted || !l->link) {
			if (now >= l->retry_ms)
				pool_reopen(l);
			l->retry_ms = now >= l->retry_ms ? now + RETRY_STALE_MS : l->retry_ms;
		} else if (waits_for_person(l) && now - l->changed_ms >= RETRY_PERSON_MS) {
			l->changed_ms = now;
			link_retry(l->link);
		}
	}
}

void pool_watch(struct link_pool *p, int64_t interval_ms)
{
	for (size_t i = 0; i < p->n; i++) {
		struct pool_link *l = p->v[i];

		if (l->watch_ms == interval_ms)
			continue;
		l->watch_ms = interval_ms;
		l->used_mib = -1;
		if (l->is_up)
			send_watch(l);
	}
}
