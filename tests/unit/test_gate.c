/* The gate: never more inside than it lets in, first come first served but for those who go first, and no seat for ever. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fleet/gate.h"

#include <string.h>

struct guest {
	struct gate_seat seat;
	struct party *party;
	char name;
};

struct party {
	struct event_base *base;
	char entered[64];
	size_t n, inside, most;
};

static void enter(void *arg)
{
	struct guest *g = arg;

	g->party->entered[g->party->n++] = g->name;
	if (++g->party->inside > g->party->most)
		g->party->most = g->party->inside;
}

static void leave(struct guest *g)
{
	gate_leave(&g->seat);
	g->party->inside--;
}

static void has_order_and_limit(void **state)
{
	struct party p = {.base = event_base_new()};
	struct gate *gate = gate_new(p.base, 2, 60000);
	struct guest guests[6];

	for (int i = 0; i < 6; i++) {
		guests[i] = (struct guest){.party = &p, .name = (char)('a' + i)};
		gate_wait(gate, &guests[i].seat, i == 3 || i == 5, enter, &guests[i]);
	}
	event_base_loop(p.base, EVLOOP_NONBLOCK);
	assert_string_equal(p.entered, "df");
	/* One that waits goes away; one inside leaves. */
	gate_leave(&guests[0].seat);
	leave(&guests[3]);
	event_base_loop(p.base, EVLOOP_NONBLOCK);
	assert_string_equal(p.entered, "dfb");
	leave(&guests[5]);
	leave(&guests[1]);
	event_base_loop(p.base, EVLOOP_NONBLOCK);
	assert_string_equal(p.entered, "dfbce");
	assert_int_equal(p.most, 2);
	/* Leaving twice is nothing. */
	gate_leave(&guests[3].seat);
	leave(&guests[2]);
	leave(&guests[4]);
	gate_free(gate);
	event_base_free(p.base);
}

static void seat_is_not_for_ever(void **state)
{
	struct party p = {.base = event_base_new()};
	struct gate *gate = gate_new(p.base, 1, 50);
	struct guest guests[3];
	int64_t until = clock_boot_ms() + 60000;

	for (int i = 0; i < 3; i++) {
		guests[i] = (struct guest){.party = &p, .name = (char)('a' + i)};
		gate_wait(gate, &guests[i].seat, false, enter, &guests[i]);
	}
	event_base_loop(p.base, EVLOOP_NONBLOCK);
	/* And the next one, if this process slept for his time. */
	assert_int_equal(p.entered[0], 'a');
	while (p.n < 3 && clock_boot_ms() < until)
		event_base_loop(p.base, EVLOOP_ONCE);
	assert_string_equal(p.entered, "abc");
	for (int i = 0; i < 3; i++)
		gate_leave(&guests[i].seat);
	gate_free(gate);
	event_base_free(p.base);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(has_order_and_limit),
		cmocka_unit_test(seat_is_not_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
