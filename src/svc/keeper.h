/* The supervisor that keeps the daemon alive: a shell script of ours, or a systemd user unit (nvidb 8.4, 1.3). */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum keeper_manager { KEEPER_NONE, KEEPER_SHELL, KEEPER_SYSTEMD };

struct keeper_state {
	bool installed, running;
	int64_t pid; /* 0 none */
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
};

int keeper_state(const char *home, struct keeper_state *ret, struct err *e);
int keeper_install(const char *home, const struct keeper_install *o, struct keeper_installed *ret,
	struct err *e);
/* "start", "ensure", "stop", "restart": its output in *out; the truth, not a wish. Positive: the script's exit code. */
int keeper_do(const char *home, const char *action, struct buf *out, struct err *e);
int keeper_logs(const char *home, int64_t lines, struct buf *out, struct err *e);
