/*
 * Named points at which the fault suite strikes: GPUSTOW_FAULT="shim.before-ended:kill" (or ":stop", ":exit", ":enospc"),
 * optionally "#N" for the N-th passage only, several joined by commas. Compiled in only with -Dfault_points=true (the
 * tests' build); else nothing is left of it.
 */
#pragma once

#ifdef GPUSTOW_FAULT_POINTS
/* Returns 0, or -ENOSPC where the point was told to fail. */
int fault_point(const char *name);
#else
static inline int fault_point(const char *name)
{
	(void)name;
	return 0;
}
#endif
