/*
 * The places kept for jobs that have waited too long, between passes that each live in a process of their own. As JSON:
 * {"guards": [[job, "node", ["uuid", ...]], ...], "beside": [[job, attempt, guarded job], ...]}. Cards by UUID, nodes by name:
 * positions are this cluster's only. What can't be read is as if nothing had been kept.
 */
#include "queue/cluster_inner.h"

#include "base/alloc.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define BESIDE_MAX 4096

static uint64_t cards_of(const struct cluster_node *n, const json_t *uuids)
{
	uint64_t cards = 0;

	for (size_t i = 0; i < json_array_size(uuids); i++) {
		const char *uuid = json_string_value(json_array_get(uuids, i));
		size_t at = 0;

		while (uuid && at < n->inv.n_cards && strcmp(n->inv.cards[at].uuid, uuid) != 0)
			at++;
		if (!uuid || at >= n->inv.n_cards || at >= GPU_MAX)
			return 0; /* a place with a card less is none */
		cards |= UINT64_C(1) << at;
	}
	return cards;
}

static void read_guards(struct cluster *c, const json_t *list)
{
	struct cluster_inner *in = c->inner;
	size_t n = json_array_size(list);

	/* One a node. */
	in->guards = xcalloc(c->n_nodes + 1, sizeof(*in->guards));
	for (size_t i = 0; i < n && in->n_guards < c->n_nodes; i++) {
		const json_t *g = json_array_get(list, i);
		const char *name = json_string_value(json_array_get(g, 1));
		int32_t node = name ? cluster_node_named(c, name) : -1;
		uint64_t cards = node < 0 ? 0 : cards_of(&c->nodes[node], json_array_get(g, 2));

		if (cards)
			in->guards[in->n_guards++] = (struct kept_guard){
				json_integer_value(json_array_get(g, 0)), node, cards};
	}
}

static void read_beside(struct cluster *c, const json_t *list)
{
	struct cluster_inner *in = c->inner;
	size_t n = json_array_size(list);

	n = n < BESIDE_MAX ? n : BESIDE_MAX;
	in->beside = xcalloc(n + 1, sizeof(*in->beside));
	for (size_t i = 0; i < n; i++) {
		const json_t *b = json_array_get(list, i);

		in->beside[in->n_beside++] =
			(struct kept_beside){json_integer_value(json_array_get(b, 0)),
				json_integer_value(json_array_get(b, 1)),
				json_integer_value(json_array_get(b, 2))};
	}
}

void guard_read(struct cluster *c, const char *text)
{
	json_t *o = text ? json_loads(text, 0, NULL) : NULL;

	read_guards(c, json_object_get(o, "guards"));
	read_beside(c, json_object_get(o, "beside"));
	json_decref(o);
}

const struct kept_guard *guard_of(const struct cluster *c, int64_t job)
{
	for (size_t i = 0; i < c->inner->n_guards; i++)
		if (c->inner->guards[i].job == job)
			return &c->inner->guards[i];
	return NULL;
}

uint64_t beside_of(const struct cluster *c, int64_t job, int64_t attempt)
{
	for (size_t i = 0; i < c->inner->n_beside; i++)
		if (c->inner->beside[i].job == job && c->inner->beside[i].attempt == attempt)
			return (uint64_t)c->inner->beside[i].guard;
	return 0;
}

static json_t *uuids_of(const struct cluster_node *n, uint64_t cards)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n->inv.n_cards && i < GPU_MAX; i++)
		if (cards >> i & 1)
			json_array_append_new(a, json_string(n->inv.cards[i].uuid));
	return a;
}

static bool is_guarded(const struct cluster *c, const struct cluster_plan *p, uint64_t job)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->decisions[i].guard_cards && (uint64_t)c->pending.v[i].id == job)
			return true;
	return false;
}

static void put_beside(json_t *list, int64_t job, int64_t attempt, int64_t guard)
{
	json_array_append_new(list,
		json_pack("[I,I,I]", (json_int_t)job, (json_int_t)attempt, (json_int_t)guard));
}

char *cluster_guard_text(const struct cluster *c, const struct cluster_plan *p)
{
	json_t *guards = json_array(), *beside = json_array(), *o;
	char *text = NULL;

	for (size_t i = 0; i < p->n; i++) {
		const struct plan_decision *d = &p->decisions[i];
		const struct job *j = &c->pending.v[i];

		if (d->what == PLAN_WAIT && d->guard_cards)
			json_array_append_new(guards,
				json_pack("[I,s,o]", (json_int_t)j->id,
					cluster_node_name(&c->nodes[d->guard_node]),
					uuids_of(&c->nodes[d->guard_node], d->guard_cards)));
		/* The attempt that its bind will make. */
		if (d->what == PLAN_START && d->guard_id)
			put_beside(beside, j->id, j->attempt + 1, (int64_t)d->guard_id);
	}
	for (size_t i = 0; i < c->inner->n_beside; i++) {
		const struct kept_beside *b = &c->inner->beside[i];
		const struct job *j = cluster_live(c, b->job);

		if (j && j->attempt == b->attempt && is_guarded(c, p, (uint64_t)b->guard))
			put_beside(beside, b->job, b->attempt, b->guard);
	}
	o = json_pack("{s:o, s:o}", "guards", guards, "beside", beside);
	if (json_array_size(guards))
		text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return text;
}
