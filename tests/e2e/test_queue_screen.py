"""The queue's screen in a real terminal (tmux): every key of its table with what it does, clicks, resizing, every way out."""
import re
import shutil
import signal
import sqlite3
import time

import pytest

from harness import until
from queue_bed import Queue
from test_monitor import Tmux, config


pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")


@pytest.fixture
def queue(world):
    return Queue(world)


@pytest.fixture
def screen(world, queue):
    made = []

    def make(*args, **more):
        made.append(Tmux(world, *(args or ("queue",)), **more))
        return made[-1]
    yield make
    for t in made:
        t.end()


def long(queue, n, **more):
    """Jobs that can't start: no node has that much."""
    return [queue.submit(f"echo job-{i}", name=f"waits{i}", vram_mib=10**7, gpus=1, **more) for i in range(1, n + 1)]
