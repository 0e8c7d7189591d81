/*
 * What a run shows, compared whole: tests/golden/view holds the rendered screens (GPUSTOW_UPDATE_GOLDEN=1 writes them anew,
 * and git shows what changed). Beside them: the board against the lines of gpusched's own, and every size of panel.
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
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "base/row.h"
#include "run/view.h"

#define NOW 1781662617000 /* 2026-06-17 02:16:57 UTC */

static const int32_t on0[] = {0}, on01[] = {0, 1};
static const struct view_use use2[] = {{0, 2199, 2199}},
			     use8[] = {{0, 2000, 2000}, {1, 2000, 2000}},
			     use_done[] = {{0, 7800, 7800}};

/* Nothing known of a job but this. */
static struct view_job job(uint64_t no, enum view_state state, const char *command)
{
	return (struct view_job){.no = no,
		.state = state,
		.command = command,
		.key = "5ffe533b830f#0",
		.lineno = (uint32_t)no,
		.seconds = -1,
		.declared_mib = -1,
		.want_gpus = 1,
		.bumped_mib = -1,
		.suggested_mib = -1};
}

static struct view_job running(uint64_t no, const int32_t *gpus, uint32_t n_gpus,
	const struct view_use *use, uint32_t n_use, double seconds, const char *command)
{
	struct view_job j = job(no, VIEW_RUNNING, command);

	j.gpus = gpus;
	j.n_gpus = n_gpus;
	j.use = use;
	j.n_use = n_use;
	j.is_sampled = n_use > 0;
	j.seconds = seconds;
	return j;
}

static struct view_job ended(
	uint64_t no, const char *status, const char *verdict, int64_t code, const char *command)
{
	struct view_job j = job(no, VIEW_DONE, command);

	j.status = status;
	j.verdict = verdict;
	j.has_returncode = true;
	j.returncode = code;
	j.seconds = 64;
	j.gpus = on0;
	j.n_gpus = 1;
	return j;
}

static struct view_card card(
	int32_t index, int64_t used, int64_t own, int64_t foreign, int64_t budget)
{
	return (struct view_card){.index = index,
		.uuid = "GPU-1",
		.name = "NVIDIA H200",
		.state = "ok",
		.total_mib = 24576,
		.used_mib = used,
		.own_mib = own,
		.foreign_mib = foreign,
		.budget_mib = budget,
		.free_mib = 24576 - foreign - budget,
		.util_pct = 90,
		.is_usable = true,
		.n_jobs = 2};
}

static struct run_view view(
	const struct view_card *cards, size_t n_cards, const struct view_job *jobs, size_t n_jobs)
{
	struct run_view v = {.program = "gpusched",
		.jobs_file = "jobs.txt",
		.log_dir = "gpusched_logs",
		.now_wall_ms = NOW,
		.scheduler_pid = 4711,
		.source = "nvml",
		.sample_age_ms = 1200,
		.cards = cards,
		.n_cards = n_cards,
		.jobs = jobs,
		.n_jobs = n_jobs};

	for (size_t i = 0; i < n_jobs; i++) {
		v.n_running += jobs[i].state == VIEW_RUNNING || jobs[i].state == VIEW_HANDED;
		v.n_pending += jobs[i].state == VIEW_PENDING;
		v.n_done += jobs[i].state == VIEW_DONE;
	}
	v.n_lines = n_jobs;
	return v;
}

/* Two cards, one of everything that can be seen. */
enum { BUSY_JOBS = 14, BUSY_CARDS = 2 };

static struct run_view busy(struct view_card cards[BUSY_CARDS], struct view_job jobs[BUSY_JOBS])
{
	struct run_view v;
	struct view_job *j = jobs;

	cards[0] = card(0, 12800, 8192, 4608, 10240);
	cards[1] = card(1, 2000, 2000, 0, 2048);
	*j++ = running(2, on0, 1, use2, 1, 1.2, "python train.py --lr 1e-4");
	j[-1].declared_mib = 8192;
	*j = running(3, on0, 1, NULL, 0, -1, "echo \033[31mred\033[0m\a \xff end");
	j->declared_mib = 8192;
	j++->state = VIEW_HANDED;
	*j = running(4, NULL, 0, NULL, 0, 3700, "make data");
	j++->name = "prepare";
	*j = running(8, on01, 2, use8, 2, 0.4, "torchrun train.py");
	j->declared_mib = 2048;
	j++->is_cancelling = true;
	*j = running(12, on0, 1, use2, 1, 99999, "python 訓練.py --name café");
	j->was_taken_over = true;
	j++->is_timing_out = true;
	*j = job(5, VIEW_PENDING, "python big.py");
	j->declared_mib = 14336;
	j++->why = "needs 14848 MiB on one GPU; the best is gpu1 with 9100 MiB free";
	*j = job(9, VIEW_PENDING, "python oom.py");
	j->declared_mib = 2560;
	j->attempts = 1;
	j++->bumped_mib = 2560;
	*j++ = job(
		1234, VIEW_PENDING, "ls 日本語 日本語 日本語 日本語 日本語 日本語 日本語 日本語");
	*j = ended(1, "cancelled", "cancelled", 0, "echo never");
	j++->n_gpus = 0;
	*j = ended(6, "ok", "ok", 0, "python good.py");
	j->use = use_done;
	j++->n_use = 1;
	*j = ended(7, "ok", "over", 0, "python greedy.py");
	j++->suggested_mib = 13312;
	*j++ = ended(10, "timeout", "timeout", 0, "sleep 60");
	*j = ended(11, "failed", "failed", -9, "python killed.py");
	j++->has_returncode = false;
	*j = ended(13, "failed", "failed", 7, "sh -c 'exit 7'");
	j++->state = VIEW_DONE_BEFORE;
	v = view(cards, BUSY_CARDS, jobs, BUSY_JOBS);
	v.n_ok = 2;
	v.n_failed = 2;
	v.n_cancelled = 1;
	v.n_over = 1;
	v.n_done_before = v.n_failed_before = 1;
	return v;
}

enum { CROWD_JOBS = 10030, CROWD_CARDS = 8 };

static struct run_view crowd(struct view_card *cards, struct view_job *jobs)
{
	for (int32_t i = 0; i < CROWD_CARDS; i++)
		cards[i] = card(i, i * 3000, i * 2000, i * 1000, i * 2500);
	cards[5].state = "lost";
	cards[5].total_mib = cards[5].used_mib = -1;
	cards[6].is_usable = false;
	cards[7].util_pct = -1;
	for (uint64_t i = 0; i < CROWD_JOBS; i++) {
		jobs[i] = i < 30 ? running(i + 1, on0, 1, use2, 1, (double)i * 61, "python run.py")
				 : job(i + 1, VIEW_PENDING, "python wait.py");
		jobs[i].declared_mib = 4096;
	}
	return view(cards, CROWD_CARDS, jobs, CROWD_JOBS);
}

/* Nothing is known: what was never measured must not look like a zero. */
static struct run_view absent(struct view_card cards[3], struct view_job jobs[2])
{
	struct run_view v;

	cards[0] = card(0, -1, -1, -1, -1);
	cards[0].util_pct = -1;
	cards[0].free_mib = 0;
	cards[1] = cards[0];
	cards[1].index = 1;
	cards[1].total_mib = -1;
	cards[1].name = cards[1].uuid = NULL;
	cards[2] = cards[1];
	cards[2].index = 2;
	cards[2].state = "forbidden";
	jobs[0] = running(0, on0, 1, NULL, 0, -1, NULL);
	jobs[0].key = NULL;
	jobs[0].lineno = 0;
	jobs[1] = ended(2, NULL, NULL, 0, NULL);
	jobs[1].has_returncode = false;
	jobs[1].seconds = -1;
	v = view(cards, 3, jobs, 2);
	v.scheduler_pid = 0;
	v.source = NULL;
	v.jobs_file = NULL;
	v.sample_age_ms = -1;
	v.source_error =
		"the driver doesn't answer: \033]0;x\a none of nvml and nvidia-smi could be asked";
	return v;
}

static void assert_golden(const char *name, const struct buf *got)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/tests/golden/view/%s.txt", root ? root : ".", name);
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

static void board_is_gpuscheds(void **state)
{
	static const struct view_use u[] = {{0, 2000, 2100}, {1, 2000, 2000}};
	struct view_job jobs[] = {
		running(2, on0, 1, use2, 1, 1.4, "CMD"),
		running(8, on01, 2, u, 2, 12345.6, "CMD"),
		running(14, on0, 1, NULL, 0, 0, "CMD"),
		job(5, VIEW_PENDING, "CMD"),
		job(6, VIEW_PENDING, "CMD"),
		job(9, VIEW_PENDING, "CMD"),
		ended(2, "ok", "ok", 0, "CMD"),
		ended(10, "timeout", "timeout", -15, "CMD"),
		ended(1, "cancelled", "cancelled", 0, "CMD"),
	};
	struct run_view v = view(NULL, 0, jobs, ARRAY_LEN(jobs));
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	jobs[1].is_cancelling = true;
	jobs[4].declared_mib = 14336;
	jobs[5].declared_mib = jobs[5].bumped_mib = 2560;
	jobs[5].attempts = 1;
	jobs[6].use = use_done;
	jobs[6].n_use = 1;
	view_board(&v, &out);
	assert_string_equal(buf_str(&out),
		"gpusched status @ 02:16:57 — 3 running, 3 pending, 3 done\n"
		"▶ job 2   gpu[0]     1s  gpu0:2199 MiB (peak 2199) — CMD\n"
		"▶ job 8   gpu[0,1] 12346s  gpu0:2000, gpu1:2000 MiB (peak 2100) (cancelling…) — CMD\n"
		"▶ job 14  gpu[0]     0s   MiB (peak 0) — CMD\n"
		"· job 5   pending — CMD\n"
		"· job 6   pending vram 14336 — CMD\n"
		"↻ job 9   pending vram 2560 retry 1, vram→2560 — CMD\n"
		"✓ job 2   ok (exit 0, peak 7800 MiB) — CMD\n"
		"✗ job 10  timeout (exit -15, peak 0 MiB) — CMD\n"
		"⊘ job 1   cancelled (exit 0, peak 0 MiB) — CMD\n");
}

/* The first of many: what isn't shown is counted, between the waiting and the done or at the end. */
static void board_of_many(void **state)
{
	struct view_job jobs[] = {
		job(5, VIEW_PENDING, "CMD"),
		job(6, VIEW_PENDING, "CMD"),
		ended(2, "ok", "ok", 0, "CMD"),
	};
	struct run_view v = view(NULL, 0, jobs, ARRAY_LEN(jobs));
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	v.n_pending = 12345;
	view_board(&v, &out);
	assert_string_equal(buf_str(&out),
		"gpusched status @ 02:16:57 — 0 running, 12345 pending, 1 done\n"
		"· job 5   pending — CMD\n"
		"· job 6   pending — CMD\n"
		"· … and 12343 more pending\n"
		"✓ job 2   ok (exit 0, peak 0 MiB) — CMD\n");
	buf_clear(&out);
	v.n_jobs = 2;
	view_board(&v, &out);
	assert_non_null(strstr(buf_str(&out), "— CMD\n· … and 12343 more pending\n"));
}

static void boards(void **state)
{
	struct view_card cards[3];
	struct view_job jobs[BUSY_JOBS];
	struct run_view v = busy(cards, jobs);
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	view_board(&v, &out);
	assert_null(strchr(out.data, '\033'));
	assert_golden("board-busy", &out);
	buf_clear(&out);
	v = absent(cards, jobs);
	view_board(&v, &out);
	assert_golden("board-absent", &out);
}

static void panel_golden(
	const struct run_view *v, const char *name, size_t cols, size_t rows, bool color, bool utf8)
{
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP_FREE char *file = xasprintf("panel-%s-%zux%zu%s%s", name, cols, rows,
		color ? "-color" : "", utf8 ? "" : "-ascii");

	view_panel(v, cols, rows, color, utf8, &out);
	assert_golden(file, &out);
}

static void panels(void **state)
{
	struct view_card cards[CROWD_CARDS];
	CLEANUP_FREE struct view_job *jobs = xcalloc(CROWD_JOBS, sizeof(*jobs));
	struct run_view v = busy(cards, jobs);

	(void)state;
	panel_golden(&v, "busy", 20, 5, false, true);
	panel_golden(&v, "busy", 80, 24, false, true);
	panel_golden(&v, "busy", 80, 24, true, true);
	panel_golden(&v, "busy", 80, 24, false, false);
	panel_golden(&v, "busy", 250, 70, false, true);
	v.is_draining = true;
	v.sample_age_ms = 95000;
	panel_golden(&v, "stale", 80, 10, false, true);
	v = crowd(cards, jobs);
	panel_golden(&v, "crowd", 20, 5, false, true);
	panel_golden(&v, "crowd", 80, 24, false, true);
	panel_golden(&v, "crowd", 250, 70, false, true);
	v = absent(cards, jobs);
	panel_golden(&v, "absent", 80, 24, false, true);
	v = view(NULL, 0, NULL, 0);
	panel_golden(&v, "empty", 80, 24, false, true);
}

static void texts(void **state)
{
	struct view_card cards[CROWD_CARDS];
	CLEANUP_FREE struct view_job *jobs = xcalloc(CROWD_JOBS, sizeof(*jobs));
	struct run_view v = busy(cards, jobs);
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	view_status_text(&v, 100, &out);
	assert_golden("text-busy", &out);
	buf_clear(&out);
	view_status_text(&v, 0, &out);
	assert_golden("text-busy-uncut", &out);
	buf_clear(&out);
	v = crowd(cards, jobs);
	view_status_text(&v, 80, &out);
	assert_golden("text-crowd", &out);
	buf_clear(&out);
	v = absent(cards, jobs);
	view_status_text(&v, 80, &out);
	assert_golden("text-absent", &out);
}

static void json_golden(const struct run_view *v, const char *name)
{
	json_t *o = view_json(v);
	CLEANUP_FREE char *text = json_dumps(o, JSON_INDENT(1));
	CLEANUP(buf_done) struct buf out = {0};

	assert_non_null(text);
	buf_printf(&out, "%s\n", text);
	json_decref(o);
	assert_golden(name, &out);
}

static void documents(void **state)
{
	struct view_card cards[3];
	struct view_job jobs[BUSY_JOBS];
	struct run_view v = busy(cards, jobs);

	(void)state;
	json_golden(&v, "json-busy");
	v = absent(cards, jobs);
	json_golden(&v, "json-absent");
}

/* Cells of a line whose colours are taken out. */
static size_t shown_width(const char *s, size_t n)
{
	CLEANUP(buf_done) struct buf plain = {0};

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\033') {
			while (s[i] != 'm')
				i++;
			continue;
		}
		buf_putc(&plain, s[i]);
	}
	return text_width(buf_str(&plain), plain.len);
}

static void check_text(const struct run_view *v, size_t cols, struct buf *out)
{
	buf_clear(out);
	view_status_text(v, cols, out);
	for (const char *line = buf_str(out); *line; line += strcspn(line, "\n") + 1)
		if (shown_width(line, strcspn(line, "\n")) > cols)
			fail_msg("%zu: too wide: %.*s", cols, (int)strcspn(line, "\n"), line);
}

static void check_size(
	const struct run_view *v, size_t cols, size_t rows, bool color, bool utf8, struct buf *out)
{
	const char *line;
	size_t n = 0;

	buf_clear(out);
	view_panel(v, cols, rows, color, utf8, out);
	assert_int_equal(utf8_valid_len(buf_str(out), out->len), out->len);
	for (line = buf_str(out);; line++) {
		size_t len = strcspn(line, "\n");

		n++;
		if (shown_width(line, len) > cols)
			fail_msg("%zux%zu: line %zu is %zu wide: %.*s", cols, rows, n,
				shown_width(line, len), (int)len, line);
		line += len;
		if (!*line)
			break;
	}
	if (n > rows)
		fail_msg("%zux%zu: %zu lines", cols, rows, n);
}

static void every_size(void **state)
{
	struct view_card cards[CROWD_CARDS], few[3];
	CLEANUP_FREE struct view_job *jobs = xcalloc(CROWD_JOBS, sizeof(*jobs));
	struct view_job some[BUSY_JOBS], none[2];
	struct run_view views[3] = {busy(cards, some), absent(few, none)};
	struct view_card many[CROWD_CARDS];
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	views[2] = crowd(many, jobs);
	/* As many as there are rows, and more, are enough here; all 10,000 are in the golden files. */
	views[2].n_jobs = 100;
	for (size_t k = 0; k < ARRAY_LEN(views); k++)
		for (size_t cols = 1; cols <= 130; cols++) {
			check_text(&views[k], cols, &out);
			for (size_t rows = 1; rows <= 40; rows++)
				check_size(&views[k], cols, rows, cols % 2, rows % 3, &out);
		}
	view_panel(&views[0], 0, 10, false, true, &out);
	view_panel(&views[0], 10, 0, false, true, &out);
}

/* Random bytes as commands and reasons: never a control byte in the output, never too wide. */
static void random_text(void **state)
{
	struct view_card cards[3];
	struct view_job jobs[BUSY_JOBS];
	struct run_view v = busy(cards, jobs);
	CLEANUP(buf_done) struct buf out = {0};
	char text[200];
	unsigned seed = 12345;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		size_t n = (size_t)(round % (int)sizeof(text));

		for (size_t i = 0; i < n; i++) {
			seed = seed * 1103515245u + 12345u;
			text[i] = (char)(1 + (seed >> 16) % 255);
		}
		text[n] = '\0';
		jobs[0].command = jobs[5].why = jobs[2].name = text;
		check_size(&v, 1 + (size_t)round % 100, 12, false, round % 2, &out);
		for (size_t i = 0; i < out.len; i++)
			if ((unsigned char)out.data[i] < 32 && out.data[i] != '\n')
				fail_msg("round %d: byte %d in the output", round, out.data[i]);
	}
}

static void marks_are_bounded(void **state)
{
	struct row_style style = {.cols = 10, .utf8 = true};
	CLEANUP(buf_done) struct buf out = {0}, pile = {0};
	struct row r;

	(void)state;
	buf_puts(&pile, "e");
	for (int i = 0; i < 100000; i++)
		buf_puts(&pile, "\xcc\x81");
	row_begin(&r, &style, &out);
	row_text(&r, ROW_PLAIN, pile.data);
	row_end(&r);
	assert_true(out.len < 32);
}

/* A row that's exactly full isn't cut; one cell more is, and a wide character is never halved. */
static void rows_are_cut(void **state)
{
	static const struct {
		const char *text, *want;
		size_t cols;
	} rows[] = {
		{"abcde", "abcde\n", 5},
		{"abcdef", "abcd…\n", 5},
		{"日本", "日本\n", 4},
		{"日本語", "日…\n", 4},
		{"日本語", "日本…\n", 5},
		{"日", "…\n", 1},
		{"e\xcc\x81x", "e\xcc\x81x\n", 2},
		{"a\tb\033c",
			"a b\xef\xbf\xbd"
			"c\n",
			9},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct row_style style = {.cols = rows[i].cols, .utf8 = true};
		CLEANUP(buf_done) struct buf out = {0};
		struct row r;

		row_begin(&r, &style, &out);
		row_text(&r, ROW_PLAIN, rows[i].text);
		row_text(&r, ROW_PLAIN, "");
		row_end(&r);
		assert_string_equal(buf_str(&out), rows[i].want);
	}
}

/* After the ellipsis nothing more comes, even what would fit. */
static void nothing_after_the_cut(void **state)
{
	struct row_style style = {.cols = 5, .utf8 = true};
	CLEANUP(buf_done) struct buf out = {0};
	struct row r;

	(void)state;
	row_begin(&r, &style, &out);
	row_text(&r, ROW_PLAIN, "ab");
	row_text(&r, ROW_PLAIN, "cdefg");
	row_text(&r, ROW_PLAIN, "h");
	row_end(&r);
	assert_string_equal(buf_str(&out), "abcd…\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(board_is_gpuscheds),
		cmocka_unit_test(board_of_many),
		cmocka_unit_test(boards),
		cmocka_unit_test(panels),
		cmocka_unit_test(texts),
		cmocka_unit_test(documents),
		cmocka_unit_test(every_size),
		cmocka_unit_test(random_text),
		cmocka_unit_test(marks_are_bounded),
		cmocka_unit_test(rows_are_cut),
		cmocka_unit_test(nothing_after_the_cut),
	};

	setenv("TZ", "UTC", 1);
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
