/*
 * The mathematics that SQLite offers to SQL (sin(), log(), ...), which no statement of ours calls: with these in their place
 * nothing needs libm, and a library less is mapped, relocated and unmapped by every short command (a tenth of what it costs
 * to start). Compiled in only where SQLite is linked statically. To SQL all of them are NULL. No code of ours may call
 * these either: tests/no_math.sh.
 */
#include <math.h>

/* The compiler knows these by name and would compute, or call, what it thinks they are. */
#define NONE(name) \
	double name(double x); \
	double name(double x) \
	{ \
		(void)x; \
		return NAN; \
	}
#define NONE2(name) \
	double name(double x, double y); \
	double name(double x, double y) \
	{ \
		(void)x; \
		(void)y; \
		return NAN; \
	}

NONE(acos)
NONE(acosh)
NONE(asin)
NONE(asinh)
NONE(atan)
NONE2(atan2)
NONE(atanh)
NONE(ceil)
NONE(cos)
NONE(cosh)
NONE(exp)
NONE(floor)
NONE2(fmod)
NONE(log)
NONE(log10)
NONE(log2)
NONE2(pow)
NONE(sin)
NONE(sinh)
NONE(sqrt)
NONE(tan)
NONE(tanh)
NONE(trunc)
