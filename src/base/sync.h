/*
 * Several files brought to disk at the same time: each sync costs the disk a flush, and flushes that are asked for together
 * become one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct fd_sync {
	int fd;
	bool is_dir; /* fsync; else fdatasync */
	int code; /* what came of it: 0 or -errno */
};

/* When it returns each has been synced, or has its error. Where the kernel can't do several at once, one after the other. */
void fd_sync_all(struct fd_sync *s, size_t n);
