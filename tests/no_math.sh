#!/bin/sh
# src/store/no_math.c stands in for libm in gpustow: so no other object of ours may call what it defines.
# usage: no_math.sh ARCHIVE... with NM in the environment, or nm
set -eu
names=' U (acosh?|asinh?|atanh?|atan2|ceil|cosh?|exp|floor|fmod|log|log10|log2|pow|sinh?|sqrt|tanh?|trunc)$'
found=$(${NM:-nm} -A --undefined-only "$@" 2>/dev/null | grep -E "$names" || true)
if [ -n "$found" ]; then
	echo "$found"
	echo "these call functions that src/store/no_math.c has in place of libm's: compute with integers, or leave libm in"
	exit 1
fi
# That it looked: there is something undefined in these.
[ "$(${NM:-nm} --undefined-only "$@" 2>/dev/null | grep -c ' U ')" -gt 100 ]
