#!/usr/bin/env bash
# Makes the pictures of the README from the real program: tmux runs it, aha turns the screen into HTML, Chromium into PNG.
# usage: docs/pictures.sh BUILD_DIR [run|monitor|queue]...   (packages: tmux aha chromium fonts-dejavu-core)
set -euo pipefail
build=$(readlink -f "${1:-build}")
shift || true
[ $# -gt 0 ] || set -- run monitor queue
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d)
tmux() { command tmux -L "gpustow-pictures-$$" -f /dev/null "$@"; }
strangers=()
jobs=()
trap 'end' EXIT
end() {
	tmux send-keys q 2>/dev/null || true
	sleep 1
	tmux kill-server 2>/dev/null || true
	kill "${strangers[@]}" 2>/dev/null || true
	if [ ${#jobs[@]} -gt 0 ]; then
		queue job cancel "${jobs[@]}" >/dev/null 2>&1 || true
		queue job wait "${jobs[@]}" --timeout 20 >/dev/null 2>&1 || true
		# The agent goes when nothing is left for it.
		sleep 3
	fi
	rm -rf "$work"
}

# shoot NAME COLUMNS ROWS: the pane as it is now.
shoot() {
	tmux capture-pane -e -p -N >"$work/screen"
	# Braille comes from another font, with cells of its own width.
	aha --black <"$work/screen" |
		perl -CSD -pe 's{([\x{2800}-\x{28ff}])}{<i style="display:inline-block;width:1ch;font-style:normal">$1</i>}g' >"$work/screen.html"
	chromium --headless --hide-scrollbars --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
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

# stranger DIR USAGE: a process that isn't gpustow's, with memory on simulated cards.
stranger() {
	sleep 600 &
	strangers+=("$!")
	printf '{"pid": %d, "usage": %s}\n' "$!" "$2" >"$1/foreign$!.json"
}

# queue COMMAND...: the program with a home and simulated cards of its own.
queue() {
	env HOME="$work/home3" GPUSTOW_SIM=2x80G,2x24G GPUSTOW_SIM_DIR="$work/sim3" GPUSTOW_AGENT_ROOT="$work/agent3" \
		GPUSTOW_AGENT_IDLE=1 GPUSTOW_SUBMITTER=alice "$build/gpustow" "$@"
}

# A run of seven jobs on four simulated cards.
run() {
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
}

# The monitor on four simulated cards, with processes on three of them: all cards in detail, and by node.
monitor() {
	mkdir -p "$work/sim2" "$work/home"
	stranger "$work/sim2" '{"0": 52000}'
	stranger "$work/sim2" '{"0": 9000, "1": 31000}'
	stranger "$work/sim2" '{"2": 11000}'
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
}

# The queue: jobs that run, wait for a card, for each other, and in a lane; one's details.
queue_screen() {
	mkdir -p "$work/sim3" "$work/home3/.gpustow" "$work/bin"
	# What jobs of people look like; each holds memory on its simulated card.
	cat >"$work/bin/train" <<'EOF'
#!/bin/sh
for epoch in 1 2 3; do echo "epoch $epoch/40  loss 0.$((9 - epoch))41  12.4 samples/s"; done
exec gpustow simjob --vram "$VRAM" --for 600s --ramp 1s
EOF
	chmod +x "$work/bin/train"
	printf 'queue:\n  job_root: %s/jobs\n' "$work" >"$work/home3/.gpustow/config.yml"
	stranger "$work/sim3" '{"3": 9000}'
	# submit NAME VRAM OPTION...: prints its number.
	submit() {
		queue job submit --name "$1" --vram "$2" --env "VRAM=$2" --env "PATH=$work/bin:$build:$PATH" \
			--env "GPUSTOW_SIM_DIR=$work/sim3" --json "${@:3}" "train --config configs/$1.yaml --seed 7" |
			sed -n 's/^ *"id": \([0-9]*\),*$/\1/p' | head -1
	}
	jobs+=("$(submit llama-sft 52G --min-total 60G)")
	jobs+=("$(submit baseline 18G)")
	jobs+=("$(submit vit-large 30G)")
	queue queue tick >/dev/null
	sleep 3
	queue queue tick >/dev/null
	jobs+=("$(submit eval-sft 8G --after "${jobs[0]}")")
	jobs+=("$(submit ablation-a 60G --priority 5)")
	jobs+=("$(submit ablation-b 60G --priority 4)")
	jobs+=("$(submit big-batch 70G --lane local:0)")
	jobs+=("$(submit long-eval 40G --lane local:0)")
	jobs+=("$(submit report 2G --after-any "${jobs[2]}")")
	tmux new-session -d -x 132 -y 40 -c "$work" -e LC_ALL=C.UTF-8 -e "HOME=$work/home3" -e GPUSTOW_SIM=2x80G,2x24G \
		-e "GPUSTOW_SIM_DIR=$work/sim3" -e "GPUSTOW_AGENT_ROOT=$work/agent3" "'$build/gpustow' queue; sleep 60"
	wait_for 'llama-sft'
	sleep 5
	for key in j j j j Enter; do tmux send-keys $key; done
	wait_for 'why '
	sleep 2
	shoot queue 132 40
	tmux send-keys q
}

for picture in "$@"; do
	tmux kill-server 2>/dev/null || true
	sleep 1
	case $picture in
	run) run ;;
	monitor) monitor ;;
	queue) queue_screen ;;
	*) echo "pictures: there is no '$picture'" >&2; exit 2 ;;
	esac
done
