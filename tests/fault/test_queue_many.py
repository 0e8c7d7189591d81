"""
Several who want to decide: two controllers of one database, a database that was put back or copied, two queues on one node, two
users on one host, a database that was moved to another machine. No double start, no memory promised twice.
"""
import json
import os
import random
import shutil
import sqlite3
import stat
import tempfile
import time
from pathlib import Path

import pytest

import queue_judge
from bed import CARD_MIB, PROGRAM, MemoryWatch, wait_for
from queue_bed import QueueBed, kill_and_wait
from queue_hosts import DB, NODES, Hosts, missing

needs_lab = pytest.mark.skipif(missing() is not None, reason=missing() or "")
HAND = PROGRAM.parent / "tests" / "queue_hand" if (PROGRAM.parent / "tests").exists() else PROGRAM.parents[1] / "tests" / "queue_hand"
SEED = int(os.environ.get("GPUSTOW_FAULT_SEED") or random.SystemRandom().randrange(10**9))


@pytest.fixture
def shared():
    """What the users of one machine have in common: the cards, the place of the promises, the program."""
    path = Path(tempfile.mkdtemp(prefix="gpustow-fault-shared-"))
    path.chmod(0o755)
    for name in ("sim", "promises"):
        (path / name).mkdir()
        (path / name).chmod(0o1777)
    program = path / "bin" / "gpustow"
    program.parent.mkdir()
    program.parent.chmod(0o755)
    shutil.copy(PROGRAM, program)
    program.chmod(program.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    yield path, program
    shutil.rmtree(path, ignore_errors=True)


MANY = [(13, 1, 0.3), (17, 1, 0.2), (9, 2, 0.3), (0, 1, 0.2), (11, 1, 0.3), (20, 1, 0.2), (7, 1, 0.3), (15, 2, 0.2)]


def fill(bed, name, sizes):
    for i, (gib, gpus, seconds) in enumerate(sizes):
        bed.submit(f"{name}{i}", *(["--vram", f"{gib}G"] if gib else []), "--gpus", str(gpus), mib=gib * 1024 or 20000, seconds=seconds)


def together(beds, watch, seconds=90):
    """Passes of all of them at once, until each is quiet. Returns complaints."""
    watch.start()
    begun = time.monotonic()
    passes = {}
    while not all(bed.record().is_quiet() for bed in beds):
        for bed in beds:
            if bed not in passes or passes[bed].poll() is not None:
                if bed in passes:
                    bed.finish(passes[bed])
                passes[bed] = bed.spawn("queue", "tick", "--json")
        assert time.monotonic() - begun < seconds, "\n".join(bed.story() for bed in beds)
        time.sleep(0.02)
    for bed, process in passes.items():
        bed.finish(process)
    wrong = watch.stop()
    for bed in beds:
        bed.settle_all()
    return wrong


def all_well(bed):
    return [f"{job['name']}: {job['state']}, {job['last_error']}" for job in bed.record().jobs.values() if job["state"] != "completed"]


def test_two_controllers_of_one_database_start_each_job_once():
    print(f"GPUSTOW_FAULT_SEED={SEED}")
    rng = random.Random(SEED)
    with QueueBed() as bed:
        for i in range(24):
            gib = rng.choice((3, 7, 11, 20))
            bed.submit(f"j{i}", "--vram", f"{gib}G", mib=gib * 1024, seconds=round(rng.uniform(0.05, 0.3), 2))
        watch = MemoryWatch(bed.sim, bed.promises)
        watch.start()
        # Each goes on and on, as a keeper does; now and then one dies in the middle, and another takes its place.
        keepers = [bed.spawn("queue", "tick", "--watch", "1", "--json") for _ in range(3)]
        end = time.monotonic() + 60
        while not bed.record().is_quiet():
            assert time.monotonic() < end, bed.story()
            time.sleep(rng.uniform(0.2, 1))
            at = rng.randrange(len(keepers))
            kill_and_wait(keepers[at])
            keepers[at] = bed.spawn("queue", "tick", "--watch", "1", "--json")
        for keeper in keepers:
            kill_and_wait(keeper)
        wrong = watch.stop()
        bed.settle_all()
        wrong += bed.complaints() + all_well(bed) + bed.end()
        assert not wrong, "\n".join(wrong + [bed.story()])
        assert watch.most > CARD_MIB / 2


def test_two_queues_on_one_node_share_the_cards():
    one = QueueBed()
    other = QueueBed(shared=one.dir, root=one.roots)
    other.env["GPUSTOW_TEST_BED"] = f"{other.dir} {one.dir}"
    try:
        fill(one, "one", MANY)
        fill(other, "other", MANY[::-1])
        watch = MemoryWatch(one.dir / "sim", one.dir / "promises")
        wrong = together([one, other], watch)
        for bed in (one, other):
            wrong += bed.complaints() + all_well(bed)
        assert not wrong, "\n".join(wrong[:20] + [one.story(), other.story()])
        assert CARD_MIB / 2 < watch.most <= CARD_MIB
    finally:
        other.done()
        one.done()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming two users wants root")
def test_two_users_never_promise_the_same_memory(shared):
    path, program = shared
    beds = [QueueBed(shared=path, uid=uid, program=program) for uid in (65533, 65534)]
    try:
        for bed, sizes in zip(beds, (MANY, MANY[::-1])):
            fill(bed, f"u{bed.uid}-", sizes)
        watch = MemoryWatch(path / "sim", path / "promises")
        wrong = together(beds, watch)
        for bed in beds:
            wrong += bed.complaints() + all_well(bed)
        assert not wrong, "\n".join(wrong[:20] + [bed.story() for bed in beds])
        assert CARD_MIB / 2 < watch.most <= CARD_MIB
    finally:
        for bed in beds:
            bed.done()


# --- records that went back, were copied, were moved: with several nodes, so that no conflict on one of them helps ---

@pytest.fixture
def hosts():
    made = Hosts({"node_down_after": 2})
    yield made
    made.down()


def copy_home(hosts, to, what="queue.db*"):
    hosts.lab.bash("ctl", f"rm -rf {to}; mkdir -p {to}; cp -p /root/.gpustow/{what} {to}/")


def starts(hosts):
    return sorted(row[2] for row in hosts.rows() if row[1] == "start")


def drain(hosts, node, on):
    hosts.ask("queue", "drain" if on else "undrain", node)


def passes_until(hosts, what, seconds=60, words=()):
    def once():
        hosts.ask("queue", "tick", "--json", *words)
        return what()
    wait_for(once, seconds, hosts.story)


def put_back_with_lock(hosts):
    hosts.lab.bash("ctl", "cd /root/.gpustow && rm -f queue.db queue.db-wal queue.db-shm && cp /root/yesterday/queue.db* . ")


def put_back_without_lock(hosts):
    """As a person does who removes what's there: of what the lock's file remembers, nothing is left."""
    hosts.lab.bash("ctl", "cd /root/.gpustow && rm -f queue.db* && cp /root/yesterday/queue.db . && cp /root/yesterday/queue.db-wal . || true")


def put_back_into_the_file(hosts):
    hosts.lab.bash("ctl", "cd /root/.gpustow && rm -f queue.db-wal queue.db-shm queue.db.lock && cat /root/yesterday/queue.db >queue.db && "
                          "if [ -f /root/yesterday/queue.db-wal ]; then cat /root/yesterday/queue.db-wal >queue.db-wal; fi")


@needs_lab
@pytest.mark.parametrize("put_back", [pytest.param(put_back_with_lock, marks=pytest.mark.long),
                                      pytest.param(put_back_without_lock, marks=pytest.mark.long), put_back_into_the_file])
def test_record_from_yesterday_starts_nothing_twice(hosts, put_back):
    hosts.tick()
    hosts.submit("over", "--gpus", "0", "--no-tick", seconds=0.1)
    hosts.submit("runs", "--vram", "20G", "--no-tick", seconds=60)
    copy_home(hosts, "/root/yesterday")
    passes_until(hosts, lambda: len(hosts.rows()) == 3 and hosts.record().jobs[1]["state"] == "completed")
    for _ in range(3):
        hosts.tick()
    where = {row[2]: row[0] for row in hosts.rows()}
    put_back(hosts)
    assert [j["state"] for j in hosts.record().jobs.values()] == ["pending", "pending"]
    # The nodes that know of them take nothing more, so that a start would be somewhere else.
    for node in set(where.values()):
        drain(hosts, node, True)
    fresh = hosts.submit("fresh", "--gpus", "0", "--no-tick", seconds=0.1)

    def are_held():
        held = [j["held_reason"] for j in hosts.record().jobs.values() if j["id"] in (1, 2)]
        return all(h and "copied or put back" in h for h in held)
    # As soon as the nodes that know have answered; until then, and afterwards, neither starts.
    passes_until(hosts, are_held)
    for _ in range(5):
        hosts.tick()
    assert fresh and starts(hosts) == ["fresh", "over", "runs"] or starts(hosts) == ["over", "runs"], (starts(hosts), hosts.story())
    assert are_held(), hosts.story()
    passes_until(hosts, lambda: "fresh" in starts(hosts))
    assert starts(hosts) == ["fresh", "over", "runs"]


@needs_lab
@pytest.mark.long
def test_copy_of_the_record_and_the_record_go_on_side_by_side(hosts):
    """Two databases of one queue that know nothing of each other, on one machine: each in turn."""
    hosts.tick()
    for i in range(6):
        hosts.submit(f"j{i}", "--gpus", "0", "--no-tick", seconds=0.2)
    copy_home(hosts, "/root/copy")
    copy = ("--db-path", "/root/copy/queue.db")
    for i in range(10):
        hosts.ask("queue", "tick", "--json", *(copy if i % 2 else ()))
        if i == 0:
            # What the first one started runs where it is; the other may only use the rest.
            for node in {row[0] for row in hosts.rows()}:
                hosts.ask("queue", "drain", node, *copy)
    assert len(starts(hosts)) == len(set(starts(hosts))), (starts(hosts), hosts.rows(), hosts.story())


@needs_lab
@pytest.mark.long
def test_record_on_another_machine_is_only_read_until_it_is_adopted(hosts):
    hosts.tick()
    hosts.submit("runs", "--gpus", "0", seconds=3)
    hosts.submit("waits", "--gpus", "0", "--no-tick", seconds=0.1)
    wait_for(lambda: "runs" in starts(hosts) or not hosts.tick(), 30, hosts.story)
    # To the machine named `jump`, which can reach the others too once it has the client's key.
    moved = hosts.path("jump", "/root/moved")
    moved.mkdir()
    for name in ("queue.db", "queue.db-wal", "config.yml"):
        path = hosts.path("ctl", f"/root/.gpustow/{name}")
        if path.exists():
            shutil.copy(path, moved / name)
    before = {p.name: p.read_bytes() for p in moved.glob("queue.db*") if not p.name.endswith("-shm")}
    env = ("env", *hosts.lab.env, "GPUSTOW_HOME=/root/moved")
    for words in (("queue", "tick"), ("job", "submit", "--no-tick", "--gpus", "0", "--", "true"), ("job", "cancel", "2")):
        out = hosts.lab.run("jump", *env, PROGRAM, *words, check=False)
        assert "job 3" not in out, out
    status = json.loads(hosts.lab.run("jump", *env, PROGRAM, "queue", "status", "--json", "--no-tick"))
    assert status["counts"]["pending"] + status["counts"]["running"] == 2
    assert {p.name: p.read_bytes() for p in moved.glob("queue.db*") if p.name in before} == before
    assert starts(hosts).count("waits") == 0
