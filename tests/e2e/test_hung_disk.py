"""A job root on a network's disk that hangs: an sshfs whose far side is stopped. Whatever touches it hangs and can't be killed;
the agent and all that has nothing to do with that disk must go on. Without root or the programs it's skipped."""
import json
import os
import signal

import pytest
from harness import note, program, until, wait_for
from queue_bed import Queue
from test_disks import Sshfs, sh


@pytest.fixture
def disk(world):
    made = Sshfs(world.dir, "-o", "dir_cache=no,attr_timeout=0,entry_timeout=0,negative_timeout=0")
    made.hang = lambda: os.kill(int(made.server.read_text()), signal.SIGSTOP)
    made.go_on = lambda: os.kill(int(made.server.read_text()), signal.SIGCONT)
    yield made
    made.go_on()
    for s in world.started:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()
    # Jobs that a failed test left may have something open there: the name goes at least.
    sh("umount", "--lazy", made.at)


def far_queue(world, disk):
    q = Queue(world)
    q.env = {"GPUSTOW_HOME": str(q.home)}
    (q.home / "config.yml").write_text(f"queue:\n  include_local: true\n  tick_min_interval: 0\n  kill_grace: 1s\n  job_root: {disk.at}/jobs\n")
    return q


def lets_go_of_the_disk(world, name, words):
    """A command whose process has nothing open there: else its own end hangs with the disk, by the kernel."""
    (world.dir / name).write_text(words + "\n")
    return f"echo begun; exec sh $W/{name} >&- 2>&-"


def go_on_as_ever(world, name):
    """Samples, and launches of others, with cards."""
    once = world.ask_json("--once", "--json")
    assert once["hosts"] and not [h for h in once["hosts"] if h.get("error")], once
    jobs = world.dir / f"{name}.txt"
    jobs.write_text(note(name) + "\n")
    s = world.spawn(program(), "run", jobs, "--log-dir", world.dir / f"logs-{name}")
    s.wait(0)
    assert name in world.judge()


def test_agent_goes_on_while_a_job_root_hangs(world, disk):
    q = far_queue(world, disk)
    first = q.submit(lets_go_of_the_disk(world, "first", note("first", wait_for("go"))), vram_mib=1000)
    lasting = q.submit(lets_go_of_the_disk(world, "lasting", wait_for("never")), vram_mib=1000)
    q.tick_until(lambda: {q.job(i)["state"] for i in (first, lasting)} == {"running"})
    until(lambda: (disk.behind / "jobs").exists())
    follower = world.spawn(program(), "job", "logs", "-f", str(first))
    until(lambda: "begun" in follower.out, why=follower.tell)

    disk.hang()
    go_on_as_ever(world, "one")
    # The queue itself hears of its jobs, and of one that has no place to go to.
    second = q.submit(note("second"), vram_mib=1000)
    until(lambda: "doesn't answer" in json.dumps(q.tick()["errors"]))
    assert q.job(first)["state"] == q.job(lasting)["state"] == "running" and q.job(second)["state"] == "pending"
    go_on_as_ever(world, "two")
    # One that has ended is told, without what only the disk knows.
    (world.dir / "go").touch()
    q.tick_until(lambda: q.job(first)["state"] == "completed")
    world.ask("job", "cancel", str(lasting))
    q.tick_until(lambda: q.job(lasting)["state"] == "cancelled")
    go_on_as_ever(world, "three")

    disk.go_on()
    until(lambda: follower.process.poll() is not None, why=follower.tell)
    q.tick_until(lambda: q.job(second)["state"] == "completed")
    assert world.judge().count("first") == 1 and world.judge().count("second") == 1
