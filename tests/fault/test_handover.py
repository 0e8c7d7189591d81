"""A newer build asks the agent to yield while jobs run and start: the next agent carries on, nothing starts twice."""
import time

import pytest

from bed import Bed, MemoryWatch, wait_for
from wire import Client


def ask_to_yield(bed):
    """True when an agent said bye."""
    try:
        with Client(bed.root) as client:
            client.hello("newer")
            client.send(op="yield", build=10**9)
            return client.until("bye", "no")["op"] == "bye"
    except (OSError, ConnectionError):
        return False


@pytest.mark.parametrize("pause", [0.0, 0.15, 0.4])
def test_handover_between_agents_of_different_builds(pause):
    with Bed() as bed:
        for i in range(6):
            bed.add(f"job{i}", "vram=14G", 14336, 0.3, i)
        bed.write_lines()
        watch = MemoryWatch(bed.sim)
        watch.start()
        bed.start()
        wait_for(bed.judged, 20, bed.story)
        yields, end = 0, time.monotonic() + 10
        while yields < 3 and time.monotonic() < end and not bed.is_done():
            time.sleep(pause)
            yields += ask_to_yield(bed)
        bed.restart_until_done(40)
        wrong = bed.complaints() + watch.stop() + bed.end_well()
        assert not wrong, "\n".join(wrong) + bed.story()
        assert yields >= 2


def test_an_older_build_is_told_no():
    with Bed() as bed:
        bed.add("job", "vram=14G", 14336, 0.5, 0)
        bed.write_lines()
        bed.start()
        wait_for(bed.judged, 20, bed.story)
        with Client(bed.root) as client:
            client.hello("older")
            client.send(op="yield", build=1)
            assert client.until("bye", "no")["op"] == "no"
        bed.restart_until_done(30)
        assert bed.complaints() == []
