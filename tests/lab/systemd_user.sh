#!/bin/sh
# The user's systemd of root in namespaces of its own, where systemd isn't the machine's init:
#   unshare --mount --pid --fork --mount-proc --kill-child sh systemd_user.sh DIRECTORY
# It says "ready" in DIRECTORY/systemd.ready; whoever enters the namespaces (nsenter) then has systemctl --user.
set -eu
dir=$1
cgroup=/sys/fs/cgroup/systemd/gpustow-test-$2
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/user/0 /run/systemd/system
mkdir -p "$cgroup"
echo $$ > "$cgroup/cgroup.procs"
export XDG_RUNTIME_DIR=/run/user/0 DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus
dbus-daemon --session --address=unix:path=/run/user/0/bus --nofork --nopidfile > /dev/null 2>&1 &
while ! [ -S /run/user/0/bus ]; do sleep 0.05; done
/lib/systemd/systemd --user --log-level=info --log-target=console > "$dir/systemd.log" 2>&1 &
while ! systemctl --user show-environment > /dev/null 2>&1; do
	kill -0 $! || exit 1
	sleep 0.1
done
echo ready > "$dir/systemd.ready"
wait
