/* Which name, which command: everything else is in the tables of cli/. */
#include "cli/command.h"
#include "fleet/askpass.h"

#include <string.h>

/* Under this name it's ssh that started it, to have something asked; that isn't a command. */
static int is_askpass(const char *name)
{
	const char *slash = name ? strrchr(name, '/') : NULL;

	return name && !strcmp(slash ? slash + 1 : name, ASKPASS_NAME);
}

int main(int argc, char **argv)
{
	return is_askpass(argv[0]) ? askpass_main(argc, argv) : command_main(argc, argv);
}
