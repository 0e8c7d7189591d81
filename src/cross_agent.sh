#!/bin/sh
# Builds the agent for another processor: one object a source, linked as src/meson.build links the machine's own.
# usage: cross_agent.sh TOOLS JANSSON SRC_DIR OUT DEPFILE DEFINES -- SOURCE...
# TOOLS: prefix of the compiler ("aarch64-linux-gnu-"). JANSSON: directory with include/ and libjansson.a, or "" for the
# system's own. DEFINES: one argument, blanks between them.
set -eu
tools=$1 jansson=$2 dir=$3 out=$4 depfile=$5 defines=$6
shift 7
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

archive=$(find ${jansson:-/usr/lib/${tools%-}} -name libjansson.a | head -n 1)
[ -n "$archive" ] || { echo "cross_agent.sh: no libjansson.a below ${jansson:-/usr/lib/${tools%-}}" >&2; exit 1; }
set -f
flags="-std=gnu17 -O2 -fPIE -ffunction-sections -fdata-sections -fno-strict-aliasing -fstack-protector-strong -D_GNU_SOURCE
	-D_FILE_OFFSET_BITS=64 -U_FORTIFY_SOURCE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers $defines"
[ -z "$jansson" ] || flags="$flags -I$jansson/include"
set +f
objects=
n=0
printf '%s:' "$out" >"$depfile"
for source in "$@"; do
	n=$((n + 1))
	# shellcheck disable=SC2086 # flags are words
	"${tools}gcc" $flags -I"$dir" -MMD -MF "$tmp/$n.d" -c -o "$tmp/$n.o" "$source"
	sed 's/^[^:]*://; s/\\$//' "$tmp/$n.d" | tr '\n' ' ' >>"$depfile"
	objects="$objects $tmp/$n.o"
done
echo >>"$depfile"
# shellcheck disable=SC2086 # objects are words
"${tools}gcc" -pie -nostartfiles -Wl,--gc-sections -Wl,-z,relro -Wl,-z,now -s -o "$out" $objects "$archive" -lm \
	-Wl,--no-as-needed -l:libdl.so.2 -Wl,--as-needed
