/* Signals that a monitor asks for (signal.h). The identity is checked here, where the process is, right before it's sent. */
#include "agent/signal.h"

#include "core/wire.h"
#include "proc/proc.h"

#include <signal.h>
#include <unistd.h>

static int check(int64_t pid, int64_t start_ticks, int64_t signo, struct err *e)
{
	struct proc_stat st;
	uid_t uid;

	if (signo != SIGINT && signo != SIGTERM && signo != SIGKILL)
		return err_set(e, -EINVAL, "only SIGINT, SIGTERM and SIGKILL can be sent");
	if (pid == getpid())
		return err_set(e, -EPERM, "process %lld is the agent itself", (long long)pid);
	if (proc_read_stat((pid_t)pid, &st) || st.start_ticks != (uint64_t)start_ticks)
		return err_set(e, -ESRCH,
			"process %lld has ended, or another has its number now; nothing was sent",
			(long long)pid);
	uid = proc_uid((pid_t)pid);
	if (geteuid() != 0 && uid != geteuid())
		return err_set(e, -EPERM,
			"process %lld isn't this account's own (its uid is %u, ours %u); nothing was sent",
			(long long)pid, (unsigned)uid, (unsigned)geteuid());
	return 0;
}

int signal_send(struct agent *a, struct client *c, const json_t *msg, struct err *e)
{
	int64_t id, pid, start_ticks, signo;
	int r;

	(void)a;
	if ((r = wire_int(msg, "id", INT64_MIN, INT64_MAX, &id, e)) ||
		(r = wire_int(msg, "pid", 2, INT32_MAX, &pid, e)) ||
		(r = wire_int(msg, "start_ticks", 1, INT64_MAX, &start_ticks, e)) ||
		(r = wire_int(msg, "signo", 1, 64, &signo, e)) ||
		(r = check(pid, start_ticks, signo, e)))
		return r;
	r = proc_signal((pid_t)pid, (uint64_t)start_ticks, (int)signo);
	if (r)
		return err_sys(e, r, "process %lld couldn't be signalled", (long long)pid);
	client_send(c, json_pack("{s:s, s:I, s:I}", "op", "signalled", "id", (json_int_t)id, "pid",
			       (json_int_t)pid));
	return 0;
}
