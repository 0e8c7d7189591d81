/* gpustow version: which release this is. As gpusched it first says which gpusched it stands in for. */
#include "cli/command.h"

#include "base/cleanup.h"

#include <string.h>

/* The release of gpusched whose behaviour the name promises. */
#define GPUSCHED_VERSION "0.4.0"

static int version_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	(void)opts;
	(void)argc;
	(void)argv;
	if (strcmp(p->name, "gpusched") == 0)
		buf_puts(&out, "gpusched " GPUSCHED_VERSION " (gpustow " GPUSTOW_VERSION ")\n");
	else
		buf_puts(&out, "gpustow " GPUSTOW_VERSION "\n");
	return command_print(&out, e);
}

extern const struct command cmd_version;
const struct command cmd_version = {
	.name = "version",
	.args = "",
	.summary = "show the version",
	.exec = version_exec,
};
