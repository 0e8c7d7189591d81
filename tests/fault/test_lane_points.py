"""
Every fault_point() that a lane passes, and those of the daemon that hands it out: whoever passes it is killed there and, where
the point can fail, told that the disk is full or broken. Then passes (or the daemon's next life) go on, and the judges look:
nothing twice, nothing lost, and in order.
"""
import signal
import time

import pytest

import lane_judge
import test_points
from bed import wait_for
from lane_judge import Acks, LaneWish
from queue_bed import QueueBed
from test_queue_points import ALL

# Points that no lane comes by: other commands' and other programs'.
NO_LANE = ("config.", "takeover.", "run.", "journal.", "retired.", "store.backup-", "store.restore-", "store.before-upgrade")
LANE, BESIDE = "local:0", "local:1"
POINTS = {name: can_fail for name, can_fail in ALL.items() if not name.startswith(NO_LANE)}
CASES = [(name, action) for name, can_fail in POINTS.items() for action in (["kill", "enospc", "eio"] if can_fail else ["kill"])]
# Later passages: with some of the lane behind, and with a word about it that takes something out.
CASES += [(name, f"kill#{n}") for name in POINTS if name.startswith("agent.") and "lane" in name for n in (2, 3)]
CASES += [("agent.before-lane-stored", f"enospc#{n}") for n in (2, 3)]
CASES += [("store.before-commit", f"{action}#{n}") for n in (3, 5, 6, 7) for action in ("kill", "enospc")]


class LaneBed(QueueBed):
    """Commands that somebody strikes once; with a daemon (`fault` of its own) there are no other passes."""

    def __init__(self, fault, is_daemon):
        super().__init__(settings={"kill_grace": 2})
        self.fault, self.is_daemon, self.daemon = {"GPUSTOW_FAULT": fault}, is_daemon, None
        self.lane_wishes, self.acks = {}, Acks()

    def see_to_daemon(self):
        if self.is_daemon and (self.daemon is None or self.daemon.poll() is not None):
            self.daemon = self.spawn("queue", "daemon", "--interval", "2", env=self.fault)
            wait_for(lambda: (self.home / "queue.sock").exists() or self.daemon.poll() is not None, 20, self.story)

    def tick(self, env=None):
        self.see_to_daemon()
        return super().tick(env)

    def say(self, *words):
        """A command and two passes, struck."""
        self.see_to_daemon()
        text = self.ask(*words, "--json", env=self.fault)[1]
        for _ in range(2):
            self.tick(self.fault)
        return self.document(text) or {}

    def put(self, name, lane, *options, needs=(), **more):
        self.lane_wishes[name] = LaneWish(lane, needs)
        self.see_to_daemon()
        job = self.submit(name, *(["--lane", lane] if lane else []), *options, key=name, env=self.fault, again=3, **more)
        self.lane_wishes[name].accepted_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        return job

    def complaints(self, others=(), rebooted=None):
        return super().complaints(others) + lane_judge.complaints(self.record(), self.rows(), self.lane_wishes, {LANE: 1, BESIDE: 1},
                                                                  self.acks, rebooted)


def scenario(bed):
    def is_known():
        bed.tick(bed.fault)
        return bed.ask("queue", "lane", LANE, "--no-tick")[0] == 0
    wait_for(is_known, 30, bed.story)
    first = bed.put("first", LANE, "--vram", "14G", mib=14336, seconds=0.3, code=3)
    second = bed.put("second", LANE, "--vram", "14G", mib=14336, seconds=0.3)
    ids = [first, second,
           bed.put("third", BESIDE, "--after", str(second), "--vram", "1G", needs=("second",), seconds=0.1),
           bed.put("large", LANE, "--vram", "20G", mib=20480, seconds=30),
           bed.put("fifth", LANE, "--gpus", "0", seconds=0.1, code=5),
           bed.put("pool", None, "--gpus", "0", seconds=0.1),
           bed.put("last", LANE, "--after-any", str(first), "--vram", "1G", seconds=0.1)]
    for _ in range(3):
        bed.tick(bed.fault)
    bed.lane_wishes["fifth"].is_moved = True
    bed.say("queue", "lane", LANE, "move", str(ids[4]), "--to", "head")
    bed.say("queue", "lane", LANE, "pause")
    doc = bed.say("job", "cancel", str(ids[3]))
    if any(r.get("cancelled") for r in doc.get("results", [])):
        bed.acks.cancelled[ids[3]] = time.clock_gettime(time.CLOCK_BOOTTIME)
    bed.say("queue", "lane", LANE, "resume")
    return ids


def end(bed, ids):
    was_passed = (bed.strikes / bed.fault["GPUSTOW_FAULT"].split(":")[0]).exists()
    bed.see_to_daemon()
    for words in (("job", "cancel", str(ids[3])), ("queue", "lane", LANE, "resume")):
        bed.ask(*words, "--json")
    bed.settle_all()
    wrong = bed.complaints()
    wrong += [] if all(ids) else [f"a submit with a key never came in: {ids}"]
    if bed.daemon:
        bed.kill(bed.daemon.pid, signal.SIGTERM)
        bed.finish(bed.daemon)
    return wrong + bed.end() + ([] if was_passed else ["the point was never passed: give it a scenario"])


def one_case(case):
    name, action = case
    bed = LaneBed(f"{name}:{action}", name.startswith("daemon."))
    with bed:
        try:
            ids = scenario(bed)
            if test_points.SHIM.fullmatch(name):
                bed.struck |= {bed.record().mark(key) for key in bed.record().attempts}
            wrong = end(bed, ids)
        except (AssertionError, OSError) as error:
            wrong = [repr(error)]
        return "\n".join([f"{name}:{action}", *wrong[:10], bed.story()]) if wrong else None


def is_short(name, action):
    return ("lane" in name or name.startswith("daemon.")) and action == "kill"


@pytest.mark.parametrize("item", [pytest.param(case, marks=() if is_short(*case) else pytest.mark.long) for case in CASES],
                         ids=[":".join(case) for case in CASES])
def test_struck_with_a_lane(item, ahead):
    complaint = ahead(one_case).result(item)
    if complaint:
        pytest.fail(complaint, pytrace=False)


def test_protocol_11_has_its_point_between_stored_and_acknowledged():
    assert {"agent.before-lane-stored", "agent.after-lane-stored", "queue.before-lane-ack"} <= POINTS.keys()
