"""
Every fault_point() of the sources: the process that passes it is killed there (and, where the point can fail, told that
the disk is full), everything is started again, and the judge looks. A point that no scenario here passes is a failure.
"""
import re

import pytest

from bed import SOURCE, Bed, MemoryWatch, wait_for
from wire import Client

# Points at which a shim may die: its job then counts as vanished, or was never let go.
SHIM = re.compile(r"shim\..*|claim\.write-record")
# Told to fail here, a launch fails for good and says so.
FAILS = {"shim.before-started", "claim.write-record"}


def points():
    found = {}
    for path in sorted((SOURCE / "src").glob("**/*.c")):
        if path.name == "fault.c":
            continue
        for line in path.read_text().splitlines():
            for name in re.findall(r'fault_point\("([^"]+)"\)', line):
                if name.startswith(("config.", "store.", "takeover.", "jobdir.", "queue.")) or "-lane-" in name:  # no run passes them; see base/fault.h for who strikes
                    continue
                found[name] = found.get(name, False) or not line.strip().startswith("fault_point(")
    return found


POINTS = points()
CASES = [(name, action) for name, can_fail in POINTS.items() for action in (["kill", "enospc"] if can_fail else ["kill"])]
# The second passage too: with one job behind and one in flight. (Shims pass once; retiring waits and takes all together.)
CASES += [(name, "kill#2") for name in POINTS if not name.startswith("shim.") and "retire" not in name]


def scenario(bed, name):
    bed.add("first", "vram=14G", 14336, 0.2, 3)
    bed.add("second", "vram=14G", 14336, 0.3, 0)
    bed.add("third", "vram=14G", 14336, 0.1, 0)
    bed.add("fourth", "gpus=0", 0, 0.1, 5)
    bed.write_lines()


def fill_retired(bed):
    """A root in which so many lines are old that the next agent leaves them out."""
    end = '{"how":"exit","reason":"none","code":0,"ended_wall_ms":1000,"text":""}'
    bed.start("--check").wait()
    bed.kill(wait_for(bed.agent, 10, "no agent has started"))
    with open(bed.root / "retired", "w") as file:
        for job in range(1, 25001):
            file.write(f"{'ab' * 16}/{job}.1 {'cd' * 16} {end}\n")
    bed.run = None


def yield_while_it_runs(bed):
    wait_for(bed.judged, 20, "no job has started")
    with Client(bed.root) as client:
        client.hello("handover")
        client.send(op="yield", build=1000000)
        client.until("bye")


def one_case(case):
    name, action = case
    with Bed() as bed:
        scenario(bed, name)
        if name.startswith("retired."):
            fill_retired(bed)
        watch = MemoryWatch(bed.sim)
        watch.start()
        fault = f"{name}:{action}"
        try:
            bed.start(GPUSTOW_FAULT=fault)
            if "yield" in name:
                yield_while_it_runs(bed)
            bed.restart_until_done(30, GPUSTOW_FAULT=fault)
            is_shim = bool(SHIM.fullmatch(name)) and (action.startswith("kill") or name in FAILS)
            wrong = bed.complaints(may_vanish=is_shim)
            if not is_shim:
                wrong += [f"{line.name} should have run: {bed.status().get(line.key)}" for line in bed.lines
                          if bed.status().get(line.key) != ("failed" if line.code else "ok")]
            wrong += bed.end_well(GPUSTOW_FAULT=fault)
            if not (bed.strikes / name).exists():
                wrong.append("the point was never passed: give it a scenario")
        except (AssertionError, OSError) as error:
            wrong = [str(error)]
        wrong += watch.stop()
        return "\n".join([f"{fault}:", *wrong[:10], bed.story()]) if wrong else None


@pytest.mark.parametrize("item", CASES, ids=lambda case: ":".join(case))
def test_struck_at_a_named_point(item, ahead):
    complaint = ahead(one_case).result(item)
    if complaint:
        pytest.fail(complaint, pytrace=False)


@pytest.mark.parametrize("words", [
    ("run.before-bind", "run.after-bind", "after bind"), ("claim.between-sync-and-rename", "between sync and rename"),
    ("agent.after-claim-before-fork", "between rename and fork"), ("shim.before-lock", "before the lock"),
    ("shim.between-started-and-exec", "between started and exec"), ("shim.before-ended", "between end and ended"),
    ("shim.after-ended-before-ring", "between ended and its report"), ("run.before-settle", "run.after-settle", "settle"),
    ("run.after-settle", "before ack"), ("claim.before-retire", "claim.after-retired-line", "around retiring")],
    ids=lambda words: words[-1].replace(" ", "-"))
def test_protocol_11_has_its_points(words):
    assert [name for name in words[:-1] if name not in POINTS] == []
