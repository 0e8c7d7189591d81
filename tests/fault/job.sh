#!/bin/sh
# One job: tells the judge that it starts, works, tells that it ends; each with the seconds since the machine's boot.
# job.sh NAME MIB SECONDS CODE [oom]; MIB 0: holds nothing. With a file judge.NAME.hold it works for as long as that's there.
judge=$(dirname "$0")/judge
read -r up _ </proc/uptime
printf 'start %s %s %s %s\n' "$1" "$GPUSTOW_MARK" "$$" "$up" >>"$judge"
if [ "$5" = oom ] && [ ! -e "$judge.$1.oom" ]; then
	: >"$judge.$1.oom"
	echo "CUDA out of memory"
	read -r up _ </proc/uptime
	printf 'end %s %s 1 %s\n' "$1" "$GPUSTOW_MARK" "$up" >>"$judge"
	exit 1
fi
if [ -e "$judge.$1.hold" ]; then
	"$GPUSTOW_TEST_PROGRAM" simjob --vram "$2" --ramp 0 --for 3600 &
	while [ -e "$judge.$1.hold" ]; do sleep 0.1; done
	kill $!
	wait $!
elif [ "$2" = 0 ]; then
	sleep "$3"
else
	"$GPUSTOW_TEST_PROGRAM" simjob --vram "$2" --ramp 0 --for "$3"
fi
read -r up _ </proc/uptime
printf 'end %s %s %s %s\n' "$1" "$GPUSTOW_MARK" "$4" "$up" >>"$judge"
exit "$4"
