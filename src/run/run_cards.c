/*
 * Which cards and MIG instances a job may have, and how CUDA is told of them. A card's number always means the whole
 * card; an instance is called "0:1" by people, and goes by its UUID everywhere else.
 */
#include "run/state.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"

#include <string.h>

/* A number is a whole card; "0:1" and UUIDs name instances too. */
static int find_named(const struct run *r, const char *word)
{
	int64_t index;

	if (parse_int64(word, &index) == 0)
		return index >= 0 && index <= INT32_MAX
			       ? gpu_find_index(&r->sample.snap, (int)index)
			       : -1;
	return strchr(word, ':') ? gpu_find_label(&r->sample.snap, word)
				 : gpu_find_uuid(&r->sample.snap, word);
}

/* gpu=0,GPU-...,1:3: bits of the cards named; a word that names none is no bit. */
static uint64_t named_cards(const struct run *r, const struct run_job *j)
{
	uint64_t bits = 0;
	const char *p = j->gpu;

	while (p && *p) {
		size_t n = strcspn(p, ",");
		CLEANUP_FREE char *word = xstrndup(p, n);
		int at = find_named(r, word);

		if (at >= 0)
			bits |= 1ULL << at;
		p += n + (p[n] == ',');
	}
	return bits;
}

/* CUDA gives a process one MIG instance, whatever it's shown: a job of several cards has whole ones. */
uint64_t run_only_cards(const struct run *r, const struct run_job *j)
{
	const struct gpu_snapshot *s = &r->sample.snap;
	bool has_instances = gpu_count_whole(s) < s->n_cards;
	uint64_t bits = named_cards(r, j), whole = 0;

	for (uint32_t i = 0; i < s->n_cards; i++)
		whole |= gpu_is_instance(&s->cards[i]) ? 0 : 1ULL << i;
	if (j->gpus < 2 || !has_instances)
		return bits;
	return j->gpu ? bits & whole : whole;
}

bool run_is_chosen(const struct run *r, int32_t index)
{
	for (uint32_t i = 0; i < r->config->n_gpus; i++)
		if (r->config->gpus[i] == index)
			return true;
	return !r->config->n_gpus;
}

const char *run_why_no_card(const struct run *r, const struct run_job *j)
{
	uint64_t bits = named_cards(r, j);
	bool is_left_out = false, is_silent = false;

	if (!j->gpu)
		return NULL;
	for (uint32_t i = 0; i < r->sample.snap.n_cards; i++) {
		const struct gpu_card *card = &r->sample.snap.cards[i];
		bool is_here = bits >> i & 1 && gpu_is_placeable(card);

		if (is_here && run_is_chosen(r, card->index) && card->state == GPU_OK)
			return NULL;
		is_silent |= is_here && run_is_chosen(r, card->index);
		is_left_out |= is_here;
	}
	if (is_silent)
		return "no card of the gpu= list answers now";
	if (is_left_out)
		return "every card of the gpu= list is left out by --gpus";
	return bits ? "every card of the gpu= list is cut into MIG instances; name one of these, as gpu=0:1"
		    : "no card of the gpu= list is here now";
}

/* May the job have this one, as far as --gpus, its gpu= and its number of cards say? One that's away now can't be told by gpu=. */
static bool may_have(const struct run *r, const struct run_job *j, uint64_t only, uint32_t known)
{
	int at = gpu_find_uuid(&r->sample.snap, r->known[known].uuid);

	return !r->known[known].is_mig_parent && run_is_chosen(r, r->known[known].index) &&
	       (j->gpus < 2 || !r->known[known].is_instance) && (!only || at < 0 || only >> at & 1);
}

int64_t run_largest_place(const struct run *r, const struct run_job *j)
{
	uint64_t only = run_only_cards(r, j), taken = 0;
	int64_t most = 0;

	/* The largest, the next largest, ... until there are as many as it wants. */
	for (uint32_t n = 0; n < (j->gpus ? j->gpus : 1); n++) {
		uint32_t best = GPU_MAX;

		for (uint32_t i = 0; i < r->n_known; i++)
			if (!(taken >> i & 1) && may_have(r, j, only, i) &&
				(best == GPU_MAX ||
					r->known[i].total_mib > r->known[best].total_mib))
				best = i;
		if (best == GPU_MAX)
			return 0;
		taken |= 1ULL << best;
		most = r->known[best].total_mib;
	}
	return most;
}

bool run_names_cards(const struct run *r, const struct run_job *j)
{
	return named_cards(r, j) != 0;
}

bool run_has_all_cards(const struct run *r)
{
	uint32_t known_here = 0;

	for (uint32_t i = 0; i < r->n_known; i++)
		known_here += gpu_find_uuid(&r->sample.snap, r->known[i].uuid) >= 0;
	for (uint32_t i = 0; i < r->sample.snap.n_cards; i++)
		if (r->sample.snap.cards[i].state != GPU_OK)
			return false;
	return known_here == r->n_known;
}

/*
 * A card missing from this sample shifts CUDA's numbers, and one that's cut into instances may: then only UUIDs say which
 * one is meant. Instances have no numbers at all.
 */
bool run_numbers_hold(const struct run *r)
{
	for (uint32_t i = 0; i < r->sample.snap.n_cards; i++)
		if (r->sample.snap.cards[i].is_mig_parent ||
			gpu_is_instance(&r->sample.snap.cards[i]))
			return false;
	return run_has_all_cards(r);
}
