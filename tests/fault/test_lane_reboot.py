"""The machine goes down under a lane: what ran is over, what had ended stays so, what waited goes on in its order."""
import signal

from bed import wait_for
from test_lane_points import LANE, LaneBed

BOOT_ID = "11111111-2222-3333-4444-555555555555"


def reboot(bed):
    running = bed.record().mark((2, 1))
    bed.kill_everything()
    bed.struck.add(running)
    bed.env["GPUSTOW_TEST_BOOT_ID"] = BOOT_ID
    return {running: True}


def starts(bed):
    return [row[1] for row in bed.judged() if row[0] == "start"]


def lane(bed, retries):
    """One that has ended, one that runs, two that wait: all handed out, and nobody there."""
    bed.tick()
    bed.put("first", LANE, "--gpus", "0", seconds=0.1, code=3)
    bed.put("second", LANE, "--gpus", "0", seconds=30 if not retries else 2, retries=retries)
    for name in ("third", "fourth"):
        bed.put(name, LANE, "--gpus", "0", seconds=0.1)
    bed.tick()
    wait_for(lambda: starts(bed) == ["first", "second"], 20, bed.story)


def after_all(bed, rebooted):
    bed.settle_all()
    wrong = bed.complaints(rebooted=rebooted) + bed.end()
    assert not wrong, "\n".join([*wrong, bed.story()])


def test_lane_goes_on_in_its_order_and_what_ran_is_tried_again_at_its_end():
    with LaneBed("none:kill", False) as bed:
        lane(bed, retries=1)
        after_all(bed, reboot(bed))
        assert starts(bed) == ["first", "second", "third", "fourth", "second"], bed.story()
        assert bed.record().attempts[2, 1]["cause"] == "node-rebooted"


def test_what_may_not_be_tried_again_is_lost_and_what_had_ended_keeps_its_end():
    with LaneBed("none:kill", False) as bed:
        lane(bed, retries=0)
        after_all(bed, reboot(bed))
        assert starts(bed) == ["first", "second", "third", "fourth"], bed.story()
        jobs = bed.record().jobs
        assert [(jobs[i]["state"], jobs[i]["exit_code"]) for i in (1, 2)] == [("failed", 3), ("lost", None)], bed.story()


def test_what_was_claimed_and_had_not_begun_never_begins():
    """Its start isn't durable, so nobody knows: the attempt is over, and the next one stands at the end."""
    with LaneBed("shim.before-lock:stop", False) as bed:
        bed.tick()
        ids = [bed.put("first", LANE, "--gpus", "0", seconds=0.1, retries=1), bed.put("second", LANE, "--gpus", "0", seconds=0.1)]
        bed.kill(bed.agent(), signal.SIGTERM)
        wait_for(lambda: not bed.agent(), 20, bed.story)
        bed.tick(bed.fault)
        wait_for(lambda: (bed.strikes / "shim.before-lock").exists(), 20, bed.story)
        bed.kill_everything()
        bed.struck.add(bed.record().mark((ids[0], 1)))
        bed.env["GPUSTOW_TEST_BOOT_ID"] = BOOT_ID
        after_all(bed, dict.fromkeys(bed.struck, True))
        assert starts(bed) == ["second", "first"], bed.story()
