"""Each weakness of nvidb's queue (W-nn of its specification) that is the queue's own, seen from outside to be none of ours: on this
machine with simulated cards. What needs hosts is in test_queue_weaknesses_ssh.py; lanes, daemon, keeper, forwarding, backup and
monitor have their own."""
import json
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import time
from pathlib import Path

import pytest
from harness import is_alive, note, program, simjob, stat_of, until, wait_for
from queue_bed import HAND, MARK, Queue

ALL_CARD = 24576 - 512


@pytest.fixture
def queue(world):
    return Queue(world)


def ask(queue, *words, code=0, **more):
    """A command to its end, as JSON. --json goes in front: behind "--" it would be the job's."""
    return json.loads(queue.world.ask(words[0], "--json", *words[1:], code=code, **more).out)


def submit(queue, command, *options, tick=False):
    own = [f"--env={k}={queue.world.env[k]}" for k in ("W", "PATH", MARK)]
    own += [f"--env={k}={v}" for k, v in queue.world.env.items() if k.endswith("SAN_OPTIONS")]
    return ask(queue, "job", "submit", *([] if tick else ["--no-tick"]), *options, *own, "--", command)["job"]["id"]


def state(queue, job):
    return queue.job(job)["state"]


def runs(queue, *jobs):
    queue.tick_until(lambda: all(state(queue, j) == "running" for j in jobs))


def end(queue, *jobs):
    """Cancels what a test leaves running."""
    for j in jobs:
        queue.hand("cancel", j)
    queue.ends(*jobs)


def card(queue, index=0):
    return ask(queue, "queue", "nodes", "--tick")["nodes"][0]["gpus"][index]


def change(queue, sql, *args):
    """A change of the record behind gpustow's back: what time alone would bring about, or another program."""
    db = sqlite3.connect(queue.path, timeout=30)
    try:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        with db:
            db.execute(sql, args)
    finally:
        db.close()


def reads_nothing_back(path):
    return {p.name: p.read_bytes() for p in path.parent.glob("queue.db*") if not p.name.endswith("-shm")}


# --- exactly once, and what is known ---

def test_w03_no_short_job_is_misjudged(world, queue):
    """nvidb misjudged 43 of 150: it read the exit code first and looked whether the process lives afterwards."""
    # Of many lengths, so that the looks at them (each start, each pass) meet ends at every moment.
    jobs = [queue.submit(f"sleep 0.{i % 10}; " + ("true" if i % 3 else "exit 7"), max_retries=i % 2) for i in range(150)]
    (queue.home / "config.yml").write_text((queue.home / "config.yml").read_text() + "  max_cpu_jobs_per_node: 8\n")
    queue.ends(*jobs, deadline=240)
    ends = {(j["state"], j["cause"], j["attempt"]) for j in queue.jobs()}
    assert ends == {("completed", None, 1), ("failed", "exit-code", 1)}, [j for j in queue.jobs() if j["attempt"] != 1][:5]
    assert [j["state"] for j in queue.jobs()].count("failed") == 50
    assert not {"job_lost", "job_requeued"} & set(queue.events())


def test_w04_start_that_takes_long_is_waited_for_on_that_node(world, queue):
    """The witness stands still before the command starts: that's no refusal, and nothing is started a second time."""
    world.may_leave = True
    (world.dir / "faults").mkdir()
    world.env.update(GPUSTOW_FAULT="shim.after-lock:stop", GPUSTOW_TEST_FAULT_DIR=str(world.dir / "faults"))
    job = queue.submit(note("ran-$GPUSTOW_ATTEMPT"), gpus=1, vram_mib=8000)
    until(lambda: queue.tick() and (world.dir / "faults" / "shim.after-lock").exists())
    for key in ("GPUSTOW_FAULT", "GPUSTOW_TEST_FAULT_DIR"):
        del world.env[key]
    for _ in range(4):
        queue.tick()
        j = queue.job(job)
        assert (j["state"], j["is_bound"], j["attempt"]) == ("pending", 1, 1) and world.judge() == []
    assert "isn't confirmed" in ask(queue, "job", "why", str(job))["text"] or "not confirmed" in ask(queue, "job", "why", str(job))["text"]
    assert card(queue)["reserved_mb"] == 8000  # its budget holds meanwhile
    stopped = [p for p in world.processes() if (stat_of(p) or "X")[0] == "T"]
    assert stopped
    for p in stopped:
        os.kill(p, signal.SIGCONT)
    queue.ends(job)
    assert world.judge() == ["ran-1"] and state(queue, job) == "completed"


@pytest.mark.parametrize("point", ["queue.after-bind", "queue.after-launch"])
def test_w05_launch_whose_answer_was_lost_is_not_a_second_start(world, queue, point):
    """The controller dies with the launch on its way, another one comes, and a third beside it."""
    jobs = [queue.submit(note(f"{i}", "sleep 0.3")) for i in range(3)]
    world.spawn(program(), "queue", "tick", env={"GPUSTOW_FAULT": f"{point}:kill"}).wait(-signal.SIGKILL)
    both = [world.spawn(program(), "queue", "tick", "--json") for _ in range(2)]
    for b in both:
        b.wait()
    queue.ends(*jobs)
    assert sorted(world.judge()) == ["0", "1", "2"] and all(j["attempt"] == 1 for j in queue.jobs())


def test_w06_two_queues_with_the_same_numbers_run_their_own(world, queue):
    other = Queue(world)
    other.home = world.dir / "home" / "other"
    other.home.mkdir()
    other.path = other.home / "queue.db"
    mine, theirs = queue.submit(note("mine", "sleep 0.5")), other.submit(note("theirs", "sleep 0.5"))
    assert mine == theirs == 1
    queue.tick()
    world.ask("queue", "tick", "--db-path", other.path)
    queue.ends(mine)
    until(lambda: world.ask("queue", "tick", "--db-path", other.path) and other.job(1)["state"] == "completed")
    assert sorted(world.judge()) == ["mine", "theirs"]
    assert queue.uuid() != other.uuid()
    dirs = [q.attempts(1)[0]["run_dir"] for q in (queue, other)]
    assert dirs[0] != dirs[1] and queue.uuid() in dirs[0] and other.uuid() in dirs[1]


def test_w07_card_numbers_mean_what_the_driver_means(world, queue):
    """CUDA counts the fastest card first unless it's told."""
    job = queue.submit("echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES > $W/cards", gpus=2, vram_mib=1)
    queue.ends(job)
    assert world.text("cards") == "PCI_BUS_ID 0,1\n"


# --- placement and safety ---

@pytest.mark.parametrize("known_by", ["descent", "mark"])
def test_w16_what_left_its_session_is_charged_to_its_job(world, queue, known_by):
    """nvidb counted such a process as a stranger's, and the reservation besides. One that has thrown its environment away is
    known by whose child it is; one that somebody else started for the job (a container's daemon), by its mark."""
    child = f"env -u GPUSTOW_MARK setsid {simjob(9000, 300)} & " if known_by == "descent" else ""
    job = queue.submit(f"{child}echo $GPUSTOW_MARK > $W/mark; {wait_for('go')}; kill %1; exit 0", gpus=1, vram_mib=10000)
    queue.tick_until(lambda: world.text("mark").strip())
    if known_by == "mark":
        stray = world.spawn(*["env", f"GPUSTOW_MARK={world.text('mark').strip()}", *simjob(9000, 300).split()])
    queue.tick_until(lambda: (card(queue)["queue_mem_mb"] or 0) >= 9000, 10)
    c = card(queue)
    assert (c["external_mem_mb"], c["reserved_mb"], c["free_mb"]) == (0, 10000, ALL_CARD - 10000), c
    assert [p["job_id"] for p in c["processes"]] == [job]
    if known_by == "mark":
        stray.kill(signal.SIGKILL).wait(None)
    end(queue, job)


def test_w17_job_that_says_nothing_gets_a_card_alone(world):
    queue = Queue(world, sim="1")
    jobs = [queue.submit(f"# {i}\n" + wait_for("go"), gpus=1) for i in range(4)]
    runs(queue, jobs[0])
    # Nobody tries it either: the node would refuse it, too.
    assert queue.tick()["errors"] == []
    assert [state(queue, j) for j in jobs] == ["running"] + ["pending"] * 3
    # Not on a card with a stranger either, however little he holds beyond an idle card's.
    (world.dir / "go").touch()
    queue.ends(*jobs)
    world.foreign({0: 2000})
    last = queue.submit("true # last", gpus=1)
    assert [queue.tick()["errors"] for _ in range(3)] == [[], [], []]
    assert state(queue, last) == "pending"


def test_w17_what_a_command_needed_is_learned(world):
    """The second time a few may share the card."""
    queue = Queue(world, sim="1")
    first = queue.submit(simjob(5000, 1.5), gpus=1)
    queue.ends(first)
    again = [queue.submit(simjob(5000, 60), gpus=1) for _ in range(2)]
    runs(queue, *again)
    assert card(queue)["queue_jobs"] == 2
    end(queue, *again)


def test_w18_job_that_needs_much_is_not_passed_by_for_ever(world):
    queue = Queue(world, settings=("guard_after: 1s",))
    a = queue.submit(wait_for("a"), gpus=1, vram_mib=20000)
    b = queue.submit(wait_for("b"), gpus=1, vram_mib=20000)
    runs(queue, a, b)
    big = queue.submit(wait_for("c"), gpus=2, vram_mib=20000, priority=100)
    time.sleep(1.1)  # it has waited for longer than guard_after
    later = [queue.submit(f"true # {i}", gpus=1, vram_mib=20000) for i in range(6)]
    (world.dir / "a").touch()
    queue.ends(a)
    for _ in range(3):
        queue.tick()
    assert [state(queue, j) for j in later] == ["pending"] * 6 and state(queue, big) == "pending"
    assert f"job {big}" in ask(queue, "job", "why", str(later[0]))["text"]
    (world.dir / "b").touch()
    queue.ends(b)
    runs(queue, big)
    assert [state(queue, j) for j in later] == ["pending"] * 6
    (world.dir / "c").touch()
    queue.ends(big, *later)


def test_w46_processors_and_main_memory_are_counted(world, queue):
    node = ask(queue, "queue", "nodes", "--tick")["nodes"][0]
    cpus, mem = node["cpus"], node["mem_total_mb"]
    most = [submit(queue, wait_for("go"), "--gpus", "0", "--cpus", str(cpus)) for _ in range(2)]
    runs(queue, most[0])
    queue.tick()
    assert state(queue, most[1]) == "pending" and "cpus" in ask(queue, "job", "why", str(most[1]))["text"].lower().replace("processors", "cpus")
    (world.dir / "go").touch()
    queue.ends(*most)
    (world.dir / "go").unlink()
    most = [submit(queue, wait_for("go"), "--gpus", "0", "--mem", str(mem * 2 // 3)) for _ in range(2)]
    runs(queue, most[0])
    queue.tick()
    assert state(queue, most[1]) == "pending" and "memory" in ask(queue, "job", "why", str(most[1]))["text"]
    (world.dir / "go").touch()
    queue.ends(*most)


# --- what a person changes ---

def test_w08_changes_go_through_while_a_pass_runs(world, queue):
    """nvidb refused all of these while a pass looked at slow nodes."""
    waits, other, ended = [queue.submit("true # x", node="nowhere-yet") for _ in range(3)]
    queue.hand("cancel", ended)
    tick = world.spawn(program(), "queue", "tick", "--json", env={"GPUSTOW_FAULT": "queue.after-lease:stop"})
    until(lambda: Path(f"/proc/{tick.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    try:
        for words in (("job", "cancel", str(waits)), ("job", "requeue", str(ended)), ("job", "priority", str(other), "7"),
                      ("job", "edit", str(other), "--vram", "3G"), ("job", "edit", str(other), "--add-after", str(ended)),
                      ("job", "note", str(other), "mine"), ("job", "release", str(other))):
            ask(queue, *words, *([] if words[1] in ("note", "priority") else ["--no-tick"]), code=None)
        ask(queue, "queue", "drain", "local")
        ask(queue, "queue", "resume", "local")
        ask(queue, "queue", "ignore", "local")
        ask(queue, "queue", "unignore", "local")
        ask(queue, "job", "submit", "--no-tick", "--", "true")
        assert tick.process.poll() is None
    finally:
        tick.kill(signal.SIGCONT)
    tick.wait()
    j = queue.job(other)
    assert state(queue, waits) == "cancelled" and state(queue, ended) == "pending"
    assert (j["priority"], j["vram_mib"], j["notes"]) == (7, 3072, "mine")


def test_w09_controller_that_slept_past_its_lease_decides_nothing(world, queue):
    """A laptop that wakes up: its right is over, another has decided meanwhile. Its epoch stands in every write."""
    job = queue.submit(note("ran"))
    sleeper = world.spawn(program(), "queue", "tick", "--json", env={"GPUSTOW_FAULT": "queue.before-bind:stop"})
    until(lambda: Path(f"/proc/{sleeper.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    change(queue, "UPDATE lease SET expires_boot_ms = 1")  # as if so much time had gone by
    epoch = queue.rows("SELECT epoch FROM lease")[0]["epoch"]
    ask(queue, "queue", "drain", "local")
    queue.tick()
    assert queue.rows("SELECT epoch FROM lease")[0]["epoch"] > epoch
    sleeper.kill(signal.SIGCONT)
    assert sleeper.wait(None) != 0 or json.loads(sleeper.out)["dispatched"] == []
    # Its plan was made before the drain.
    assert queue.job(job)["is_bound"] == 0 and queue.attempts(job) == [] and world.judge() == []
    ask(queue, "queue", "resume", "local")
    queue.ends(job)
    assert world.judge() == ["ran"]


def test_w09_launch_of_an_old_epoch_starts_nothing(world, queue):
    """As above, with the bind already written: the node has been told of a newer controller and refuses the older one."""
    job = queue.submit(note("ran-$GPUSTOW_ATTEMPT"))
    sleeper = world.spawn(program(), "queue", "tick", "--json", env={"GPUSTOW_FAULT": "queue.after-bind:stop"})
    until(lambda: queue.job(job)["is_bound"])
    until(lambda: Path(f"/proc/{sleeper.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    change(queue, "UPDATE lease SET expires_boot_ms = 1")
    queue.ends(job)
    sleeper.kill(signal.SIGCONT)
    sleeper.wait(None)
    queue.tick()
    assert world.judge() == ["ran-1"] and state(queue, job) == "completed" and queue.events(job).count("job_finished") == 1


def test_w10_silent_node_is_asked_less_and_less_often(world, queue):
    config = queue.home / "config.yml"
    config.write_text(config.read_text() + "  include_local: true\nservers:\n  - nickname: dead\n    hostname: 127.0.0.1\n    port: 1\n")

    def asked():
        return [e["node"] for e in queue.tick()["errors"]] == ["dead"]

    def pause():
        return queue.nodes()["dead"]["next_try_ms"] - queue.nodes()["dead"]["probed_ms"]
    assert asked() and pause() == 3000
    change(queue, "UPDATE nodes SET next_try_ms = next_try_ms + 3600000 WHERE name = 'dead'")  # however slow this machine is
    assert not asked() and queue.nodes()["dead"]["state"] == "down"
    for silent_ms, wait_ms in ((100_000, 25_000), (86_400_000, 60_000)):
        change(queue, "UPDATE nodes SET next_try_ms = 1, failed_since_ms = probed_ms - ? WHERE name = 'dead'", silent_ms)
        assert asked() and wait_ms <= pause() < wait_ms + 10_000


def test_w11_burst_of_submits_is_few_passes(world, queue):
    """nvidb looked at every node once for each, or not at all."""
    queue.tick()
    before = queue.rows("SELECT pass_begun FROM lease")[0]["pass_begun"]
    holder = world.spawn(HAND, queue.path, "hold-lease", "100")
    holder.sees("held")
    burst = [world.spawn(program(), "job", "submit", "--json", "--gpus", "0", f"--env=W={world.dir}", "--", note(f"job{i}"))
             for i in range(12)]
    until(lambda: len(queue.jobs()) == 12)
    holder.kill(signal.SIGKILL).wait(None)
    for b in burst:
        b.wait()
    ids = [json.loads(b.out)["job"]["id"] for b in burst]
    assert all(json.loads(b.out)["tick"]["ran"] for b in burst)
    assert queue.rows("SELECT pass_begun FROM lease")[0]["pass_begun"] - before <= 3
    queue.ends(*ids)
    assert len(world.judge()) == 12


def test_w27_requeue_starts_anew(world, queue):
    """Its result goes, its retries are counted from then on, and it stands behind what came meanwhile."""
    job = queue.submit("echo '{\"loss\": 1}' > $GPUSTOW_RESULT_FILE; " + note("run") + "; kill -9 $$", max_retries=1)
    queue.ends(job)
    assert len(world.judge()) == 2 and json.loads(queue.job(job)["result"]) == {"loss": 1}
    ask(queue, "job", "requeue", str(job), "--no-tick")
    shown = ask(queue, "job", "show", str(job), "--no-tick")
    assert (shown["state"], shown["result"], shown["exit_code"], shown["last_error"]) == ("pending", None, None, None), shown
    queue.ends(job)
    assert len(world.judge()) == 4


def test_w29_release_drops_prerequisites_of_both_kinds(world, queue):
    """One that's gone from the record, too: nvidb couldn't let go of that."""
    gone, bad = queue.submit("true"), queue.submit("false")
    job = queue.submit("true", after=[bad], after_any=[gone])
    queue.hand("cancel", gone)
    change(queue, "DELETE FROM jobs WHERE id = ?", gone)
    queue.ends(bad)
    queue.tick_until(lambda: queue.job(job)["held_reason"])
    said = ask(queue, "job", "release", str(job))
    assert [r["id"] for r in said["results"]] == [job] and "error" not in said["results"][0], said
    queue.ends(job)
    assert state(queue, job) == "completed"


def test_w30_time_limit_is_kept_without_anybody(world, queue):
    job = queue.submit("echo $$ > $W/pid; trap '' TERM; while :; do sleep 0.1; done", max_runtime_ms=3000, grace_ms=300)
    queue.tick()
    pid = int(world.has("pid"))
    until(lambda: not is_alive(pid))  # no pass, no command: only its witness is there
    queue.ends(job)
    j = queue.job(job)
    assert (j["state"], j["cause"]) == ("timeout", "timeout")
    assert world.events is not None and queue.alerts()[-1]["kind"] == "job_timeout"


def test_w41_cancel_is_believed_when_it_has_happened(world, queue):
    """Until the node has confirmed it, the job runs, and its memory is charged."""
    job = queue.submit(f"trap '' TERM; {simjob(8000, 300)} & while :; do sleep 0.05; done", gpus=1, vram_mib=9000, grace_ms=60000)
    queue.tick_until(lambda: (card(queue)["queue_mem_mb"] or 0) >= 8000)
    said = ask(queue, "job", "cancel", str(job), "77", code=None)
    assert [(r["id"], r["cancel_requested"]) for r in said["results"]] == [(job, True), (77, False)], said  # a part is told as a part
    j = ask(queue, "job", "show", str(job))
    assert j["state"] == "running" and j["cancel_requested"]
    assert card(queue)["reserved_mb"] >= 9000
    change(queue, "UPDATE jobs SET grace_ms = 100 WHERE id = ?", job)
    for p, line in world.processes().items():
        if "run.sh" in line or "simjob" in line:
            os.kill(p, signal.SIGKILL)
    queue.ends(job)
    assert state(queue, job) == "cancelled"
    until(lambda: card(queue)["reserved_mb"] == 0)


def test_w41_one_mistake_does_not_hide_what_was_done(world, queue):
    one, three = queue.submit("true"), queue.submit("true")
    r = world.ask("job", "cancel", str(one), "99", str(three), "--no-tick", code=1)
    assert f"job {one}: cancelled" in r.out and f"job {three}: cancelled" in r.out and "there's no job 99" in r.out + r.err
    assert [j["state"] for j in queue.jobs()] == ["cancelled"] * 2


# --- cost ---

def own_cpu(world, *words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    world.ask(*words)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def many(queue, n, command="./train.sh"):
    """So many jobs that no card has room for now."""
    (queue.world.dir / "many.txt").write_text("".join(f"[vram=20G] {command} {i}\n" for i in range(n)))
    queue.world.ask("job", "submit", "--no-tick", "--file", queue.world.dir / "many.txt")


def test_w36_pass_with_nothing_free_costs_no_product(world, queue):
    """Four times the waiting jobs, at most about four times the CPU; and what waits is not written each time."""
    holds = [queue.submit(wait_for("go"), gpus=1, vram_mib=24000) for _ in range(2)]
    runs(queue, *holds)
    many(queue, 1500)
    queue.tick()
    few = min(own_cpu(world, "queue", "tick") for _ in range(3))
    many(queue, 4500)
    queue.tick()
    lots = min(own_cpu(world, "queue", "tick") for _ in range(3))
    assert lots < 6 * few, (few, lots)
    wal = queue.home / "queue.db-wal"
    size = wal.stat().st_size
    queue.tick()
    assert wal.stat().st_size - size < 100_000  # 6,000 rows would be a megabyte
    world.ask("job", "cancel", "--state", "pending", "--no-tick")
    (world.dir / "go").touch()
    queue.ends(*holds)


def test_w37_what_jobs_leave_is_bounded(world, queue):
    """A status line, a result, an alert's output, a log on the screen: each has an end. (Directories of old jobs go:
    test_queue_tick.py.)"""
    line = "yes words | tr -d '\\n' | head -c %d"
    job = queue.submit(f"{line % 5000000} > $GPUSTOW_STATUS_FILE; {{ echo '\"'; {line % 30000000}; echo '\"'; }} > $GPUSTOW_RESULT_FILE; "
                       f"{line % 9000000}; exit 1")
    queue.ends(job)
    j = queue.job(job)
    assert state(queue, job) == "failed"
    assert len(j["progress"]) == 500 and list(json.loads(j["result"])) == ["raw"] and 1000 < len(j["result"]) < 5000
    assert 8192 < len(queue.alerts()[-1]["detail"]) <= 16384 + 200
    r = world.ask("job", "logs", str(job))
    assert 1 << 20 < len(r.out) <= (4 << 20) + 100 and "at most 4 MiB" in r.err


def test_w38_looking_writes_nothing(world, queue):
    queue.ends(queue.submit("true"))
    before = reads_nothing_back(queue.path)
    for words in (("job", "ls"), ("job", "show", "1"), ("queue", "status"), ("queue", "events"), ("queue", "nodes"), ("job", "why", "1")):
        world.ask(*words, *([] if words[1] == "events" else ["--no-tick"]))
    assert reads_nothing_back(queue.path) == before


def synced(world, queue, *words):
    """What a command syncs: the names of the files, in order."""
    out = world.dir / "trace"
    world.spawn("strace", "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", out, program(), *words,
                env={"ASAN_OPTIONS": "detect_leaks=0"}).wait()
    return [line.split("<")[1].split(">")[0].rsplit("/", 1)[-1] for line in out.read_text().splitlines() if "sync(" in line]


@pytest.mark.skipif(not shutil.which("strace"), reason="there's no strace")
def test_w38_submit_is_one_sync(world, queue):
    words = ("job", "submit", "--no-tick", "--gpus", "0", "--", "true")
    first = synced(world, queue, *words)
    assert "queue.db-wal" in first and ".gpustow" in first[first.index("queue.db"):], first  # the log's name is durable, too
    assert synced(world, queue, *words) == ["queue.db-wal"]
    # Another program's last close takes the log away: the next one is a new name.
    change(queue, "DELETE FROM jobs")
    assert not (queue.home / "queue.db-wal").exists()
    again = synced(world, queue, *words)
    assert again[0] == ".gpustow" and set(again[1:]) == {"queue.db-wal"}, again


def test_w38_log_stays_short(world, queue):
    """Each command without another beside it reads all of it."""
    for _ in range(60):
        world.ask("job", "submit", "--no-tick", "--gpus", "0", "--", "true")
    assert (queue.home / "queue.db-wal").stat().st_size < 700_000
    assert ask(queue, "queue", "status", "--no-tick")["counts"]["pending"] == 60
    world.ask("job", "cancel", "--state", "pending", "--no-tick")


def test_w38_old_events_and_alerts_go(world, queue):
    job = queue.submit("false")
    queue.ends(job)
    world.ask("queue", "ack", "--all")
    assert queue.alerts() and len(queue.events()) > 3
    change(queue, "UPDATE events SET ts_ms = 1000")
    change(queue, "UPDATE alerts SET ts_ms = 1000, acknowledged_ms = 1000")
    queue.hand("meta", "retention_ms", "1")
    queue.tick()
    # The last number stays: who asks for what is newer must see none given twice.
    assert queue.alerts() == [] and len(queue.events()) == 1
    assert state(queue, job) == "failed"


def test_w39_recent_is_what_ended_last(world, queue):
    done = queue.submit("true")
    queue.ends(done)
    for _ in range(25):
        queue.submit("true", node="away")
    assert [j["id"] for j in ask(queue, "queue", "status", "--no-tick")["recent"]] == [done]


# --- the rest ---

def test_w15_body_of_five_megabytes(world, queue):
    """One argument may have 128 KiB."""
    script = world.dir / "large.sh"
    script.write_text("".join(f"# {i} {'y' * 1000}\n" for i in range(5000)) + note("large") + "\n")
    job = ask(queue, "job", "submit", "--no-tick", "--gpus", "0", f"--env=W={world.dir}", "--script", str(script))["job"]["id"]
    queue.ends(job)
    assert script.stat().st_size > 5_000_000 and world.judge() == ["large"] and state(queue, job) == "completed"


def test_w28_length_is_measured_where_it_ran(world, queue):
    """Nobody looked for three days (as far as the record's clock knows): the job still ran as long as it ran."""
    job = queue.submit(wait_for("go"))
    runs(queue, job)
    change(queue, "UPDATE jobs SET started_ms = started_ms - 259200000, heartbeat_ms = heartbeat_ms - 259200000 WHERE id = ?", job)
    (world.dir / "go").touch()
    queue.ends(job)
    assert queue.job(job)["elapsed_ms"] < 3_600_000


def test_w42_two_nodes_of_one_name_are_refused(world, queue):
    text = (queue.home / "config.yml").read_text()
    (queue.home / "config.yml").write_text(text + "servers:\n  - nickname: a\n    hostname: one\n  - nickname: a\n    hostname: two\n")
    r = world.ask("queue", "tick", code=1)
    assert "'a'" in r.err and "config.yml" in r.err, r.err


def test_w42_renamed_node_keeps_its_jobs(world, queue):
    job = queue.submit(wait_for("go"))
    runs(queue, job)
    (queue.home / "config.yml").write_text((queue.home / "config.yml").read_text() + "  local_node_name: desk\n  include_local: true\n")
    (world.dir / "go").touch()
    queue.ends(job)
    assert state(queue, job) == "completed" and queue.job(job)["attempt"] == 1


def test_w43_environment_is_the_accounts_and_what_was_said(world, queue):
    """Not that of whoever made the pass."""
    out = []
    for secret in ("one", "two"):
        own = [f"--env={k}={world.env[k]}" for k in ("W", MARK)]
        job = ask(queue, "job", "submit", "--gpus", "0", "--env", "MINE=1", *own, "--", f"env -0 > $W/env.{secret}; echo > $W/done.{secret}",
                  env={"TICKER": secret, "CUDA_VISIBLE_DEVICES": "7", "DISPLAY": ":9"})["job"]["id"]
        queue.ends(job)
        out.append({w.split("=", 1)[0]: w.split("=", 1)[-1] for w in world.text(f"env.{secret}").split("\0")})
    assert all("TICKER" not in e and "DISPLAY" not in e and e["CUDA_VISIBLE_DEVICES"] == "" and e["MINE"] == "1" for e in out), out
    assert out[0].keys() == out[1].keys()
    login = ask(queue, "job", "submit", "--gpus", "0", "--login", "--export", "TICKER", f"--env=W={world.dir}", "--",
                "echo $TICKER > $W/exported", env={"TICKER": "three"})["job"]["id"]
    queue.ends(login)
    assert world.text("exported") == "three\n"


def test_w58_secrets_are_nobody_elses(world, queue):
    """Not in any process's arguments while it's launched and runs, and no file of ours is for others."""
    secret = "hunter" + "2" * 8
    tick = [world.spawn(program(), "queue", "tick", "--watch", "0.2")]
    job = queue.submit(f": {secret}; sleep 1; : {secret}", env={"TOKEN": secret})
    seen = []
    until(lambda: seen.extend(line for line in world.processes().values() if secret in line) or state(queue, job) == "completed")
    tick[0].kill(signal.SIGTERM)
    tick[0].wait(None)
    assert seen == []
    for top, dirs, files in os.walk(world.dir):
        for name in [*dirs, *files]:
            path = Path(top) / name
            ours = any(p in path.parts for p in ("jobs", ".gpustow", "agent"))
            if ours and path.name not in (".gpustow",) and not path.is_symlink() and not path.name.startswith("config"):
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, (path, oct(path.stat().st_mode))


def test_w60_words_that_hold_everywhere_may_stand_everywhere(world, queue):
    other = world.dir / "other.db"
    queue.submit("true")
    for words in (["queue", "--json", "status"], ["--json", "queue", "status"], ["queue", "status", "--json"]):
        assert json.loads(world.ask(*words, "--no-tick").out)["counts"]["pending"] == 1
    for words in (["queue", "--db-path", other, "status"], ["queue", "status", "--db-path", other]):
        got = json.loads(world.ask(*words, "--json", "--no-tick").out)
        assert got["db_path"] == str(other) and got["jobs"] == []


def test_w62_configuration_that_cannot_be_read_is_an_error(world, queue):
    (queue.home / "config.yml").write_text("servers:\n  - nickname: [\n")
    for words in (("queue", "tick"), ("queue", "status"), ("job", "submit", "--", "true")):
        r = world.ask(*words, code=1)
        assert "config.yml" in r.err and "line" in r.err, r.err
    for words in (("--once",), ("--once", "--remote")):
        r = world.ask(*words, code=2)
        assert "config.yml line" in r.err and not r.out, r.err
    (queue.home / "config.yml").unlink()
    # Where there's none at all, nobody was asked for but this machine.
    hosts = json.loads(world.ask("--once", "--json", "--remote").out)["hosts"]
    assert [h["name"] for h in hosts] == ["local"]


def test_w56_config_keeps_its_mode(world, queue):
    for mode in (0o600, 0o640):
        (queue.home / "config.yml").chmod(mode)
        world.ask("add", "--host", f"h{mode}.example", "--user", "a", "--yes")
        assert stat.S_IMODE((queue.home / "config.yml").stat().st_mode) == mode
    (queue.home / "config.yml").unlink()
    world.ask("add", "--host", "new.example", "--user", "a", "--yes")
    assert stat.S_IMODE((queue.home / "config.yml").stat().st_mode) == 0o600
