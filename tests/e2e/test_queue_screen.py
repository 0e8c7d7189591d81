"""The queue's screen in a real terminal (tmux): every key of its table with what it does, clicks, resizing, every way out."""
import json
import os
import re
import shutil
import signal
import termios
import time
from pathlib import Path

import pytest

from deaf_terminal import DeafTerminal
from harness import program, until
from queue_bed import Queue
from test_monitor import Tmux, says, unpressed


pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")


class Bed:
    """One job that runs on no GPU for as long as the test lasts, and some that wait for its end."""

    def __init__(self, world, waiting=3):
        self.world, self.queue, self.screens = world, Queue(world), []
        self.runner = self.queue.submit("seq 1000; echo the last line; sleep 600", name="runner", gpus=0)
        self.waiting = [self.queue.submit(f"echo {i}", name=f"wait{i}", after=[self.runner], gpus=1, vram_mib=1000)
                        for i in range(waiting)]
        self.queue.tick_until(lambda: self.queue.job(self.runner)["state"] == "running")

    def open(self, *args, **more):
        s = Tmux(self.world, *(args or ("queue",)), **more)
        self.screens.append(s)
        s.sees(r"Jobs \d+ active", "runner")
        return s

    def row(self, job):
        return self.queue.job(job)

    def end(self):
        for s in self.screens:
            s.end()
        self.queue.hand("cancel", self.runner, *self.waiting, check=False)
        self.queue.ends(self.runner)


@pytest.fixture
def bed(world):
    b = Bed(world)
    yield b
    b.end()


def becomes(look, want):
    return until(lambda: look() == want, why=lambda: f"{look()!r}, not {want!r}")


# --- keys: jobs ---

def test_cancel_wants_two_presses_and_requeue_takes_it_back(bed):
    s, job = bed.open(), bed.waiting[0]
    s.keys("j", "c")
    s.sees(rf"Cancel job {job} wait0\?")
    s.keys("Escape")
    s.sees("Jobs", gone=["Cancel job"])
    s.keys("c", "c")
    becomes(lambda: bed.row(job)["state"], "cancelled")
    s.sees(rf"job {job} is cancelled")
    s.keys("f")
    s.sees("Jobs 4 all", "canc ")
    s.keys("G")
    s.keys("r")
    becomes(lambda: bed.row(job)["state"], "pending")
    s.sees(rf"job {job} waits again")
    s.keys("q")
    s.is_restored()


def test_a_running_job_is_cancelled(bed):
    s = bed.open()
    s.keys("g", "c", "c")
    becomes(lambda: bed.row(bed.runner)["state"], "cancelled")
    s.keys("q")
    assert "EXIT 0" in s.is_restored()


def test_priority_and_order(bed):
    s, job = bed.open(), bed.waiting[1]
    s.keys("j", "j", "+")
    becomes(lambda: bed.row(job)["priority"], 1)
    s.keys("=")
    becomes(lambda: bed.row(job)["priority"], 2)
    s.keys("-")
    becomes(lambda: bed.row(job)["priority"], 1)
    s.keys("-")
    becomes(lambda: bed.row(job)["priority"], 0)

    def order():
        return [r["id"] for r in bed.queue.rows(
            "SELECT id FROM jobs WHERE state = 'pending' ORDER BY priority DESC, id")]
    a, b, c = bed.waiting
    s.keys("K")
    becomes(order, [b, a, c])
    s.sees("by queue")
    s.keys("J")
    becomes(order, [a, b, c])
    s.keys("S-Down")
    becomes(order, [a, c, b])
    s.keys("S-Up")
    becomes(order, [a, b, c])


def test_detail_log_and_their_pages(bed):
    s = bed.open()
    s.keys("Enter")
    s.sees(rf"Detail of job {bed.runner}", "cmd +seq 1000", "dir ")
    s.keys("j")
    s.sees(rf"Detail of job {bed.waiting[0]}", r"why ", rf"after #{bed.runner} runner running \(must complete\)")
    s.keys("g", "L")
    s.sees(rf"Log of job {bed.runner}, its end", "the last line")
    s.keys("[")
    s.sees("lines above its end", gone=["╎1000"])
    s.keys("]")
    s.sees("its end", "╎1000")
    # It grows as the job writes.
    out = bed.queue.dir(bed.runner) / "stdout.log"
    with open(out, "ab") as f:
        f.write(b"more \x1b]0;title\x07 of it\n")
    s.sees("more .* of it")
    s.keys("L")
    s.sees(rf"Detail of job {bed.runner}")
    s.keys("Enter")
    s.sees("Jobs", gone=["Detail of job", "Log of job"])


def test_first_last_page_sort_and_filter(bed):
    s = bed.open()
    s.keys("G", "Enter")
    s.sees(rf"Detail of job {bed.waiting[2]}")
    s.keys("g")
    s.sees(rf"Detail of job {bed.runner}")
    s.keys("NPage")
    s.sees(rf"Detail of job {bed.waiting[2]}")
    s.keys("PPage")
    s.sees(rf"Detail of job {bed.runner}")
    s.keys("k", "Down", "Up", "j")
    s.sees(rf"Detail of job {bed.waiting[0]}")
    for by in ("queue", "id", "state", "priority", "name", "node", "vram", "used", "time"):
        s.keys("s")
        s.sees(f"by {by}")
    s.keys("S")
    s.sees("by time reversed")
    for shown in ("4 all", "1 running", "3 pending", "0 finished", "4 active"):
        s.keys("f")
        s.sees(f"Jobs {shown}")


# --- keys: servers ---

def test_scope_by_server_gpu_and_pool(bed):
    s = bed.open()
    s.keys("Tab", "Enter")
    s.sees("Jobs 1 active, server local", r"\[all jobs\]")
    s.keys("Right", "Enter")
    s.sees("Jobs 0 active, GPU local:0")
    s.keys("Right", "Enter")
    s.sees("GPU local:1")
    s.keys("Left", "Enter")
    s.sees("GPU local:0")
    s.keys("x")
    s.sees("Jobs 4 active, by")
    s.keys("j", "Enter")
    s.sees("Jobs 3 active, any GPU")
    s.keys("Escape")
    s.sees("Jobs 4 active, by")


def test_drain_and_resume(bed):
    s = bed.open()
    s.keys("d")
    becomes(lambda: bed.queue.nodes()["local"]["is_drained"], 1)
    s.sees("local gets no more jobs", r"local .* drained")
    s.keys("d")
    becomes(lambda: bed.queue.nodes()["local"]["is_drained"], 0)
    s.sees("local gets jobs again", gone=[r"\bdrained"])


def test_views(bed):
    s = bed.open()
    s.sees("Task flow", "G0 +IDLE", r"ANY GPU ──▶ \{ Q3", rf"DEPS #{bed.runner} ─✓▶ #{bed.waiting[0]}")
    s.keys("v")
    s.sees("Capacity", r"G0 +IDLE +·+ +0M/24.0G", gone=["Task flow"])
    s.keys("v")
    s.sees("Task flow")
    s.keys("p")
    s.sees("Capacity")
    s.keys("p")
    s.sees("processes: all", "ext 0p")
    s.keys("p")
    s.sees("processes: off")


def test_ticks_and_alerts(bed):
    s = bed.open()
    s.keys("a")
    s.sees("manual")

    def passes():
        return int(bed.queue.hand("passes")[0])
    # By itself there'd be one every four seconds at most.
    s.sees(r"tick (9|1\d)s ago")
    before = passes()
    s.keys("t")
    until(lambda: passes() > before, why="a pass")
    bad = bed.queue.submit("exit 3", name="bad", gpus=0)
    s.keys("t")
    becomes(lambda: bed.row(bad)["state"] in ("running", "failed"), True)
    until(lambda: s.keys("t") and bed.row(bad)["state"] == "failed", every=0.5)
    s.sees(r"! job \d+ \(bad\)")
    s.keys("A")
    until(lambda: all(a["acknowledged_ms"] for a in bed.queue.alerts()), why="acknowledged")
    s.sees(r"\d+ alerts? acknowledged", gone=["! job"])
    s.keys("a")
    s.sees("auto  ")


def test_theme_is_kept_and_help_closes_without_quitting(bed):
    s = bed.open()
    s.keys("T")
    says(bed.world, "theme: classic")
    first, last = "│Keys +│", "UNKNOWN +no reading"
    for key in ("?", "Escape", "q", "Enter", "Space", "F1"):
        s.keys("F1" if key == "F1" else "?")
        s.sees(first)
        s.keys(key)
        s.sees("Jobs 4", gone=[first])
    s.keys("?", "G")
    s.sees(last)
    s.keys("g")
    s.sees(first, gone=[last])
    # All that moves in it.
    for on, back in (("j", "k"), ("Down", "Up"), ("NPage", "PPage"), ("End", "Home")):
        s.keys(on)
        s.sees("Help", gone=[first])
        s.keys(back)
        s.sees(first)
    s.wheel(30, 10)
    s.sees("Help", gone=[first])
    s.wheel(30, 10, down=False)
    s.click(first)
    s.sees("Jobs 4", gone=[first])


def test_first_last_and_what_is_drawn_anew(bed):
    s = bed.open(cols=100, rows=30)
    s.keys("End", "Enter")
    s.sees(rf"Detail of job {bed.waiting[2]}")
    s.keys("Home")
    s.sees(rf"Detail of job {bed.runner}")
    with open(s.flag("pane_tty"), "w") as tty:
        tty.write("\x1b[12;30Hrubbish")
    s.sees("rubbish")
    s.keys("C-l")
    s.sees("Detail of", gone=["rubbish"])
    # A page of GPUs: the pane has fewer lines than there are.
    s.keys("Enter", "v", "p", "BTab", "NPage")
    s.sees("Capacity")
    s.keys("PPage", "q")
    s.is_restored()


def test_stopped_and_continued(bed):
    """Under a shell that has jobs."""
    t = Tmux(bed.world, line="exec bash --norc --noprofile -i")
    try:
        t.tmux("send-keys", "-l", f"PS1='$ '; {program()} queue")
        t.keys("Enter").sees(r"Jobs \d+ active")
        t.keys("C-z").sees(r"\[1\]\+ +Stopped")
        assert t.flag("alternate_on") == "0" and t.flag("mouse_any_flag") == "0" and t.flag("cursor_flag") == "1"
        t.tmux("send-keys", "-l", "fg")
        t.keys("Enter")
        until(lambda: t.flag("alternate_on") == "1", why="the screen again")
        t.keys("v").sees("Capacity")
        assert t.flag("mouse_sgr_flag") == "1"
        t.keys("q").sees(r"queue\n\$", gone=["Capacity"])
        t.tmux("send-keys", "-l", "exit")
        t.keys("Enter")
    finally:
        t.end()


def test_every_key_of_the_table_is_pressed():
    assert unpressed("queue-screen.md", __file__) == []


# --- the mouse ---

def test_clicks(bed):
    s = bed.open()
    s.click("● local")
    s.sees("server local")
    s.click(r"\[all jobs\]")
    s.sees("Jobs 4 active, by")
    s.click("G1 ")
    s.sees("GPU local:1")
    s.keys("x")
    s.click("ANY GPU")
    s.sees("any GPU, by queue")
    s.keys("x")
    s.click(rf"\[1:#{bed.waiting[0]} ")
    s.sees(rf"Detail of job {bed.waiting[0]}")
    s.click(rf"\[1:#{bed.waiting[0]} ")
    s.sees("Jobs", gone=["Detail of"])
    s.click("running 1")
    s.sees("Jobs 1 running")
    s.click("pending 3")
    s.sees("Jobs 3 pending")
    s.click("NAME")
    s.sees("by name")
    s.click("NAME")
    s.sees("by name reversed")
    s.click(rf" {bed.waiting[1]} · pend")
    s.click(r"\[c\] cancel")
    s.sees(rf"Cancel job {bed.waiting[1]} ", r"\[c\] confirm")

    # On a slow machine the five seconds may be over before the click: then it arms again.
    def is_cancelled():
        return bed.row(bed.waiting[1])["state"] == "cancelled"

    def confirmed():
        if not is_cancelled() and "[c] cancel" in s.text():
            s.click(r"\[c\] cancel")
        elif not is_cancelled() and "[c] confirm" in s.text():
            s.click(r"\[c\] confirm")
            until(lambda: is_cancelled() or "[c] confirm" not in s.text())
        return is_cancelled()
    until(confirmed, every=0.5)
    s.click(r"\[q\] quit")
    assert "EXIT 0" in s.is_restored()


def test_clicks_on_lanes_overflow_and_alerts(bed):
    lane = json.loads(bed.world.ask("job", "submit", "--json", "--no-tick", "--vram", "1G", "--lane", "local:1", "--name", "inlane",
                                    "--after", str(bed.runner), "--", "echo lane").out)["job"]["id"]
    bad = bed.queue.submit("echo last words; exit 3", name="bad", gpus=0)
    bed.queue.tick_until(lambda: bed.row(bad)["state"] == "failed")
    s = bed.open(cols=80, rows=40)
    s.click(r"\{ (lane) Q1 \}")
    s.sees("Jobs 1 active, lane local:1, by queue", "inlane")
    s.keys("x")
    s.click(r" (\+\d)\b")
    s.sees("any GPU, by queue", "wait2")
    s.click(r"\[all jobs\]")
    s.sees("Jobs 5 active, by")
    s.click(rf"! job {bad} \(bad\)")
    s.sees(rf"Log of job {bad}", "last words", "Jobs 6 all")
    s.click(r"\[L\] log off")
    s.sees(rf"Detail of job {bad}|Jobs 6 all", gone=["Log of"])
    for count, title in (("failed 1", "1 finished"), ("held 0", "0 held"), ("pending 4", "4 pending")):
        s.click(count)
        s.sees(f"Jobs {title}")
    # A row selects its job, and again opens it.
    s.click(rf" {bed.waiting[1]} · pend")
    s.click(rf" {lane} · pend")
    s.click(rf" {lane} · pend")
    s.sees(rf"Detail of job {lane}")
    s.click(r"\[Enter\] hide")
    s.sees("Jobs", gone=["Detail of"])
    for button, words in ((r"\[v\] capacity", "Capacity"), (r"\[v\] task flow", "Task flow"), (r"\[\+\] prio", None),
                          (r"\[f\] filter", "Jobs 2 finished|Jobs 1 finished"), (r"\[\?\] help", "the next server or job")):
        s.click(button)
        if words:
            s.sees(words)
    becomes(lambda: bed.row(lane)["priority"], 1)
    s.keys("q")
    s.click(r"\[A\] ack")
    until(lambda: all(a["acknowledged_ms"] for a in bed.queue.alerts()), why="acknowledged")
    s.click(r"\[q\] quit")
    s.is_restored()


def test_the_wheel_on_the_other_panes(bed):
    s = bed.open(cols=80, rows=20)
    s.keys("L")
    s.sees("its end", "the last line")
    s.wheel_at("the last line", down=False)
    s.sees("lines above its end")
    s.wheel_at(r"╎\d+ *╎")
    s.sees("its end", "the last line")
    # The flow has no room for all its rows: the first leaves.
    s.sees("● local")
    s.wheel_at("● local")
    s.sees("Task flow", gone=["● local"])


def test_the_wheel(bed):
    s = bed.open(cols=80, rows=24)
    s.keys("Enter")
    s.sees(rf"Detail of job {bed.runner}")
    s.wheel(5, 12)
    s.sees(rf"Detail of job {bed.waiting[0]}")
    s.wheel(5, 12, down=False)
    s.sees(rf"Detail of job {bed.runner}")


# --- the terminal ---

def test_resizing(bed):
    s = bed.open()
    for cols, rows in ((60, 20), (250, 70), (80, 24)):
        s.tmux("resize-window", "-x", str(cols), "-y", str(rows))
        s.sees(rf"(?m)^╭.{{{cols - 2}}}╮$", "runner")
    s.tmux("resize-window", "-x", "40", "-y", "10")
    s.sees("has 40x10 cells; 60x20")
    s.tmux("resize-window", "-x", "100", "-y", "30")
    s.sees("Task flow")
    s.keys("q")
    s.is_restored()


@pytest.mark.parametrize("way", ["C-c", signal.SIGTERM, signal.SIGHUP])
def test_every_way_out_restores_the_terminal(bed, way):
    s = bed.open()
    if isinstance(way, str):
        s.keys(way)
    else:
        os.kill(s.monitor_pid(), way)
    assert f"EXIT {0 if isinstance(way, str) else 128 + way}" in s.is_restored()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_terminal_that_does_not_read_delays_nothing(bed, is_stopped):
    t = DeafTerminal(bed.world, program(), "queue")
    try:
        t.hears(b"runner")
        if is_stopped:
            termios.tcflow(t.slave, termios.TCOOFF)
        t.fill()
        t.press(b"jcc")
        becomes(lambda: bed.row(bed.waiting[0])["state"], "cancelled")
        t.press(b"v")
        if is_stopped:
            termios.tcflow(t.slave, termios.TCOON)
        t.hears(b"\x1b[H\x1b[2J", b"Capacity")
        if is_stopped:
            termios.tcflow(t.slave, termios.TCOOFF)
        t.fill()
        t.run.kill(signal.SIGTERM)
        t.ends(143)
    finally:
        t.close()


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_no_process_behind_the_screen_delays_a_key(bed):
    """All three stopped, as a disk or a node that hangs would: keys work, and quitting does."""
    s = bed.open()
    behind = until(lambda: (lambda c: c if len(c) >= 3 else None)(children(s.monitor_pid())))
    for p in behind:
        os.kill(p, signal.SIGSTOP)
    try:
        s.keys("v")
        s.sees("Capacity")
        s.keys("c", "c", "j", "?")
        s.sees("the next server or job")
        s.keys("q", "q")
        s.is_restored()
    finally:
        for p in behind:
            try:
                os.kill(p, signal.SIGCONT)
            except ProcessLookupError:
                pass


def test_nothing_is_left_of_it(bed):
    s = bed.open()
    behind = children(s.monitor_pid())
    s.keys("C-c")
    s.is_restored()
    until(lambda: not any(Path(f"/proc/{p}").exists() for p in behind), why="its processes have ended")


def test_a_reader_that_dies_is_said(bed):
    s = bed.open()
    os.kill(children(s.monitor_pid())[0], signal.SIGKILL)
    s.sees("the process that reads the queue has ended")
    s.keys("q")
    s.is_restored()


def test_what_others_change_is_seen(bed):
    s = bed.open()
    new = bed.queue.submit("echo new", name="newcomer", after=[bed.runner], gpus=1, vram_mib=1000)
    s.sees("Jobs 5 active", "newcomer")
    bed.queue.hand("cancel", new)
    s.sees("Jobs 4 active", gone=["newcomer"])


# --- line by line ---

@pytest.mark.parametrize("how", [("queue", "tui", "--plain"), ("--plain", "queue")])
def test_line_by_line(bed, how):
    job = bed.waiting[0]
    s = Tmux(bed.world, *how, term="dumb", cols=160, rows=50)
    bed.screens.append(s)
    s.sees("3 pending, 0 held", "Server local: up, 2 GPUs", rf"Job {bed.runner}, runner: running", r"\? says what else")
    s.keys(*str(job), "Enter")
    s.sees(rf"Details of job {job}:", "why: ", "cmd: echo 0", rf"after: #{bed.runner} runner running")
    s.keys("L", "Space", *str(bed.runner), "Enter")
    s.sees(rf"end of the output of job {bed.runner}:", "the last line")
    s.keys("+", *str(job), "Enter")
    becomes(lambda: bed.row(job)["priority"], 1)
    s.sees(f"job {job} has priority 1|priority of job {job}")
    s.keys("c", *str(job), "Enter")
    s.sees(f"Cancel job {job}, wait0\\? y cancels it")
    s.keys("n", "o", "Enter")
    s.sees("It's kept")
    assert bed.row(job)["state"] == "pending"
    s.keys("c", *str(job), "Enter", "y", "Enter")
    becomes(lambda: bed.row(job)["state"], "cancelled")
    s.sees(f"job {job} is cancelled")
    s.keys("q", "Enter")
    s.sees("EXIT 0")
    assert s.flag("alternate_on") == "0"


def test_line_by_line_nobody_is_waited_for_either(bed):
    """What's typed is done, and passes go on, while the terminal doesn't read."""
    t = DeafTerminal(bed.world, program(), "queue", "tui", "--plain")
    try:
        t.hears(b"runner", b"? says what else")
        termios.tcflow(t.slave, termios.TCOOFF)
        for _ in range(100):
            t.press(b"\n?\n")
            time.sleep(0.002)
        t.press(f"c {bed.waiting[0]}\ny\n".encode())
        becomes(lambda: bed.row(bed.waiting[0])["state"], "cancelled")
        last = bed.queue.submit("true", name="late", gpus=0)
        becomes(lambda: bed.row(last)["state"], "completed")
        t.run.kill(signal.SIGTERM)
        t.run.wait(143)
    finally:
        t.close()


def test_one_answer_where_nobody_types(bed):
    r = bed.world.ask("queue", "tui", "--plain")
    assert re.search(rf"(?m)^  Job {bed.runner}, runner: running", r.out) and "\x1b" not in r.out
    assert r.out.count("1 server. Jobs: ") == 1


# --- without a screen ---

def test_without_a_terminal(world):
    Queue(world)
    r = world.ask("queue")
    assert "local" in r.out
    r = world.ask("queue", "tui", code=1)
    assert r.err.count("\n") == 1 and "needs a terminal" in r.err


def test_refresh(bed):
    s = bed.open("queue", "tui", "--refresh", "1")
    s.keys("q")
    s.is_restored()
    r = bed.world.ask("queue", "tui", "--refresh", "4000", code=2)
    assert "--refresh" in r.err


def test_a_file_that_is_no_queue_is_one_sentence(world):
    q = Queue(world)
    q.path.write_bytes(b"nothing of the kind" * 100)
    s = Tmux(world, "queue")
    try:
        s.sees(r"EXIT 1")
        assert re.search(r"gpustow: .*queue\.db", s.err.read_text()), s.err.read_text()
        assert s.flag("alternate_on") == "0"
    finally:
        s.end()
