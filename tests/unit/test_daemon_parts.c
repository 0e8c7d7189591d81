/* What can be told of the daemon without one: summaries that are handed on, its socket's name, what is news in an inventory. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "queue/controller.h"
#include "queue/daemon_client.h"
#include "queue/inventory.h"
#include "svc/sd_notify.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_summary_comes_back_as_it_went(void **state)
{
	CLEANUP(tick_summary_done) struct tick_summary a = tick_summary_new(), b = {0}, c = {0};
	json_t *first, *second;

	(void)state;
	a.ran = true;
	a.nodes_up = 3;
	a.nodes_down = 2;
	a.nodes_ignored = 1;
	json_array_append_new(a.finished, json_pack("{s:i}", "id", 7));
	json_array_append_new(a.dispatched, json_pack("{s:i}", "id", 8));
	json_array_append_new(a.errors, json_pack("{s:s}", "error", "x"));
	json_array_append_new(a.alerts, json_pack("{s:i}", "id", 9));
	json_array_append_new(a.reaped, json_pack("{s:i}", "job", 10));
	json_array_append_new(a.held, json_pack("{s:i}", "id", 11));
	first = tick_summary_json(&a);
	tick_summary_parse(first, &b);
	second = tick_summary_json(&b);
	assert_true(json_equal(first, second));
	json_decref(second);
	/* Two of them are one: lists together, counts of the later one that ran. */
	c = tick_summary_new();
	assert_true(tick_summary_is_empty(&c));
	tick_summary_add(&c, &a);
	tick_summary_add(&c, &b);
	assert_int_equal(json_array_size(c.finished), 2);
	assert_int_equal(c.nodes_up, 3);
	assert_false(tick_summary_is_empty(&c));
	b.ran = false;
	b.nodes_up = 99;
	tick_summary_add(&c, &b);
	assert_int_equal(c.nodes_up, 3);
	assert_true(c.ran);
	json_decref(first);
}

static void test_summary_of_nonsense_is_an_empty_one(void **state)
{
	static const char *const texts[] = {"{}", "[]", "{\"ran\": 1, \"finished\": {}}", "3"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		CLEANUP(tick_summary_done) struct tick_summary t = {0};
		json_t *o = json_loads(texts[i], JSON_DECODE_ANY, NULL);

		tick_summary_parse(o, &t);
		assert_false(t.ran);
		assert_int_equal(json_array_size(t.finished), 0);
		json_decref(o);
	}
}

static void socket_is(const char *db, const char *path)
{
	CLEANUP_FREE char *got = daemon_socket_path(db);

	assert_string_equal(got, path);
}

static void test_socket_lies_beside_the_database(void **state)
{
	char dir[] = "/tmp/gpustow-socket-XXXXXX";
	CLEANUP_FREE char *deep = NULL, *db = NULL, *long_name = NULL;
	struct sockaddr_un a;
	struct err e = {0};
	int fd = -1;

	(void)state;
	socket_is("/x/queue.db", "/x/queue.sock");
	socket_is("/x/other", "/x/other.sock");
	socket_is(".db", ".db.sock");
	assert_int_equal(daemon_address("/x/queue.db", &a, &fd, &e), 0);
	assert_string_equal(a.sun_path, "/x/queue.sock");
	assert_int_equal(fd, -1);
	/* Too long for an address: by way of the directory. */
	assert_non_null(mkdtemp(dir));
	deep = xasprintf("%s/%0100d", dir, 0);
	assert_int_equal(mkdir(deep, 0700), 0);
	db = xasprintf("%s/queue.db", deep);
	assert_int_equal(daemon_address(db, &a, &fd, &e), 0);
	assert_true(fd >= 0 && !strncmp(a.sun_path, "/proc/self/fd/", 14));
	close(fd);
	long_name = xasprintf("%s/%0120d.db", dir, 0);
	assert_int_equal(daemon_address(long_name, &a, &fd, &e), -ENAMETOOLONG);
	rmdir(deep);
	assert_int_equal(daemon_address(db, &a, &fd, &e), -ENOENT);
	rmdir(dir);
}

static void fill(struct inventory *v)
{
	*v = (struct inventory){.n_cards = 1, .mem_available_mib = 1000, .cores = 4};
	v->cards = xcalloc(1, sizeof(*v->cards));
	snprintf(v->cards[0].uuid, sizeof(v->cards[0].uuid), "GPU-1");
	v->cards[0].total_mib = 1000;
	v->cards[0].is_present = true;
	v->charges = xcalloc(1, sizeof(*v->charges));
	v->n_charges = 1;
}

static void test_what_is_news_in_an_inventory(void **state)
{
	CLEANUP(inventory_done) struct inventory a = {0}, b = {0};

	(void)state;
	fill(&a);
	fill(&b);
	assert_true(inventory_same_for_plan(&a, &b));
	/* For people only. */
	b.cards[0].util_pct = 50;
	b.cards[0].temperature_c = 80;
	b.sampled_wall_ms = 5;
	b.mem_available_mib = 1063;
	assert_true(inventory_same_for_plan(&a, &b));
	b.mem_available_mib = 1064;
	assert_false(inventory_same_for_plan(&a, &b));
	b.mem_available_mib = 1000;
	b.cards[0].used_mib = 1;
	assert_false(inventory_same_for_plan(&a, &b));
	b.cards[0].used_mib = 0;
	b.cards[0].is_present = false;
	assert_false(inventory_same_for_plan(&a, &b));
	b.cards[0].is_present = true;
	b.charges[0].budget_mib = 7;
	assert_false(inventory_same_for_plan(&a, &b));
	b.charges[0].budget_mib = 0;
	b.n_charges = 0;
	assert_false(inventory_same_for_plan(&a, &b));
	b.n_charges = 1;
	assert_true(inventory_same_for_plan(&a, &b));
}

static void test_watchdog_is_for_the_process_it_names(void **state)
{
	char me[24];

	(void)state;
	unsetenv("WATCHDOG_USEC");
	assert_int_equal(sd_notify_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "30000000", 1);
	assert_int_equal(sd_notify_watchdog_ms(), 15000);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(sd_notify_watchdog_ms(), 0);
	snprintf(me, sizeof(me), "%d", (int)getpid());
	setenv("WATCHDOG_PID", me, 1);
	assert_int_equal(sd_notify_watchdog_ms(), 15000);
	setenv("WATCHDOG_USEC", "nonsense", 1);
	assert_int_equal(sd_notify_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "1", 1);
	assert_int_equal(sd_notify_watchdog_ms(), 1);
	unsetenv("WATCHDOG_PID");
	unsetenv("WATCHDOG_USEC");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_summary_comes_back_as_it_went),
		cmocka_unit_test(test_summary_of_nonsense_is_an_empty_one),
		cmocka_unit_test(test_socket_lies_beside_the_database),
		cmocka_unit_test(test_what_is_news_in_an_inventory),
		cmocka_unit_test(test_watchdog_is_for_the_process_it_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
