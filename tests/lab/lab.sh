#!/usr/bin/env bash
# A lab of hosts on one machine, for tests: each has its own network, mounts, processes, host name, boot id, machine id,
# accounts, sshd and fake GPUs. See tests/lab/README.md.
#
#   lab.sh up LAB [HOST...]     makes LAB (a directory) and boots the client `ctl` and the hosts
#   lab.sh boot|crash LAB HOST  power on; power off without warning
#   lab.sh enter LAB HOST CMD...
#   lab.sh wire LAB HOST DELAY_MS JITTER_MS LOSS_PCT CUT(0|1)
#   lab.sh down LAB
#
# FAKE_NVML: the library that hosts with GPUs get. PROGRAM: what `gpustow` is on ctl.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
command=${1:?up|boot|crash|enter|wire|down} lab=${2:?the directory of the lab}
shift 2

all="key pass jump inner fish csh noexec rohome full noisy noagent nogpu"

ns() { echo "$(cat "$lab/prefix")$1"; }
number() {
	local i=0 h
	for h in $all; do
		i=$((i + 1))
		[ "$h" != "$1" ] || { echo $i; return; }
	done
	return 1
}

# wire NS_A DEV_A ADDRESS_A NS_B DEV_B ADDRESS_B CONTROL
lay_wire() {
	echo "0 0 0 0" >"$7"
	setsid "$lab/uwire" "$1" "$2" "$4" "$5" "$7" >"$7.log" 2>&1 &
	echo $! >"$7.pid"
	for _ in $(seq 250); do
		grep -q up "$7.log" && break
		sleep 0.02
	done
	ip -n "$1" addr add "$3/32" peer "$6" dev "$2"
	ip -n "$1" link set "$2" up
	ip -n "$4" addr add "$6/32" peer "$3" dev "$5"
	ip -n "$4" link set "$5" up
}

add_host() {
	local h=$1 n side=ctl
	n=$(number "$h")
	mkdir -p "$lab/$h/m"
	ip netns add "$(ns "$h")"
	ip -n "$(ns "$h")" link set lo up
	ssh-keygen -q -t ed25519 -N '' -f "$lab/$h/hostkey" -C "$h"
	tr -d - </proc/sys/kernel/random/uuid >"$lab/$h/machine-id"
	[ "$h" != inner ] || side=jump
	lay_wire "$(ns $side)" "to$h" "10.99.$n.1" "$(ns "$h")" eth0 "10.99.$n.2" "$lab/$h/wire"
	if [ "$h" != inner ]; then
		echo "10.99.$n.2 $(cut -d' ' -f1,2 "$lab/$h/hostkey.pub")" >>"$lab/known_hosts"
	else
		echo "10.99.$n.2 $(cut -d' ' -f1,2 "$lab/$h/hostkey.pub")" >>"$lab/known_hosts"
		printf 'Host inner\n\tHostName 10.99.%s.2\n\tProxyJump jump\n' "$n" >>"$lab/ssh_config"
		return
	fi
	printf 'Host %s\n\tHostName 10.99.%s.2\n' "$h" "$n" >>"$lab/ssh_config"
}

boot() {
	local h=$1
	rm -f "$lab/$h/ready"
	ip netns exec "$(ns "$h")" unshare --mount --uts --ipc --pid --fork --kill-child \
		/bin/bash "$here/init.sh" "$h" "$lab" </dev/null >"$lab/$h/boot.log" 2>&1 &
	echo $! >"$lab/$h/outer.pid"
	for _ in $(seq 500); do
		[ -s "$lab/$h/ready" ] && break
		sleep 0.02
	done
	[ -s "$lab/$h/ready" ] || { cat "$lab/$h/boot.log" >&2; return 1; }
	cut -d' ' -f1 "/proc/$(cat "$lab/$h/outer.pid")/task/$(cat "$lab/$h/outer.pid")/children" >"$lab/$h/init.pid"
}

# The whole host dies at once with the first process of its namespace.
crash() {
	local pid
	pid=$(cat "$lab/$1/init.pid" 2>/dev/null) || return 0
	kill -9 "$pid" 2>/dev/null || true
	rm -f "$lab/$1/ready" "$lab/$1/init.pid"
}

up() {
	local hosts=${*:-$all} h pid pids=
	mkdir -p "$lab/ctl/m"
	chmod 700 "$lab"
	echo "gs$$" >"$lab/prefix"
	echo "$hosts" >"$lab/hosts"
	[ -x "$lab/uwire" ] || ${CC:-cc} -O1 -D_GNU_SOURCE -o "$lab/uwire" "$here/uwire.c"
	ssh-keygen -q -t ed25519 -N '' -f "$lab/id" -C lab
	: >"$lab/ssh_config"
	: >"$lab/known_hosts"
	ip netns add "$(ns ctl)"
	ip -n "$(ns ctl)" link set lo up
	for h in $hosts; do add_host "$h"; done
	boot ctl
	for h in $hosts; do
		boot "$h" &
		pids="$pids $!"
	done
	# Not all children: wires and hosts stay.
	for pid in $pids; do wait "$pid" || true; done
	for h in $hosts; do [ -s "$lab/$h/init.pid" ] || { echo "lab.sh: $h did not boot" >&2; exit 1; }; done
}

down() {
	local h
	for h in ctl $(cat "$lab/hosts"); do
		crash "$h"
		[ ! -f "$lab/$h/wire.pid" ] || kill "$(cat "$lab/$h/wire.pid")" 2>/dev/null || true
		ip netns del "$(ns "$h")" 2>/dev/null || true
	done
}

case $command in
up) up "$@" ;;
boot) boot "$1" ;;
crash) crash "$1" ;;
enter)
	h=$1
	shift
	exec nsenter -t "$(cat "$lab/$h/init.pid")" -a --wd=/ "$@"
	;;
wire) echo "$2 $3 $4 $5" >"$lab/$1/wire.new" && mv "$lab/$1/wire.new" "$lab/$1/wire" ;;
down) down ;;
*) echo "lab.sh: what is $command?" >&2; exit 2 ;;
esac
