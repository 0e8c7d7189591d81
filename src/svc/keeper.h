/*
 * The supervisor that keeps the daemon alive: a shell script of ours, or a systemd user unit (nvidb 8.4, 1.3). In the home lie
 * queue-keeper.sh (0755), .manager (which of the two, and its unit), .pid, .session, .log and .lock, all 0600.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum keeper_manager { KEEPER_NONE, KEEPER_SHELL, KEEPER_SYSTEMD };
const char *keeper_manager_name(enum keeper_manager m); /* "shell", "systemd"; NULL: none */

struct keeper_state {
	bool installed, running;
	int64_t pid; /* of the script's loop, of the unit's daemon; 0 none */
	enum keeper_manager manager;
	char script[4096], unit[4096], log[4096]; /* "" none */
};

struct keeper_install {
	const char *program; /* absolute; executable */
	const char *env_home; /* "GPUSTOW_HOME" or "NVIDB_HOME" */
	int64_t interval_s;
	bool systemd, start;
};
struct keeper_installed {
	bool replaced, started;
	char start_error[512];
	char advice[512]; /* "" none: what it still needs, as after a reboot */
};

/* Never an error but for a home whose path is too long. */
int keeper_state(const char *home, struct keeper_state *ret, struct err *e);
/*
 * Replaces what's there; the other manager's is stopped and taken away first, and stays when it can't be stopped. start: one
 * that ran before is started anew, with what's installed now.
 */
int keeper_install(const char *home, const struct keeper_install *o, struct keeper_installed *ret,
	struct err *e);
/*
 * "start", "ensure", "stop", "restart": its output in *out; the truth, not a wish. Positive: the script's or systemctl's exit
 * code. -ENOENT: none is installed.
 */
int keeper_do(const char *home, const char *action, struct buf *out, struct err *e);
int keeper_logs(const char *home, int64_t lines, struct buf *out, struct err *e);
