/*
 * config.yml of gpustow's home: read strictly, edited by splicing so that every comment, unknown key, order and the mode
 * stay. libyaml reads; nothing here writes YAML but the few lines that an edit needs. Sections: basic, view, servers,
 * queue (spec nvidb 2.2). The file is at most 1 MiB, its nesting at most 32, aliases are refused.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum host_auth { AUTH_AUTO, AUTH_KEY, AUTH_PASSWORD };

/* One server. Strings are owned; NULL where the file says nothing. */
struct host_config {
	char *nickname; /* never NULL: default user@host:port */
	char *hostname; /* never NULL; host: is the deprecated alias */
	int port; /* 22 */
	char *username; /* NULL: ssh decides */
	enum host_auth auth;
	char *identityfile; /* ~ expanded */
	char *password;
	char *proxyjump; /* "a,b@c:22" normalised; NULL: direct */
	char *agent_dir; /* ours: where the agent's program may lie on that host; NULL: the usual places */
	int32_t *gpus; /* gpus: / gpu_ids: placement only */
	size_t n_gpus;
	bool has_gpus; /* an empty list is no GPU placements */
	uint32_t line; /* where its mapping begins */
};

/* A key of view: with a value it takes; bools are "true" and "false". */
struct config_view {
	const char *key, *value; /* constants */
};
#define CONFIG_VIEW_MAX 16

struct config {
	char *path;
	bool is_missing; /* no such file: all defaults */
	bool compact, remote;
	struct host_config *servers;
	size_t n_servers;
	struct config_view
		view[CONFIG_VIEW_MAX]; /* what the file says; the rest has its defaults */
	size_t n_view;
	struct buf
		warnings; /* lines "config.yml line 7: unknown key 'colour' in basic: is ignored" */
};

/* The home directory: the value of `variable` ("GPUSTOW_HOME", "NVIDB_HOME"), else `name` (".gpustow", ".nvidb") below ~. Absolute. */
int home_path(const char *variable, const char *name, char *ret, size_t size, struct err *e);

/* Parses bytes: pure. -EINVAL with "config.yml line N: ...: what would be right". */
int config_parse(const char *bytes, size_t n, const char *path, struct config *ret, struct err *e);
int config_load(const char *home, struct config *ret, struct err *e);
void config_done(struct config *c);
void host_config_done(struct host_config *h);

/*
 * One key of a server from text, as the file and the command line give it: "hostname", "port", "username", "nickname",
 * "auth", "identityfile", "password", "proxyjump", "agent_dir", "gpus" ("0,1"; "none": an empty list). NULL and "" leave it
 * unset. -EINVAL with "KEY: ..., what would be right". `identityfile` keeps its "~": config_parse expands it.
 */
int host_config_set(struct host_config *h, const char *key, const char *value, struct err *e);
/* What a whole server needs: a hostname; port and nickname get their defaults. Call once, after the last set. */
int host_config_finish(struct host_config *h, struct err *e);
const char *host_auth_name(enum host_auth auth); /* "auto", "key", "password" */
/* The same (hostname ignoring case, port, username). */
bool host_config_same_place(const struct host_config *a, const struct host_config *b);

/* By nickname: exact, then unique ignoring case, then unique part of it. -ENOENT, -EEXIST (several: named in *e). */
int config_find(const struct config *c, const char *name, size_t *ret, struct err *e);

/*
 * Edits under a lock (<home>/config.lock), temporary and rename, mode kept (0600 for a new one). After the splice the
 * result is parsed again and compared with what was meant; where the file's shape doesn't allow it (flow style, an alias,
 * several documents) nothing is written and the sentence says what to write by hand.
 */
/* -EEXIST, and nothing is written: a nickname or a (hostname, port, username) is there already. -EPERM: a password, and others may read the file. */
int config_add(const char *home, const struct host_config *hosts, size_t n, struct err *e);
/* By exact nickname; -ENOENT. */
int config_remove(const char *home, const char *nickname, struct err *e);
/* Replaces or inserts `key: value` below `section`, as the monitor does in view:. value is a plain or quoted scalar. */
int config_set(
	const char *home, const char *section, const char *key, const char *value, struct err *e);
