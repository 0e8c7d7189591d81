"""Several schedulers on one machine: two users with an agent each, and one user with two log directories on one agent."""
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from bed import CARD_MIB, PROGRAM, Bed, MemoryWatch, wait_for


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
