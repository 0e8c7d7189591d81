#!/usr/bin/env python3
"""How long a key takes to reach the queue's screen: 64 nodes, 10,000 jobs that wait, a node whose driver hangs, one that answers
after seconds and one whose agent is stopped; over the database alone, while another process keeps its lock, and beside a daemon.

usage: queue_screen.py BUILD [JOBS [ROUNDS]]
"""
import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import queue_cost
from recorded import Changes, Screen, memory_mib, shows, tell_keys

HUNG, SLOW, STOPPED = "n3", "n4", "n5"
KEYS = [(b"?", shows("the next server or job")), (b"q", shows("the next server or job", gone=True)),
        (b"v", shows("Capacity")), (b"v", shows("Task flow")),
        *((b"f", shows(rf"Jobs \d+ {word}")) for word in ("all", "running", "pending", "finished", "active")),
        (b"S", Changes(r"by \w+( reversed)?")), (b"S", Changes(r"by \w+( reversed)?")),
        (b"\r", shows("Detail of job")), (b"j", Changes(r"Detail of job \d+")), (b"j", Changes(r"Detail of job \d+")),
        (b"k", Changes(r"Detail of job \d+")), (b"\r", shows("Detail of job", gone=True))]


class Lock:
    """Another process's hold on the database: 3 s, a moment of peace, 3 s, and so on."""

    def __init__(self, path):
        self.path, self.is_over, self.held_s = path, threading.Event(), 0.0
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with open(f"{self.path}.lock", "rb+") as lock:
            while not self.is_over.is_set():
                fcntl.flock(lock, fcntl.LOCK_EX)
                db = sqlite3.connect(self.path, isolation_level=None, timeout=5)
                db.execute("BEGIN IMMEDIATE")
                begun = time.monotonic()
                self.is_over.wait(3)
                self.held_s += time.monotonic() - begun
                db.execute("ROLLBACK")
                db.close()
                fcntl.flock(lock, fcntl.LOCK_UN)
                time.sleep(0.2)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()


def agent_of(home, host):
    """The agent holds the lock of its root."""
    inode = os.stat(home.dir / "hosts" / host / "root" / "agent.lock").st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "POSIX" and words[5].endswith(f":{inode}"):
            return int(words[4])
    raise SystemExit(f"bench: {host} has no agent")


@contextlib.contextmanager
def daemon(home):
    d = subprocess.Popen([home.program, "queue", "daemon"], env=home.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=open(home.dir / "daemon", "wb"))
    try:
        end = time.monotonic() + 60
        while '"daemon": null' in home.ask("queue", "status", "--no-tick", "--json"):
            assert time.monotonic() < end and d.poll() is None, (home.dir / "daemon").read_text()
            time.sleep(0.2)
        yield
    finally:
        d.terminate()
        d.wait()


def keys(home, rounds):
    env = {**home.env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    s = Screen([home.program, "queue"], env)
    try:
        s.sees(shows(r"Jobs \d+ active"))
        s.read(2)
        s.draw()
        found = [s.press(*k) for _ in range(rounds) for k in KEYS]
        memory = memory_mib(s.pid)
    finally:
        s.end()
    return found, memory


def measure(top, build, program, jobs=10_000, rounds=3):
    """(what, keys, (RSS, PSS) in MiB), ..."""
    home = queue_cost.with_hosts(top, build, program, HUNG, SLOW)
    stopped = None
    try:
        home.submit_many(jobs)
        end = time.monotonic() + 120
        while home.ask("queue", "nodes", "--json", "--tick").count('"up"') < queue_cost.HOSTS - 4:
            assert time.monotonic() < end, home.ask("queue", "nodes", "--no-tick")[:4000]
        stopped = agent_of(home, STOPPED)
        os.kill(stopped, signal.SIGSTOP)
        yield "database", *keys(home, rounds)
        with Lock(home.db) as lock:
            got = keys(home, rounds)
        assert lock.held_s > 3
        yield "database locked by another for 3 s at a time", *got
        with daemon(home):
            yield "daemon", *keys(home, rounds)
    finally:
        # Whoever came to it meanwhile and got no answer has ended it.
        with contextlib.suppress(ProcessLookupError):
            if stopped:
                os.kill(stopped, signal.SIGCONT)
        home.done()


def main():
    build = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="gpustow-queue-screen-", ignore_cleanup_errors=True) as top:
        for what, got, memory in measure(top, build, str(build / "src" / "gpustow"), *map(int, sys.argv[2:])):
            print(f"{what}: {len(got)} keys, median %.1f, longest %.1f, less waiting for a core %.1f, CPU %.1f ms; " % tell_keys(got)
                  + "RSS %.1f, PSS %.1f MiB; " % memory + f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
