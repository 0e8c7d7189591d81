/*
 * The figures that samples build on (sample.h): taken from one snapshot, told once to whoever watches. Pure.
 *
 *   {"op": "sample-base", "key": N, "cards": [{"uuid", "m", "absent"}, ...]}
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/sample_details.h"

#include <string.h>

void sample_base_done(struct sample_base *b)
{
	free(b->cards);
	*b = (struct sample_base){0};
}

void sample_base_take(struct sample_base *b, const struct gpu_snapshot *s, uint64_t key)
{
	sample_base_done(b);
	b->key = key;
	b->n_cards = s->n_cards;
	b->cards = xcalloc(s->n_cards, sizeof(*b->cards));
	for (uint32_t i = 0; i < s->n_cards; i++) {
		memcpy(b->cards[i].uuid, s->cards[i].uuid, sizeof(b->cards[i].uuid));
		/* Those of profiling never stay the same, and not everybody wants them. */
		memcpy(b->cards[i].m, s->cards[i].m,
			METRIC_PROFILE_FIRST * sizeof(b->cards[i].m[0]));
	}
}

bool sample_base_fits(const struct sample_base *b, const struct gpu_snapshot *s)
{
	size_t n_other = 0;

	if (!b->key || b->n_cards != s->n_cards)
		return false;
	for (uint32_t i = 0; i < s->n_cards; i++) {
		if (strcmp(b->cards[i].uuid, s->cards[i].uuid) != 0)
			return false;
		for (size_t k = 0; k < METRIC_PROFILE_FIRST; k++)
			n_other += !value_is_same(b->cards[i].m[k], s->cards[i].m[k]);
	}
	return n_other <= (size_t)METRIC_PROFILE_FIRST * s->n_cards / 2;
}

json_t *sample_base_encode(const struct sample_base *b)
{
	json_t *o = json_object(), *cards = json_array();

	for (uint32_t i = 0; i < b->n_cards; i++) {
		json_t *card = json_object();

		json_object_set_new_nocheck(card, "uuid", sample_text(b->cards[i].uuid));
		sample_put_metrics(b->cards[i].m, METRIC_PROFILE_FIRST, true, NULL, card);
		json_array_append_new(cards, card);
	}
	json_object_set_new_nocheck(o, "op", json_string("sample-base"));
	json_object_set_new_nocheck(o, "key", json_integer((json_int_t)b->key));
	json_object_set_new_nocheck(o, "cards", cards);
	return o;
}

int sample_base_decode(const json_t *msg, struct sample_base *ret, struct err *e)
{
	CLEANUP(sample_base_done) struct sample_base b = {0};
	const json_t *cards = json_object_get(msg, "cards");
	int64_t key;
	int r = wire_int(msg, "key", 1, INT64_MAX, &key, e);

	if (!r && (!json_is_array(cards) || json_array_size(cards) > GPU_MAX))
		r = err_set(e, -EINVAL, "the figures that samples build on have no list of cards");
	if (r)
		return r;
	b.key = (uint64_t)key;
	b.n_cards = (uint32_t)json_array_size(cards);
	b.cards = xcalloc(b.n_cards, sizeof(*b.cards));
	for (uint32_t i = 0; !r && i < b.n_cards; i++) {
		const json_t *card = json_array_get(cards, i);

		r = sample_take_text(json_object_get(card, "uuid"), b.cards[i].uuid,
			sizeof(b.cards[i].uuid), "uuid", e);
		sample_take_metrics(card, b.cards[i].m);
	}
	if (r)
		return r;
	sample_base_done(ret);
	*ret = b;
	b = (struct sample_base){0};
	return 0;
}
