"""The queue's commands as a person and a program see them: what the database alone answers (--no-tick), and what needs a node,
which is this machine with simulated cards."""
import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing

import pytest

from harness import ROOT, is_polling, program, until


class Queue:
    """A queue of its own on this machine with simulated cards."""

    def __init__(self, world, cards="2"):
        self.world = world
        self.home = world.dir / "home" / ".gpustow"
        self.home.mkdir()
        (self.home / "queue.yml").write_text(
            f"queue:\n  include_local: true\n  tick_min_interval: 0\n  job_root: {world.dir}/jobs\n")
        self.env = {"GPUSTOW_SIM": cards}

    def ask(self, *words, code=0, **more):
        return self.world.ask(*words, code=code, env={**self.env, **more.pop("env", {})}, **more)

    def json(self, *words, code=0, **more):
        """--json goes in front: behind "--" it would be the job's."""
        return json.loads(self.ask(words[0], "--json", *words[1:], code=code, **more).out)

    def submit(self, command, *options, tick=False):
        """Its number. The exit code is 1 when the job has failed already: the pass saw its end."""
        doc = self.json("job", "submit", *([] if tick else ["--no-tick"]), *options, "--env", f"W={self.world.dir}", "--",
                        command, code=None)
        assert doc["ok"], doc
        return doc["job"]["id"]

    def state(self, job):
        return self.json("job", "show", str(job), "--no-tick")["state"]

    def wait(self, *jobs, code=0):
        return self.json("job", "wait", *map(str, jobs), code=code)

    @property
    def db(self):
        return self.home / "queue.db"


@pytest.fixture
def queue(world):
    return Queue(world)


# ---- status, nodes ----

SNAPSHOT = ["generated_at", "db_path", "last_tick_at", "last_backup_at", "tick_lock", "keeper", "settings", "counts", "held",
            "nodes", "lanes", "jobs", "recent", "alerts", "open_alerts", "pending_reaps"]
NODE = ["name", "hostname", "port", "username", "state", "enabled", "ignored", "last_seen", "last_error", "gpu_count", "probed_at",
        "gpus"]
GPU = ["node", "index", "name", "mem_total_mb", "mem_used_mb", "mem_used_percent", "external_mem_mb", "external_procs",
       "queue_mem_mb", "attribution", "reserved_mb", "queue_jobs", "free_mb", "util_percent", "mem_util_percent", "temperature_c",
       "processes", "updated_at"]


def test_the_snapshot_has_every_key(queue):
    a = queue.submit("sleep 0", "--vram", "1G")
    b = queue.submit("sleep 0", "--vram", "1G", "--after", str(a))
    queue.ask("job", "cancel", str(a), "--no-tick")
    queue.ask("queue", "tick")
    s = queue.json("queue", "status", "--no-tick")
    assert list(s)[:len(SNAPSHOT)] == SNAPSHOT
    assert s["db_path"] == str(queue.db) and s["last_backup_at"] is None and s["tick_lock"] is None and [x["name"] for x in s["lanes"]] == ["local:0", "local:1"]
    assert s["keeper"] == dict(installed=False, running=False, pid=None, manager=None, script=None, unit=None, log=None)
    assert s["settings"] == {"headroom_mb": 512, "max_jobs_per_gpu": 4, "placement": "spread"}
    assert s["counts"] == {"pending": 1, "running": 0, "completed": 0, "failed": 0, "cancelled": 1, "timeout": 0, "lost": 0}
    assert [j["id"] for j in s["held"]] == [j["id"] for j in s["jobs"]] == [b] and s["held"][0]["state"] == "pending"
    assert [j["id"] for j in s["recent"]] == [a]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", s["last_tick_at"])
    node = s["nodes"][0]
    assert list(node)[:len(NODE)] == NODE and node["name"] == "local" and node["state"] == "up" and node["gpu_count"] == 2
    assert list(node["gpus"][0])[:len(GPU)] == GPU and node["gpus"][0]["free_mb"] == 24576 - 512


def test_a_queue_that_nobody_made_is_an_empty_one(queue):
    s = queue.json("queue", "status", "--no-tick")
    assert s["jobs"] == [] and s["last_tick_at"] is None and sum(s["counts"].values()) == 0
    out = queue.ask("queue", "status", "--no-tick").out
    assert "no tick yet" in out.splitlines()[0] and "not looked at yet" in out and "JOBS  no jobs" in out
    assert queue.json("queue", "events") == {"events": [], "last_id": 0, "has_more": False, "has_gap": False}


def test_recent_are_the_last_to_finish_whatever_waits_behind_them(queue):
    a, b, c = [queue.submit("true", "--gpus", "0") for _ in range(3)]
    for job in (a, b):
        queue.ask("job", "cancel", str(job), "--no-tick")
    for _ in range(25):
        queue.submit("true", "--gpus", "0")
    s = queue.json("queue", "status", "--no-tick")
    assert [j["id"] for j in s["recent"]] == [b, a] and len(s["jobs"]) == 26 and s["jobs"][0]["id"] == c


def test_text_is_bounded_and_says_so(queue):
    queue.ask("job", "submit", "--no-tick", "--gpus", "0", "--array", "1-150", "--", "echo {index}")
    out = queue.ask("queue", "status", "--no-tick").out
    assert "JOBS  pending 150" in out and "(and 50 more; `job ls --active` lists them)" in out
    assert len(queue.json("queue", "status", "--no-tick")["jobs"]) == 150


def test_status_of_a_running_queue(queue):
    foreign = queue.world.foreign({1: 3000})
    job = queue.submit("gpustow simjob --vram 2G --hold 60", "--vram", "4G", "-n", "train", tick=True)
    until(lambda: queue.json("queue", "status", "--tick")["nodes"][0]["gpus"][0]["queue_mem_mb"] == 2048)
    card0, card1 = queue.json("queue", "status", "--no-tick")["nodes"][0]["gpus"]
    assert (card0["reserved_mb"], card0["queue_jobs"], card0["free_mb"]) == (4096, 1, 24576 - 4096 - 512)
    assert [(p["job_id"], p["job_name"], p["managed"]) for p in card0["processes"]] == [(job, "train", True)]
    assert (card1["external_mem_mb"], card1["external_procs"], card1["queue_jobs"]) == (3000, 1, 0)
    text = queue.ask("queue", "status", "--no-tick").out
    assert re.search(r"^GPU +MODEL +UTIL +MEM +UNMANAGED +QUEUE +RESERVED +JOBS +FREE$", text, re.M)
    assert "2.9G (1p)" in text and f"2.9G sleep {foreign.process.pid} (" in text
    assert re.search(rf"^{job} +running +train +local +0 +4.0G +2.0G ", text, re.M)
    procs = queue.ask("queue", "nodes", "--procs", "--no-tick").out
    assert f"job {job} train" in procs and re.search(r"external +sleep", procs)
    queue.ask("job", "cancel", str(job))


def test_cards_that_gpus_leaves_out_are_masked_in_status_only(queue):
    queue.ask("queue", "tick")
    # What is known of this machine, as if it were another one's.
    with sqlite3.connect(queue.db) as d:
        d.execute("UPDATE nodes SET name = 'n1'")
    (queue.home / "queue.yml").write_text("servers:\n  - hostname: n1.invalid\n    nickname: n1\n    gpus: [1]\n")
    assert [g["index"] for g in queue.json("queue", "status", "--no-tick")["nodes"][0]["gpus"]] == [1]
    cards = queue.json("queue", "nodes", "--no-tick")["nodes"][0]["gpus"]
    assert [(g["index"], g["allowed"]) for g in cards] == [(0, False), (1, True)]
    assert len(re.findall("Simulated GPU", queue.ask("queue", "status", "--no-tick").out)) == 1
    assert "not in gpus:" in queue.ask("queue", "nodes", "--no-tick").out


# ---- events ----

def test_events_are_paged_without_gaps(queue):
    ids = [queue.submit(f"echo {i}", "--gpus", "0") for i in range(7)]
    seen, since = [], 0
    while True:
        page = queue.json("queue", "events", "--since", str(since), "-n", "3")
        seen += [e["job_id"] for e in page["events"]]
        assert page["last_id"] == (page["events"][-1]["id"] if page["events"] else since) and not page["has_gap"]
        assert page["has_more"] == (len(seen) < 7)
        if not page["events"]:
            break
        since = page["last_id"]
    assert seen == ids
    assert list(queue.json("queue", "events")["events"][0]) == ["id", "ts", "kind", "job_id", "node", "message", "data"]
    newest = queue.json("queue", "events", "-n", "2")["events"]
    assert [e["job_id"] for e in newest] == ids[-2:]
    assert [e["job_id"] for e in queue.json("queue", "events", "--job", str(ids[3]))["events"]] == [ids[3]]
    text = queue.ask("queue", "events", "--since", "0", "-n", "3").out
    assert re.search(r"ID +TIME +KIND +JOB +NODE +MESSAGE", text) and "(there are more; --since 3 goes on)" in text


def test_events_that_were_removed_are_a_gap(queue):
    for i in range(3):
        queue.submit("true", "--gpus", "0")
    with sqlite3.connect(queue.db) as d:
        d.execute("DELETE FROM events WHERE id <= 2")
    assert queue.json("queue", "events", "--since", "1")["has_gap"] is True
    assert queue.json("queue", "events", "--since", "2")["has_gap"] is False


def damage(queue, marker):
    """The page with that text isn't one of a database any more."""
    with sqlite3.connect(queue.db) as d:
        d.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    d.close()
    whole = bytearray(queue.db.read_bytes())
    size = int.from_bytes(whole[16:18], "big")
    at = whole.index(marker.encode()) // size * size
    whole[at:at + size] = b"\xff" * size
    queue.db.write_bytes(whole)


def test_list_that_an_error_cuts_says_so_in_valid_json(queue):
    """The first pieces are written already when a page can't be read: it's closed there, and tells."""
    first = queue.submit("true", "--gpus", "0")
    with sqlite3.connect(queue.db) as d:
        d.executemany("INSERT INTO events (ts_ms, kind, job, message) VALUES (0, 'job_submitted', ?, ?)",
                      [(first, f"marker-{i} {'x' * 100}") for i in range(9000)])
    d.close()
    damage(queue, "marker-8000 ")
    r = queue.ask("queue", "events", "--json", code=1)
    doc = json.loads(r.out)
    assert doc["ok"] is False and "damaged" in doc["error"] and r.err == ""
    # What's there is right as far as it goes, and goes on from there.
    ids = [e["id"] for e in doc["events"]]
    assert ids == list(range(1, len(ids) + 1)) and 1000 <= len(ids) < 8000 and doc["last_id"] == ids[-1]
    # Nothing was written yet: the one sentence alone.
    r = queue.ask("queue", "events", "--json", "--since", "7900", code=1)
    doc = json.loads(r.out)
    assert set(doc) == {"ok", "error"} and doc["ok"] is False
    assert "damaged" in queue.ask("queue", "events", "--since", "7900", "-n", "500", code=1).err


def test_job_list_that_an_error_cuts_says_so_too(queue):
    lines = queue.world.write("".join(f"echo marker-{i} {'x' * 300}\n" for i in range(2500)), queue.world.dir / "many.txt")
    queue.ask("job", "submit", "--no-tick", "--gpus", "0", "--file", lines)
    damage(queue, "marker-2300 ")
    r = queue.ask("job", "ls", "--json", "--no-tick", code=1)
    doc = json.loads(r.out)
    assert doc["ok"] is False and "damaged" in doc["error"] and 0 < len(doc["jobs"]) < 2300
    doc = json.loads(queue.ask("queue", "status", "--json", "--no-tick", code=1).out)
    assert doc["ok"] is False and "damaged" in doc["error"]


def test_document_that_cannot_be_written_is_told_of_elsewhere(queue):
    queue.submit("true", "--gpus", "0")
    with open("/dev/full", "w") as full:
        s = queue.world.spawn(program(), "queue", "events", "--json", env=queue.env, stdout=full)
        s.wait(1)
    assert "cannot write to standard output" in s.err


def lines_of(started):
    return [json.loads(line) for line in started.lines()]


def test_events_are_followed_from_what_comes_or_from_a_number(queue):
    first = queue.submit("true", "--gpus", "0")
    new = queue.world.spawn(program(), "queue", "events", "-f", "--json", env=queue.env)
    behind = queue.world.spawn(program(), "queue", "events", "--follow", "--json", "--since", "0", env=queue.env)
    text = queue.world.spawn(program(), "queue", "events", "-f", "-n", "1", env=queue.env)
    until(lambda: behind.lines() and text.lines())
    second = queue.submit("true", "--gpus", "0")
    third = queue.submit("true", "--gpus", "0")
    until(lambda: len(behind.lines()) == 3 and len(text.lines()) == 3 and len(new.lines()) >= 1, why=lambda: behind.tell() + text.tell())
    assert [e["job_id"] for e in lines_of(behind)] == [first, second, third]
    assert [list(e) for e in lines_of(behind)] == [["id", "ts", "kind", "job_id", "node", "message", "data"]] * 3
    # This one may have begun between any two of them, and from there on it has all.
    until(lambda: [e["job_id"] for e in lines_of(new)] == [first, second, third][3 - len(new.lines()):] and lines_of(new)[-1]["job_id"] == third,
          why=new.tell)
    assert [line.split()[2:4] for line in text.lines()] == [["job_submitted", str(j)] for j in (first, second, third)], text.out
    assert first not in [e["job_id"] for e in lines_of(new)]
    for s, signo, code in ((new, signal.SIGINT, 130), (behind, signal.SIGINT, 130), (text, signal.SIGTERM, 143)):
        s.kill(signo).wait(code)
        assert s.err == "", s.tell()
    assert "give one of them" in queue.ask("queue", "events", "-f", "-n", "1", "--since", "0", code=1).err


def test_events_of_one_job_are_followed(queue):
    a, b = (queue.submit("true", "--gpus", "0") for _ in range(2))
    f = queue.world.spawn(program(), "queue", "events", "-f", "--json", "--job", str(a), "-n", "5", env=queue.env)
    until(lambda: f.lines())
    for job in (b, a):
        queue.ask("job", "cancel", str(job), "--no-tick")
    until(lambda: len(f.lines()) == 2, why=f.tell)
    assert [(e["job_id"], e["kind"]) for e in lines_of(f)] == [(a, "job_submitted"), (a, "job_cancelled")]
    f.kill(signal.SIGINT).wait(130)


def test_followed_events_tell_of_a_gap(queue):
    for i in range(3):
        queue.submit("true", "--gpus", "0")
    with sqlite3.connect(queue.db) as d:
        d.execute("DELETE FROM events WHERE id <= 2")
    f = queue.world.spawn(program(), "queue", "events", "-f", "--json", "--since", "1", env=queue.env)
    text = queue.world.spawn(program(), "queue", "events", "-f", "--since", "1", env=queue.env)
    until(lambda: len(f.lines()) == 2 and len(text.lines()) == 2, why=f.tell)
    assert lines_of(f)[0] == {"has_gap": True, "since": 1} and lines_of(f)[1]["id"] == 3
    assert text.lines()[0].startswith("(some behind 1 were removed already")
    for s in (f, text):
        s.kill(signal.SIGINT).wait(130)


@pytest.mark.parametrize("comes", [True, False])
def test_follower_of_events_ends_quietly_with_its_reader(queue, comes):
    """Whether there is something to write to it or not."""
    queue.submit("true", "--gpus", "0")
    s = queue.world.spawn("bash", "-c", f"{program()} queue events -f --json --since 0 | head -n 1 > $W/first; echo ${{PIPESTATUS[0]}}",
                          env=queue.env)
    until(lambda: queue.world.text("first"))
    if comes:
        queue.submit("true", "--gpus", "0")
    s.wait(0)
    assert s.out == "141\n" and s.err == "", s.tell()


# ---- alerts ----

def fail_one(queue):
    job = queue.submit("echo it broke >&2; exit 3", "--vram", "1G", tick=True)
    queue.wait(job, code=1)
    return job


def test_alerts_stay_until_they_are_acknowledged(queue):
    assert queue.json("queue", "alerts", "--no-tick") == {"alerts": [], "open": 0}
    jobs = [fail_one(queue) for _ in range(3)]
    doc = queue.json("queue", "alerts", "--no-tick", code=1)
    assert doc["open"] == 3 and [a["job_id"] for a in doc["alerts"]] == jobs
    assert doc["alerts"][0]["kind"] == "job_failed" and doc["alerts"][0]["severity"] == "error"
    assert len(queue.json("queue", "alerts", "-n", "1", "--no-tick", code=1)["alerts"]) == 1
    text = queue.ask("queue", "alerts", "--detail", "--no-tick", code=1).out
    assert re.search(r"ID +TIME +LEVEL +KIND +JOB +NODE +WHAT", text) and "  | it broke" in text
    assert queue.json("queue", "ack", "1,3") == {"ok": True, "acknowledged": 2}
    assert queue.json("queue", "ack", "1") == {"ok": True, "acknowledged": 0}
    assert [a["id"] for a in queue.json("queue", "alerts", "--no-tick", code=1)["alerts"]] == [2]
    assert "1 alert acknowledged" in queue.ask("queue", "ack", "--all").out
    assert queue.json("queue", "alerts", "--no-tick")["open"] == 0
    assert len(queue.json("queue", "alerts", "--all", "--no-tick")["alerts"]) == 3
    assert queue.json("queue", "ack", code=1)["ok"] is False and "say which alerts" in queue.ask("queue", "ack", code=1).err


# ---- nodes ----

def test_drain_and_ignore(queue):
    queue.ask("queue", "tick")
    assert queue.json("queue", "drain", "LOC") == {"ok": True, "node": "local", "enabled": False}
    job = queue.submit("true", "--vram", "1G", tick=True)
    assert queue.state(job) == "pending" and "drained" in queue.ask("job", "why", str(job), "--no-tick").out
    assert queue.json("queue", "resume", "local") == {"ok": True, "node": "local", "enabled": True}
    queue.wait(job)
    assert queue.json("queue", "ignore", "local") == {"ok": True, "node": "local", "ignored": True}
    s = queue.json("queue", "status", "--no-tick")
    assert s["nodes"] == [] and s["ignored_nodes"] == ["local"]
    assert len(queue.json("queue", "status", "--no-tick", "--include-ignored")["nodes"]) == 1
    assert "(1 ignored; --include-ignored shows it)" in queue.ask("queue", "status", "--no-tick").out
    assert queue.json("queue", "unignore", "local") == {"ok": True, "node": "local", "ignored": False}
    assert "nobody" in queue.json("queue", "drain", "nobody", code=1)["error"]


def test_a_node_with_jobs_is_not_ignored(queue):
    job = queue.submit("sleep 60", "--vram", "1G", tick=True)
    until(lambda: queue.state(job) == "running")
    assert f"has 1 job of the queue on it ({job})" in queue.json("queue", "ignore", "local", code=1)["error"]
    assert queue.json("queue", "nodes", "--no-tick")["nodes"][0]["ignored"] is False
    queue.ask("job", "cancel", str(job))


def test_nothing_said_of_a_node_waits_for_a_pass(queue):
    """A pass that hangs holds the lease, not the database."""
    queue.ask("queue", "tick")
    with sqlite3.connect(queue.db) as d:
        d.execute("SELECT 1")
    assert queue.world.agents()
    over = threading.Event()

    def hold_all():  # one that is found silent is replaced
        while not over.wait(0.02):
            signal_agents(signal.SIGSTOP)

    def signal_agents(number):
        for pid in queue.world.agents():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
    signal_agents(signal.SIGSTOP)
    holder = threading.Thread(target=hold_all)
    holder.start()
    try:
        tick = queue.world.spawn(program(), "queue", "tick", env=queue.env)
        until(lambda: queue.json("queue", "status", "--no-tick")["tick_lock"])
        assert queue.json("queue", "drain", "local")["enabled"] is False
        lock = queue.json("queue", "status", "--no-tick")["tick_lock"]
        assert list(lock) == ["name", "owner", "acquired_at", "expires_at"] and lock["name"] == "tick"
        assert "a tick runs: " in queue.ask("queue", "status", "--no-tick").out.splitlines()[0]
        status = queue.world.spawn(program(), "queue", "status", "--tick", env=queue.env)
        until(lambda: int(re.search(r"SigCgt:\s*(\w+)", open(f"/proc/{status.pid}/status").read())[1], 16) & 2 or
              status.process.poll() is not None)
        assert status.kill(signal.SIGINT).wait(None) in (130, -signal.SIGINT) and status.out == ""
    finally:
        over.set()
        holder.join()
        signal_agents(signal.SIGCONT)
    tick.wait(None)


# ---- cards ----

def test_cards_are_taken_out_and_back(queue):
    assert queue.json("queue", "cards", "--no-tick") == {"cards": []}
    assert "`queue tick` looks at the nodes" in queue.json("queue", "card", "drain", "local:0", code=1)["error"]
    queue.ask("queue", "tick")
    assert queue.json("queue", "card", "drain", "local:0", "--reason", "fan")["in_service"] is False
    assert queue.json("queue", "card", "drain", "local:0")["changed"] is False
    card = queue.json("queue", "cards", "--no-tick")["cards"][0]
    assert card["in_service"] is False and card["out"]["why"] == "fan" and card["out"]["by"] == "person" and card["faults"] == []
    text = queue.ask("queue", "cards", "--no-tick").out
    assert re.search(r"^local:0 .* out ", text, re.M) and "gpustow queue card resume local:0" in text
    assert "out of service" in queue.ask("queue", "status", "--no-tick").out
    job = queue.submit("true", "--vram", "1G", tick=True)
    queue.wait(job)
    assert queue.json("job", "show", str(job), "--no-tick")["gpu_ids"] == [1]
    assert queue.json("queue", "card", "resume", "local:0")["changed"] is True
    assert all(c["in_service"] for c in queue.json("queue", "cards", "--no-tick")["cards"])
    for word in ("local:7", "local", "nobody:0", "0"):
        assert queue.json("queue", "card", "drain", word, code=1)["ok"] is False
    assert queue.ask("queue", "card", "mend", "local:0", code=1).err


# ---- wait ----

def test_wait_says_how_it_went(queue):
    good = queue.submit("true", "--vram", "1G", tick=True)
    bad = queue.submit("exit 4", "--vram", "1G", tick=True)
    doc = queue.wait(good)
    assert list(doc)[:4] == ["jobs", "all_done", "all_succeeded", "timed_out"] and doc["all_succeeded"]
    doc = queue.wait(good, bad, code=1)
    assert doc["all_done"] and not doc["all_succeeded"] and [j["id"] for j in doc["jobs"]] == [good, bad]
    assert "there's no job 99" in queue.json("job", "wait", "99", code=1)["error"]


def test_wait_that_is_over_is_no_failure(queue):
    slow = queue.submit("sleep 60", "--vram", "1G", tick=True)
    doc = queue.json("job", "wait", str(slow), "--timeout", "0.5", code=2)
    assert doc["timed_out"] and not doc["all_done"]
    quick = queue.submit("true", "--vram", "1G", tick=True)
    assert queue.json("job", "wait", str(slow), str(quick), "--any")["all_done"] is False
    queue.ask("job", "wait", str(slow), "--any", "--all", code=1)
    w = queue.world.spawn(program(), "job", "wait", str(slow), env=queue.env)
    until(lambda: is_polling(w.pid, 300), every=0, why=w.tell)  # between two of its looks
    w.kill(signal.SIGINT).wait(130)
    queue.ask("job", "cancel", str(slow))


def test_a_submit_that_is_held_at_once_says_so_once(queue):
    first = queue.submit("exit 3", "--vram", "1G", tick=True)
    queue.wait(first, code=1)
    said = queue.ask("job", "submit", "--after", str(first), "--", "true")
    assert f"submitted: held: needs job {first}, which ended as failed; " in said.out, said
    queue.ask("job", "cancel", str(first + 1))
    said = queue.ask("job", "logs", "-f", str(first + 1), code=None)
    assert "has ended: cancelled" in said.err and said.err.count("cancelled") == 1, said


def test_wait_on_what_is_held_ends(queue):
    bad = queue.submit("exit 1", "--vram", "1G", tick=True)
    after = queue.submit("true", "--after", str(bad), tick=True)
    doc = queue.wait(after, code=1)
    assert doc["stuck"] and not doc["all_done"] and doc["jobs"][0]["held"]


def test_wait_with_logs(queue):
    job = queue.submit("for i in 1 2 3; do echo line $i; done", "--vram", "1G", tick=True)
    queue.wait(job)
    assert queue.json("job", "wait", str(job), "--logs", "2")["jobs"][0]["log_tail"] == "line 2\nline 3\n"
    assert "line 1\nline 2\nline 3\n" in queue.ask("job", "wait", str(job), "--logs").out


# ---- logs ----

def test_logs_are_the_end_of_the_file(queue):
    job = queue.submit("for i in $(seq 300); do echo $i; done; echo no >&2", "--vram", "1G", tick=True)
    queue.wait(job)
    doc = queue.json("job", "logs", str(job))
    assert list(doc)[:4] == ["id", "stream", "log", "is_cut"] and doc["is_cut"]
    assert doc["log"].splitlines() == [str(i) for i in range(101, 301)]
    r = queue.ask("job", "logs", str(job), "-n", "2")
    assert r.out == "299\n300\n" and "only the last 2 lines" in r.err
    doc = queue.json("job", "logs", str(job), "--stderr")
    assert (doc["stream"], doc["log"], doc["is_cut"]) == ("stderr", "no\n", False)


def test_logs_of_what_has_not_run(queue):
    job = queue.submit("true", "--gpus", "0")
    assert queue.json("job", "logs", str(job), "--no-tick")["log"] == ""
    assert "hasn't run yet" in queue.ask("job", "logs", str(job), "--no-tick").err
    assert queue.json("job", "logs", "77", code=1)["ok"] is False


def test_following_ends_with_the_job(queue):
    job = queue.submit("echo one; while [ ! -e $W/go ]; do sleep 0.05; done; echo two", "--vram", "1G", tick=True)
    f = queue.world.spawn(program(), "job", "logs", "-f", str(job), env=queue.env)
    f.sees("^one$")
    assert f.process.poll() is None
    (queue.world.dir / "go").touch()
    f.wait(0)
    assert f.out == "one\ntwo\n" and f"job {job} has ended: completed, exit code 0" in f.err


def test_following_waits_for_the_start(queue):
    queue.ask("queue", "tick")
    queue.ask("queue", "drain", "local")
    job = queue.submit("echo hello", "--vram", "1G")
    f = queue.world.spawn(program(), "job", "logs", "-f", str(job), env=queue.env)
    until(lambda: "hasn't started yet" in f.err)
    queue.ask("queue", "resume", "local")
    f.wait(0)
    assert f.out == "hello\n"


def test_following_goes_into_the_retry(queue):
    job = queue.submit("echo try; [ -e $W/second ] && exit 0; touch $W/second; kill -9 $$", "--vram", "1G", "--retries", "1")
    f = queue.world.spawn(program(), "job", "logs", "-f", str(job), env=queue.env)
    f.wait(0)
    assert f.out == "try\ntry\n" and "attempt 2" in f.err


def test_following_is_ended_by_ctrl_c(queue):
    job = queue.submit("echo one; sleep 60", "--vram", "1G", tick=True)
    f = queue.world.spawn(program(), "job", "logs", "-f", str(job), env=queue.env)
    f.sees("^one$")
    f.kill(signal.SIGINT).wait(130)
    assert queue.state(job) == "running"
    queue.ask("job", "cancel", str(job))


def on_a_terminal(queue, *words):
    """What a terminal gets."""
    command = " ".join([program(), *words])
    done = subprocess.run(["script", "-qec", command, "/dev/null"], env={**queue.world.env, **queue.env, "TERM": "xterm"},
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return done.stdout.decode()


def test_a_terminal_gets_no_power_from_a_log(queue):
    script = queue.world.write(r"""printf '\033]0;title\007\033[31mred\033[0m\033[2J\a10%%\r50%%\r100%%\n'""" + "\n",
                               queue.world.dir / "s.sh")
    job = queue.submit("sh $W/s.sh", "--vram", "1G", tick=True)
    queue.wait(job)
    shown = on_a_terminal(queue, "job", "logs", str(job))
    assert shown == "100%\r\n" or shown.endswith("100%\x1b[0m\r\n") or "100%" in shown
    assert "\x1b]" not in shown and "\x1b[2J" not in shown and "\a" not in shown and "50%" not in shown
    assert "\x1b]0;title" in on_a_terminal(queue, "job", "logs", str(job), "--raw")
    assert queue.ask("job", "logs", str(job)).out == script.read_text() or \
        "\x1b[2J" in queue.ask("job", "logs", str(job)).out


# ---- advise ----

def test_advise_knows_what_ran(queue):
    assert queue.json("job", "advise") == {"shape": None, "advice": []}
    job = queue.submit("gpustow simjob --vram 3000 --ramp 0 --hold 8", "--vram", "5G", tick=True)
    queue.wait(job)
    (a,) = queue.json("job", "advise", str(job))["advice"]
    assert a["runs"] == 1 and a["peak_max_mb"] == 3000 and a["confidence"] == "low"
    # A fifth on top after one run, rounded up to a quarter of a GiB.
    assert a["suggested_vram_mb"] == 3840
    (b,) = queue.json("job", "advise", "--", "gpustow simjob --vram 9000 --ramp 2 --hold 1")["advice"]
    assert b == a
    assert "suggested: --vram 3840M --gpus 1" in queue.ask("job", "advise", str(job)).out
    assert "nothing is known of" in queue.ask("job", "advise", "--", "./other").out


# ---- import ----

# Its version 2: tables and columns as the Python nvidb 1.9 makes them.
NVIDB = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
INSERT INTO meta VALUES ('schema_version', '2'), ('last_tick_at', '2026-01-01T00:00:00+00:00');
CREATE TABLE nodes (name TEXT PRIMARY KEY, hostname TEXT, port INTEGER DEFAULT 22, username TEXT, state TEXT DEFAULT 'unknown',
  enabled INTEGER DEFAULT 1, ignored INTEGER DEFAULT 0, last_seen TEXT, last_error TEXT, gpu_count INTEGER, probed_at TEXT,
  sort_order INTEGER);
CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, command TEXT NOT NULL, workdir TEXT, env TEXT,
  state TEXT DEFAULT 'pending', priority INTEGER DEFAULT 0, gpus INTEGER DEFAULT 1, vram_mb INTEGER DEFAULT 0, node_constraint TEXT,
  depends_on TEXT, depends_any TEXT, max_runtime_s REAL, submitter TEXT, tags TEXT, created_at TEXT, updated_at TEXT,
  started_at TEXT, finished_at TEXT, node TEXT, gpu_ids TEXT, lane TEXT, lane_seq INTEGER, remote_pid INTEGER, remote_pgid INTEGER,
  run_dir TEXT, exit_code INTEGER, attempt INTEGER DEFAULT 0, max_retries INTEGER DEFAULT 0, last_error TEXT, heartbeat_at TEXT,
  gpu_mem_mb INTEGER, result TEXT, notes TEXT, progress TEXT, progress_at TEXT, held_reason TEXT);
CREATE TABLE lanes (name TEXT PRIMARY KEY, node TEXT, gpu_ids TEXT, paused INTEGER DEFAULT 0, concurrency INTEGER DEFAULT 1,
  runner INTEGER DEFAULT 1, runner_state TEXT, runner_seen_at TEXT, created_at TEXT, updated_at TEXT);
CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, ts TEXT, kind TEXT, job_id INTEGER, node TEXT, message TEXT, data TEXT);
CREATE TABLE alerts (id INTEGER PRIMARY KEY AUTOINCREMENT, ts TEXT, kind TEXT, severity TEXT DEFAULT 'error', job_id INTEGER,
  node TEXT, title TEXT NOT NULL, detail TEXT, acknowledged_at TEXT, notified_at TEXT);
CREATE TABLE locks (name TEXT PRIMARY KEY, owner TEXT, acquired_at TEXT, expires_at TEXT);
INSERT INTO jobs (id, name, command, state, created_at, started_at, finished_at, node, gpu_ids, exit_code, attempt) VALUES
  (4, 'old', 'python a.py', 'completed', '2026-01-01T00:00:00+00:00', '2026-01-01T00:01:00+00:00', '2026-01-01T00:02:00+00:00', 'n1',
   '0', 0, 1);
INSERT INTO jobs (id, name, command, state, vram_mb, created_at) VALUES
  (7, 'next', 'python b.py', 'pending', 4096, '2026-01-01T00:03:00+00:00');
"""


def make_nvidb(path):
    """What makes a file a Python nvidb's, with one job that waits."""
    with closing(sqlite3.connect(path)) as d:
        d.executescript(NVIDB)


def test_a_python_nvidb_database_is_named_and_left_alone(queue):
    make_nvidb(queue.db)
    before = queue.db.read_bytes()
    for words in (["queue", "status", "--no-tick"], ["job", "ls", "--no-tick"], ["queue", "drain", "local"],
                  ["job", "submit", "--no-tick", "--", "true"], ["queue", "alerts"], ["queue", "tick"]):
        assert "queue import-nvidb" in queue.ask(*words, code=1).err, words
    assert queue.db.read_bytes() == before


def test_a_python_nvidb_queue_is_taken_over(queue):
    make_nvidb(queue.db)
    doc = queue.json("queue", "import-nvidb")
    assert doc["ok"] and doc["jobs"] == 2 and doc["pending"] == 1 and doc["moved_to"] == str(queue.home / "queue-nvidb.db")
    assert (queue.home / "queue-nvidb.db").exists()
    assert [(j["id"], j["state"]) for j in queue.json("job", "ls", "--no-tick")["jobs"]] == [(4, "completed"), (7, "pending")]
    make_nvidb(queue.world.dir / "old.db")
    assert queue.json("queue", "import-nvidb", queue.world.dir / "old.db", code=1)["ok"] is False
    r = queue.ask("queue", "import-nvidb", queue.world.dir / "old.db", "--db-path", queue.world.dir / "new.db")
    assert "2 jobs taken over" in r.out and "1 wait" in r.out and (queue.world.dir / "old.db").exists()


# ---- the command line ----

@pytest.mark.parametrize("words", [
    ["queue", "--json", "status", "--no-tick"], ["--json", "queue", "status", "--no-tick"], ["q", "--json", "status", "--no-tick"],
    ["queue", "status", "--no-tick", "--json"], ["queue", "--json", "--no-tick"], ["job", "--json", "ls", "--no-tick"],
])
def test_json_may_stand_anywhere(queue, words):
    assert isinstance(json.loads(queue.ask(*words).out), dict)


def test_db_path_may_stand_between_the_words(queue):
    other = queue.world.dir / "other.db"
    for words in (["job", "--db-path", other, "submit", "--no-tick", "--", "true"],
                  ["job", f"--db-path={other}", "submit", "--no-tick", "--", "true"],
                  ["job", "submit", "--no-tick", "--db-path", other, "--", "true"]):
        queue.ask(*words)
    assert not queue.db.exists()
    assert len(queue.json("job", "ls", "--no-tick", "--db-path", other)["jobs"]) == 3
    # What belongs to the job isn't ours.
    job = queue.submit("./x", "--gpus", "0")
    queue.ask("job", "submit", "--no-tick", "--gpus", "0", "--", "./x", "--json", "--db-path", "p")
    assert [j["command"] for j in queue.json("job", "ls", "--no-tick")["jobs"]] == ["./x", "./x --json --db-path p"] and job == 1


def test_local_is_taken_anywhere_where_the_queue_is_elsewhere(queue):
    (queue.home / "queue.yml").write_text("remote:\n  host: far.example\n")
    assert "far.example" in queue.ask("queue", "status", "--no-tick", code=1).err
    for words in (["queue", "--local", "status", "--no-tick"], ["queue", "status", "--no-tick", "--local"]):
        queue.ask(*words)


def test_mistakes_have_their_codes(queue):
    assert "did you mean 'gpustow queue status'" in queue.ask("queue", "stats", code=2).err
    assert "say what to do with jobs" in queue.ask("job", code=1).err
    queue.ask("queue", "status", "--nonsense", code=2)
    queue.ask("queue", "drain", code=2)
    queue.ask("job", "logs", code=2)
    assert queue.json("job", "logs", "x", code=1)["ok"] is False
    assert queue.json("job", "wait", "1", "--timeout", "0", code=1)["ok"] is False


def test_a_config_that_cannot_be_read_is_an_error_not_an_empty_one(queue):
    (queue.home / "config.yml").write_text("servers: [\n")
    assert "config.yml" in queue.json("queue", "status", "--no-tick", code=1)["error"]
    assert not queue.db.exists()


def test_completion_offers_what_there_is(queue):
    job = queue.submit("true", "--gpus", "0", "-n", "nap")
    queue.ask("queue", "tick")
    assert queue.ask("__complete", "--", "job", "show").out.startswith(f"{job}\t")
    assert queue.ask("__complete", "--", "queue", "drain").out == "local\tthis machine\n"
    assert queue.ask("__complete", "--", "q", "card", "drain").out.startswith("local:0\t")
    assert queue.ask("__complete", "--", "job", "ls", "--node").out == "local\tthis machine\n"


def test_completion_makes_nothing(queue):
    assert queue.ask("__complete", "--", "job", "show").out == ""
    assert not queue.db.exists()
