"""A node's file over real ssh (tests/lab): whole, its last lines, and followed through everything that can cut the way to it."""
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import Lab, missing, until  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
DIR = "/root/jobs/7.1"


@pytest.fixture(scope="module")
def lab():
    made = Lab(("key",))
    yield made
    made.down()


@pytest.fixture(autouse=True)
def clean(lab):
    lab.bash("key", f"rm -rf {DIR}; mkdir -p {DIR}")
    yield
    if (lab.dir / "key" / "wire").read_text().split() != ["0", "0", "0", "0"]:
        lab.wire("key")
    lab.bash("key", "pkill -f write-log; true", check=False)
    lab.bash("ctl", "for s in /root/.gpustow*/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)


class Fetch:
    """A `gpustow __file key` on the client: its bytes as they come, what it said about them."""

    def __init__(self, lab, *args):
        self.lab, self.said, self.err = lab, [], []
        self.out = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen(
            lab.command("ctl", "env", *lab.env, "gpustow", "__file", "--home", "/root/.gpustow", "key", DIR, *args),
            stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            if line.startswith("{"):
                self.said.append(json.loads(line))
            else:
                self.err.append(line)

    def bytes(self):
        return Path(self.out.name).read_bytes()

    def cuts(self):
        return [s["cut"] for s in self.said if "cut" in s]

    def has(self, n, deadline=60):
        until(lambda: len(self.bytes()) >= n, deadline, lambda: f"{n} bytes; {self.tell()}")

    def signal(self, signo):
        """To gpustow itself: nsenter has forked."""
        pids = self.lab.bash("ctl", "pgrep -x gpustow").split()
        assert len(pids) == 1, pids
        self.lab.run("ctl", "kill", f"-{int(signo)}", pids[0])

    def wait(self, code=0, deadline=60):
        assert self.process.wait(deadline) == code, self.tell()
        self.reader.join(5)
        assert not [e for e in self.err if "Sanitizer" in e], self.err
        return self.bytes()

    def tell(self):
        return f"{len(self.bytes())} bytes, {self.said[-4:]}, {self.err[-20:]}, {self.process.poll()}"

    def end(self):
        if self.process.poll() is None:
            self.lab.bash("ctl", "pkill -KILL -x gpustow; true", check=False)
            self.process.wait(10)


@pytest.fixture
def fetch(lab):
    made = []

    def make(*args):
        made.append(Fetch(lab, *map(str, args)))
        return made[-1]
    yield make
    for f in made:
        f.end()


def write_log(lab, pieces, lines, pause):
    """A writer on the host that goes on by itself; the log is pieces * lines numbered lines in the end."""
    script = (f"for i in $(seq {pieces}); do seq -f \"write-log line %.0f\" $((i * {lines})) $((i * {lines} + {lines - 1})) "
              f">>{DIR}/stdout.log; sleep {pause}; done; touch {DIR}/done")
    lab.bash("key", f"setsid bash -c '{script}' write-log </dev/null >/dev/null 2>&1 &")


def log_of(pieces, lines):
    return "".join(f"write-log line {i}\n" for i in range(lines, (pieces + 1) * lines)).encode()


def same(got, want):
    """Not the megabytes themselves in the report."""
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    assert hashlib.sha256(got).digest() == hashlib.sha256(want).digest(), \
        f"{len(got)} bytes instead of {len(want)}, the first difference at {at}: {got[at:at + 60]} for {want[at:at + 60]}"


def test_whole_and_last_lines(lab, fetch):
    lab.bash("key", f"seq 1000000 >{DIR}/stdout.log; printf 'a\\nb\\nlast' >{DIR}/stderr.log")
    same(fetch("stdout.log").wait(), "".join(f"{i}\n" for i in range(1, 1000001)).encode())
    f = fetch("stderr.log", "--lines", 2)
    assert f.wait() == b"b\nlast"
    assert f.said == [{"exists": True, "size": 8, "offset": 2, "is_cut": True}]
    f = fetch("status")
    assert f.wait() == b"" and not f.said[0]["exists"]
    f = fetch("passwd")
    assert f.wait(1) == b"" and "result.json" in "".join(f.err)


def test_follow_until_interrupted(lab, fetch):
    f = fetch("stdout.log", "--follow")
    until(lambda: f.said, why=f.tell)
    assert not f.said[0]["exists"]
    write_log(lab, 20, 100, 0.02)
    f.has(len(log_of(20, 100)))
    assert [s["exists"] for s in f.said] == [False, True]
    lab.bash("key", f"printf more >>{DIR}/stdout.log")
    f.has(len(log_of(20, 100)) + 4)
    f.signal(signal.SIGINT)
    f.process.wait(20)
    assert f.process.returncode != 0 and "interrupted" in "".join(f.err), f.tell()
    same(f.bytes(), log_of(20, 100) + b"more")
    until(lambda: not lab.processes("key", "attach gpustow:"), why=lambda: lab.processes("key", ""))


def test_follow_through_killed_connections(lab, fetch):
    """The connection dies again and again while the log grows faster than it can be brought."""
    chance = random.Random(7)
    lab.wire("key", 5)
    f = fetch("stdout.log", "--follow")
    until(lambda: f.said, why=f.tell)
    write_log(lab, 400, 1000, 0.05)
    for round_ in range(4):
        before = len(f.bytes())
        f.has(before + 100000)
        time.sleep(chance.uniform(0, 0.3))
        lab.bash("ctl", "pkill -KILL -x ssh; true", check=False)
        until(lambda: len(f.cuts()) == round_ + 1, why=f.tell)
    f.has(len(log_of(400, 1000)))
    f.signal(signal.SIGTERM)
    f.process.wait(20)
    same(f.bytes(), log_of(400, 1000))
    # Once for each cut, and where it went on was no news.
    assert len(f.cuts()) == 4 and len([s for s in f.said if s.get("exists")]) == 1, f.said


def test_follow_through_a_cut_wire(lab, fetch):
    write_log(lab, 300, 200, 0.1)
    f = fetch("stdout.log", "--follow")
    f.has(100000)
    lab.wire("key", cut=1)
    until(lambda: f.cuts(), 90, f.tell)
    time.sleep(3)
    lab.wire("key")
    f.has(len(log_of(300, 200)), 90)
    f.signal(signal.SIGTERM)
    f.process.wait(20)
    same(f.bytes(), log_of(300, 200))
    assert len(f.cuts()) == 1, f.said


def test_follow_through_the_agents_death(lab, fetch):
    write_log(lab, 60, 500, 0.05)
    f = fetch("stdout.log", "--follow")
    f.has(50000)
    lab.bash("key", "pkill -KILL -f 'gpustow-agent serve'")
    f.has(len(log_of(60, 500)))
    f.signal(signal.SIGTERM)
    f.process.wait(20)
    same(f.bytes(), log_of(60, 500))


def test_truncated_during_a_cut_begins_anew(lab, fetch):
    lab.bash("key", f"seq 10000 >{DIR}/stdout.log")
    f = fetch("stdout.log", "--follow", "--lines", 100000)
    n = len("".join(f"{i}\n" for i in range(1, 10001)))
    f.has(n)
    lab.wire("key", cut=1)
    lab.bash("ctl", "pkill -KILL -x ssh")
    until(lambda: f.cuts(), why=f.tell)
    lab.bash("key", f"printf 'a new one' >{DIR}/stdout.log")
    lab.wire("key")
    f.has(n + 9)
    assert f.bytes()[n:] == b"a new one"
    assert f.said[-1] == {"exists": True, "size": 9, "offset": 0, "is_cut": False}, f.said


def test_nobody_there(lab, fetch):
    lab.wire("key", cut=1)
    f = fetch("stdout.log", "--follow", "--timeout", 3)
    assert f.wait(1) == b"" and f.err, f.tell()
