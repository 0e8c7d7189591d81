/*
 * A card whose MIG mode is to change waits for a reset, and a reset waits until nobody has the card open: an idle monitor
 * would be the one who stands in its way. So it lets go of the driver for a while, says so, comes back and looks again,
 * ever more seldom while the change doesn't come. A card with processes can't be reset anyway; who places jobs isn't made
 * to wait. `gpustow release` lets go for as long as somebody wants.
 */
#include "gpu/nvml.h"

#include <stdio.h>

static bool has_process(const struct gpu_snapshot *s, uint32_t card)
{
	for (uint32_t i = 0; i < s->n_procs; i++) {
		if (gpu_whole_of(s, s->procs[i].card) == card)
			return true;
	}
	return false;
}

/* The first card that waits for its reset; -1 for none. *ret_any: also one with processes. */
static int find_waiting(const struct gpu_snapshot *s, bool *ret_any)
{
	*ret_any = false;
	for (uint32_t i = 0; i < s->n_cards; i++) {
		struct value now = s->cards[i].m[METRIC_MIG_MODE];
		struct value then = s->cards[i].m[METRIC_MIG_PENDING];

		if (!value_is_present(now) || !value_is_present(then) || now.v == then.v)
			continue;
		*ret_any = true;
		if (!has_process(s, i))
			return (int)i;
	}
	return -1;
}

static void say(const struct nvml *n, int64_t now_ms, struct gpu_snapshot *s)
{
	int64_t left_ms = n->rest_until_ms - now_ms;

	if (left_ms > 0)
		snprintf(s->error, sizeof(s->error),
			"the GPU driver is let go of for %lld s, so that card %d can be reset: its MIG mode is to "
			"change (nvidia-smi --gpu-reset -i %d); `gpustow release` lets go for longer",
			(long long)((left_ms + 999) / 1000), n->yield_index, n->yield_index);
}

void nvml_yield_look(struct nvml *n, int64_t now_ms, struct gpu_snapshot *s)
{
	bool has_any;
	int at;

	if (n->is_yielding) {
		say(n, now_ms, s);
		return;
	}
	/* A snapshot without process lists can't say that there's nobody. */
	if (!n->base.ask.lets_sleep || s->has_old_procs || n->rest_until_ms != 0 ||
		(n->placer_ms != 0 && now_ms - n->placer_ms < NVML_PLACER_MS))
		return;
	at = find_waiting(s, &has_any);
	if (!has_any)
		n->yield_gap_ms = n->yield_next_ms = 0;
	if (at < 0 || now_ms < n->yield_next_ms)
		return;
	nvml_stop(n);
	for (uint32_t i = 0; i < n->n_cards; i++)
		n->cards[i].is_asleep = true;
	n->is_yielding = true;
	n->yield_index = s->cards[at].index;
	n->rest_until_ms = now_ms + NVML_YIELD_MS;
	n->yield_gap_ms = n->yield_gap_ms == 0 ? NVML_YIELD_MS : 2 * n->yield_gap_ms;
	if (n->yield_gap_ms > NVML_IDLE_MAX_MS)
		n->yield_gap_ms = NVML_IDLE_MAX_MS;
	n->yield_next_ms = n->rest_until_ms + n->yield_gap_ms;
}
