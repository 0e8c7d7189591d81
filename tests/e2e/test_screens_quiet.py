"""What goes to the terminal while nothing changes, and what comes to the queue's screen by itself: on a pty that counts bytes."""
import fcntl
import os
import re
import signal
import sqlite3
import sys
from pathlib import Path

import pytest
from harness import BUILD, program, until

pytest.importorskip("pyte")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
from recorded import Screen, shows  # noqa: E402
from queue_bed import Queue  # noqa: E402
from test_daemon import Daemon  # noqa: E402
from test_queue_screen import Bed, becomes  # noqa: E402

SECONDS = 5


@pytest.fixture
def screen(world):
    made = []

    def make(*args):
        made.append(Screen([program(), *args], {**world.env, "TERM": "xterm-256color"}, cols=120, rows=40, is_measured=False))
        return made[-1]
    yield make
    for s in made:
        s.end()


def written(s, seconds=SECONDS):
    """Bytes of that time, and the rows of the screen that they changed. No byte may leave the screen as it was."""
    s.draw()
    s.bytes, rows = 0, set()
    s.read(seconds)
    before = list(s.screen.display)
    pictures, s.cells = [], 0
    for at, _, data in s.waiting:
        # What's written at once may come in pieces.
        if pictures and at - pictures[-1][0] < 0.1:
            pictures[-1] = (at, pictures[-1][1] + data)
        else:
            pictures.append((at, data))
    for _, data in pictures:
        s.stream.feed(data)
        changed = {y for y, (a, b) in enumerate(zip(before, s.screen.display)) if a != b}
        s.cells += sum(x != y for a, b in zip(before, s.screen.display) for x, y in zip(a, b))
        assert changed, f"{data!r} changed nothing"
        rows |= changed
        before = list(s.screen.display)
    s.waiting = []
    return s.bytes, rows


def test_monitor_writes_its_clock_and_this_machines_figures_only(world, screen):
    (world.dir / "cards").write_text(f"cards 2\ncard 0 name=Fake used=2000 util=40\nproc 0 pid={os.getpid()} used=1000\n")
    world.env.update(GPUSTOW_NVML_PATH=str(BUILD / "tests" / "fake" / "libnvidia-ml.so.1"), GPUSTOW_FAKE_NVML=str(world.dir / "cards"))
    # An agent that was stopped is replaced after a while: here that fails.
    world.ask("--once")
    guard = world.dir / "bin" / "agent"
    guard.write_text(f"#!/bin/sh\n[ -e {world.dir}/none ] || exec {next((world.dir / 'home' / '.cache' / 'gpustow').glob('agent-*'))} \"$@\"\n")
    guard.chmod(0o755)
    world.env["GPUSTOW_AGENT"] = str(guard)
    s = screen()
    s.sees(shows("Fake"))
    s.read(3)
    n, rows = written(s)
    # The clock goes on with each sample, and this machine's CPU, load and memory are what they are; the cards don't change.
    own = next(y for y, line in enumerate(s.screen.display) if "[1]" in line)
    assert rows and rows <= {0, 1, own}, (rows, s.screen.display)
    # A move of the cursor, a colour and a digit: how often they change is this machine's doing, not the screen's.
    assert n < 25 * s.cells, (n, s.cells)
    # No samples: the time of day and nothing else.
    (agent,) = world.agents()
    (world.dir / "none").touch()
    os.kill(agent, signal.SIGSTOP)
    try:
        s.sees(shows("! 1 node failed: local"))
        s.read(1)
        head = s.screen.display[1]
        n, rows = written(s)
        assert rows == {1} and n < 20 * SECONDS, (n, rows, s.screen.display)
        assert re.sub(r"^Time [\d:]{8}", "", s.screen.display[1]) == re.sub(r"^Time [\d:]{8}", "", head)
    finally:
        world.signal([agent], signal.SIGCONT)


def test_queue_screen_writes_the_age_of_the_last_pass_only(world, screen):
    bed = Bed(world)
    try:
        s = screen("queue")
        s.sees(shows(r"Jobs \d+ active"))
        # Bytes from then on: passes by itself say "working" and "idle", so none.
        os.write(s.master, b"a")
        s.sees(shows("manual +idle"))
        # The runtime of a job is a clock as well.
        bed.queue.hand("cancel", bed.runner)
        bed.queue.ends(bed.runner)
        s.sees(shows("cancelled [1-9]"))
        s.sees(shows(r"tick \d\d+s ago"))
        n, rows = written(s)
        assert rows == {0}, (rows, s.screen.display)
        assert n < 30 * SECONDS, n
    finally:
        bed.end()


def test_the_daemon_tells_the_screen(world, screen):
    """It doesn't look by itself for an hour: what a job does is there all the same."""
    queue = Queue(world)
    job = queue.submit(f"while [ ! -e {world.dir}/go ]; do sleep 0.05; done", name="watched", gpus=0)
    daemon = Daemon(queue)
    try:
        until(lambda: queue.job(job)["state"] == "running", why=queue.jobs)
        s = screen("queue", "tui", "--refresh", "3600")
        s.sees(shows("● run +0 watched"))
        os.write(s.master, b"a")
        s.sees(shows("manual +idle"))
        (world.dir / "go").touch()
        s.sees(shows("Jobs 0 active"), seconds=30)
        assert queue.job(job)["state"] == "completed"
        # One that ends and one that comes are heard of, too.
        daemon.end()
        daemon = Daemon(queue)
        new = queue.submit("sleep 300", name="newcomer", gpus=0)
        daemon.talk("tick")()
        s.sees(shows("● run +0 newcomer"), seconds=30)
        queue.hand("cancel", new)
        daemon.talk("tick")()
        s.sees(shows("newcomer", gone=True), seconds=30)
    finally:
        daemon.end()


def test_a_database_that_another_keeps_locked_delays_no_key(world, screen):
    bed = Bed(world)
    try:
        s = screen("queue")
        s.sees(shows(r"Jobs \d+ active"))
        with open(f"{bed.queue.path}.lock", "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            db = sqlite3.connect(bed.queue.path, isolation_level=None, timeout=10)
            db.execute("BEGIN IMMEDIATE")
            os.write(s.master, b"gcc")
            # It's told to the process that writes, which waits; keys go on.
            for _ in range(5):
                for key, text in ((b"v", "Capacity"), (b"v", "Task flow"), (b"?", "the next server or job")):
                    os.write(s.master, key)
                    s.sees(shows(text))
                os.write(s.master, b"q")
                s.sees(shows("the next server or job", gone=True))
            assert bed.row(bed.runner)["state"] == "running"
            db.execute("ROLLBACK")
            db.close()
            fcntl.flock(lock, fcntl.LOCK_UN)
        becomes(lambda: bed.row(bed.runner)["state"], "cancelled")
    finally:
        bed.end()
