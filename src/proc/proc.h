/*
 * Facts about processes from /proc. Any read may fail at any moment because the process ended; that is data, not an
 * error worth a word. A process is (boot id, pid namespace, pid, start ticks), never a bare pid.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_stat {
	pid_t pid, ppid, pgid, sid;
	char state; /* R S D Z T ... */
	bool is_exiting; /* PF_EXITING: its memory goes, its files may still be open */
	uint64_t start_ticks; /* field 22 */
	uint64_t cpu_ticks; /* utime + stime */
	uint64_t rss_pages;
	int32_t threads;
	char comm[32]; /* raw, as the kernel gives it */
};

/* 0, -ESRCH when it's gone. Splits after the last ')'. */
int proc_read_stat(pid_t pid, struct proc_stat *ret);
/* The same for bytes of a stat file: pure. */
int proc_parse_stat(const char *text, size_t n, struct proc_stat *ret);

/* The process with this identity is there and isn't a zombie. start_ticks 0: any. */
bool proc_is_alive(pid_t pid, uint64_t start_ticks);
/* Signals exactly that process: pidfd where the kernel has it, identity looked at after opening. -ESRCH when gone or another. */
int proc_signal(pid_t pid, uint64_t start_ticks, int sig);

/* Parents of pid, nearest first, up to `max`; stops at 1, which isn't told. Returns how many. */
size_t proc_ancestors(pid_t pid, pid_t *ret, size_t max);
/* Value of NAME in /proc/PID/environ: 0, -ENOENT without, -ERANGE when it doesn't fit, -EACCES/-ESRCH. */
int proc_env(pid_t pid, const char *name, char *ret, size_t size);
uid_t proc_uid(pid_t pid); /* (uid_t)-1 unknown */
/*
 * At most size bytes of /proc/PID/FILE ("cmdline", "cgroup"), as they are: how many, or -errno. Nothing is added behind.
 */
ssize_t proc_read_bytes(pid_t pid, const char *file, char *ret, size_t size);

/* "8-4-4-4-12". With fault points compiled in, GPUSTOW_TEST_BOOT_ID is believed instead. */
int proc_boot_id(char ret[40]);
/* Processes the kernel has killed for want of memory since the boot, the whole machine's; -1: it doesn't count them. */
int64_t proc_oom_kills(void);
/* The same for the text of /proc/vmstat: pure. */
int64_t proc_parse_oom_kills(const char *text);
uint64_t proc_pid_ns(void); /* inode of /proc/self/ns/pid; 0 unknown */
bool proc_is_initial_pid_ns(void); /* false inside a container */
/* SHA-256 (hex, 64 digits) of machine-id (and host name outside the initial pid namespace): protocol.md 1. */
int proc_machine_key(char ret[65]);

/* A table of all processes, read once: for descendants and sessions. */
struct proc_table {
	struct proc_stat *rows; /* ascending pid */
	size_t n;
};
int proc_table_read(struct proc_table *ret);
void proc_table_done(struct proc_table *t);
/* Below `root` by parent links, or in session `sid` (0: don't look): fills ret with positions in rows, zombies left out. */
size_t proc_table_tree(const struct proc_table *t, pid_t root, pid_t sid, size_t *ret, size_t max);

/* The same, but for some processes that don't belong, and neither does what only hangs below them. */
struct proc_tree {
	pid_t root; /* 0: don't look at descent; never in the answer itself */
	pid_t sid; /* 0: don't look at sessions */
	bool (*is_barrier)(void *arg,
		const struct proc_stat *row); /* NULL: none; asked once for each row found */
	void *arg;
};
/* Fills ret with positions in rows, ascending, zombies left out; returns how many (at most max). */
size_t proc_table_select(
	const struct proc_table *t, const struct proc_tree *q, size_t *ret, size_t max);
