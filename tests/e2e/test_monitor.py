"""The live monitor in a real terminal (tmux): its keys, raw mouse reports, resizing, and every way out."""
import fcntl
import json
import os
import pty
import random
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import Lab, missing  # noqa: E402
from deaf_terminal import DeafTerminal  # noqa: E402
from harness import BUILD, DEADLINE, MARK, ROOT, is_alive, program, read_text, until  # noqa: E402


needs_lab = pytest.mark.skipif(missing() is not None, reason=missing() or "")
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")
FAKE = BUILD / "tests" / "fake" / "libnvidia-ml.so.1"


def wcswidth(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def names(key):
    """A key of a manual's table as tmux calls it."""
    special = {"Right": "Right", "PgDn": "NPage", "PgUp": "PPage", "Esc": "Escape", "Shift-Up": "S-Up", "Shift-Down": "S-Down"}
    return special.get(key) or (f"C-{key[5:].lower()}" if key.startswith("Ctrl-") else key)


def keys_of(manual):
    """Those of the table in a page of docs."""
    found = []
    table = (ROOT / "docs" / manual).read_text().split("## Keys\n", 1)[1].split("\n##", 1)[0]
    for row in re.findall(r"(?m)^\| (.+?) \|", table)[1:]:
        found += [names(k) for k in re.findall(r"`([^`]+)`", row) or []]
        found += [names(k) for k in re.sub(r"`[^`]+`|[(),]", " ", row).split()]
    return [k for k in found if k != "|"]


def unpressed(manual, *files):
    """Keys of that table that no test here gives to a terminal: what's between quotes in a call of keys()."""
    pressed = set()
    for f in files:
        source = Path(f).read_text()
        for call in re.findall(r"keys\(([^\n]*)", source) + re.findall(r"for [^\n]*\bkey\b[^\n]* in ([^\n]*):", source):
            pressed |= set(re.findall(r'"([^"]+)"', call))
            pressed |= {c for word in re.findall(r'\*"([^"]+)"', call) for c in word}
    return sorted(set(keys_of(manual)) - pressed)


def unread(fd):
    """Bytes that were typed and that nobody has read."""
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]


class Tmux:
    """A terminal of its own server, with a shell's prompt to come back to."""

    def __init__(self, world, *args, cols=120, rows=40, env=None, term="tmux-256color", name="gpustow", line=None):
        self.world = world
        self.socket = str(world.dir / f"tmux{len(world.started)}-{time.monotonic_ns()}")
        self.err = world.dir / "monitor.err"
        self.env = {**world.env, "TERM": "xterm-256color", **(env or {})}
        line = line or (f"stty -a > {world.dir}/stty.before; {shlex.join([program(name), *args])} 2>>{self.err}; "
                        f"echo \"EXIT $?\"; stty -a > {world.dir}/stty.after; exec sleep 600")
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows),
                  "env", f"TERM={term}", "sh", "-c", line)

    def tmux(self, *args, check=True):
        return subprocess.run(["tmux", "-S", self.socket, *args], env=self.env, check=check, capture_output=True,
                              text=True).stdout

    def keys(self, *keys):
        for k in keys:
            self.tmux("send-keys", k)
        return self

    def raw(self, data):
        self.tmux("send-keys", "-H", *[f"{b:02x}" for b in data])
        return self

    def place(self, text):
        """(x, y) of the first character of that text, a pattern, or of its group, once it's there and stays where it is."""
        def find():
            for y, line in enumerate(self.text().split("\n")):
                found = re.search(text, line)
                if found:
                    return wcswidth(line[:found.start(1 if found.re.groups else 0)]), y
            return None

        def look():
            at = find()
            time.sleep(0.05)
            return at if at and at == find() else None
        return until(look, every=0.05, why=lambda: f"{text!r} isn't on the screen:\n{self.text()}")

    def click(self, text):
        x, y = self.place(text)
        return self.raw(f"\x1b[<0;{x + 1};{y + 1}M\x1b[<0;{x + 1};{y + 1}m".encode())

    def wheel_at(self, text, down=True):
        x, y = self.place(text)
        return self.wheel(x + 1, y + 1, down)

    def wheel(self, x, y, down=True):
        return self.raw(f"\x1b[<{65 if down else 64};{x};{y}M".encode())

    def text(self):
        return self.tmux("capture-pane", "-p")

    def sees(self, *words, gone=(), deadline=DEADLINE):
        seen = {}

        def look():
            seen["text"] = t = self.text()
            return t if all(re.search(w, t) for w in words) and not any(re.search(w, t) for w in gone) else None
        return until(look, deadline, every=0.05, why=lambda: f"{words} (gone: {gone}) in\n{seen['text']}\n{self.err.read_text() if self.err.exists() else ''}")

    def flag(self, name):
        return self.tmux("display-message", "-p", "#{" + name + "}").strip()

    def monitor_pid(self):
        shell = int(self.flag("pane_pid"))

        def look():
            for p in Path(f"/proc/{shell}/task/{shell}/children").read_text().split():
                if b"gpustow" in Path(f"/proc/{p}/cmdline").read_bytes() or b"nvidb" in Path(f"/proc/{p}/cmdline").read_bytes():
                    return int(p)
            return None
        return until(look, why="the monitor's process")

    def is_restored(self):
        """As it was before: alternate screen, cursor, mouse, line discipline."""
        text = self.sees(r"EXIT \d+")
        assert self.flag("alternate_on") == "0", text
        assert self.flag("cursor_flag") == "1"
        assert self.flag("mouse_any_flag") == "0" and self.flag("mouse_sgr_flag") == "0"
        until(lambda: (self.world.dir / "stty.after").exists() and (self.world.dir / "stty.after").read_text())
        before, after = ((self.world.dir / f"stty.{w}").read_text().split("\n", 1)[1] for w in ("before", "after"))
        assert before == after
        return text

    def end(self):
        self.tmux("kill-server", check=False)


@pytest.fixture
def monitor(world):
    made = []

    def make(*args, **more):
        made.append(Tmux(world, *args, **more))
        return made[-1]
    yield make
    for t in made:
        t.end()


def config(world, home=".gpustow"):
    path = world.dir / "home" / home / "config.yml"
    return path.read_text() if path.exists() else ""


def says(world, *lines):
    return until(lambda: all(line in config(world) for line in lines), why=lambda: f"{lines} in\n{config(world)}")


def test_the_bare_command_is_the_monitor(world, monitor):
    t = monitor("--sim", "2")
    t.sees("Servers", r"\[1\] . local +2 GPUs +2 idle", "Simulated GPU")
    assert t.flag("alternate_on") == "1" and t.flag("cursor_flag") == "0" and t.flag("mouse_sgr_flag") == "1"
    # The bottom row is never written.
    assert t.text().split("\n")[39] == ""
    t.keys("q")
    assert "EXIT 0" in t.is_restored()


def test_every_key_of_the_nodes(world, monitor):
    t = monitor("--sim", "2")
    t.sees("Simulated GPU")
    t.keys("Enter").sees(r"▸ \[1\]", gone=["Simulated GPU"])
    t.keys("Space").sees(r"▾ \[1\]", "Simulated GPU")
    t.keys("c").sees(r"▸ \[1\]", gone=["Simulated GPU"])
    t.keys("a").sees("Simulated GPU")
    t.keys("t").sees("mean util now")
    t.keys("j", "k", "Down", "Up", "NPage", "PPage", "u", "r", "C-l")
    t.sees("Simulated GPU")
    t.keys("?").sees("Help: servers")
    t.keys("q").sees("Simulated GPU", gone=["Help"])
    says(world, "trends: true", "hide_unsupported: false")
    t.keys("v").sees("Cards 2 on 1/1 nodes")
    says(world, "mode: unified")
    t.keys("q")
    t.is_restored()


def test_every_key_of_the_cards(world, monitor):
    world.foreign({0: 6000})
    t = monitor("--sim", "3")
    t.sees("Simulated GPU")
    t.keys("v").sees("local +3 GPUs", r"› +0")
    t.keys("d").sees("LOAD", "MEM/TEMP", "I/O", "Processes 1 on local GPU 0")
    t.keys("d").sees(gone=["LOAD"])
    t.keys("s").sees("available first")
    t.keys("s").sees("busiest first")
    t.keys("s").sees("local +3 GPUs", gone=["first,"])
    t.keys("f").sees("Cards 2/3", 'the filter "available" hides 1 card')
    t.keys("f").sees('the filter "busy" hides')
    t.keys("f").sees("No node errors")
    t.keys("f").sees("Cards 3 on")
    t.keys("g").sees("Node", "Hostname/IP")
    t.keys("g").sees(gone=["Hostname/IP"])
    t.keys("t").sees("util now", "temp now")
    t.keys("t").sees(gone=["util now"])
    t.keys("j").sees("› +1 ")
    t.keys("k").sees("› +0 ")
    t.keys("End").sees("› +2 ")
    t.keys("Home").sees("› +0 ")
    t.keys("NPage", "PPage", "Down", "Up").sees("› +0 ")
    for key in ("Enter", "Space", "l", "Right"):
        t.keys(key).sees("Processes 1 on local GPU 0", "╌ Cards")
        t.keys("h" if key != "Right" else "Left").sees("─ Cards")
        t.keys("p").sees(gone=["Processes 1"])
    t.keys("x").sees("every figure", "util_gpu_pct", "uuid")
    t.keys("Escape").sees(gone=["every figure"])
    t.keys("y")
    says(world, "theme: classic")
    t.keys("y", "y")
    says(world, "theme: light")
    t.keys("y")
    says(world, "theme: muted")
    t.sees("Updated")
    # As often as it takes: there's no way back before there was something, and now moves on, too.
    until(lambda: t.keys("<") and re.search(r"\d s ago", t.text()), every=0.2)
    until(lambda: t.keys(">") and not re.search("s ago", t.text()), every=0.2)
    until(lambda: t.keys("<") and re.search(r"\d s ago", t.text()), every=0.2)
    t.keys("Escape").sees(gone=["s ago"])
    t.keys("?").sees("Help: cards")
    t.keys("?").sees(gone=["Help: cards"])
    t.keys("q")
    t.is_restored()


def test_every_key_of_the_processes(world, monitor):
    one, two = world.foreign({0: 6000}), world.foreign({0: 3000})
    t = monitor("--sim", "1")
    t.sees("Simulated GPU")
    t.keys("v", "Enter").sees("Processes 2 on local GPU 0, by VRAM down", rf"› +{one.process.pid}", "sleep 300")
    t.keys("j").sees(rf"› +{two.process.pid}")
    t.keys("Up").sees(rf"› +{one.process.pid}")
    for key, word in zip(["o", "F6", "o", "F6", "o", "o", "o"], ["CPU", "MEM", "RSS", "TIME", "PID", "COMMAND", "VRAM"]):
        t.keys(key).sees(f"by {word} {'up' if word == 'COMMAND' else 'down'}")
    t.keys("O").sees("by VRAM up")
    t.keys("O").sees("by VRAM down")
    t.keys("G").sees(", tree")
    t.keys("G").sees(", by user", "2 processes")
    t.keys("G").sees(gone=["by user"])
    t.keys("/").sees("find: ")
    t.keys(*"qKT").sees("find: qKT", "Processes 0/2")
    t.keys("BSpace").sees("find: qK ", gone=["qKT"])
    t.keys("C-u", *str(two.process.pid)).sees("Processes 1/2")
    t.keys("Enter").sees("only what matches", gone=["find: "])
    t.keys("Escape").sees("Processes 2 on", gone=["only what"])
    t.keys("+", "=", "+", "-", "[", "]", "NPage", "PPage")
    t.keys("Tab").sees("─ Cards")
    t.keys("BTab").sees("─ Processes")
    t.keys("?").sees("Help: processes")
    t.keys("Space").sees(gone=["Help"])
    t.keys("Home", "i").sees("SIGINT to process")
    t.keys("Escape").sees(gone=["SIGINT to process"])
    t.keys("F7").sees("SIGINT to process")
    t.keys("F8").sees("SIGTERM to process")
    t.keys("K").sees("SIGKILL to process")
    t.keys("j").sees(gone=["SIGKILL to process"])
    assert is_alive(one.process.pid) and is_alive(two.process.pid)
    t.keys("q")
    t.is_restored()


def test_a_confirmed_signal_reaches_the_process_and_no_other(world, monitor):
    big, small = world.foreign({0: 6000}), world.foreign({0: 3000})
    t = monitor("--sim", "1")
    t.sees("Simulated GPU")
    t.keys("v", "Enter").sees(rf"› +{big.process.pid}")
    t.keys("T").sees(f"SIGTERM to process {big.process.pid}")
    assert big.process.poll() is None
    t.keys("T").sees("the signal was sent")
    assert big.process.wait(DEADLINE) == -signal.SIGTERM
    assert small.process.poll() is None
    big.path.unlink(missing_ok=True)
    t.sees("Processes 1 on", rf"› +{small.process.pid}")
    t.keys("K").sees("SIGKILL to process")
    t.keys("Enter").sees("the signal was sent")
    assert small.process.wait(DEADLINE) == -signal.SIGKILL
    t.keys("q")
    t.is_restored()


def test_every_key_of_the_table_is_pressed():
    assert unpressed("monitor.md", __file__) == []


def test_other_names_of_keys_and_what_is_drawn_anew(world, monitor):
    t = monitor("--sim", "3")
    t.sees("Simulated GPU")
    t.keys("F1").sees("Help: servers")
    t.keys("F1").sees(gone=["Help:"])
    until(lambda: t.keys(",").text() and re.search(r"\d s ago", t.text()), every=0.3)
    t.keys("Escape").sees(gone=["s ago"])
    t.keys("v", "End").sees("› +2 ")
    t.keys("Home").sees("› +0 ")
    t.keys("NPage").sees("› +2 ")
    t.keys("PPage").sees("› +0 ")
    # What somebody else writes onto the terminal is gone after Ctrl-L.
    with open(t.flag("pane_tty"), "w") as tty:
        tty.write("\x1b[20;30Hrubbish")
    t.sees("rubbish")
    t.keys("C-l").sees(gone=["rubbish"])
    t.keys("C-c")
    assert "EXIT 0" in t.is_restored()


def test_rows_and_pages_of_the_processes(world, monitor):
    for i in range(10):
        world.foreign({0: 500 + i})
    # A command of several pages.
    command = ["bash", "-c", "sleep 300; :", *[f"word{i:04d}" for i in range(45)]]
    long = subprocess.Popen(command, env={**os.environ, MARK: world.mark}, start_new_session=True, stdin=subprocess.DEVNULL)
    (world.sim / "foreign1.json").write_text(json.dumps({"pid": long.pid, "usage": {"0": 9000}}))
    t = monitor("--sim", "1", cols=60, rows=60)

    def rows():
        # The table has a mark or blanks, a number, and the memory; the command below it hasn't.
        return len(re.findall(r"(?m)^[│╎][› ] +\d+ +\d+M", t.text()))
    try:
        t.sees("Simulated GPU")
        t.keys("v", "Enter").sees("Processes 11 on", rf"› +{long.pid}")
        before = until(rows)
        t.keys("+", "+")
        until(lambda: rows() == before + 2, why=lambda: t.text())
        t.keys("=")
        until(lambda: rows() == before + 3, why=lambda: t.text())
        t.keys("-")
        until(lambda: rows() == before + 2, why=lambda: t.text())
        t.keys(*"--------").sees("word0000", gone=["word0044"])
        t.keys("]").sees("word", gone=["word0000"])
        t.keys("[").sees("word0000", gone=["word0044"])
        # The wheel acts on the pane below it: the command, then the processes, then the cards.
        t.wheel_at("word0010").sees(gone=["sleep 300; : word0000"])
        t.wheel_at("word0010", down=False).sees("word0000")
        t.wheel_at(f"{long.pid} +9000M").sees(gone=[rf"› +{long.pid}"])
        t.wheel_at(r"› +\d+ +\d+M", down=False).sees(rf"› +{long.pid}")
        t.keys("NPage").sees(gone=[rf"› +{long.pid}"])
        t.keys("PPage").sees(rf"› +{long.pid}")
        t.keys("q")
        t.is_restored()
    finally:
        os.killpg(long.pid, signal.SIGKILL)
        long.wait()
        (world.sim / "foreign1.json").unlink(missing_ok=True)


def test_each_signal_by_its_function_key(world, monitor):
    ill = [world.foreign({0: 6000 - i * 1000}) for i in range(3)]
    t = monitor("--sim", "1")
    t.sees("Simulated GPU")
    t.keys("v", "Enter").sees(rf"› +{ill[0].process.pid}")
    for f, key, name in zip(ill, ("F7", "F8", "F9"), (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)):
        t.keys("Home").sees(rf"› +{f.process.pid}")
        t.keys(key).sees(f"{name.name} to process {f.process.pid}")
        t.keys(key).sees("the signal was sent")
        assert f.process.wait(DEADLINE) == -name
        f.path.unlink(missing_ok=True)
        t.sees(gone=[rf"› +{f.process.pid}"])
    t.keys("q")
    t.is_restored()


def test_the_mouse_on_processes_buttons_and_dashes(world, monitor):
    path = world.dir / "scenario"
    path.write_text("cards 1\nerr nvmlDeviceGetFanSpeed 3\nerr nvmlDeviceGetFanSpeed_v2 3\n")
    t = monitor(env={"GPUSTOW_NVML_PATH": str(FAKE), "GPUSTOW_FAKE_NVML": str(path)}, cols=200)
    t.sees("1 server")
    t.keys("v").sees("Cards 1 on")
    t.click(r"\dC +(-) +P\d").sees("no fan_pct: this card or driver doesn't have it")
    t.keys("v").sees("Servers")
    t.keys("q")
    t.is_restored()
    says(world, "mode: nodes")
    one, two = world.foreign({0: 6000}), world.foreign({0: 3000})
    t = monitor("--sim", "1")
    t.sees("Simulated GPU")
    t.click(r"t\] history").sees("mean util now")
    t.click(r"v\] view").sees("Cards 1 on")
    t.keys("p").sees("Processes 2 on")
    t.click(rf"{two.process.pid} ").sees(rf"› +{two.process.pid}", "─ Processes")
    t.click(r"/\] find").sees("find: ")
    t.keys("Escape").sees(gone=["find: "])
    t.click(r"o\] sort").sees("by CPU")
    t.click(r"G\] group").sees(", tree")
    t.click(r"T\] SIGTERM").sees(f"SIGTERM to process {two.process.pid}")
    t.click(r"T\] SIGTERM").sees("the signal was sent")
    assert two.process.wait(DEADLINE) == -signal.SIGTERM and is_alive(one.process.pid)
    t.click(r"d\] detail").sees("MEM/TEMP")
    t.click(r"s\] sort").sees("available first")
    t.click(r"f\] filter").sees('filter "available"|Cards 0/1')
    t.click(r"q\] quit")
    t.is_restored()


def test_the_mouse_in_raw_reports_whole_and_in_pieces(world, monitor):
    world.foreign({1: 2000})
    t = monitor("--sim", "3")
    t.sees("Simulated GPU")
    t.click(r"\[1\]").sees(r"▸ \[1\]")
    t.click(r"v\] view").sees("Cards 3 on")
    t.click("1 +Simulated").sees("› +1 ")
    t.click(r"Enter\] processes").sees("Processes 1 on local GPU 1")
    t.click("CPU%").sees("by CPU down")
    t.click("CPU%").sees("by CPU up")
    y = next(i for i, line in enumerate(t.text().split("\n")) if "› 1" in re.sub(" +", " ", line)) + 1
    # A report that arrives in pieces, slower than the time after which a lone Esc is a key.
    for piece in (b"\x1b[", b"<", b"65;10", f";{y}M".encode()):
        t.raw(piece)
        time.sleep(0.15)
    t.sees("› +2 ")
    t.wheel(10, y, down=False).sees("› +1 ")
    t.click(r"K\] SIGKILL").sees("› +1 ", gone=["SIGKILL to process"])
    t.click(r"\?\] help").sees("Help:")
    t.raw(b"\x1b[<0;20;20M").sees(gone=["Help:"])
    t.click(r"q\] quit")
    t.is_restored()


def test_without_mouse(world, monitor):
    home = world.dir / "home" / ".gpustow"
    home.mkdir()
    (home / "config.yml").write_text("# mine\nview:\n  mouse: false # no\n  mode: unified\n  sort: sideways\n")
    t = monitor("--sim", "1")
    t.sees("Cards 1 on")
    assert t.flag("mouse_any_flag") == "0"
    t.keys("g")
    says(world, "group_by_node: false", "# mine", "mouse: false # no", "sort: sideways")
    t.keys("q")
    t.is_restored()


def test_a_layout_that_cannot_be_kept_is_said(world, monitor):
    home = world.dir / "home" / ".gpustow"
    home.mkdir()
    (home / "config.yml").write_text("view: {mode: unified}\n")
    t = monitor("--sim", "1")
    t.sees("Cards 1 on")
    t.keys("g").sees("the layout can't be written to config.yml")
    assert config(world) == "view: {mode: unified}\n"
    t.keys("q")
    t.is_restored()


def test_the_same_layout_next_time_under_the_other_name(world, monitor):
    t = monitor("--sim", "1", name="nvidb")
    t.sees("Simulated")
    t.keys("v", "d", "t").sees("LOAD", "util now")
    t.keys("q").is_restored()
    assert "detailed: true" in config(world, ".nvidb")
    t = monitor("--sim", "1", name="nvidb")
    t.sees("LOAD", "util now")
    t.keys("q")
    t.sees("EXIT 0")


def test_resized_at_random(world, monitor):
    seed = int(os.environ.get("GPUSTOW_SEED", time.time_ns() % 1000000))
    print("seed", seed)
    rng = random.Random(seed)
    world.foreign({0: 2000})
    t = monitor("--sim", "4", cols=100, rows=30)
    t.sees("Simulated")
    t.keys("v", "d", "t")
    for _ in range(40):
        cols, rows = rng.choice([(1, 1), (2, 60), (200, 3), (rng.randint(1, 220), rng.randint(1, 60))])
        t.tmux("resize-window", "-x", str(cols), "-y", str(rows))
        t.keys(rng.choice(["j", "k", "d", "v", "t", "p", "Tab", "Enter", "?", "Escape"]))
    t.keys("Escape", "Escape")
    t.tmux("resize-window", "-x", "30", "-y", "8")
    t.sees("The terminal has 30x8 cells")
    t.tmux("resize-window", "-x", "110", "-y", "40")
    t.sees("1 server", gone=["The terminal has"])
    t.keys("q")
    t.is_restored()


@pytest.mark.parametrize("signo, code", [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_ends_of_their_own(world, monitor, signo, code):
    t = monitor("--sim", "1")
    t.sees("Simulated")
    os.kill(t.monitor_pid(), signo)
    assert f"EXIT {code}" in t.is_restored()


@pytest.mark.parametrize("signo", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE])
def test_crashes_give_the_terminal_back(world, monitor, signo):
    env = {"ASAN_OPTIONS": world.env["ASAN_OPTIONS"] + ":handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigfpe=0"}
    t = monitor("--sim", "1", env=env)
    t.sees("Simulated")
    os.kill(t.monitor_pid(), signo)
    assert f"EXIT {128 + signo}" in t.is_restored()


def test_stopped_and_continued(world):
    """Under a shell that has jobs."""
    t = Tmux(world, line=f"exec bash --norc --noprofile -i")
    try:
        t.tmux("send-keys", "-l", f"PS1='$ '; {program()} --sim 1")
        t.keys("Enter").sees("Simulated")
        t.keys("C-z").sees(r"\[1\]\+ +Stopped")
        assert t.flag("alternate_on") == "0" and t.flag("mouse_any_flag") == "0" and t.flag("cursor_flag") == "1"
        t.tmux("send-keys", "-l", "fg")
        t.keys("Enter")
        until(lambda: t.flag("alternate_on") == "1", why="the screen again")
        t.sees("Simulated")
        assert t.flag("mouse_sgr_flag") == "1"
        t.keys("v").sees("Cards 1 on")
        t.keys("q").sees(r"gpustow --sim 1\n\$", gone=["Cards"])
        t.tmux("send-keys", "-l", "exit")
        t.keys("Enter")
    finally:
        t.end()


def test_a_closed_terminal_ends_it(world):
    """No HUP, no reader: the end of the terminal is enough."""
    pid, master = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execve(program(), [program(), "--sim", "1"], {**world.env, "TERM": "xterm"})
    end = time.monotonic() + DEADLINE
    seen = b""
    while b"Simulated" not in seen and time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            seen += os.read(master, 65536)
    assert b"Simulated" in seen
    os.close(master)
    until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, why="it ends when its terminal is closed")


@pytest.mark.parametrize("signo, code", [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_terminal_that_does_not_read_delays_nothing(world, is_stopped, signo, code):
    t = DeafTerminal(world, program(), "--sim", "2")
    try:
        t.hears(b"Simulated")
        for mode, word in (("unified", b"Cards 2 on"), ("nodes", b"Servers")):
            if is_stopped:
                termios.tcflow(t.slave, termios.TCOOFF)
            t.fill()
            # The key is done, though nobody sees it yet.
            t.press(b"v")
            says(world, f"mode: {mode}")
            if is_stopped:
                termios.tcflow(t.slave, termios.TCOON)
            # The latest picture, whole.
            t.hears(b"\x1b[H\x1b[2J", b"Updated", word)
        if is_stopped:
            termios.tcflow(t.slave, termios.TCOOFF)
        t.fill()
        t.run.kill(signo)
        t.ends(code)
    finally:
        t.close()


def test_a_deaf_terminal_that_is_closed_ends_it(world):
    t = DeafTerminal(world, program(), "--sim", "2")
    t.hears(b"Simulated")
    t.fill()
    os.close(t.slave)
    os.close(t.master)
    t.run.wait(None)


def test_without_a_screen_there_is_a_sentence(world, monitor):
    r = world.ask("--sim", "1", code=1)
    assert r.err.startswith("gpustow: a screen needs a terminal") and "--once" in r.err and not r.out
    for term in ("dumb", "nonsense", ""):
        t = monitor("--sim", "1", term=term)
        t.sees("EXIT 1")
        assert "can't move its cursor" in t.err.read_text()
        assert ("TERM=xterm-256color" in t.err.read_text()) == (term == "nonsense")
        t.err.unlink()


def painted(t):
    """(text, foreground, background, reversed) of what's on the screen, as tmux knows it."""
    found, fg, bg, is_reversed = [], None, None, False
    for codes, text in re.findall(r"\x1b\[([0-9;]*)m([^\x1b]*)|[^\x1b]+", t.tmux("capture-pane", "-e", "-p")):
        numbers = [int(c or 0) for c in codes.split(";")]
        while numbers:
            n = numbers.pop(0)
            if n in (38, 48):
                colour = numbers.pop(1)
                del numbers[0]
                fg, bg = (colour, bg) if n == 38 else (fg, colour)
            elif n == 0:
                fg, bg, is_reversed = None, None, False
            elif n in (7, 27):
                is_reversed = n == 7
            elif 30 <= n <= 39:
                fg = None if n == 39 else n - 30
            elif 40 <= n <= 49:
                bg = None if n == 49 else n - 40
        if text.strip():
            found.append((text.strip(), fg, bg, is_reversed))
    return found


# Figures of a card that's all bad news, and of one that is half of it.
HOT = "card 0 util=97 memutil=95 used=24000 temp=90\ncard 1 util=30 memutil=30 used=14000 temp=70\n"


def test_figures_can_be_read_with_eight_colours(world, monitor):
    path = world.dir / "scenario"
    path.write_text(HOT)
    t = monitor(env={"GPUSTOW_NVML_PATH": str(FAKE), "GPUSTOW_FAKE_NVML": str(path)}, term="xterm")
    t.sees("24000/24576", "14000/24576")
    papered = [p for p in painted(t) if p[2] is not None]
    assert {p[2] for p in papered} >= {1, 3}, papered
    for text, fg, bg, is_reversed in papered:
        assert fg is not None and fg != bg and not is_reversed, (text, fg, bg, is_reversed)
    t.keys("q")
    t.is_restored()


def test_no_color_and_light_backgrounds(world, monitor):
    t = monitor("--sim", "1", env={"NO_COLOR": "1", "COLORFGBG": "0;15"})
    t.sees("Simulated GPU")
    assert not [p for p in painted(t) if p[1] is not None or p[2] is not None]
    t.keys("q")
    t.is_restored()
    t = monitor("--sim", "1", env={"COLORFGBG": "0;15"})
    t.sees("Simulated GPU")
    # The selected line is dark on light, and nothing was written down of that.
    assert [p for p in painted(t) if p[2] == 253 and p[1] == 232]
    assert "theme" not in config(world)
    # Who chose a theme has it, here too.
    t.keys("y").sees("Simulated GPU")
    says(world, "theme: muted")
    t.keys("q")
    t.is_restored()


def test_line_by_line(world, monitor):
    world.foreign({0: 2000})
    t = monitor("--sim", "1", "--plain", term="dumb")
    t.sees("1 server, 0 failed, 1 card.", "Card 0, Simulated GPU, use")
    t.keys("Enter").sees(r"(?s)Card 0.*Card 0")
    t.keys("q", "Enter").sees("EXIT 0")


@pytest.mark.parametrize("signo, code", [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_line_by_line_nobody_is_waited_for_either(world, signo, code):
    """A terminal that doesn't read delays neither samples nor a signal; what can't be said any more is counted, and that's said."""
    path = world.dir / "scenario"
    path.write_text("".join(f'card {i} name="{"N" * 60}"\n' for i in range(64)))
    t = DeafTerminal(world, program(), "--plain", env={"GPUSTOW_NVML_PATH": str(FAKE), "GPUSTOW_FAKE_NVML": str(path)})
    try:
        t.hears(b"64 cards.", b"q ends.")
        termios.tcflow(t.slave, termios.TCOOFF)
        # More than a megabyte of answers.
        for _ in range(300):
            t.press(b"\n")
            time.sleep(0.002)
        t.press(b"\n")
        until(lambda: not unread(t.slave), why="all that was typed is read")
        termios.tcflow(t.slave, termios.TCOON)
        said = t.hears(b"Nobody read for a while", b"left out. Enter says all of it anew.")
        assert said.count(b"64 cards.") > 10
        t.press(b"\n")
        t.hears(b"64 cards.", b"q ends.")
        termios.tcflow(t.slave, termios.TCOOFF)
        for _ in range(50):
            t.press(b"\n")
        until(lambda: not unread(t.slave), why="all that was typed is read")
        t.run.kill(signo)
        t.run.wait(code)
    finally:
        t.close()


def test_nothing_is_written_when_nothing_changes(world, monitor):
    """What goes to the terminal in some seconds at rest: the clock and a figure or two, no whole pictures."""
    pid, master = pty.fork()
    if not pid:
        os.execve(program(), [program(), "--sim", "1"], {**world.env, "TERM": "xterm-256color"})
    def read(seconds):
        seen, end = b"", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                seen += os.read(master, 65536)
        return seen
    seen = []
    until(lambda: seen.append(read(0.2)) or b"Simulated" in b"".join(seen), why="its cards")
    read(3)
    n = len(read(4))
    os.write(master, b"q")
    until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid)
    os.close(master)
    # A whole picture of 80x24 has some 2000 bytes; four seconds at rest have four clocks.
    assert n < 2000, n


def test_a_hung_driver_delays_no_key(world, monitor):
    path = world.dir / "scenario"
    path.write_text("cards 2\nhang nvmlDeviceGetMemoryInfo_v2\n")
    t = monitor(env={"GPUSTOW_NVML_PATH": str(FAKE), "GPUSTOW_FAKE_NVML": str(path)})
    t.sees("1 server")

    def samplers():
        return [p for p in world.processes() if read_text(f"/proc/{p}/comm") == "gpustow-sampler\n"]

    def while_one_call_hangs():
        hung = samplers()
        t.keys("v").sees("all cards")
        t.keys("v").sees("by node")
        return hung and samplers() == hung
    until(while_one_call_hangs, why="two keys while one and the same call hangs")
    t.keys("q")
    t.is_restored()




# --- hosts by SSH, each in its namespace, with the fake driver ---

class LabTmux(Tmux):
    """The monitor on the client of the lab."""

    def __init__(self, world, lab, *args, cols=130, rows=40):
        line = shlex.join(lab.command("ctl", "env", "-i", *lab.env, "LC_ALL=C.UTF-8", "TERM=tmux-256color", "gpustow", "--remote", *args))
        super().__init__(world, line=f"cd /; {line} 2>>{world.dir}/monitor.err; echo \"EXIT $?\"; exec sleep 600", cols=cols, rows=rows)


def forget_masters(lab):
    lab.bash("ctl", "for s in /root/.gpustow*/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)


@pytest.fixture(scope="module")
def lab():
    made = Lab()
    yield made
    made.down()


def servers(lab, *lines):
    lab.bash("ctl", "mkdir -p /root/.gpustow; rm -rf /root/.gpustow/config.yml; true")
    lab.write("ctl", "/root/.gpustow/config.yml", "servers:\n" + "".join(f"  - {line}\n" for line in lines))


@needs_lab
def test_hosts_come_one_by_one_and_a_password_is_asked_for_in_a_box(world, lab):
    forget_masters(lab)
    servers(lab, "{hostname: key, username: root, nickname: key}", "{hostname: pass, username: alice, nickname: pass}",
            "{hostname: nogpu, username: root, nickname: bare}", "{hostname: 10.99.77.77, username: root, nickname: dead}")
    t = LabTmux(world, lab)
    try:
        # The first host's cards are there while another one waits for its password.
        t.sees(r"\[2\] . key +2 GPUs", r"pass asks", r"password: ")
        t.keys(*"wrong")
        t.sees(r"> \*\*\*\*\*", gone=["wrong"])
        t.keys("C-u", *"sesame", "Enter")
        t.sees(r"\[3\] . pass +1 GPU ", gone=["pass asks"])
        # The one that has no GPU is hidden, the one that's dead is told.
        t.sees("1 node failed: dead", gone=[r"\[4\]"])
        t.keys("u").sees(r"\[4\] . bare +no GPU")
        t.click("! 1 node failed").sees("1 of 5 nodes failed", r"dead \(root@10.99.77.77:22\): down")
        t.keys("f").sees("Cards 3 on 2/5 nodes", r"key \(root@key:22\)", r"pass \(alice@pass:22\)")
        t.keys("q").sees("EXIT 0")
        assert "hide_unsupported: false" in lab.bash("ctl", "cat /root/.gpustow/config.yml")
    finally:
        t.end()


@needs_lab
def test_moving_among_servers(world, lab):
    forget_masters(lab)
    servers(lab, *[f"{{hostname: key, username: root, nickname: n{i}}}" for i in range(5)])
    t = LabTmux(world, lab, rows=24)
    try:
        t.sees(r"›. \[2\]", r"n0 +2 GPUs", "more servers? below")
        t.keys("End").sees(r"›. \[6\]", "more servers? above")
        t.keys("Home").sees(r"›. \[2\]")
        t.keys("Down").sees(r"›. \[3\]")
        t.keys("Up").sees(r"›. \[2\]")
        t.keys("NPage").sees(r"›. \[[3-6]\]", gone=[r"›. \[2\]"])
        t.keys("PPage").sees(r"›. \[2\]")
        t.wheel_at(r"\[2\]").sees(r"›. \[3\]")
        t.wheel_at(r"\[3\]", down=False).sees(r"›. \[2\]")
        t.click("more servers? below").sees(r"›. \[[3-6]\]", gone=[r"›. \[2\]"])
        t.keys("q").sees("EXIT 0")
    finally:
        t.end()


@needs_lab
def test_a_refused_password_waits_for_a_person(world, lab):
    forget_masters(lab)
    servers(lab, "{hostname: pass, username: alice, nickname: pass}")
    t = LabTmux(world, lab)
    try:
        t.sees("pass asks")
        t.keys("C-c").sees("! 1 node failed: pass", gone=["pass asks"])
        t.keys("j", "r").sees("pass asks")
        t.keys(*"sesame", "Enter").sees(r"pass +1 GPU ")
        t.keys("q").sees("EXIT 0")
    finally:
        t.end()


@needs_lab
def test_where_the_driver_names_strangers_nothing_is_signalled(world, lab):
    """The hosts of the lab are containers with process numbers of their own: the driver's numbers mean nothing there."""
    forget_masters(lab)
    servers(lab, "{hostname: key, username: root, nickname: key}")
    pid = int(lab.bash("key", "setsid sleep 777 >/dev/null 2>&1 & echo $!"))
    lab.bash("key", f"echo 'proc 1 pid={pid} used=2222' >>/etc/gpustow-fake-nvml")
    t = LabTmux(world, lab)
    try:
        t.sees(r"key +2 GPUs", r"\?\(2.2G\)")
        t.keys("v").sees("Cards 2 on")
        t.keys("j", "Enter").sees("Processes 1 on key GPU 1", rf"› +{pid} ")
        t.keys("T").sees("its start isn't known", gone=["SIGTERM to process"])
        t.keys("Enter", "T", "Enter")
        t.keys("q").sees("EXIT 0")
        assert lab.bash("key", f"kill -0 {pid} && echo there").strip() == "there"
    finally:
        t.end()
        lab.bash("key", f"sed -i '/^proc/d' /etc/gpustow-fake-nvml; kill {pid}; true", check=False)
