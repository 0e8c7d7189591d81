"""
One bed: a directory with a jobs file, a log directory, an agent's root, simulated cards and the judge's file. It starts
and kills the processes of one round, and only those: a process belongs to a bed if the bed's directory stands in its
environment. The judge reads what the jobs wrote themselves and holds the journal against it.
"""
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPUSTOW_BUILD", SOURCE / "build-test"))
if not BUILD.is_absolute():
    BUILD = SOURCE / BUILD
PROGRAM = BUILD / "gpustow" if (BUILD / "gpustow").exists() else BUILD / "src" / "gpustow"
JOB = Path(__file__).with_name("job.sh")
CARD_MIB = 24576
PATIENCE = 180
KILLED = (-9, 137)  # the first process was; the script below it was
TERMINAL = {"ok", "failed", "timeout", "infeasible", "failed_oom", "cancelled"}


def wait_for(condition, seconds, what):
    """
    The condition's first true value; fails with `what` (text or callable) when there's none in time. The seconds are those of a
    quiet machine, and no measure: others may be at work on it.
    """
    seconds = max(seconds, PATIENCE)
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.02)


def key_of(command):
    return hashlib.sha1(command.encode()).hexdigest()[:12] + "#0"


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def lock_holder(path):
    """Who holds the fcntl lock of that file; None when nobody does. (/proc/locks leaves lines out while others come and go.)"""
    try:
        with open(path, "rb") as f:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else pid


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


class Line:
    def __init__(self, bed, name, attributes="", mib=0, seconds=0.3, code=0, oom=False):
        self.name, self.code, self.oom, self.mib = name, code, oom, mib
        self.command = f"sh {bed.dir}/job.sh {name} {mib} {seconds} {code}" + (" oom" if oom else "")
        self.key = key_of(self.command)
        self.text = (f"[{attributes}] " if attributes else "") + self.command
        self.is_limited = "timeout=" in attributes


class MemoryWatch(threading.Thread):
    """Looks at what the simulated jobs hold, as fast as it can without taking a core, and remembers what was too much."""

    def __init__(self, directory, promises=None):
        super().__init__(daemon=True)
        self.directory, self.promises = Path(directory), promises
        self.excess, self.looks, self.most = [], 0, 0
        self.over = threading.Event()

    def look(self):
        found = {}
        for path in self.directory.glob("*.json"):
            try:
                found[path.name] = json.loads(path.read_text())
            except (OSError, ValueError):
                pass
        return found

    def run(self):
        while not self.over.wait(0.02):
            first, second = self.look(), self.look()
            # Held by both looks and alive after them: so all of these were held together between the two.
            held = defaultdict(int)
            for name in first.keys() & second.keys():
                if is_alive(second[name]["pid"]):
                    for card, mib in second[name]["usage"].items():
                        held[card] += min(mib, first[name]["usage"].get(card, 0))
            self.looks += 1
            for card, mib in held.items():
                self.most = max(self.most, mib)
                if mib > CARD_MIB:
                    self.excess.append(f"card {card} holds {mib} MiB: {second}")
            if self.promises:
                for card, mib in promised(self.promises).items():
                    if mib > CARD_MIB:
                        self.excess.append(f"{mib} MiB of card {card} are promised")

    def stop(self):
        self.over.set()
        self.join()
        return self.excess


def promise_rows(path):
    """Firm rows of the newest valid slot: protocol.md 9, promise.c's layout."""
    data = Path(path).read_bytes()
    best = None
    if len(data) < 48:
        return {}
    half = len(data) // 2
    for at in (0, half):
        magic, _crc, seq, n, _ = struct.unpack_from("<IIQII", data, at)
        if magic == 0x47535031 and (best is None or seq > best[0]):
            best = (seq, n, at)
    rows = defaultdict(int)
    for i in range(best[1] if best else 0):
        uuid, mib, tentative, _ = struct.unpack_from("<48sqII", data, best[2] + 24 + 64 * i)
        if not tentative:
            rows[uuid.split(b"\0")[0].decode()] += mib
    return rows


def promised(directory):
    total = defaultdict(int)
    for path in Path(directory).glob(".gpustow-*"):
        try:
            for card, mib in promise_rows(path).items():
                total[card] += mib
        except OSError:
            pass
    return total


class Bed:
    def __init__(self, cards="2", shared=None, uid=None, program=PROGRAM, root=None, logs=None):
        self.dir = Path(tempfile.mkdtemp(prefix="gpustow-fault-"))
        self.uid, self.cards, self.program = uid, cards, program
        shared = Path(shared) if shared else self.dir
        self.logs = Path(logs) if logs else self.dir / "logs"
        self.roots = Path(root) if root else self.dir / "root"
        self.strikes = self.dir / "strikes"
        for path in (shared / "sim", shared / "promises", self.strikes, self.dir / "home"):
            path.mkdir(exist_ok=True)
        shutil.copy(JOB, self.dir / "job.sh")
        self.sim, self.promises = shared / "sim", shared / "promises"
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(self.dir / "home"), "LC_ALL": "C.UTF-8",
            "XDG_CACHE_HOME": str(Path(program).parent / "fault-cache") if uid is None else str(self.dir / "home"),
            "GPUSTOW_SIM_DIR": str(self.sim), "GPUSTOW_PROMISE_DIR": str(self.promises),
            "GPUSTOW_AGENT_ROOT": str(self.roots), "GPUSTOW_TEST_BED": str(self.dir),
            "GPUSTOW_TEST_PROGRAM": str(program), "GPUSTOW_TEST_FAULT_DIR": str(self.strikes),
            "GPUSTOW_AGENT_IDLE": "30",
        }
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if name in os.environ:
                self.env[name] = os.environ[name]
        if uid is not None:
            for path in (self.dir, self.dir / "home", self.strikes, self.dir / "job.sh"):
                os.chown(path, uid, uid)
        self.lines, self.run, self.killed_shims, self.killed_jobs = [], None, set(), set()
        self.said = self.dir / "said"

    @property
    def root(self):
        """Simulated cards have a root of their own below the one that was named."""
        return next(self.roots.glob("sim-*"), self.roots)

    # --- the jobs ---

    def add(self, *args, **more):
        line = Line(self, *args, **more)
        self.lines.append(line)
        return line

    def write_lines(self):
        (self.dir / "jobs.txt").write_text("".join(line.text + "\n" for line in self.lines))

    def journal(self):
        path = self.logs / "journal.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def status(self):
        """Last word of each key."""
        last = {}
        for record in self.journal():
            if record.get("event") in ("started", "interrupted", "oom", "done", "bind", "unbind", "retry"):
                last[record["key"]] = record.get("status") if record["event"] == "done" else record["event"]
        return last

    def is_done(self):
        status = self.status()
        return all(status.get(line.key) in TERMINAL for line in self.lines)

    def judged(self):
        """What the jobs wrote: ("start"|"end", name, mark, pid or code)."""
        path = self.dir / "judge"
        return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []

    def count(self, word):
        return sum(row[0] == word for row in self.judged())

    # --- the processes ---

    def start(self, *options, **env):
        command = [str(self.program), "run", "--sim", self.cards, "--poll", "0.2", "--log-dir", str(self.logs), *options,
                   str(self.dir / "jobs.txt")]
        if self.uid is not None:
            command = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", *command]
        with open(self.said, "ab") as out:
            self.run = subprocess.Popen(command, cwd=self.dir, env={**self.env, **env}, stdin=subprocess.DEVNULL,
                                        stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        return self.run

    def restart_until_done(self, seconds, **env):
        """A run that ended before its jobs did is started again, as a person would."""
        seconds = max(seconds, PATIENCE)
        end = time.monotonic() + seconds
        starts = 0
        while True:
            if self.run is None or self.run.poll() is not None:
                if self.run is not None and self.is_done():
                    return self.run.returncode
                if self.run is not None and starts:
                    time.sleep(0.1)
                self.start(**env)
                starts += 1
            if time.monotonic() > end:
                raise AssertionError(f"jobs are left after {seconds} s, {starts} starts\n{self.story()}")
            time.sleep(0.02)

    def ours(self):
        """Processes that have this bed in their environment: the agent, its sampler, shims, jobs."""
        found, mark = [], str(self.dir).encode()
        for pid in pids():
            try:
                if mark in Path(f"/proc/{pid}/environ").read_bytes() and is_alive(pid):
                    found.append(pid)
            except OSError:
                pass
        return found

    def holder(self, path):
        """Who holds the fcntl lock of that file; None when nobody does."""
        return lock_holder(path)

    def agent(self):
        return self.holder(self.root / "agent.lock")

    def shims(self):
        """[(mark, pid)] of the shims that live."""
        found = []
        for path in (self.root / "claims").glob("*/*/lock"):
            pid = self.holder(path)
            if pid and pid != self.agent():
                found.append((f"{path.parent.parent.name}/{path.parent.name}", pid))
        return found

    def members(self):
        """[(mark, pid)] of jobs that live: the first process of each, and the script below it."""
        ended = {row[2] for row in self.judged() if row[0] == "end"}
        ours, found = set(self.ours()), []
        for row in self.judged():
            if row[0] == "start" and row[2] not in ended and int(row[3]) in ours:
                try:
                    found += [(row[2], pid) for pid in {os.getsid(int(row[3])), int(row[3])} & ours]
                except OSError:
                    pass
        return found

    def leftovers(self):
        """What lives of the jobs and their shims: all of ours but the agent and its sampler."""
        return [pid for pid in self.ours() if comm(pid) not in ("gpustow-agent", "gpustow-sampler")]

    def describe_claim(self, path):
        name = f"{path.parent.name}/{path.name}"
        retired = self.root / "retired"
        words = [name, f"holder {self.holder(path / 'lock')}", f"agent {self.agent()}"]
        if (path / "state").exists():
            words.append("state " + ("claimed", "started", "ended")[state_of(path / "state") - 1])
        words.append("retired" if retired.exists() and f"{name} " in retired.read_text() else "not retired")
        return ", ".join(words)

    def kill(self, pid, signo=signal.SIGKILL):
        try:
            os.kill(pid, signo)
        except OSError:
            pass

    def kill_everything(self):
        """As a power cut does. Twice empty: nobody was just being forked."""
        quiet = 0
        end = time.monotonic() + 20
        while quiet < 2 and time.monotonic() < end:
            left = self.ours()
            for pid in left:
                self.kill(pid)
            quiet = 0 if left else quiet + 1
            time.sleep(0.02)
        if self.run:
            self.run.wait()

    def done(self):
        self.kill_everything()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.kill_everything()
        if kind is None or not os.environ.get("GPUSTOW_FAULT_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    # --- the judge ---

    def story(self):
        said = self.said.read_text(errors="replace")[-6000:] if self.said.exists() else ""
        log = self.root / "log"
        words = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        records = "\n".join(json.dumps(record) for record in self.journal() if record.get("event") != "seen")
        return (f"--- {self.dir}\n--- judge\n" + "\n".join(map(" ".join, self.judged())) + f"\n--- journal\n{records}\n"
                f"--- said\n{said}\n--- agent\n{words}")

    def complaints(self, may_vanish=(), may_fail=(), may_interrupt=False):
        """
        What's wrong. may_vanish: marks of killed shims, or True for all; may_fail: marks of jobs of which a process was killed;
        may_interrupt: the machine went down or the run was stopped, so a line may start again under a new attempt.
        """
        rows, records, wrong = self.judged(), self.journal(), []
        number = {r["key"]: r["no"] for r in records if r.get("event") == "seen"}
        queue = next((r["queue"] for r in records if r.get("event") == "queue"), "?")
        for mark, n in Counter(row[2] for row in rows if row[0] == "start").items():
            if n > 1:
                wrong.append(f"{mark} started {n} times")
        for (key, attempt), n in Counter((r["key"], r["attempt"]) for r in records if r.get("event") == "bind").items():
            if n > 1:
                wrong.append(f"attempt {attempt} of job {number.get(key)} was bound {n} times")
        ends = {}
        for record in records:
            if record.get("event") in ("done", "oom") and record.get("attempt"):
                mark = f"{queue}/{number.get(record['key'])}.{record['attempt']}"
                if mark in ends:
                    wrong.append(f"{mark} ended twice in the journal")
                ends[mark] = record
        has_end = {row[2]: int(row[3]) for row in rows if row[0] == "end"}
        for mark, code in has_end.items():
            record = ends.get(mark)
            if record is None:
                wrong.append(f"{mark} wrote its end (exit {code}) and the journal has none")
            elif record["event"] == "oom":
                continue
            elif record.get("how") == "vanished":
                if may_vanish is not True and mark not in may_vanish:
                    wrong.append(f"{mark} ended with {code}, its shim lived, and it counts as vanished")
            elif record["returncode"] != code and not (mark in may_fail and record["returncode"] in KILLED):
                wrong.append(f"{mark} ended with {code} and the journal says {record}")
        for mark, record in ends.items():
            if record.get("how") == "exit" and record["event"] == "done" and mark not in has_end and not (
                    mark in may_fail and record["returncode"] in KILLED):
                wrong.append(f"{mark} has an exit code in the journal and never came to its end: {record}")
            if record.get("how") in ("vanished", "launch-failed") and may_vanish is not True and mark not in may_vanish:
                wrong.append(f"{mark} counts as {record['how']} though nobody killed its shim")
        status = self.status()
        starts = Counter(row[1] for row in rows if row[0] == "start")
        ooms = Counter(r["key"] for r in records if r.get("event") == "oom")
        for line in self.lines:
            if status.get(line.key) not in TERMINAL:
                wrong.append(f"{line.name} has no end: {status.get(line.key)}")
            if starts[line.name] > 1 + ooms[line.key] and not may_interrupt:
                wrong.append(f"{line.name} was started {starts[line.name]} times")
            if status.get(line.key) == "ok" and line.code:
                wrong.append(f"{line.name} exits with {line.code} and counts as ok")
        wrong += [f"sanitizer: {text}" for text in self.sanitizer_words()]
        return wrong

    def sanitizer_words(self):
        found = []
        for path in [self.said, self.root / "log", *self.logs.glob("*.log")]:
            if path.exists():
                found += re.findall(r".*(?:ERROR: \w*Sanitizer|runtime error:).*", path.read_text(errors="replace"))
        return found[:3]

    def end_well(self, **how):
        """Everything is over: one more run starts nothing, claims are retired, nobody is left."""
        before = self.count("start")
        self.run = None
        self.start(**how)
        wait_for(lambda: self.run.poll() is not None, 20, lambda: "the run that has nothing to do\n" + self.story())
        wrong = []
        if self.count("start") != before:
            wrong.append("a run after the end started something")
        # That run has acknowledged every end there is (protocol.md 5), and what is acknowledged goes once nothing of it lives: so
        # first what a killed job left behind (8 s at most), then the claims, for which the agent looks every 5 s.
        wait_for(lambda: not self.leftovers(), 20, lambda: "jobs' processes are left: " + "; ".join(map(describe, self.leftovers())))
        claims = self.root / "claims"
        wait_for(lambda: not list(claims.glob("*/*/state")), 12,
                 lambda: f"claims are left: {list(map(self.describe_claim, claims.glob('*/*')))}\n{self.story()}")
        agent = self.agent()
        if agent:
            self.kill(agent, signal.SIGTERM)
        wait_for(lambda: not self.ours(), 15, lambda: "processes are left: " + "; ".join(map(describe, self.ours())))
        return wrong


def comm(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def state_of(path):
    """The attempt's state as the newer slot says it: claim_state.c's layout."""
    data = path.read_bytes()
    slots = [(struct.unpack_from("<Q", data, at + 8)[0], data[at + 16]) for at in (0, 512) if len(data) >= at + 512]
    return max(slots, default=(0, 1))[1] or 1


def describe(pid):
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
        return f"{pid} ({comm(pid)}, parent {parent}) {line}"
    except OSError:
        return str(pid)
