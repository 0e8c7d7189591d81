"""The harness itself: what a test relies on to fail."""
import json
import os
import signal
import subprocess
import sys
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


# What cmocka says on its two streams: a case's own words, then its result, then what failed in it.
SAID = """1..4
# seed 1
ok 1 - good
# seed 2
not ok 2 - bad
# 1 != 2
# ../tests/unit/test_x.c:7: error: Failure!
ok 3 - fine
not ok 4 - skipped # SKIP
# not ok - tests
"""


def test_what_a_failed_unit_test_said_is_told(tmp_path):
    log = tmp_path / "testlog.json"
    tests = [
        {"name": "unit / x", "result": "FAIL", "returncode": 1, "stdout": SAID, "stderr": "ERROR: it isn't there\n==1==ERROR: leak\n"},
        {"name": "unit / died", "result": "ERROR", "returncode": -6, "stdout": "1..2\nok 1 - a\n# seed 5\n"},
        {"name": "unit / mute", "result": "TIMEOUT", "returncode": -15},
        {"name": "unit / y", "result": "OK", "returncode": 0, "stdout": "not ok 1 - it was expected\n"},
    ]
    log.write_text("".join(json.dumps(t) + "\n" for t in tests))
    count = Path(__file__).parent.parent / "count.py"
    got = subprocess.run([sys.executable, count, "--failed", log], capture_output=True, text=True)
    assert got.stdout == """--- unit / x: FAIL, exit status 1
    # seed 2
    not ok 2 - bad
    # 1 != 2
    # ../tests/unit/test_x.c:7: error: Failure!
    ERROR: it isn't there
--- unit / died: ERROR, exit status -6
    1..2
    ok 1 - a
    # seed 5
--- unit / mute: TIMEOUT, exit status -15
    (it printed nothing)
"""
