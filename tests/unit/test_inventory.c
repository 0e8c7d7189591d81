/* From samples to what is remembered of a node, and through JSON and back. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "queue/inventory.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#define OTHER "ffffffffffffffffffffffffffffffff"

static void add_card(struct sample *s, const char *uuid, int32_t index, int64_t total, int64_t used)
{
	s->snap.cards = xreallocarray(s->snap.cards, s->snap.n_cards + 1, sizeof(*s->snap.cards));
	s->promised_mib =
		xreallocarray(s->promised_mib, s->snap.n_cards + 1, sizeof(*s->promised_mib));
	struct gpu_card *c = &s->snap.cards[s->snap.n_cards];

	s->promised_mib[s->snap.n_cards++] = 0;
	*c = (struct gpu_card){.index = index, .numa = -1};
	snprintf(c->uuid, sizeof(c->uuid), "%s", uuid);
	snprintf(c->name, sizeof(c->name), "Card %s", uuid);
	c->m[METRIC_MEM_TOTAL] = value_of(total);
	c->m[METRIC_MEM_USED] = value_of(used);
}

/* row: 0 a stranger's. */
static void add_proc(
	struct sample *s, uint32_t card, int32_t pid, int64_t mib, uint32_t row, uint32_t kind)
{
	s->snap.procs = xreallocarray(s->snap.procs, s->snap.n_procs + 1, sizeof(*s->snap.procs));
	s->proc_row = xreallocarray(s->proc_row, s->snap.n_procs + 1, sizeof(*s->proc_row));
	struct gpu_proc *p = &s->snap.procs[s->snap.n_procs];

	s->proc_row[s->snap.n_procs++] = row;
	*p = (struct gpu_proc){.card = card,
		.pid = pid,
		.kind = kind,
		.uid = 1000,
		.used_mib = mib < 0 ? value_absent(VALUE_UNSUPPORTED) : value_of(mib)};
	snprintf(p->comm, sizeof(p->comm), "prog\x1b[%d", (int)pid);
}

static void add_row(struct sample *s, const char *queue, uint64_t job, uint32_t card,
	int64_t budget, int64_t held)
{
	s->rows = xreallocarray(s->rows, s->n_rows + 1, sizeof(*s->rows));
	struct ledger_row *r = &s->rows[s->n_rows++];

	*r = (struct ledger_row){.name = {.job = job, .attempt = 2},
		.card = card,
		.declared_mib = budget,
		.budget_mib = budget,
		.held_mib = held,
		.peak_mib = held + 7,
		.is_sampled = true};
	memcpy(r->name.queue, queue, ID_LEN);
}

static struct sample a_sample(void)
{
	struct sample s = {.wall_ms = 50000};

	snprintf(s.snap.source, sizeof(s.snap.source), "nvml");
	s.snap.ended_ms = 900;
	return s;
}

static void test_who_holds_what(void **state)
{
	CLEANUP(sample_done) struct sample s = a_sample();
	CLEANUP(inventory_done) struct inventory v = {0};

	add_card(&s, "GPU-aaaaaaaa", 0, 24000, 9000);
	add_card(&s, "GPU-bbbbbbbb", 1, 24000, 100);
	add_row(&s, QUEUE, 7, 0, 5000, 3000);
	add_row(&s, OTHER, 7, 0, 2000, 1000);
	add_proc(&s, 0, 11, 3000, 1, GPU_PROC_COMPUTE);
	add_proc(&s, 0, 12, 1000, 2, GPU_PROC_MPS);
	add_proc(&s, 0, 13, 4500, 0, GPU_PROC_COMPUTE);
	add_proc(&s, 1, 14, 60, 0, GPU_PROC_GRAPHICS);
	s.promised_mib[1] = 777;
	s.lane_mib = xcalloc(2, sizeof(*s.lane_mib));
	s.lane_mib[0] = 9000;
	s.lane_mib[1] = 4000;
	s.holds = xcalloc(4, sizeof(*s.holds));
	s.holds[s.n_holds++] = (struct sample_hold){QUEUE, 0, 3000};
	s.holds[s.n_holds++] = (struct sample_hold){OTHER, 0, 6000};
	s.holds[s.n_holds++] = (struct sample_hold){OTHER, 1, 30000};
	s.snap.cards[0].xid = (struct gpu_xid){.last = 79, .boot_ms = 400, .count = 1};
	inventory_take(&s, NULL, QUEUE, 1000, &v);
	assert_int_equal(v.sampled_wall_ms, 49000);
	assert_int_equal(v.n_cards, 2);
	/* 9000 in use, 4000 of it ours. */
	assert_int_equal(v.cards[0].external_mib, 5000);
	assert_int_equal(v.cards[0].external_procs, 1);
	assert_int_equal(v.cards[0].external_computing, 1);
	assert_int_equal(v.cards[0].xid, 79);
	assert_int_equal(v.cards[0].xid_ms, 49000 - 500);
	assert_int_equal(v.cards[1].external_computing, 0);
	assert_int_equal(v.cards[1].external_procs, 1);
	assert_int_equal(v.cards[1].promised_mib, 777);
	/* Its own lanes are the queue's to know; of the others' no more counts than there is. */
	assert_int_equal(v.cards[0].others_lanes_mib, 6000);
	assert_int_equal(v.cards[1].others_lanes_mib, 4000);
	/* Largest first; whose it is. */
	assert_int_equal(v.cards[0].n_procs, 3);
	assert_int_equal(v.cards[0].procs[0].pid, 13);
	assert_false(v.cards[0].procs[0].is_managed);
	assert_int_equal(v.cards[0].procs[1].job, 7);
	assert_true(v.cards[0].procs[2].is_managed);
	assert_int_equal(v.cards[0].procs[2].job, 0);
	assert_int_equal(v.cards[0].procs[2].kind, 'M');
	assert_null(strchr(v.cards[0].procs[0].name, '\x1b'));
	assert_int_equal(v.n_charges, 2);
	assert_int_equal(v.charges[1].budget_mib, 2000);
}

static void test_blind_card_credits_charges(void **state)
{
	CLEANUP(sample_done) struct sample s = a_sample();
	CLEANUP(inventory_done) struct inventory v = {0};

	add_card(&s, "GPU-aaaaaaaa", 0, 24000, 9000);
	add_card(&s, "GPU-bbbbbbbb", 1, 24000, 3000);
	s.snap.cards[0].is_blind = s.snap.cards[1].is_blind = true;
	add_row(&s, QUEUE, 7, 0, 5000, 0);
	add_row(&s, QUEUE, 8, 1, 5000, 0);
	inventory_take(&s, NULL, QUEUE, 0, &v);
	assert_int_equal(v.cards[0].external_mib, 4000);
	assert_int_equal(v.cards[1].external_mib, 0);
}

static void test_no_more_than_the_largest_processes(void **state)
{
	CLEANUP(sample_done) struct sample s = a_sample();
	CLEANUP(inventory_done) struct inventory v = {0};

	add_card(&s, "GPU-aaaaaaaa", 0, 24000, 9000);
	for (int i = 0; i < 40; i++)
		add_proc(&s, 0, 100 + i, i * 37 % 41, 0, GPU_PROC_COMPUTE);
	inventory_take(&s, NULL, QUEUE, 0, &v);
	assert_int_equal(v.cards[0].n_procs, 40);
	assert_int_equal(v.cards[0].n_procs_kept, INVENTORY_PROCS_MAX);
	for (size_t i = 1; i < INVENTORY_PROCS_MAX; i++)
		assert_true(v.cards[0].procs[i - 1].mem_mib >= v.cards[0].procs[i].mem_mib);
	assert_int_equal(v.cards[0].procs[0].mem_mib, 40);
}

/* ---- absence ---- */

static void test_a_missing_card_stays_known(void **state)
{
	CLEANUP(sample_done) struct sample before = a_sample(), after = a_sample();
	CLEANUP(inventory_done) struct inventory known = {0}, v = {0}, third = {0};

	add_card(&before, "GPU-aaaaaaaa", 0, 24000, 0);
	add_card(&before, "GPU-bbbbbbbb", 1, 80000, 0);
	add_card(&before, "GPU-cccccccc", 2, 80000, 0);
	before.snap.cards[1].nvlink_peers = 4;
	before.snap.cards[2].nvlink_peers = 2;
	inventory_take(&before, NULL, QUEUE, 0, &known);
	add_card(&after, "GPU-aaaaaaaa", 0, 24000, 0);
	add_card(&after, "GPU-cccccccc", 1, 80000, 0);
	inventory_take(&after, &known, QUEUE, 0, &v);
	assert_int_equal(v.n_cards, 3);
	assert_true(v.cards[1].is_present);
	assert_string_equal(v.cards[2].uuid, "GPU-bbbbbbbb");
	assert_false(v.cards[2].is_present);
	assert_int_equal(v.cards[2].total_mib, 80000);
	/* Its neighbour is at another position now. */
	assert_int_equal(v.cards[2].nvlink_peers, 2);
	inventory_take(&before, &v, QUEUE, 0, &third);
	assert_int_equal(third.n_cards, 3);
	assert_true(third.cards[1].is_present);
}

static void test_an_error_keeps_everything(void **state)
{
	CLEANUP(sample_done) struct sample before = a_sample(), after = a_sample();
	CLEANUP(inventory_done) struct inventory known = {0}, v = {0};

	add_card(&before, "GPU-aaaaaaaa", 0, 24000, 6000);
	add_row(&before, QUEUE, 7, 0, 5000, 3000);
	before.has_node = true;
	before.node =
		(struct node_figures){.cores = 64, .mem_total_mib = 9, .mem_available_mib = 8};
	inventory_take(&before, NULL, QUEUE, 0, &known);
	snprintf(after.snap.error, sizeof(after.snap.error), "the driver doesn't answer");
	inventory_take(&after, &known, QUEUE, 0, &v);
	assert_string_equal(v.error, "the driver doesn't answer");
	assert_int_equal(v.n_cards, 1);
	assert_false(v.cards[0].is_present);
	assert_int_equal(v.cards[0].total_mib, 24000);
	assert_int_equal(v.n_charges, 1);
	assert_int_equal(v.charges[0].budget_mib, 5000);
	assert_int_equal(v.cores, 64);
}

static void test_a_lost_card_keeps_its_name(void **state)
{
	CLEANUP(sample_done) struct sample before = a_sample(), after = a_sample();
	CLEANUP(inventory_done) struct inventory known = {0}, v = {0};

	add_card(&before, "GPU-aaaaaaaa", 0, 24000, 0);
	add_card(&before, "GPU-bbbbbbbb", 1, 80000, 0);
	inventory_take(&before, NULL, QUEUE, 0, &known);
	add_card(&after, "GPU-aaaaaaaa", 0, 24000, 0);
	add_card(&after, "", 1, 0, 0);
	after.snap.cards[1].state = GPU_LOST;
	after.snap.cards[1].m[METRIC_MEM_TOTAL] = value_absent(VALUE_LOST);
	inventory_take(&after, &known, QUEUE, 0, &v);
	assert_int_equal(v.n_cards, 2);
	assert_string_equal(v.cards[1].uuid, "GPU-bbbbbbbb");
	assert_int_equal(v.cards[1].total_mib, 80000);
	assert_int_equal(v.cards[1].state, GPU_LOST);
	assert_false(v.cards[1].is_present);
}

static void add_instance(struct sample *s, const char *uuid, const char *parent, int gi, int ci)
{
	add_card(s, uuid, 0, 10000, 0);
	struct gpu_card *c = &s->snap.cards[s->snap.n_cards - 1];

	snprintf(c->parent, sizeof(c->parent), "%s", parent);
	snprintf(c->profile, sizeof(c->profile), "1g.10gb");
	c->gi = gi + 1;
	c->ci = ci + 1;
}

static void test_instances_go_with_a_persons_command(void **state)
{
	CLEANUP(sample_done) struct sample before = a_sample(), after = a_sample();
	CLEANUP(inventory_done) struct inventory known = {0}, v = {0};

	add_card(&before, "GPU-aaaaaaaa", 0, 80000, 0);
	before.snap.cards[0].is_mig_parent = true;
	add_instance(&before, "MIG-1", "GPU-aaaaaaaa", 1, 0);
	add_instance(&before, "MIG-2", "GPU-aaaaaaaa", 2, 0);
	inventory_take(&before, NULL, QUEUE, 0, &known);
	assert_int_equal(known.n_cards, 3);
	assert_true(known.cards[0].is_mig_parent);
	assert_int_equal(known.cards[1].gi, 1);
	assert_int_equal(known.cards[0].gi, -1);
	add_card(&after, "GPU-aaaaaaaa", 0, 80000, 0);
	after.snap.cards[0].is_mig_parent = true;
	add_instance(&after, "MIG-2", "GPU-aaaaaaaa", 2, 0);
	inventory_take(&after, &known, QUEUE, 0, &v);
	assert_int_equal(v.n_cards, 2);
}

/* ---- what people type ---- */

static void test_find(void **state)
{
	CLEANUP(sample_done) struct sample s = a_sample();
	CLEANUP(inventory_done) struct inventory v = {0};
	char label[GPU_LABEL_LEN];

	add_card(&s, "GPU-aaaaaaaa-1", 0, 1, 0);
	add_card(&s, "GPU-aaaaaaaa-2", 3, 1, 0);
	add_instance(&s, "MIG-cccccccc", "GPU-aaaaaaaa-1", 1, 0);
	add_instance(&s, "MIG-dddddddd", "GPU-aaaaaaaa-1", 1, 2);
	inventory_take(&s, NULL, QUEUE, 0, &v);
	assert_int_equal(inventory_find(&v, "0"), 0);
	assert_int_equal(inventory_find(&v, "3"), 1);
	assert_int_equal(inventory_find(&v, "1"), -1);
	assert_int_equal(inventory_find(&v, "0:1"), 2);
	assert_int_equal(inventory_find(&v, "0:1:2"), 3);
	assert_int_equal(inventory_find(&v, "0:2"), -1);
	assert_int_equal(inventory_find(&v, "0:1:2:3"), -1);
	assert_int_equal(inventory_find(&v, "gpu-AAAAAAAA-2"), 1);
	assert_int_equal(inventory_find(&v, "GPU-aaaaaaaa"), -1); /* two */
	assert_int_equal(inventory_find(&v, "MIG-cccc"), 2);
	assert_int_equal(inventory_find(&v, "MIG-"), -1); /* too short */
	assert_int_equal(inventory_find(&v, ""), -1);
	assert_int_equal(inventory_find(&v, ":"), -1);
	inv_card_label(&v.cards[3], label);
	assert_string_equal(label, "0:1:2");
	inv_card_label(&v.cards[1], label);
	assert_string_equal(label, "3");
}

/* ---- JSON ---- */

static void test_json_and_back(void **state)
{
	CLEANUP(sample_done) struct sample s = a_sample();
	CLEANUP(inventory_done) struct inventory v = {0}, back = {0};
	struct err e = {0};

	add_card(&s, "GPU-aaaaaaaa", 0, 24000, 9000);
	add_instance(&s, "MIG-cccccccc", "GPU-aaaaaaaa", 0, 0);
	add_row(&s, QUEUE, 7, 0, 5000, 3000);
	add_row(&s, OTHER, 1, 1, -1, 0);
	s.rows[1].has_ended = true;
	add_proc(&s, 0, 11, 3000, 1, GPU_PROC_COMPUTE);
	add_proc(&s, 0, 12, -1, 0, GPU_PROC_GRAPHICS);
	s.snap.cards[0].nvlink_peers = UINT64_C(1) << 63 | 2;
	s.snap.cards[1].reset = GPU_RESET_NEEDED;
	s.snap.cards[1].state = GPU_NEEDS_RESET;
	s.has_node = true;
	s.node = (struct node_figures){.cores = 8, .mem_total_mib = 64000, .mem_available_mib = 1};
	inventory_take(&s, NULL, QUEUE, 0, &v);
	CLEANUP_FREE char *text = inventory_encode(&v);
	assert_int_equal(inventory_decode(text, &back, &e), 0);
	CLEANUP_FREE char *again = inventory_encode(&back);
	assert_string_equal(text, again);
	/* Not only the same text: the same values. */
	assert_int_equal(back.cards[0].nvlink_peers, UINT64_C(1) << 63 | 2);
	assert_int_equal(back.cards[1].state, GPU_NEEDS_RESET);
	assert_true(back.cards[1].needs_reset);
	assert_int_equal(back.cards[1].gi, 0);
	assert_int_equal(back.cards[0].gi, -1);
	assert_int_equal(back.cards[0].procs[1].mem_mib, -1);
	assert_int_equal(back.cards[0].procs[0].job, 7);
	assert_int_equal(back.cards[0].external_mib, 6000);
	assert_true(back.charges[1].has_ended);
	assert_int_equal(back.charges[1].declared_mib, -1);
	assert_int_equal(back.charges[0].peak_mib, 3007);
	assert_int_equal(back.mem_total_mib, 64000);
	assert_string_equal(back.cards[1].profile, "1g.10gb");
}

static void test_json_from_elsewhere(void **state)
{
	static const char *const bad[] = {"", "[", "[]", "7", "\"x\""};
	static const char *const odd[] = {"{}", "{\"cards\": 7, \"charges\": {}}",
		"{\"cards\": [7, null, {\"uuid\": 3, \"procs\": [1, {}], \"state\": \"odd\"}], \"charges\": [[], [1,2,3]]}",
		"{\"cards\": [{}], \"charges\": [[\"" QUEUE
		"\", 1, 1, 64, 1, 1, 1, 1, 0], [\"" QUEUE "\", 1, 1, -1, 1, 1, 1, 1, 0]]}"};
	struct err e = {0};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct inventory v = {0};
		assert_int_equal(inventory_decode(bad[i], &v, &e), -EBADMSG);
	}
	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		CLEANUP(inventory_done) struct inventory v = {0};
		assert_int_equal(inventory_decode(odd[i], &v, &e), 0);
		assert_int_equal(v.n_charges, 0);
		for (size_t k = 0; k < v.n_cards; k++)
			assert_false(v.cards[k].is_present);
	}
	CLEANUP(inventory_done) struct inventory v = {0};
	assert_int_equal(inventory_decode(NULL, &v, &e), 0);
	assert_int_equal(v.n_cards, 0);
	assert_int_equal(v.mem_total_mib, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_holds_what),
		cmocka_unit_test(test_blind_card_credits_charges),
		cmocka_unit_test(test_no_more_than_the_largest_processes),
		cmocka_unit_test(test_a_missing_card_stays_known),
		cmocka_unit_test(test_an_error_keeps_everything),
		cmocka_unit_test(test_a_lost_card_keeps_its_name),
		cmocka_unit_test(test_instances_go_with_a_persons_command),
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_json_and_back),
		cmocka_unit_test(test_json_from_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
