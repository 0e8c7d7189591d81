"""
Every fault_point() that a queue passes: whoever passes it (a submit, a pass, a cancel, the agent, a shim) is killed there and,
where the point can fail, told that the disk is full or broken. Then passes go on, and the judge looks. A point that no
scenario here strikes is a failure, and so is a point of the sources that isn't asked for.
"""
import re

import pytest

import test_points
from bed import SOURCE, wait_for
from queue_bed import QueueBed, wait_seconds

SHIM = test_points.SHIM
# Points that no submit, pass or cancel comes by, and who strikes them.
ELSEWHERE = {"config.": "e2e/test_config.py", "takeover.": "unit/test_store_nvidb.c", "run.": "test_points.py",
             "daemon.": "test_lane_points.py", "journal.": "test_points.py", "retired.": "test_points.py",
             "store.backup-": "e2e/test_backup.py", "store.restore-": "e2e/test_backup.py",
             **{f"{who}-lane-": "test_lane_points.py" for who in ("queue.before", "queue.after", "agent.before", "agent.after")}}


def points():
    found = {}
    for path in sorted((SOURCE / "src").glob("**/*.c")):
        if path.name == "fault.c":
            continue
        for line in path.read_text().splitlines():
            for name in re.findall(r'fault_point\("([^"]+)"\)', line):
                found[name] = found.get(name, False) or not line.strip().startswith("fault_point(")
    return found


ALL = points()
POINTS = {name: can_fail for name, can_fail in ALL.items() if not name.startswith(tuple(ELSEWHERE))}
CASES = [(name, action) for name, can_fail in POINTS.items() for action in (["kill", "enospc", "eio"] if can_fail else ["kill"])]
# Later passages too: with some of it done and some in flight. A submit has two commits (a new database, its job), a pass six or more.
CASES += [("store.before-commit", f"{action}#{n}") for n in (2, 3, 4, 5, 6) for action in ("kill", "enospc")]
CASES += [("store.after-commit", f"kill#{n}") for n in (2, 3, 4, 5, 6)]
CASES += [(name, "kill#2") for name in POINTS if name.startswith(("jobdir.", "claim.", "agent."))
          and name not in ("jobdir.before-run-sh", "jobdir.before-read")]  # a child of its own passes that, so each passage is its process's first


def one_case(case):
    name, action = case
    with QueueBed(settings={"kill_grace": 2}) as bed:
        fault = {"GPUSTOW_FAULT": f"{name}:{action}"}
        try:
            ids = [bed.submit("first", "--vram", "14G", mib=14336, seconds=0.2, code=3, key="one", env=fault, again=3),
                   bed.submit("second", "--vram", "14G", mib=14336, seconds=0.3, key="two", env=fault, again=3),
                   bed.submit("third", "--gpus", "0", seconds=0.1, code=5, key="three", tick=True, env=fault, again=3)]
            for _ in range(3):
                bed.tick(fault)
            ids.append(bed.submit("fourth", "--vram", "20G", mib=20480, seconds=30, key="four", env=fault, again=3))
            bed.tick(fault)
            bed.ask("job", "cancel", str(ids[-1]), env=fault)
            for _ in range(3):
                bed.tick(fault)
            was_passed = (bed.strikes / name).exists()
            bed.ask("job", "cancel", str(ids[-1]))
            if SHIM.fullmatch(name):
                bed.struck |= {bed.record().mark(key) for key in bed.record().attempts}
            bed.settle_all()
            wrong = bed.complaints()
            wrong += [] if all(ids) else [f"a submit with a key never came in: {ids}"]
            wrong += bed.end()
            if not was_passed:
                wrong.append("the point was never passed: give it a scenario")
        except (AssertionError, OSError) as error:
            wrong = [repr(error)]
        return "\n".join([f"{name}:{action}", *wrong[:10], bed.story()]) if wrong else None


def is_short(name, action):
    return name.startswith(("queue.", "store.", "jobdir.")) and "#" not in action and action != "eio"


@pytest.mark.parametrize("item", [pytest.param(case, marks=() if is_short(*case) else pytest.mark.long) for case in CASES],
                         ids=[":".join(case) for case in CASES])
def test_struck_at_a_named_point(item, ahead):
    complaint = ahead(one_case).result(item)
    if complaint:
        pytest.fail(complaint, pytrace=False)


@pytest.mark.parametrize("action", ["kill", "enospc"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_pass_that_has_ends_to_record_is_struck_at_a_commit(n, action):
    """The ends are told once they're on record, and not before: else the node has forgotten them by the next pass."""
    with QueueBed() as bed:
        ids = [bed.submit(f"job{i}", "--gpus", "0", seconds=1.5, code=i) for i in range(3)]
        bed.tick()
        wait_for(lambda: bed.count("start") == len(ids), 20, bed.story)
        wait_for(lambda: bed.count("end") == len(ids) and not bed.shims(), 20, bed.story)
        assert not bed.record().is_quiet()
        bed.tick({"GPUSTOW_FAULT": f"store.before-commit:{action}#{n}"})
        assert (bed.strikes / "store.before-commit").exists()
        wait_seconds(0.3)
        bed.settle_all()
        wrong = bed.complaints() + bed.end()
        assert not wrong, "\n".join([*wrong, bed.story()])
