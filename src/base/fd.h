/* Descriptors, files and directories: whole reads and writes, durable replacement, bounds. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes all n bytes or returns -errno (EINTR is retried; EAGAIN is returned). */
int fd_write_all(int fd, const void *bytes, size_t n);
/*
 * Writes what of *b comes after *taken, in pieces of at most `piece` bytes, as far as a non-blocking fd takes it. 0: all is
 * written (*b is empty then, *taken 0), or the rest has to wait; -EIO: nobody is there any more.
 */
int fd_push(int fd, struct buf *b, size_t *taken, size_t piece);
/* pwrite of all n bytes at off. */
int fd_pwrite_all(int fd, const void *bytes, size_t n, off_t off);
/* Appends everything up to end of file to *b; more than `max` bytes: -EFBIG. */
int fd_read_all(int fd, struct buf *b, size_t max);
/* Opens path below dirfd (AT_FDCWD) with O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK, takes only plain files, reads up to max. */
int fd_read_file_at(int dirfd, const char *path, struct buf *b, size_t max);
/* Writes path by way of "<path>.tmp<random>", mode 0600, and renames it into place. durable: fsync file and directory. */
int fd_replace_at(int dirfd, const char *path, const void *bytes, size_t n, bool durable);
/* fsync of the directory itself. */
int fd_sync_dir_at(int dirfd, const char *path);
int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);
/* Closes all descriptors >= from, except the n in keep (ascending). Works without close_range(2) and without /proc. */
void fd_close_from(int from, const int *keep, size_t n);
/* mkdir -p, mode 0700 for each new level. */
int fd_mkdirs(const char *path, struct err *e);
/* Removes a tree below dirfd without following links; a missing one is fine. */
int fd_remove_tree_at(int dirfd, const char *path);
/* Ours alone: a directory (not a link), owned by our uid, no write for others. 0, or -EPERM/-errno with a sentence. */
int fd_check_private_dir(const char *path, struct err *e);
/* fcntl write lock on the whole file, not waiting: 0, -EAGAIN when somebody has it (ret_holder: his pid, may be NULL). */
int fd_lock(int fd, pid_t *ret_holder);
/* F_GETLK: 0 and *ret_holder = pid, or 0 when free. Own locks aren't seen (POSIX). */
int fd_lock_holder(int fd, pid_t *ret_holder);
