"""Hosts whose agents are recorded ones, and a program on a terminal of its own that is pressed keys and measured.

A real agent over the fake driver, whose figures change, is recorded; bench/replay.c stands in for ssh and plays that for
each host at one sample a second.
"""
import contextlib
import fcntl
import os
import pty
import random
import re
import select
import signal
import statistics
import struct
import subprocess
import termios
import time
from pathlib import Path

from agent_cost import Watcher

CARDS, PROCESSES = 8, 16
COLS, ROWS = 250, 70


# --- recordings ---

def scenario(rng, pids, more=""):
    lines = [f"cards {CARDS}", more]
    for card in range(CARDS):
        lines.append(f"card {card} name=\"NVIDIA A100-SXM4-80GB\" memory=81920 util={rng.randint(0, 100)} memutil={rng.randint(0, 60)} mig=0 "
                     f"ecc=1 power={rng.randint(60000, 400000)} temp={rng.randint(30, 80)} sm={rng.randint(300, 1410)} limit=400000")
        for field in 197, 198:
            lines.append(f"field {card} {field} 0 rate={rng.randint(0, 20000000)}")
        for field, value in (82, rng.randint(30, 90)), (83, rng.randint(0, 10**9)), (186, rng.randint(60000, 400000)), (94, 0), (3, 0), (4, 0), (138, 5), (139, 5):
            lines.append(f"field {card} {field} {value}")
    for i, pid in enumerate(pids):
        lines.append(f"proc {i % CARDS} pid={pid} used={rng.randint(500, 30000)}")
        lines.append(f"use {i % CARDS} pid={pid} sm={rng.randint(0, 50)} mem={rng.randint(0, 20)}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def sleepers(n):
    made = [subprocess.Popen(["sleep", "100000"]) for _ in range(n)]
    try:
        yield [p.pid for p in made]
    finally:
        for p in made:
            p.kill()
            p.wait()


def record(build, work, seconds=15):
    """(frames of a well host, frames of one whose driver hangs), as files."""
    work.mkdir(parents=True)
    rng, path, root = random.Random(1), work / "scenario", work / "root"

    def say(more=""):
        (work / "next").write_text(scenario(rng, pids, more))
        (work / "next").rename(path)
    with sleepers(PROCESSES) as pids:
        say()
        env = {**os.environ, "GPUSTOW_NVML_PATH": str(build / "tests/fake/libnvidia-ml.so.1"), "GPUSTOW_FAKE_NVML": str(path),
               "GPUSTOW_PROMISE_DIR": str(work)}
        for name in "GPUSTOW_SIM", "GPUSTOW_SIM_DIR", "GPUSCHED_SIM_DIR":
            env.pop(name, None)
        subprocess.run([build / "src/gpustow-agent", "serve", root], env=env, check=True)
        w = Watcher(str(root / "agent.sock"))
        w.send(op="hello", protocol=1, build=1, who="recorder")
        agent = w.receive()[1]["pid"]
        try:
            # As the monitor asks; the first frame has the figures that the others build on.
            w.send(op="watch", interval_ms=250, details=True, base=True)
            base, *well = frames(w, seconds, say)
            say("hang nvmlDeviceGetMemoryInfo_v2")
            hung = []
            while len(hung) < 2:
                hung += [f for f in frames(w, 1, lambda: None) if b'"error":""' not in f]
        finally:
            os.kill(agent, signal.SIGTERM)
    assert b'"sample-base"' in base and not any(b'"sample-base"' in f for f in well + hung) and len(well) > 20, len(well)
    (work / "well").write_bytes(base + b"".join(well))
    (work / "hung").write_bytes(base + b"".join(hung))
    (work / "still").write_bytes(base + well[-1])
    return statistics.mean(map(len, well))


def frames(watcher, seconds, between):
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        if len(watcher.data) < 4 or len(watcher.data) < 4 + struct.unpack(">I", watcher.data[:4])[0]:
            watcher.data += watcher.socket.recv(1 << 16)
            continue
        n = 4 + struct.unpack(">I", watcher.data[:4])[0]
        frame, watcher.data = watcher.data[:n], watcher.data[n:]
        if b'"op":"sample' in frame:
            found.append(frame)
            between()
    return found


# --- the program on its terminal ---

def terminal(cols, rows):
    """(screen, stream) of pyte with what xterm can do besides: repeat a character, scroll, tabs back."""
    import pyte

    class Xterm(pyte.Screen):
        last = " "

        def draw(self, data):
            super().draw(data)
            self.last = data[-1:] or self.last

        def repeat(self, n=1):
            self.draw(self.last * (n or 1))

        def scroll(self, n, edge, move):
            at, wrap = (self.cursor.y, self.cursor.x), self.margins or pyte.screens.Margins(0, self.lines - 1)
            self.cursor.y = getattr(wrap, edge)
            for _ in range(n or 1):
                move()
            self.cursor.y, self.cursor.x = at

        def scroll_up(self, n=1):
            self.scroll(n, "bottom", self.index)

        def scroll_down(self, n=1):
            self.scroll(n, "top", self.reverse_index)

        def back_tab(self, n=1):
            for _ in range(n or 1):
                self.cursor.x = max([t for t in self.tabstops if t < self.cursor.x], default=0)

    class Stream(pyte.ByteStream):
        csi = {**pyte.ByteStream.csi, "b": "repeat", "S": "scroll_up", "T": "scroll_down", "Z": "back_tab"}
        events = pyte.ByteStream.events | {"repeat", "scroll_up", "scroll_down", "back_tab"}
    screen = Xterm(cols, rows)
    return screen, Stream(screen)


class Screen:
    """A program on a pty; what comes is kept with its time, and drawn (pyte) only when somebody asks."""

    def __init__(self, argv, env, cols=COLS, rows=ROWS, is_measured=True):
        # Who measures doesn't wait for a core; what's measured does, and says how long.
        with contextlib.suppress(OSError):
            if is_measured:
                os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        self.pid, self.master = pty.fork()
        if not self.pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            os.execve(argv[0], [str(a) for a in argv], env)
        self.screen, self.stream = terminal(cols, rows)
        self.bytes, self.waiting = 0, []

    def sched(self):
        """CPU and time spent waiting for a core, of its only thread, in s."""
        run, wait, _ = Path(f"/proc/{self.pid}/schedstat").read_text().split()
        return int(run) / 1e9, int(wait) / 1e9

    def read(self, seconds):
        """Takes what comes for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and select.select([self.master], [], [], left)[0]:
            data = os.read(self.master, 1 << 20)
            self.waiting.append((time.monotonic(), self.sched(), data))
            self.bytes += len(data)

    def draw(self, until=None):
        """What was read, piece by piece; the first after which `until` holds is returned."""
        found = None
        for piece in self.waiting:
            self.stream.feed(piece[2])
            if not found and until and until("\n".join(self.screen.display)):
                found = piece
        self.waiting = []
        return found

    def sees(self, until, seconds=60):
        end = time.monotonic() + seconds
        while not until("\n".join(self.screen.display)):
            if time.monotonic() > end:
                raise SystemExit("bench: not on the screen in time:\n" + "\n".join(self.screen.display))
            self.read(0.2)
            self.draw()

    def press(self, key, until, collect=0.25, longest=5):
        """(wall, CPU of the program, its waiting for a core) in ms, from the key to the picture that shows it."""
        self.read(random.uniform(0.05, 0.3))
        self.draw()
        if isinstance(until, Changes):
            until = until.now("\n".join(self.screen.display))
        assert not until("\n".join(self.screen.display)), (key, self.screen.display)
        # Drawing took a moment in which the program may have had to wait.
        self.read(0.03)
        cpu, wait = self.sched()
        begun = time.monotonic()
        os.write(self.master, key)
        while time.monotonic() < begun + longest:
            self.read(collect)
            if found := self.draw(until):
                at, (cpu_then, wait_then), _ = found
                return (at - begun) * 1000, (cpu_then - cpu) * 1000, (wait_then - wait) * 1000
        raise SystemExit(f"bench: {key} didn't reach the screen:\n" + "\n".join(self.screen.display))

    def end(self, key=b"q"):
        os.write(self.master, key)
        end = time.monotonic() + 10
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            with contextlib.suppress(OSError):
                if select.select([self.master], [], [], 0.1)[0]:
                    os.read(self.master, 1 << 20)
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
        os.close(self.master)


def memory_mib(pid):
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return tuple(int(re.search(rf"(?m)^{k}:\s+(\d+)", text)[1]) / 1024 for k in ("Rss", "Pss"))


def children_cpu(pid):
    total = 0
    for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{p}/schedstat").read_text().split()[0]) / 1e9
    return total


class Changes:
    """What the pattern finds is another text than when the key is pressed."""

    def __init__(self, pattern):
        self.pattern = pattern

    def now(self, text):
        before = re.search(self.pattern, text)[0]
        return lambda text: bool(found := re.search(self.pattern, text)) and found[0] != before


def shows(pattern, gone=False):
    return lambda text: bool(re.search(pattern, text)) != gone


# Each with what the screen shows then. All cards: 800 of them, sorted.
MONITOR_KEYS = [(b"?", shows("Help:")), (b"q", shows("Help:", gone=True)), (b"v", shows(r"Cards \d+ on")), (b"d", shows("LOAD")),
                (b"d", shows("LOAD", gone=True)), (b"s", shows("available first")), (b"s", shows("busiest first")),
                (b"s", shows("first,", gone=True)), (b"v", shows(r"Cards \d+ on", gone=True))]


def home_of_hosts(build, work, n, recording, other=""):
    """A home whose config.yml names n hosts, and the environment in which ssh is the recording."""
    home, ways = work / "home", work / "bin"
    (home / ".gpustow").mkdir(parents=True)
    ways.mkdir()
    (ways / "ssh").symlink_to(build / "bench" / "replay")
    (home / ".gpustow" / "config.yml").write_text("servers:\n" + "".join(f"  - {{nickname: n{i}, hostname: n{i}}}\n" for i in range(n)))
    return {"PATH": f"{ways}:/usr/bin:/bin", "HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TZ": "UTC",
            "GPUSTOW_AGENT_ROOT": str(work / "agent"), "GPUSTOW_AGENT_IDLE": "1", "GPUSTOW_NVML_PATH": "/nonexistent/libnvidia-ml.so.1",
            "GPUSTOW_PROMISE_DIR": str(work), "XDG_CACHE_HOME": str(work / "cache"), "REPLAY_FRAMES": str(recording),
            "REPLAY_OTHER": other}


def load(screen, seconds):
    """CPU of the program and of its children in % of a core, bytes to the terminal a second."""
    screen.bytes, (cpu, _), theirs, begun = 0, screen.sched(), children_cpu(screen.pid), time.monotonic()
    while time.monotonic() < begun + seconds:
        screen.read(1)
    took = time.monotonic() - begun
    screen.draw()
    return ((screen.sched()[0] - cpu) / took * 100, (children_cpu(screen.pid) - theirs) / took * 100, screen.bytes / took)


def one_host(build, work, program, seconds=10):
    """A monitor (gpustow, or another that takes NVML's library by its name) over this machine's fake cards: load, memory."""
    work.mkdir(parents=True)
    (work / "cards").write_text(scenario(random.Random(1), []))
    fake = build / "tests" / "fake"
    env = {"PATH": "/usr/bin:/bin", "HOME": str(work), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "GPUSTOW_AGENT_ROOT": str(work / "agent"),
           "GPUSTOW_AGENT_IDLE": "1", "GPUSTOW_PROMISE_DIR": str(work), "GPUSTOW_FAKE_NVML": str(work / "cards"),
           "GPUSTOW_NVML_PATH": str(fake / "libnvidia-ml.so.1"), "LD_LIBRARY_PATH": str(fake)}
    s = Screen([program], env)
    try:
        s.sees(shows("A100"))
        s.read(3)
        return *load(s, seconds), *memory_mib(s.pid)
    finally:
        s.end()


def at_rest(build, work, hosts=100, seconds=5):
    """Bytes a second to the terminal while no host's figures change, and the rows that they change: clock, this machine."""
    env = home_of_hosts(build, work, hosts, work.parent / "hosts" / "recording" / "still")
    s = Screen([build / "src" / "gpustow", "--remote"], env)
    try:
        s.sees(shows(rf"(?s)\[{min(hosts, 9)}\]"))
        s.read(5)
        s.draw()
        before = list(s.screen.display)
        s.bytes = 0
        s.read(seconds)
        n = s.bytes
        s.draw()
        return n / seconds, [y for y, (a, b) in enumerate(zip(before, s.screen.display)) if a != b]
    finally:
        s.end()


def monitor(build, work, hosts=100, seconds=30, rounds=6):
    """The monitor over so many hosts: dict of figures."""
    kib = record(build, work / "recording") / 1024
    env = home_of_hosts(build, work, hosts, work / "recording" / "well", f"n3 {work / 'recording' / 'hung'}")
    s = Screen([build / "src" / "gpustow", "--remote"], env)
    try:
        s.sees(shows(rf"(?s)\[{min(hosts, 9)}\]"))
        s.read(5)
        s.draw()
        figures = {"sample_kib": kib, "load": load(s, seconds), "memory_mib": memory_mib(s.pid)}
        figures["nodes"] = re.search(r"(\d+) servers?.*", "\n".join(s.screen.display))[0].strip()
        s.press(b"v", shows(r"Cards \d+ on"))
        figures["load_cards"] = load(s, seconds / 2)
        s.press(b"v", shows(r"Cards \d+ on", gone=True))
        figures["keys"] = [s.press(*k) for _ in range(rounds) for k in MONITOR_KEYS]
    finally:
        s.end()
    return figures


def tell_keys(keys):
    """(median, longest, the longest less what it waited for a core, longest CPU) in ms."""
    walls, cpu, wait = zip(*keys)
    return statistics.median(walls), max(walls), max(w - x for w, x in zip(walls, wait)), max(cpu)


if __name__ == "__main__":
    import sys
    import tempfile
    with tempfile.TemporaryDirectory(prefix="gpustow-recorded-", ignore_cleanup_errors=True) as top:
        print("load", os.getloadavg())
        got = monitor(Path(sys.argv[1]).resolve(), Path(top), *map(int, sys.argv[2:]))
        print({k: v for k, v in got.items() if k != "keys"})
        print("keys: median %.1f, longest %.1f, less waiting %.1f, CPU %.1f ms" % tell_keys(got["keys"]), len(got["keys"]))
        print("load", os.getloadavg())
