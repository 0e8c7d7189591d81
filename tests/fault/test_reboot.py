"""The machine goes down under everything: all processes gone at once, another boot id afterwards."""
import pytest

from bed import Bed, MemoryWatch, wait_for


def running(bed):
    ended = {row[2] for row in bed.judged() if row[0] == "end"}
    return {row[2] for row in bed.judged() if row[0] == "start"} - ended


def interrupted(bed):
    return sum(record.get("event") == "interrupted" for record in bed.journal())


@pytest.fixture
def bed():
    with Bed() as bed:
        watch = MemoryWatch(bed.sim)
        watch.start()
        yield bed
        assert watch.stop() == []


def reboot(bed):
    bed.kill_everything()
    bed.run = None
    bed.env["GPUSTOW_TEST_BOOT_ID"] = "11111111-2222-3333-4444-555555555555"


def test_what_ran_is_queued_again_and_what_ended_stays_ended(bed):
    bed.add("short", "vram=5G", 0, 0.1, 3)
    for i in range(2):
        bed.add(f"long{i}", "vram=5G", 5120, 2, 0)
    bed.write_lines()
    bed.start()
    wait_for(lambda: len(running(bed)) == 2 and any(r[0] == "end" for r in bed.judged()), 20, bed.story)
    wait_for(lambda: bed.status().get(bed.lines[0].key) == "failed", 10, bed.story)
    reboot(bed)
    bed.restart_until_done(30)
    wrong = bed.complaints(may_interrupt=True) + bed.end_well()
    assert not wrong, "\n".join(wrong) + bed.story()
    starts = [row[1] for row in bed.judged() if row[0] == "start"]
    assert sorted(starts) == ["long0", "long0", "long1", "long1", "short"]
    assert interrupted(bed) == 2
    assert bed.said.read_text().count("interrupted mid-run by a reboot") == 2


def test_an_end_that_no_scheduler_has_seen_survives_the_reboot(bed):
    line = bed.add("unseen", "vram=5G", 0, 0.6, 7)
    bed.write_lines()
    bed.start()
    wait_for(bed.judged, 20, bed.story)
    bed.run.kill()
    bed.run.wait()
    wait_for(lambda: any(row[0] == "end" for row in bed.judged()), 20, bed.story)
    wait_for(lambda: not bed.shims(), 10, "the shim has not gone")
    reboot(bed)
    bed.restart_until_done(30)
    wrong = bed.complaints() + bed.end_well()
    assert not wrong, "\n".join(wrong) + bed.story()
    assert [row[0] for row in bed.judged()] == ["start", "end"]
    assert [r["returncode"] for r in bed.journal() if r.get("event") == "done"] == [7]
    assert bed.status()[line.key] == "failed"
