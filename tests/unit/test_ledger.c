/* Attribution, charges and the admission's figures on snapshots made by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/admit.h"
#include "agent/ledger.h"
#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
/* Beyond any pid_max: nobody's. */
#define PID(n) (40000000 + (n))

static struct root root;
static struct attempts table;
static struct ledger *ledger;

static void ignore(void *arg, struct attempt *a)
{
}

static int set_up(void **state)
{
	attempts_init(&table, &root, ignore, NULL);
	ledger = ledger_new();
	return 0;
}

static int tear_down(void **state)
{
	ledger_free(ledger);
	attempts_done(&table);
	return 0;
}

/* A started attempt: shim PID(job * 10), leader PID(job * 10 + 1), both from tick 100 on. */
static struct attempt *add(uint64_t job, const char *uuid, int64_t declared_mib)
{
	struct claim_spec s = {.name = {QUEUE, job, 1}, .n_cards = 1};
	struct attempt *a;

	snprintf(s.cards[0].uuid, sizeof(s.cards[0].uuid), "%s", uuid);
	s.cards[0].declared_mib = declared_mib;
	s.policy.spike_buffer = 0.1;
	s.policy.high_water = true;
	a = attempts_add(&table, &s);
	a->rec.state = ATTEMPT_STARTED;
	a->rec.shim_pid = PID((int)job * 10);
	a->rec.shim_start_ticks = 100;
	a->rec.pid = PID((int)job * 10 + 1);
	a->rec.start_ticks = 100;
	a->is_watched = true;
	return a;
}

static struct gpu_snapshot snapshot(int64_t used0, int64_t used1)
{
	struct gpu_snapshot s = {
		.seq = 1, .begun_ms = 1, .ended_ms = 2, .source = "sim", .n_cards = 2};

	s.cards = xcalloc(2, sizeof(*s.cards));
	s.procs = xcalloc(16, sizeof(*s.procs));
	for (int i = 0; i < 2; i++) {
		s.cards[i].index = i;
		snprintf(s.cards[i].uuid, sizeof(s.cards[i].uuid), "GPU-%d", i);
		s.cards[i].m[METRIC_MEM_TOTAL] = value_of(24576);
		s.cards[i].m[METRIC_MEM_USED] = value_of(i ? used1 : used0);
	}
	return s;
}

static struct gpu_proc *add_proc(struct gpu_snapshot *s, uint32_t card, int pid, int64_t mib)
{
	struct gpu_proc *p = &s->procs[s->n_procs++];

	*p = (struct gpu_proc){.card = card,
		.kind = 1,
		.pid = pid,
		.start_ticks = 200,
		.used_mib = value_of(mib),
		.uid = 1000};
	return p;
}

static struct card_room room(uint32_t card)
{
	struct claim_policy policy = {.spike_buffer = 0.1, .high_water = true};
	struct card_room r;

	ledger_room(ledger, &table, NULL, UINT64_MAX, card, &policy, &r);
	return r;
}

static void attribution(void **state)
{
	struct attempt *one = add(1, "GPU-0", 1000), *two = add(2, "GPU-0", 1000);
	struct gpu_snapshot s = snapshot(2000, 0);
	struct sample got;
	struct gpu_proc *p;

	p = add_proc(&s, 0, PID(501), 10); /* by session */
	p->sid = PID(11);
	p = add_proc(&s, 0, PID(502), 20); /* by descent from the shim, session of its own */
	p->sid = PID(502);
	p->ancestors[0] = PID(400);
	p->ancestors[1] = PID(10);
	p->n_ancestors = 2;
	p = add_proc(&s, 0, PID(503), 40); /* the nearest counts: a job within a job */
	p->ancestors[0] = PID(20);
	p->ancestors[1] = PID(10);
	p->n_ancestors = 2;
	p = add_proc(&s, 0, PID(504), 80); /* by mark alone */
	snprintf(p->mark, sizeof(p->mark), "%s/2.1", QUEUE);
	p = add_proc(&s, 0, PID(505),
		160); /* older than the shim it seems to come from: another's pid */
	p->start_ticks = 50;
	p->ancestors[0] = PID(10);
	p->n_ancestors = 1;
	p = add_proc(&s, 0, PID(506), 320); /* a mark of nobody we know */
	snprintf(p->mark, sizeof(p->mark), "%s/9.1", QUEUE);
	ledger_take(ledger, &table, &s, 1);
	assert_int_equal(one->cards[0].held_mib, 30);
	assert_int_equal(two->cards[0].held_mib, 120);
	assert_true(one->cards[0].is_sampled);

	ledger_sample(ledger, &table, 5, &got);
	assert_int_equal(got.n_rows, 2);
	static const uint64_t owners[] = {1, 1, 2, 2, 0, 0};
	for (int i = 0; i < 6; i++) {
		uint32_t row = got.proc_row[i];

		assert_int_equal(row ? got.rows[row - 1].name.job : 0, owners[i]);
	}
	sample_done(&got);
	/* What nobody of ours holds is foreign, at least its processes' buffered peaks. */
	assert_int_equal(room(0).foreign_mib, 2000 - 150);
	assert_int_equal(room(0).budgets_mib, 2000);
	assert_int_equal(room(0).n_ours, 2);
}

static void peaks_and_leftovers(void **state)
{
	struct attempt *a = add(1, "GPU-0", 1000);
	struct gpu_snapshot s = snapshot(1500, 0);

	add_proc(&s, 0, PID(501), 1500)->sid = PID(11);
	ledger_take(ledger, &table, &s, 1);
	assert_int_equal(ledger_charge(ledger, a, 0), 1650);
	s = snapshot(100, 0);
	add_proc(&s, 0, PID(501), 100)->sid = PID(11);
	ledger_take(ledger, &table, &s, 2);
	assert_int_equal(a->cards[0].held_mib, 100);
	assert_int_equal(a->cards[0].peak_mib, 1500);
	assert_int_equal(ledger_charge(ledger, a, 0), 1650);
	/* The promise ends with the leader; what it left is charged while it's held. */
	a->rec.state = ATTEMPT_ENDED;
	assert_int_equal(room(0).budgets_mib, 100);
	assert_int_equal(room(0).foreign_mib, 0);
	s = snapshot(0, 0);
	ledger_take(ledger, &table, &s, 3);
	assert_int_equal(room(0).budgets_mib, 0);
	assert_int_equal(room(0).n_ours, 0);
}

/* A card that a sample lacks, or a driver that can't be asked, makes no room. */
static void silence_is_no_room(void **state)
{
	struct attempt *a = add(1, "GPU-1", 1000);
	struct gpu_snapshot s = snapshot(0, 1500), none = {.error = "asleep"};

	add_proc(&s, 1, PID(501), 1500)->sid = PID(11);
	ledger_take(ledger, &table, &s, 1);
	s = snapshot(0, 0);
	s.n_cards = 1;
	ledger_take(ledger, &table, &s, 2);
	assert_int_equal(a->cards[0].held_mib, 1500);
	s = snapshot(0, 1500);
	ledger_take(ledger, &table, &s, 3);
	ledger_take(ledger, &table, &none, 4);
	assert_int_equal(ledger_snapshot(ledger)->n_cards, 2);
	assert_string_equal(ledger_snapshot(ledger)->error, "asleep");
}

static void freshness(void **state)
{
	struct attempt *a = add(1, "GPU-0", 1000);
	struct gpu_snapshot s = snapshot(0, 0);

	assert_false(ledger_is_fresh(ledger, "GPU-0"));
	ledger_take(ledger, &table, &s, 5);
	assert_true(ledger_is_fresh(ledger, "GPU-0"));
	/* Something ended when six requests had been made: the sixth answer may have been begun before. */
	ledger_note(ledger, a, 6);
	assert_false(ledger_is_fresh(ledger, "GPU-0"));
	assert_true(ledger_is_fresh(ledger, "GPU-1"));
	s = snapshot(0, 0);
	ledger_take(ledger, &table, &s, 6);
	assert_false(ledger_is_fresh(ledger, "GPU-0"));
	s = snapshot(0, 0);
	ledger_take(ledger, &table, &s, 7);
	assert_true(ledger_is_fresh(ledger, "GPU-0"));
}

static enum admission check(int card, int64_t declared_mib, struct refusal *r)
{
	struct claim_card c = {.declared_mib = declared_mib};
	struct claim_policy policy = {.margin_mib = 512,
		.idle_threshold_mib = 200,
		.spike_buffer = 0.1,
		.high_water = true};

	snprintf(c.uuid, sizeof(c.uuid), "GPU-%d", card);
	*r = (struct refusal){0};
	return admit_check(ledger, &table, NULL, UINT64_MAX, 1, &c, &policy, r);
}

static void take_plain(int64_t used0)
{
	struct gpu_snapshot s = snapshot(used0, 0);

	ledger_take(ledger, &table, &s, 1);
}

static void figures(void **state)
{
	struct refusal r;

	add(1, "GPU-0", 8000);
	take_plain(2000);
	assert_int_equal(check(0, 24576 - 10000 - 512, &r), ADMIT_YES);
	assert_int_equal(check(0, 24576 - 10000 - 511, &r), ADMIT_NO);
	assert_string_equal(r.reason, "memory");
	assert_true(r.has_figures);
	assert_string_equal(r.card, "GPU-0");
	assert_int_equal(r.need_mib, 24576 - 10000 + 1);
	assert_int_equal(r.free_mib, 24576 - 10000);
	assert_int_equal(r.total_mib, 24576);
	assert_int_equal(r.foreign_mib, 2000);
	assert_int_equal(r.budget_mib, 8000);
	assert_int_equal(r.promised_mib, 0);
	assert_int_equal(check(0, -1, &r), ADMIT_NO);
	assert_string_equal(r.reason, "busy");
	assert_int_equal(check(1, -1, &r), ADMIT_YES);
	assert_int_equal(check(7, 10, &r), ADMIT_NO);
	assert_string_equal(r.reason, "card");
	assert_false(r.has_figures);
	add(2, "GPU-1", -1);
	assert_int_equal(check(1, 10, &r), ADMIT_NO);
	assert_string_equal(r.reason, "busy");
	assert_int_equal(r.budget_mib, 24576);
}

static void lost_cards_and_silent_drivers(void **state)
{
	struct gpu_snapshot s = snapshot(0, 0), none = {.error = "the driver is gone"};
	struct refusal r;

	s.cards[0].state = GPU_LOST;
	s.cards[1].m[METRIC_MEM_USED] = value_absent(VALUE_FAILED);
	ledger_take(ledger, &table, &s, 1);
	assert_int_equal(check(0, 10, &r), ADMIT_NO);
	assert_string_equal(r.reason, "card");
	assert_int_equal(check(1, 10, &r), ADMIT_NO);
	assert_string_equal(r.reason, "driver");
	take_plain(0);
	assert_int_equal(check(0, 10, &r), ADMIT_YES);
	ledger_take(ledger, &table, &none, 2);
	assert_int_equal(check(0, 10, &r), ADMIT_NO);
	assert_string_equal(r.reason, "driver");
	assert_non_null(strstr(r.text, "the driver is gone"));
}

static void promise(uid_t uid, int64_t mib, bool is_tentative, int rank)
{
	struct promise_other *o = xcalloc(1, sizeof(*o));

	*o = (struct promise_other){.row = {"GPU-0", mib, is_tentative}, .uid = uid, .rank = rank};
	ledger_set_promises(ledger, o, 1);
}

static void promises_of_others(void **state)
{
	struct gpu_snapshot s = snapshot(3000, 0);
	struct refusal r;

	/* User 2000 promised 10000 and holds 3000 of it already: 7000 are beyond. */
	add_proc(&s, 0, PID(900), 3000)->uid = 2000;
	ledger_take(ledger, &table, &s, 1);
	promise(2000, 10000, false, 1);
	assert_int_equal(ledger_promised(ledger, 0, true), 7000);
	assert_int_equal(ledger_promised(ledger, 1, true), 0);
	/* Foreign by high water: 3300. */
	assert_int_equal(check(0, 24576 - 3300 - 7000 - 512, &r), ADMIT_YES);
	assert_int_equal(check(0, 24576 - 3300 - 7000 - 511, &r), ADMIT_NO);
	assert_string_equal(r.reason, "promise");
	assert_int_equal(r.promised_mib, 7000);
	assert_non_null(strstr(r.text, "2000"));
	/* The same need with nobody's promise in the way, but no memory either. */
	assert_int_equal(check(0, 24000, &r), ADMIT_NO);
	assert_string_equal(r.reason, "memory");
	/* Only asked for, by someone who comes after us: worth a wait; before us: not. */
	promise(2000, 10000, true, 1);
	assert_int_equal(check(0, 24576 - 3300 - 7000 - 511, &r), ADMIT_TIE);
	promise(500, 10000, true, -1);
	assert_int_equal(check(0, 24576 - 3300 - 7000 - 511, &r), ADMIT_NO);
	assert_string_equal(r.reason, "promise");
}

/* Where the driver names nobody's memory, our own jobs are credited up to what they were promised. */
static void blind_card(void **state)
{
	struct gpu_snapshot s = snapshot(5000, 0);

	add(1, "GPU-0", 4000);
	s.cards[0].is_blind = true;
	ledger_take(ledger, &table, &s, 1);
	assert_int_equal(room(0).foreign_mib, 1000);
	assert_int_equal(room(0).budgets_mib, 4000);
}

static void own_promises(void **state)
{
	struct promise_row rows[PROMISE_ROWS_MAX];
	struct attempt *whole;

	add(1, "GPU-0", 4000);
	add(2, "GPU-0", 1000);
	whole = add(3, "GPU-1", -1);
	/* Before the first sample nobody knows how large a card is: all of it is promised. */
	assert_int_equal(ledger_promises(ledger, &table, rows, PROMISE_ROWS_MAX), 2);
	assert_int_equal(rows[0].mib, 5000);
	assert_int_equal(rows[1].mib, PROMISE_ALL_MIB);
	take_plain(0);
	assert_int_equal(ledger_promises(ledger, &table, rows, PROMISE_ROWS_MAX), 2);
	assert_int_equal(rows[1].mib, 24576);
	whole->rec.state = ATTEMPT_ENDED;
	assert_int_equal(ledger_promises(ledger, &table, rows, PROMISE_ROWS_MAX), 1);
}

static void hold(uint64_t first_order, int64_t next_mib, int64_t running_mib, bool is_told)
{
	struct ledger_hold *rows = xcalloc(2, sizeof(*rows));

	for (uint64_t i = 0; i < 2; i++) {
		rows[i] = (struct ledger_hold){.order = first_order + i,
			.next_mib = next_mib,
			.running_mib = running_mib,
			.is_place = !running_mib,
			.is_told = is_told};
		snprintf(rows[i].uuid, sizeof(rows[i].uuid), "GPU-0");
		memset(rows[i].queue, i ? 'b' : 'a', ID_LEN - 1);
	}
	ledger_set_holds(ledger, rows, 2);
}

static struct card_room room_before(uint64_t order)
{
	struct claim_policy policy = {.high_water = true};
	struct card_room r;

	ledger_room(ledger, &table, NULL, order, 0, &policy, &r);
	return r;
}

/* Two lanes on card 0, each with 4000 MiB running and 7000 to come. */
static void what_lanes_hold(void **state)
{
	struct promise_row rows[PROMISE_ROWS_MAX];
	struct promise_other *others;
	struct sample got;

	add(1, "GPU-0", 4000);
	add(2, "GPU-0", 4000);
	take_plain(0);
	hold(5, 7000, 4000, true);
	assert_int_equal(room_before(UINT64_MAX).budgets_mib, 14000);
	assert_int_equal(room_before(6).budgets_mib, 11000);
	assert_int_equal(room_before(5).budgets_mib, 8000);
	assert_int_equal(room_before(UINT64_MAX).n_ours, 2);
	assert_int_equal(ledger_promises(ledger, &table, rows, PROMISE_ROWS_MAX), 1);
	assert_int_equal(rows[0].mib, 14000);
	ledger_sample(ledger, &table, 0, &got);
	assert_int_equal(got.lane_mib[0], 6000);
	assert_int_equal(got.lane_mib[1], 0);
	assert_int_equal(got.n_holds, 2);
	assert_int_equal(got.holds[1].queue[0], 'b');
	assert_int_equal(got.holds[1].mib, 3000);
	assert_int_equal(got.holds[1].card, 0);
	sample_done(&got);
	/* Larger than what's left: that much is held, and no more is told. */
	hold(5, -1, 4000, true);
	ledger_sample(ledger, &table, 0, &got);
	assert_int_equal(got.lane_mib[0], 24576 - 8000);
	sample_done(&got);
	ledger_promises(ledger, &table, rows, PROMISE_ROWS_MAX);
	assert_int_equal(rows[0].mib, 24576);
	/* Another user was promised some of it. */
	others = xcalloc(1, sizeof(*others));
	others->uid = 1001;
	others->row.mib = 10000;
	snprintf(others->row.uuid, sizeof(others->row.uuid), "GPU-0");
	ledger_set_promises(ledger, others, 1);
	ledger_promises(ledger, &table, rows, PROMISE_ROWS_MAX);
	assert_int_equal(rows[0].mib, 14576);
	/* Withdrawn: of us alone, until it stands in line. */
	hold(5, 7000, 4000, false);
	ledger_promises(ledger, &table, rows, PROMISE_ROWS_MAX);
	assert_int_equal(rows[0].mib, 8000);
	assert_int_equal(room_before(UINT64_MAX).budgets_mib, 14000);
	/* None of theirs runs: each takes a place. */
	hold(5, 7000, 0, true);
	assert_int_equal(room_before(UINT64_MAX).n_ours, 4);
	assert_int_equal(room_before(6).n_ours, 3);
}

/* Card 0 in two halves, at positions 2 and 3; the process rows are the halves'. */
static struct gpu_snapshot cut(int64_t used2, int64_t used3)
{
	struct gpu_snapshot s = snapshot(used2 + used3, 0);

	s.cards = xreallocarray(s.cards, 4, sizeof(*s.cards));
	s.n_cards = 4;
	s.cards[0].is_mig_parent = true;
	for (int i = 2; i < 4; i++) {
		s.cards[i] = (struct gpu_card){.gi = i, .ci = 1};
		snprintf(s.cards[i].uuid, sizeof(s.cards[i].uuid), "MIG-%d", i);
		snprintf(s.cards[i].parent, sizeof(s.cards[i].parent), "GPU-0");
		s.cards[i].m[METRIC_MEM_TOTAL] = value_of(10000);
		s.cards[i].m[METRIC_MEM_USED] = value_of(i == 2 ? used2 : used3);
	}
	return s;
}

static enum admission admit(const char *uuid, int64_t mib, struct refusal *r)
{
	struct claim_card card = {.declared_mib = mib};
	struct claim_policy policy = {.margin_mib = 500, .spike_buffer = 0.1, .high_water = true};

	snprintf(card.uuid, sizeof(card.uuid), "%s", uuid);
	*r = (struct refusal){0};
	return admit_check(ledger, &table, NULL, UINT64_MAX, 1, &card, &policy, r);
}

/* An instance is charged, has strangers and admits like a card of its own; what it was cut from admits nobody. */
static void an_instance_is_a_card(void **state)
{
	struct attempt *one = add(1, "MIG-2", 4000);
	struct gpu_snapshot s = cut(4500, 2000);
	struct refusal r;
	struct sample got;

	add_proc(&s, 2, PID(501), 4500)->sid = PID(11);
	add_proc(&s, 3, PID(600), 2000);
	ledger_take(ledger, &table, &s, 1);
	assert_int_equal(one->cards[0].held_mib, 4500);
	assert_int_equal(room(2).budgets_mib, 4950); /* its peak and a tenth */
	assert_int_equal(room(2).foreign_mib, 0);
	assert_int_equal(room(2).total_mib, 10000);
	assert_int_equal(room(3).budgets_mib, 0);
	assert_int_equal(room(3).foreign_mib, 2200);
	assert_int_equal(admit("MIG-2", 4000, &r), ADMIT_YES);
	assert_int_equal(admit("MIG-2", 6000, &r), ADMIT_NO);
	assert_string_equal(r.reason, "memory");
	assert_non_null(strstr(r.text, "card 0:1 has 5050 MiB free"));
	assert_int_equal(admit("MIG-3", 7000, &r), ADMIT_YES);
	assert_int_equal(admit("GPU-0", 1, &r), ADMIT_NO);
	assert_string_equal(r.reason, "card");
	assert_non_null(strstr(r.text, "cut into MIG instances"));
	ledger_sample(ledger, &table, 0, &got);
	assert_int_equal(got.n_rows, 1);
	assert_int_equal(got.rows[0].card, 2);
	assert_int_equal(got.proc_row[0], 1);
	sample_done(&got);
	/* Promises of others are about the UUID as well. */
	ledger_set_promises(ledger, xcalloc(1, sizeof(struct promise_other)), 0);
	assert_int_equal(ledger_promised(ledger, 2, true), 0);
}

static void take_xids(int64_t last, int64_t boot_ms, int64_t count, uint64_t number)
{
	struct gpu_snapshot s = snapshot(0, 0);

	s.cards[1].xid = (struct gpu_xid){last, boot_ms, count};
	ledger_take(ledger, &table, &s, number);
}

static void assert_xid(int64_t last, int64_t boot_ms, int64_t count)
{
	const struct gpu_xid *x = &ledger_snapshot(ledger)->cards[1].xid;

	assert_int_equal(x->last, last);
	assert_int_equal(x->boot_ms, boot_ms);
	assert_int_equal(x->count, count);
	assert_int_equal(ledger_snapshot(ledger)->cards[0].xid.count, 0);
}

/* The sampler is started anew when the driver hangs, and counts from 0 then; the agent doesn't. */
static void xids_outlive_a_sampler(void **state)
{
	take_xids(0, 0, 0, 1);
	assert_xid(0, 0, 0);
	take_xids(79, 50, 2, 2);
	assert_xid(79, 50, 2);
	take_xids(0, 0, 0, 3);
	assert_xid(79, 50, 2);
	take_xids(31, 90, 1, 4);
	assert_xid(31, 90, 3);
	take_xids(31, 95, 2, 5);
	assert_xid(31, 95, 4);
	take_xids(0, 0, 0, 6);
	assert_xid(31, 95, 4);
}

/* An XID is told with the end of the attempt that had the card when it came. */
static void xids_of_an_attempt(void **state)
{
	struct attempt *a = add(1, "GPU-1", 1000), *other = add(2, "GPU-0", 1000);

	a->rec.end.started_boot_ms = other->rec.end.started_boot_ms = 100;
	take_xids(79, 50, 1, 1); /* before it began */
	assert_int_equal(a->cards[0].xid, 0);
	take_xids(31, 150, 2, 2);
	assert_int_equal(a->cards[0].xid, 31);
	assert_int_equal(other->cards[0].xid, 0);
	a->rec.state = ATTEMPT_ENDED;
	a->rec.end.ended_boot_ms = 200;
	take_xids(79, 900, 3, 3); /* the driver was a moment late */
	assert_int_equal(a->cards[0].xid, 79);
	take_xids(48, 5000, 4, 4); /* long after it */
	assert_int_equal(a->cards[0].xid, 79);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(attribution),
		TEST(peaks_and_leftovers),
		TEST(silence_is_no_room),
		TEST(freshness),
		TEST(figures),
		TEST(lost_cards_and_silent_drivers),
		TEST(promises_of_others),
		TEST(blind_card),
		TEST(own_promises),
		TEST(what_lanes_hold),
		TEST(an_instance_is_a_card),
		TEST(xids_outlive_a_sampler),
		TEST(xids_of_an_attempt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
