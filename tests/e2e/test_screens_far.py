"""Both screens over real sshd's (tests/lab): the queue's over `remote:`, and the monitor's signals to processes of another host."""
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import PROGRAM, Lab, missing  # noqa: E402
from harness import until  # noqa: E402
from test_forward import FAR, Laptop, far, forget_masters  # noqa: E402
from test_monitor import Tmux, servers  # noqa: E402

pytestmark = [pytest.mark.skipif(missing() is not None, reason=missing() or ""),
              pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")]


@pytest.fixture(scope="module")
def lab():
    made = Lab(["key"])
    with open(PROGRAM, "rb") as program:
        subprocess.run(made.command("key", "dd", f"of={FAR}", "status=none"), stdin=program, check=True, cwd="/")
    # The cards of the far machine: simulated ones, whose processes are known by their numbers there.
    made.bash("key", f"chmod 755 {FAR}; mkdir -p /root/sim; "
              "printf 'export GPUSTOW_SIM=2 GPUSTOW_SIM_DIR=/root/sim\\n' >/root/.bashrc")
    yield made
    made.bash("key", "pkill -TERM -f 'agent-|gpustow-agent'; true", check=False)
    made.down()


class FarTmux(Tmux):
    """A terminal of this machine, in it gpustow on the client of the lab."""

    def __init__(self, world, lab, *args, cols=120, rows=40):
        self.err = world.dir / "monitor.err"
        line = shlex.join(lab.command("ctl", "env", "-i", *lab.env, "LC_ALL=C.UTF-8", "TERM=tmux-256color", "gpustow", *args))
        super().__init__(world, cols=cols, rows=rows, line=f"cd /; stty -a >{world.dir}/stty.before; {line} 2>>{world.dir}/monitor.err; "
                         f"echo \"EXIT $?\"; stty -a >{world.dir}/stty.after; exec sleep 600")


# --- the queue's screen over `remote:` ---

class Away:
    """A job that runs on the queue's machine, and the laptop's screen of it."""

    def __init__(self, world, lab):
        self.world, self.lab, self.laptop, self.screens = world, lab, Laptop(lab), []
        self.laptop.remote("key")
        self.job = self.submit("runner", "sleep 600")

    def submit(self, name, command):
        return self.laptop.ask_json("job", "submit", "--json", "--gpus", "0", "--name", name, "--", command)["job"]["id"]

    def state(self, job):
        return json.loads(self.lab.bash("key", f"HOME=/root {FAR} job show {job} --json"))["state"]

    def open(self, *args):
        t = FarTmux(self.world, self.lab, *(args or ("queue",)))
        self.screens.append(t)
        t.sees("Task flow", r"Jobs \d+ active", "runner")
        return t

    def end(self):
        for t in self.screens:
            t.end()
        self.lab.wire("key")
        forget_masters(self.lab)
        self.laptop.ask("job", "cancel", self.job, code=None)


@pytest.fixture
def away(world, lab):
    made = Away(world, lab)
    yield made
    made.end()


def test_the_queues_screen_over_remote_shows_and_acts(away):
    until(lambda: away.state(away.job) == "running", why=lambda: away.state(away.job))
    t = away.open()
    assert t.flag("alternate_on") == "1" and t.flag("mouse_sgr_flag") == "1"
    t.sees("● run")
    t.keys("?").sees("the next server or job")
    t.keys("q").sees("Task flow", gone=["the next server or job"])
    # The terminal's size is this side's.
    t.tmux("resize-window", "-x", "100", "-y", "30")
    t.sees(r"(?m)^╭.{98}╮$")
    t.keys("g", "c").sees(f"Cancel job {away.job} runner\\?")
    t.keys("c")
    until(lambda: away.state(away.job) == "cancelled", why=lambda: away.state(away.job))
    t.sees("Jobs 0 active")
    # What's submitted from elsewhere comes by itself.
    new = away.submit("newcomer", "true")
    t.keys("f").sees("✓ done .*newcomer")
    assert away.state(new) == "completed"
    t.keys("q")
    assert "EXIT 0" in t.is_restored()
    until(lambda: not far(away.lab), why=lambda: far(away.lab))


def test_a_cut_connection_is_a_sentence_and_the_terminal_is_as_before(away):
    t = away.open()
    away.lab.wire("key", cut=1)
    text = t.sees(r"EXIT 1", deadline=60)
    assert "Task flow" not in text
    t.is_restored()
    said = t.err.read_text()
    assert re.search(r"(?m)^gpustow: the connection to the queue's host key was lost; jobs go on", said), said
    away.lab.wire("key")
    forget_masters(away.lab)
    # The far side has ended too, and the job goes on.
    until(lambda: not far(away.lab), why=lambda: far(away.lab))
    assert away.state(away.job) == "running"


def test_a_screen_that_never_began_leaves_the_terminal_alone(away, world):
    away.laptop.remote("key", port=9)
    t = FarTmux(world, away.lab, "queue")
    away.screens.append(t)
    t.sees("EXIT 1")
    assert "the connection to the queue's host key has ended" in t.err.read_text()
    t.is_restored()


def test_told_to_end_it_ends_the_far_screen(away):
    t = away.open()
    away.lab.bash("ctl", "pkill -TERM -f '^gpustow queue'")
    t.sees("EXIT 143")
    t.is_restored()
    until(lambda: not far(away.lab), why=lambda: far(away.lab))


# --- signals to another host ---

class Strangers:
    """Processes of the far host that hold memory on its simulated cards."""

    def __init__(self, lab):
        self.lab = lab

    def start(self, mib, at=None):
        """at: with exactly that number, which is free."""
        number = f"echo {at - 1} >/proc/sys/kernel/ns_last_pid; " if at else ""
        pid = int(self.lab.bash("key", f"{number}setsid sleep 777 >/dev/null 2>&1 & echo $!" if not at else
                                f"{number}sleep 777 >/dev/null 2>&1 & echo $!"))
        self.hold(pid, mib)
        return pid

    def hold(self, pid, mib):
        self.lab.write("key", "/root/sim/next", json.dumps({"pid": pid, "usage": {"1": mib}}))
        self.lab.bash("key", f"mv /root/sim/next /root/sim/foreign{pid}.json")

    def is_there(self, pid):
        return "sleep" in self.lab.bash("key", f"tr '\\0' ' ' </proc/{pid}/cmdline 2>/dev/null; true")

    def end(self):
        self.lab.bash("key", "pkill -KILL -x sleep; rm -f /root/sim/foreign*; true", check=False)


@pytest.fixture
def strangers(lab):
    made = Strangers(lab)
    yield made
    made.end()


@pytest.fixture
def watching(world, lab):
    """The monitor on the client, with the processes of the far host's second card."""
    made = []

    def make(pid):
        forget_masters(lab)
        lab.bash("ctl", "rm -f /root/.gpustow/queue.yml")
        servers(lab, "{hostname: key, username: root, nickname: key}")
        t = FarTmux(world, lab, "--remote", cols=130)
        made.append(t)
        t.sees(r"key +2 GPUs", r"root\(")
        t.keys("v").sees("Cards 2 on")
        t.keys("j", "Enter").sees("on key GPU 1", rf"› +{pid} ")
        return t
    yield make
    for t in made:
        t.end()


def test_a_confirmed_signal_ends_a_process_of_another_host(lab, strangers, watching):
    small, big = strangers.start(1000), strangers.start(3000)
    t = watching(big)
    t.keys("T").sees(f"SIGTERM to process {big}")
    assert strangers.is_there(big)
    t.keys("T").sees("key: the signal was sent")
    until(lambda: not strangers.is_there(big), why="its end")
    assert strangers.is_there(small)
    lab.bash("key", f"rm -f /root/sim/foreign{big}.json")
    t.sees("Processes 1 on key GPU 1", rf"› +{small} ")
    t.keys("K").sees("SIGKILL to process")
    t.keys("Enter").sees("key: the signal was sent")
    until(lambda: not strangers.is_there(small), why="its end")
    t.keys("q")
    t.is_restored()


def test_a_number_that_another_process_has_now_gets_nothing(lab, strangers, watching):
    pid = strangers.start(3000)
    t = watching(pid)
    # No newer list of processes comes: the one that's shown ends, and a stranger gets its number.
    samplers = lab.bash("key", "for a in $(pgrep -f 'agent-.*serve|gpustow-agent'); do cat /proc/$a/task/$a/children; done").split()
    assert samplers, lab.bash("key", "ps axf")
    lab.bash("key", f"kill -STOP {' '.join(samplers)}")
    try:
        lab.bash("key", f"kill -KILL {pid}; while [ -d /proc/{pid} ]; do sleep 0.05; done")
        assert strangers.start(3000, at=pid) == pid
        t.keys("T").sees(f"SIGTERM to process {pid}")
        t.keys("T").sees(f"key: process {pid} has ended, or another has its number now; nothing was sent")
        assert strangers.is_there(pid)
    finally:
        lab.bash("key", f"kill -CONT {' '.join(samplers)}")
    # Once it's seen as what it is, it can be signalled.
    t.keys("Escape")
    until(lambda: t.keys("K") and "SIGKILL to process" in t.text() and t.keys("K") and not strangers.is_there(pid), every=0.5,
          why=lambda: t.text())
    t.keys("q")
    t.is_restored()
