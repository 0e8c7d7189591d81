/* A sample goes over the wire and comes back the same; what isn't one is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "core/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE "0123456789abcdef0123456789abcdef"

static void fill_card(struct gpu_card *c, int index)
{
	c->index = index;
	snprintf(c->uuid, sizeof(c->uuid), "GPU-%d", index);
	snprintf(c->name, sizeof(c->name), "Card \xc3\xa9 %d", index);
	snprintf(c->bus_id, sizeof(c->bus_id), "00000000:3B:00.%d", index);
	c->numa = index ? -1 : 1;
	c->nvlink_peers = index ? UINT64_C(1) << 63 : 2;
	c->is_blind = index == 1;
	c->state = index ? GPU_NEEDS_RESET : GPU_OK;
	for (int i = 0; i < METRIC_N; i++)
		c->m[i] = i % 3 ? value_of(i * 1000 + index)
				: value_absent((enum value_state)(2 + i / 3 % 6));
	c->m[METRIC_FAN] = (struct value){0};
}

static struct sample make(void)
{
	struct sample s = {.wall_ms = 1700000000000, .n_rows = 2};

	s.snap = (struct gpu_snapshot){.seq = 9,
		.begun_ms = 100,
		.ended_ms = 105,
		.source = "nvml",
		.n_cards = 2,
		.n_procs = 3};
	s.snap.cards = calloc(2, sizeof(*s.snap.cards));
	s.snap.procs = calloc(3, sizeof(*s.snap.procs));
	s.proc_row = calloc(3, sizeof(*s.proc_row));
	s.promised_mib = calloc(2, sizeof(*s.promised_mib));
	s.rows = calloc(2, sizeof(*s.rows));
	fill_card(&s.snap.cards[0], 0);
	fill_card(&s.snap.cards[1], 1);
	s.promised_mib[1] = 4096;
	s.snap.procs[0] = (struct gpu_proc){.card = 0,
		.kind = 1,
		.pid = 10,
		.start_ticks = 123456789012,
		.used_mib = value_of(500),
		.uid = 1000,
		.comm = "python"};
	s.snap.procs[1] = (struct gpu_proc){.card = 1,
		.kind = 3,
		.pid = 11,
		.used_mib = value_absent(VALUE_FORBIDDEN),
		.uid = (uint32_t)-1,
		.comm = "a\xff\x1b[31m"};
	s.snap.procs[2] = (struct gpu_proc){.card = 1, .pid = 12, .uid = 0};
	s.proc_row[0] = 1;
	s.proc_row[1] = 2;
	s.rows[0] = (struct ledger_row){{QUEUE, 7, 1}, 0, -1, 24576, 500, 600, true, false};
	s.rows[1] = (struct ledger_row){{QUEUE, 8, 2}, 1, 0, 0, 0, 0, false, true};
	return s;
}

static void round_trip(void **state)
{
	struct sample s = make(), got = {0};
	struct buf b = {0};
	json_t *msg = sample_encode(&s), *read = NULL;
	struct err e = {0};

	assert_string_equal(json_string_value(json_object_get(msg, "op")), "sample");
	assert_int_equal(wire_put_json(&b, msg, &e), 0);
	assert_int_equal(wire_get_json(&b, &read, &e), 1);
	assert_int_equal(sample_decode(read, &got, &e), 0);
	assert_int_equal(got.snap.seq, 9);
	assert_int_equal(got.snap.begun_ms, 100);
	assert_int_equal(got.snap.ended_ms, 105);
	assert_int_equal(got.wall_ms, s.wall_ms);
	assert_string_equal(got.snap.source, "nvml");
	assert_int_equal(got.snap.n_cards, 2);
	for (int i = 0; i < 2; i++) {
		struct gpu_card *x = &s.snap.cards[i], *y = &got.snap.cards[i];

		assert_string_equal(x->uuid, y->uuid);
		assert_string_equal(x->name, y->name);
		assert_string_equal(x->bus_id, y->bus_id);
		assert_int_equal(x->numa, y->numa);
		assert_int_equal(x->state, y->state);
		assert_int_equal(x->is_blind, y->is_blind);
		assert_true(x->nvlink_peers == y->nvlink_peers);
		for (int k = 0; k < METRIC_PLAIN_N; k++) {
			assert_int_equal(x->m[k].state, y->m[k].state);
			assert_int_equal(x->m[k].v, y->m[k].v);
		}
		assert_int_equal(s.promised_mib[i], got.promised_mib[i]);
	}
	assert_int_equal(got.snap.n_procs, 3);
	assert_true(got.snap.procs[0].start_ticks == 123456789012);
	assert_int_equal(got.snap.procs[0].used_mib.v, 500);
	assert_int_equal(got.snap.procs[1].used_mib.state, VALUE_FORBIDDEN);
	assert_int_equal(got.snap.procs[2].used_mib.state, VALUE_NOT_ASKED);
	assert_int_equal(got.snap.procs[1].uid, (uint32_t)-1);
	assert_int_equal(got.snap.procs[1].kind, 3);
	/* Bytes that would trouble a terminal, or aren't UTF-8, never leave the agent. */
	assert_string_equal(got.snap.procs[1].comm, "a\xef\xbf\xbd\xef\xbf\xbd[31m");
	assert_int_equal(got.proc_row[0], 1);
	assert_int_equal(got.proc_row[1], 2);
	assert_int_equal(got.proc_row[2], 0);
	assert_int_equal(got.n_rows, 2);
	assert_memory_equal(&got.rows[0], &s.rows[0], sizeof(s.rows[0]));
	assert_int_equal(got.rows[1].declared_mib, 0);
	assert_true(got.rows[1].has_ended);
	json_decref(msg);
	json_decref(read);
	buf_done(&b);
	sample_done(&s);
	sample_done(&got);
}

static void empty_is_a_sample(void **state)
{
	struct sample s = {0}, got = {0};
	json_t *msg = sample_encode(&s);

	snprintf(s.snap.error, sizeof(s.snap.error), "no driver");
	json_decref(msg);
	msg = sample_encode(&s);
	assert_int_equal(sample_decode(msg, &got, NULL), 0);
	assert_string_equal(got.snap.error, "no driver");
	assert_int_equal(got.snap.n_cards, 0);
	json_decref(msg);
	sample_done(&got);
}

/* The largest snapshot there may be still fits into one message. */
static void largest_fits(void **state)
{
	struct sample s = {0};
	struct buf b = {0};
	struct err e = {0};
	json_t *msg;

	s.snap.n_cards = GPU_MAX;
	s.snap.n_procs = GPU_PROC_MAX;
	s.snap.cards = calloc(GPU_MAX, sizeof(*s.snap.cards));
	s.snap.procs = calloc(GPU_PROC_MAX, sizeof(*s.snap.procs));
	for (int i = 0; i < GPU_MAX; i++) {
		fill_card(&s.snap.cards[i], i);
		memset(s.snap.cards[i].name, '\xff', sizeof(s.snap.cards[i].name) - 1);
	}
	for (int i = 0; i < GPU_PROC_MAX; i++) {
		s.snap.procs[i] = (struct gpu_proc){.card = 63,
			.kind = 7,
			.pid = 4194304,
			.start_ticks = UINT64_C(1) << 60,
			.used_mib = value_of(1000000),
			.uid = 1000000};
		memset(s.snap.procs[i].comm, '\xff', sizeof(s.snap.procs[i].comm) - 1);
	}
	msg = sample_encode(&s);
	assert_int_equal(wire_put_json(&b, msg, &e), 0);
	json_decref(msg);
	buf_done(&b);
	sample_done(&s);
}

static void refuse(json_t *msg)
{
	struct sample got = {.wall_ms = 77};
	struct err e = {0};

	assert_true(sample_decode(msg, &got, &e) < 0);
	assert_true(e.text[0]);
	assert_int_equal(got.wall_ms, 77);
	json_decref(msg);
}

static json_t *encoded(void)
{
	struct sample s = make();
	json_t *msg = sample_encode(&s);

	sample_done(&s);
	return msg;
}

static void broken_samples(void **state)
{
	static const char *const keys[] = {"seq", "begun_boot_ms", "ended_boot_ms", "wall_ms",
		"source", "error", "cards", "procs", "rows"};
	json_t *msg, *a;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		msg = encoded();
		json_object_del(msg, keys[i]);
		refuse(msg);
		msg = encoded();
		json_object_set_new(msg, keys[i], json_true());
		refuse(msg);
	}
	msg = encoded();
	json_array_set_new(json_array_get(json_object_get(msg, "procs"), 0), 0, json_integer(2));
	refuse(msg); /* a card that isn't there */
	msg = encoded();
	json_array_set_new(json_array_get(json_object_get(msg, "procs"), 0), 7, json_integer(3));
	refuse(msg); /* a row that isn't there */
	msg = encoded();
	json_object_set_new(
		json_array_get(json_object_get(msg, "rows"), 1), "card", json_integer(2));
	refuse(msg);
	msg = encoded();
	a = json_object_get(msg, "cards");
	while (json_array_size(a) <= GPU_MAX)
		json_array_append_new(a, json_deep_copy(json_array_get(a, 0)));
	refuse(msg);
}

/* A newer agent may say more, and name reasons and states that are unknown here. */
static void newer_is_read(void **state)
{
	struct sample got = {0};
	json_t *msg = encoded(), *card = json_array_get(json_object_get(msg, "cards"), 0);

	json_object_set_new(msg, "new", json_true());
	json_object_set_new(card, "state", json_string("melted"));
	json_object_set_new(json_object_get(card, "m"), "new_metric", json_integer(1));
	json_object_del(json_object_get(card, "m"), "util_gpu_pct");
	json_object_set_new(json_object_get(card, "absent"), "util_gpu_pct", json_string("shy"));
	json_array_append_new(json_array_get(json_object_get(msg, "procs"), 0), json_integer(1));
	assert_int_equal(sample_decode(msg, &got, NULL), 0);
	assert_int_equal(got.snap.cards[0].state, GPU_FAILED);
	assert_int_equal(got.snap.cards[0].m[METRIC_UTIL_GPU].state, VALUE_FAILED);
	json_decref(msg);
	sample_done(&got);
}

/* Instances, XIDs, resets and the node's amounts come back the same; who has none of it says nothing of it. */
static void instances_and_ills(void **state)
{
	struct sample s = make(), got = {0};
	struct gpu_card *c = &s.snap.cards[1], *g = NULL;
	struct err e = {0};
	json_t *msg;

	snprintf(c->parent, sizeof(c->parent), "GPU-0");
	snprintf(c->profile, sizeof(c->profile), "1g.10gb");
	c->gi = 8;
	c->ci = 1;
	s.snap.cards[0].is_mig_parent = true;
	s.snap.cards[0].xid = (struct gpu_xid){79, 4711, 3};
	s.snap.cards[0].reset = GPU_RESET_NEEDED;
	s.snap.n_left_out = 5;
	s.holds = xcalloc(2, sizeof(*s.holds));
	s.n_holds = 2;
	s.holds[0] = (struct sample_hold){"0123456789abcdef0123456789abcdef", 1, 7000};
	s.holds[1] = (struct sample_hold){"ffffffffffffffffffffffffffffffff", 0, 1};
	s.has_node = true;
	s.node = (struct node_figures){"tick", 12, 64000, -1, 4};
	msg = sample_encode(&s);
	assert_int_equal(sample_decode(msg, &got, &e), 0);
	g = &got.snap.cards[1];
	assert_string_equal(g->parent, "GPU-0");
	assert_string_equal(g->profile, "1g.10gb");
	assert_int_equal(g->gi, 8);
	assert_int_equal(g->ci, 1);
	assert_false(g->is_mig_parent);
	assert_true(gpu_is_instance(g) && gpu_is_placeable(g));
	assert_int_equal(g->xid.count, 0);
	assert_int_equal(g->reset, GPU_RESET_NONE);
	g = &got.snap.cards[0];
	assert_true(g->is_mig_parent && !gpu_is_instance(g) && !gpu_is_placeable(g));
	assert_int_equal(g->xid.last, 79);
	assert_int_equal(g->xid.boot_ms, 4711);
	assert_int_equal(g->xid.count, 3);
	assert_int_equal(g->reset, GPU_RESET_NEEDED);
	assert_int_equal(got.snap.n_left_out, 5);
	assert_int_equal(got.n_holds, 2);
	assert_memory_equal(got.holds, s.holds, 2 * sizeof(*s.holds));
	assert_true(got.has_node);
	assert_string_equal(got.node.host_name, "tick");
	assert_int_equal(got.node.cores, 12);
	assert_int_equal(got.node.mem_total_mib, 64000);
	assert_int_equal(got.node.mem_available_mib, -1);
	assert_int_equal(got.node.oom_kills, 4);
	sample_done(&got);
	/* The members go on the wire as docs/wire.md has them. */
	g = &s.snap.cards[1];
	assert_int_equal(json_integer_value(json_object_get(
				 json_array_get(json_object_get(msg, "cards"), 1), "gi")),
		7);
	json_decref(msg);
	sample_done(&s);
}

/* An agent of before says none of this: its cards are whole and well. */
static void old_agents_have_whole_cards(void **state)
{
	struct sample got = {0};
	json_t *msg = encoded(), *card = json_array_get(json_object_get(msg, "cards"), 0);

	assert_null(json_object_get(card, "parent"));
	assert_null(json_object_get(card, "xid"));
	assert_null(json_object_get(card, "is_mig_parent"));
	assert_null(json_object_get(msg, "node"));
	assert_int_equal(sample_decode(msg, &got, NULL), 0);
	assert_false(gpu_is_instance(&got.snap.cards[0]));
	assert_true(gpu_is_placeable(&got.snap.cards[0]));
	assert_int_equal(got.snap.cards[0].reset, GPU_RESET_NONE);
	assert_false(got.has_node);
	sample_done(&got);
	/* A later one may know a fourth word. */
	json_object_set_new(card, "reset", json_string("soon"));
	assert_int_equal(sample_decode(msg, &got, NULL), 0);
	assert_int_equal(got.snap.cards[0].reset, GPU_RESET_PENDING);
	sample_done(&got);
	json_object_set_new(
		card, "xid", json_pack("{s:i, s:i, s:s}", "last", 1, "boot_ms", 1, "count", "x"));
	refuse(msg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(empty_is_a_sample),
		cmocka_unit_test(largest_fits),
		cmocka_unit_test(broken_samples),
		cmocka_unit_test(newer_is_read),
		cmocka_unit_test(instances_and_ills),
		cmocka_unit_test(old_agents_have_whole_cards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
