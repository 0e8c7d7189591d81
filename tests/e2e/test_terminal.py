"""A run on a terminal, looked at as a person sees it: the live panel, drain and stop. The screen is pyte's, the terminal a real one."""
import fcntl
import os
import pty
import select
import struct
import termios
import time

import pyte

from harness import DEADLINE, note, program, simjob, wait_for


class Terminal:
    def __init__(self, world, *argv, rows=24, cols=100, env=None):
        self.world = world
        self.screen = pyte.Screen(cols, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.master = master
        self.run = world.spawn(*argv, env={"TERM": "xterm-256color", **(env or {})}, stdin=slave, stdout=slave, stderr=slave,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def pump(self, seconds=0.05):
        ready, _, _ = select.select([self.master], [], [], seconds)
        if ready:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            self.raw += data
            self.stream.feed(data)
            return bool(data)
        return False

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def sees(self, *words, deadline=DEADLINE, gone=()):
        end = time.monotonic() + deadline
        while True:
            # Only a screen that holds still: a redraw may come in two pieces.
            is_still = not self.pump()
            text = self.text() if is_still else ""
            if is_still and all(w in text for w in words) and not any(w in text for w in gone):
                return text
            assert time.monotonic() < end, f"{words} not on the screen (or {gone} still is):\n{self.text()}"

    def press(self, data):
        os.write(self.master, data)

    def wait(self, code):
        end = time.monotonic() + DEADLINE
        while self.run.process.poll() is None:
            self.pump()
            assert time.monotonic() < end, self.text()
        while self.pump():
            pass
        os.close(self.master)
        assert self.run.process.returncode == code, f"{self.run.process.returncode}\n{self.text()}"


def start(world, *args, **more):
    return Terminal(world, program(), "run", "--sim", "2", "--poll", "0.1", *args, world.file, **more)


def test_the_panel_shows_what_runs_and_what_waits_and_why(world):
    world.jobs("[vram=20G name=one] " + note("a", simjob(8192, 60)), "[vram=20G name=two] " + note("b", wait_for("go")),
               "[vram=20G name=three] " + note("c"))
    t = start(world)
    text = t.sees("0/3 done, 2 running, 1 waiting", "8.0/24.0 GiB")
    lines = text.splitlines()
    assert sum(line.startswith("gpu0") for line in lines) == 1 and sum(line.startswith("gpu1") for line in lines) == 1
    assert any(line.startswith("▶ 1") and "8.0/20.0 GiB" in line for line in lines)
    assert any(line.startswith("· 3") and "needs 20992 MiB" in line for line in lines)
    # The words above the panel are those of a pipe.
    assert any("job 1 started on gpu [0]" in line for line in lines)
    (world.dir / "go").touch()
    t.sees("2/3 done, 1 running", gone=["· 3"])
    world.ask("run", "cancel", "1")
    t.sees("all 3 jobs done — 2 ok, 0 failed, 1 cancelled", gone=["▶"])
    t.wait(0)


def test_the_panel_leaves_nothing_behind(world):
    world.jobs(*["[vram=1G] true " + str(i) for i in range(12)])
    t = start(world)
    t.wait(0)
    text = t.text()
    assert "all 12 jobs done — 12 ok" in text and "running" not in text and "gpu0 " not in text
    assert b"\033[?1049h" not in t.raw


def test_first_interrupt_drains_and_says_so(world):
    world.jobs("[vram=20G] " + note("a", wait_for("go")), "[vram=20G gpu=0] " + note("b"))
    t = start(world)
    t.sees("job 1 started")
    t.press(b"\x03")
    t.sees("draining: nothing new is started, what runs goes on; Ctrl-C again stops it")
    assert world.ask_json("run", "status", "--json")["scheduler"]["is_draining"] is True
    assert "the run is draining" in world.ask("run", "why", "2").out
    (world.dir / "go").touch()
    t.wait(130)
    assert world.judge() == ["a"] and [d["status"] for d in world.events("done")] == ["ok"]
    world.finish(sim="2")
    assert world.judge() == ["a", "b"]


def test_a_drain_with_nothing_left_ends_well(world):
    world.jobs("[vram=20G] " + note("a", wait_for("go")))
    t = start(world)
    t.sees("job 1 started")
    t.press(b"\x03")
    t.sees("draining")
    (world.dir / "go").touch()
    t.wait(0)


def test_second_interrupt_stops(world):
    world.jobs("[vram=20G] " + note("a", "sleep 60"), "[vram=20G gpu=0] " + note("b"))
    t = start(world)
    t.sees("job 1 started")
    t.press(b"\x03")
    t.sees("draining")
    t.press(b"\x03")
    t.sees("interrupted — terminating running jobs")
    t.wait(130)
    assert world.judge() == ["a"] and world.events("interrupted")


def test_gpusched_on_a_terminal_stops_at_the_first(world):
    world.jobs("[vram=20G] " + note("a", "sleep 60"))
    t = Terminal(world, program("gpusched"), "--sim", "1", "--poll", "0.1", world.file)
    t.sees("job 1 started")
    t.press(b"\x03")
    t.sees("interrupted — terminating running jobs")
    t.wait(130)
    # No panel under that name: nothing moves the cursor.
    assert b"\033[" not in t.raw


def test_a_terminal_that_goes_away_stops_as_SIGHUP(world):
    world.jobs("[vram=20G] " + note("a", "sleep 60"))
    t = start(world)
    t.sees("job 1 started")
    os.close(t.master)
    t.run.wait(129)
    assert world.events("interrupted")


def test_a_dumb_terminal_and_a_small_one_get_plain_lines(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    t = start(world, env={"TERM": "dumb"})
    t.sees("job 1 started")
    assert b"\033[" not in t.raw
    (world.dir / "go").touch()
    t.wait(0)
    (world.dir / "go").unlink()
    t = start(world, "--fresh", rows=4)
    t.sees("job 1 started")
    (world.dir / "go").touch()
    t.wait(0)


def test_no_color(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    t = start(world, env={"NO_COLOR": "1"})
    t.sees("0/1 done, 1 running")
    assert b"\033[3" not in t.raw and b"\033[9" not in t.raw
    (world.dir / "go").touch()
    t.wait(0)


def test_a_terminal_that_cannot_write_blocks(world):
    world.jobs("[vram=20G] " + note("a", simjob(8192, 60)))
    t = start(world, env={"LC_ALL": "C"})
    text = t.sees("0/1 done, 1 running", "8.0/24.0 GiB")
    bars = [line for line in text.splitlines() if line.startswith(("gpu", "0/1")) or "done, 1 running" in line]
    assert len(bars) == 3 and all(line.isascii() for line in bars)
    world.ask("run", "cancel", "1")
    t.wait(0)


def test_wide_letters_and_long_commands_stay_in_their_line(world):
    world.jobs("[vram=20G name=x] : 日本語 " + "訓練" * 80 + "; " + wait_for("go"))
    t = start(world, cols=60)
    t.sees("0/1 done, 1 running", "▶ 1", "日本語")
    rows = [line for line in t.text().splitlines() if line.startswith("▶ 1")]
    assert len(rows) == 1, t.text()
    assert "日本語" in rows[0]
    before = t.text().count("0/1 done")
    t.pump(1.2)
    # It's drawn again in place.
    assert t.text().count("0/1 done") == before == 1
    (world.dir / "go").touch()
    t.wait(0)
