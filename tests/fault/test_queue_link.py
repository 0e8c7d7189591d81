"""Launches whose message comes only half, answers that don't come back, and wall clocks that are set meanwhile: over real sshds."""
import os
import signal
import time

import pytest

from bed import wait_for
from queue_judge import Wish
from queue_hosts import HOUR_MS, NODES, Hosts, cmdline, missing, state_letter

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
BODY = 700 * 1000  # of one message, and more than the sockets on the way hold


@pytest.fixture(scope="module")
def hosts():
    made = Hosts({"node_down_after": 2, "node_loss": "requeue", "node_loss_after": 1800})
    made.tick()
    yield made
    made.down()


@pytest.fixture(autouse=True)
def calm(hosts):
    yield
    hosts.calm()


def starts(hosts, name):
    return [row for row in hosts.rows() if row[1:3] == ("start", name)]


def stopped_pass(hosts, point):
    """A pass that has stopped itself at a point, and its pid. (One that ended without coming by has had no answer of the node.)"""
    begun = []

    def look():
        stopped = [p for p in hosts.named("ctl", "gpustow") if state_letter(p) == "T"]
        if not stopped and (not begun or begun[-1].poll() is not None):
            begun.append(hosts.spawn("queue", "tick", "--json", env=(f"GPUSTOW_FAULT={point}:stop",)))
        return stopped
    pid = wait_for(look, 30, hosts.story)[0]
    return begun[-1], pid


def go_on(process, pid):
    # What entered its host for it has stopped with it.
    os.kill(pid, signal.SIGCONT)
    os.kill(process.pid, signal.SIGCONT)


def ends_well(hosts, name):
    hosts.settle_all(60)
    assert len(starts(hosts, name)) == 1, hosts.rows()
    wrong = hosts.complaints()
    assert not wrong, "\n".join([*wrong, hosts.story()])


def test_half_a_launch_starts_nothing_and_the_job_starts_once(hosts):
    """The agent doesn't read, the relay dies with what it hasn't handed over: the frame ends in the middle."""
    hosts.tick()
    assert hosts.submit("half", "--gpus", "0", "--no-tick", "--node", "key", "--env", "FILLING=" + "x" * 100000, seconds=0.1)
    script = hosts.path("ctl", "/root/large.sh")
    script.write_text("sh /home/job.sh halved 0 0.1 0\n" + f"# {'y' * 1000}\n" * (BODY // 1000))
    hosts.wishes["halved"] = Wish("halved", is_accepted=True)
    assert hosts.ask("job", "submit", "--json", "--no-tick", "--gpus", "0", "--node", "key", "--script", "/root/large.sh")[1]["ok"]
    process, pid = stopped_pass(hosts, "queue.after-bind")
    agent = hosts.agents()["key"]
    os.kill(agent, signal.SIGSTOP)
    try:
        go_on(process, pid)
        relays = [p for p in hosts.processes()["key"] if b"attach" in cmdline(p)]
        assert relays
        # Sent as far as it goes: then nobody moves any more.
        time.sleep(1)
        for relay in relays:
            hosts.kill(relay)
        process.communicate(timeout=120)
    finally:
        hosts.kill(agent, signal.SIGCONT)
    assert not starts(hosts, "halved")
    for name in ("half", "halved"):
        ends_well(hosts, name)


@pytest.mark.long
@pytest.mark.parametrize("point", ["queue.after-bind", "queue.after-launch", "queue.before-settle", "queue.after-settle"])
def test_link_that_is_cut_at_a_point(hosts, point):
    name = "cut-" + point.split(".")[1]
    assert hosts.submit(name, "--gpus", "0", "--no-tick", "--node", "jump", seconds=0.1)
    if "settle" in point:
        hosts.tick()
        wait_for(lambda: starts(hosts, name), 20, hosts.story)
        time.sleep(0.3)
    if not hosts.record().is_quiet():
        process, pid = stopped_pass(hosts, point)
        hosts.cut("jump", True)
        go_on(process, pid)
        process.communicate(timeout=120)
        hosts.tick()
        hosts.cut("jump", False)
    ends_well(hosts, name)


@pytest.mark.long
@pytest.mark.parametrize("point", ["claim.after-rename", "agent.after-claim-before-fork", "shim.between-started-and-exec"])
def test_node_claims_and_dies_and_the_link_with_it(hosts, point):
    """Between claimed and recorded: nobody on the client learns of it, and nobody on the node is left."""
    name = "dies-" + point.split(".")[1]
    hosts.path("fish", "/root/.ssh/environment").write_text(f"GPUSTOW_TEST_WALL_OFFSET=/run/wall\nGPUSTOW_FAULT={point}:kill\n"
                                                            "GPUSTOW_TEST_FAULT_DIR=/run/strikes\n")
    hosts.path("fish", "/run/strikes").mkdir(exist_ok=True)
    for pid in hosts.agents().values():
        hosts.kill(pid, signal.SIGTERM)
    for pid in hosts.named("ctl", "ssh"):
        hosts.kill(pid)
    wait_for(lambda: not hosts.agents(), 20, "the agents don't leave")
    assert hosts.submit(name, "--gpus", "0", "--no-tick", "--node", "fish", "--retries", "1", retries=1, seconds=0.1)
    process = hosts.spawn("queue", "tick", "--json")
    wait_for(lambda: hosts.path("fish", f"/run/strikes/{point}").exists(), 30, hosts.story)
    hosts.cut("fish", True)
    process.communicate(timeout=120)
    hosts.cut("fish", False)
    record = hosts.record()
    if point.startswith("shim."):
        hosts.struck |= {record.mark(key) for key in record.attempts}
    hosts.path("fish", "/root/.ssh/environment").write_text("GPUSTOW_TEST_WALL_OFFSET=/run/wall\n")
    ends_well(hosts, name)


@pytest.mark.parametrize("step_ms", [HOUR_MS, pytest.param(-HOUR_MS, marks=pytest.mark.long)])
def test_hour_that_only_the_clock_saw_is_no_hour_of_silence(hosts, step_ms):
    """node_loss_after is half an hour: the client's clock jumps by one while the node is away for a moment."""
    name = f"hour{step_ms > 0}"
    assert hosts.submit(name, "--vram", "20G", "--no-tick", "--node", "key", seconds=8)
    wait_for(lambda: hosts.tick() and starts(hosts, name), 30, hosts.story)
    hosts.cut("key", True)
    for _ in range(2):
        hosts.tick()
    hosts.set_clock("ctl", step_ms)
    for _ in range(3):
        hosts.tick()
    job = max(hosts.record().jobs.values(), key=lambda j: j["id"])
    assert job["state"] == "running", job
    hosts.set_clock("ctl", 0)
    hosts.tick()
    hosts.cut("key", False)
    ends_well(hosts, name)
    record = hosts.record()
    assert 7000 <= record.attempts[job["id"], 1]["elapsed_ms"] < 60000
    assert len([key for key in record.attempts if key[0] == job["id"]]) == 1


@pytest.mark.long
def test_clocks_of_nodes_that_are_set_change_neither_limits_nor_durations(hosts):
    assert hosts.submit("limit", "--gpus", "0", "--node", "key", "--timeout", "9", "--no-tick", seconds=60, is_limited=True)
    assert hosts.submit("steps", "--gpus", "0", "--node", "jump", "--no-tick", seconds=10)
    wait_for(lambda: hosts.tick() and starts(hosts, "limit") and starts(hosts, "steps"), 30, hosts.story)
    for node, step in (("key", HOUR_MS), ("jump", -HOUR_MS)):
        hosts.set_clock(node, step)
    hosts.tick()
    hosts.tick()
    assert all(j["state"] == "running" for j in list(hosts.record().jobs.values())[-2:]), hosts.record().unquiet()
    for node in NODES:
        hosts.set_clock(node, 0)
    ends_well(hosts, "steps")
    limit, steps = list(hosts.record().jobs.values())[-2:]
    assert (limit["state"], steps["state"]) == ("timeout", "completed")
    assert 9000 <= limit["elapsed_ms"] < 40000 and 9900 <= steps["elapsed_ms"] < 40000
