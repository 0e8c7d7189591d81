/* A directory for one test, in which the fake NVML library finds its scenario and writes its calls down. */
#pragma once

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char work[64], scenario_path[96], log_path[96];

static void put_file(const char *name, const char *text)
{
	CLEANUP(buf_done) struct buf path = {0};
	struct err e = {0};

	buf_printf(&path, "%s/%s", work, name);
	*strrchr(path.data, '/') = '\0';
	assert_int_equal(fd_mkdirs(path.data, &e), 0);
	path.data[strlen(path.data)] = '/';
	assert_int_equal(fd_replace_at(AT_FDCWD, path.data, text, strlen(text), false), 0);
}

static int setup(void **state)
{
	(void)state;
	snprintf(work, sizeof(work), "/tmp/gpustow-test-nvml-XXXXXX");
	assert_non_null(mkdtemp(work));
	snprintf(scenario_path, sizeof(scenario_path), "%s/scenario", work);
	snprintf(log_path, sizeof(log_path), "%s/calls", work);
	setenv("GPUSTOW_FAKE_NVML", scenario_path, 1);
	setenv("GPUSTOW_FAKE_NVML_LOG", log_path, 1);
	unsetenv("GPUSTOW_SIM_DIR");
	unsetenv("GPUSCHED_SIM_DIR");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return fd_remove_tree_at(AT_FDCWD, work);
}

/* How often a line begins so in the fake's log. */
static inline int calls(const char *prefix)
{
	CLEANUP(buf_done) struct buf b = {0};
	int n = 0;

	if (fd_read_file_at(AT_FDCWD, log_path, &b, 1 << 24) < 0)
		return 0;
	for (const char *s = buf_str(&b); s != NULL && *s != '\0'; s = strchr(s, '\n')) {
		s += *s == '\n';
		n += strncmp(s, prefix, strlen(prefix)) == 0;
	}
	return n;
}
