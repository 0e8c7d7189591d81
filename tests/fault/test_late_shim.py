"""
A shim that was stopped before it took the lock and wakes up when another has been started in its place, by an agent that
found the lock free: while the other runs the lock is shut, and afterwards the state is.
"""
import signal
import time
from pathlib import Path

import pytest

from bed import Bed, wait_for


def all_stopped(bed):
    found = []
    for pid in bed.ours():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if stat[stat.rindex(")") + 2] == "T":
            found.append(pid)
    return found


def stopped(bed):
    return next(iter(all_stopped(bed)), None)


@pytest.mark.parametrize("moment", ["while-the-other-runs", "after-the-end"])
def test_a_shim_that_comes_late_finds_the_door_shut(moment):
    with Bed() as bed:
        bed.add("late", "gpus=0", 0, 0.6, 3)
        bed.write_lines()
        bed.start(GPUSTOW_FAULT="shim.before-lock:stop")
        late = wait_for(lambda: stopped(bed), 20, "no shim stops")
        bed.kill(wait_for(bed.agent, 10, "no agent"))
        wait_for(lambda: bed.count("start"), 20, lambda: "the second shim starts nothing\n" + bed.story())
        # Nobody acknowledges the end, so the claim stays where it is.
        bed.run.kill()
        bed.run.wait()
        if moment == "after-the-end":
            wait_for(lambda: bed.count("end") and not bed.shims(), 20, "the job or its shim doesn't end")
        bed.kill(late, signal.SIGCONT)
        wait_for(lambda: late not in bed.ours(), 10, "the late shim stays")
        time.sleep(0.2)
        bed.run = None
        bed.restart_until_done(20)
        wrong = bed.complaints() + bed.end_well()
        assert not wrong, "\n".join(wrong) + bed.story()
        assert bed.count("start") == 1


def test_a_shim_that_comes_late_does_not_start_its_job_in_a_claim_that_serves_another_one():
    with Bed() as bed:
        bed.add("late", "gpus=0", 0, 0.1, 3)
        bed.write_lines()
        bed.start("--watch", GPUSTOW_FAULT="shim.before-lock:stop")
        late = wait_for(lambda: stopped(bed), 20, "no shim stops")
        bed.kill(wait_for(bed.agent, 10, "no agent"))
        wait_for(lambda: bed.count("end"), 20, lambda: "the second shim starts nothing\n" + bed.story())
        # Acknowledged and retired, the directory that the late one has open becomes the next job's claim.
        wait_for(lambda: not list((bed.root / "claims").glob("*/*/state")), 10, "it has not been retired")
        (bed.strikes / "shim.before-lock").unlink()
        bed.add("next", "gpus=0", 0, 0.1, 0)
        bed.write_lines()
        other = wait_for(lambda: [pid for pid in all_stopped(bed) if pid != late], 20, "no other shim stops")
        bed.kill(late, signal.SIGCONT)
        wait_for(lambda: late not in bed.ours(), 10, "the late shim stays")
        time.sleep(0.2)
        for pid in other:
            bed.kill(pid, signal.SIGCONT)
        wait_for(bed.is_done, 20, lambda: "the next job doesn't end\n" + bed.story())
        bed.run.terminate()
        bed.run.wait(20)
        wrong = bed.complaints() + bed.end_well()
        assert not wrong, "\n".join(wrong) + bed.story()
        assert bed.count("start") == 2
