/* Samples with details over the wire: everything arrives, nothing hostile does, and the largest one fits a message. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "core/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTILE \
	"\x1b]52;c;AAAA\x07 \xc2\x9b" \
	"31m\r\n\xff\xfe\xe4\xb8\xad\xe6\x96\x87\t\"\\\x7f"

static struct sample make(uint32_t n_procs, const char *text)
{
	struct sample s = {.wall_ms = 5, .with_details = true, .has_host = true};

	s.snap = (struct gpu_snapshot){.seq = 1,
		.has_details = true,
		.n_cards = 2,
		.n_procs = n_procs,
		.n_instances = 1,
		.source = "nvml",
		.driver = "550.54.15",
		.cuda = "12.4",
		.library = "12.550"};
	s.snap.cards = calloc(2, sizeof(*s.snap.cards));
	s.snap.procs = calloc(n_procs, sizeof(*s.snap.procs));
	s.snap.more = calloc(n_procs, sizeof(*s.snap.more));
	s.snap.instances = calloc(1, sizeof(*s.snap.instances));
	for (int i = 0; i < METRIC_N; i++) {
		s.snap.cards[0].m[i] = value_of(i * 7 - 3);
		s.snap.cards[1].m[i] =
			value_absent((enum value_state)(i % 2 ? VALUE_ASLEEP : VALUE_NOT_ASKED));
	}
	snprintf(s.snap.cards[0].arch, sizeof(s.snap.cards[0].arch), "Hopper");
	for (uint32_t i = 0; i < n_procs; i++) {
		struct gpu_proc_more *m = &s.snap.more[i];

		s.snap.procs[i] = (struct gpu_proc){
			.card = i % 2, .pid = (int32_t)i + 1, .gi = i % 2 ? 0 : 8, .ci = i % 2};
		m->sm_pct = value_of(1);
		m->mem_pct = value_of(2);
		m->enc_pct = value_of(3);
		m->dec_pct = value_absent(VALUE_UNSUPPORTED);
		m->cpu_pct = value_of(101);
		m->rss_mib = value_of(77);
		m->start_wall_ms = 1700000000001;
		snprintf(m->user, sizeof(m->user), "%.32s", text);
		snprintf(m->cmdline, sizeof(m->cmdline), "%s", text);
		snprintf(m->container, sizeof(m->container), "%.64s", text);
		snprintf(m->pod, sizeof(m->pod), "%.63s", text);
		snprintf(m->slurm_job, sizeof(m->slurm_job), "%.31s", text);
		snprintf(m->unit, sizeof(m->unit), "%.95s", text);
	}
	s.snap.instances[0] = (struct gpu_instance){.card = 1,
		.gi = 8,
		.ci = 1,
		.uuid = "MIG-1",
		.profile = "1g.10gb",
		.mem_total_mib = value_of(9),
		.mem_used_mib = value_of(8),
		.sm_count = value_absent(VALUE_FORBIDDEN)};
	s.host = (struct host_figures){.host_name = "n1",
		.os = "Debian " HOSTILE,
		.kernel = "6.1",
		.boot_id = "b",
		.cores = 64,
		.cpu_pct = value_absent(VALUE_EMPTY),
		.mem_total_mib = value_of(1),
		.mem_used_mib = value_of(2),
		.swap_total_mib = value_of(3),
		.swap_used_mib = value_of(4),
		.load_1m_milli = value_of(5),
		.load_5m_milli = value_of(6),
		.load_15m_milli = value_of(7),
		.uptime_ms = value_of(8)};
	return s;
}

static struct sample over_the_wire(const struct sample *s, size_t *ret_bytes)
{
	json_t *msg = sample_encode(s), *read = NULL;
	struct buf b = {0};
	struct sample got = {0};
	struct err e = {0};

	if (wire_put_json(&b, msg, &e))
		fail_msg("%s", e.text);
	if (ret_bytes)
		*ret_bytes = b.len;
	for (size_t i = 5; i < b.len; i++)
		assert_true((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7f);
	assert_int_equal(wire_get_json(&b, &read, &e), 1);
	if (sample_decode(read, &got, &e))
		fail_msg("%s", e.text);
	json_decref(msg);
	json_decref(read);
	buf_done(&b);
	return got;
}

static void assert_same(struct value a, struct value b)
{
	assert_int_equal(a.state, b.state);
	assert_int_equal(a.v, b.v);
}

static void everything_arrives(void **state)
{
	struct sample s = make(3, "some text"), got;

	(void)state;
	s.with_profiling = true;
	s.snap.profiling = (struct gpu_profiling){
		.source = PROFILE_GPM, .error = "dcgm_import_failed", .why = "no library"};
	got = over_the_wire(&s, NULL);
	assert_true(got.with_profiling);
	assert_int_equal(got.snap.profiling.source, PROFILE_GPM);
	assert_string_equal(got.snap.profiling.error, "dcgm_import_failed");
	assert_string_equal(got.snap.profiling.why, "no library");
	assert_true(got.with_details && got.has_host && got.snap.has_details);
	assert_string_equal(got.snap.driver, "550.54.15");
	assert_string_equal(got.snap.cuda, "12.4");
	assert_string_equal(got.snap.library, "12.550");
	assert_string_equal(got.snap.cards[0].arch, "Hopper");
	for (int c = 0; c < 2; c++)
		for (int i = 0; i < METRIC_N; i++)
			assert_same(got.snap.cards[c].m[i], s.snap.cards[c].m[i]);
	for (uint32_t i = 0; i < 3; i++) {
		const struct gpu_proc_more *x = &s.snap.more[i], *y = &got.snap.more[i];

		assert_int_equal(got.snap.procs[i].gi, s.snap.procs[i].gi);
		assert_int_equal(got.snap.procs[i].ci, s.snap.procs[i].ci);
		assert_same(x->sm_pct, y->sm_pct);
		assert_same(x->mem_pct, y->mem_pct);
		assert_same(x->enc_pct, y->enc_pct);
		assert_same(x->dec_pct, y->dec_pct);
		assert_same(x->cpu_pct, y->cpu_pct);
		assert_same(x->rss_mib, y->rss_mib);
		assert_int_equal(x->start_wall_ms, y->start_wall_ms);
		assert_string_equal(x->user, y->user);
		assert_string_equal(x->cmdline, y->cmdline);
		assert_string_equal(x->container, y->container);
		assert_string_equal(x->pod, y->pod);
		assert_string_equal(x->slurm_job, y->slurm_job);
		assert_string_equal(x->unit, y->unit);
	}
	assert_int_equal(got.snap.n_instances, 1);
	assert_int_equal(got.snap.instances[0].card, 1);
	assert_int_equal(got.snap.instances[0].gi, 8);
	assert_string_equal(got.snap.instances[0].uuid, "MIG-1");
	assert_string_equal(got.snap.instances[0].profile, "1g.10gb");
	assert_same(got.snap.instances[0].sm_count, s.snap.instances[0].sm_count);
	assert_same(got.snap.instances[0].mem_used_mib, s.snap.instances[0].mem_used_mib);
	assert_string_equal(got.host.host_name, "n1");
	assert_int_equal(got.host.cores, 64);
	assert_same(got.host.cpu_pct, s.host.cpu_pct);
	assert_same(got.host.mem_used_mib, s.host.mem_used_mib);
	assert_same(got.host.swap_used_mib, s.host.swap_used_mib);
	assert_same(got.host.load_15m_milli, s.host.load_15m_milli);
	assert_same(got.host.uptime_ms, s.host.uptime_ms);
	sample_done(&s);
	sample_done(&got);
}

static void plain_frames_carry_nothing_of_it(void **state)
{
	struct sample s = make(3, "some text"), got;
	json_t *msg;

	(void)state;
	s.with_details = false;
	msg = sample_encode(&s);
	assert_null(json_object_get(msg, "host"));
	assert_null(json_object_get(msg, "instances"));
	assert_null(json_object_get(msg, "details"));
	assert_int_equal(json_array_size(json_array_get(json_object_get(msg, "procs"), 0)), 8);
	json_decref(msg);
	got = over_the_wire(&s, NULL);
	assert_false(got.with_details);
	assert_null(got.snap.more);
	assert_int_equal(got.snap.cards[0].m[METRIC_PLAIN_N].state, VALUE_NOT_ASKED);
	sample_done(&s);
	sample_done(&got);
}

/* Whoever didn't ask for profiling gets neither its figures nor its words; a word of a later agent is "none". */
static void profiling_only_for_those_who_asked(void **state)
{
	struct sample s = make(1, "some text"), got;
	struct err e = {0};
	json_t *msg;

	(void)state;
	s.snap.profiling.source = PROFILE_DCGM;
	msg = sample_encode(&s);
	assert_null(json_object_get(msg, "profiling"));
	json_decref(msg);
	got = over_the_wire(&s, NULL);
	assert_false(got.with_profiling);
	assert_int_equal(got.snap.profiling.source, PROFILE_NOT_ASKED);
	assert_same(got.snap.cards[0].m[METRIC_REJECTED], s.snap.cards[0].m[METRIC_REJECTED]);
	for (int i = METRIC_PROFILE_FIRST; i < METRIC_N; i++)
		assert_int_equal(got.snap.cards[0].m[i].state, VALUE_NOT_ASKED);
	sample_done(&got);
	s.with_profiling = true;
	msg = sample_encode(&s);
	json_object_set_new(json_object_get(msg, "profiling"), "source", json_string("tachyons"));
	assert_int_equal(sample_decode(msg, &got, &e), 0);
	assert_int_equal(got.snap.profiling.source, PROFILE_NONE);
	sample_done(&got);
	json_object_set_new(json_object_get(msg, "profiling"), "source", json_integer(1));
	assert_true(sample_decode(msg, &got, &e) < 0);
	json_decref(msg);
	sample_done(&s);
}

static void item_23_hostile_names_are_text_only(void **state)
{
	struct sample s = make(2, HOSTILE), got = over_the_wire(&s, NULL);

	(void)state;
	assert_null(strchr(got.snap.more[0].cmdline, 0x1b));
	assert_null(strstr(got.snap.more[0].cmdline, "\xc2\x9b"));
	assert_null(strchr(got.snap.more[0].cmdline, '\n'));
	/* Chinese stays Chinese. */
	assert_non_null(strstr(got.snap.more[0].cmdline, "\xe4\xb8\xad\xe6\x96\x87"));
	assert_non_null(strstr(got.host.os, "Debian "));
	sample_done(&s);
	sample_done(&got);
}

static void the_largest_sample_fits(void **state)
{
	char text[GPU_CMDLINE_LEN];
	struct sample s, got;
	size_t bytes;

	(void)state;
	memset(text, '"', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	s = make(GPU_PROC_MAX, text);
	got = over_the_wire(&s, &bytes);
	assert_int_equal(got.snap.n_procs, GPU_PROC_MAX);
	/* The first have their texts, the last their figures. */
	assert_int_equal(strlen(got.snap.more[0].cmdline), GPU_CMDLINE_LEN - 1);
	assert_string_equal(got.snap.more[GPU_PROC_MAX - 1].cmdline, "");
	assert_int_equal(got.snap.more[GPU_PROC_MAX - 1].rss_mib.v, 77);
	sample_done(&got);
	sample_done(&s);
	memset(text, 0xff, sizeof(text) - 1);
	s = make(1024, text);
	got = over_the_wire(&s, &bytes);
	sample_done(&got);
	sample_done(&s);
}

/* ---- what builds on figures that were told once ---- */

static struct sample_base base_over_the_wire(const struct sample_base *b)
{
	json_t *msg = sample_base_encode(b);
	struct sample_base got = {0};
	struct err e = {0};

	if (sample_base_decode(msg, &got, &e))
		fail_msg("%s", e.text);
	json_decref(msg);
	return got;
}

static void change(struct sample *s)
{
	s->snap.cards[0].m[METRIC_TEMP] = value_of(99);
	s->snap.cards[1].m[METRIC_TEMP] = value_absent(VALUE_LOST);
	s->snap.cards[1].m[METRIC_PCIE_GEN] = value_of(5);
	s->snap.cards[1].m[METRIC_FAN] = value_absent(VALUE_NOT_ASKED);
}

static void what_builds_on_figures_is_whole_again(void **state)
{
	struct sample s = make(3, "some text"), whole, got = {0};
	struct sample_base b = {0}, there;
	struct err e = {0};
	json_t *msg;

	(void)state;
	s.snap.cards[1].m[METRIC_PCIE_GEN] = value_absent(VALUE_UNSUPPORTED);
	s.snap.cards[1].m[METRIC_FAN] = value_of(30);
	sample_base_take(&b, &s.snap, 4);
	there = base_over_the_wire(&b);
	assert_int_equal(there.key, 4);
	assert_int_equal(there.n_cards, s.snap.n_cards);
	assert_string_equal(there.cards[1].uuid, s.snap.cards[1].uuid);
	change(&s);
	assert_true(sample_base_fits(&b, &s.snap));
	msg = sample_encode_on(&s, &b);
	whole = over_the_wire(&s, NULL);
	/* Only what has changed. */
	assert_int_equal(json_object_size(json_object_get(
				 json_array_get(json_object_get(msg, "cards"), 0), "m")),
		1);
	assert_int_equal(json_object_size(json_object_get(
				 json_array_get(json_object_get(msg, "cards"), 1), "m")),
		1);
	if (sample_decode_on(msg, &there, &got, &e))
		fail_msg("%s", e.text);
	for (uint32_t i = 0; i < whole.snap.n_cards; i++)
		for (int k = 0; k < METRIC_N; k++)
			assert_same(whole.snap.cards[i].m[k], got.snap.cards[i].m[k]);
	sample_done(&got);
	/* Without those figures, or with others, it can't be read; it isn't read wrongly. */
	assert_int_equal(sample_decode(msg, &got, &e), -EINVAL);
	there.key = 5;
	assert_int_equal(sample_decode_on(msg, &there, &got, &e), -EINVAL);
	there.key = 4;
	there.n_cards--;
	assert_int_equal(sample_decode_on(msg, &there, &got, &e), -EINVAL);
	json_decref(msg);
	sample_base_done(&there);
	sample_base_done(&b);
	sample_done(&whole);
	sample_done(&s);
}

static void figures_to_build_on_are_taken_anew(void **state)
{
	struct sample s = make(1, "");
	struct sample_base b = {0};
	json_t *msg;
	struct err e = {0};

	(void)state;
	assert_false(sample_base_fits(&b, &s.snap));
	sample_base_take(&b, &s.snap, 1);
	assert_true(sample_base_fits(&b, &s.snap));
	s.snap.cards[1].uuid[0] = 'X';
	assert_false(sample_base_fits(&b, &s.snap));
	sample_base_take(&b, &s.snap, 2);
	s.snap.n_cards--;
	assert_false(sample_base_fits(&b, &s.snap));
	s.snap.n_cards++;
	for (int k = 0; k < METRIC_N; k++)
		s.snap.cards[0].m[k] = s.snap.cards[1].m[k] = value_of(-5 - k);
	assert_false(sample_base_fits(&b, &s.snap));
	/* What isn't one leaves the one that's there. */
	msg = json_pack("{s:i, s:[{s:i}]}", "key", 3, "cards", "uuid", 1);
	assert_int_equal(sample_base_decode(msg, &b, &e), -EINVAL);
	json_object_set_new(msg, "key", json_integer(0));
	assert_int_equal(sample_base_decode(msg, &b, &e), -EINVAL);
	json_object_set_new(msg, "key", json_integer(3));
	json_object_del(msg, "cards");
	assert_int_equal(sample_base_decode(msg, &b, &e), -EINVAL);
	assert_int_equal(b.key, 2);
	json_decref(msg);
	sample_base_done(&b);
	sample_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_arrives),
		cmocka_unit_test(profiling_only_for_those_who_asked),
		cmocka_unit_test(plain_frames_carry_nothing_of_it),
		cmocka_unit_test(item_23_hostile_names_are_text_only),
		cmocka_unit_test(the_largest_sample_fits),
		cmocka_unit_test(what_builds_on_figures_is_whole_again),
		cmocka_unit_test(figures_to_build_on_are_taken_anew),
	};

	return cmocka_run_group_tests_name("sample_details", tests, NULL, NULL);
}
