"""The harness itself: what a test relies on to fail."""
import os
import signal
from pathlib import Path

import pytest

from harness import note, program, until, wait_for

sanitized = pytest.mark.skipif(b"__asan_init" not in Path(program()).read_bytes(), reason="this build has no sanitizer")


@sanitized
def test_a_sanitizers_report_is_seen(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    r = world.run()
    r.sees("job 1 started")
    r.kill(signal.SIGSEGV).wait(None)
    assert "SEGV" in "".join(p.read_text() for p in world.reports.iterdir())
    (world.dir / "go").touch()
    world.finish()
    complaints = world.end()
    assert len(complaints) == 1 and complaints[0].startswith("a sanitizer reports in report.")
    for report in world.reports.iterdir():
        report.unlink()


def test_a_lost_agent_is_seen(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    r = world.run()
    r.sees("job 1 started")
    os.kill(until(world.agents)[0], signal.SIGSEGV)
    (world.dir / "go").touch()
    r.wait()
    assert [c for c in world.end() if "its agent went away" in c]
    world.agent_may_die = True


def test_what_is_left_running_is_seen(world):
    world.spawn("sleep", "300")
    assert [c for c in world.end() if "left running" in c] and not world.processes()
