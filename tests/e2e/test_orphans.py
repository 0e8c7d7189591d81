"""Dead schedulers and what they leave: rows S1, K, X10 to X12, X23, X24; W4 to W7, W25; gpusched's own log directories."""
import hashlib
import json
import os
import re
import signal

from harness import is_alive, note, read_text, until, wait_for


def key_of(command, n=0):
    return hashlib.sha1(command.encode()).hexdigest()[:12] + f"#{n}"


def gpuscheds(world, *records):
    """A log directory as gpusched 0.4.0 leaves it."""
    world.logs.mkdir(exist_ok=True)
    with open(world.logs / "journal.jsonl", "a") as f:
        f.writelines(json.dumps(r) + "\n" for r in records)


def seen(command, no):
    return {"key": key_of(command), "event": "seen", "no": no, "command": command}


def done(command, status, code):
    return {"key": key_of(command), "event": "done", "status": status, "returncode": code, "peak_mib": {"0": 7800}, "avg_util": 84.0}


def orphan(world, script="sleep 60"):
    """A job of a dead gpusched: a session of its own, not ours."""
    return world.spawn("sh", "-c", script)


def test_S1_what_is_done_is_not_done_again(world):
    world.jobs("[vram=1G] " + note("a"), "[vram=1G] " + note("b"))
    world.finish()
    r = world.finish()
    assert sorted(world.judge()) == ["a", "b"]
    assert "job 1 already completed ok — skipping (journal): echo a" in r.out
    # In gpusched's order, whatever of it is known first.
    heads = ["2 jobs queued", "discovered GPUs: [0]", "job 1 already completed", "job 2 already completed", "all 0 jobs done"]
    assert [line[11:11 + len(h)] for line, h in zip(r.lines(), heads, strict=True)] == heads, r.out
    assert "all 0 jobs done — 0 ok, 0 failed" in r.out
    world.jobs("[vram=1G] " + note("a"), "[cancel] " + note("c"))
    heads = ["2 jobs queued", "discovered GPUs: [0]", "job 1 already completed", "job 3 cancelled before start", "all 1 jobs done"]
    r = world.finish()
    assert [line[11:11 + len(h)] for line, h in zip(r.lines(), heads, strict=True)] == heads, r.out


def test_W7_failures_of_an_earlier_run_are_named_and_are_no_success(world):
    world.jobs("[vram=1G] " + note("a", "exit 3"), "[vram=1G] " + note("b"))
    world.finish(code=3)
    r = world.finish(code=1)
    assert sorted(world.judge()) == ["a", "b"]
    assert "  failed earlier: job 1 (failed, exit 3) — echo a" in r.out and "--retry-failed" in r.out


def test_retry_failed(world):
    world.jobs("[vram=1G] " + note("a", "test -e $W/good"), "[vram=1G] " + note("b"))
    world.finish(code=1)
    (world.dir / "good").touch()
    world.finish("--retry-failed")
    assert sorted(world.judge()) == ["a", "a", "b"]
    world.finish()


def test_fresh_forgets(world):
    world.jobs("[vram=1G] " + note("a"))
    world.finish()
    r = world.finish("--fresh")
    assert world.judge() == ["a", "a"] and "job 1 started" in r.out


def test_gpuscheds_log_directory_is_taken_over(world):
    world.jobs(*["[vram=1G] " + note(w) for w in "abcdef"])
    gpuscheds(world, seen(note("a"), 3), done(note("a"), "ok", 0), seen(note("b"), 7), done(note("b"), "failed", 4),
              seen(note("c"), 8), {"key": key_of(note("c")), "event": "oom", "attempts": 1, "next_vram": 9750},
              seen(note("d"), 9), {"key": key_of(note("d")), "event": "started", "pgid": 4194000, "gpus": [0]},
              {"key": key_of(note("d")), "event": "interrupted"}, done(note("e"), "cancelled", 0),
              {"key": key_of(note("e")), "event": "whatever"})
    before = (world.logs / "journal.jsonl").read_bytes()
    r = world.finish(code=1)
    assert sorted(world.judge()) == ["c", "d", "f"]
    assert "job 3 already completed ok — skipping" in r.out and "failed earlier: job 7 (failed, exit 4)" in r.out
    assert "job 8 started on gpu [0]" in r.out and "declared 9750 MiB/gpu" in r.out
    assert [e["no"] for e in world.events("seen")][-1] == 11
    assert (world.logs / "job008_gpu0.log").exists()
    assert (world.logs / "journal.jsonl").read_bytes().startswith(before)


def test_records_keep_gpuscheds_shape(world):
    world.jobs("[vram=1G gpus=2] true", "[vram=1G gpus=2] " + wait_for("go"))
    r = world.run(sim="2")
    until(lambda: world.events("started"))
    (world.dir / "go").touch()
    r.wait()
    raw = [line for line in read_text(world.logs / "journal.jsonl").splitlines()]
    assert raw[[("\"seen\"" in x) for x in raw].index(True)].startswith(
        '{"key": "5ffe533b830f#0", "event": "seen", "no": 1, "command": "true"')
    started = world.events("started")[0]
    assert list(started)[:4] == ["key", "event", "pgid", "gpus"] and started["gpus"] == [0, 1]
    assert list(world.events("done")[0])[:6] == ["key", "event", "status", "returncode", "peak_mib", "avg_util"]


def test_K1_an_orphan_of_gpusched_is_not_started_again(world):
    o = orphan(world)
    command = note("again")
    gpuscheds(world, seen(command, 1), {"key": key_of(command), "event": "started", "pgid": o.pid, "gpus": [0]})
    world.jobs("[vram=1G] " + command, "[vram=1G] " + note("b"))
    r = world.run()
    r.sees(rf"WARN  job 1 is still running as an ORPHAN of a previous scheduler \(pgid {o.pid}\) — not re-dispatching.*"
           rf"kill -TERM -{o.pid}")
    r.sees("job 2 finished")
    assert world.judge() == ["b"] and r.process.poll() is None
    # K2: once it's gone, the job waits again.
    os.killpg(o.pid, signal.SIGKILL)
    o.process.wait()
    r.sees("job 1 was interrupted mid-run by a previous scheduler's death — re-queuing")
    r.wait()
    assert world.judge() == ["b", "again"] and world.events("interrupted")


def test_K2_a_dead_group_is_run_again(world):
    o = orphan(world, "true")
    o.wait()
    command = note("again")
    gpuscheds(world, seen(command, 1), {"key": key_of(command), "event": "started", "pgid": o.pid, "gpus": [0]})
    world.jobs("[vram=1G] " + command)
    r = world.finish()
    assert world.judge() == ["again"] and "ORPHAN" not in r.out


def test_K3_after_a_normal_end_nothing_is_in_flight(world):
    world.jobs("[vram=1G] true")
    world.finish()
    assert world.ask_json("run", "status", "--json")["counts"]["running"] == 0
    r = world.finish()
    assert "ORPHAN" not in r.out and "interrupted" not in r.out


def test_X12_W6_a_reused_number_is_no_orphan(world):
    """W6: who began after gpusched's last word can't be the job it spoke of."""
    command = note("again")
    world.logs.mkdir()
    o = orphan(world)
    gpuscheds(world, seen(command, 1), {"key": key_of(command), "event": "started", "pgid": o.pid, "gpus": [0]})
    os.utime(world.logs / "journal.jsonl", (1_600_000_000, 1_600_000_000))
    world.jobs("[vram=1G] " + command)
    world.finish()
    assert world.judge() == ["again"] and is_alive(o.pid)
    os.killpg(o.pid, signal.SIGKILL)
    o.process.wait()


def test_X12_W6_a_zombie_is_no_orphan(world):
    o = orphan(world, "true")
    until(lambda: not is_alive(o.pid))
    command = note("again")
    gpuscheds(world, seen(command, 1), {"key": key_of(command), "event": "started", "pgid": o.pid, "gpus": [0]})
    world.jobs("[vram=1G] " + command)
    world.finish()
    assert world.judge() == ["again"]


def test_X11_W5_cancel_of_an_orphan_stops_it(world):
    """W5."""
    o = orphan(world)
    command = note("again")
    gpuscheds(world, seen(command, 1), {"key": key_of(command), "event": "started", "pgid": o.pid, "gpus": [0]})
    world.jobs("[vram=1G cancel] " + command)
    r = world.run()
    until(lambda: o.process.poll() is not None)
    r.wait()
    assert world.judge() == [] and world.events("done")[-1]["status"] == "cancelled"


def crash(world, run):
    run.process.kill()
    run.process.wait()


def test_W6_a_killed_schedulers_job_is_taken_over_with_its_exit_code(world):
    world.jobs("[vram=20G] " + note("a", wait_for("go") + "; exit 6"), "[vram=20G] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    until(lambda: world.events("started"))
    crash(world, r)
    r = world.run()
    r.sees(r"job 1 still runs \(pid \d+\) — taken over from a previous scheduler")
    # Its declaration is still reserved (W6).
    until(lambda: world.ask_json("run", "status", "--json")["cards"])
    status = world.ask_json("run", "status", "--json")
    assert [(j["job"], j["state"], j["was_taken_over"]) for j in status["jobs"]] == [(1, "running", True), (2, "pending", False)]
    assert "needs 20992 MiB on one GPU; the best is gpu0 with 4096 MiB free" in world.ask("run", "why", "2").out
    assert world.judge() == ["a"]
    (world.dir / "go").touch()
    r.wait(6)
    assert "job 1 finished [EXIT 6]" in r.out and world.judge() == ["a", "b"]


def test_an_end_without_a_scheduler_is_not_forgotten(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go") + "; echo out; exit 6"))
    r = world.run()
    r.sees("job 1 started")
    until(lambda: world.events("started"))
    pid = world.events("started")[0]["pgid"]
    crash(world, r)
    (world.dir / "go").touch()
    until(lambda: not is_alive(pid))
    r = world.finish(code=6)
    assert "job 1 finished [EXIT 6]" in r.out and world.judge() == ["a"]


def test_a_time_limit_is_kept_without_a_scheduler(world):
    world.jobs("[vram=1G timeout=1s] " + note("a", "sleep 60"))
    r = world.run()
    until(lambda: world.events("started"))
    pid = world.events("started")[0]["pgid"]
    crash(world, r)
    until(lambda: not is_alive(pid))
    r = world.finish(code=1)
    # The node's own watch, whenever somebody asks for it.
    assert int(re.search(r"job 1 finished \[TIMEOUT\] in (\d+)s", r.out).group(1)) in range(1, 30) and world.judge() == ["a"]


def test_an_end_without_scheduler_and_agent_is_not_forgotten(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go") + "; exit 6"))
    r = world.run()
    until(lambda: world.events("started"))
    pid = world.events("started")[0]["pgid"]
    crash(world, r)
    agents = until(world.agents)
    for agent in agents:
        os.kill(agent, signal.SIGKILL)
    until(lambda: not any(is_alive(a) for a in agents))
    (world.dir / "go").touch()
    until(lambda: not is_alive(pid))
    r = world.finish(code=6)
    assert "job 1 finished [EXIT 6]" in r.out and world.judge() == ["a"]


def test_a_killed_agent_comes_back_and_nothing_is_lost(world):
    world.agent_may_die = True
    world.jobs("[vram=1G name=a] " + note("a", wait_for("go")), "[vram=1G after=a] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    first = until(world.agents)
    os.kill(first[0], signal.SIGKILL)
    until(lambda: world.agents() and world.agents() != first)
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a", "b"] and "the link to this machine's agent is down" in r.out


def test_fresh_is_refused_while_something_runs(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    r = world.run()
    until(lambda: world.events("started"))
    crash(world, r)
    refused = world.finish("--fresh", code=1)
    assert "--fresh: job 1 of the previous run may still be running" in refused.err
    (world.dir / "go").touch()
    world.finish()
    assert world.judge() == ["a"]


def test_fresh_goes_on_when_what_gpusched_left_is_dead(world):
    o = orphan(world, "true")
    o.wait()
    command = note("a")
    gpuscheds(world, seen(command, 1), {"key": key_of(command), "event": "started", "pgid": o.pid, "gpus": [0]})
    world.jobs("[vram=1G] " + command)
    world.finish("--fresh")
    assert world.judge() == ["a"] and "pgid" not in world.journal()[0]


def test_X10_W4_one_scheduler_a_log_directory(world):
    """W4."""
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    r = world.run()
    r.sees("job 1 started")
    second = world.finish(code=1)
    assert f"in use by another scheduler (pid {r.pid})" in second.err and second.out == ""
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a"]


def test_X23_W25_a_torn_last_line_does_not_swallow_the_next_record(world):
    world.jobs("[vram=1G] " + note("a"))
    world.finish()
    with open(world.logs / "journal.jsonl", "ab") as f:
        f.write(b'{"key": "5ffe533b8')
    world.jobs("[vram=1G] " + note("a"), "[vram=1G] " + note("b"))
    r = world.finish()
    assert "WARN  1 line of the journal can't be read and is left aside" in r.out
    assert [e["no"] for e in world.events("seen")] == [1, 2]
    world.finish()
    assert world.judge() == ["a", "b"]


def test_X24_W25_strange_lines_in_the_journal(world):
    world.logs.mkdir()
    (world.logs / "journal.jsonl").write_bytes(b"[1]\n\xff\xfe\n{}\n\"x\"\nnull\n{\"key\": 5}\n{\"key\": \"k\", \"event\": \"seen\", \"no\": -1}\n")
    world.jobs("[vram=1G] " + note("a"))
    world.finish()
    world.finish()
    assert world.judge() == ["a"]


def test_W25_records_have_times_and_a_version(world):
    world.jobs("[vram=1G] " + wait_for("go"))
    r = world.run()
    until(lambda: world.events("started"))
    (world.dir / "go").touch()
    r.wait()
    assert world.events("queue")[0]["version"] == 1
    assert all("T" in world.events(e)[0]["time"] for e in ("queue", "epoch", "bind", "started", "done"))


def test_two_log_directories_share_the_cards(world):
    """What one run of a user promised, another counts."""
    world.jobs("[vram=20G] " + note("a", wait_for("go")))
    r = world.run()
    r.sees("job 1 started")
    other = world.write("[vram=20G] " + note("b") + "\n[vram=1G] " + note("c") + "\n", world.dir / "other.txt")
    s = world.run("--log-dir", "logs2", other, file=False)
    s.sees("job 2 finished")
    assert world.judge() == ["a", "c"]
    (world.dir / "go").touch()
    r.wait(), s.wait()
    assert world.judge() == ["a", "c", "b"]
