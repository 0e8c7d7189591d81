/* The doctor's look at what gpustow itself stands on: files, places, the system's habits. */
#include "cli/doctor.h"

#include "agent/root.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/disk.h"
#include "fleet/agent_file.h"
#include "proc/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ROOM_BYTES (INT64_C(64) * 1024 * 1024)

static void look_at_program(struct checklist *l)
{
	char path[4096];
	struct err e = {0};

	if (agent_file_path(path, sizeof(path), &e) < 0)
		checklist_add(l, CHECK_BAD, "program",
			"make one of these places private, writable and executable (not noexec)",
			"%s", e.text);
	else
		checklist_add(l, CHECK_OK, "program", NULL, "the agent's program lies at %s", path);
}

static void look_at_room(struct checklist *l, const char *path)
{
	CLEANUP(buf_done) struct buf room = {0};
	struct statvfs v;
	int64_t bytes;

	if (statvfs(path, &v) < 0)
		return;
	bytes = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
	disk_put_bytes(&room, bytes);
	if (bytes < ROOM_BYTES || (v.f_files && !v.f_favail))
		checklist_add(l, CHECK_BAD, "root",
			"make room there: no job can be started on a full disk",
			"%s has %s and %llu files free", path, buf_str(&room),
			(unsigned long long)v.f_favail);
	else
		checklist_add(l, CHECK_OK, "root", NULL, "the agent's records lie in %s, %s free",
			path, buf_str(&room));
}

static void look_at_root(struct checklist *l)
{
	char path[3072];
	struct root root;
	struct err e = {0};
	int r;

	root_init(&root);
	r = root_path(path, sizeof(path), &e);
	if (!r)
		r = root_open(&root, path, &e);
	if (r < 0)
		checklist_add(l, CHECK_BAD, "root",
			"it must be ours alone and writable; GPUSTOW_AGENT_ROOT names another place",
			"%s", e.text);
	else
		look_at_room(l, root.path);
	if (!r && strncmp(root.path, "/var/tmp/", 9) == 0)
		checklist_add(l, CHECK_WARN, "root",
			"fine as long as nothing sweeps /var/tmp; GPUSTOW_AGENT_ROOT names another local place",
			"the home is no local file system of yours, so records lie below /var/tmp");
	root_done(&root);
}

static void look_at_promises(struct checklist *l)
{
	const char *dir = getenv("GPUSTOW_PROMISE_DIR");
	struct stat st;

	dir = dir && *dir ? dir : "/tmp";
	if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || access(dir, W_OK | X_OK) < 0)
		checklist_add(l, CHECK_BAD, "promises",
			"it must be a directory that every user may write to, as /tmp is (mode 1777)",
			"%s can't be used for promises between the users of this machine", dir);
	else if ((st.st_mode & 07002) != 01002 && st.st_uid != geteuid())
		checklist_add(l, CHECK_WARN, "promises", "mode 1777, as /tmp has",
			"%s has mode %04o: others' agents can't promise there, or can be removed",
			dir, st.st_mode & 07777);
	else
		checklist_add(l, CHECK_OK, "promises", NULL,
			"users promise each other memory in %s", dir);
}

/* ---- systemd ---- */

/* The last "KillUserProcesses=" of a file that isn't a comment. */
static void read_kill(const char *path, bool *ret)
{
	CLEANUP(buf_done) struct buf b = {0};
	static const char key[] = "KillUserProcesses=";

	if (fd_read_file_at(AT_FDCWD, path, &b, 65536) < 0)
		return;
	for (const char *line = buf_str(&b); line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, sizeof(key) - 1) == 0)
			*ret = strchr("yYtT1", line[sizeof(key) - 1]) != NULL ||
			       strncmp(line + sizeof(key) - 1, "on", 2) == 0;
	}
}

static bool kills_at_logout(void)
{
	static const char *const dirs[] = {"/usr/lib/systemd/logind.conf.d",
		"/run/systemd/logind.conf.d", "/etc/systemd/logind.conf.d"};
	bool yes = false;

	read_kill("/usr/lib/systemd/logind.conf", &yes);
	read_kill("/etc/systemd/logind.conf", &yes);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		CLEANUP_CLOSEDIR DIR *d = opendir(dirs[i]);
		const struct dirent *x;

		while (d && (x = readdir(d))) {
			CLEANUP(buf_done) struct buf path = {0};

			buf_printf(&path, "%s/%s", dirs[i], x->d_name);
			if (x->d_name[0] != '.')
				read_kill(buf_str(&path), &yes);
		}
	}
	return yes;
}

static bool lingers(void)
{
	const struct passwd *p = getpwuid(geteuid());
	CLEANUP(buf_done) struct buf path = {0};

	if (!p)
		return false;
	buf_printf(&path, "/var/lib/systemd/linger/%s", p->pw_name);
	return access(buf_str(&path), F_OK) == 0;
}

static void look_at_logout(struct checklist *l)
{
	if (access("/run/systemd/system", F_OK) < 0) {
		checklist_add(l, CHECK_OK, "logout", NULL,
			"no systemd here that could end jobs at logout");
		return;
	}
	if (lingers())
		checklist_add(
			l, CHECK_OK, "logout", NULL, "lingering is on: jobs outlive your logout");
	else if (kills_at_logout())
		checklist_add(l, CHECK_WARN, "logout", "loginctl enable-linger",
			"logind ends all your processes at logout (KillUserProcesses): jobs with them");
	else
		checklist_add(l, CHECK_OK, "logout", NULL,
			"logind leaves your processes alone at logout");
}

static void look_at_namespace(struct checklist *l)
{
	if (proc_is_initial_pid_ns())
		checklist_add(l, CHECK_OK, "container", NULL,
			"not in a pid namespace: processes on the cards can be named");
	else
		checklist_add(l, CHECK_WARN, "container",
			"start the container with --pid=host to see whose memory it is",
			"in a pid namespace of its own (a container): the driver's process numbers are the host's, so memory can't be told by process");
}

void doctor_machine(struct checklist *l)
{
	look_at_program(l);
	look_at_root(l);
	look_at_promises(l);
	look_at_logout(l);
	look_at_namespace(l);
}
