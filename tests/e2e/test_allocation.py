"""Rows A, and where every row of the behaviour table lives.

A1-A11, B1-B3   tests/sched/*.txt (A1.txt ...), test_budget, test_plan_props; here once more through sampler, wire and run
B4, B5          test_live_file.py; tests/sched
B6, R1-R12, T2  test_running.py
P1-P13          test_jobsfile (unit); errors as a user sees them in test_bad_input.py
G1, G2          test_proc (unit)
L1-L5           test_live_file.py
S1, K1-K3       test_orphans.py
O1-O3           test_oom.py
T1, C1-C6       test_stopping.py
X1-X4           test_nvml.py
X5, X22         test_bad_input.py
X6, X20, X21    tests/sched; X6 and X21 here, X20 in test_nvml.py
X7-X9           test_live_file.py
X10-X12, X23, X24   test_orphans.py
X13-X16         test_oom.py
X17-X19, X27    test_stopping.py
X25, X26        test_second_terminal.py
W0-W30          by name (`pytest tests/e2e -k W6_`) where a run can show them; W17's reservation is off for `run` (tests/sched/guard*.txt),
                W28's figures are bench/run.py's, W31 is about upstream's documents
"""
import json

import pytest

from harness import note, simjob, until, wait_for


def plan(world, *args, sim):
    r = world.run("--check", "--json", *args, sim=sim)
    r.wait(None)
    return [(j["plan"], j["gpus"]) for j in json.loads(r.out)["jobs"]]


@pytest.mark.parametrize("row, used, options, line, want", [
    ("A1", [5000, 50], [], "x", ("starts", [1])),
    ("A2", [5000, 300], [], "x", ("waits", [])),
    ("A3", [10000], [], "[vram=8000] x", ("starts", [0])),
    ("A4", [16000], [], "[vram=8000] x", ("waits", [])),
    ("A9", [0, 20000, 100], [], "[vram=10000 gpus=2] x", ("starts", [0, 2])),
    ("A9", [0, 20000, 100], [], "[vram=10000 gpus=3] x", ("waits", [])),
    ("A10", [0, 15000], [], "[vram=6000] x", ("starts", [1])),  # 16000 there; a stranger's process is held to 1.1 times that
    ("A11", [0, 0], ["--gpus", "1"], "x", ("starts", [1])),
    ("X6", [0], [], "[vram=23488] x", ("starts", [0])),
    ("X6", [0], [], "[vram=23489] x", ("never", [])),
    ("X21", [181], [], "x", ("waits", [])),
    ("X21", [180], [], "x", ("starts", [0])),
])
def test_A_X_and_W19_on_cards_that_only_strangers_use(world, row, used, options, line, want):
    world.foreign(dict(enumerate(used)))
    world.jobs(line)
    assert plan(world, *options, sim=f"{len(used)}x24000M") == [want], row


def test_A5_to_A8_beside_a_job_of_ones_own(world):
    world.jobs("[vram=20000] " + wait_for("go"))
    r = world.run(sim="2x24000M")
    r.sees("job 1 started on gpu .0.")
    other = world.write("[vram=8000 gpu=0] a\n", world.dir / "other")
    logs = ["--log-dir", "other_logs"]

    def ask(line, *options):
        world.write(line + "\n", other)
        s = world.run("--check", "--json", *logs, *options, other, sim="2x24000M", file=False)
        s.wait(None)
        return [(j["plan"], j["gpus"]) for j in json.loads(s.out)["jobs"]][0]

    assert ask("[vram=8000 gpu=0] a") == ("waits", [])  # A5
    assert ask("[vram=3000 gpu=0] a") == ("starts", [0])
    assert ask("[vram=3000] a", "--exclusive") == ("starts", [1])  # A8
    assert ask("a", "--gpus", "0") == ("waits", [])  # A7, the other way round
    (world.dir / "go").touch()
    r.wait()


def test_A7_nobody_joins_an_undeclared_job(world):
    world.jobs(note("a", wait_for("go")), "[vram=1000 gpu=0] " + note("b"), "[vram=1000] " + note("c"))
    r = world.run(sim="2x24000M")
    r.sees("job 3 started on gpu .1.")
    r.sees("job 3 finished")
    # Both run at once, on two cards: whose word comes first is nobody's promise.
    until(lambda: sorted(world.judge()) == ["a", "c"])
    (world.dir / "go").touch()
    r.wait()
    assert sorted(world.judge()[:2]) == ["a", "c"] and world.judge()[2:] == ["b"]


def test_B3_a_job_that_passed_its_declaration_is_held_to_its_peak(world):
    world.jobs("[vram=8000] " + simjob(12000, 60))
    r = world.run(sim="1x24000M")
    r.sees("EXCEEDS")
    world.append("[vram=11000] " + note("b") + "\n")
    # 24000 - 13200 leaves 10800: less than 11000 and its margin.
    until(lambda: "needs 11512 MiB" in world.ask("run", "why", "2", code=None).out)
    assert world.ask_json("run", "status", "--json")["cards"][0]["budget_mib"] == 13200
    r.kill(15).wait(143)
    assert world.judge() == []


def test_W18_memory_of_a_childs_own_session_is_the_jobs(world):
    world.jobs("[vram=10000] setsid gpustow simjob --vram 9500 --ramp 0 --hold 1.5; true", "[vram=13000] " + note("b"))
    r = world.run(sim="1x24000M")
    # Counted twice (declaration and stranger) there would be no room for the second beside it.
    r.sees("job 2 finished")
    assert "job 1 finished" not in r.out
    r.wait()
    assert "job 1 finished [OK]" in r.out and "gpu0:9500 MiB | declared 10000 MiB → within" in r.out


def test_W20_a_cpu_job_is_not_called_a_failure_of_attribution(world):
    world.jobs("[vram=1G] true")
    r = world.finish()
    assert "attribution failed" not in r.out and "not sampled" in r.out


def test_W22_a_margin_may_be_zero(world):
    world.jobs("[vram=24000] " + note("a"))
    world.finish("--margin", "0", sim="1x24000M")
    assert world.judge() == ["a"]


def test_W26_a_locale_that_cannot_write_dashes(world):
    world.jobs("[vram=1G] echo é → — > $W/out")
    r = world.finish(env={"LC_ALL": "C"})
    assert "job 1 finished [OK]" in r.out and world.text("out") == "é → —\n"


def test_W28_one_fsync_for_the_records_of_a_poll(world):
    """Few enough that 100 short jobs don't cost 300 of them."""
    world.jobs(*[f"[gpus=0] : {i}" for i in range(100)])
    r = world.run("--max-jobs", "100")
    r.wait()
    first = [e["event"] for e in world.journal() if e["event"] in ("seen", "bind")]
    assert first[:100] == ["seen"] * 100
    assert "all 100 jobs done — 100 ok" in r.out


def test_W28_an_end_is_heard_at_once(world):
    """A poll this long would never come within the deadline."""
    world.jobs(*["[vram=20G] " + note(w) for w in "abcde"])
    world.finish(poll="600")
    assert world.judge() == list("abcde")


def test_W29_simulated_cards_have_24_GiB(world):
    world.jobs("[vram=23.5G] " + note("a"))
    world.finish()
    assert world.judge() == ["a"]


