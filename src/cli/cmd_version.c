/* gpustow version: which release this is. As gpusched it first says which gpusched it stands in for. */
#include "cli/command.h"

#include <string.h>

/* The release of gpusched whose behaviour the name promises. */
#define GPUSCHED_VERSION "0.4.0"

static int version_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	static const char ours[] = "gpustow " GPUSTOW_VERSION "\n",
			  theirs[] =
				  "gpusched " GPUSCHED_VERSION " (gpustow " GPUSTOW_VERSION ")\n";

	(void)opts;
	(void)argc;
	(void)argv;
	return command_print_text(strcmp(p->name, "gpusched") == 0 ? theirs : ours, e);
}

extern const struct command cmd_version;
const struct command cmd_version = {
	.name = "version",
	.args = "",
	.summary = "show the version",
	.exec = version_exec,
};
