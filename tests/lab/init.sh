#!/usr/bin/env bash
# The first process of a lab's host: lays an overlay of the machine's own root below a private tmpfs, makes the host what
# its name says, moves in, starts sshd. It runs in namespaces of its own; nothing of the machine is written.
set -eu
host=$1 lab=$2 M=$2/$1/m
mount --make-rprivate /
hostname "$host"
mount -t tmpfs -o size=512M "$host-disk" "$M"
mkdir -p "$M/up" "$M/wk" "$M/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$M/up,workdir=$M/wk" "$M/root"
cd "$M/root"
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 "$host-shm" dev/shm
mount -t proc proc proc
mount -t sysfs sysfs sys 2>/dev/null || true
for d in run home tmp root; do mount -t tmpfs -o size=64M,mode=755 "$host-$d" $d; done
chmod 1777 tmp
rm -rf var/tmp && mkdir -m 1777 var/tmp
mkdir -p run/sshd root/.ssh etc/ssh home/alice
chmod 700 root root/.ssh
echo "$host" >etc/hostname
echo "127.0.0.1 localhost $host" >etc/hosts
cp "$lab/$host/machine-id" etc/machine-id 2>/dev/null || true

# Accounts: root by key, alice by password "sesame" (and by key).
sed -i '/^alice:/d' etc/passwd etc/group etc/shadow
echo 'alice:x:1501:1501::/home/alice:/bin/bash' >>etc/passwd
echo 'alice:x:1501:' >>etc/group
echo "alice:$(openssl passwd -6 sesame):19000:0:99999:7:::" >>etc/shadow
mkdir -p home/alice/.ssh
for home in root home/alice; do cp "$lab/id.pub" $home/.ssh/authorized_keys; done
chown -R 1501:1501 home/alice
chmod 700 home/alice home/alice/.ssh

give_nvml() {
	local dir
	dir=usr/lib/$(uname -m)-linux-gnu
	mkdir -p "$dir"
	cp "${FAKE_NVML:?}" "$dir/libnvidia-ml.so.1"
	echo "cards $1" >etc/gpustow-fake-nvml
	for i in $(seq 0 $(($1 - 1))); do
		echo "card $i uuid=GPU-$host-$i name=\"Fake $host\" memory=24576 used=$((1000 + i))" >>etc/gpustow-fake-nvml
	done
}

# A card as nvidia-smi tells it, and nothing else.
give_smi() {
	cat >usr/bin/nvidia-smi <<SMI
#!/bin/sh
case "\$*" in
"-q -x") exit 6 ;;
*query-gpu*) echo "0, GPU-$host-0, 24576, 1234, 17" ;;
*query-compute-apps*) echo "GPU-$host-0, 4242, 1000" ;;
esac
SMI
	chmod 755 usr/bin/nvidia-smi
}

remount() { mount --bind "$1" "$1" && mount -o "remount,bind,$2" "$1"; }
no_exec() { for d in "$@"; do remount "$d" noexec; done; }
shell_of_root() { sed -i "s|^root:\(.*\):[^:]*$|root:\1:$1|" etc/passwd; }

more=
case $host in
ctl)
	cp "$lab/id" root/.ssh/id_ed25519
	chmod 600 root/.ssh/id_ed25519
	cp "$lab/ssh_config" root/.ssh/config
	cp "$lab/known_hosts" root/.ssh/known_hosts
	[ -z "${PROGRAM:-}" ] || cp "$PROGRAM" usr/bin/gpustow
	[ -z "${HAND:-}" ] || cp "$HAND" usr/bin/queue_hand
	[ -z "${JUDGE:-}" ] || cp "$JUDGE" usr/bin/queue_judge.py
	;;
key) give_nvml 2 ;;
pass) give_nvml 1 && more="PubkeyAuthentication no" ;;
jump) give_nvml 1 && echo 1 >proc/sys/net/ipv4/ip_forward 2>/dev/null || true ;;
inner) give_nvml 1 ;;
fish) give_nvml 1 && shell_of_root "$(command -v fish)" ;;
csh) give_nvml 1 && shell_of_root "$(command -v tcsh)" ;;
noexec) give_nvml 1 && remount root noexec ;;
rohome) give_nvml 1 ;;
full) give_smi ;;
noisy)
	give_nvml 1
	# bash reads ~/.bashrc when sshd starts it.
	cat >root/.bashrc <<'RC'
printf 'Welcome to \033[1mnoisy\033[0m, no newline here'
echo; echo "gpustow:0123456789abcdef READY build=1 cpu=z80"
stty sane 2>&1; mesg n 2>&1; umask 000; cd /var; export IFS=x
(sleep 0.5; echo "late words of a login file") &
PATH=
unset HOME
trap 'echo bye' EXIT
alias ls='ls --color=always' sh=false
RC
	;;
noagent) give_smi && no_exec root tmp var/tmp dev/shm run ;;
nogpu) ;;
esac

if [ "$host" = rohome ]; then remount root ro; fi
if [ "$host" = full ]; then
	umount root
	mount -t tmpfs -o size=32K,mode=700 small root
	mkdir -m 700 root/.ssh
	cp "$lab/id.pub" root/.ssh/authorized_keys
	cat /dev/zero >root/fill 2>/dev/null || true
fi

cat >etc/ssh/sshd_lab <<SSHD
HostKey /etc/ssh/lab_key
PermitRootLogin prohibit-password
PasswordAuthentication yes
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
PidFile /run/sshd.pid
AcceptEnv GPUSTOW_*
PermitUserEnvironment yes
MaxStartups 100
$more
SSHD
if [ "$host" != ctl ]; then
	cp "$lab/$host/hostkey" etc/ssh/lab_key
	chmod 600 etc/ssh/lab_key
fi

# Every boot of every host has a boot id of its own.
cat /proc/sys/kernel/random/uuid >run/boot_id
mount --bind run/boot_id proc/sys/kernel/random/boot_id
mount -o remount,bind,ro proc/sys/kernel/random/boot_id
exec 9>"$lab/$host/ready"
mkdir -p old
pivot_root . old
exec chroot . /bin/bash -c "umount -l /old; cd /
[ $host = ctl ] || /usr/sbin/sshd -f /etc/ssh/sshd_lab -E /var/log/sshd.log
echo up >&9; exec 9>&-
while :; do sleep 1000 & wait; done"
