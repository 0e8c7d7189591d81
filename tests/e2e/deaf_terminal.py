"""A terminal whose other side reads only when it's told to, for the screens: nothing there may wait for it."""
import fcntl
import os
import pty
import select
import struct
import termios
import time

from harness import DEADLINE, until


class DeafTerminal:
    def __init__(self, world, *argv, rows=60, cols=200, env=None):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.run = world.spawn(*argv, env={"TERM": "xterm-256color", **(env or {})}, stdin=self.slave, stdout=self.slave,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def hears(self, *words):
        """Reads until all of that came, in this order; returns everything read."""
        seen, end = b"", time.monotonic() + DEADLINE

        def is_there():
            at = 0
            for w in words:
                at = seen.find(w, at)
                if at < 0:
                    return False
                at += len(w)
            return True
        while not is_there():
            assert time.monotonic() < end, (words, seen[-3000:])
            if select.select([self.master], [], [], 0.1)[0]:
                seen += os.read(self.master, 65536)
        return seen

    def press(self, keys):
        os.write(self.master, keys)

    def fill(self):
        """Whole pictures (Ctrl-L), more than a terminal keeps for a reader."""
        for _ in range(40):
            self.press(b"\x0c")
            time.sleep(0.01)

    def ends(self, code):
        self.run.wait(code)
        until(lambda: termios.tcgetattr(self.slave)[:4] == self.before[:4], why="the terminal's settings as before")
        self.hears(b"\x1b[?1000l", b"\x1b[?1049l")

    def close(self):
        self.run.kill()
        os.close(self.master)
        os.close(self.slave)
