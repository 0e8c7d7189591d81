"""Lanes over real SSH (tests/lab): what goes on while the link is cut, and what is made of changes once it's back."""
import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_queue_nodes import Queue, lab  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import missing, until  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
LANE = "key:0"


class Lanes(Queue):
    """The lane of `key`'s first card; its jobs note themselves in a file of that host."""

    def __init__(self, lab, **more):
        super().__init__(lab, servers=(("key", "key"),), settings=("node_down_after: 1",), **more)
        self.until(lambda: self.node("key")["state"] == "up")

    def ask(self, *words, code=0):
        # Behind the command's name: what follows a "--" is the job's.
        r = subprocess.run(self.lab.command("ctl", "env", *self.lab.env, "gpustow", *words[:2], "--json", *map(str, words[2:])),
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd="/")
        assert r.returncode == code, (words, r.returncode, r.stdout, r.stderr)
        return json.loads(r.stdout)

    def put(self, word, until_there=None):
        command = f"echo {word} >>/tmp/judge"
        if until_there:
            command += f"; until [ -e /tmp/{until_there} ]; do sleep 0.05; done"
        return self.ask("job", "submit", "--no-tick", "--lane", LANE, "--vram", "1000", "--", command)["job"]["id"]

    def lane(self, *words, code=0):
        return self.ask("queue", "lane", LANE, *words, code=code)

    def view(self):
        return self.lane("--no-tick")

    def go(self, name):
        """By the host itself, not by its sshd."""
        self.lab.bash("key", f"touch /tmp/{name}")

    def judge(self):
        return self.lab.bash("key", "cat /tmp/judge 2>/dev/null || true").split()

    def judged(self, *words):
        until(lambda: self.judge() == list(words), 30, lambda: json.dumps([self.judge(), self.view()]))

    def row(self):
        return self.rows(f"SELECT * FROM lanes WHERE name = '{LANE}'")[0]

    def is_acked(self):
        return self.row()["acked_generation"] == self.row()["generation"]

    def runs(self, *jobs):
        self.until(lambda: all(self.state(j) == "running" for j in jobs))

    def ends(self, *jobs):
        self.until(lambda: all(self.state(j) == "completed" for j in jobs))
        assert [self.job(j)["attempt"] for j in jobs] == [1] * len(jobs)

    def cut(self):
        self.lab.wire("key", cut=1)
        self.until(lambda: self.node("key")["state"] == "down")


@pytest.fixture
def queue(lab):  # noqa: F811
    q = Lanes(lab)
    yield q
    lab.wire("key")


def test_chain_goes_on_while_its_host_is_cut_off(queue):
    jobs = [queue.put("one", "go"), queue.put("two"), queue.put("three"), queue.put("four")]
    queue.runs(jobs[0])
    queue.tick()
    assert queue.is_acked()
    queue.cut()
    queue.go("go")
    queue.judged("one", "two", "three", "four")
    # Nobody here knows of it, and nothing is made up.
    queue.tick()
    assert [queue.state(j) for j in jobs] == ["running", "pending", "pending", "pending"]
    queue.lab.wire("key")
    queue.ends(*jobs)
    assert queue.judge() == ["one", "two", "three", "four"]


def test_pause_reorder_and_cancel_while_cut_off_come_true_on_return(queue):
    one, two = queue.put("one", "go"), queue.put("two", "go2")
    three, four, five = queue.put("three"), queue.put("four"), queue.put("five")
    queue.runs(one)
    queue.tick()
    queue.cut()
    assert queue.lane("pause")["request"] is True
    assert queue.lane("move", five, "--to", "head")["request"] is True
    said = queue.ask("job", "cancel", three, "--no-tick")
    assert queue.state(three) in ("pending", "cancelled"), said
    assert not queue.is_acked()
    # It was told otherwise last: the next one starts all the same, and it's no one of ours to stop.
    queue.go("go")
    queue.judged("one", "two")
    queue.lab.wire("key")
    queue.until(lambda: queue.state(one) == "completed" and queue.is_acked() and queue.state(three) == "cancelled")
    queue.runs(two)
    assert queue.view()["runner_state"]["paused"] is True
    queue.go("go2")
    queue.until(lambda: queue.state(two) == "completed")
    for _ in range(3):
        queue.tick()
    assert queue.judge() == ["one", "two"] and [queue.state(j) for j in (four, five)] == ["pending"] * 2
    queue.lane("resume")
    queue.ends(one, two, four, five)
    assert queue.judge() == ["one", "two", "five", "four"] and queue.state(three) == "cancelled"


def test_what_was_taken_out_never_starts_whatever_happens_after_the_acknowledgement(queue):
    """The link is cut and the agent killed: the one that a shim starts goes by what was acknowledged."""
    one, two, three = queue.put("one", "go"), queue.put("two"), queue.put("three")
    queue.runs(one)
    queue.tick()
    queue.ask("job", "cancel", two)
    queue.until(lambda: queue.is_acked() and queue.state(two) == "cancelled")
    queue.lab.wire("key", cut=1)
    queue.lab.bash("key", "pkill -KILL -x gpustow-agent")
    queue.go("go")
    queue.judged("one", "three")
    queue.lab.wire("key")
    queue.ends(one, three)
    assert queue.judge() == ["one", "three"] and queue.state(two) == "cancelled"


# --- W-02: the allowlist and the configuration ---

def configure(queue, text):
    queue.lab.write("ctl", "/root/.gpustow/config.yml", f"queue:\n  node_down_after: 1\nservers:\n{text}")


KEY = "  - nickname: key\n    hostname: key\n"
FISH = "  - nickname: fish\n    hostname: fish\n"


def test_w02_card_that_leaves_the_allowlist_starts_nothing_of_its_lane(queue):
    one, two = queue.put("one", "go"), queue.put("two")
    queue.runs(one)
    queue.tick()
    configure(queue, KEY + "    gpus: [1]\n")
    queue.until(lambda: queue.is_acked() and queue.view()["runner_state"]["paused"] is True)
    assert "not in the node's list of GPUs" in queue.view()["blocked"], queue.view()
    # What runs goes on to its end; what comes now waits with the others.
    assert queue.state(one) == "running"
    queue.go("go")
    queue.until(lambda: queue.state(one) == "completed")
    three = queue.put("three")
    for _ in range(3):
        queue.tick()
    assert queue.judge() == ["one"] and [queue.state(j) for j in (two, three)] == ["pending"] * 2
    why = queue.ask("job", "why", two, "--no-tick")
    assert "not in the node's list of GPUs" in json.dumps(why), why
    # The other card's lane takes what is assigned to it.
    queue.ask("queue", "lane", "key:1", "assign", three)
    queue.ends(three)
    configure(queue, KEY)
    queue.ends(two)
    assert queue.judge() == ["one", "three", "two"]


def test_w02_node_that_leaves_the_configuration_starts_nothing_of_its_lane(queue):
    one, two = queue.put("one", "go"), queue.put("two")
    queue.runs(one)
    queue.tick()
    configure(queue, FISH)
    queue.until(lambda: queue.is_acked() and (queue.view()["runner_state"] or {}).get("paused") is True)
    assert "not in the configuration" in queue.view()["blocked"], queue.view()
    queue.go("go")
    queue.until(lambda: queue.state(one) == "completed")
    for _ in range(3):
        queue.tick()
    assert queue.judge() == ["one"] and queue.state(two) == "pending"
    configure(queue, KEY)
    queue.ends(two)
    assert queue.judge() == ["one", "two"]
