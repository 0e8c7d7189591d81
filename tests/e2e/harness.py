"""A world for one end-to-end test: a directory with everything of gpustow's in it, and the processes started from there.

It starts schedulers, plays the strangers on the cards, waits for conditions with a deadline, and at the end ends what
the test began and looks whether anything is left that shouldn't be. It asserts nothing about gpustow's answers.
"""
import fcntl
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GPUSTOW_BUILD", ROOT / "build-test")).resolve()
DEADLINE = float(os.environ.get("GPUSTOW_TEST_DEADLINE", "60"))  # for one condition, on a busy machine
MARK = "GPUSTOW_E2E"

# As root the interpreter may lie where another user can't read; Debian's own can't.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


def program(name="gpustow"):
    """The path under which a program is started: its last part decides what it is."""
    link = BUILD / name
    return str(link if link.exists() else BUILD / "src" / name)


def until(what, deadline=DEADLINE, every=0.02, why=""):
    """Calls `what` until it returns something true, and returns that."""
    end = time.monotonic() + deadline
    while True:
        got = what()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline} s: {why() if callable(why) else why or what}")
        time.sleep(every)


def read_text(path):
    try:
        return Path(path).read_bytes().decode("utf-8", "backslashreplace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def stat_of(pid):
    """(state, start ticks, session) of a process, or None when there's none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("latin-1")
    except OSError:
        return None
    rest = text[text.rindex(")") + 2:].split()
    return rest[0], int(rest[19]), int(rest[3])


def is_alive(pid):
    s = stat_of(pid)
    return s is not None and s[0] not in "ZX"


def lock_holder(path):
    """Who holds the fcntl lock of that file; None when nobody does. (/proc/locks leaves lines out while others come and go.)"""
    try:
        with open(path, "rb") as f:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else pid


def is_polling(pid, ms):
    """Whether it's in a poll() of so many milliseconds at this moment. (Where that's ppoll(), of whatever length.)"""
    words = read_text(f"/proc/{pid}/syscall").split()
    return words[:1] == ["7"] and int(words[3], 16) == ms or words[:1] == ["73"]


def is_writing(pid):
    """Whether it's in a write() that doesn't come to an end."""
    return read_text(f"/proc/{pid}/syscall").split()[:1] in (["1"], ["64"])


class Started:
    """A program that was started: its output goes to files, so nothing waits for a reader."""

    def __init__(self, world, argv, env, n, **popen):
        self.world, self.argv = world, argv
        self.out_path, self.err_path = world.dir / f"out{n}", world.dir / f"err{n}"
        self.popen = {"stdin": subprocess.DEVNULL, "cwd": world.dir, "env": env, "start_new_session": True, **popen}
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen.setdefault("stdout", out)
            self.popen.setdefault("stderr", err)
            self.process = subprocess.Popen(argv, **self.popen)
        self.pid = self.process.pid

    @property
    def out(self):
        return read_text(self.out_path)

    @property
    def err(self):
        return read_text(self.err_path)

    def lines(self):
        return self.out.splitlines()

    def tell(self):
        return f"{shlex.join(map(str, self.argv))[:2000]}\n--- stdout\n{self.out[-8000:]}\n--- stderr\n{self.err[-4000:]}"

    def sees(self, pattern, deadline=DEADLINE, count=1):
        """Waits until the pattern stands in stdout (count times); returns the last match."""
        def look():
            found = list(re.finditer(pattern, self.out, re.M))
            if len(found) >= count:
                return found[count - 1]
            if self.process.poll() is not None:
                found = list(re.finditer(pattern, self.out, re.M))
                assert len(found) >= count, f"it ended ({self.process.returncode}) without {pattern!r}\n{self.tell()}"
                return found[count - 1]
            return None
        return until(look, deadline, why=lambda: f"{pattern!r} in\n{self.tell()}")

    def wait(self, code=0, deadline=DEADLINE * 2):
        """Waits for its end; code None: any."""
        try:
            got = self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline} s\n{self.tell()}\n{self.world.tell()}") from None
        assert code is None or got == code, f"exit code {got}, not {code}\n{self.tell()}\n{self.world.tell()}"
        return got

    def kill(self, signo=signal.SIGTERM):
        self.process.send_signal(signo)
        return self


class Foreign:
    """A process that isn't gpustow's and holds memory on simulated cards."""

    def __init__(self, world, usage):
        self.process = subprocess.Popen(["sleep", "300"], start_new_session=True, env={**os.environ, MARK: world.mark},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.path = world.sim / f"foreign{self.process.pid}.json"
        self.set(usage)

    def set(self, usage):
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps({"pid": self.process.pid, "usage": {str(k): v for k, v in usage.items()}}))
        temporary.rename(self.path)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.path.unlink(missing_ok=True)


class World:
    def __init__(self, directory):
        self.dir = Path(directory)
        self.logs = self.dir / "gpusched_logs"
        self.sim = self.dir / "sim"
        self.reports = self.dir / "reports"
        self.file = self.dir / "jobs.txt"
        self.mark = f"{os.getpid()}-{self.dir.name}-{time.monotonic_ns()}"
        self.started, self.foreigners = [], []
        self.may_leave = False  # the test leaves processes behind on purpose
        self.agent_may_die = False  # the test kills it
        for d in (self.sim, self.reports, self.dir / "home", self.dir / "promise", self.dir / "bin"):
            d.mkdir()
        (self.dir / "promise").chmod(0o1777)
        self.reports.chmod(0o777)
        report = f"log_path={self.reports}/report"
        self.env = {
            "PATH": f"{self.dir}/bin:{BUILD}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.dir / "home"),
            "XDG_CACHE_HOME": str(self.dir / "home" / ".cache"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "W": str(self.dir),
            MARK: self.mark,
            "GPUSTOW_AGENT_ROOT": str(self.dir / "agent"),
            "GPUSTOW_AGENT_IDLE": "60",
            "GPUSTOW_PROMISE_DIR": str(self.dir / "promise"),
            "GPUSTOW_SIM_DIR": str(self.sim),
            "ASAN_OPTIONS": f"{report}:abort_on_error=0:exitcode=99:detect_stack_use_after_return=0",
            "UBSAN_OPTIONS": f"{report}:print_stacktrace=1:halt_on_error=0",
            "LSAN_OPTIONS": "report_objects=0",
        }

    # --- the jobs file ---

    def jobs(self, *lines, end="\n"):
        """Writes the jobs file by rename, as most editors do."""
        return self.write("\n".join(lines) + (end if lines else ""))

    def write(self, content, path=None):
        path = path or self.file
        temporary = path.with_name(path.name + ".new")
        temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
        temporary.rename(path)
        return path

    def append(self, text):
        with open(self.file, "a") as f:
            f.write(text)

    # --- programs ---

    def spawn(self, *argv, env=None, **popen):
        s = Started(self, [str(a) for a in argv], {**self.env, **(env or {})}, len(self.started), **popen)
        self.started.append(s)
        return s

    def run(self, *args, sim="1", poll="0.1", name="gpustow", env=None, file=True, **popen):
        """Starts a scheduler on the jobs file."""
        argv = [program(name)] + ([] if name == "gpusched" else ["run"])
        argv += (["--sim", sim] if sim else []) + (["--poll", poll] if poll else []) + list(args)
        s = self.spawn(*argv, *([self.file] if file else []), env=env, **popen)
        if "stdout" not in popen:
            # From its first line on it holds the lock and answers the second terminal.
            until(lambda: s.out or s.process.poll() is not None, why=s.tell)
        return s

    def finish(self, *args, code=0, **more):
        """Runs the jobs file to the end."""
        r = self.run(*args, **more)
        r.wait(code)
        return r

    def ask(self, *args, code=0, name="gpustow", env=None, **popen):
        """A command of the second terminal (or any other) to its end."""
        r = self.spawn(program(name), *args, env=env, **popen)
        r.wait(code)
        return r

    def ask_json(self, *args, code=0, **more):
        return json.loads(self.ask(*args, code=code, **more).out)

    def foreign(self, usage):
        f = Foreign(self, usage)
        self.foreigners.append(f)
        return f

    # --- what lies on the disk ---

    def journal(self, logs=None):
        records = []
        for line in read_text((logs or self.logs) / "journal.jsonl").splitlines():
            try:
                records.append(json.loads(line))
            except ValueError:
                records.append({"event": "torn", "text": line})
        return records

    def events(self, event, logs=None):
        return [r for r in self.journal(logs) if isinstance(r, dict) and r.get("event") == event]

    def board(self):
        return read_text(self.logs / "status.txt")

    def log_of(self, no, gpus="0"):
        return read_text(self.logs / f"job{no:03}_{gpus}.log" if gpus == "cpu" else self.logs / f"job{no:03}_gpu{gpus}.log")

    def judge(self, name="judge"):
        """The words that the jobs appended to $W/judge, one a line."""
        return read_text(self.dir / name).split("\n")[:-1]

    def text(self, name):
        return read_text(self.dir / name)

    def has(self, name, deadline=DEADLINE):
        """Waits for a file in the world, and returns its content."""
        path = self.dir / name
        until(lambda: path.exists() and path.read_text(errors="replace").endswith("\n"), deadline,
              why=lambda: f"{path}\n{self.tell()}")
        return path.read_text()

    # --- processes of this world ---

    def processes(self):
        """pid -> command line of everything that carries this world's mark."""
        found = {}
        mark = f"{MARK}={self.mark}".encode()
        for p in Path("/proc").iterdir():
            if not p.name.isdigit() or int(p.name) == os.getpid():
                continue
            try:
                marked = mark in (p / "environ").read_bytes().split(b"\0")
                line = (p / "cmdline").read_bytes()
                marked = marked or (str(self.dir).encode() in line and b"gpustow-agent" in line)
            except OSError:
                continue
            if marked and is_alive(int(p.name)):
                found[int(p.name)] = line.replace(b"\0", b" ").decode("utf-8", "replace").strip()
        return found

    def in_roots(self, name):
        """That file of each agent's root of this world. Claims come and go meanwhile, so they aren't looked into."""
        found = []
        for top, dirs, files in os.walk(self.dir):
            dirs[:] = [d for d in dirs if d not in ("claims", "new", "fence") and (top != str(self.dir) or d.startswith("agent"))]
            if name in files:
                found.append(Path(top) / name)
        return found

    def agents(self):
        """The agents themselves, not their shims and samplers: they hold the lock of their root."""
        pids = {lock_holder(lock) for lock in self.in_roots("agent.lock")}
        return [p for p in pids if p and p > 0 and is_alive(p)]

    def power_off(self):
        """Everything at once: nobody is left, or comes, who could see how another one ended."""
        def stops():
            left = [p for p in self.processes() if (stat_of(p) or "X")[0] not in "TXZ"]
            self.signal(left, signal.SIGSTOP)
            return not left
        until(lambda: stops() and stops())
        self.signal(self.processes(), signal.SIGKILL)
        until(lambda: not self.processes())

    @staticmethod
    def signal(pids, signo):
        for pid in pids:
            try:
                os.kill(pid, signo)
            except ProcessLookupError:
                pass

    def end(self):
        """Ends what is left. Returns complaints."""
        complaints = []
        for f in self.foreigners:
            f.end()
        for s in self.started:
            if s.process.poll() is None:
                if not self.may_leave:
                    complaints.append(f"a program was left running: {s.tell()}")
                s.process.kill()
            s.process.wait()
            if not self.agent_may_die and "the link to this machine's agent is down" in s.out + s.err:
                complaints.append(f"its agent went away: {s.tell()}")
        agents = self.agents()
        self.signal(agents, signal.SIGTERM)
        try:
            until(lambda: not any(is_alive(p) for p in agents))
        except AssertionError:
            complaints.append("the agent doesn't leave at SIGTERM")
        if not self.may_leave:
            def is_over():
                # A job that has just ended has its shim start another agent when it finds none.
                self.signal([p for p in self.agents() if p not in agents], signal.SIGTERM)
                return not self.processes()
            try:
                until(is_over, 10)
            except AssertionError:
                complaints.append("left behind: " + "; ".join(f"{p}: {c}" for p, c in self.processes().items()))
        for _ in range(50):
            left = self.processes()
            self.signal(left, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.05)
        for report in sorted(self.reports.iterdir()):
            text = report.read_text(errors="replace")
            if text.strip():
                complaints.append(f"a sanitizer reports in {report.name}:\n{text[:6000]}")
        return complaints

    def tell(self):
        """For a failed test: what lies in the log directory and what the agent said."""
        parts = [f"journal: {json.dumps(r)[:300]}" for r in self.journal()[-40:]]
        for log in self.in_roots("log"):
            parts.append(f"--- agent's log\n{read_text(log)[-3000:]}")
        parts += [f"process {p}: {c[:200]}" for p, c in self.processes().items()]
        return "\n".join(parts)


def simjob(vram, hold=0.5, ramp=0.0, *more):
    """A command line of a simulated job."""
    return " ".join(["gpustow simjob --vram", str(vram), "--ramp", str(ramp), "--hold", str(hold), *map(str, more)])


def note(word, then=""):
    """A command line that leaves a word in $W/judge."""
    return f"echo {word} >> $W/judge" + (f"; {then}" if then else "")


def wait_for(name):
    """A command line that goes on when the test has made the file $W/NAME."""
    return f"while [ ! -e $W/{name} ]; do sleep 0.05; done"
