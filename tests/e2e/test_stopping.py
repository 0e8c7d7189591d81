"""Time-outs, cancels and signals: rows T1, C, X17, X19, X27; W0, W13, W15."""
import os
import re
import signal

import pytest

from harness import is_alive, note, until, wait_for

# The shell forks for the inner one, dies of SIGTERM at once, and the inner one needs a second to save.
SAVER = "sh -c 'trap \"sleep 1; echo saved >> $W/judge; exit 0\" TERM; echo up > $W/up; while :; do sleep 0.05; done'; true"
DEAF = "trap '' TERM; echo up > $W/up; while :; do sleep 0.05; done"


def test_T1_timeout(world):
    world.jobs("[vram=2000 timeout=0.4s] sleep 60")
    r = world.finish(code=1)
    assert re.search(r"WARN  job 1 TIMEOUT after \ds \(limit 0s\) — SIGTERM", r.out) and re.search(r"job 1 finished \[TIMEOUT\] in \ds", r.out)
    assert world.events("done")[0]["status"] == "timeout" and world.events("done")[0]["returncode"] == -15


def test_X17_W13_a_timeout_is_a_failure_whatever_it_exits_with(world):
    """W13."""
    world.jobs("[vram=2000 timeout=3s] trap 'exit 0' TERM; while :; do sleep 0.05; done")
    r = world.finish(code=1)
    assert "[TIMEOUT]" in r.out and "1 failed" in r.out and "(timeout, exit 0)" in r.out


def test_C1_cancel_of_a_running_job(world):
    world.jobs("[vram=1G] sleep 60")
    r = world.run()
    r.sees("job 1 started")
    world.jobs("[vram=1G cancel] sleep 60")
    r.wait()
    assert "WARN  job 1 CANCELLED by user — SIGTERM to its process group" in r.out
    assert "job 1 finished [CANCELLED]" in r.out
    done = world.events("done")[0]
    assert done["status"] == "cancelled" and done["returncode"] == -15


def test_C2_cancel_uses_no_retry(world):
    world.jobs("[vram=1G retries=3] echo CUDA out of memory; sleep 60")
    r = world.run()
    r.sees("job 1 started")
    world.jobs("[vram=1G retries=3 cancel] echo CUDA out of memory; sleep 60")
    r.wait(0)
    assert "1 cancelled" in r.out and "OOM" not in r.out and len(world.events("bind")) == 1


def test_C3_who_ignores_SIGTERM_gets_SIGKILL_after_the_grace(world):
    world.jobs("[vram=1G] " + DEAF)
    r = world.run("--grace", "0.3")
    world.has("up")
    world.jobs("[vram=1G cancel] " + DEAF)
    r.wait()
    assert "WARN  job 1 did not exit after SIGTERM — SIGKILL" in r.out and "[CANCELLED]" in r.out
    assert world.events("done")[0]["returncode"] == -9


def test_C4_cancel_of_a_waiting_job(world):
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=14G] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=14G cancel] " + note("b"))
    r.sees("job 2 cancelled before start: echo b")
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a"] and "all 2 jobs done — 1 ok, 0 failed, 1 cancelled" in r.out


def test_C5_removing_the_word_revives_nothing(world):
    world.jobs("[cancel] " + note("a"))
    world.finish()
    world.jobs(note("a"))
    r = world.finish()
    assert world.judge() == [] and "all 0 jobs done" in r.out


def test_C6_the_whole_group_goes(world):
    world.jobs("[vram=1G] sleep 97 & sleep 98; true")
    r = world.run()
    until(lambda: sum("sleep 9" in c and "sh -c" not in c for c in world.processes().values()) == 2)
    world.jobs("[vram=1G cancel] sleep 97 & sleep 98; true")
    r.wait()
    assert not [c for c in world.processes().values() if "sleep 9" in c]


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_W0_X27_a_job_has_its_grace_to_save(world, how):
    attributes = "vram=1G timeout=4s" if how == "timeout" else "vram=1G"
    world.jobs(f"[{attributes}] {SAVER}")
    r = world.run()
    if how == "cancel":
        world.has("up")
        world.jobs(f"[{attributes} cancel] {SAVER}")
    r.wait(1 if how == "timeout" else 0)
    assert world.judge() == ["saved"] and "SIGKILL" not in r.out


def test_X19_W13_what_ended_before_the_cancel_was_read_stays_ok(world):
    """W13."""
    world.jobs("[vram=1G] " + note("a"), "[vram=1G] " + wait_for("go"))
    r = world.run()
    r.sees(r"job 1 finished \[OK\]")
    world.jobs("[vram=1G cancel] " + note("a"), "[vram=1G] " + wait_for("go"))
    until(lambda: world.ask_json("run", "status", "--json")["counts"]["lines"] == 2)
    (world.dir / "go").touch()
    r.wait()
    assert "all 2 jobs done — 2 ok, 0 failed, 0 cancelled" in r.out


@pytest.mark.parametrize("signo, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_W15_a_signal_stops_jobs_and_the_next_run_starts_them_again(world, signo, code):
    world.jobs("[vram=1G] " + note("start", f"test -e $W/second || {{ {SAVER}; }}"))
    r = world.run()
    world.has("up")
    r.kill(signo).wait(code)
    assert "WARN  interrupted — terminating running jobs" in r.out
    assert world.judge() == ["start", "saved"]
    assert world.events("interrupted") and not world.events("done")
    assert not [c for c in world.processes().values() if "sleep" in c]
    (world.dir / "second").touch()
    world.finish()
    assert world.judge() == ["start", "saved", "start"]


def test_W15_SIGINT_works_in_the_background_of_a_script(world):
    world.jobs("[vram=1G] echo up > $W/up; sleep 60")
    r = world.run(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    world.has("up")
    r.kill(signal.SIGINT).wait(130)


def test_W15_a_second_signal_leaves_at_once_and_the_node_ends_the_job(world):
    world.may_leave = True
    world.jobs("[vram=1G] " + DEAF)
    r = world.run("--grace", "10")
    world.has("up")
    until(lambda: world.events("started"))
    job = world.events("started")[0]["pgid"]
    r.kill(signal.SIGTERM).sees("interrupted — terminating running jobs")
    r.kill(signal.SIGTERM).wait(143)
    assert is_alive(job)
    until(lambda: not is_alive(job))


def test_W15_nothing_runs_so_it_ends_at_once(world):
    world.foreign({0: 24000})
    world.jobs("[vram=1G] " + note("a"))
    r = world.run()
    until(lambda: world.events("seen"))
    r.kill(signal.SIGINT).wait(130)
    assert world.judge() == []


def test_X18_W14_stdin_is_not_the_schedulers(world):
    """W14."""
    world.jobs("[vram=1G] cat > $W/in; echo read >> $W/judge")
    read, write = os.pipe()
    os.write(write, b"secret\n")
    r = world.run(stdin=read)
    r.wait()
    os.close(read), os.close(write)
    assert world.judge() == ["read"] and world.text("in") == ""


def opened(fifo):
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_W23_what_a_finished_job_leaves_behind_is_named(world):
    os.mkfifo(world.dir / "go")
    world.jobs("[vram=1G] cat $W/go & true")
    r = world.finish()
    assert "job 1 finished [OK]" in r.out and "WARN  job 1 left 1 process behind" in r.out
    # It's let go by whoever opens the other end.
    os.close(until(lambda: opened(world.dir / "go")))
    until(lambda: not [c for c in world.processes().values() if c.startswith("cat ")])
