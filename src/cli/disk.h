/* What a directory takes on the disk, and who uses files in it. Links are never followed. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes allocated for everything below `path`, itself included; 0 when it isn't there. What can't be read isn't counted. */
int64_t disk_usage(const char *path);
/* "1.4 MiB". */
void disk_put_bytes(struct buf *b, int64_t bytes);
/*
 * A process that holds a lock on a file below `path`: an agent, a job's shim, somebody who writes a database. 0: none.
 * The file's path is put into *ret_path.
 */
pid_t disk_user(const char *path, struct buf *ret_path);
/* Everything right below `path` has a name that gpustow or nvidb gives. True for an empty directory. */
bool disk_is_ours(const char *path);
