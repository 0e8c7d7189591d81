/* The sampler: snapshots come through the pipe whole, a hung driver hangs only the child, a dead child is replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/sampler.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "gpu/gpu_backend.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the fake back end does; the child sees it as it was at its fork. */
static enum { WORKS, TELLS, TELLS_EMPTY, HANGS, DIES, CANT_OPEN } mode;

static int fake_snapshot(struct gpu_backend *b, struct gpu_snapshot *ret, struct err *e)
{
	static int n_full;

	if (mode == TELLS) {
		/* seq is the back end's; what was asked goes out as figures. */
		ret->n_cards = 1;
		ret->cards = xcalloc(1, sizeof(*ret->cards));
		ret->has_old_procs = b->ask.old_procs;
		n_full += !b->ask.old_procs;
		ret->cards[0].m[METRIC_TEMP] =
			value_of(b->ask.details * 100 + b->ask.lets_sleep * 10);
		ret->cards[0].m[METRIC_POWER] = value_of(n_full);
		ret->n_procs = b->ask.old_procs ? 0 : 1;
		ret->procs = xcalloc(1, sizeof(*ret->procs));
		ret->procs[0].pid = getppid();
		ret->instances = xcalloc(2, sizeof(*ret->instances));
		ret->n_instances = 2;
		snprintf(ret->instances[1].uuid, sizeof(ret->instances[1].uuid), "MIG-x");
		snprintf(ret->driver, sizeof(ret->driver), "550");
		return 0;
	}
	if (mode == TELLS_EMPTY) {
		ret->n_cards = 1;
		ret->cards = xcalloc(1, sizeof(*ret->cards));
		ret->has_old_procs = b->ask.old_procs;
		ret->profiling.source = b->ask.profiling ? PROFILE_GPM : PROFILE_NOT_ASKED;
		return 0;
	}
	if (mode == HANGS)
		for (;;)
			pause();
	if (mode == DIES)
		_exit(1);
	ret->n_cards = 2;
	ret->cards = xcalloc(2, sizeof(*ret->cards));
	ret->n_procs = 3000;
	ret->procs = xcalloc(3000, sizeof(*ret->procs));
	snprintf(ret->cards[1].uuid, sizeof(ret->cards[1].uuid), "GPU-fake");
	for (int i = 0; i < 3000; i++)
		ret->procs[i].used_mib = value_of(i);
	return 0;
}

static void fake_free(struct gpu_backend *b)
{
}

static const struct gpu_backend_impl fake_impl = {
	.name = "fake", .snapshot = fake_snapshot, .free = fake_free};

static int fake_open(struct gpu_backend **ret, struct err *e)
{
	static struct gpu_backend b;

	if (mode == CANT_OPEN)
		return err_set(e, -ENOENT, "no driver on this machine");
	b.impl = &fake_impl;
	*ret = &b;
	return 0;
}

/* Waits in real time for a snapshot, for 20 s; `now_ms` is the sampler's clock. */
static bool wait_snapshot(
	struct sampler *s, int64_t now_ms, struct gpu_snapshot *ret, uint64_t *ret_number)
{
	int64_t until = clock_boot_ms() + 20000;

	while (clock_boot_ms() < until) {
		struct pollfd p = {.fd = sampler_fd(s), .events = POLLIN};

		if (p.fd < 0)
			return false;
		if (poll(&p, 1, 100) > 0 && sampler_read(s, now_ms, ret, ret_number))
			return true;
	}
	return false;
}

static void reap(struct sampler *s, int64_t now_ms)
{
	int64_t until = clock_boot_ms() + 20000;
	pid_t pid;

	/* Children of samplers of earlier tests may come first. */
	while ((pid = waitpid(-1, NULL, WNOHANG)) <= 0 || !sampler_reaped(s, pid, now_ms)) {
		assert_true(clock_boot_ms() < until);
		poll(NULL, 0, 5);
	}
}

/* Bytes that wait on the sampler's socket, once there are at least that many. */
static int wait_bytes(struct sampler *s, int least)
{
	int64_t until = clock_boot_ms() + 20000;
	int n = 0;

	while (ioctl(sampler_fd(s), FIONREAD, &n) == 0 && n < least && clock_boot_ms() < until)
		poll(NULL, 0, 5);
	return n;
}

/* Two answers that came before anybody looked: the newest counts, and none stays behind to make the later ones late. */
static void two_answers_at_once(void **state)
{
	struct sampler *s;
	struct gpu_snapshot snap = {0};
	uint64_t number = 0;
	int one;

	mode = TELLS;
	s = sampler_new(fake_open);
	assert_int_equal(sampler_ask(s, 1000), 1);
	one = wait_bytes(s, 1);
	assert_true(one > 0);
	assert_int_equal(sampler_ask(s, 1000), 2);
	assert_int_equal(wait_bytes(s, 2 * one), 2 * one);
	assert_int_equal(sampler_read(s, 1001, &snap, &number), 1);
	assert_int_equal(number, 2);
	assert_false(sampler_is_asked(s));
	gpu_snapshot_done(&snap);
	assert_int_equal(sampler_read(s, 1002, &snap, &number), 0);
	sampler_free(s);
}

static void whole_snapshots(void **state)
{
	struct sampler *s;
	struct gpu_snapshot snap;
	uint64_t asked, number = 0;
	struct err e = {0};

	mode = WORKS;
	s = sampler_new(fake_open);
	assert_int_equal(sampler_fd(s), -1);
	assert_false(sampler_is_asked(s));
	asked = sampler_ask(s, 1000);
	assert_true(sampler_is_asked(s));
	assert_true(wait_snapshot(s, 1001, &snap, &number));
	assert_int_equal(number, asked);
	assert_false(sampler_is_asked(s));
	assert_string_equal(snap.source, "fake");
	assert_int_equal(snap.n_cards, 2);
	assert_string_equal(snap.cards[1].uuid, "GPU-fake");
	assert_int_equal(snap.n_procs, 3000);
	assert_int_equal(snap.procs[2999].used_mib.v, 2999);
	gpu_snapshot_done(&snap);
	/* Two questions at once: an answer is begun after the one it names. */
	sampler_ask(s, 1002);
	asked = sampler_ask(s, 1002);
	do {
		assert_true(wait_snapshot(s, 1003, &snap, &number));
		gpu_snapshot_done(&snap);
	} while (number < asked);
	assert_false(sampler_is_silent(s, 99999, &e));
	sampler_free(s);
}

static void hung_driver(void **state)
{
	struct sampler *s;
	struct gpu_snapshot snap;
	uint64_t number;
	struct err e = {0};

	mode = HANGS;
	s = sampler_new(fake_open);
	sampler_ask(s, 1000);
	assert_false(sampler_is_silent(s, 1000 + SAMPLER_SILENT_MS - 1, &e));
	assert_true(sampler_is_silent(s, 1000 + SAMPLER_SILENT_MS, &e));
	assert_non_null(strstr(e.text, "driver"));
	sampler_turn(s, 1000 + SAMPLER_KILL_MS - 1);
	assert_true(sampler_fd(s) >= 0);
	sampler_turn(s, 1000 + SAMPLER_KILL_MS);
	assert_int_equal(sampler_fd(s), -1);
	reap(s, 11010);
	/* Replaced after a pause, not at once; and still silent until there's an answer. */
	mode = WORKS;
	sampler_turn(s, 11020);
	assert_int_equal(sampler_fd(s), -1);
	assert_true(sampler_is_silent(s, 11020, &e));
	sampler_turn(s, 13000);
	assert_true(sampler_fd(s) >= 0);
	assert_true(wait_snapshot(s, 13001, &snap, &number));
	assert_false(sampler_is_silent(s, 13001, &e));
	gpu_snapshot_done(&snap);
	sampler_free(s);
}

static void dead_child(void **state)
{
	struct sampler *s;
	struct gpu_snapshot snap;
	uint64_t number;

	mode = DIES;
	s = sampler_new(fake_open);
	sampler_ask(s, 1000);
	assert_false(wait_snapshot(s, 1001, &snap, &number));
	reap(s, 1002);
	assert_true(sampler_is_asked(s));
	mode = WORKS;
	sampler_turn(s, 1003);
	assert_int_equal(sampler_fd(s), -1);
	sampler_turn(s, 4000);
	assert_true(wait_snapshot(s, 4001, &snap, &number));
	gpu_snapshot_done(&snap);
	sampler_free(s);
}

static void no_driver(void **state)
{
	struct sampler *s;
	struct gpu_snapshot snap;
	uint64_t number;

	mode = CANT_OPEN;
	s = sampler_new(fake_open);
	for (int i = 0; i < 3; i++) {
		sampler_ask(s, 1000);
		assert_true(wait_snapshot(s, 1001, &snap, &number));
		assert_string_equal(snap.source, "none");
		assert_string_equal(snap.error, "no driver on this machine");
		assert_int_equal(snap.n_cards, 0);
		gpu_snapshot_done(&snap);
	}
	sampler_free(s);
}

/* A child that the kernel won't let die is left behind; its place is taken later. */
static void stuck_child(void **state)
{
	struct sampler *s;
	struct gpu_snapshot snap;
	uint64_t number;

	mode = HANGS;
	s = sampler_new(fake_open);
	sampler_ask(s, 1000);
	sampler_turn(s, 11000);
	mode = WORKS;
	/* It was killed, but nobody reaps it: as if it hung in the kernel. */
	sampler_turn(s, 12000);
	sampler_turn(s, 13000);
	sampler_turn(s, 14000);
	assert_int_equal(sampler_fd(s), -1);
	sampler_turn(s, 13000 + 30000);
	assert_true(wait_snapshot(s, 43001, &snap, &number));
	gpu_snapshot_done(&snap);
	reap(s, 43002);
	assert_true(sampler_fd(s) >= 0);
	sampler_free(s);
}

/* Details and instances cross the pipe; lists of before stand in for a while, for those who may have them, only. */
static void details_and_allowances(void **state)
{
	struct sampler *s = sampler_new(fake_open);
	struct gpu_snapshot got;
	uint64_t number;

	mode = TELLS;
	sampler_ask_as(s, 1000, SAMPLER_LOOKS | SAMPLER_OLD_PROCS);
	assert_true(wait_snapshot(s, 1000, &got, &number));
	assert_true(got.has_details && !got.has_old_procs);
	assert_int_equal(got.cards[0].m[METRIC_TEMP].v, 110);
	assert_int_equal(got.n_instances, 2);
	assert_string_equal(got.instances[1].uuid, "MIG-x");
	assert_string_equal(got.driver, "550");
	assert_true(strlen(got.more[0].cmdline) > 0);
	gpu_snapshot_done(&got);
	sampler_ask_as(s, 1100, SAMPLER_LOOKS | SAMPLER_OLD_PROCS);
	assert_true(wait_snapshot(s, 1100, &got, &number));
	assert_true(got.has_old_procs);
	assert_int_equal(got.n_procs, 1);
	assert_int_equal(got.procs[0].pid, getpid());
	assert_true(strlen(got.more[0].cmdline) > 0);
	assert_int_equal(got.cards[0].m[METRIC_POWER].v, 1);
	gpu_snapshot_done(&got);
	sampler_ask(s, 1200);
	assert_true(wait_snapshot(s, 1200, &got, &number));
	assert_true(!got.has_details && !got.has_old_procs && got.more == NULL);
	assert_int_equal(got.cards[0].m[METRIC_TEMP].v, 0);
	gpu_snapshot_done(&got);
	/* Together: the details of the one, the freshness of the other. */
	sampler_ask_as(s, 1300, SAMPLER_LOOKS | SAMPLER_OLD_PROCS);
	sampler_ask(s, 1300);
	do
		assert_true(wait_snapshot(s, 1300, &got, &number));
	while (number < 5 && (gpu_snapshot_done(&got), true));
	assert_int_equal(number, 5);
	assert_int_equal(got.cards[0].m[METRIC_TEMP].v, 100);
	assert_false(got.has_old_procs);
	gpu_snapshot_done(&got);
	sampler_free(s);
	mode = WORKS;
}

/* Details without a single process are details all the same, also while the lists of before stand in. */
static void details_of_an_idle_machine(void **state)
{
	struct sampler *s = sampler_new(fake_open);
	struct gpu_snapshot got;
	uint64_t number;

	mode = TELLS_EMPTY;
	for (int i = 0; i < 2; i++) {
		sampler_ask_as(s, 1000, SAMPLER_LOOKS | SAMPLER_OLD_PROCS);
		assert_true(wait_snapshot(s, 1000, &got, &number));
		assert_int_equal(got.has_old_procs, i);
		assert_true(got.has_details);
		assert_int_equal(got.profiling.source, PROFILE_NOT_ASKED);
		gpu_snapshot_done(&got);
	}
	/* One wants counters: the answer for both has them. */
	sampler_ask_as(s, 1000, SAMPLER_LOOKS | SAMPLER_PROFILING);
	sampler_ask_as(s, 1000, SAMPLER_LOOKS);
	do
		assert_true(wait_snapshot(s, 1000, &got, &number));
	while (number < 4 && (gpu_snapshot_done(&got), true));
	assert_int_equal(got.profiling.source, PROFILE_GPM);
	gpu_snapshot_done(&got);
	sampler_free(s);
	mode = WORKS;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(details_and_allowances),
		cmocka_unit_test(details_of_an_idle_machine),
		cmocka_unit_test(two_answers_at_once),
		cmocka_unit_test(whole_snapshots),
		cmocka_unit_test(hung_driver),
		cmocka_unit_test(dead_child),
		cmocka_unit_test(no_driver),
		cmocka_unit_test(stuck_child),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
