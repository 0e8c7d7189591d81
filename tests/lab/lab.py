"""The lab of hosts (lab.sh) for Python tests: boots it once, runs commands on its hosts, reads what `gpustow __fleet` says."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("GPUSTOW_BUILD", ROOT / "build-test")).resolve()
PROGRAM = BUILD / "src" / "gpustow"
DEADLINE = 60
NEEDS = ("/usr/sbin/sshd", "ssh", "ssh-keygen", "ip", "nsenter", "unshare", "cc", "openssl", "fish", "tcsh")


def missing():
    """Why there can be no lab here; None when there can."""
    if os.geteuid() != 0:
        return "the lab of hosts needs root"
    lacks = [n for n in NEEDS if not shutil.which(n)]
    if lacks:
        return "not installed: " + ", ".join(lacks)
    if not os.path.exists("/dev/net/tun"):
        return "there's no /dev/net/tun"
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True).returncode:
        return "namespaces may not be made here"
    return None


def until(what, deadline=DEADLINE, why=""):
    end = time.monotonic() + deadline
    while True:
        got = what()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s: {why() if callable(why) else why or what}")
        time.sleep(0.05)


class Watch:
    """A `gpustow __fleet` on the client that goes on, and its lines as they come."""

    def __init__(self, lab, args, env=()):
        self.lines, self.err = [], []
        self.process = subprocess.Popen(lab.command("ctl", "env", *lab.env, *env, "gpustow", "__fleet", *args),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.readers = [threading.Thread(target=self.read, args=(stream, to), daemon=True)
                        for stream, to in ((self.process.stdout, self.lines), (self.process.stderr, self.err))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def read(stream, to):
        for line in stream:
            to.append(json.loads(line) if line.startswith("{") else line)

    def of(self, host):
        return [line for line in self.lines if isinstance(line, dict) and line.get("host") == host and "state" in line]

    def sees(self, host, state, after=0, deadline=DEADLINE, **more):
        """Waits for a line of that state (position >= after among the host's); returns (line, its position + 1)."""
        def look():
            for i, line in enumerate(self.of(host)[after:], after):
                if line["state"] == state and all(line.get(k) == v for k, v in more.items()):
                    return line, i + 1
            return None
        return until(look, deadline, lambda: f"{host} {state} {more} in {self.lines[-8:]} {self.err}")

    def has_ended(self):
        """After its end: everything that it said has been read."""
        for reader in self.readers:
            reader.join(DEADLINE)
            assert not reader.is_alive(), "something of it still holds its output"

    def end(self):
        # nsenter has forked: both are in this group, and gpustow's own children have sessions of their own.
        for signo in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, signo)
            except ProcessLookupError:
                pass
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass


class Lab:
    env = ("HOME=/root", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "ASAN_OPTIONS=detect_leaks=1", "GPUSTOW_TEST_SSH_PERSIST=60")

    def __init__(self, hosts=()):
        self.dir = Path(tempfile.mkdtemp(prefix="gpustow-lab-"))
        self.environ = {**os.environ, "FAKE_NVML": str(BUILD / "tests" / "fake" / "libnvidia-ml.so.1"), "PROGRAM": str(PROGRAM),
                        "HAND": str(BUILD / "tests" / "queue_hand"), "JUDGE": str(ROOT / "tests" / "fault" / "queue_judge.py")}
        self.sh("up", *hosts)

    def sh(self, command, *args):
        # Not through a pipe: what the script leaves running would hold it open.
        with open(self.dir / "lab.log", "ab") as log:
            subprocess.run([HERE / "lab.sh", command, self.dir, *map(str, args)], env=self.environ, stdin=subprocess.DEVNULL,
                           stdout=log, stderr=log, timeout=120, check=True)

    def down(self):
        self.sh("down")
        shutil.rmtree(self.dir, ignore_errors=True)

    def command(self, host, *args):
        pid = (self.dir / host / "init.pid").read_text().strip()
        return ["nsenter", "-t", pid, "-a", "--wd=/", *map(str, args)]

    def run(self, host, *args, check=True, **more):
        r = subprocess.run(self.command(host, *args), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE,
                           cwd="/", **more)
        assert not check or r.returncode == 0, f"{args}: {r.returncode}\n{r.stdout}\n{r.stderr}"
        return r.stdout

    def bash(self, host, text, **more):
        return self.run(host, "bash", "-c", text, **more)

    def write(self, host, path, text):
        subprocess.run(self.command(host, "dd", f"of={path}", "status=none"), input=text, text=True, check=True, cwd="/")

    # --- gpustow on the client ---

    def watch(self, *args, env=(), home="/root/.gpustow"):
        return Watch(self, ["--home", home, *map(str, args)], env)

    def look(self, *args, env=(), home="/root/.gpustow", deadline=DEADLINE):
        """Runs until every host has settled; {host: last line}, the questions under None."""
        w = self.watch(*args, env=env, home=home)
        try:
            assert w.process.wait(deadline) == 0, (w.lines, w.err)
            w.has_ended()
            assert not [e for e in w.err if "Sanitizer" in e], w.err
        finally:
            w.end()
        last = {None: [line for line in w.lines if isinstance(line, dict) and "asks" in line]}
        for line in w.lines:
            if isinstance(line, dict) and "state" in line:
                last[line["host"]] = line
        return last

    def processes(self, host, word):
        """Command lines of a host's processes that hold the word, without the look itself."""
        out = self.bash(host, "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null")
        return [line for line in out.splitlines() if word in line and "for p in" not in line]

    def wire(self, host, delay_ms=0, jitter_ms=0, loss_pct=0, cut=0):
        self.sh("wire", host, delay_ms, jitter_ms, loss_pct, cut)
