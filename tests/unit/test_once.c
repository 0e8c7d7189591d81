/*
 * What --once prints, compared whole: tests/golden/once holds the rendered texts (GPUSTOW_UPDATE_GOLDEN=1 writes them
 * anew, and git shows what changed). Beside them: every width from 1 to 300, hostile names, and the document's keys, of
 * which docs/once.md must name each one and no other.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "show/health.h"
#include "show/once.h"
#include "show/table.h"

#define HOSTILE \
	"\x1b[31m\xe6\xb7\xb1\xe5\xb1\xa4\n\x9b" \
	"2J\xff\xe2\x80\xae"

/* ---- things to show ---- */

struct machine {
	struct sample s;
	struct gpu_card cards[GPU_MAX];
	struct gpu_proc procs[16];
	struct gpu_proc_more more[16];
	struct gpu_instance instances[4];
	uint32_t proc_row[16];
	int64_t promised[GPU_MAX];
	struct ledger_row rows[2];
};

static void set(struct gpu_card *c, enum metric m, int64_t v)
{
	c->m[m] = value_of(v);
}

static void card(
	struct machine *m, int index, const char *name, int64_t util, int64_t used, int64_t total)
{
	struct gpu_card *c = &m->cards[m->s.snap.n_cards++];

	*c = (struct gpu_card){.index = index, .numa = -1};
	for (size_t i = 0; i < METRIC_N; i++)
		c->m[i] = value_absent(VALUE_UNSUPPORTED);
	snprintf(c->uuid, sizeof(c->uuid), "GPU-%08d-0000-0000-0000-000000000000", index);
	snprintf(c->name, sizeof(c->name), "%s", name);
	snprintf(c->bus_id, sizeof(c->bus_id), "00000000:%02X:00.0", index + 16);
	snprintf(c->arch, sizeof(c->arch), "Ampere");
	set(c, METRIC_UTIL_GPU, util);
	set(c, METRIC_MEM_USED, used);
	set(c, METRIC_MEM_TOTAL, total);
	set(c, METRIC_UTIL_MEM, util / 2);
	set(c, METRIC_TEMP, 30 + util / 2);
	set(c, METRIC_POWER, 50400 + util * 3000);
	set(c, METRIC_POWER_LIMIT, 400000);
	set(c, METRIC_PSTATE, util ? 0 : 8);
	set(c, METRIC_PCIE_GEN, 4);
	set(c, METRIC_PCIE_WIDTH, 16);
	set(c, METRIC_PCIE_RX, util * 200000);
	set(c, METRIC_PCIE_TX, util * 20);
}

static void proc(struct machine *m, uint32_t at, const char *user, int64_t mib)
{
	uint32_t i = m->s.snap.n_procs++;

	m->procs[i] = (struct gpu_proc){.card = at,
		.kind = GPU_PROC_COMPUTE,
		.pid = 1000 + (int)i,
		.used_mib = mib < 0 ? value_absent(VALUE_UNSUPPORTED) : value_of(mib),
		.uid = 500 + i};
	snprintf(m->procs[i].comm, sizeof(m->procs[i].comm), "python3");
	snprintf(m->more[i].user, sizeof(m->more[i].user), "%s", user);
	snprintf(m->more[i].cmdline, sizeof(m->more[i].cmdline), "python3 train.py");
}

static void begin(struct machine *m, const char *source)
{
	*m = (struct machine){0};
	m->s = (struct sample){.snap = {.cards = m->cards,
				       .procs = m->procs,
				       .more = m->more,
				       .instances = m->instances,
				       .has_details = true},
		.proc_row = m->proc_row,
		.promised_mib = m->promised,
		.rows = m->rows,
		.with_details = true};
	snprintf(m->s.snap.source, sizeof(m->s.snap.source), "%s", source);
	snprintf(m->s.snap.driver, sizeof(m->s.snap.driver), "550.54.15");
	snprintf(m->s.snap.cuda, sizeof(m->s.snap.cuda), "12.4");
}

static void set_figures(struct machine *m)
{
	m->s.has_host = true;
	m->s.host = (struct host_figures){.cores = 64,
		.cpu_pct = value_of(37),
		.mem_total_mib = value_of(515000),
		.mem_used_mib = value_of(120000),
		.swap_used_mib = value_of(300),
		.swap_total_mib = value_of(8192)};
}

static struct show_host up(const char *name, const struct machine *m)
{
	return (struct show_host){.name = name,
		.state = "up",
		.why = "",
		.has_answered = true,
		.sample = &m->s,
		.sample_age_ms = 40,
		.connected_ms = -1,
		.hello_ms = -1,
		.first_sample_ms = -1,
		.rtt_ms = -1};
}

static struct show_host failed(
	const char *name, const char *address, const char *state, const char *why)
{
	return (struct show_host){
		.name = name, .address = address, .state = state, .why = why, .sample_age_ms = -1};
}

/* Everything at once: a busy machine, one with trouble, one that's stale, one without cards, two that failed. */
struct lab {
	struct machine busy, ill, stale, none;
	struct show_host hosts[6];
	struct show_fleet fleet;
};

static void fill_ill(struct machine *m)
{
	begin(m, "nvml");
	card(m, 0, "NVIDIA A100-SXM4-80GB", 100, 70000, 81920);
	set(&m->cards[0], METRIC_THROTTLE, 0x20 | 0x4);
	set(&m->cards[0], METRIC_REMAP_PENDING, 1);
	card(m, 1, "", 0, 0, 0);
	m->cards[1].state = GPU_LOST;
	for (size_t i = 0; i < METRIC_N; i++)
		m->cards[1].m[i] = value_absent(VALUE_LOST);
	card(m, 2, "NVIDIA H100 PCIe", 0, 500, 81920);
	set(&m->cards[2], METRIC_MIG_MODE, 1);
	set(&m->cards[2], METRIC_XID_LAST, 94);
	set(&m->cards[2], METRIC_XID_COUNT, 3);
	card(m, 3, "NVIDIA GB10", 97, 60000, 122000);
	m->cards[3].is_unified = true;
	m->s.snap.n_instances = 2;
	m->instances[0] = (struct gpu_instance){.card = 2,
		.gi = 2,
		.mem_total_mib = value_of(10240),
		.mem_used_mib = value_of(500),
		.sm_count = value_absent(VALUE_UNSUPPORTED)};
	snprintf(m->instances[0].profile, sizeof(m->instances[0].profile), "1g.10gb");
	m->instances[1] =
		(struct gpu_instance){.card = 2, .gi = 10, .mem_total_mib = value_of(40960)};
	proc(m, 2, "mia", 480);
	m->procs[0].gi = 2;
	proc(m, 0, "\xe6\xb7\xb1\xe5\xb1\xa4", 69000);
	proc(m, 3, HOSTILE, -1);
}

static void fill_lab(struct lab *l)
{
	begin(&l->busy, "nvml");
	card(&l->busy, 0, "NVIDIA GeForce RTX 4090", 0, 300, 24564);
	card(&l->busy, 1, "NVIDIA GeForce RTX 4090", 97, 23000, 24564);
	set(&l->busy.cards[0], METRIC_FAN, 30);
	set(&l->busy.cards[1], METRIC_FAN, 110);
	proc(&l->busy, 1, "alice", 20000);
	proc(&l->busy, 1, "bob", 300);
	proc(&l->busy, 1, "alice", 2700);
	set_figures(&l->busy);
	fill_ill(&l->ill);
	begin(&l->stale, "nvidia-smi");
	card(&l->stale, 0, "Tesla V100-PCIE-16GB", 5, 800, 16160);
	l->stale.cards[0].m[METRIC_PCIE_RX] = value_absent(VALUE_NOT_ASKED);
	begin(&l->none, "none");
	l->none.s.snap.driver[0] = l->none.s.snap.cuda[0] = '\0';
	snprintf(l->none.s.snap.error, sizeof(l->none.s.snap.error),
		"there's no NVIDIA driver on this machine");
	l->hosts[0] = up("local", &l->busy);
	l->hosts[1] = up("\xe6\xb7\xb1\xe5\xb1\xa4-2", &l->ill);
	l->hosts[1].address = "mia@10.0.0.2:22";
	l->hosts[1].clock_offset_ms = -73000;
	l->hosts[2] = up("old", &l->stale);
	l->hosts[2].state = "down";
	l->hosts[2].why = "the host was lost 34 s ago";
	l->hosts[2].has_answered = false;
	l->hosts[2].is_stale = true;
	l->hosts[2].sample_age_ms = 34000;
	l->hosts[3] = up("cpu-only", &l->none);
	l->hosts[3].state = "none";
	l->hosts[3].why = "no GPU there";
	l->hosts[4] = failed("dead", "root@10.0.0.9:22", "down",
		"connection refused by 10.0.0.9 port 22: is sshd running there?");
	l->hosts[5] = failed("evil", NULL, "auth", HOSTILE);
	l->fleet = (struct show_fleet){
		.hosts = l->hosts, .n = 6, .now_wall_ms = INT64_C(1767225600000)};
}

/* ---- golden texts ---- */

static void assert_golden(const char *name, const struct buf *got)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/tests/golden/once/%s.txt", root ? root : ".", name);
	CLEANUP(buf_done) struct buf want = {0};

	if (getenv("GPUSTOW_UPDATE_GOLDEN")) {
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		fwrite(got->data, 1, got->len, f);
		assert_int_equal(fclose(f), 0);
		return;
	}
	if (fd_read_file_at(AT_FDCWD, path, &want, 1 << 20) < 0)
		fail_msg("%s is missing", path);
	assert_string_equal(buf_str(got), buf_str(&want));
}

static void golden(const struct show_fleet *f, const char *name, size_t cols, bool color, bool utf8,
	bool compact)
{
	struct once_style style = {
		.row = {.cols = cols, .color = color, .utf8 = utf8}, .is_compact = compact};
	CLEANUP_FREE char *file = xasprintf("%s-%zu%s%s%s", name, cols, color ? "-color" : "",
		utf8 ? "" : "-ascii", compact ? "-compact" : "");
	CLEANUP(buf_done) struct buf out = {0};

	once_text(f, &style, &out);
	assert_golden(file, &out);
}

static void texts(void **state)
{
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));

	(void)state;
	fill_lab(l);
	for (int color = 0; color < 2; color++)
		for (int utf8 = 0; utf8 < 2; utf8++)
			for (size_t i = 0; i < 3; i++)
				golden(&l->fleet, "lab", ((size_t[]){60, 80, 200})[i], color, utf8,
					false);
	golden(&l->fleet, "lab", 0, false, true, false);
	golden(&l->fleet, "lab", 200, false, true, true);
}

static void timings(void **state)
{
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));
	struct once_style style = {.row = {.cols = 100, .utf8 = true}, .with_timings = true};
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	fill_lab(l);
	l->hosts[0].connected_ms = 12;
	l->hosts[0].hello_ms = 1012;
	l->fleet.n = 1;
	once_text(&l->fleet, &style, &out);
	assert_golden("timings-100", &out);
}

/* One machine with figures of profiling and a card without, one that says why it has none. */
static void fill_profile(struct lab *l)
{
	fill_lab(l);
	l->busy.s.with_profiling = l->ill.s.with_profiling = true;
	l->busy.s.snap.profiling = (struct gpu_profiling){.source = PROFILE_GPM,
		.error = "dcgm_import_failed",
		.why = "there is no DCGM library here"};
	l->ill.s.snap.profiling = (struct gpu_profiling){.source = PROFILE_NONE,
		.error = "dcgm_connect_failed",
		.why = "DCGM has no host engine " HOSTILE};
	for (int64_t i = METRIC_PROFILE_FIRST; i < METRIC_N; i++)
		set(&l->busy.cards[0], (enum metric)i, (i - METRIC_PROFILE_FIRST) * 11);
	l->fleet.n = 2;
}

static void profiling(void **state)
{
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));
	json_t *doc, *host;

	(void)state;
	fill_profile(l);
	golden(&l->fleet, "profiling", 60, false, true, false);
	golden(&l->fleet, "profiling", 120, true, true, false);
	doc = once_json(&l->fleet, false);
	host = json_array_get(json_object_get(doc, "hosts"), 0);
	assert_string_equal(
		json_string_value(json_object_get(json_object_get(host, "profiling"), "source")),
		"gpm");
	host = json_array_get(json_object_get(host, "cards"), 0);
	assert_int_equal(json_integer_value(json_object_get(host, "sm_occupancy_pct")), 11);
	assert_int_equal(json_integer_value(json_object_get(host, "sol_pct")), 99);
	json_decref(doc);
}

static void crowds(void **state)
{
	CLEANUP_FREE struct machine *m = xcalloc(1, sizeof(*m));
	static const int counts[] = {0, 1, 8, 64};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		CLEANUP_FREE char *name = xasprintf("cards%d", counts[i]);
		struct show_host h;

		begin(m, "nvml");
		for (int k = 0; k < counts[i]; k++)
			card(m, k, "NVIDIA A100-SXM4-40GB", k * 97 % 101, k * 600, 40960);
		h = up("crowd", m);
		golden(&(struct show_fleet){.hosts = &h, .n = 1, .now_wall_ms = 1000}, name, 80,
			false, true, false);
	}
}

/* ---- every width ---- */

/* No line is wider than the terminal, and nothing but colours and line ends is below a blank. */
static void assert_lines_fit(const struct buf *out, size_t cols)
{
	const char *s = buf_str(out);

	assert_int_equal(utf8_valid_len(s, out->len), out->len);
	while (*s) {
		CLEANUP(buf_done) struct buf line = {0};

		for (; *s != '\n'; s++) {
			assert_true(*s != '\0');
			if (*s == '\033') {
				size_t n = strcspn(s, "m");

				assert_true(n < 6 && s[1] == '[');
				s += n;
				continue;
			}
			assert_true((unsigned char)*s >= ' ' && *s != 127);
			buf_putc(&line, *s);
		}
		s++;
		if (text_width(buf_str(&line), line.len) > cols)
			fail_msg("wider than %zu cells: %s", cols, buf_str(&line));
	}
}

static void widths(void **state)
{
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));

	(void)state;
	fill_lab(l);
	for (size_t cols = 1; cols <= 300; cols++)
		for (int k = 0; k < 8; k++) {
			struct once_style style = {
				.row = {.cols = cols, .color = k & 1, .utf8 = k & 2},
				.is_compact = k & 4,
				.with_timings = true};
			CLEANUP(buf_done) struct buf out = {0};

			once_text(&l->fleet, &style, &out);
			assert_lines_fit(&out, cols);
		}
}

/* Columns leave in the order of the spec, and what's left keeps its place below its title. */
static void columns_leave(void **state)
{
	static const char *const order[] = {
		"fan", "link", "tx", "rx", "power", "temp", "mem_util", "processes"};
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));
	bool is_gone[ARRAY_LEN(order)] = {0};

	(void)state;
	fill_lab(l);
	l->fleet.n = 1;
	for (size_t cols = 250; cols > 40; cols--) {
		struct once_style style = {.row = {.cols = cols, .utf8 = true}, .is_compact = true};
		CLEANUP(buf_done) struct buf out = {0};
		const char *titles, *end;
		CLEANUP_FREE char *line = NULL;

		once_text(&l->fleet, &style, &out);
		titles = strstr(buf_str(&out), "\nGPU") + 1;
		end = strchr(titles, '\n');
		line = xasprintf(" %.*s ", (int)(end - titles), titles);
		for (size_t i = 0; i < ARRAY_LEN(order); i++) {
			CLEANUP_FREE char *word = xasprintf(" %s ", order[i]);
			bool is_here = strstr(line, word) != NULL;

			if (is_here && is_gone[i])
				fail_msg("%s came back at %zu cells", order[i], cols);
			if (!is_here && i && !is_gone[i - 1])
				fail_msg("%s left before %s", order[i], order[i - 1]);
			is_gone[i] = !is_here;
		}
		assert_non_null(strstr(line, " util "));
	}
	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		assert_true(is_gone[i]);
}

/* ---- the document ---- */

/* Collects "hosts[].cards[].uuid" of everything in v. */
static void collect(const json_t *v, const char *path, json_t *paths)
{
	const char *key;
	json_t *member;
	size_t i;

	if (json_is_object(v)) {
		json_object_foreach((json_t *)v, key, member)
		{
			CLEANUP_FREE char *below = xasprintf("%s%s%s", path, *path ? "." : "", key);

			if (!json_is_array(member) && !json_is_object(member))
				json_object_set_new(paths, below, json_true());
			collect(member, below, paths);
		}
	} else if (json_is_array(v)) {
		CLEANUP_FREE char *below = xasprintf("%s[]", path);

		json_object_set_new(paths, below, json_true());
		json_array_foreach((json_t *)v, i, member) collect(member, below, paths);
	} else {
		assert_false(json_is_real(v));
	}
}

/* Rows of docs/once.md "| `hosts[].name` | ...": the metrics stand there as "hosts[].cards[].<metric>". */
static json_t *documented(void)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/docs/once.md", root ? root : ".");
	CLEANUP(buf_done) struct buf b = {0};
	json_t *paths = json_object();

	assert_int_equal(fd_read_file_at(AT_FDCWD, path, &b, 1 << 20), 0);
	for (const char *s = buf_str(&b); (s = strstr(s, "\n| `")); s++) {
		CLEANUP_FREE char *name = xstrndup(s + 4, strcspn(s + 4, "`"));
		char *at = strstr(name, "<metric>");

		/* A row of the table of options. */
		if (name[0] == '-')
			continue;
		if (!at) {
			json_object_set_new(paths, name, json_true());
			continue;
		}
		for (size_t i = 0; i < METRIC_N; i++) {
			CLEANUP_FREE char *full =
				xasprintf("%.*s%s", (int)(at - name), name, metric_info[i].key);

			json_object_set_new(paths, full, json_true());
		}
	}
	return paths;
}

static void assert_all_in(json_t *some, const json_t *all, const char *what)
{
	const char *key;
	json_t *v;

	json_object_foreach(some, key, v)
	{
		if (!json_object_get(all, key))
			fail_msg("%s: %s", what, key);
	}
}

static void document(void **state)
{
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));
	json_t *doc, *paths = json_object(), *named;

	(void)state;
	fill_lab(l);
	/* A second card that lacks everything, one that has everything: every key has both a value and a reason somewhere. */
	for (size_t i = 0; i < METRIC_N; i++)
		set(&l->busy.cards[0], i, 1);
	l->busy.cards[1].nvlink_peers = 1;
	l->busy.rows[0] = (struct ledger_row){
		.card = 1, .budget_mib = 9000, .held_mib = 1000, .name = {.job = 7, .attempt = 1}};
	l->busy.s.n_rows = 1;
	l->busy.proc_row[0] = 1;
	l->busy.s.snap.driver_us = 900;
	l->busy.s.snap.slowest = (struct gpu_call){"memory", 0, 500};
	doc = once_json(&l->fleet, true);
	collect(doc, "", paths);
	/* null where an object may be: its own keys are shown by another row. */
	json_object_del(paths, "hosts[].processes[].job");
	json_object_del(paths, "hosts[].slowest_call");
	named = documented();
	json_object_del(named, "hosts[].processes[].job");
	assert_all_in(paths, named, "docs/once.md lacks a key of the document");
	assert_all_in(named, paths, "docs/once.md has a key that the document lacks");
	assert_int_equal(json_object_size(paths), json_object_size(named));
	json_decref(doc);
	json_decref(paths);
	json_decref(named);
}

static const json_t *at(const json_t *doc, size_t host, const char *list, size_t i)
{
	return json_array_get(
		json_object_get(json_array_get(json_object_get(doc, "hosts"), host), list), i);
}

/* All keys of every object of a kind are the same, whatever is known: null, never missing. */
static void keys_are_stable(void **state)
{
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));
	json_t *doc, *hosts;
	size_t n;

	(void)state;
	fill_lab(l);
	doc = once_json(&l->fleet, false);
	hosts = json_object_get(doc, "hosts");
	n = json_object_size(json_array_get(hosts, 0));
	for (size_t i = 1; i < 6; i++)
		assert_int_equal(json_object_size(json_array_get(hosts, i)), n);
	assert_null(json_object_get(json_array_get(hosts, 0), "timings"));
	assert_int_equal(
		json_object_size(at(doc, 1, "cards", 1)), json_object_size(at(doc, 0, "cards", 0)));
	assert_true(json_is_null(json_object_get(at(doc, 1, "cards", 1), "temp_c")));
	assert_string_equal(
		"lost", json_string_value(json_object_get(
				json_object_get(at(doc, 1, "cards", 1), "absent"), "temp_c")));
	assert_true(json_is_null(json_object_get(at(doc, 1, "processes", 2), "used_mib")));
	assert_int_equal(json_array_size(json_object_get(doc, "errors")), 3);
	json_decref(doc);
}

static void hostile_names(void **state)
{
	CLEANUP_FREE struct lab *l = xcalloc(1, sizeof(*l));
	CLEANUP_FREE char *text = NULL;
	json_t *doc;

	(void)state;
	fill_lab(l);
	doc = once_json(&l->fleet, false);
	text = json_dumps(doc, 0);
	assert_non_null(text);
	assert_int_equal(utf8_valid_len(text, strlen(text)), strlen(text));
	assert_null(strstr(text, "\\u001b"));
	for (const char *s = text; *s; s++)
		assert_true((unsigned char)*s >= ' ' && *s != 127);
	json_decref(doc);
}

/* ---- the parts ---- */

static void numbers(void **state)
{
	static const struct table_column columns[] = {{"n", .is_number = true}};
	static const struct {
		int64_t v;
		int decimals;
		const char *text;
	} rows[] = {{125, 1, "12.5"}, {-5, 1, "-0.5"}, {7, 2, "0.07"}, {1234, 3, "1.234"},
		{0, 0, "0"}, {INT64_MIN, 0, "-9223372036854775808"}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(table_done) struct table t;
		CLEANUP(buf_done) struct buf out = {0};
		struct row_style style = {0};

		table_init(&t, columns, 1);
		table_row(&t);
		table_number(&t, ROW_PLAIN, rows[i].v, rows[i].decimals, "");
		table_put(&t, &style, true, &out);
		assert_non_null(strstr(buf_str(&out), rows[i].text));
	}
}

static void capacities(void **state)
{
	(void)state;
	assert_int_equal(show_link_capacity_kib_s(4, 16), INT64_C(1969200000) * 16 / 1024);
	assert_int_equal(show_link_capacity_kib_s(0, 16), 0);
	assert_int_equal(show_link_capacity_kib_s(99, 16), 0);
	assert_int_equal(show_link_capacity_kib_s(4, -1), 0);
}

static void health(void **state)
{
	struct health_fact facts[HEALTH_FACTS_MAX];
	struct gpu_card c = {0};

	(void)state;
	assert_int_equal(health_of(&c, facts), 0);
	/* Idle and user-set clocks are ordinary. */
	set(&c, METRIC_THROTTLE, 0x1 | 0x2 | 0x10);
	assert_int_equal(health_of(&c, facts), 0);
	set(&c, METRIC_THROTTLE, 0x4 | 0x8 | 0x40);
	assert_int_equal(health_of(&c, facts), 2);
	assert_int_equal(facts[0].weight, HEALTH_BAD);
	assert_int_equal(facts[1].weight, HEALTH_NOTE);
	c = (struct gpu_card){0};
	set(&c, METRIC_RECOVERY, 2);
	set(&c, METRIC_REMAP_FAILURE, 1);
	set(&c, METRIC_XID_LAST, 79);
	set(&c, METRIC_MIG_MODE, 0);
	set(&c, METRIC_MIG_PENDING, 1);
	assert_int_equal(health_of(&c, facts), 4);
	assert_string_equal(facts[0].kind, "recovery");
	assert_string_equal(facts[1].kind, "remap");
	assert_string_equal(facts[2].kind, "xid");
	assert_memory_equal(facts[2].text, "XID error 79, ", strlen("XID error 79, "));
	assert_string_equal(facts[3].kind, "mig");
	for (int64_t bits = 0; bits < 512; bits++) {
		set(&c, METRIC_THROTTLE, bits);
		for (int64_t action = -1; action < 9; action++) {
			set(&c, METRIC_RECOVERY, action);
			assert_true(health_of(&c, facts) <= HEALTH_FACTS_MAX);
		}
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts),
		cmocka_unit_test(timings),
		cmocka_unit_test(profiling),
		cmocka_unit_test(crowds),
		cmocka_unit_test(widths),
		cmocka_unit_test(columns_leave),
		cmocka_unit_test(document),
		cmocka_unit_test(keys_are_stable),
		cmocka_unit_test(hostile_names),
		cmocka_unit_test(numbers),
		cmocka_unit_test(capacities),
		cmocka_unit_test(health),
	};

	setenv("TZ", "UTC", 1);
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		setlocale(LC_CTYPE, "en_US.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
