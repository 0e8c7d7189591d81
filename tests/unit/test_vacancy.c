/* `gpustow wait`: what counts as free, for how long, and which cards are taken. And the doctor's list, there and back. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "show/checklist.h"
#include "show/vacancy.h"

struct node {
	struct sample s;
	struct gpu_card cards[4];
	struct gpu_proc procs[4];
	int64_t promised[4];
	struct ledger_row rows[4];
};

static void fill(struct node *n, uint32_t n_cards)
{
	*n = (struct node){.s = {.snap = {.cards = n->cards, .procs = n->procs, .n_cards = n_cards},
				   .promised_mib = n->promised,
				   .rows = n->rows}};
	for (uint32_t i = 0; i < n_cards; i++) {
		n->cards[i].index = (int32_t)i;
		snprintf(n->cards[i].uuid, sizeof(n->cards[i].uuid), "GPU-%u", i);
		n->cards[i].m[METRIC_MEM_TOTAL] = value_of(40000);
		n->cards[i].m[METRIC_MEM_USED] = value_of(0);
		n->cards[i].m[METRIC_UTIL_GPU] = value_of(0);
	}
}

static void cards_are_parsed(void **state)
{
	static const struct {
		const char *text;
		int64_t count;
		int code;
		uint32_t want, n_indices;
	} rows[] = {
		{"any", 0, 0, 1, 0},
		{"any", 3, 0, 3, 0},
		{"0,1", 0, 0, 2, 2},
		{"0,1", 1, 0, 1, 2},
		{" 2 , 2", 0, 0, 1, 1},
		{"2-of", 0, 0, 2, 0},
		{"2-of:0,1,3", 0, 0, 2, 3},
		{"2-of:any", 2, 0, 2, 0},
		{"2-of", 3, -EINVAL, 0, 0},
		{"0-of", 0, -EINVAL, 0, 0},
		{"4-of:0,1", 0, -EINVAL, 0, 0},
		{"0,1", 3, -EINVAL, 0, 0},
		{"x", 0, -EINVAL, 0, 0},
		{"-1", 0, -EINVAL, 0, 0},
		{"2-off", 0, -EINVAL, 0, 0},
		{"65-of", 0, -EINVAL, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct vacancy_wish w = {.count = 77};
		struct err e = {0};
		int r = vacancy_parse_cards(rows[i].text, rows[i].count, &w, &e);

		if (r != rows[i].code)
			fail_msg("%s: %d %s", rows[i].text, r, e.text);
		assert_int_equal(w.count, r ? 77 : rows[i].want);
		assert_int_equal(r ? 0 : w.n_indices, rows[i].n_indices);
		assert_true(!r == !e.text[0]);
	}
}

static void promises_are_not_free(void **state)
{
	struct vacancy_wish w = {.count = 1, .free_mib = 10000};
	struct node n;

	(void)state;
	fill(&n, 1);
	assert_int_equal(vacancy_free_mib(&n.s, 0).v, 40000);
	n.cards[0].m[METRIC_MEM_USED] = value_of(5000);
	n.cards[0].m[METRIC_MEM_RESERVED] = value_of(1000);
	n.promised[0] = 4000;
	n.rows[0] = (struct ledger_row){.card = 0, .budget_mib = 20000, .held_mib = 5000};
	n.rows[1] = (struct ledger_row){.card = 0, .budget_mib = 100, .held_mib = 900};
	n.s.n_rows = 2;
	/* 40000 - 5000 - 1000 - 4000 - (20000 - 5000), and what a job holds beyond its budget makes no room. */
	assert_int_equal(vacancy_free_mib(&n.s, 0).v, 15000);
	assert_true(vacancy_is_vacant(&w, &n.s, 0));
	w.free_mib = 15001;
	assert_false(vacancy_is_vacant(&w, &n.s, 0));
	w.free_mib = 15000;
	assert_true(vacancy_is_vacant(&w, &n.s, 0));
	w.is_idle = true;
	assert_false(vacancy_is_vacant(&w, &n.s, 0));
}

static void absence_is_not_room(void **state)
{
	struct vacancy_wish size = {.count = 1, .free_mib = 1},
			    idle = {.count = 1, .is_idle = true};
	struct node n;

	(void)state;
	fill(&n, 1);
	n.cards[0].m[METRIC_MEM_USED] = value_absent(VALUE_FORBIDDEN);
	assert_false(vacancy_is_vacant(&size, &n.s, 0));
	assert_true(vacancy_is_vacant(&idle, &n.s, 0));
	n.cards[0].m[METRIC_UTIL_GPU] = value_absent(VALUE_UNSUPPORTED);
	assert_false(vacancy_is_vacant(&idle, &n.s, 0));
	n.cards[0].m[METRIC_MEM_USED] = value_of(10);
	assert_true(vacancy_is_vacant(&idle, &n.s, 0));
	/* Who computes there unseen by the driver's figures is there all the same. */
	n.procs[0] = (struct gpu_proc){.card = 0, .kind = GPU_PROC_COMPUTE};
	n.s.snap.n_procs = 1;
	assert_false(vacancy_is_vacant(&idle, &n.s, 0));
	fill(&n, 1);
	n.cards[0].state = GPU_NEEDS_RESET;
	assert_false(vacancy_is_vacant(&idle, &n.s, 0));
	fill(&n, 1);
	snprintf(n.s.snap.error, sizeof(n.s.snap.error), "the driver hasn't answered");
	assert_false(vacancy_is_vacant(&idle, &n.s, 0));
}

static void a_break_begins_anew(void **state)
{
	struct vacancy_wish w = {.count = 1, .free_mib = 10000, .hold_ms = 3000, .gap_ms = 5000};
	struct vacancy v = {0};
	uint32_t got[GPU_MAX];
	struct node n;

	(void)state;
	fill(&n, 1);
	vacancy_take(&v, &w, &n.s, 1000);
	assert_false(vacancy_find(&v, &w, &n.s, got));
	vacancy_take(&v, &w, &n.s, 3999);
	assert_false(vacancy_find(&v, &w, &n.s, got));
	n.cards[0].m[METRIC_MEM_USED] = value_of(39000);
	vacancy_take(&v, &w, &n.s, 4000);
	assert_false(vacancy_find(&v, &w, &n.s, got));
	n.cards[0].m[METRIC_MEM_USED] = value_of(0);
	vacancy_take(&v, &w, &n.s, 5000);
	vacancy_take(&v, &w, &n.s, 7999);
	assert_false(vacancy_find(&v, &w, &n.s, got));
	vacancy_take(&v, &w, &n.s, 8000);
	assert_true(vacancy_find(&v, &w, &n.s, got));
	/* Nobody saw what was in between. */
	vacancy_take(&v, &w, &n.s, 13001);
	assert_false(vacancy_find(&v, &w, &n.s, got));
}

static void the_roomiest_are_taken(void **state)
{
	struct vacancy_wish w = {.count = 2, .free_mib = 1000, .gap_ms = 5000};
	struct vacancy v = {0};
	uint32_t got[GPU_MAX];
	struct node n;

	(void)state;
	fill(&n, 4);
	n.cards[0].m[METRIC_MEM_USED] = value_of(30000);
	n.cards[1].m[METRIC_MEM_USED] = value_of(39900);
	n.cards[2].m[METRIC_MEM_USED] = value_of(10000);
	vacancy_take(&v, &w, &n.s, 1000);
	assert_true(vacancy_find(&v, &w, &n.s, got));
	assert_int_equal(got[0], 3);
	assert_int_equal(got[1], 2);
	w.count = 4;
	assert_false(vacancy_find(&v, &w, &n.s, got));
	w = (struct vacancy_wish){
		.count = 1, .free_mib = 1000, .indices = {0, 1}, .n_indices = 2, .gap_ms = 5000};
	assert_true(vacancy_find(&v, &w, &n.s, got));
	assert_int_equal(got[0], 0);
}

static void doubts(void **state)
{
	struct vacancy_wish w = {.count = 1, .free_mib = 40000};
	CLEANUP(buf_done) struct buf b = {0};
	struct node n;

	(void)state;
	fill(&n, 2);
	vacancy_doubt(&w, &n.s, &b);
	assert_int_equal(b.len, 0);
	w.free_mib++;
	vacancy_doubt(&w, &n.s, &b);
	assert_non_null(strstr(buf_str(&b), "only 0 of the cards have"));
	buf_clear(&b);
	w = (struct vacancy_wish){.count = 3};
	vacancy_doubt(&w, &n.s, &b);
	assert_non_null(strstr(buf_str(&b), "only 2 of the cards"));
}

static void lists_come_back(void **state)
{
	CLEANUP(checklist_done) struct checklist a = {0}, b = {0};
	CLEANUP(buf_done) struct buf one = {0}, two = {0};
	struct row_style style = {.cols = 50, .utf8 = true};
	json_t *list;

	(void)state;
	checklist_add(&a, CHECK_OK, "driver", NULL, "fine");
	checklist_took(&a, 12);
	assert_int_equal(checklist_worst(&a), CHECK_OK);
	checklist_add(&a, CHECK_BAD, "connect",
		"look at the cable and the switch, and at the other end of both", "%s",
		"no route to \033[31mhost");
	checklist_add(&a, CHECK_WARN, "clock", NULL, "late");
	assert_int_equal(checklist_worst(&a), CHECK_BAD);
	list = checklist_json(&a);
	checklist_take_json(&b, list);
	json_decref(list);
	assert_int_equal(b.n, 3);
	assert_int_equal(b.items[0].ms, 12);
	assert_int_equal(b.items[1].weight, CHECK_BAD);
	assert_null(b.items[2].mend);
	checklist_text(&a, &style, &one);
	checklist_text(&b, &style, &two);
	assert_string_equal(buf_str(&one), buf_str(&two));
	assert_null(strchr(buf_str(&one), '\033'));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(cards_are_parsed),
		cmocka_unit_test(promises_are_not_free),
		cmocka_unit_test(absence_is_not_room),
		cmocka_unit_test(a_break_begins_anew),
		cmocka_unit_test(the_roomiest_are_taken),
		cmocka_unit_test(doubts),
		cmocka_unit_test(lists_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
