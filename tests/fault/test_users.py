"""Several schedulers on one machine: two users with an agent each, and one user with two log directories on one agent."""
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from bed import CARD_MIB, PROGRAM, Bed, MemoryWatch, wait_for
from queue_bed import QueueBed


@pytest.fixture
def shared():
    """What the users of one machine have in common: the cards and the place of the promises."""
    path = Path(tempfile.mkdtemp(prefix="gpustow-fault-shared-"))
    path.chmod(0o755)
    for name in ("sim", "promises"):
        (path / name).mkdir()
        (path / name).chmod(0o1777)
    (path / "bin").mkdir()
    (path / "bin").chmod(0o755)
    program = path / "bin" / "gpustow"
    shutil.copy(PROGRAM, program)
    program.chmod(program.stat().st_mode | stat.S_IXOTH | stat.S_IROTH)
    yield path, program
    shutil.rmtree(path, ignore_errors=True)


def fill(bed, sizes):
    for i, (gib, gpus, seconds) in enumerate(sizes):
        bed.add(f"job{i}", f"vram={gib}G gpus={gpus}" if gib else "", gib * 1024 or 20000, seconds, 0)
    bed.write_lines()


MANY = [(13, 1, 0.3), (17, 1, 0.2), (9, 2, 0.3), (0, 1, 0.2), (11, 1, 0.3), (20, 1, 0.2), (7, 1, 0.3), (15, 2, 0.2)]


def both_finish(beds, watch):
    watch.start()
    for bed in beds:
        bed.start()
    for bed in beds:
        wait_for(bed.is_done, 90, lambda: "\n".join(b.story() for b in beds))
        wait_for(lambda: bed.run.poll() is not None, 20, "the run has not ended")
    wrong = watch.stop()
    for bed in beds:
        wrong += bed.complaints()
        wrong += [f"{line.name}: {bed.status().get(line.key)}" for line in bed.lines if bed.status().get(line.key) != "ok"]
    assert not wrong, "\n".join(wrong[:20] + [bed.story() for bed in beds])
    assert watch.looks > 20
    assert CARD_MIB / 2 < watch.most <= CARD_MIB


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming two users wants root")
def test_two_users_never_promise_the_same_memory(shared):
    path, program = shared
    beds = [Bed(shared=path, uid=uid, program=program) for uid in (65531, 65532)]
    try:
        for bed, sizes in zip(beds, (MANY, MANY[::-1])):
            fill(bed, sizes)
        both_finish(beds, MemoryWatch(path / "sim", path / "promises"))
    finally:
        for bed in beds:
            bed.done()


def test_two_schedulers_of_one_user_share_the_cards():
    one = Bed()
    other = Bed(shared=one.dir, root=one.roots)
    other.env["GPUSTOW_TEST_BED"] = f"{other.dir} {one.dir}"
    try:
        for bed, sizes in ((one, MANY), (other, MANY[::-1])):
            fill(bed, sizes)
        both_finish([one, other], MemoryWatch(one.dir / "sim", one.dir / "promises"))
    finally:
        other.done()
        one.done()


class LaneBed(QueueBed):
    """One user's queue on the shared machine; its lanes are handed to an agent of his own."""

    def lane(self, name, card, mib, seconds=0.4):
        job = self.submit(name, "--lane", f"local:{card}", "--vram", mib, mib=mib, seconds=seconds)
        assert job, self.story()
        return job

    def state(self, job):
        return self.record().jobs[job]["state"]

    def waits_for(self, other, job):
        """Its lane's next one is told why it doesn't start: the other user is named."""
        text = self.ask("job", "why", str(job), "--json")[1]
        return f"of user {other.uid}" in text or "other users were promised" in text


@pytest.fixture
def two_queues(shared):
    path, program = shared
    beds = [LaneBed("1", shared=path, uid=uid, program=program) for uid in (65531, 65532)]
    try:
        # What cards there are must be known before lanes can be named.
        assert all(bed.tick() for bed in beds)
        yield beds, MemoryWatch(path / "sim", path / "promises")
    finally:
        for bed in beds:
            bed.done()


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming two users wants root")
def test_what_a_lane_of_one_user_was_promised_is_nobody_elses(two_queues):
    """A's lane runs 6000 and keeps 18000 for its next one: neither B's pool nor B's lane gets into that."""
    (a, b), watch = two_queues
    watch.start()
    hold = a.dir / "judge.a1.hold"
    hold.touch()
    first = a.lane("a1", 0, 6000)
    wait_for(lambda: a.tick() and a.state(first) == "running", 20, a.story)
    second = a.lane("a2", 0, 18000)
    a.tick()
    pool = b.submit("b-pool", "--vram", 8000, mib=8000)
    small = b.submit("b-small", "--vram", 5000, mib=5000)
    b.tick()
    # What is left beside both is his; the rest isn't, while a1 runs.
    assert a.state(first) == "running" and b.state(small) in ("running", "completed"), b.story()
    lane = b.lane("b-lane", 0, 12000)
    b.tick()
    b.tick()
    assert a.state(first) == "running", a.story()
    assert b.state(pool) == "pending" and b.state(lane) == "pending", b.story()
    assert b.waits_for(a, lane), b.ask("job", "why", str(lane))[1]
    hold.unlink()
    wait_for(lambda: a.tick() and b.tick() and a.record().is_quiet() and b.record().is_quiet(), 60,
             lambda: a.story() + b.story())
    assert watch.stop() == []
    assert watch.most >= 18000 and a.complaints() + b.complaints() == []
    assert [row[1] for row in a.rows()] and {a.state(j) for j in (first, second)} == {"completed"}
    assert {b.state(j) for j in (pool, small, lane)} == {"completed"}


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming two users wants root")
def test_lanes_of_two_users_on_one_card_never_exceed_it(two_queues):
    """Chains of all sizes, against each other and against both pools: each ends, and the card is never given twice."""
    (a, b), watch = two_queues
    sizes = [13000, 9000, 20000, 7000, 24000, 11000, 17000, 5000]
    watch.start()
    for bed, mine in ((a, sizes), (b, sizes[::-1])):
        for i, mib in enumerate(mine):
            bed.lane(f"{bed.uid}-lane{i}", 0, mib, seconds=0.2)
            if i % 2:
                bed.submit(f"{bed.uid}-pool{i}", "--vram", 6000, mib=6000, seconds=0.2)
    wait_for(lambda: a.tick() and b.tick() and a.record().is_quiet() and b.record().is_quiet(), 120,
             lambda: a.story() + b.story())
    assert watch.stop() == []
    assert watch.most > CARD_MIB / 2 and a.complaints() + b.complaints() == []
    assert all(job["state"] == "completed" for bed in (a, b) for job in bed.record().jobs.values())
