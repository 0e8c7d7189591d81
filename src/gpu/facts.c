/*
 * The cache of process facts. An entry is a process, (pid, start ticks); one that no snapshot has listed for a minute is
 * forgotten. Parents are remembered too: whoever once descended from a job's shim is that job's, though the process
 * between them has ended. A command line may be changed by its process, so it's read again now and then.
 */
#include "gpu/facts.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "gpu/gpu_backend.h"
#include "proc/cgroup.h"
#include "proc/proc.h"
#include "proc/users.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP_MS 60000
#define AGAIN_MS 30000 /* owner, parents, mark, command line, control group */
#define CPU_PERIOD_MS 250 /* below it a difference of ticks is mostly rounding */
#define NAMES_WAIT_MS 20
#define CGROUP_BYTES 8192
#define ANCESTORS (sizeof(((struct gpu_proc *)0)->ancestors) / sizeof(int32_t))

struct entry {
	int32_t pid;
	uint64_t start_ticks;
	int32_t ppid;
	char comm[32];
	uint64_t cpu_ticks;
	int64_t cpu_ms; /* when cpu_ticks was counted; 0 never */
	struct value cpu_pct;
	int64_t read_ms; /* the lasting facts; 0 never */
	int64_t more_read_ms; /* those of details; 0 never */
	int64_t listed_ms;
	uint32_t uid;
	uint32_t n_ancestors;
	int32_t ancestors[ANCESTORS];
	char mark[80];
	int64_t start_wall_ms;
	char *cmdline; /* owned; NULL: none */
	struct cgroup_names cgroup;
};

struct facts {
	struct entry *items; /* ascending pid */
	size_t n, cap;
	struct users *users;
	long ticks_hz, page_bytes;
};

struct facts *facts_new(void)
{
	struct facts *f = xcalloc(1, sizeof(*f));

	f->users = users_new();
	f->ticks_hz = sysconf(_SC_CLK_TCK) > 0 ? sysconf(_SC_CLK_TCK) : 100;
	f->page_bytes = sysconf(_SC_PAGESIZE) > 0 ? sysconf(_SC_PAGESIZE) : 4096;
	return f;
}

void facts_free(struct facts *f)
{
	if (f == NULL)
		return;
	for (size_t i = 0; i < f->n; i++)
		free(f->items[i].cmdline); /* NOLINT(clang-analyzer-unix.Malloc): each is owned once */
	free(f->items);
	users_free(f->users);
	free(f);
}

/* Where the pid is, or would be. */
static size_t place_of(const struct facts *f, int32_t pid)
{
	size_t lo = 0, hi = f->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (f->items[mid].pid < pid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The entry of that process; another one's of the same pid makes way. The pointer holds until the next call. */
static struct entry *entry_of(struct facts *f, const struct proc_stat *st)
{
	size_t at = place_of(f, st->pid);

	if (at == f->n || f->items[at].pid != st->pid) {
		GROW(f->items, f->n, f->cap);
		memmove(&f->items[at + 1], &f->items[at], (f->n - at) * sizeof(*f->items));
		f->n++;
		f->items[at] = (struct entry){.pid = st->pid, .start_ticks = st->start_ticks};
	} else if (f->items[at].start_ticks != st->start_ticks) {
		free(f->items[at].cmdline);
		f->items[at] = (struct entry){.pid = st->pid, .start_ticks = st->start_ticks};
	}
	return &f->items[at];
}

static void forget(struct facts *f, int64_t now_ms)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->n; i++) {
		if (now_ms - f->items[i].listed_ms < KEEP_MS)
			f->items[kept++] = f->items[i];
		else
			free(f->items[i].cmdline);
	}
	f->n = kept;
}

/* The process is still the one whose stat was read. */
static bool is_same(const struct proc_stat *st)
{
	struct proc_stat again;

	return proc_read_stat(st->pid, &again) == 0 && again.start_ticks == st->start_ticks;
}

/* False when the pid had another owner before we were through: then none of it counts. */
static bool read_lasting(struct entry *x, const struct proc_stat *st)
{
	struct entry to = *x;
	pid_t up[ANCESTORS];

	to.uid = proc_uid(st->pid);
	to.n_ancestors = (uint32_t)proc_ancestors(st->pid, up, ANCESTORS);
	for (uint32_t i = 0; i < to.n_ancestors; i++)
		to.ancestors[i] = up[i];
	if (proc_env(st->pid, "GPUSTOW_MARK", to.mark, sizeof(to.mark)) < 0 && x->read_ms == 0)
		to.mark[0] = '\0';
	if (!is_same(st))
		return false;
	to.ppid = st->ppid;
	memcpy(to.comm, st->comm, sizeof(to.comm));
	*x = to;
	return true;
}

/* Arguments end with NUL; between them it becomes a blank. Nothing else is changed. */
static void join_arguments(char *s, size_t n)
{
	while (n > 0 && s[n - 1] == '\0')
		n--;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '\0')
			s[i] = ' ';
	}
	s[n] = '\0';
}

static void read_more(struct facts *f, struct entry *x, const struct proc_stat *st, int64_t now_ms,
	int64_t wall_ms)
{
	char text[CGROUP_BYTES];
	ssize_t n = proc_read_bytes(st->pid, "cmdline", text, GPU_CMDLINE_LEN - 1);

	free(x->cmdline); /* NOLINT(clang-analyzer-unix.Malloc): forget() moves entries, it never copies */
	x->cmdline = NULL;
	if (n > 0) {
		join_arguments(text, (size_t)n);
		x->cmdline = *text ? xstrdup(text) : NULL;
	}
	n = proc_read_bytes(st->pid, "cgroup", text, sizeof(text));
	cgroup_parse(text, n > 0 ? (size_t)n : 0, &x->cgroup);
	x->start_wall_ms =
		wall_ms - now_ms + (int64_t)(st->start_ticks * 1000 / (uint64_t)f->ticks_hz);
	/* In the middle of an exec it has its name already, and no arguments yet: the next look has them. */
	x->more_read_ms = x->cmdline ? now_ms : 0;
}

static struct value cpu_of(
	const struct facts *f, struct entry *x, const struct proc_stat *st, int64_t now_ms)
{
	int64_t ms = now_ms - x->cpu_ms;

	if (x->cpu_ms != 0 && ms < CPU_PERIOD_MS)
		return x->cpu_pct;
	x->cpu_pct = value_absent(VALUE_EMPTY);
	if (x->cpu_ms != 0 && st->cpu_ticks >= x->cpu_ticks)
		x->cpu_pct = value_of((int64_t)((st->cpu_ticks - x->cpu_ticks) * 100000 /
						((uint64_t)f->ticks_hz * (uint64_t)ms)));
	x->cpu_ms = now_ms;
	x->cpu_ticks = st->cpu_ticks;
	return x->cpu_pct;
}

static void put_row(const struct entry *x, const struct proc_stat *st, struct gpu_proc *p)
{
	p->uid = x->uid;
	p->n_ancestors = x->n_ancestors;
	memcpy(p->ancestors, x->ancestors, sizeof(p->ancestors));
	memcpy(p->mark, x->mark, sizeof(p->mark));
	p->start_ticks = st->start_ticks;
	p->pgid = st->pgid;
	p->sid = st->sid;
	memcpy(p->comm, st->comm, sizeof(p->comm));
	p->comm[sizeof(p->comm) - 1] = '\0';
}

static void put_more(const struct facts *f, struct entry *x, const struct proc_stat *st,
	int64_t now_ms, struct gpu_proc_more *m)
{
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): forget() moves entries, it never copies */
	size_t n = x->cmdline != NULL ? strlen(x->cmdline) : 0;

	m->cpu_pct = cpu_of(f, x, st, now_ms);
	m->rss_mib = value_of((int64_t)(st->rss_pages * (uint64_t)f->page_bytes / (1024 * 1024)));
	m->start_wall_ms = x->start_wall_ms;
	if (n > 0)
		memcpy(m->cmdline, x->cmdline, n + 1);
	memcpy(m->container, x->cgroup.container, sizeof(m->container));
	memcpy(m->pod, x->cgroup.pod, sizeof(m->pod));
	memcpy(m->slurm_job, x->cgroup.slurm_job, sizeof(m->slurm_job));
	memcpy(m->unit, x->cgroup.unit, sizeof(m->unit));
	m->state = st->state;
	m->threads = st->threads;
}

static void fill_row(struct facts *f, struct gpu_proc *p, struct gpu_proc_more *m, int64_t now_ms,
	int64_t wall_ms)
{
	struct proc_stat st;
	struct entry *x;
	bool has_changed;

	p->uid = (uid_t)-1;
	if (proc_read_stat(p->pid, &st) < 0)
		return;
	x = entry_of(f, &st);
	x->listed_ms = now_ms;
	/* Another name means another program: exec keeps pid and start. */
	has_changed = x->ppid != st.ppid || memcmp(x->comm, st.comm, sizeof(x->comm)) != 0;
	if (x->read_ms == 0 || has_changed || now_ms - x->read_ms >= AGAIN_MS) {
		if (!read_lasting(x, &st))
			return;
		x->read_ms = now_ms;
	}
	put_row(x, &st, p);
	if (m == NULL)
		return;
	if (x->more_read_ms == 0 || has_changed || now_ms - x->more_read_ms >= AGAIN_MS) {
		read_more(f, x, &st, now_ms, wall_ms);
		if (!is_same(&st))
			return;
	}
	put_more(f, x, &st, now_ms, m);
}

static void copy_row(const struct gpu_proc *from, struct gpu_proc *to)
{
	struct gpu_proc row = *from;

	row.card = to->card;
	row.kind = to->kind;
	row.used_mib = to->used_mib;
	row.gi = to->gi;
	row.ci = to->ci;
	*to = row;
}

/* What the driver said of the process on its own card stays. */
static void copy_more(const struct gpu_proc_more *from, struct gpu_proc_more *to)
{
	struct gpu_proc_more row = *from;

	row.sm_pct = to->sm_pct;
	row.mem_pct = to->mem_pct;
	row.enc_pct = to->enc_pct;
	row.dec_pct = to->dec_pct;
	*to = row;
}

static void put_names(struct facts *f, struct gpu_snapshot *s, int64_t now_ms)
{
	for (uint32_t i = 0; i < s->n_procs; i++)
		users_name(f->users, s->procs[i].uid, now_ms);
	users_turn(f->users, now_ms, NAMES_WAIT_MS);
	for (uint32_t i = 0; i < s->n_procs; i++) {
		const char *name = users_name(f->users, s->procs[i].uid, now_ms);

		memcpy(s->more[i].user, name, strlen(name) + 1);
	}
}

void facts_fill(struct facts *f, struct gpu_snapshot *s, int64_t now_ms, int64_t wall_ms)
{
	/* Under these numbers /proc has other processes, or none: no name is better than a stranger's. */
	if (s->has_foreign_pids) {
		for (uint32_t i = 0; i < s->n_procs; i++)
			s->procs[i].uid = (uid_t)-1;
		return;
	}
	for (uint32_t i = 0; i < s->n_procs; i++) {
		struct gpu_proc_more *m = s->more != NULL ? &s->more[i] : NULL;
		uint32_t k = 0;

		/* A process on eight cards is read once, and all its rows agree. */
		while (k < i && s->procs[k].pid != s->procs[i].pid)
			k++;
		if (k == i) {
			fill_row(f, &s->procs[i], m, now_ms, wall_ms);
			continue;
		}
		copy_row(&s->procs[k], &s->procs[i]);
		if (m != NULL)
			copy_more(&s->more[k], m);
	}
	if (s->more != NULL)
		put_names(f, s, now_ms);
	forget(f, now_ms);
}

void gpu_snapshot_fill_procs(struct gpu_snapshot *s)
{
	struct facts *f = facts_new();

	facts_fill(f, s, 1, 0);
	facts_free(f);
}
