#!/bin/sh
# The carried agent for aarch64: the same version needs as the machine's own, and it runs (under qemu-user).
# usage: elf_aarch64.sh AGENT. Exit 77 (skipped) without the tools.
set -eu
agent=$1
objdump=aarch64-linux-gnu-objdump
for tool in $objdump qemu-aarch64; do
	command -v $tool >/dev/null || { echo "skipped: no $tool"; exit 77; }
done
bad=0
versions=$($objdump -T "$agent" | grep -o 'GLIBC_[0-9.]*' | sort -u -V)
[ -n "$versions" ] || { echo "no version of glibc is named: is this the agent?"; exit 1; }
newest=$(printf '%s\nGLIBC_2.17\n' "$versions" | sort -V | tail -n 1)
[ "$newest" = GLIBC_2.17 ] || { echo "needs $newest"; $objdump -T "$agent" | grep "$newest"; bad=1; }
id=$(qemu-aarch64 -L /usr/aarch64-linux-gnu "$agent" id)
sum=$(sha256sum "$agent" | cut -d ' ' -f 1)
# Under qemu /proc/self/exe may be qemu itself: then it can only be seen to run.
[ "$id" = "$sum" ] || [ "$id" = "$(sha256sum "$(command -v qemu-aarch64)" | cut -d ' ' -f 1)" ] ||
	{ echo "says it's $id, is $sum"; bad=1; }
version=$(qemu-aarch64 -L /usr/aarch64-linux-gnu "$agent" version)
[ -n "$version" ] || { echo "names no version"; bad=1; }
echo "versions: $(echo $versions); $(wc -c <"$agent") bytes; version $version; id $id"
exit $bad
