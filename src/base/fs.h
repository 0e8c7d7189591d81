/* What kind of file system a path lies on. */
#pragma once

/*
 * Is it one that several machines share, or that comes and goes by itself (statfs(2))? There locks, shared memory, renames
 * or a reboot mean something else than on a disk of this machine. 1: yes, 0: no, -errno: it can't be told. Links are followed.
 */
int fs_is_network(const char *path);
