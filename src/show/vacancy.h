/*
 * Is a card what somebody waits for, and since when? Pure: samples and times in, an answer out; `gpustow wait` is a loop
 * around it. What our own jobs were promised and don't use yet, and what other users' jobs were, isn't free.
 */
#pragma once

#include "base/err.h"
#include "core/sample.h"

#include <stdbool.h>
#include <stdint.h>

struct vacancy_wish {
	/*
	 * "any"; "0,1": these; "2-of" and "2-of:0,1,3": so many of all, of these. Numbers are whole cards; "any" one card may
	 * be a MIG instance too. A card that's cut into instances is never free.
	 */
	int32_t indices[GPU_MAX];
	uint32_t n_indices; /* 0: all cards */
	uint32_t count; /* at least 1 */
	int64_t free_mib; /* 0: no matter */
	bool is_idle;
	int64_t hold_ms; /* without a break */
	int64_t gap_ms; /* samples further apart than this break it: nobody saw what was between */
};

/* --gpu and --count (0: not given). -EINVAL with a sentence. */
int vacancy_parse_cards(const char *text, int64_t count, struct vacancy_wish *ret, struct err *e);

/* One card of one host through time; zeroed is unseen. */
struct vacancy_card {
	char uuid[GPU_UUID_LEN];
	int64_t since_ms; /* it has been vacant since then; 0: it isn't */
	int64_t seen_ms;
};
struct vacancy {
	struct vacancy_card cards[GPU_MAX];
	uint32_t n;
};

/* Free memory for a newcomer; absent when the card can't tell. */
struct value vacancy_free_mib(const struct sample *s, uint32_t card);
bool vacancy_is_vacant(const struct vacancy_wish *w, const struct sample *s, uint32_t card);
/* A new sample, which arrived at now_ms. */
void vacancy_take(
	struct vacancy *v, const struct vacancy_wish *w, const struct sample *s, int64_t now_ms);
/*
 * Fills ret with positions in s->snap.cards of as many cards as wished, most free memory first, and returns true when that
 * many have been vacant for long enough.
 */
bool vacancy_find(const struct vacancy *v, const struct vacancy_wish *w, const struct sample *s,
	uint32_t ret[GPU_MAX]);
/* No card of the sample could ever do: a sentence for a person, who may wait all the same. "" when some could. */
void vacancy_doubt(const struct vacancy_wish *w, const struct sample *s, struct buf *out);
