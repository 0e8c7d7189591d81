"""The queue's daemon: what makes it move, what can't hold it up, and what its end leaves."""
import fcntl
import json
import os
import signal
import socket
import sqlite3
import threading
import time

import pytest
from harness import is_alive, is_polling, note, program, simjob, until, wait_for
from queue_bed import TERMINAL, Queue


class Daemon:
    def __init__(self, queue, *args, env=None, ready=True):
        self.queue, self.world = queue, queue.world
        self.s = self.world.spawn(program(), "queue", "daemon", *args, env=env)
        if ready:
            until(lambda: self.state() or self.s.process.poll() is not None, why=self.s.tell)

    def talk(self, *words):
        """Says each word, and returns a function that reads the next message."""
        c = socket.socket(socket.AF_UNIX)
        c.settimeout(30)
        c.connect(str(self.queue.home / "queue.sock"))
        f = c.makefile("rw")

        def hear():
            line = f.readline()
            assert line, "the daemon closed the connection"
            return json.loads(line)
        assert hear()["op"] == "hello"
        def say(word):
            f.write(json.dumps({"op": word}) + "\n")
            f.flush()
        for w in words:
            say(w)
        hear.say = say
        hear.close = lambda: (f.close(), c.close())
        return hear

    def state(self):
        try:
            hear = self.talk("state")
            state = hear()
            hear.close()
            return state
        except OSError:
            return None

    def passes(self):
        return self.state()["passes"]

    def end(self, signo=signal.SIGTERM, code=0):
        self.s.kill(signo).wait(code)


@pytest.fixture
def queue(world):
    return Queue(world)


def second_machine(world, root="agent2"):
    """Another agent of this machine, reached as if by ssh: with its own root it's another node."""
    ssh = world.dir / "bin" / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do case "$last" in -O) exit 255;; -G) exec /usr/bin/ssh "$@";; esac; done\n'
                   f'GPUSTOW_AGENT_ROOT={world.dir}/{root} exec sh -c "$last" 2>>{world.dir}/ssh.err\n')
    ssh.chmod(0o755)
    config = world.dir / "home" / ".gpustow" / "config.yml"
    config.write_text(config.read_text() + "  include_local: true\nservers:\n  - nickname: far\n    hostname: far.example\n")


def agent_of(world, name):
    """pid of the agent with that root."""
    def look():
        pids = [p for p, line in world.processes().items() if "gpustow-agent" in line and str(world.dir / name) + "/" in line + "/"]
        return [p for p in world.agents() if p in pids]
    return until(look, why=world.tell)[0]


# --- what makes it move ---

def test_nudge_starts_what_was_submitted_and_its_tick_is_the_daemons_summary(world, queue):
    d = Daemon(queue, "--interval", "600")
    until(lambda: queue.nodes().get("local", {}).get("state") == "up")
    job = queue.submit(note("ran"), gpus=1, vram_mib=1000)
    summary = queue.tick()
    assert summary["ran"] and summary["nodes_up"] == 1
    assert [x["id"] for x in summary["dispatched"]] == [job]
    until(lambda: queue.job(job)["state"] == "completed")
    # The command had no lease of its own: the epoch is still the daemon's.
    assert queue.rows("SELECT epoch FROM lease") == [{"epoch": 1}]
    d.end()


def test_end_of_a_job_starts_the_next_one_without_anybody(world, queue):
    d = Daemon(queue, "--interval", "600")
    jobs = [queue.submit(note(str(i)), gpus=1, vram_mib=20000) for i in range(8)]
    queue.tick()
    until(lambda: all(queue.job(j)["state"] == "completed" for j in jobs), why=lambda: json.dumps([queue.jobs(), d.state()]))
    assert sorted(world.judge()) == [str(i) for i in range(8)]
    d.end()


def test_wait_returns_on_the_event(world, queue):
    d = Daemon(queue, "--interval", "600")
    job = queue.submit(wait_for("go"))
    queue.tick()
    until(lambda: queue.job(job)["state"] == "running")
    # Its own look, without an event, would come in an hour.
    w = world.spawn(program(), "job", "wait", str(job), "--json", env={"GPUSTOW_TEST_LOOK_MS": "3600000"})
    until(lambda: is_polling(w.pid, 3600000), why=w.tell)
    before = d.passes()
    (world.dir / "go").touch()
    w.wait(0)
    assert json.loads(w.out)["all_done"] and d.passes() - before <= 3
    d.end()


def test_watcher_is_told_what_happens(world, queue):
    d = Daemon(queue)
    hear = d.talk("watch")
    assert hear()["op"] == "watching"
    job = queue.submit("true")
    queue.tick()
    kinds = []
    while "job_finished" not in kinds:
        msg = hear()
        assert msg["op"] == "events"
        kinds += [e["kind"] for e in msg["events"] if e["job_id"] == job]
    assert kinds == ["job_submitted", "job_started", "job_finished"]
    hear.close()
    d.end()


def test_followed_events_have_no_gap_when_the_daemon_goes_and_comes(world, queue):
    d = Daemon(queue, "--interval", "600")
    f = world.spawn(program(), "queue", "events", "-f", "--json", "--since", "0")
    jobs = []

    def work(n):
        new = [queue.submit("true") for _ in range(n)]
        jobs.extend(new)
        return new

    def followed():
        return [json.loads(line)["id"] for line in f.lines()]
    until(lambda: followed(), why=f.tell)
    for signo, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 0)):
        done = work(2)
        queue.tick()
        until(lambda: all(queue.job(j)["state"] == "completed" for j in done))
        work(1)
        d.end(signo, code)
        work(1)
        d = Daemon(queue, "--interval", "600")
        until(lambda: all(queue.job(j)["state"] == "completed" for j in jobs), why=lambda: json.dumps([d.state(), queue.jobs()]))
    ids = [r["id"] for r in queue.rows("SELECT id FROM events ORDER BY id")]
    until(lambda: len(followed()) >= len(ids), why=f.tell)
    assert followed() == ids
    f.kill(signal.SIGINT).wait(130)
    d.end()


def test_memory_that_becomes_free_starts_what_waits(world):
    queue = Queue(world, sim="1")
    stranger = world.foreign({0: 20000})
    d = Daemon(queue, "--interval", "600")
    job = queue.submit(note("ran"), gpus=1, vram_mib=10000)
    assert queue.tick()["dispatched"] == []
    before = d.passes()
    stranger.end()
    world.foreigners.remove(stranger)
    until(lambda: queue.job(job)["state"] == "completed", why=lambda: json.dumps(d.state()))
    assert d.passes() > before
    d.end()


def test_nudge_in_the_record_of_who_finds_no_socket(world, queue):
    d = Daemon(queue, "--interval", "600")
    until(lambda: d.passes() >= 2)
    job = queue.submit(note("ran"))
    (queue.home / "queue.sock").rename(queue.home / "elsewhere")
    queue.tick()
    queue.ends(job)
    (queue.home / "elsewhere").unlink()
    d.end()


# --- what can't hold it up ---

def test_w40_hung_node_holds_up_no_other(world, queue):
    world.agent_may_die = True
    second_machine(world)
    d = Daemon(queue, "--interval", "600")
    until(lambda: {n: r["state"] for n, r in queue.nodes().items()} == {"local": "up", "far": "up"},
          why=lambda: json.dumps([d.state(), queue.nodes()], default=str))

    def time_of_a_start():
        hear = d.talk()
        job = queue.submit("true", node="local")
        begun = time.monotonic()
        hear.say("tick")
        until(lambda: queue.job(job)["state"] != "pending", every=0.005, why=lambda: json.dumps([d.state(), queue.jobs()]))
        took = time.monotonic() - begun
        hear.close()
        return took
    alone = [time_of_a_start() for _ in range(8)]
    far = agent_of(world, "agent2")
    os.kill(far, signal.SIGSTOP)
    try:
        hung = queue.submit("true", node="far")
        beside = [time_of_a_start() for _ in range(8)]
        assert queue.job(hung)["state"] == "pending", json.dumps([d.state(), far, world.agents(), world.processes(), alone, beside, queue.jobs(), queue.attempts(hung)])
        # Whoever would wait for it would take a second and more each time. What the machine does besides only adds: the
        # quickest of each. (The first may take that long: nobody knew yet.)
        assert min(beside) < 2 * min(alone) + 0.5, (alone, beside)
    finally:
        world.signal([far], signal.SIGCONT)
    until(lambda: queue.job(hung)["state"] == "completed", why=lambda: json.dumps([d.state(), queue.jobs()]))
    d.end()


def test_start_of_this_machines_agent_that_hangs_holds_up_nothing(world, queue):
    """What is seen while one and the same start hangs: a loop that waits for it does nothing until that has been ended."""
    second_machine(world)
    wedged = world.dir / "bin" / "wedged"
    wedged.write_text("#!/bin/sh\necho $$ > $W/start.$$; mv $W/start.$$ $W/start; exec sleep 600\n")
    wedged.chmod(0o755)
    d = Daemon(queue, "--interval", "600", env={"GPUSTOW_AGENT": str(wedged)})
    until(lambda: "far" in [n for n, r in queue.nodes().items() if r["state"] == "up"], why=lambda: json.dumps(d.state()))

    def in_one_start():
        pid = int(world.text("start") or 0)
        if not pid or not is_alive(pid):
            return False
        answered = d.state()["pid"] == d.s.pid and is_alive(pid)
        job = queue.submit("true", node="far")
        hear = d.talk("tick")
        hear()
        hear.close()
        until(lambda: queue.job(job)["state"] == "completed", why=lambda: json.dumps([d.state(), queue.jobs()]))
        return answered and is_alive(pid)
    until(in_one_start, deadline=60)
    links = {x["name"]: x for x in d.state()["links"]}
    assert links["local"]["state"] in ("connecting", "down") and links["far"]["state"] == "up"
    # It's told of, and goes on by itself once nothing hangs any more.
    until(lambda: "did not come up within" in ({x["name"]: x for x in d.state()["links"]}["local"]["why"] or ""), why=lambda: json.dumps(d.state()))
    wedged.write_text("#!/bin/sh\nexec $(ls $HOME/.cache/gpustow/agent-* | head -1) \"$@\"\n")
    until(lambda: {x["name"]: x["state"] for x in d.state()["links"]}["local"] == "up", why=lambda: json.dumps(d.state()))
    d.end()


def test_w40_hanging_notify_command_holds_up_nothing(world):
    queue = Queue(world, settings=("notify:", "  desktop: false", f"  command: 'touch {world.dir}/hook; sleep 100'"))
    d = Daemon(queue, "--interval", "600")
    bad = queue.submit("exit 3")
    queue.tick()
    until((world.dir / "hook").exists, why=lambda: json.dumps([d.state(), queue.jobs()]))
    assert queue.job(bad)["state"] == "failed"
    for i in range(3):
        job = queue.submit("true")
        queue.tick()  # a pass that the end before it asked for may have started it already
        until(lambda: queue.job(job)["state"] in ("running", "completed"))
    until(lambda: queue.job(job)["state"] == "completed")
    d.end()


def test_w40_half_edited_configuration_keeps_the_last_good_one(world, queue):
    d = Daemon(queue, "--interval", "600")
    config = queue.home / "config.yml"
    good = config.read_text()
    config.write_text(good + "  headroom_mb: [1,\n")
    until(lambda: d.state()["config_error"], why=lambda: json.dumps(d.state()))
    assert "config.yml line" in d.state()["config_error"]
    job = queue.submit("true", gpus=1, vram_mib=1000)
    # A command reads the file itself, and refuses; the daemon goes on.
    assert "config.yml" in world.ask("queue", "tick", code=1).err
    hear = d.talk("tick")
    assert hear()["tick"]["ran"]
    hear.close()
    until(lambda: queue.job(job)["state"] == "completed", why=lambda: json.dumps(d.state()))
    assert d.s.err.count("the configuration is left as it was") == 1
    config.write_text(good + "  headroom_mb: 1024\n")
    until(lambda: d.state()["config_error"] is None)
    # And the new one counts: 24576 - 1024 is less than this.
    job = queue.submit("true", gpus=1, vram_mib=23800)
    assert queue.tick()["dispatched"] == []
    config.write_text(good)
    until(lambda: queue.job(job)["state"] == "completed", why=lambda: json.dumps([d.state(), queue.jobs()]))
    d.end()


def test_one_machine_under_two_names_is_refused_and_left_in_peace(world, queue):
    second_machine(world, "agent")
    d = Daemon(queue, "--interval", "2")
    until(lambda: {n: r["state"] for n, r in queue.nodes().items()} == {"local": "refused", "far": "refused"},
          why=lambda: json.dumps([d.state(), queue.nodes()], default=str))
    job = queue.submit("true")
    queue.tick()
    before = d.passes()
    time.sleep(4.2)
    # Two links that push each other out would have a pass with each push.
    assert d.passes() - before <= 6, d.state()
    assert queue.job(job)["state"] == "pending"
    assert {x["state"] for x in d.state()["links"]} == {"twin"}
    d.end()


def test_node_that_leaves_the_configuration_and_comes_back(world, queue):
    config = queue.home / "config.yml"
    alone = config.read_text()
    second_machine(world)
    both = config.read_text()
    d = Daemon(queue, "--interval", "600")
    until(lambda: {x["name"]: x["state"] for x in d.state()["links"]} == {"local": "up", "far": "up"}, why=lambda: json.dumps(d.state()))
    job = queue.submit(note("ran", wait_for("go")), node="far")
    queue.tick()
    until(lambda: queue.job(job)["state"] == "running")
    config.write_text(alone)
    # What runs there is watched to its end, and then nobody has to do with it any more.
    until(lambda: d.passes() and world.ask_json("queue", "status", "--no-tick", "--json"))
    (world.dir / "go").touch()
    until(lambda: queue.job(job)["state"] == "completed", why=lambda: json.dumps([d.state(), queue.jobs()]))
    until(lambda: queue.tick() and [x["name"] for x in d.state()["links"]] == ["local"], why=lambda: json.dumps(d.state()))
    config.write_text(both)
    until(lambda: {x["name"]: x["state"] for x in d.state()["links"]} == {"local": "up", "far": "up"}, why=lambda: json.dumps(d.state()))
    assert world.judge() == ["ran"]
    d.end()


class Held:
    """The record's lock in another process's hands: by the lock file, or by SQLite's own, as a shell at the database has it."""
    def __init__(self, queue, how):
        if how == "lock file":
            self.it = open(f"{queue.path}.lock", "r+")
            fcntl.flock(self.it, fcntl.LOCK_EX)
        else:
            self.it = sqlite3.connect(queue.path, timeout=30, isolation_level=None)
            self.it.execute("BEGIN IMMEDIATE")

    def end(self):
        self.it.close()


@pytest.mark.parametrize("how", ["lock file", "sqlite"])
def test_record_that_another_process_has_locked_stops_nothing_but_the_writing(world, queue, how):
    path = world.dir / "notify"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(str(path))
    s.setblocking(False)
    d = Daemon(queue, "--interval", "600", env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"})
    first = queue.submit(note("first", wait_for("go")), gpus=1, vram_mib=20000)
    second = queue.submit(note("second"), gpus=1, vram_mib=20000, after=[first])
    queue.tick()
    until(lambda: queue.job(first)["state"] == "running", why=lambda: json.dumps([d.state(), queue.jobs()]))

    def look(seconds):
        """How long each answer took, how often it said that it's alive, and what it said last."""
        took, alive, end = [], 0, time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.monotonic()
            state = d.state()
            took.append(time.monotonic() - begun)
            try:
                while True:
                    alive += b"WATCHDOG=1" in s.recv(4096)
            except BlockingIOError:
                pass
            time.sleep(0.05)
        return sorted(took)[len(took) * 3 // 4], alive / seconds, state
    alone, rate, state = look(2)
    assert state["record_busy"] is None and state["record_busy_ms"] is None
    held = Held(queue, how)
    try:
        # Who waits for a pass waits, and nobody else does; and an end and its consequence have to be written down.
        hear = d.talk("tick")
        (world.dir / "go").touch()
        beside, rate_beside, state = look(5)
        assert "is being written to by" in state["record_busy"] if how == "lock file" else "another program holds" in state["record_busy"]
        assert 0 < state["record_busy_ms"] < 60000
        assert "what happens can't be written down yet" in world.ask("queue", "status", "--no-tick").out
        assert queue.job(first)["state"] == "running"
        passes = state["passes"]
    finally:
        held.end()
    assert beside < 3 * alone + 0.5, (alone, beside)
    assert rate_beside > rate / 4, (rate, rate_beside)
    assert hear()["tick"]["ran"]
    hear.close()
    until(lambda: queue.job(second)["state"] == "completed", why=lambda: json.dumps([d.state(), queue.jobs()]))
    assert world.judge() == ["first", "second"]
    assert [queue.job(j)["attempt"] for j in (first, second)] == [1, 1]
    state = d.state()
    assert state["record_busy"] is None and state["last_error"] is None and state["passes"] > passes
    # What it waited for isn't counted as its own work: the next pass comes at once.
    assert state["last_pass_took_ms"] < 4000
    assert "a pass was broken off" not in d.s.err
    d.end()
    s.close()


def test_end_while_another_process_has_the_record_locked(world, queue):
    d = Daemon(queue, "--interval", "600")
    job = queue.submit(note("ran", wait_for("go")))
    queue.tick()
    until(lambda: queue.job(job)["state"] == "running")
    held = Held(queue, "lock file")
    try:
        (world.dir / "go").touch()
        until(lambda: d.state()["record_busy"], why=lambda: json.dumps(d.state()))
        d.end()
    finally:
        held.end()
    queue.ends(job)
    assert queue.job(job)["state"] == "completed" and world.judge() == ["ran"]


# --- its own end, and others' ---

def test_kill_9_while_jobs_run_loses_nothing_and_starts_nothing_twice(world, queue):
    d = Daemon(queue)
    ends = [queue.submit(note(f"a{i}", "sleep 0.5"), gpus=1, vram_mib=1000) for i in range(4)]
    stays = queue.submit(note("stays", wait_for("go")))
    queue.tick()
    until(lambda: queue.job(stays)["state"] == "running")
    d.end(signal.SIGKILL, code=-9)
    assert (queue.home / "queue.sock").exists()  # what a dead one leaves is no obstacle
    until(lambda: len(world.judge()) == 5)
    d = Daemon(queue)
    until(lambda: all(queue.job(j)["state"] == "completed" for j in ends), why=lambda: json.dumps([queue.jobs(), d.state()]))
    assert queue.job(stays)["state"] == "running"
    (world.dir / "go").touch()
    until(lambda: queue.job(stays)["state"] == "completed")
    assert sorted(world.judge()) == ["a0", "a1", "a2", "a3", "stays"]
    assert all(queue.job(j)["attempt"] == 1 for j in [*ends, stays])
    d.end()


@pytest.mark.parametrize("point", ["queue.after-bind", "queue.after-launch", "queue.before-settle", "queue.after-settle",
                                   "daemon.before-pass", "daemon.before-news", "daemon.after-pass"])
def test_killed_at_a_point_it_goes_on_from_there(world, queue, point):
    d = Daemon(queue, "--interval", "600", ready=False, env={"GPUSTOW_FAULT": f"{point}:kill"})
    job = queue.submit(note("ran"), gpus=1, vram_mib=1000)
    # It may die before it has greeted anybody; then the command makes its own pass.
    queue.tick()
    until(lambda: d.s.process.poll() is not None or queue.tick())
    d.s.wait(-9)
    d = Daemon(queue, "--interval", "600")
    until(lambda: queue.job(job)["state"] == "completed", why=lambda: json.dumps([queue.jobs(), d.state()]))
    assert world.judge() == ["ran"]
    d.end()


def test_body_that_arrives_while_nobody_answers_is_followed_by_its_launch(world, queue):
    """It goes ahead in pieces, and the node is late with its answer meanwhile. Nothing is bound, or sent, anew for that."""
    d = Daemon(queue, "--interval", "600")
    until(lambda: queue.nodes().get("local", {}).get("state") == "up")
    job = queue.submit("# " + "x" * 7_000_000 + "\n" + note("large"))
    [agent], hear = world.agents(), d.talk("tick")
    until(lambda: queue.jobs()[0]["is_bound"], every=0.001)
    os.kill(agent, signal.SIGSTOP)
    [first], before = queue.attempts(job), d.passes()
    hear.say("tick")
    until(lambda: d.passes() > before)
    assert queue.jobs()[0]["state"] == "pending"
    world.signal([agent], signal.SIGCONT)
    until(lambda: queue.jobs()[0]["state"] == "completed")  # with no other pass than those that follow by themselves
    assert world.judge() == ["large"]
    assert queue.attempts(job)[0]["token"] == first["token"], [(r["kind"], r["message"][:200]) for r in queue.rows("SELECT kind, message FROM events WHERE kind NOT LIKE '%submitted'")]
    hear.close()
    d.end()


def test_second_daemon_is_refused_by_name(world, queue):
    d = Daemon(queue)
    r = world.ask("queue", "daemon", code=1)
    assert f"process {d.s.pid}" in r.err
    assert d.state()["pid"] == d.s.pid
    # Also while the first can't answer.
    os.kill(d.s.pid, signal.SIGSTOP)
    try:
        r = world.ask("queue", "daemon", code=1)
    finally:
        os.kill(d.s.pid, signal.SIGCONT)
    assert f"process {d.s.pid}" in r.err
    assert queue.tick()["ran"]
    d.end()


def test_lease_that_was_lost_is_told_of_and_taken_back(world, queue):
    d = Daemon(queue, "--interval", "2")
    job = queue.submit(note("ran", wait_for("go")))
    queue.tick()
    until(lambda: queue.job(job)["state"] == "running")
    # Frozen past its lease, as a laptop that slept: somebody else has had it meanwhile.
    os.kill(d.s.pid, signal.SIGSTOP)
    db = sqlite3.connect(queue.path, timeout=30)
    with db:
        db.execute("UPDATE lease SET expires_boot_ms = 1")
    db.close()
    queue.tick()
    os.kill(d.s.pid, signal.SIGCONT)
    until(lambda: "lease was lost" in d.s.err and "lease is ours again" in d.s.err, why=d.s.tell)
    (world.dir / "go").touch()
    until(lambda: queue.job(job)["state"] == "completed", why=lambda: json.dumps([queue.jobs(), d.state()]))
    assert world.judge() == ["ran"]
    d.end()


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_and_the_jobs_go_on(world, queue, signo):
    d = Daemon(queue)
    job = queue.submit(wait_for("go"))
    queue.tick()
    until(lambda: queue.job(job)["state"] == "running")
    d.end(signo)
    assert not (queue.home / "queue.sock").exists()
    assert queue.rows("SELECT owner FROM lease") == [{"owner": None}]
    assert queue.job(job)["state"] == "running"
    (world.dir / "go").touch()
    queue.ends(job)
    assert queue.job(job)["state"] == "completed"


# --- what it says of itself ---

def test_sd_notify_on_a_plain_socket(world, queue):
    path = world.dir / "notify"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(str(path))
    s.settimeout(30)
    said = []
    d = Daemon(queue, env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"})

    def hears(word):
        while not any(word in x for x in said):
            said.append(s.recv(4096).decode())
    hears("READY=1")
    hears("STATUS=")
    del said[:]
    hears("WATCHDOG=1")
    del said[:]
    hears("WATCHDOG=1")
    d.s.kill(signal.SIGHUP)
    hears("RELOADING=1\nMONOTONIC_USEC=")
    at = next(i for i, x in enumerate(said) if "RELOADING" in x)
    del said[:at]
    hears("READY=1")
    os.kill(d.s.pid, signal.SIGTERM)
    hears("STOPPING=1")
    d.s.wait(0)
    s.close()


def test_watchdog_is_silent_for_another_process(world, queue):
    path = world.dir / "notify"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(str(path))
    s.settimeout(30)
    d = Daemon(queue, env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"})
    time.sleep(0.5)
    d.end()
    s.settimeout(0.1)
    said = []
    try:
        while True:
            said.append(s.recv(4096).decode())
    except TimeoutError:
        pass
    assert "READY=1" in said and "STOPPING=1" in said and not any("WATCHDOG" in x for x in said)
    s.close()


def test_sighup_reads_the_configuration_anew(world, queue):
    config = queue.home / "config.yml"
    d = Daemon(queue, "--interval", "600")
    # A link's target: nothing happens in the directory that is watched.
    target = world.dir / "config-elsewhere.yml"
    target.write_text(config.read_text())
    config.unlink()
    config.symlink_to(target)
    until(lambda: d.passes() >= 2)
    target.write_text(target.read_text() + "  headroom_mb: nonsense\n")
    d.s.kill(signal.SIGHUP)
    until(lambda: d.state()["config_error"])
    d.end()


def test_documents_and_state(world, queue):
    d = Daemon(queue, "--interval", "600", "--json")
    job = queue.submit("true")
    queue.tick()
    until(lambda: queue.job(job)["state"] == "completed")
    until(lambda: '"completed"' in d.s.out, why=d.s.tell)
    # Who isn't greeted within a second goes on without it.
    told = until(lambda: world.ask_json("queue", "status", "--no-tick", "--json")["daemon"])
    assert told["pid"] == d.s.pid and told["passes"] >= 2
    assert [(x["name"], x["state"]) for x in told["links"]] == [("local", "up")]
    until(lambda: f"daemon {d.s.pid}" in world.ask("queue", "status", "--no-tick").out)
    d.end()
    docs, rest, decoder = [], d.s.out.strip(), json.JSONDecoder()
    while rest:
        doc, n = decoder.raw_decode(rest)
        docs.append(doc)
        rest = rest[n:].strip()
    assert all(set(x) == {"tick", "notified", "backup", "backup_error"} for x in docs)
    assert [f["id"] for x in docs for f in x["tick"]["finished"]] == [job]
    assert [f["id"] for x in docs for f in x["tick"]["dispatched"]] == [job]
    assert world.ask_json("queue", "status", "--no-tick", "--json")["daemon"] is None


def test_alerts_are_told_and_delivered(world):
    queue = Queue(world, settings=("notify:", "  desktop: false"))
    d = Daemon(queue, "--interval", "600")
    queue.submit("exit 3")
    queue.tick()
    until(lambda: (queue.home / "alerts.log").exists(), why=d.s.tell)
    until(lambda: "job_failed" in d.s.err, why=d.s.tell)
    d.end()


def test_backup_that_is_due_is_made_beside_the_passes(world):
    queue = Queue(world, settings=("backup:", "  enabled: true", "  interval_hours: 24", "  keep: 2"))
    d = Daemon(queue, "--interval", "600", "--json")
    until(lambda: '"verified": true' in d.s.out, why=d.s.tell)
    until(lambda: not d.state()["backup_runs"])
    made = [p.name for p in (queue.home / "backups").iterdir()]
    assert len(made) == 1 and made[0].startswith("queue-") and made[0].endswith(".db"), made
    queue.submit("true")
    queue.tick()
    assert len(list((queue.home / "backups").iterdir())) == 1
    d.end()


def test_backup_that_fails_is_told_once_and_stops_nothing(world):
    (world.dir / "file").write_text("")
    queue = Queue(world, settings=("backup:", "  enabled: true", f"  directory: {world.dir}/file/below"))
    d = Daemon(queue, "--interval", "2")
    until(lambda: d.state()["backup_error"], why=d.s.tell)
    before = d.passes()
    job = queue.submit("true")
    queue.tick()
    until(lambda: queue.job(job)["state"] == "completed" and d.passes() > before)
    assert d.s.err.count("a backup failed") == 1, d.s.err
    d.end()


def test_once_json_is_one_document(world):
    queue = Queue(world, settings=("notify:", "  desktop: false"))
    queue.submit("exit 3")
    docs = []

    def once():
        docs.append(world.ask_json("queue", "daemon", "--once", "--json"))
        return docs[-1]["notified"]
    until(once, every=0.1, why=lambda: json.dumps(docs[-3:]))
    assert set(docs[0]) == {"tick", "notified", "backup", "backup_error"}
    assert [x["id"] for d in docs for x in d["tick"]["dispatched"]] == [1]
    assert sum(d["notified"] for d in docs) == 1


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_once_is_ended_while_it_delivers(world, signo):
    """A hook that hangs has its time, but not from who says that it's enough; and nothing strange is said."""
    queue = Queue(world, sim="1", settings=(f"notify: {{desktop: false, command: 'touch {world.dir}/asked; sleep 300'}}",))
    job = queue.submit("exit 3", gpus=0)
    queue.ends(job)
    s = world.spawn(program(), "queue", "daemon", "--once")
    until(lambda: (world.dir / "asked").exists(), why=s.tell)
    os.kill(s.pid, signo)
    until(lambda: s.process.poll() is not None, 20, why=s.tell)
    s.wait(0)
    assert "warn" not in s.err, s.err


def test_once_delivers_by_every_channel_and_waits_for_no_second_try(world):
    mailer = world.dir / "bin" / "sendmail"
    mailer.write_text(f"#!/bin/sh\nsleep 0.2; cat > {world.dir}/mail\n")
    mailer.chmod(0o755)
    queue = Queue(world, sim="1", settings=("notify:", "  desktop: false", "  email: a@example.org", f"  command: 'sleep 0.3; cat > {world.dir}/got'",
                                            "  webhook: http://127.0.0.1:1/"))
    job = queue.submit("exit 3", gpus=0)
    queue.ends(job)
    s = world.spawn(program(), "queue", "daemon", "--once")
    # The webhook is tried again in a minute: not by this one.
    until(lambda: s.process.poll() is not None, 25, why=s.tell)
    s.wait(0)
    assert json.loads((world.dir / "got").read_text())["job_id"] == job and "job 1" in (world.dir / "mail").read_text()


def test_path_too_long_for_a_socket(world):
    queue = Queue(world)
    deep = world.dir / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    d = world.spawn(program(), "queue", "daemon", "--db-path", deep / "queue.db")
    until(lambda: (deep / "queue.sock").exists(), why=d.tell)

    def state():
        return world.ask_json("queue", "status", "--no-tick", "--json", "--db-path", deep / "queue.db")["daemon"]
    assert until(state)["pid"] == d.pid
    # Another queue's daemon isn't this one's.
    assert world.ask_json("queue", "status", "--no-tick", "--json")["daemon"] is None
    d.kill().wait(0)


def test_nonsense_on_the_socket(world, queue):
    d = Daemon(queue)
    c = socket.socket(socket.AF_UNIX)
    c.settimeout(30)
    c.connect(str(queue.home / "queue.sock"))
    assert oct((queue.home / "queue.sock").stat().st_mode & 0o777) == "0o600"
    f = c.makefile("rwb")
    f.readline()
    for line, op in ((b"nonsense\n", "error"), (b"[1]\n", "error"), (b'{"op":"fly"}\n', "error"), (b'{"op":"state"}\n', "state")):
        f.write(line)
        f.flush()
        assert json.loads(f.readline())["op"] == op
    try:
        c.sendall(b"x" * 200000)
        assert f.readline() == b""
    except (ConnectionError, BrokenPipeError):
        pass
    c.close()
    assert d.state()["pid"] == d.s.pid
    d.end()


def test_many_ask_at_once(world, queue):
    d = Daemon(queue, "--interval", "600")
    until(lambda: queue.nodes().get("local", {}).get("state") == "up")
    before, heard = d.passes(), []

    def ask():
        hear = d.talk("tick")
        heard.append(hear()["tick"]["ran"])
        hear.close()
    threads = [threading.Thread(target=ask) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert heard == [True] * 20 and d.passes() - before < 20
    d.end()


__all__ = ["TERMINAL", "is_alive", "simjob"]
