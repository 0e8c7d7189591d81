/* Peaks of foreign processes from sample to sample. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sched/track.h"

#include <stdio.h>
#include <string.h>

struct row {
	uint32_t card;
	int32_t pid;
	uint64_t ticks;
	int64_t used; /* < 0: no figure */
	uint8_t is_own;
};

/* One sample of two cards, A and B. */
static void sample_states(
	struct track *t, const struct row *rows, uint32_t n, enum gpu_state a, enum gpu_state b)
{
	static struct gpu_card cards[2];
	static struct gpu_proc procs[16];
	uint8_t own[16];
	struct gpu_snapshot s = {.n_cards = 2, .n_procs = n, .cards = cards, .procs = procs};

	snprintf(cards[0].uuid, sizeof(cards[0].uuid), "GPU-a");
	snprintf(cards[1].uuid, sizeof(cards[1].uuid), "GPU-b");
	cards[0].state = a;
	cards[1].state = b;
	for (uint32_t i = 0; i < n; i++) {
		procs[i] = (struct gpu_proc){
			.card = rows[i].card, .pid = rows[i].pid, .start_ticks = rows[i].ticks};
		procs[i].used_mib =
			rows[i].used < 0 ? value_absent(VALUE_UNSUPPORTED) : value_of(rows[i].used);
		own[i] = rows[i].is_own;
	}
	track_update(t, &s, own);
}

static void sample(struct track *t, const struct row *rows, uint32_t n)
{
	sample_states(t, rows, n, GPU_OK, GPU_OK);
}

static void test_a_trough_is_no_room_until_the_exit(void **state)
{
	struct track *t = track_new();

	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 0);
	sample(t, (struct row[]){{0, 10, 1, 12000, 0}, {1, 11, 1, 50, 0}}, 2);
	sample(t, (struct row[]){{0, 10, 1, 1000, 0}, {1, 11, 1, 70, 0}}, 2);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 12000);
	assert_int_equal(track_foreign_peaks(t, "GPU-b"), 70);
	sample(t, (struct row[]){{1, 11, 1, 70, 0}}, 1);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 0);
	sample(t, (struct row[]){{0, 10, 1, 1000, 0}}, 1);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 1000);
	track_free(t);
}

static void test_a_new_process_of_that_pid_starts_anew(void **state)
{
	struct track *t = track_new();

	sample(t, (struct row[]){{0, 10, 1, 12000, 0}}, 1);
	sample(t, (struct row[]){{0, 10, 2, 1000, 0}}, 1);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 1000);
	/* A start time that couldn't be read this time is no other process. */
	sample(t, (struct row[]){{0, 10, 0, 500, 0}}, 1);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 1000);
	sample(t, (struct row[]){{0, 10, 2, 500, 0}}, 1);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 1000);
	/* Nor is one that can be read now and couldn't before. */
	sample(t, (struct row[]){{1, 20, 0, 800, 0}}, 1);
	sample(t, (struct row[]){{1, 20, 7, 300, 0}}, 1);
	assert_int_equal(track_foreign_peaks(t, "GPU-b"), 800);
	track_free(t);
}

static void test_rows_of_one_process_count_once(void **state)
{
	struct track *t = track_new();

	sample(t,
		(struct row[]){{0, 10, 1, 300, 0}, {0, 12, 1, 5, 0}, {0, 10, 1, 900, 0},
			{0, 10, 1, 400, 0}},
		4);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 905);
	track_free(t);
}

static void test_our_own_rows_are_left_out(void **state)
{
	struct track *t = track_new();

	sample(t, (struct row[]){{0, 10, 1, 300, 0}, {0, 12, 1, 500, 1}}, 2);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 300);
	sample(t, (struct row[]){{0, 10, 1, 300, 1}}, 1);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 0);
	track_free(t);
}

static void test_a_row_without_a_figure_keeps_the_peak(void **state)
{
	struct track *t = track_new();

	sample(t, (struct row[]){{0, 10, 1, 300, 0}}, 1);
	sample(t, (struct row[]){{0, 10, 1, -1, 0}, {0, 11, 1, -1, 0}}, 2);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 300);
	track_free(t);
}

static void test_silence_of_a_card_says_nothing(void **state)
{
	struct track *t = track_new();
	struct gpu_snapshot failed = {.error = "the driver didn't answer"};

	sample(t, (struct row[]){{0, 10, 1, 300, 0}, {1, 11, 1, 70, 0}}, 2);
	sample_states(t, (struct row[]){{1, 11, 1, 60, 0}}, 1, GPU_LOST, GPU_OK);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 300);
	track_update(t, &failed, NULL);
	assert_int_equal(track_foreign_peaks(t, "GPU-b"), 70);
	sample(t, NULL, 0);
	assert_int_equal(track_foreign_peaks(t, "GPU-a"), 0);
	track_free(t);
	track_free(NULL);
}

static void test_cards_that_never_come_back_are_forgotten(void **state)
{
	struct track *t = track_new();
	static struct gpu_card card;
	struct gpu_proc proc = {.pid = 1, .used_mib = value_of(100)};
	struct gpu_snapshot s = {.n_cards = 1, .n_procs = 1, .cards = &card, .procs = &proc};

	for (int i = 0; i < 1000; i++) {
		snprintf(card.uuid, sizeof(card.uuid), "GPU-%d", i);
		track_update(t, &s, NULL);
	}
	assert_int_equal(track_foreign_peaks(t, "GPU-999"), 100);
	assert_int_equal(track_foreign_peaks(t, "GPU-0"), 0);
	track_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_trough_is_no_room_until_the_exit),
		cmocka_unit_test(test_a_new_process_of_that_pid_starts_anew),
		cmocka_unit_test(test_rows_of_one_process_count_once),
		cmocka_unit_test(test_our_own_rows_are_left_out),
		cmocka_unit_test(test_a_row_without_a_figure_keeps_the_peak),
		cmocka_unit_test(test_silence_of_a_card_says_nothing),
		cmocka_unit_test(test_cards_that_never_come_back_are_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
