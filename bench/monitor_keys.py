#!/usr/bin/env python3
"""How long a key takes to reach the screen of the real monitor: from the write into its terminal to the first byte back.

Once with simulated cards, once with a driver that hangs. usage: monitor_keys.py BUILD [--presses 100]. Prints "met" or
"NOT met" (50 ms at all times) and ends with 1 if not.
"""
import argparse
import fcntl
import os
import pathlib
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time

LIMIT_MS = 50


def quiet(master, seconds):
    """Reads until nothing has come for that long."""
    while select.select([master], [], [], seconds)[0]:
        os.read(master, 65536)


def measure(build, work, presses, args, env):
    pid, master = pty.fork()
    if not pid:
        os.execve(build / "src" / "gpustow", ["gpustow", *args], {
            "PATH": "/usr/bin:/bin", "HOME": str(work), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "GPUSTOW_AGENT_ROOT": str(work / "agent"),
            "GPUSTOW_AGENT_IDLE": "1", "GPUSTOW_SIM_DIR": str(work / "sim"), **env})
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    os.kill(pid, signal.SIGWINCH)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        quiet(master, 0.05)
    took = []
    for i in range(presses):
        quiet(master, 0.03)
        begun = time.monotonic()
        os.write(master, b"?q"[i % 2:i % 2 + 1])
        select.select([master], [], [], 5)
        took.append((time.monotonic() - begun) * 1000)
    os.write(master, b"q")
    while select.select([master], [], [], 2)[0]:
        try:
            if not os.read(master, 65536):
                break
        except OSError:
            break
    os.waitpid(pid, 0)
    os.close(master)
    return took


def figures(build, presses=100):
    """(what, median ms, longest ms), ..."""
    build = build.resolve()
    for name, args, env in (("simulated cards", ["--sim", "8"], {}),
                            ("a hung driver", [], {"GPUSTOW_NVML_PATH": str(build / "tests" / "fake" / "libnvidia-ml.so.1")})):
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            (work / "sim").mkdir()
            if env:
                (work / "scenario").write_text("cards 8\nhang nvmlDeviceGetMemoryInfo_v2\n")
                env["GPUSTOW_FAKE_NVML"] = str(work / "scenario")
            took = measure(build, work, presses, args, env)
        yield name, statistics.median(took), max(took)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--presses", type=int, default=100)
    a = p.parse_args()
    met = True
    for name, median, longest in figures(a.build, a.presses):
        met &= longest <= LIMIT_MS
        print(f"key to screen, {name}: median {median:.1f} ms, longest {longest:.1f} ms")
    print("met" if met else "NOT met", f"({LIMIT_MS} ms)")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
