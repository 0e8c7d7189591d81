"""Running out of memory and the retry: rows O, X13 to X16 (W10, W11)."""
import pytest

from harness import simjob, until, wait_for

OOM = "echo 'RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB'; exit 1"


def once(then, marker="m"):
    """Runs out of memory the first time, does `then` the second."""
    return f"if [ -e $W/{marker} ]; then {then}; else touch $W/{marker}; {OOM}; fi"


def test_O1_a_retry_with_a_quarter_more(world):
    world.jobs("[vram=2000 retries=1] " + simjob(1000, 0.3, 0, "--oom-once $W/marker"))
    r = world.finish()
    assert "↻ job 1 hit CUDA OOM (attempt 1/2) — requeued with vram 2000 → 2500 MiB" in r.out
    assert "declared 2500 MiB/gpu" in r.out and "all 1 jobs done — 1 ok" in r.out
    assert world.events("oom")[0]["attempts"] == 1 and world.events("oom")[0]["next_vram"] == 2500
    assert len(world.events("bind")) == 2


def test_O2_without_retries(world):
    world.jobs("[vram=2000] " + OOM)
    r = world.finish(code=1)
    assert "job 1 finished [OOM (exit 1, retries exhausted)]" in r.out
    assert world.events("done")[0]["status"] == "failed_oom"


def test_O3_another_failure_is_not_retried(world):
    world.jobs("[vram=2000 retries=3] echo no such thing; exit 7")
    world.finish(code=7)
    assert world.events("done")[0]["status"] == "failed" and len(world.events("bind")) == 1


def blocked(world, line):
    """A run whose one job ran out of memory and can't start again: strangers came meanwhile. Returns them too."""
    world.jobs(line)
    r = world.run(sim="1x16000M")
    r.sees("job 1 started")
    f = world.foreign({0: 12000})
    until(lambda: world.ask_json("run", "status", "--json")["cards"][0]["used_mib"] == 12000)
    (world.dir / "go").touch()
    r.sees(r"requeued with vram 3000 → 3750 MiB")
    until(lambda: "needs 4262 MiB" in world.ask("run", "why", "1").out)
    return r, f


GOT = once("echo got $GPUSTOW_JOB_VRAM_MIB >> $W/judge").replace("touch $W/m;", f"touch $W/m; {wait_for('go')};")


def test_O4_the_bump_survives_a_restart(world):
    r, f = blocked(world, "[vram=3000 retries=1] " + GOT)
    assert "vram→3750" in until(lambda: "vram→3750" in (b := world.board()) and b)
    r.kill(15).wait(143)
    f.end()
    world.finish(sim="1x16000M")
    assert world.judge() == ["got 3750"]


def test_X13_W10_words_of_an_earlier_attempt_do_not_count(world):
    world.jobs("[vram=2000 retries=3] " + once("exit 5"))
    r = world.finish(code=5)
    assert "job 1 finished [EXIT 5]" in r.out and r.out.count("hit CUDA OOM") == 1
    assert world.events("done")[0]["status"] == "failed"
    # Both attempts wrote to the one file (W30: the journal has the offset of each).
    assert world.log_of(1).count("out of memory") == 1
    offsets = [b["log_offset"] for b in world.events("bind")]
    assert offsets[0] == 0 and offsets[1] > 0


def test_W10_after_fresh_the_old_log_does_not_count(world):
    world.jobs("[vram=2000] " + once("exit 5"))
    world.finish(code=1)
    world.jobs("[vram=2000] " + once("exit 5"))
    r = world.finish("--fresh", "--oom-retries", "3", code=5)
    assert "hit CUDA OOM" not in r.out


def test_X14_W11_a_bump_is_capped_by_the_card(world):
    world.jobs("[vram=20G retries=1] " + once("echo got $GPUSTOW_JOB_VRAM_MIB >> $W/judge"))
    r = world.finish(sim="1x24000M")
    assert "requeued with vram 20480 → 23488 MiB" in r.out
    assert world.judge() == ["got 23488"] and "INFEASIBLE" not in r.out


@pytest.mark.parametrize("edit, got", [(10000, 10000), (3200, 3750)])
def test_X15_W11_a_later_higher_edit_wins(world, edit, got):
    r, f = blocked(world, "[vram=3000 retries=1] " + GOT)
    world.jobs(f"[vram={edit} retries=1] " + GOT)
    until(lambda: f"needs {got + 512} MiB" in world.ask("run", "why", "1").out)
    f.end()
    r.wait()
    assert world.judge() == [f"got {got}"]


def test_X16_W11_a_line_may_switch_retries_off(world):
    world.jobs("[vram=2000 retries=0] " + OOM, "[vram=2000] " + once("true"))
    r = world.finish("--oom-retries", "1", code=1)
    assert r.out.count("hit CUDA OOM") == 1 and "job 2 hit CUDA OOM (attempt 1/2)" in r.out


def test_O5_an_undeclared_job_is_declared_after_its_peak(world):
    world.jobs("[retries=1] " + once("echo got $GPUSTOW_JOB_VRAM_MIB >> $W/judge").replace(
        "touch $W/m;", "touch $W/m; " + simjob(3000, 1.0) + ";"))
    r = world.finish()
    assert "requeued with vram n/a → 3750 MiB" in r.out and world.judge() == ["got 3750"]
