"""Gives each end-to-end test its own world, and fails the test whose world isn't clean at the end."""
import os
import signal

import pytest

import harness

# Started in the background of a script SIGINT would be ignored, below nohup SIGHUP, and by every program of the tests as well.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def world(tmp_path):
    # Other users' processes of a test have to get in.
    for d in [tmp_path, *list(tmp_path.parents)[:3]]:
        if d.stat().st_uid == os.geteuid() and d.stat().st_mode & 0o700:
            d.chmod(d.stat().st_mode & 0o7777 | 0o011)
    w = harness.World(tmp_path)
    yield w
    complaints = w.end()
    assert not complaints, "\n".join(complaints)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    w = getattr(item, "funcargs", {}).get("world")
    if w is not None and report.when == "call" and report.failed:
        report.sections.append(("the world", w.tell()))
        report.sections += [("a program", s.tell()) for s in w.started[-6:]]


def pytest_sessionstart(session):
    if not os.path.exists(harness.program()):
        raise pytest.UsageError(f"{harness.program()} isn't there; ./dev test builds it")
