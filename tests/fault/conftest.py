"""Rounds of one module run two at a time: most of a round is waiting."""
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from bed import PROGRAM

# What a script in the background or nohup ignores would be ignored by every program of the tests as well.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

AT_ONCE = int(os.environ.get("GPUSTOW_FAULT_AT_ONCE", "3"))


LONG = bool(os.environ.get("GPUSTOW_FAULT_LONG"))


def pytest_collection_modifyitems(items):
    """What's marked `long` is left to `./dev fault`: CI has minutes for all of this."""
    for item in items:
        if item.get_closest_marker("long") and not LONG:
            item.add_marker(pytest.mark.skip(reason="left to ./dev fault"))


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only `./dev fault` has the time")
    if not PROGRAM.exists():
        pytest.exit(f"{PROGRAM} is not there: ./dev fault builds it", returncode=2)


class Ahead:
    """Results of fn(item), begun a few items ahead of the test that asks for them."""

    def __init__(self, fn, items):
        self.fn, self.items, self.futures = fn, list(items), {}
        self.pool = ThreadPoolExecutor(AT_ONCE)

    def result(self, item):
        at = self.items.index(item)
        for other in self.items[at:at + AT_ONCE]:
            if other not in self.futures:
                self.futures[other] = self.pool.submit(self.fn, other)
        return self.futures[item].result()


@pytest.fixture(scope="module")
def ahead(request):
    """ahead(fn): fn is called for the module's chosen values of the parameter `item`."""
    made = []

    def make(fn):
        if not made:
            items = [it.callspec.params["item"] for it in request.session.items
                     if it.module is request.module and hasattr(it, "callspec") and "item" in it.callspec.params]
            made.append(Ahead(fn, items))
        return made[0]

    yield make
    for one in made:
        one.pool.shutdown(cancel_futures=True)
