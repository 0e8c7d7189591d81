/* Which name, which command: everything else is in the tables of cli/. */
#include "cli/command.h"

int main(int argc, char **argv)
{
	return command_main(argc, argv);
}
