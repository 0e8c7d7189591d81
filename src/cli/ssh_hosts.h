/*
 * The hosts that an OpenSSH client configuration names. Which ones there are comes from its Host lines (Include followed),
 * for ssh can't list them; what each means is asked of ssh itself, which alone knows Match, patterns and precedence.
 */
#pragma once

#include "base/err.h"
#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>

struct ssh_aliases {
	char **names; /* sorted, each once; without *, ? and ! */
	size_t n, cap;
};

/* -ENOENT and a sentence when `path` itself can't be read; an included file that can't be is passed over, as ssh does. */
int ssh_aliases_read(const char *path, struct ssh_aliases *ret, struct err *e);
void ssh_aliases_done(struct ssh_aliases *a);
bool ssh_aliases_have(const struct ssh_aliases *a, const char *name);

/* What ssh takes where the configuration says nothing. */
struct ssh_defaults {
	char *identities; /* one a line */
};
int ssh_defaults_read(struct ssh_defaults *ret, struct err *e);
void ssh_defaults_done(struct ssh_defaults *d);

/*
 * `ssh -G -F path alias`: hostname, port, username, first identity file that isn't a default one, proxyjump; nickname is the
 * alias. Where a ProxyCommand leads to the host, its hostname is the alias, so that ssh goes that way again.
 */
int ssh_resolve(const char *path, const char *alias, const struct ssh_defaults *d,
	struct host_config *ret, struct err *e);
