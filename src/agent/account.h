/* The account the agent runs under, as passwd has it: $HOME may differ from one login to the next. */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* "": passwd doesn't say, or it's of no use (not an absolute path, too long). */
struct account {
	bool is_known; /* for who keeps one: passwd was asked */
	char home[2048];
	char user[256];
	char shell[1024];
};

/* With fault points compiled in, GPUSTOW_TEST_HOME is believed instead of the home. */
void account_read(struct account *ret);
/*
 * A path of the account's: "" and "~" are its home, "~/x" and "x" are below it, "/x" is itself. The caller frees *ret.
 * -ENOENT with a sentence when there's no home to begin at.
 */
int account_path(const struct account *a, const char *path, char **ret, struct err *e);
/* Appends "HOME=..." and the like, what a login would have set: USER, LOGNAME, SHELL, PATH, LANG. */
void account_put_vars(const struct account *a, json_t *env);
