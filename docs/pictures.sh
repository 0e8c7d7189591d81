#!/usr/bin/env bash
# Makes the pictures of the README from the real program: tmux runs it, aha turns the screen into HTML, Chromium into PNG.
# usage: docs/pictures.sh BUILD_DIR   (packages: tmux aha chromium fonts-dejavu-core)
set -euo pipefail
build=$(readlink -f "${1:-build}")
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
tmux() { command tmux -L "gpustow-pictures-$$" -f /dev/null "$@"; }
strangers=()
trap 'tmux kill-server 2>/dev/null || true; kill "${strangers[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

# shoot NAME COLUMNS ROWS: the pane as it is now.
shoot() {
	tmux capture-pane -e -p -N >"$work/screen"
	aha --black <"$work/screen" >"$work/screen.html"
	chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
		--disable-component-update --disable-sync --user-data-dir="$work/chromium" \
		--window-size=$(($2 * 8 + 60)),$(($3 * 15 + 40)) --screenshot="$here/images/$1.png" "file://$work/screen.html" 2>/dev/null
}

# wait_for TEXT: until the screen shows it.
wait_for() {
	for _ in $(seq 300); do
		if tmux capture-pane -p | grep -q -- "$1"; then return 0; fi
		sleep 0.1
	done
	echo "pictures: the screen never showed: $1" >&2
	return 1
}

cat >"$work/jobs.txt" <<'EOF'
[vram=20G name=baseline] gpustow simjob --vram 19G --for 20s --ramp 1s
[vram=40G gpus=2] gpustow simjob --vram 37G --for 20s --ramp 1s
[vram=14G] gpustow simjob --vram 13G --for 1s
[vram=14G] gpustow simjob --vram 9G --for 20s --ramp 1s
[vram=8G] gpustow simjob --vram 7G --for 20s --peak 9G
[vram=24G after=baseline] gpustow simjob --vram 23G --for 20s
gpustow simjob --vram 30G --for 20s
EOF
tmux new-session -d -x 112 -y 24 -c "$work" -e LC_ALL=C.UTF-8 -e "GPUSTOW_SIM_DIR=$work/sim" \
	-e "GPUSTOW_AGENT_ROOT=$work/agent" -e GPUSTOW_AGENT_IDLE=1 \
	"export PATH='$build':\$PATH; gpustow run --sim 2x80G,2x24G --poll 0.5 jobs.txt; sleep 60"
wait_for 'EXCEEDS' || true
shoot run 112 24

# The monitor on four simulated cards, with processes on three of them: all cards in detail, and by node.
mkdir -p "$work/sim2" "$work/home"
stranger() {
	sleep 600 &
	strangers+=("$!")
	printf '{"pid": %d, "usage": %s}\n' "$!" "$1" >"$work/sim2/foreign$!.json"
}
stranger '{"0": 52000}'
stranger '{"0": 9000, "1": 31000}'
stranger '{"2": 11000}'
tmux kill-server 2>/dev/null || true
sleep 1
tmux new-session -d -x 132 -y 44 -c "$work" -e LC_ALL=C.UTF-8 -e "GPUSTOW_SIM_DIR=$work/sim2" -e "HOME=$work/home" \
	-e "GPUSTOW_AGENT_ROOT=$work/agent2" -e GPUSTOW_AGENT_IDLE=1 "'$build/gpustow' --sim 2x80G,2x24G; sleep 60"
wait_for 'Simulated GPU'
tmux send-keys v
wait_for 'Cards 4 on'
tmux send-keys Enter
wait_for 'Processes 2 on'
tmux send-keys t
sleep 40
shoot monitor 132 44
tmux send-keys q
