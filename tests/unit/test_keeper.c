/* The keeper's texts: what paths with odd characters become in a script and in a unit, and what a unit is called. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/cleanup.h"
#include "svc/keeper_inner.h"

static const struct keeper_spec odd = {.home = "/h/it's $HOME",
	.program = "/opt/100%/a b",
	.env_home = "GPUSTOW_HOME",
	.interval_s = 15,
	.token = "0123abcd"};

static void script(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};

	(void)state;
	keeper_script(&odd, &b);
	assert_true(strncmp(buf_str(&b), "#!/bin/sh\n", 10) == 0);
	assert_non_null(
		strstr(buf_str(&b), "\nHOME_DIR='/h/it'\\''s $HOME'\nPROGRAM='/opt/100%/a b'\n"
				    "INTERVAL=15\nTOKEN=0123abcd\nNAME=gpustow\n"
				    "export GPUSTOW_HOME=\"$HOME_DIR\"\n"));
	assert_non_null(strstr(buf_str(&b), "${GPUSTOW_BIN:-$PROGRAM}"));
	/* Every place is filled. */
	for (const char *p = buf_str(&b); (p = strchr(p, '@')); p++)
		assert_false(p[1] >= 'A' && p[1] <= 'Z');
}

static void unit(void **state)
{
	CLEANUP(buf_done) struct buf b = {0}, steps = {0}, quoted = {0};
	struct keeper_spec s = odd;

	(void)state;
	keeper_unit(&s, &b);
	assert_non_null(strstr(buf_str(&b), "\nEnvironment=\"GPUSTOW_HOME=/h/it's $HOME\"\n"));
	assert_non_null(
		strstr(buf_str(&b), "\nExecStart=\"/opt/100%%/a b\" queue daemon --interval 15\n"));
	assert_non_null(strstr(buf_str(&b), "\nKillMode=process\nOOMPolicy=continue\n"));
	assert_null(strstr(buf_str(&b), "RestartSteps"));
	s.has_steps = true;
	s.env_home = "NVIDB_HOME";
	keeper_unit(&s, &steps);
	assert_non_null(strstr(buf_str(&steps), "\nRestartSteps=6\nRestartMaxDelaySec=300\n"));
	assert_non_null(strstr(buf_str(&steps), "\nDescription=nvidb's queue"));
	s.program = "/a\"b\\c$d";
	keeper_unit(&s, &quoted);
	assert_non_null(strstr(buf_str(&quoted),
		"\nExecStart=/bin/sh -c \"exec \\\"$$0\\\" \\\"$$@\\\"\" \"/a\\\"b\\\\c$$d\" queue daemon"));
}

static void unit_name(void **state)
{
	static const struct {
		const char *env, *home, *name;
	} rows[] = {
		{"GPUSTOW_HOME", "/home/ann/.gpustow", "gpustow-queue.service"},
		{"NVIDB_HOME", "/home/ann/.nvidb", "nvidb-queue.service"},
	};
	CLEANUP(buf_done) struct buf other = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(buf_done) struct buf b = {0};

		keeper_unit_name(rows[i].env, rows[i].home, "/home/ann", &b);
		assert_string_equal(buf_str(&b), rows[i].name);
	}
	/* Two homes of one user are two units. */
	keeper_unit_name("GPUSTOW_HOME", "/home/ann/.nvidb", "/home/ann", &other);
	assert_int_equal(other.len, strlen("gpustow-queue-01234567.service"));
	assert_true(strncmp(buf_str(&other), "gpustow-queue-", 14) == 0);
}

static void paths(void **state)
{
	struct err e = {0};

	(void)state;
	assert_int_equal(keeper_check_path("the program", "/a b/ö'\"", &e), 0);
	assert_int_equal(keeper_check_path("the program", "a", &e), -EINVAL);
	assert_int_equal(keeper_check_path("the program", "/a\nb", &e), -EINVAL);
	assert_string_equal(e.text,
		"the program '/a\\nb' won't do; it has to be absolute, without control characters");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(script),
		cmocka_unit_test(unit),
		cmocka_unit_test(unit_name),
		cmocka_unit_test(paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
