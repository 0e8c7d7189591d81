/*
 * From a sample to what the queue remembers of a node (inventory.h). A card that is known and doesn't answer keeps what was
 * known of it: absence is no evidence. Nothing here asks anybody anything.
 */
#include "queue/inventory.h"

#include "base/alloc.h"
#include "base/parse.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void card_done(struct inv_card *c)
{
	free(c->name);
	free(c->profile);
	for (size_t i = 0; i < c->n_procs_kept; i++) {
		free(c->procs[i].name);
		free(c->procs[i].user);
	}
	free(c->procs);
}

void inventory_done(struct inventory *v)
{
	for (size_t i = 0; i < v->n_cards; i++)
		card_done(&v->cards[i]);
	free(v->cards);
	free(v->charges);
	free(v->source);
	free(v->error);
	free(v->host_name);
	*v = (struct inventory){0};
}

static int64_t figure(const struct gpu_card *g, enum metric m)
{
	return value_is_present(g->m[m]) ? g->m[m].v : -1;
}

static char *clean(const char *s, size_t max)
{
	struct buf b = {0};

	text_put_clean(&b, s, strnlen(s, max));
	return buf_take(&b);
}

/* ---- processes ---- */

static int64_t used_of(const struct gpu_proc *p)
{
	return value_is_present(p->used_mib) && p->used_mib.v > 0 ? p->used_mib.v : 0;
}

static const struct attempt_name *owner_of(const struct sample *s, uint32_t proc)
{
	uint32_t row = s->proc_row ? s->proc_row[proc] : 0;

	return row > 0 && row <= s->n_rows ? &s->rows[row - 1].name : NULL;
}

static char *user_of(const struct sample *s, uint32_t proc)
{
	if (s->snap.more && s->snap.more[proc].user[0])
		return clean(s->snap.more[proc].user, sizeof(s->snap.more[proc].user));
	return s->snap.procs[proc].uid == (uint32_t)-1
		       ? NULL
		       : xasprintf("%" PRIu32, s->snap.procs[proc].uid);
}

static void proc_take(
	const struct sample *s, uint32_t proc, const char *queue, struct inv_proc *ret)
{
	const struct gpu_proc *p = &s->snap.procs[proc];
	const struct attempt_name *owner = owner_of(s, proc);

	*ret = (struct inv_proc){.pid = p->pid,
		.mem_mib = value_is_present(p->used_mib) ? p->used_mib.v : -1,
		.name = clean(p->comm, sizeof(p->comm)),
		.user = user_of(s, proc),
		.kind = p->kind & GPU_PROC_MPS	     ? 'M'
			: p->kind & GPU_PROC_COMPUTE ? 'C'
						     : 'G',
		.is_managed = owner != NULL,
		.job = owner && strcmp(owner->queue, queue) == 0 ? (int64_t)owner->job : 0};
}

/* The largest rows of the card, in order; ret has room for INVENTORY_PROCS_MAX. */
static size_t pick_largest(const struct sample *s, uint32_t card, uint32_t *ret, size_t *ret_all)
{
	size_t n = 0;

	*ret_all = 0;
	for (uint32_t i = 0; i < s->snap.n_procs; i++) {
		size_t at;

		if (s->snap.procs[i].card != card)
			continue;
		(*ret_all)++;
		for (at = n;
			at > 0 && used_of(&s->snap.procs[ret[at - 1]]) < used_of(&s->snap.procs[i]);
			at--)
			if (at < INVENTORY_PROCS_MAX)
				ret[at] = ret[at - 1];
		if (at < INVENTORY_PROCS_MAX)
			ret[at] = i;
		if (n < INVENTORY_PROCS_MAX)
			n++;
	}
	return n;
}

static void procs_take(
	const struct sample *s, uint32_t card, const char *queue, struct inv_card *ret)
{
	uint32_t largest[INVENTORY_PROCS_MAX];

	ret->n_procs_kept = pick_largest(s, card, largest, &ret->n_procs);
	if (ret->n_procs_kept == 0)
		return;
	ret->procs = xcalloc(ret->n_procs_kept, sizeof(*ret->procs));
	for (size_t i = 0; i < ret->n_procs_kept; i++)
		proc_take(s, largest[i], queue, &ret->procs[i]);
}

/* ---- cards ---- */

/* What strangers hold. Where nobody says which process holds what, our own are credited with what they are charged. */
static void external_take(const struct sample *s, uint32_t card, struct inv_card *ret)
{
	int64_t ours = 0;

	for (uint32_t i = 0; i < s->snap.n_procs; i++) {
		const struct gpu_proc *p = &s->snap.procs[i];

		if (p->card != card)
			continue;
		if (owner_of(s, i))
			ours += used_of(p);
		else
			ret->external_procs++;
		if (!owner_of(s, i) && p->kind & (GPU_PROC_COMPUTE | GPU_PROC_MPS))
			ret->external_computing++;
	}
	if (ret->is_blind) {
		ours = 0;
		for (uint32_t i = 0; i < s->n_rows; i++)
			if (s->rows[i].card == card && s->rows[i].budget_mib > 0)
				ours += s->rows[i].budget_mib;
	}
	ret->external_mib = ret->used_mib < 0	   ? -1
			    : ret->used_mib > ours ? ret->used_mib - ours
						   : 0;
}

static int64_t xid_wall_ms(const struct sample *s, const struct gpu_card *g, int64_t offset_ms)
{
	if (g->xid.last == 0)
		return 0;
	return s->wall_ms - offset_ms - (s->snap.ended_ms - g->xid.boot_ms);
}

/* What this queue's lanes keep it knows by itself, and newer. */
static int64_t others_lanes(const struct sample *s, uint32_t card, const char *queue)
{
	int64_t sum = 0, all = s->lane_mib ? s->lane_mib[card] : 0;

	for (uint32_t i = 0; i < s->n_holds; i++)
		if (s->holds[i].card == card && strcmp(s->holds[i].queue, queue) != 0)
			sum += s->holds[i].mib;
	return sum < all ? sum : all;
}

static void card_take(const struct sample *s, uint32_t card, const char *queue, int64_t offset_ms,
	struct inv_card *ret)
{
	const struct gpu_card *g = &s->snap.cards[card];

	*ret = (struct inv_card){.index = g->index,
		.gi = g->gi - 1,
		.ci = g->ci - 1,
		.name = clean(g->name, sizeof(g->name)),
		.profile = g->profile[0] ? clean(g->profile, sizeof(g->profile)) : NULL,
		.is_present = g->state == GPU_OK && !s->snap.error[0],
		.is_mig_parent = g->is_mig_parent,
		.needs_reset = g->reset == GPU_RESET_NEEDED,
		.is_blind = g->is_blind,
		.state = g->state,
		.total_mib = figure(g, METRIC_MEM_TOTAL),
		.used_mib = figure(g, METRIC_MEM_USED),
		.util_pct = figure(g, METRIC_UTIL_GPU),
		.mem_util_pct = figure(g, METRIC_UTIL_MEM),
		.temperature_c = figure(g, METRIC_TEMP),
		.promised_mib = s->promised_mib ? s->promised_mib[card] : 0,
		.others_lanes_mib = others_lanes(s, card, queue),
		.numa = g->numa,
		.nvlink_peers = g->nvlink_peers,
		.xid = g->xid.last,
		.xid_ms = xid_wall_ms(s, g, offset_ms)};
	snprintf(ret->uuid, sizeof(ret->uuid), "%s", g->uuid);
	snprintf(ret->parent, sizeof(ret->parent), "%s", g->parent);
	procs_take(s, card, queue, ret);
	external_take(s, card, ret);
}

static char *copy_text(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static void card_copy(const struct inv_card *from, struct inv_card *ret)
{
	*ret = *from;
	ret->name = copy_text(from->name);
	ret->profile = copy_text(from->profile);
	ret->procs = NULL;
	ret->n_procs = ret->n_procs_kept = 0;
}

static int find_uuid(const struct inventory *v, const char *uuid)
{
	for (size_t i = 0; i < v->n_cards; i++)
		if (uuid[0] && strcmp(v->cards[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

/* A lost card that tells no UUID any more is the one that had its index. */
static void name_the_lost(const struct inventory *known, struct inventory *ret)
{
	for (size_t i = 0; known && i < ret->n_cards; i++) {
		struct inv_card *c = &ret->cards[i];

		for (size_t k = 0; !c->uuid[0] && k < known->n_cards; k++) {
			const struct inv_card *old = &known->cards[k];
			if (old->parent[0] || old->index != c->index ||
				find_uuid(ret, old->uuid) >= 0)
				continue;
			memcpy(c->uuid, old->uuid, sizeof(c->uuid));
			if (!c->name[0] && old->name) {
				free(c->name);
				c->name = xstrdup(old->name);
			}
			c->total_mib = c->total_mib < 0 ? old->total_mib : c->total_mib;
		}
	}
}

/* Positions of the old list as positions of the new one. */
static uint64_t peers_moved(
	const struct inventory *known, uint64_t peers, const struct inventory *ret)
{
	uint64_t moved = 0;

	for (size_t i = 0; i < known->n_cards && i < GPU_MAX; i++) {
		int at = peers >> i & 1 ? find_uuid(ret, known->cards[i].uuid) : -1;

		if (at >= 0)
			moved |= UINT64_C(1) << at;
	}
	return moved;
}

static bool is_instance_of_present(const struct inventory *v, const struct inv_card *c)
{
	int at = find_uuid(v, c->parent);

	return c->parent[0] && at >= 0 && v->cards[at].is_present;
}

/*
 * Cards that the sample lacks stay behind those it has. But for instances of a card that answers: they come and go by a
 * person's command, and one that's gone won't be back under its UUID.
 */
static void keep_missing(const struct inventory *known, struct inventory *ret)
{
	for (size_t i = 0; known && i < known->n_cards && ret->n_cards < GPU_MAX; i++) {
		const struct inv_card *old = &known->cards[i];

		if (!old->uuid[0] || find_uuid(ret, old->uuid) >= 0 ||
			is_instance_of_present(ret, old))
			continue;
		ret->cards = xreallocarray(ret->cards, ret->n_cards + 1, sizeof(*ret->cards));
		card_copy(old, &ret->cards[ret->n_cards]);
		ret->cards[ret->n_cards++].is_present = false;
	}
	for (size_t i = 0; known && i < ret->n_cards; i++)
		if (!ret->cards[i].is_present) {
			int at = find_uuid(known, ret->cards[i].uuid);
			if (at >= 0)
				ret->cards[i].nvlink_peers =
					peers_moved(known, known->cards[at].nvlink_peers, ret);
		}
}

static void charges_take(const struct sample *s, struct inventory *ret)
{
	uint32_t n = s->n_rows < INVENTORY_CHARGES_MAX ? s->n_rows : INVENTORY_CHARGES_MAX;

	ret->charges = xcalloc(n + 1, sizeof(*ret->charges));
	for (uint32_t i = 0; i < n; i++) {
		const struct ledger_row *r = &s->rows[i];

		if (r->card >= s->snap.n_cards)
			continue;
		ret->charges[ret->n_charges++] = (struct inv_charge){.name = r->name,
			.card = r->card,
			.declared_mib = r->declared_mib,
			.budget_mib = r->budget_mib,
			.held_mib = r->held_mib,
			.peak_mib = r->peak_mib,
			.is_sampled = r->is_sampled,
			.has_ended = r->has_ended};
	}
}

/* Charges on cards of the old list, where they are in the new one. */
static void charges_keep(const struct inventory *known, struct inventory *ret)
{
	free(ret->charges);
	ret->charges = xcalloc(known->n_charges + 1, sizeof(*ret->charges));
	ret->n_charges = 0;
	for (size_t i = 0; i < known->n_charges; i++) {
		struct inv_charge c = known->charges[i];
		int at = c.card < known->n_cards ? find_uuid(ret, known->cards[c.card].uuid) : -1;

		if (at < 0)
			continue;
		c.card = (uint32_t)at;
		ret->charges[ret->n_charges++] = c;
	}
}

static void node_take(const struct sample *s, const struct inventory *known, struct inventory *ret)
{
	ret->mem_total_mib = ret->mem_available_mib = -1;
	if (s->has_node) {
		ret->cores = s->node.cores;
		ret->mem_total_mib = s->node.mem_total_mib;
		ret->mem_available_mib = s->node.mem_available_mib;
		ret->host_name = clean(s->node.host_name, sizeof(s->node.host_name));
	} else if (known) {
		ret->cores = known->cores;
		ret->mem_total_mib = known->mem_total_mib;
		ret->host_name = copy_text(known->host_name);
	}
}

void inventory_take(const struct sample *s, const struct inventory *known, const char *queue,
	int64_t clock_offset_ms, struct inventory *ret)
{
	uint32_t n = s->snap.n_cards < GPU_MAX ? s->snap.n_cards : GPU_MAX;

	*ret = (struct inventory){.sampled_wall_ms = s->wall_ms - clock_offset_ms,
		.source = clean(s->snap.source, sizeof(s->snap.source)),
		.error = s->snap.error[0] ? clean(s->snap.error, sizeof(s->snap.error)) : NULL};
	ret->cards = xcalloc(n + 1, sizeof(*ret->cards));
	for (uint32_t i = 0; i < n; i++)
		card_take(s, i, queue, clock_offset_ms, &ret->cards[ret->n_cards++]);
	charges_take(s, ret);
	name_the_lost(known, ret);
	keep_missing(known, ret);
	/* It couldn't ask: what was charged is charged. */
	if (s->snap.error[0] && known && s->n_rows == 0)
		charges_keep(known, ret);
	node_take(s, known, ret);
}

/* ---- by what people type ---- */

static bool is_begin_of(const char *begin, const char *uuid)
{
	return strncasecmp(begin, uuid, strlen(begin)) == 0;
}

/* "0" a whole card, "0:1" the first compute instance of GPU instance 1, "0:1:2" another one. */
static bool is_label(const struct inv_card *c, int64_t index, int64_t gi, int64_t ci)
{
	if (index != c->index)
		return false;
	if (!c->parent[0])
		return gi < 0;
	return gi == c->gi && (ci < 0 ? c->ci <= 0 : ci == c->ci);
}

static int parse_label(const char *word, int64_t ret[3])
{
	char text[GPU_LABEL_LEN];
	char *rest = text;
	int n = 0;

	ret[0] = ret[1] = ret[2] = -1;
	if (strlen(word) >= sizeof(text) || strspn(word, "0123456789:") != strlen(word))
		return -EINVAL;
	memcpy(text, word, strlen(word) + 1);
	while (rest) {
		char *part = strsep(&rest, ":");
		if (n == 3 || parse_int64(part, &ret[n++]) < 0)
			return -EINVAL;
	}
	return 0;
}

int inventory_find(const struct inventory *v, const char *word)
{
	int64_t label[3];
	int found = -1;

	if (parse_label(word, label) == 0) {
		for (size_t i = 0; i < v->n_cards; i++)
			if (is_label(&v->cards[i], label[0], label[1], label[2]))
				return (int)i;
		return -1;
	}
	/* Two letters would be the start of any. */
	if (strlen(word) < 8)
		return -1;
	for (size_t i = 0; i < v->n_cards; i++) {
		if (strcasecmp(word, v->cards[i].uuid) == 0)
			return (int)i;
		if (!is_begin_of(word, v->cards[i].uuid))
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

void inv_card_label(const struct inv_card *c, char ret[GPU_LABEL_LEN])
{
	gpu_label(c->index, c->gi + 1, c->ci + 1, ret);
}

/* ---- comparing ---- */

#define XID_SAME_MS 5000
#define FREE_STEP_MIB 64

static bool same_words(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

static bool same_procs(const struct inv_card *a, const struct inv_card *b)
{
	if (a->n_procs != b->n_procs || a->n_procs_kept != b->n_procs_kept)
		return false;
	for (size_t i = 0; i < a->n_procs_kept; i++)
		if (a->procs[i].pid != b->procs[i].pid ||
			a->procs[i].mem_mib != b->procs[i].mem_mib ||
			a->procs[i].job != b->procs[i].job)
			return false;
	return true;
}

bool inv_same_xid(const struct inv_card *a, const struct inv_card *b)
{
	int64_t apart = a->xid_ms - b->xid_ms;

	return a->xid == b->xid && apart > -XID_SAME_MS && apart < XID_SAME_MS;
}

static bool same_card(const struct inv_card *a, const struct inv_card *b)
{
	return !strcmp(a->uuid, b->uuid) && !strcmp(a->parent, b->parent) && a->index == b->index &&
	       a->gi == b->gi && a->ci == b->ci && same_words(a->name, b->name) &&
	       same_words(a->profile, b->profile) && a->is_present == b->is_present &&
	       a->is_mig_parent == b->is_mig_parent && a->needs_reset == b->needs_reset &&
	       a->is_blind == b->is_blind && a->state == b->state && a->total_mib == b->total_mib &&
	       a->used_mib == b->used_mib && a->external_mib == b->external_mib &&
	       a->external_procs == b->external_procs &&
	       a->external_computing == b->external_computing &&
	       a->promised_mib == b->promised_mib && a->others_lanes_mib == b->others_lanes_mib &&
	       a->numa == b->numa && a->nvlink_peers == b->nvlink_peers && inv_same_xid(a, b) &&
	       same_procs(a, b);
}

static bool same_charge(const struct inv_charge *a, const struct inv_charge *b)
{
	return a->name.job == b->name.job && a->name.attempt == b->name.attempt &&
	       !strcmp(a->name.queue, b->name.queue) && a->card == b->card &&
	       a->declared_mib == b->declared_mib && a->budget_mib == b->budget_mib &&
	       a->held_mib == b->held_mib && a->peak_mib == b->peak_mib &&
	       a->is_sampled == b->is_sampled && a->has_ended == b->has_ended;
}

bool inventory_same_for_plan(const struct inventory *a, const struct inventory *b)
{
	int64_t step = a->mem_available_mib - b->mem_available_mib;

	if (a->n_cards != b->n_cards || a->n_charges != b->n_charges ||
		!same_words(a->source, b->source) || !same_words(a->error, b->error) ||
		a->cores != b->cores || a->mem_total_mib != b->mem_total_mib ||
		(a->mem_available_mib < 0) != (b->mem_available_mib < 0) || step >= FREE_STEP_MIB ||
		step <= -FREE_STEP_MIB || !same_words(a->host_name, b->host_name))
		return false;
	for (size_t i = 0; i < a->n_cards; i++)
		if (!same_card(&a->cards[i], &b->cards[i]))
			return false;
	for (size_t i = 0; i < a->n_charges; i++)
		if (!same_charge(&a->charges[i], &b->charges[i]))
			return false;
	return true;
}
