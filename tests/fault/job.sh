#!/bin/sh
# One job: tells the judge that it starts, works, tells that it ends.
# job.sh NAME MIB SECONDS CODE [oom]; MIB 0: holds nothing
judge=$(dirname "$0")/judge
printf 'start %s %s %s\n' "$1" "$GPUSTOW_MARK" "$$" >>"$judge"
if [ "$5" = oom ] && [ ! -e "$judge.$1.oom" ]; then
	: >"$judge.$1.oom"
	echo "CUDA out of memory"
	printf 'end %s %s 1\n' "$1" "$GPUSTOW_MARK" >>"$judge"
	exit 1
fi
if [ "$2" = 0 ]; then
	sleep "$3"
else
	"$GPUSTOW_TEST_PROGRAM" simjob --vram "$2" --ramp 0 --for "$3"
fi
printf 'end %s %s %s\n' "$1" "$GPUSTOW_MARK" "$4" >>"$judge"
exit "$4"
