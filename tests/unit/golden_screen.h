/* Pictures of the screens as text files in tests/golden/tui; GPUSTOW_UPDATE_GOLDEN=1 writes them. */
#pragma once

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>

static void assert_golden(const char *name, const struct buf *got)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/tests/golden/tui/%s.txt", root ? root : ".", name);
	CLEANUP(buf_done) struct buf want = {0};
	CLEANUP_CLOSE int fd = -1;

	if (getenv("GPUSTOW_UPDATE_GOLDEN")) {
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		assert_true(fd >= 0);
		assert_int_equal(fd_write_all(fd, got->data, got->len), 0);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s isn't there; GPUSTOW_UPDATE_GOLDEN=1 writes it", path);
	assert_int_equal(fd_read_all(fd, &want, 1 << 20), 0);
	assert_string_equal(buf_str(got), buf_str(&want));
}
