/*
 * All processes at one moment, and who of them belongs to a tree or a session. The table is a snapshot: whoever acts on a row
 * must name its start time too.
 */
#include "proc/proc.h"
#include "base/alloc.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

/* The kernel's own limit of pids is 2^22. */
#define TABLE_MAX (4 * 1024 * 1024)

/* The pid a name in /proc stands for, or 0. */
static pid_t pid_of_name(const char *name)
{
	long v = 0;
	for (const char *p = name; *p; p++) {
		if (*p < '0' || *p > '9' || v > 100 * 1000 * 1000)
			return 0;
		v = v * 10 + (*p - '0');
	}
	return (pid_t)v;
}

static int compare_pids(const void *a, const void *b)
{
	const struct proc_stat *x = a, *y = b;
	return (x->pid > y->pid) - (x->pid < y->pid);
}

int proc_table_read(struct proc_table *ret)
{
	CLEANUP_CLOSEDIR DIR *d = opendir("/proc");
	if (!d)
		return -errno;
	struct proc_table t = {0};
	size_t cap = 0;
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(d);
		if (!entry)
			break;
		pid_t pid = pid_of_name(entry->d_name);
		struct proc_stat s;
		if (pid <= 0 || proc_read_stat(pid, &s) < 0)
			continue;
		if (t.n == TABLE_MAX)
			break;
		GROW(t.rows, t.n, cap);
		t.rows[t.n++] = s;
	}
	if (errno) {
		int code = -errno;
		proc_table_done(&t);
		return code;
	}
	if (t.n > 1)
		qsort(t.rows, t.n, sizeof(t.rows[0]), compare_pids);
	*ret = t;
	return 0;
}

void proc_table_done(struct proc_table *t)
{
	free(t->rows);
	*t = (struct proc_table){0};
}

static const struct proc_stat *find_row(const struct proc_table *t, pid_t pid)
{
	struct proc_stat key = {.pid = pid};
	return t->n ? bsearch(&key, t->rows, t->n, sizeof(key), compare_pids) : NULL;
}

enum mark { MARK_OUT, MARK_IN, MARK_BARRIER };

static enum mark first_mark(const struct proc_table *t, size_t i, const struct proc_tree *q)
{
	const struct proc_stat *row = &t->rows[i];
	if (row->pid == q->root)
		return MARK_OUT;
	bool is_in = (q->sid && row->sid == q->sid) || (q->root && row->ppid == q->root);
	return is_in ? MARK_IN : MARK_OUT;
}

size_t proc_table_select(
	const struct proc_table *t, const struct proc_tree *q, size_t *ret, size_t max)
{
	if (!t->n)
		return 0;
	CLEANUP_FREE unsigned char *marks = xcalloc(t->n, 1);
	/* Parents mostly have the lower pid, so one pass finds nearly all, and the last one finds nothing new. */
	for (bool is_first = true, has_new = true; has_new; is_first = false) {
		has_new = false;
		for (size_t i = 0; i < t->n; i++) {
			const struct proc_stat *row = &t->rows[i];
			if (marks[i] != MARK_OUT || row->pid == q->root)
				continue;
			enum mark m = is_first ? first_mark(t, i, q) : MARK_OUT;
			const struct proc_stat *parent = m ? NULL : find_row(t, row->ppid);
			if (parent && marks[parent - t->rows] == MARK_IN)
				m = MARK_IN;
			if (m == MARK_IN && q->is_barrier && q->is_barrier(q->arg, row))
				m = MARK_BARRIER;
			has_new |= m != MARK_OUT;
			marks[i] = (unsigned char)m;
		}
	}
	size_t n = 0;
	for (size_t i = 0; i < t->n && n < max; i++) {
		char state = t->rows[i].state;
		if (marks[i] == MARK_IN && state != 'Z' && state != 'X')
			ret[n++] = i;
	}
	return n;
}

size_t proc_table_tree(const struct proc_table *t, pid_t root, pid_t sid, size_t *ret, size_t max)
{
	struct proc_tree q = {.root = root, .sid = sid};
	return proc_table_select(t, &q, ret, max);
}
