"""Weaknesses of nvidb's monitor (W-nn of its specification), seen from outside to be none of ours: W-47, W-48 and W-57. W-49
is in tests/unit/test_gpu_nvml.c, the machine's own part of W-48 in test_facts.c."""
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness import MARK, program, until
from test_monitor import LabTmux, Tmux, config, forget_masters, lab, needs_lab, says, servers  # noqa: F401

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")

# Takes every connection and says nothing, as a machine does that's wedged behind its kernel. It ends with its input.
MUTE = """
import socket, sys, threading
s, held = socket.create_server(('127.0.0.1', 2222)), []
def take():
    while True:
        held.append(s.accept())
threading.Thread(target=take, daemon=True).start()
sys.stdin.read()
"""


@needs_lab
def test_w47_one_slow_node_delays_no_other(world, lab):  # noqa: F811
    """The first two of the list never get further than their connection; the third's cards come, and go on coming, meanwhile."""
    forget_masters(lab)
    mute = subprocess.Popen(lab.command("ctl", "python3", "-c", MUTE), stdin=subprocess.PIPE)
    servers(lab, "{hostname: 127.0.0.1, port: 2222, username: root, nickname: mute1}",
            "{hostname: 127.0.0.1, port: 2222, username: root, nickname: mute2}", "{hostname: key, username: root, nickname: key}")
    t = LabTmux(world, lab)
    try:
        # One picture: the slow ones are neither there nor given up, and there are the other's cards.
        text = t.sees(r"mute1 +(?!down)\w+", r"key +2 GPUs")
        assert not re.search("failed", text), text
        t.keys("End", "v").sees("Cards 2 on 1/4 nodes")
        # Samples of the third go on: it has a past.
        until(lambda: t.keys("<") and re.search(r"[2-9] s ago", t.text()), every=0.3, why=lambda: t.text())
        t.keys("Escape").sees(gone=["s ago"])
        # And q doesn't wait for them.
        t.keys("q").sees("EXIT 0", deadline=5)
    finally:
        t.end()
        mute.stdin.close()
        mute.wait(10)


def test_w48_use_of_the_cpu_is_of_now_not_since_the_beginning(world):
    """A process that has worked for a second and now stands still uses nothing, whatever the mean of its life is."""
    burn = subprocess.Popen([sys.executable, "-c", "while True: pass"], env={**os.environ, MARK: world.mark},
                            start_new_session=True, stdin=subprocess.DEVNULL)
    (world.sim / "foreign1.json").write_text(json.dumps({"pid": burn.pid, "usage": {"0": 900}}))

    def ticks():
        return int(Path(f"/proc/{burn.pid}/stat").read_text().rsplit(")", 1)[1].split()[11])

    def cpu_pct():
        (host,) = world.ask_json("--sim", "1", "--once", "--json")["hosts"]
        return {p["pid"]: p["cpu_pct"] for p in host["processes"]}.get(burn.pid)
    try:
        # On a crowded machine it has a small share of it, but some.
        until(lambda: (cpu_pct() or 0) > 0, why="it uses some")
        until(lambda: ticks() > os.sysconf("SC_CLK_TCK"), why="a second of work")
        os.kill(burn.pid, signal.SIGSTOP)
        until(lambda: cpu_pct() == 0, why=lambda: f"{cpu_pct()} % while it's stopped")
        os.kill(burn.pid, signal.SIGCONT)
        until(lambda: (cpu_pct() or 0) > 0, why="it uses some again")
    finally:
        burn.kill()
        burn.wait()
        (world.sim / "foreign1.json").unlink()


def test_w57_two_screens_lose_nothing_of_each_other_nor_of_the_file(world):
    """Two monitors change the layout at the same time, over and over: each one's last word stands, and so does all else."""
    home = world.dir / "home" / ".gpustow"
    home.mkdir()
    path = home / "config.yml"
    path.write_text("# what I know of this machine\nview:\n  mouse: true   # mine\n  colour: blue\nservers:\n"
                    "  - hostname: far   # in the cellar\n    username: me\n    rack: 7\nfuture: {key: [1, 2]}\n")
    path.chmod(0o600)
    env = {"TERM": "tmux-256color"}
    one, two = (Tmux(world, "--sim", "1", env=env, line=f"{shlex.join([program(), '--sim', '1'])} 2>>{world.dir}/err{i}; echo \"EXIT $?\"; "
                                                      "exec sleep 600") for i in (1, 2))
    try:
        for t in (one, two):
            t.sees("Simulated")
        one.keys("v").sees("Cards 1 on")
        for n in range(12):
            # An odd number of presses each: the word is the other one every time.
            one.tmux("send-keys", "g")
            two.tmux("send-keys", "t")
            one.tmux("send-keys", "d")
            two.tmux("send-keys", "u")
            odd = n % 2 == 0
            says(world, f"group_by_node: {'false' if odd else 'true'}", f"trends: {'true' if odd else 'false'}",
                 f"detailed: {'true' if odd else 'false'}", f"hide_unsupported: {'false' if odd else 'true'}", "mode: unified")
        for t in (one, two):
            t.keys("q").sees("EXIT 0")
    finally:
        one.end()
        two.end()
    kept = config(world)
    for part in ("# what I know of this machine\n", "  mouse: true   # mine\n", "  colour: blue\n", "  - hostname: far   # in the cellar\n",
                 "    rack: 7\n", "future: {key: [1, 2]}\n", "mode: unified"):
        assert part in kept, kept
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in home.iterdir() if "config" in p.name) == ["config.lock", "config.yml"]
