/*
 * Where a job goes: which node, which of its cards. Decides only by avail, alone and idle of the state; changes nothing.
 * Keys are "smaller is better" numbers, so that best fit, spread, pack and the guard's choice are one search.
 */
#include "sched/plan_inner.h"

static uint32_t count(uint64_t bits)
{
	return (uint32_t)__builtin_popcountll(bits);
}

static uint32_t lowest(uint64_t bits)
{
	return bits ? (uint32_t)__builtin_ctzll(bits) : 0;
}

static uint64_t bit(uint32_t i)
{
	return UINT64_C(1) << (i & 63);
}

/* All cards that can be reached from `from` over links inside `cards`. */
static uint64_t joined_to(const struct plan_state *s, size_t first, uint64_t cards, uint64_t from)
{
	uint64_t reached = from, fresh = from;

	while (fresh) {
		uint64_t next = 0;
		for (; fresh; fresh &= fresh - 1)
			next |= s->peers[first + lowest(fresh)];
		fresh = next & cards & ~reached;
		reached |= fresh;
	}
	return reached;
}

uint32_t place_joined_max(const struct plan_state *s, size_t node, uint64_t cards)
{
	uint32_t most = 0;

	while (cards) {
		uint64_t group = joined_to(s, s->nodes[node].first, cards, cards & -cards);
		if (count(group) > most)
			most = count(group);
		cards &= ~group;
	}
	return most;
}

bool place_needs_joined(const struct plan_state *s, size_t node, const struct plan_job *j)
{
	if (j->gpus < 2)
		return false;
	return j->need_nvlink ||
	       (s->policy->need_nvlink &&
		       place_joined_max(s, node, s->nodes[node].usable) >= j->gpus);
}

/* Positions of the candidates by key, then by index. */
static uint32_t sort_candidates(const struct plan_state *s, size_t first, uint64_t candidates,
	const int64_t *keys, uint8_t *ret)
{
	uint32_t n = 0;

	for (; candidates; candidates &= candidates - 1) {
		uint32_t i = lowest(candidates), at = n++;
		while (at > 0 &&
			(keys[ret[at - 1]] > keys[i] ||
				(keys[ret[at - 1]] == keys[i] &&
					s->index[first + ret[at - 1]] > s->index[first + i]))) {
			ret[at] = ret[at - 1];
			at--;
		}
		ret[at] = (uint8_t)i;
	}
	return n;
}

/* How well card i goes with a set: its links into it first, then the cards on the same NUMA node. */
static uint32_t closeness(const struct plan_state *s, size_t node, uint64_t set, uint32_t i)
{
	const struct plan_card *cards = s->in[node].cards;
	uint32_t same_numa = 0;

	for (uint64_t rest = set; rest && cards[i].numa >= 0; rest &= rest - 1)
		same_numa += cards[lowest(rest)].numa == cards[i].numa;
	return count(s->peers[s->nodes[node].first + i] & set) * (CARDS_MAX * CARDS_MAX) +
	       same_numa;
}

/* Adds to *set the `m` closest of `tied`, one after another; returns how close they are in sum. */
static uint32_t grow_closest(
	const struct plan_state *s, size_t node, uint64_t *set, uint64_t tied, uint32_t m)
{
	const int32_t *index = s->index + s->nodes[node].first;
	uint32_t sum = 0;

	while (m-- > 0) {
		uint32_t best = CARDS_MAX, best_close = 0;
		for (uint64_t rest = tied; rest; rest &= rest - 1) {
			uint32_t i = lowest(rest), close = closeness(s, node, *set, i);
			if (best == CARDS_MAX || close > best_close ||
				(close == best_close && index[i] < index[best])) {
				best = i;
				best_close = close;
			}
		}
		*set |= bit(best);
		tied &= ~bit(best);
		sum += best_close;
	}
	return sum;
}

/* The m of `tied` that go best with `sure` and with each other. */
static uint64_t choose_tied(
	const struct plan_state *s, size_t node, uint64_t sure, uint64_t tied, uint32_t m)
{
	const int32_t *index = s->index + s->nodes[node].first;
	uint64_t best = 0;
	uint32_t best_sum = 0, best_seed = CARDS_MAX;

	if (m == count(tied))
		return sure | tied;
	if (sure) {
		grow_closest(s, node, &sure, tied, m);
		return sure;
	}
	for (uint64_t rest = tied; rest; rest &= rest - 1) {
		uint32_t seed = lowest(rest);
		uint64_t set = bit(seed);
		uint32_t sum = grow_closest(s, node, &set, tied & ~set, m - 1);
		if (best_seed == CARDS_MAX || sum > best_sum ||
			(sum == best_sum && index[seed] < index[best_seed])) {
			best = set;
			best_sum = sum;
			best_seed = seed;
		}
	}
	return best;
}

/* The set that grows from a seed by its best neighbour; 0 when its neighbours run out. */
static uint64_t grow_joined(const struct plan_state *s, size_t node, uint64_t candidates,
	uint32_t seed, uint32_t k, const int64_t *keys)
{
	size_t first = s->nodes[node].first;
	uint64_t set = bit(seed);

	while (count(set) < k) {
		uint32_t best = CARDS_MAX;
		for (uint64_t rest = candidates & ~set; rest; rest &= rest - 1) {
			uint32_t i = lowest(rest);
			if (!(s->peers[first + i] & set))
				continue;
			if (best == CARDS_MAX || keys[i] < keys[best] ||
				(keys[i] == keys[best] &&
					s->index[first + i] < s->index[first + best]))
				best = i;
		}
		if (best == CARDS_MAX)
			return 0;
		set |= bit(best);
	}
	return set;
}

static int64_t sum_keys(uint64_t set, const int64_t *keys)
{
	int64_t sum = 0;

	for (; set; set &= set - 1)
		sum += keys[lowest(set)];
	return sum;
}

static uint64_t choose_joined(const struct plan_state *s, size_t node, uint64_t candidates,
	uint32_t k, const int64_t *keys)
{
	const int32_t *index = s->index + s->nodes[node].first;
	uint64_t best = 0;
	uint32_t best_seed = 0;

	for (uint64_t rest = candidates; rest; rest &= rest - 1) {
		uint32_t seed = lowest(rest);
		uint64_t set = grow_joined(s, node, candidates, seed, k, keys);
		if (!set)
			continue;
		int64_t gain = best ? sum_keys(set, keys) - sum_keys(best, keys) : -1;
		if (gain < 0 || (gain == 0 && index[seed] < index[best_seed])) {
			best = set;
			best_seed = seed;
		}
	}
	return best;
}

uint64_t place_choose(const struct plan_state *s, size_t node, const struct plan_job *j,
	uint64_t candidates, const int64_t *keys)
{
	uint32_t k = j->gpus;
	uint8_t sorted[CARDS_MAX] = {0};
	uint64_t sure = 0, tied = 0;

	if (k == 0 || count(candidates) < k)
		return 0;
	if (place_needs_joined(s, node, j))
		return choose_joined(s, node, candidates, k, keys);
	uint32_t n = sort_candidates(s, s->nodes[node].first, candidates, keys, sorted);
	if (k == 1)
		return bit(sorted[0]);
	int64_t cut = keys[sorted[k - 1]];
	for (uint32_t i = 0; i < n && keys[sorted[i]] <= cut; i++)
		*(keys[sorted[i]] < cut ? &sure : &tied) |= bit(sorted[i]);
	return choose_tied(s, node, sure, tied, k - count(sure));
}

/* For the many that a glance tells about: no card of the node would do, whatever the job's other wishes. */
static bool is_node_full(const struct node_state *n, enum sharing sharing, int64_t need)
{
	if (sharing == WHOLE)
		return !n->idle;
	return n->most_mib < need || (sharing == ALONE && !n->alone);
}

/* Where on this node the job could go, and how good each card is by the policy. */
static uint64_t node_candidates(const struct plan_state *s, size_t node, const struct plan_job *j,
	int64_t need, int64_t *keys)
{
	const struct node_state *n = &s->nodes[node];
	enum sharing sharing = job_sharing(s, j);
	enum plan_place how = s->policy->place;
	uint64_t open = job_open_cards(s, j, node), found = 0;

	if (sharing == ALONE)
		open &= n->alone;
	else if (sharing == WHOLE)
		open &= n->idle;
	for (uint32_t i = 0; i < n->n; i++) {
		size_t c = n->first + i;
		int64_t room = s->avail[c];

		if (!(open & bit(i)) || (sharing != WHOLE && room < need))
			continue;
		found |= bit(i);
		if (sharing == WHOLE)
			room = how == PLACE_BEST_FIT ? 0 : mib_clamp(card_free(&s->rooms[c]));
		keys[i] = how == PLACE_SPREAD ? -room : room;
	}
	return found;
}

/* Sum of the k smallest keys: what place_choose will come to, without choosing yet. */
static int64_t score(const struct plan_state *s, size_t node, uint64_t candidates, uint32_t k,
	const int64_t *keys)
{
	uint8_t sorted[CARDS_MAX] = {0};
	int64_t sum = 0;

	sort_candidates(s, s->nodes[node].first, candidates, keys, sorted);
	for (uint32_t i = 0; i < k; i++)
		sum += keys[sorted[i]];
	return sum;
}

static struct place find_on_nodes(const struct plan_state *s, const struct plan_job *j)
{
	struct place best = {.node = -1};
	int64_t need = job_need(s, j), best_score = 0, keys[CARDS_MAX] = {0};
	enum sharing sharing = job_sharing(s, j);
	uint64_t best_candidates = 0;

	for (size_t i = 0; i < s->n_nodes; i++) {
		if (s->nodes[i].n_usable < j->gpus || is_node_full(&s->nodes[i], sharing, need) ||
			!job_may_use_node(j, i) || !host_takes(s, i, j))
			continue;
		uint64_t candidates = node_candidates(s, i, j, need, keys);
		if (count(candidates) < j->gpus)
			continue;
		if (place_needs_joined(s, i, j)) {
			candidates = choose_joined(s, i, candidates, j->gpus, keys);
			if (!candidates)
				continue;
		}
		int64_t its = score(s, i, candidates, j->gpus, keys);
		if (best.node < 0 || its < best_score) {
			best.node = (int32_t)i;
			best_score = its;
			best_candidates = candidates;
		}
	}
	if (best.node >= 0) {
		node_candidates(s, (size_t)best.node, j, need, keys);
		best.cards = place_choose(s, (size_t)best.node, j, best_candidates, keys);
	}
	return best;
}

/* The common case, one shared card anywhere, is a scan of the flat array. Array order is node order. */
static size_t scan_smallest(const int64_t *avail, size_t n, int64_t need)
{
	uint64_t least = UINT64_MAX / 2; /* a room below the need wraps round to above this */
	size_t at = n;

	for (size_t c = 0; c < n; c++) {
		uint64_t over = (uint64_t)avail[c] - (uint64_t)need;
		at = over < least ? c : at;
		least = over < least ? over : least;
	}
	return at;
}

static size_t scan_largest(const int64_t *avail, size_t n, int64_t need)
{
	int64_t most = need - 1;
	size_t at = n;

	for (size_t c = 0; c < n; c++) {
		at = avail[c] > most ? c : at;
		most = avail[c] > most ? avail[c] : most;
	}
	return at;
}

static struct place find_one_card(const struct plan_state *s, int64_t need)
{
	size_t c = s->policy->place == PLACE_SPREAD ? scan_largest(s->avail, s->n_cards, need)
						    : scan_smallest(s->avail, s->n_cards, need);

	if (c == s->n_cards)
		return (struct place){.node = -1};
	size_t node = s->node_of[c];
	return (struct place){(int32_t)node, bit((uint32_t)(c - s->nodes[node].first))};
}

struct place place_find(const struct plan_state *s, const struct plan_job *j)
{
	if (j->gpus == 1 && job_is_plain(j) && s->is_ascending && job_sharing(s, j) == SHARE)
		return find_one_card(s, job_need(s, j));
	return find_on_nodes(s, j);
}
