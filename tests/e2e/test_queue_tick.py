"""One pass after the other over this machine's agent: what's started, what's recorded, what a crash at any point leaves."""
import fcntl
import json
import os
import shutil
import signal
import time

import pytest
from harness import is_alive, is_writing, note, simjob, until, wait_for
from queue_bed import Queue

POINTS = ["queue.after-lease", "queue.before-bind", "queue.after-bind", "queue.after-launch",
          "queue.before-settle", "queue.after-settle", "queue.after-ack"]


def claims(world, queue):
    return [d for root in world.in_roots("agent.lock") for d in (root.parent / "claims" / queue.uuid()).glob("*.*")]


@pytest.fixture
def queue(world):
    return Queue(world)


# --- from submit to end ---

def test_job_starts_and_ends_with_its_environment(world, queue):
    job = queue.submit("env > $W/env; echo out; echo err >&2", gpus=1, vram_mib=8000, name="first",
                       env={"MINE": "1", "PYTHONUNBUFFERED": "0"})
    first = queue.tick()
    assert first["nodes_up"] == 1 and first["errors"] == [], first
    assert first["dispatched"] == [{"id": job, "node": "local", "gpu_ids": [0], "attempt": 1}]
    queue.ends(job)
    j = queue.job(job)
    assert (j["state"], j["exit_code"], j["cause"], j["last_error"]) == ("completed", 0, None, None)
    assert queue.events(job) == ["job_submitted", "job_started", "job_finished"]
    assert queue.events() [:2] == ["job_submitted", "node_up"]
    env = dict(line.split("=", 1) for line in world.text("env").splitlines() if "=" in line)
    for prefix in ("GPUSTOW", "NVIDB"):
        assert env[prefix + "_JOB_ID"] == str(job) and env[prefix + "_JOB_NAME"] == "first"
        assert env[prefix + "_NODE"] == "local" and env[prefix + "_ATTEMPT"] == "1" and env[prefix + "_QUEUE"] == queue.uuid()
    assert env["CUDA_VISIBLE_DEVICES"] == "0" and env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env["MINE"] == "1" and env["PYTHONUNBUFFERED"] == "0"
    assert queue.attempts(job)[0]["run_dir"] == str(queue.dir(job))
    assert (queue.dir(job) / "stdout.log").read_text() == "out\n" and (queue.dir(job) / "stderr.log").read_text() == "err\n"


def test_cpu_job_sees_no_card(world, queue):
    job = queue.submit('echo "[${CUDA_VISIBLE_DEVICES-all of them}]" > $W/cards')
    queue.ends(job)
    assert world.text("cards") == "[]\n"


def test_no_memory_is_promised_twice(world):
    """By the pass that makes the promise, and by those after it, before any of it is used: nobody is sent only to be refused."""
    queue = Queue(world, sim="1")
    jobs = [queue.submit(wait_for(f"go{i}"), gpus=1, vram_mib=10000) for i in range(4)]
    for _ in range(3):
        assert queue.tick()["errors"] == []
        assert [queue.job(j)["state"] for j in jobs] == ["running", "running", "pending", "pending"]
    # To the last MiB: 24576 less the headroom.
    more, fits = (queue.submit(wait_for("go3"), gpus=1, vram_mib=m) for m in (4065, 4064))
    assert queue.tick()["errors"] == []
    assert (queue.job(more)["state"], queue.job(fits)["state"]) == ("pending", "running")
    for i in range(4):
        (world.dir / f"go{i}").touch()
    queue.ends(*jobs, more, fits)


def test_two_cards_and_a_wish_that_is_not_its_own(world, queue):
    job = queue.submit("true", gpus=2, vram_mib=100, env={"CUDA_VISIBLE_DEVICES": "0,7"})
    t = queue.tick()
    assert t["dispatched"][0]["gpu_ids"] == [0, 1]
    assert ["wasn't allotted" in e["error"] for e in t["errors"]] == [True], t
    queue.ends(job)


def test_failure_tells_its_last_line_and_keeps_the_tail(world, queue):
    job = queue.submit("echo one >&2; echo 'ValueError: two' >&2; exit 3")
    queue.ends(job)
    j = queue.job(job)
    assert (j["state"], j["exit_code"], j["cause"]) == ("failed", 3, "exit-code")
    assert j["last_error"] == "exit code 3: ValueError: two"
    alert = queue.alerts()[0]
    assert alert["kind"] == "job_failed" and alert["detail"] == "one\nValueError: two\n" and alert["job"] == job


def test_result_progress_and_limit(world, queue):
    done = queue.submit("echo 90% > $GPUSTOW_STATUS_FILE; echo '{\"loss\": 1}' > $NVIDB_RESULT_FILE")
    slow = queue.submit("sleep 60", max_runtime_ms=300, grace_ms=1000)
    queue.ends(done, slow)
    j = queue.job(done)
    assert json.loads(j["result"]) == {"loss": 1} and j["progress"] == "90%"
    j = queue.job(slow)
    assert (j["state"], j["cause"]) == ("timeout", "timeout") and 300 <= j["elapsed_ms"] < 20000
    assert queue.alerts()[-1]["kind"] == "job_timeout"


def test_command_that_is_too_large_for_a_message_goes_ahead_of_it(world, queue):
    job = queue.submit("# " + "x" * 200 + "\n" + "\n".join(f": {'y' * 1000} {i}" for i in range(1500)) + "\n" + note("large"))
    small = queue.submit(note("small"))
    queue.ends(job, small)
    assert sorted(world.judge()) == ["large", "small"]


def test_memory_is_seen_and_what_runs_is_not_written_each_time(world, queue):
    job = queue.submit(simjob(3000, 60), gpus=1, vram_mib=4000)
    queue.tick_until(lambda: queue.job(job)["gpu_mem_mib"] == 3000)
    before = queue.job(job)
    queue.tick()
    assert queue.job(job) == before
    queue.hand("cancel", job)
    queue.ends(job)
    assert queue.job(job)["peak_mib"] == 3000


# --- retries ---

def test_out_of_memory_is_tried_again_with_more(world, queue):
    job = queue.submit(f"{simjob(6000, 0.3)}; [ $GPUSTOW_ATTEMPT = 2 ] || {{ echo 'CUDA out of memory' >&2; exit 1; }}", gpus=1,
                       vram_mib=8000, oom_retries=1)
    queue.ends(job)
    j = queue.job(job)
    assert (j["state"], j["attempt"], j["vram_mib"], j["n_oom"]) == ("completed", 2, 10000, 1)
    assert queue.events(job) == ["job_submitted", "job_started", "job_requeued", "job_started", "job_finished"]
    assert [a["kind"] for a in queue.alerts()] == ["job_retried"]


def test_killed_command_is_tried_again_as_often_as_allowed(world, queue):
    job = queue.submit(note("run") + "; kill -9 $$", max_retries=1)
    queue.ends(job)
    assert world.judge() == ["run", "run"]
    assert (queue.job(job)["state"], queue.job(job)["cause"], queue.job(job)["exit_code"]) == ("failed", "signal", 137)


def test_nobody_saw_how_it_ended(world, queue):
    world.agent_may_die = world.may_leave = True
    once = queue.submit("sleep 300")
    again = queue.submit(note("again", "[ $GPUSTOW_ATTEMPT = 2 ] || sleep 300"), max_retries=1)
    queue.tick_until(lambda: world.judge() == ["again"] and queue.job(once)["state"] == "running" and queue.job(again)["state"] == "running")
    world.power_off()  # agent, shims and jobs
    queue.ends(once, again)
    assert (queue.job(once)["state"], queue.job(once)["cause"]) == ("lost", "vanished")
    assert queue.alerts()[0]["kind"] in ("job_lost", "job_retried")
    assert (queue.job(again)["state"], queue.job(again)["attempt"]) == ("completed", 2)


# --- cancel ---

def test_cancel_of_one_that_runs(world, queue):
    job = queue.submit("trap 'echo term > $W/term; exit 0' TERM; echo $$ > $W/pid; while :; do sleep 0.05; done")
    queue.tick_until(lambda: world.text("pid"))
    queue.hand("cancel", job)
    j = queue.job(job)
    assert j["state"] == "running" and j["cancel_ms"]
    assert queue.tick()["finished"][0] == {"id": job, "state": "cancelled", "exit_code": 0, "cause": "cancelled",
                                           "error": "cancelled: by the test"}
    assert queue.job(job)["state"] == "cancelled" and world.text("term") == "term\n"
    assert not is_alive(int(world.text("pid"))) and queue.alerts() == []


def test_cancel_of_one_that_waits(world, queue):
    job = queue.submit("true")
    queue.hand("cancel", job)
    assert queue.job(job)["state"] == "cancelled"
    assert queue.tick()["dispatched"] == []


# --- prerequisites ---

def test_bad_end_holds_what_needs_it_and_lets_go_with_its_cause(world, queue):
    first = queue.submit("[ -e $W/good ]")
    second = queue.submit("true", after=[first])
    third = queue.submit("true", after=[second])
    whatever = queue.submit("true", after_any=[first])
    seen = queue.ends(first, whatever)
    assert [h for t in seen for h in t.get("held", [])] == [{"id": second, "reason": f"needs job {first}, which ended as failed"}]
    assert queue.job(third)["held_reason"] is None and queue.job(third)["state"] == "pending"
    assert [a["kind"] for a in queue.alerts()] == ["job_failed", "dependency_failed"]
    queue.tick()
    assert queue.events(second).count("job_held") == 1
    (world.dir / "good").touch()
    queue.hand("requeue", first)
    queue.ends(first, second, third)
    assert "job_unheld" in queue.events(second) and queue.job(third)["state"] == "completed"


def test_failure_for_a_prerequisite_when_asked_for(world, queue):
    first = queue.submit("false")
    second = queue.submit("true", after=[first], on_dependency=1)
    third = queue.submit("true", after=[second], on_dependency=1)
    runs = queue.submit("true", after=[third], on_dependency=2)
    seen = queue.ends(first, second, third, runs)
    # All down the chain at once: who waits for the last of them isn't kept for a pass each.
    assert [{f["id"] for f in t["finished"]} >= {second, third} for t in seen].count(True) == 1
    assert [queue.job(j)["state"] for j in (second, third, runs)] == ["failed", "failed", "completed"]
    assert queue.job(third)["cause"] == "dependency" and queue.attempts(third) == []


# --- what can't run ---

def test_never_is_said_after_three_passes(world, queue):
    job = queue.submit("true", gpus=1, vram_mib=90000)
    for _ in range(2):
        queue.tick()
        assert queue.job(job)["state"] == "pending"
    queue.tick()
    assert (queue.job(job)["state"], queue.job(job)["cause"]) == ("failed", "unschedulable")
    assert queue.alerts()[0]["kind"] == "job_unschedulable"
    assert queue.rows("SELECT value FROM meta WHERE key = 'never'") == []


def test_never_is_counted_anew_when_the_wish_changes(world, queue):
    job = queue.submit("true", gpus=1, vram_mib=90000)
    queue.tick()
    queue.tick()
    queue.hand("set-vram", job, 80000)
    queue.tick()
    assert queue.job(job)["state"] == "pending"
    queue.hand("set-vram", job, 1000)
    queue.ends(job)
    assert queue.job(job)["state"] == "completed"


def test_card_that_fails_different_commands_is_taken_out(world, queue):
    same = []
    for i in range(3):
        same.append(queue.submit(f"exit 1 # {i}", gpus=1, vram_mib=24000))
        queue.ends(same[-1])
    # One broken command, three times on one card.
    assert len({queue.attempts(j)[0]["cards"] for j in same}) == 1 and queue.rows("SELECT * FROM cards_out") == []
    other = queue.submit("sh -c 'exit 3' --other", gpus=1, vram_mib=24000)
    queue.ends(other)
    cards = {a["cards"] for j in (*same, other) for a in queue.attempts(j)}
    out = queue.rows("SELECT * FROM cards_out")
    assert [c["by_whom"] for c in out] == ["faults"], (out, cards)
    assert "card_out" in queue.events() and queue.alerts()[-1]["kind"] == "card_out"
    both = queue.submit("true", gpus=2, vram_mib=100)
    queue.tick()
    assert queue.job(both)["state"] == "pending"  # one card is left


def test_xid_while_it_ran_is_the_cause_and_takes_the_card_out(world, queue):
    (world.sim).mkdir(exist_ok=True)
    job = queue.submit(wait_for("go") + "; exit 3", gpus=1, vram_mib=24000)
    queue.tick_until(lambda: queue.job(job)["state"] == "running")
    [card] = json.loads(queue.attempts(job)[0]["cards"])
    index = card["index"]
    (world.sim / f"ills.{index}").write_text("48\n45\n")  # its programs are torn down, which hides nothing
    queue.tick_until(lambda: queue.rows("SELECT * FROM cards_out"))
    [out] = queue.rows("SELECT * FROM cards_out")
    assert (out["uuid"], out["by_whom"]) == (card["uuid"], "faults") and "XID 48" in out["why"], out
    assert json.loads(out["evidence"])[0]["xid"] == 48
    assert "card_out" in queue.events() and queue.alerts()[-1]["kind"] == "card_out"
    assert queue.job(job)["state"] == "running"  # what runs there goes on
    (world.dir / "go").touch()
    queue.ends(job)
    assert queue.job(job)["cause"] == "gpu-fault" and "Xid 48" in queue.job(job)["last_error"], queue.job(job)
    after = queue.submit("true", gpus=1, vram_mib=24000)
    queue.ends(after)
    assert json.loads(queue.attempts(after)[0]["cards"])[0]["index"] == 1 - index
    # A person who puts it back isn't contradicted by what was seen before; a new one is another matter.
    world.ask("queue", "card", "resume", f"local:{index}")
    queue.tick()
    assert queue.rows("SELECT * FROM cards_out") == []
    (world.sim / f"ills.{index}").write_text("48\n45\n79\n")
    queue.tick_until(lambda: queue.rows("SELECT * FROM cards_out"))


def test_xid_on_one_of_two_cards_counts_against_that_one(world, queue):
    world.sim.mkdir(exist_ok=True)

    def seen():
        return {c["index"]: c.get("xid_ms", 0) for c in json.loads(queue.nodes()["local"]["inventory"])["cards"]}
    for i, word in enumerate(("one", "another")):  # a different command each
        job = queue.submit(f"true {word}; " + wait_for(f"go{i}") + "; exit 3", gpus=2, vram_mib=24000)
        queue.tick_until(lambda: queue.job(job)["state"] == "running")
        before = seen()
        (world.sim / "ills.1").write_text("61\n" * (i + 1))
        queue.tick_until(lambda: seen()[1] != before[1])
        (world.dir / f"go{i}").touch()
        queue.ends(job)
        assert queue.job(job)["cause"] == "gpu-fault" and "Xid 61 on its GPU 1" in queue.job(job)["last_error"], queue.job(job)
    [card] = [c["uuid"] for c in json.loads(queue.attempts(job)[0]["cards"]) if c["index"] == 1]
    assert {(r["uuid"], r["xid"]) for r in queue.rows("SELECT * FROM card_faults")} == {(card, 61)}
    assert [r["uuid"] for r in queue.rows("SELECT * FROM cards_out")] == [card]


def test_xid_of_a_program_is_no_fault_of_its_card(world, queue):
    (world.sim).mkdir(exist_ok=True)
    job = queue.submit(wait_for("go") + "; exit 3", gpus=1, vram_mib=24000)
    queue.tick_until(lambda: queue.job(job)["state"] == "running")
    index = json.loads(queue.attempts(job)[0]["cards"])[0]["index"]
    (world.sim / f"ills.{index}").write_text("31\n")
    queue.tick()
    (world.dir / "go").touch()
    queue.ends(job)
    assert queue.job(job)["cause"] == "exit-code" and "Xid 31" in queue.job(job)["last_error"], queue.job(job)
    assert queue.rows("SELECT * FROM cards_out") == []


def test_drained_node_gets_nothing_and_keeps_what_runs(world, queue):
    runs = queue.submit(wait_for("go"))
    queue.tick_until(lambda: queue.job(runs)["state"] == "running")
    queue.hand("drain", "local", "on")
    waits = queue.submit("true")
    queue.tick()
    assert queue.job(waits)["state"] == "pending"
    (world.dir / "go").touch()
    queue.ends(runs)
    assert queue.job(waits)["state"] == "pending"
    queue.hand("drain", "local", "off")
    queue.ends(waits)


def test_ignored_node_is_not_asked(world, queue):
    queue.tick()
    queue.hand("ignore", "local", "on")
    for pid in world.agents():
        os.kill(pid, signal.SIGTERM)
    until(lambda: not world.agents())
    t = queue.tick()
    assert (t["nodes_up"], t["nodes_down"], t["nodes_ignored"]) == (0, 0, 1) and t["errors"] == []
    assert world.agents() == []


# --- several at once ---

def test_watch_goes_on_until_it_is_told(world, queue):
    job = queue.submit("true")
    w = world.spawn(*world_tick(), "--watch", "1")
    w.sees(r'"ran": true', count=3)
    until(lambda: queue.job(job)["state"] == "completed", why=w.tell)
    w.kill(signal.SIGINT).wait(0)


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_watch_ends_as_well_while_it_prints(world, queue, signo):
    """Neither in a pass nor in the pause between two: here whoever reads its lines takes his time."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.write(write, b"x" * 4096)
    w = world.spawn(*world_tick(), "--watch", "600", stdout=write)
    # Its pass is over, so it's at the line that can't be written.
    until(lambda: queue.hand("passes") == ["1", "1"] and queue.rows("SELECT owner FROM lease") == [{"owner": None}], why=w.tell)
    until(lambda: is_writing(w.pid), why=w.tell)
    w.kill(signo).wait(0)
    os.close(read), os.close(write)



def test_ticks_at_once_start_each_job_once(world, queue):
    jobs = [queue.submit(note(f"job{i}"), gpus=1, vram_mib=100) for i in range(6)]
    ticks = [world.spawn(*world_tick()) for _ in range(5)]
    for t in ticks:
        t.wait()
    queue.ends(*jobs)
    assert sorted(world.judge()) == sorted(f"job{i}" for i in range(6))
    assert all(queue.job(j)["attempt"] == 1 for j in jobs)
    # Five who asked needed fewer passes than that, or as many if they came one after the other; none was turned away.
    assert all(json.loads(t.out)["ran"] for t in ticks)


def world_tick():
    from harness import program
    return program(), "queue", "tick", "--json"


def test_who_waits_for_the_lease_has_a_pass_that_began_later(world, queue):
    job = queue.submit("true")
    holder = world.spawn(queue_hand(), queue.path, "hold-lease", "2")
    holder.sees("held")
    t = queue.tick()
    holder.wait()
    assert t["ran"] and [d["id"] for d in t["dispatched"]] == [job]


def queue_hand():
    from queue_bed import HAND
    return HAND


def test_lease_of_a_dead_process_is_no_obstacle(world, queue):
    holder = world.spawn(queue_hand(), queue.path, "hold-lease", "100")
    holder.sees("held")
    holder.kill(signal.SIGKILL).wait(None)
    begun = time.monotonic()
    assert queue.tick()["ran"] and time.monotonic() - begun < 20


# --- crashes ---

@pytest.mark.parametrize("point", POINTS)
def test_controller_dies_anywhere(world, queue, point):
    """Each job leaves its token where gpustow doesn't reach: that file is the judge."""
    fault = {"GPUSTOW_FAULT": f"{point}:kill", "GPUSTOW_TEST_FAULT_DIR": str(world.dir / "faults")}
    (world.dir / "faults").mkdir()
    jobs = [queue.submit(note(f"job{i}-$GPUSTOW_ATTEMPT", "exit 4" if i == 1 else "true"), gpus=i % 2, vram_mib=100) for i in range(4)]

    def died():
        r = world.spawn(*world_tick(), env=fault)
        r.wait(None)
        time.sleep(0.2)
        return r.process.returncode == -signal.SIGKILL
    until(died, every=0)
    queue.ends(*jobs)
    assert sorted(world.judge()) == [f"job{i}-1" for i in range(4)]
    assert [queue.job(j)["state"] for j in jobs] == ["completed", "failed", "completed", "completed"]
    assert [queue.events(j).count(k) for j in jobs for k in ("job_started", "job_finished")] == [1] * 8
    assert len(queue.alerts()) == 1
    # All were acknowledged: the node has nothing more to tell.
    until(lambda: not claims(world, queue))


def test_signal_ends_a_pass_at_a_safe_point(world, queue):
    job = queue.submit("true")
    tick = world.spawn(*world_tick(), env={"GPUSTOW_FAULT": "queue.after-bind:stop"})
    until(lambda: queue.job(job)["is_bound"])
    until(lambda: open(f"/proc/{tick.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
    tick.kill(signal.SIGTERM).kill(signal.SIGCONT)
    tick.wait(130)
    bound = queue.attempts(job)[0]["token"]
    queue.ends(job)
    assert queue.job(job)["attempt"] == 1 and queue.events(job).count("job_started") == 1
    # It was seen before anything left for the node: that bind came to nothing.
    assert queue.attempts(job)[0]["token"] != bound


# --- a record that went back ---

def test_record_that_was_put_back_starts_nothing_twice(world, queue):
    first, second = queue.submit(note("first")), queue.submit(note("second", wait_for("go")))
    for f in queue.home.glob("queue.db*"):
        shutil.copy(f, world.dir / f"copy-{f.name}")
    queue.tick_until(lambda: queue.job(first)["state"] == "completed" and queue.job(second)["state"] == "running")
    # Told of and forgotten there: only who asks for it hears of it.
    until(lambda: len(claims(world, queue)) == 1)
    lock = queue.home / "queue.db.lock"
    for f in queue.home.glob("queue.db*"):
        if f != lock:
            f.unlink()
    for f in world.dir.glob("copy-queue.db*"):
        if not f.name.endswith(".lock"):
            shutil.copy(f, queue.home / f.name[len("copy-"):])
    assert [j["state"] for j in queue.jobs()] == ["pending", "pending"]
    queue.tick()
    queue.tick()
    assert "is known to local" in queue.job(first)["held_reason"] and "is known to local" in queue.job(second)["held_reason"]
    assert sorted(world.judge()) == ["first", "second"]
    # It was asked for before anything was placed: on another node there would have been no conflict to stop it.
    assert [a["error"] for j in (first, second) for a in queue.attempts(j)] == [
        "an attempt of that number is known to the node and not to this database"] * 2
    (world.dir / "go").touch()
    queue.hand("release", first)
    queue.ends(first)
    assert sorted(world.judge()[:2]) == ["first", "second"] and world.judge()[2:] == ["first"] and queue.job(first)["attempt"] == 2


# --- what is old ---

def test_directories_of_old_jobs_go(world):
    queue = Queue(world, settings=("keep_job_dirs: 1",))
    old, runs = queue.submit("true"), queue.submit(wait_for("go"))
    queue.tick_until(lambda: queue.job(old)["state"] == "completed" and queue.job(runs)["state"] == "running")
    assert queue.dir(old).is_dir()
    time.sleep(1.1)
    queue.tick()
    assert queue.dir(old).is_dir()  # once an hour is enough
    # As if that were over. The directory of a claim that the node still has stays, and is asked for again.
    queue.tick_until(lambda: queue.hand("meta", "retention_ms", "1") == [] and queue.tick() and not queue.dir(old).exists())
    assert queue.dir(runs).is_dir()
    (world.dir / "go").touch()
    queue.ends(runs)


# --- an agent that isn't who it was ---

def test_other_root_concludes_nothing_while_the_machine_runs(world, queue):
    world.may_leave = world.agent_may_die = True
    job = queue.submit(wait_for("go"), gpus=1, vram_mib=8000)
    queue.tick_until(lambda: queue.job(job)["state"] == "running")
    for pid in world.agents():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not world.agents())
    (world.dir / "agent").rename(world.dir / "was-agent")
    t = queue.tick()
    assert queue.job(job)["state"] == "running" and queue.job(job)["is_bound"]
    assert any("can't be known" in e["error"] and "another one" in e["error"] for e in t["errors"]), t
    # A person decides; and if that root comes back, what is left of it is stopped.
    queue.hand("cancel", job)
    queue.tick()
    j = queue.job(job)
    assert (j["state"], j["cause"]) == ("lost", "node-lost") and "given up by a person" in j["last_error"]
    queue.tick()
    assert "job_reaped" not in queue.events(job)  # this root knows nothing of it
    for pid in world.agents():
        os.kill(pid, signal.SIGTERM)
    until(lambda: not world.agents())
    shutil.rmtree(world.dir / "agent")
    (world.dir / "was-agent").rename(world.dir / "agent")
    seen = queue.tick_until(lambda: "job_reaped" in queue.events(job))
    assert [r["job"] for t in seen for r in t.get("reaped", [])] == [job]
    assert world.agents() and not [p for p, line in world.processes().items() if "sleep" in line]


