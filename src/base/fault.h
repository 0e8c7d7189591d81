/*
 * Named points at which the fault suite strikes: GPUSTOW_FAULT="shim.before-ended:kill" (or ":stop", ":exit", ":enospc"),
 * optionally "#N" for the N-th passage of a process only, several joined by commas. With GPUSTOW_TEST_FAULT_DIR each entry
 * strikes once among all processes that share it: who makes the file of the point's name there strikes, and the file
 * stays as the proof. Compiled in only with -Dfault_points=true (the tests' build); else nothing is left of it.
 *
 * A point is named "<who>.<where>"; tests/fault/ finds them in the sources and wants a test for each.
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
