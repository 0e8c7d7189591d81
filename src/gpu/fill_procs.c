/*
 * The /proc side of a snapshot's process rows: whose process it is, since when, whose child, which mark. Every read may
 * fail because the process ended meanwhile; its row stays, with what is unknown left unknown.
 */
#include "gpu/gpu_backend.h"

#include "proc/proc.h"

#include <string.h>

static void fill_row(struct gpu_proc *p)
{
	pid_t up[sizeof(p->ancestors) / sizeof(p->ancestors[0])];
	struct proc_stat st, again;

	p->uid = (uid_t)-1;
	if (proc_read_stat(p->pid, &st) < 0)
		return;
	p->uid = proc_uid(p->pid);
	p->n_ancestors = (uint32_t)proc_ancestors(
		p->pid, up, sizeof(p->ancestors) / sizeof(p->ancestors[0]));
	for (uint32_t i = 0; i < p->n_ancestors; i++)
		p->ancestors[i] = up[i];
	if (proc_env(p->pid, "GPUSTOW_MARK", p->mark, sizeof(p->mark)) < 0)
		p->mark[0] = '\0';
	/* The reads above may have met the next owner of the pid: then none of it counts. */
	if (proc_read_stat(p->pid, &again) < 0 || again.start_ticks != st.start_ticks) {
		p->uid = (uid_t)-1;
		p->n_ancestors = 0;
		p->mark[0] = '\0';
		return;
	}
	p->start_ticks = st.start_ticks;
	p->pgid = st.pgid;
	p->sid = st.sid;
	memcpy(p->comm, st.comm, sizeof(p->comm));
	p->comm[sizeof(p->comm) - 1] = '\0';
}

static void copy_facts(const struct gpu_proc *from, struct gpu_proc *to)
{
	struct gpu_proc row = *from;

	row.card = to->card;
	row.kind = to->kind;
	row.used_mib = to->used_mib;
	*to = row;
}

void gpu_snapshot_fill_procs(struct gpu_snapshot *s)
{
	for (uint32_t i = 0; i < s->n_procs; i++) {
		uint32_t k = 0;

		/* A process on eight cards is read once, and all its rows agree. */
		while (k < i && s->procs[k].pid != s->procs[i].pid)
			k++;
		if (k < i)
			copy_facts(&s->procs[k], &s->procs[i]);
		else
			fill_row(&s->procs[i]);
	}
}
