#!/bin/sh
# The agent's ELF runs on every glibc since 2.17: reads its version needs and its needed libraries.
# usage: elf.sh SOURCE_ROOT [AGENT]. Without an agent a plain one is built in a temporary directory, since the tests'
# own build is sanitised. Exit 77 (skipped) when it can't be built here.
set -eu
source=$1
agent=${2:-}
tmp=
trap '[ -z "$tmp" ] || rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

for tool in objdump readelf; do
	command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
case $(uname -m) in x86_64 | aarch64) ;; *) echo "skipped: $(uname -m)"; exit 77 ;; esac
if [ -z "$agent" ]; then
	tmp=$(mktemp -d)
	# The caller's sanitiser flags aren't for this build.
	unset CFLAGS LDFLAGS
	meson setup --buildtype=release -Dtests=false "$tmp/build" "$source" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
	ninja -C "$tmp/build" src/gpustow-agent >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
	agent=$tmp/build/src/gpustow-agent
fi

bad=0
if objdump -T "$agent" | grep -q __asan_; then
	echo "skipped: the agent given is sanitised"
	exit 77
fi
versions=$(objdump -T "$agent" | grep -o 'GLIBC_[0-9.]*' | sort -u -V)
[ -n "$versions" ] || { echo "no version of glibc is named: is this the agent?"; exit 1; }
for v in $versions; do
	newest=$(printf '%s\nGLIBC_2.17\n' "$v" | sort -V | tail -n 1)
	if [ "$newest" != GLIBC_2.17 ]; then
		echo "needs $v:"
		objdump -T "$agent" | grep "$v"
		bad=1
	fi
done
if objdump -T "$agent" | grep -E 'GLIBC_(PRIVATE|ABI)'; then bad=1; fi
for lib in $(readelf -d "$agent" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
	case $lib in
	libc.so.6 | libdl.so.2 | ld-linux*) ;;
	*)
		echo "needs $lib"
		bad=1
		;;
	esac
done
# Before 2.34 dlopen is in a library of its own, which must then be named.
if ! readelf -d "$agent" | grep -q 'NEEDED.*libdl.so.2'; then
	echo "doesn't need libdl.so.2, so dlopen isn't found on an older glibc"
	bad=1
fi
# It must also start, with what glibc is here.
id=$("$agent" id)
sum=$(sha256sum "$agent" | cut -d ' ' -f 1)
[ "$id" = "$sum" ] || { echo "says it's $id, is $sum"; bad=1; }
echo "versions: $(echo $versions); needed: $(readelf -d "$agent" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')"
exit $bad
