"""Gives each end-to-end test its own world, and fails the test whose world isn't clean at the end."""
import pytest

import harness


@pytest.fixture
def world(tmp_path, request):
    # Other users' processes of a test have to get in.
    for d in [tmp_path, *list(tmp_path.parents)[:3]]:
        if d.stat().st_uid == harness.os.geteuid() and d.stat().st_mode & 0o700:
            d.chmod(d.stat().st_mode & 0o7777 | 0o011)
    w = harness.World(tmp_path)
    yield w
    report = getattr(request.node, "report_call", None)
    if report is not None and report.failed:
        request.node.add_report_section("call", "world", w.tell())
        for s in w.started[-6:]:
            request.node.add_report_section("call", "program", s.tell())
    complaints = w.end()
    assert not complaints, "\n".join(complaints)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.report_call = outcome.get_result()


def pytest_sessionstart(session):
    if not harness.os.path.exists(harness.program()):
        raise pytest.UsageError(f"{harness.program()} isn't there; ./dev test builds it")
