/* What lanes keep of their cards for their next ones: max(running, next), as rows for the ledger (lanes.h). */
#include "agent/lanes_inner.h"
#include "base/alloc.h"

#include <string.h>

static int64_t running_charge(const struct agent *a, const struct lane_run *lr, const char *uuid)
{
	int64_t sum = 0;

	for (size_t i = 0; i < lr->n_running; i++) {
		const struct attempt *at = attempts_find(&a->attempts, &lr->running[i].name);

		for (uint32_t k = 0; at && k < at->n_cards; k++)
			if (!strcmp(at->cards[k].uuid, uuid))
				sum += ledger_charge(a->ledger, at, k);
	}
	return sum;
}

static bool runs_on(const struct agent *a, const struct lane_run *lr, const char *uuid)
{
	for (size_t i = 0; i < lr->n_running; i++) {
		const struct attempt *at = attempts_find(&a->attempts, &lr->running[i].name);

		for (uint32_t k = 0; at && k < at->n_cards; k++)
			if (!strcmp(at->cards[k].uuid, uuid))
				return true;
	}
	return false;
}

void lanes_hold(struct agent *a)
{
	struct ledger_hold *rows = NULL;
	size_t n = 0, cap = 0;

	if (!a->lanes->n)
		return;
	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_run *lr = a->lanes->items[i];
		const struct lane_entry *x = head_of(lr);

		for (uint32_t k = 0; is_near(lr) && k < x->n_cards; k++) {
			GROW(rows, n, cap);
			rows[n] = (struct ledger_hold){
				.order = lr->order,
				.next_mib = x->cards[k].declared_mib,
				.running_mib = running_charge(a, lr, x->cards[k].uuid),
				.is_place = !runs_on(a, lr, x->cards[k].uuid),
				.is_told = !lr->is_withdrawn,
			};
			memcpy(rows[n].queue, lr->lane.queue, ID_LEN);
			memcpy(rows[n++].uuid, x->cards[k].uuid, sizeof(rows[0].uuid));
		}
	}
	if (ledger_set_holds(a->ledger, rows, n))
		a->promises_are_old = true;
}

uint64_t lanes_order(const struct agent *a, const struct attempt_name *n)
{
	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_run *lr = a->lanes->items[i];
		const struct lane_entry *x = head_of(lr);

		if ((x && attempt_name_equal(&x->name, n)) || lanes_find_running(lr, n) >= 0)
			return lr->order;
	}
	return UINT64_MAX;
}
