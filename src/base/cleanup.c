/* Destructors for the cleanup attribute. */
#include "base/cleanup.h"

#include <errno.h>

void cleanup_close_p(int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

void cleanup_fclose_p(FILE **f)
{
	if (*f)
		fclose(*f);
}

void cleanup_closedir_p(DIR **d)
{
	if (*d)
		closedir(*d);
}
