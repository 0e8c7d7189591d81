/* What the commands about hosts share: the home, config.yml with its warnings said, and a server as JSON and as words. */
#pragma once

#include "cli/command.h"
#include "config/config.h"

#include <jansson.h>

enum { HOSTS_PATH = 4096 };

/* $GPUSTOW_HOME or ~/.gpustow; under the name nvidb $NVIDB_HOME or ~/.nvidb. */
int hosts_home(const struct program *p, char ret[HOSTS_PATH], struct err *e);
/* Reads config.yml of that home. Its warnings go to stderr, so that stdout stays the answer. */
int hosts_load(const struct program *p, const char *home, struct config *ret, struct err *e);

/* "user@host:port", what's unknown left out; fit for a terminal. */
void hosts_put_place(struct buf *b, const struct host_config *h);
/* A server with its keys as in config.yml; the password is only said to be there. */
json_t *hosts_json(const struct host_config *h);
json_t *hosts_json_all(const struct config *c);
/* Takes `o` and prints it. */
int hosts_print_json(json_t *o, struct err *e);
