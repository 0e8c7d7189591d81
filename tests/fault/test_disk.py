"""The disk is full while jobs run: under the log directory, under the agent's root, under both. Room comes back later."""
import os
import subprocess
import time

import pytest

from bed import Bed, MemoryWatch, wait_for


class SmallDisk:
    """A tmpfs of 2 MiB that can be filled to the last byte."""

    def __init__(self, path):
        self.path, self.filler = path, path / "filler"
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2M,mode=0755", "gpustow-fault", str(path)], check=True)

    def fill(self):
        """Until nothing more fits, and keeps it so if something else lets go of a block."""
        with open(self.filler, "ab", buffering=0) as out:
            for size in (65536, 4096, 512, 64, 1):
                try:
                    while out.write(b"\0" * size):
                        pass
                except OSError:
                    pass

    def free(self):
        self.filler.unlink()

    def done(self):
        subprocess.run(["umount", "-l", str(self.path)], check=False)


def can_mount():
    if os.geteuid() != 0:
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@pytest.fixture(params=["logs", "root", "logs-and-root"])
def full(request):
    if not can_mount():
        pytest.skip("mounting a small disk wants root")
    bed = Bed()
    disk = SmallDisk(bed.dir / "disk")
    try:
        if "logs" in request.param:
            bed.logs = disk.path / "logs"
        if "root" in request.param:
            bed.roots = disk.path / "root"
            bed.env["GPUSTOW_AGENT_ROOT"] = str(bed.roots)
        yield bed, disk, request.param
    finally:
        bed.kill_everything()
        disk.done()
        bed.done()


def fill_bed(bed):
    for i in range(4):
        bed.add(f"early{i}", "vram=5G", 5120, 1.0, i)
    for i in range(4):
        bed.add(f"late{i}", "vram=22G", 0, 0.2, 0)
    bed.write_lines()


def starts(bed):
    return sum(row[0] == "start" for row in bed.judged())


def ends(bed):
    return sum(row[0] == "end" for row in bed.judged())


@pytest.mark.parametrize("is_killed", [False, True], ids=["lives", "killed-meanwhile"])
def test_nothing_is_lost_on_a_full_disk(full, is_killed):
    bed, disk, where = full
    fill_bed(bed)
    watch = MemoryWatch(bed.sim)
    watch.start()
    bed.start()
    wait_for(lambda: starts(bed) >= 4, 20, lambda: "four jobs running\n" + bed.story())
    disk.fill()
    wait_for(lambda: ends(bed) >= 4, 20, lambda: "their ends\n" + bed.story())
    began_full = starts(bed)
    # Something else may let go of a block now and then; a second fill takes that too.
    disk.fill()
    if is_killed:
        bed.run.kill()
        agent = bed.agent()
        if agent:
            bed.kill(agent)
        bed.run.wait()
        bed.start()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        disk.fill()
        time.sleep(0.1)
    assert bed.run.poll() is None or is_killed, "the run ended on a full disk\n" + bed.story()
    disk.free()
    bed.restart_until_done(30)
    wrong = bed.complaints() + watch.stop() + bed.end_well()
    assert not wrong, "\n".join(wrong) + bed.story()
    assert starts(bed) == 8
    if "logs" in where:
        assert began_full <= 8
        assert "nothing new is started" in bed.said.read_text() or is_killed
