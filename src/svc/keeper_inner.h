/* Between the parts of keeper: what is rendered (pure), and systemd. */
#pragma once

#include "svc/keeper.h"

enum { KEEPER_PATH = 4096, KEEPER_TOKEN = 33 };

/* What a script or a unit is made of. */
struct keeper_spec {
	const char *home, *program, *env_home;
	int64_t interval_s;
	const char *token; /* script only */
	bool has_steps; /* unit only: systemd knows RestartSteps (254 and later) */
};
/* All pure. -EINVAL: a path that can't stand there (a line break, no absolute one). */
int keeper_check_path(const char *what, const char *path, struct err *e);
void keeper_script(const struct keeper_spec *s, struct buf *ret);
void keeper_unit(const struct keeper_spec *s, struct buf *ret);
/* "gpustow-queue.service", "nvidb-queue.service"; with a part of the home's hash before the dot when it isn't the usual home. */
void keeper_unit_name(
	const char *env_home, const char *home, const char *user_home, struct buf *ret);

/* <home>/queue-keeper<suffix> */
int keeper_path(const char *home, const char *suffix, char ret[KEEPER_PATH], struct err *e);

/* ---- systemd: keeper_systemd.c; unit: its file's path ---- */
/* The user's systemd can be asked: 0, or a sentence and how to go on. */
int keeper_systemd_reach(struct err *e);
int keeper_systemd_path(const char *unit_name, char ret[KEEPER_PATH], struct err *e);
int keeper_systemd_install(const struct keeper_spec *s, const char *unit, struct err *e);
/* Stopped before. */
int keeper_systemd_remove(const char *unit, struct err *e);
/* *ret_pid 0: none. False when it can't be asked, too. */
bool keeper_systemd_is_up(const char *unit, int64_t *ret_pid);
int keeper_systemd_do(const char *unit, const char *action, struct buf *out, struct err *e);
int keeper_systemd_logs(const char *unit, int64_t lines, struct buf *out, struct err *e);
/* It goes on after the last session has ended, and starts with the machine. */
bool keeper_systemd_lingers(void);
