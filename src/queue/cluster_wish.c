/*
 * What a job asks for, as masks of cards and as MiB. Jobs that ask for the same share one wish, so its cost is that of the
 * different wishes, not of the jobs.
 */
#include "queue/cluster_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEARNED_MIN_ON_TOP_MIB 256

/* ---- one card ---- */

/* "NVIDIA A100-SXM4-80GB" as "nvidiaa100sxm480gb": people write models in many ways. */
static void squeeze(const char *s, size_t n, char *ret, size_t size)
{
	size_t len = 0;

	for (size_t i = 0; i < n && s[i] && len + 1 < size; i++)
		if (isalnum((unsigned char)s[i]))
			ret[len++] = (char)tolower((unsigned char)s[i]);
	ret[len] = 0;
}

static bool is_model(const struct inv_card *card, const char *words)
{
	char name[2 * GPU_NAME_LEN], word[GPU_NAME_LEN];

	squeeze(card->name ? card->name : "", GPU_NAME_LEN, name, sizeof(name));
	if (card->profile)
		squeeze(card->profile, GPU_PROFILE_LEN, name + strlen(name),
			sizeof(name) - strlen(name));
	while (words && *words) {
		size_t n = strcspn(words, ",");
		squeeze(words, n, word, sizeof(word));
		if (word[0] && strstr(name, word))
			return true;
		words += n + (words[n] == ',');
	}
	return false;
}

uint64_t cluster_cards_named(const struct cluster_node *n, const char *words)
{
	uint64_t found = 0;

	while (words && *words) {
		char word[GPU_UUID_LEN];
		size_t len = strcspn(words, ",");

		snprintf(word, sizeof(word), "%.*s", (int)(len < sizeof(word) ? len : 0), words);
		int at = word[0] ? inventory_find(&n->inv, word) : -1;
		if (at >= 0 && at < GPU_MAX)
			found |= UINT64_C(1) << at;
		words += len + (words[len] == ',');
	}
	return found;
}

/* The lane's cards: what's behind the last colon that follows the node's name; a MIG instance has colons itself. */
static const char *lane_cards(const struct cluster *c, const char *lane, int32_t *ret_node)
{
	for (size_t i = 0; i < c->n_nodes; i++) {
		const char *name = cluster_node_name(&c->nodes[i]);
		size_t n = strlen(name);

		if (strncmp(lane, name, n) == 0 && lane[n] == ':') {
			*ret_node = (int32_t)i;
			return lane + n + 1;
		}
	}
	*ret_node = (int32_t)c->n_nodes;
	return "";
}

/* ---- a wish ---- */

static void make_masks(const struct cluster *c, struct wish *w)
{
	int32_t lane_node = -1;
	const char *of_lane = w->lane ? lane_cards(c, w->lane, &lane_node) : NULL;

	w->only_node = -1;
	if (w->node) {
		w->only_node = cluster_node_named(c, w->node);
		w->only_node = w->only_node < 0 ? (int32_t)c->n_nodes : w->only_node;
	}
	if (w->lane)
		w->only_node = w->only_node < 0 || w->only_node == lane_node ? lane_node
									     : (int32_t)c->n_nodes;
	if (!w->gpu && !w->model && w->min_total_mib <= 0 && !w->lane)
		return;
	w->masks = xcalloc(c->n_nodes + 1, sizeof(*w->masks));
	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct cluster_node *n = &c->nodes[i];
		uint64_t named = UINT64_MAX;

		if (w->gpu)
			named &= cluster_cards_named(n, w->gpu);
		if (w->lane)
			named &= (int32_t)i == lane_node ? cluster_cards_named(n, of_lane) : 0;
		for (size_t k = 0; k < n->inv.n_cards && k < GPU_MAX; k++) {
			const struct inv_card *card = &n->inv.cards[k];
			if ((named >> k & 1) && (!w->model || is_model(card, w->model)) &&
				card->total_mib >= w->min_total_mib)
				w->masks[i] |= UINT64_C(1) << k;
		}
	}
}

static void find_cap(const struct cluster *c, struct wish *w)
{
	w->cap_mib = -1;
	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct cluster_node *n = &c->nodes[i];

		if (w->only_node >= 0 && (size_t)w->only_node != i)
			continue;
		for (size_t k = 0; k < n->inv.n_cards && k < GPU_MAX; k++) {
			const struct cluster_card *card = &n->cards[k];
			int64_t cap = card->room.total_mib - card->room.headroom_mib;
			if (card->is_allowed && !card->inv->is_mig_parent &&
				(!w->masks || (w->masks[i] >> k & 1)) && cap > w->cap_mib)
				w->cap_mib = cap;
		}
	}
}

static uint64_t hash_word(uint64_t h, const char *s)
{
	for (; s && *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(1099511628211);
	return (h ^ (s ? 1 : 2)) * UINT64_C(1099511628211);
}

static bool same_word(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static const char *asked(const char *s)
{
	return s && *s ? s : NULL;
}

static size_t slot_of(const struct cluster_plan_inner *p, const struct wish *w)
{
	uint64_t h = hash_word(14695981039346656037u, w->node);

	h = hash_word(hash_word(hash_word(h, w->gpu), w->model), w->lane);
	size_t at = (size_t)(h ^ (uint64_t)w->min_total_mib) & (p->n_slots - 1);
	for (; p->wish_slots[at]; at = (at + 1) & (p->n_slots - 1)) {
		const struct wish *x = &p->wishes[p->wish_slots[at] - 1];
		if (same_word(x->node, w->node) && same_word(x->gpu, w->gpu) &&
			same_word(x->model, w->model) && same_word(x->lane, w->lane) &&
			x->min_total_mib == w->min_total_mib)
			break;
	}
	return at;
}

static void slots_grow(struct cluster_plan_inner *p)
{
	free(p->wish_slots);
	p->n_slots = p->n_slots ? 4 * p->n_slots : 64;
	p->wish_slots = xcalloc(p->n_slots, sizeof(*p->wish_slots));
	for (size_t i = 0; i < p->n_wishes; i++)
		p->wish_slots[slot_of(p, &p->wishes[i])] = (uint32_t)i + 1;
}

struct wish *wish_find(const struct cluster *c, struct cluster_plan_inner *p, const struct job *j)
{
	bool has_cards = j->gpus > 0;
	struct wish w = {.node = asked(j->node_constraint),
		.lane = asked(j->lane),
		.gpu = has_cards ? asked(j->gpu_constraint) : NULL,
		.model = has_cards ? asked(j->gpu_model) : NULL,
		.min_total_mib = has_cards ? j->min_total_mib : 0};

	if (2 * (p->n_wishes + 1) > p->n_slots)
		slots_grow(p);
	size_t at = slot_of(p, &w);
	if (!p->wish_slots[at]) {
		make_masks(c, &w);
		find_cap(c, &w);
		GROW(p->wishes, p->n_wishes, p->cap_wishes);
		p->wishes[p->n_wishes++] = w;
		p->wish_slots[at] = (uint32_t)p->n_wishes;
	}
	return &p->wishes[p->wish_slots[at] - 1];
}

/* ---- how much ---- */

static int64_t part_on_top(int64_t mib, int64_t percent)
{
	int64_t top = mib / 100 * percent + (mib % 100 * percent + 99) / 100;

	return mib + (top > LEARNED_MIN_ON_TOP_MIB ? top : LEARNED_MIN_ON_TOP_MIB);
}

int64_t cluster_learned_mib(const struct store_learned *l)
{
	int64_t need;

	if (l->n_peaks <= 0 || l->peak_max_mib <= 0)
		return UNDECLARED;
	need = part_on_top(l->peak_max_mib, l->n_peaks < LEARNED_SURE ? 20 : 10);
	if (l->oom_max_mib > l->peak_max_mib) {
		int64_t beyond = part_on_top(l->oom_max_mib, 25);
		need = beyond > need ? beyond : need;
	}
	return need;
}

/* The configuration's word, as long as no attempt was raised above it. */
static bool is_by_default(const struct job *j)
{
	return j->vram_source == VRAM_DEFAULT && !j->n_oom;
}

bool wish_has_other_need(const struct cluster *c, const struct job *j)
{
	int64_t by_default = c->config->settings.default_vram_mib, now;

	/* Idle cards are asked for as whole ones, whatever is declared. */
	if (!j->bind.n_cards || j->idle)
		return false;
	if (is_by_default(j) && by_default < 0)
		return true;
	now = is_by_default(j) || j->vram_mib < 0 ? by_default : j->vram_mib;
	return j->bind.cards[0].mib != (now < 0 ? UNDECLARED : now);
}

int64_t wish_need_mib(const struct cluster *c, const struct wish *w, const struct job *j,
	enum vram_source *ret_source)
{
	const struct store_learned *l;
	bool is_guess = j->vram_mib >= 0 && j->vram_source == VRAM_LEARNED;
	int64_t need;

	*ret_source = VRAM_DECLARED;
	if (j->vram_mib >= 0 && !is_guess && !is_by_default(j)) {
		*ret_source = j->vram_source == VRAM_NONE ? VRAM_DECLARED : j->vram_source;
		return j->vram_mib;
	}
	if (!is_guess && c->config->settings.default_vram_mib >= 0) {
		*ret_source = VRAM_DEFAULT;
		return c->config->settings.default_vram_mib;
	}
	l = cluster_learned(c, j);
	need = l ? cluster_learned_mib(l) : UNDECLARED;
	/* What an earlier attempt was raised to isn't taken back. */
	if (is_guess && j->vram_mib > need)
		need = j->vram_mib;
	*ret_source = VRAM_LEARNED;
	if (need >= 0 && need <= w->cap_mib)
		return need;
	*ret_source = VRAM_NONE;
	return UNDECLARED;
}
