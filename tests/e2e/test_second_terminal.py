"""The second terminal: status, why, cancel, retry, --json of each, with and without a scheduler; and --check."""
import json
import os

from harness import is_alive, note, program, until, wait_for


def two(world):
    world.jobs("[vram=20G name=first] " + note("a", wait_for("go")), "[vram=20G name=second] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    return r


def let_go(world, r, code=0):
    (world.dir / "go").touch()
    r.wait(code)


def crash(world, run):
    run.process.kill()
    run.process.wait()


def test_status_for_people(world):
    r = two(world)
    text = world.ask("run", "status").out
    assert "0/2 done, 1 running, 1 waiting" in text and f"pid {r.pid}" in text
    assert "gpu0" in text and "0.0/24.0 GiB" in text and "1 job " in text
    assert "needs 20992 MiB on one GPU" in text
    let_go(world, r)
    assert "2/2 done" in world.ask("run", "status").out


def test_status_as_json(world):
    r = two(world)
    v = until(lambda: (s := world.ask_json("run", "status", "--json"))["jobs"][0]["state"] == "running" and s)
    assert v["scheduler"] == {"pid": r.pid, "is_running": True, "is_draining": False, "is_stopping": False, "is_watching": False}
    assert v["counts"]["running"] == 1 and v["counts"]["pending"] == 1 and v["source"] == "sim"
    first, second = v["jobs"]
    assert first["name"] == "first" and first["gpus"] == [0] and first["pid"] > 1 and first["log"].endswith("job001_gpu0.log")
    assert second["state"] == "pending" and second["why"].startswith("needs 20992 MiB")
    assert v["cards"][0]["budget_mib"] == 20480 and v["cards"][0]["total_mib"] == 24576
    let_go(world, r)
    v = world.ask_json("run", "status", "--json")
    assert v["scheduler"]["is_running"] is False and v["scheduler"]["pid"] is None
    assert [(j["job"], j["status"], j["returncode"]) for j in v["jobs"]] == [(1, "ok", 0), (2, "ok", 0)]


def test_why(world):
    r = two(world)
    assert "job 2 (pending): needs 20992 MiB on one GPU" in world.ask("run", "why", "second").out
    assert "job 1 (running): it is running" in world.ask("run", "why", "1").out
    answer = world.ask_json("run", "why", "2", "--json")
    assert answer["jobs"][0]["job"] == 2 and answer["jobs"][0]["state"] == "pending"
    # W26, X26: the board has the reason as well.
    until(lambda: "pending vram 20480 (needs 20992 MiB" in world.board())
    bad = world.ask("run", "why", "9", code=1)
    assert bad.err == "gpustow: job 9: there is no such job\n" and bad.out == ""
    let_go(world, r)
    assert "job 1 (ok): it has ended: ok (exit 0) after " in world.ask("run", "why", "1").out


def test_X26_W17_a_lasting_stranger_is_named_as_the_reason(world):
    world.foreign({0: 20000})
    world.jobs("[vram=8G] " + note("a"))
    r = world.run()
    text = until(lambda: "needs 8704" in (t := world.ask("run", "why", "1").out) and t)
    assert "20000" in text or "22000" in text or "2576" in text
    r.kill(15).wait(143)


def test_X25_W17_an_impossible_wait_has_its_reason(world):
    world.jobs(note("a"))
    r = world.run("--idle-threshold", "0")
    until(lambda: "idle" in world.ask("run", "why", "1").out)
    r.kill(15).wait(143)


def test_cancel_from_the_second_terminal(world):
    r = two(world)
    assert world.ask("run", "cancel", "first", "second").out == "job 1 is being stopped\njob 2 was cancelled before it started\n"
    r.wait()
    assert world.judge() == ["a"] and "2 cancelled" in r.out
    again = world.ask("run", "cancel", "1", code=1)
    assert again.err == "gpustow: job 1: it has ended already\n"


def test_cancel_as_json(world):
    r = two(world)
    answer = world.ask_json("run", "cancel", "--json", "2", "77", code=1)
    assert [j["job"] for j in answer["jobs"]] == [2] and answer["failed"] == [{"job": "77", "why": "there is no such job"}]
    let_go(world, r)
    assert world.judge() == ["a"]


def test_cancel_without_a_scheduler_stops_on_the_node(world):
    r = two(world)
    until(lambda: world.events("started"))
    pid = world.events("started")[0]["pgid"]
    crash(world, r)
    assert is_alive(pid)
    world.ask("run", "cancel", "1", "2")
    assert not is_alive(pid)
    assert {(d["key"], d["status"]) for d in world.events("done")} >= {(world.events("seen")[0]["key"], "cancelled")}
    world.finish()
    assert world.judge() == ["a"]


def test_retry_from_the_second_terminal(world):
    world.jobs("[vram=1G name=bad] " + note("a", "test -e $W/good"), "[vram=1G] " + note("b", wait_for("go")))
    r = world.run()
    r.sees("job 1 finished")
    (world.dir / "good").touch()
    assert world.ask("run", "retry", "bad").out == "job 1 waits again\n"
    r.sees(r"job 1 finished \[OK\]")
    assert world.ask("run", "retry", "2", code=1).err == "gpustow: job 2: it is running\n"
    let_go(world, r)
    assert sorted(world.judge()) == ["a", "a", "b"]


def test_retry_failed_without_a_scheduler(world):
    world.jobs("[vram=1G] " + note("a", "test -e $W/good"), "[vram=1G] " + note("b"), "[vram=1G] " + note("c", "test -e $W/good"))
    world.finish(code=1)
    (world.dir / "good").touch()
    answer = world.ask_json("run", "retry", "--failed", "--json")
    assert sorted(j["job"] for j in answer["jobs"]) == [1, 3]
    world.finish()
    assert sorted(world.judge()) == ["a", "a", "b", "c", "c"]
    assert world.ask("run", "retry", "--failed").out == "nothing to do\n"
    assert "say which jobs" in world.ask("run", "retry", code=2).err


def test_retry_revives_a_cancelled_job(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")), "[vram=20G] " + note("b"), "[vram=23G] " + note("c"))
    r = world.run()
    r.sees("job 2 finished")
    world.ask("run", "cancel", "3")
    world.ask("run", "retry", "3")
    let_go(world, r)
    assert sorted(world.judge()) == ["a", "b", "c"]


def test_no_log_directory(world):
    for command in (["status"], ["why", "1"], ["cancel", "1"], ["retry", "1"]):
        err = world.ask("run", *command, "--log-dir", "nowhere", code=1).err
        assert err.startswith("gpustow: cannot open the log directory nowhere") and err.count("\n") == 1


def test_a_jobs_file_called_status(world):
    path = world.write("[vram=1G] " + note("a") + "\n", world.dir / "status")
    world.run("./status", file=False).wait()
    assert world.judge() == ["a"]


def test_status_of_a_dead_scheduler(world):
    r = two(world)
    until(lambda: world.events("started"))
    crash(world, r)
    v = world.ask_json("run", "status", "--json")
    assert v["scheduler"]["is_running"] is False and v["jobs"][0]["job"] == 1
    assert v["jobs"][0]["why"] == "in flight when its scheduler ended; the next run takes it over"
    assert "in flight when its scheduler ended" in world.ask("run", "why", "1").out
    assert "  unknown" in world.ask("run", "status").out
    r = world.run()
    r.sees("taken over")
    let_go(world, r)


def test_a_suggestion_from_the_peaks(world):
    world.jobs("[vram=20G] gpustow simjob --vram 4000 --ramp 0 --hold 1.0")
    world.finish()
    job = world.ask_json("run", "status", "--json")["jobs"][0]
    # The peak and a tenth, in whole 256 MiB.
    assert job["suggested_vram_mib"] == 4608 and job["use"][0]["peak_mib"] == 4000
    assert "4608" in world.ask("run", "status").out


def test_check_tells_the_plan_and_runs_nothing(world):
    world.foreign({0: 20000})
    world.jobs("[vram=20G name=a] " + note("a"), "[vram=20G] " + note("b"), "[vram=90G] " + note("c"), note("d"), "[after=a] " + note("e"),
               "[cancel] " + note("f"))
    r = world.finish("--check", sim="2", code=1)
    lines = r.lines()
    assert lines[0].startswith("line 1    job") and "starts  on gpu [1]" in lines[0]
    assert "waits" in lines[1] and "needs 20992 MiB" in lines[1]
    assert "never" in lines[2] and "exceeds total capacity" in lines[2]
    assert lines[-1] == "6 jobs: 1 would start now, 4 would wait, 1 can never fit"
    assert world.judge() == [] and not (world.logs / "journal.jsonl").exists() and not world.logs.exists()


def test_check_as_json(world):
    world.jobs("[vram=20G] " + note("a"), "[vram=90G] " + note("c"))
    r = world.finish("--check", "--json", code=1)
    document = json.loads(r.out)
    assert [(j["line"], j["plan"], j["gpus"]) for j in document["jobs"]] == [(1, "starts", [0]), (2, "never", [])]
    assert document["errors"] == []


def test_check_lists_every_error(world):
    world.jobs("[vram=] a", "[vram=1G] " + note("b"), "[foo=1] c", "[gpus=x] d")
    r = world.finish("--check", code=2)
    text = r.out + r.err
    for line, word in ((1, "cannot parse vram value ''"), (3, "unknown attribute 'foo'"), (4, "gpus must be an integer, got 'x'")):
        assert f"line {line}: {word}" in text
    r = world.finish("--check", "--json", code=2)
    assert [e["line"] for e in json.loads(r.out)["errors"]] == [1, 3, 4]


def test_check_beside_a_run_knows_what_is_done_and_what_runs(world):
    world.jobs("[vram=1G] " + note("a"), "[vram=20G] " + note("b", wait_for("go")))
    r = world.run()
    r.sees("job 1 finished")
    r.sees("job 2 started")
    c = world.finish("--check", "--json")
    assert [j["plan"] for j in json.loads(c.out)["jobs"]] == ["done", "running"]
    let_go(world, r)


def test_W26_a_board_that_outlives_the_run_and_times_with_dates(world):
    world.jobs("[vram=1G] true")
    world.finish()
    assert "0 running, 0 pending, 1 done" in world.board()


def test_help_names_the_commands(world):
    out = world.ask("run", "--help").out
    assert all(word in out for word in ("--margin", "--check", "JOBS_FILE"))
    assert program() and "run why" in world.ask("help").out
    assert os.path.basename(program()) == "gpustow"


def test_without_a_scheduler_nothing_waits_for_the_gpus(world):
    world.jobs("[vram=1G] false")
    world.run().wait(1)
    world.ask("run", "retry", "--failed")
    job = world.ask_json("run", "status", "--json")["jobs"][0]
    assert job["state"] == "pending" and "no scheduler is running" in job["why"] and job["waiting_ms"] is None
