"""
Memory that's promised before it's used: jobs that allocate late, exact fits, strangers that come and go, a job that ignores its
card. Times are scaled (a job that would allocate after 30 s does so after 2). The judge looks ten times a second and more at
what the agents promise in their files and at what the simulated processes hold in theirs; gpustow is asked nothing.
"""
import json
import os
import random
import subprocess
import threading
import time
from collections import defaultdict

import pytest

import queue_judge
from bed import is_alive, promised, wait_for
from queue_bed import QueueBed
from queue_judge import Wish

SEED = int(os.environ.get("GPUSTOW_FAULT_SEED") or random.SystemRandom().randrange(10**9))
GIB = 1024


class CardWatch(threading.Thread):
    """
    At no moment may what's promised and what strangers hold pass a card's memory by our doing: a promise that grows where
    there's no room for it, whatever the strangers did between two looks, is a complaint. And nothing that jobs hold does.
    """

    def __init__(self, bed, total_mib):
        super().__init__(daemon=True)
        self.bed, self.total, self.over = bed, total_mib, threading.Event()
        self.wrong, self.looks, self.most_promised, self.most_held = [], 0, 0, 0

    def held(self):
        """(by strangers, by jobs), each {index: MiB}"""
        foreign, ours = defaultdict(int), defaultdict(int)
        for path in self.bed.sim.glob("*.json"):
            try:
                doc = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            if is_alive(doc["pid"]):
                for card, mib in doc["usage"].items():
                    (foreign if path.name.startswith("foreign") else ours)[card] += mib
        return foreign, ours

    def run(self):
        before, foreign_before = {}, defaultdict(int)
        while not self.over.wait(0.03):
            now = promised(self.bed.promises)
            foreign, ours = self.held()
            self.looks += 1
            # With one card there's one of each; with several, UUIDs and indices are matched by what was seen at rest.
            for card, mib in now.items():
                least = min(foreign_before[self.bed.index(card)], foreign[self.bed.index(card)])
                self.most_promised = max(self.most_promised, mib)
                if mib > before.get(card, 0) and mib + least > self.total:
                    self.wrong.append(f"{mib} MiB of card {card} are promised beside {least} MiB of strangers")
            for card, mib in ours.items():
                self.most_held = max(self.most_held, mib)
                if mib > self.total:
                    self.wrong.append(f"jobs hold {mib} MiB of card {card}")
            before, foreign_before = now, foreign

    def stop(self):
        self.over.set()
        self.join()
        return self.wrong[:5]


class Cards(QueueBed):
    """Jobs that wait before they allocate, and on which card."""

    def __init__(self, cards, **more):
        super().__init__(cards, **more)
        self.uuids = None

    def index(self, uuid):
        if self.uuids is None:
            doc = self.document(self.ask("queue", "nodes", "--json", "--no-tick")[1])
            self.uuids = {g["uuid"]: str(g["index"]) for n in doc["nodes"] for g in n["gpus"] if "uuid" in g}
        return self.uuids.get(uuid, "0")

    def command(self, name, mib=0, seconds=0.1, code=0, oom=False, wait=0, before=""):
        judge = f"{self.dir}/judge"
        return (f": {self.dir}/job.sh {name} {mib} {seconds} {code}; read -r up _ </proc/uptime; echo start {name} $GPUSTOW_MARK $$ $up >>{judge}; sleep {wait}; {before}"
                f"$GPUSTOW_TEST_PROGRAM simjob --vram {mib} --ramp 0 --for {seconds}; read -r up _ </proc/uptime; echo end {name} $GPUSTOW_MARK {code} $up >>{judge}; exit {code}")

    def put(self, name, *options, **more):
        self.wishes[name] = Wish(name, is_accepted=True)
        words = []
        for var in ("GPUSTOW_TEST_BED", "GPUSTOW_TEST_PROGRAM", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            words += ["--env", f"{var}={self.env[var]}"] if var in self.env else []
        status, text = self.ask("job", "submit", "--json", "--no-tick", *options, *words, "--", self.command(name, **more))
        assert status == 0, text

    def foreign(self, usage):
        return Foreign(self, usage)

    def running(self):
        return sum(job["state"] == "running" for job in self.record().jobs.values())

    def all_over(self, watch, seconds=90, meanwhile=lambda: None):
        end = time.monotonic() + seconds
        while not self.record().is_quiet():
            assert time.monotonic() < end, self.story()
            self.tick()
            meanwhile()
        wrong = watch.stop()
        self.settle_all()
        wrong += queue_judge.complaints(self.record(), self.rows(), self.wishes)
        wrong += [f"{j['id']}: {j['state']}, {j['last_error']}" for j in self.record().jobs.values() if j["state"] != "completed"]
        wrong += self.end()
        assert not wrong, "\n".join([*wrong[:20], self.story()])


class Foreign:
    """A process that isn't gpustow's and holds memory."""

    def __init__(self, bed, usage):
        self.process = subprocess.Popen(["sleep", "300"], start_new_session=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.path = bed.sim / f"foreign{self.process.pid}.json"
        new = self.path.with_suffix(".tmp")
        new.write_text(json.dumps({"pid": self.process.pid, "usage": usage}))
        new.rename(self.path)

    def end(self):
        self.path.unlink()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def watch():
    made = []

    def make(bed, total):
        made.append(CardWatch(bed, total))
        made[0].start()
        return made[0]
    yield make
    for one in made:
        one.over.set()


def test_late_allocations_that_fit_exactly(watch):
    """Twelve of 20 GiB at once on a card of 80: four at a time and never five, though none holds anything when the next one comes."""
    with Cards("1x80G") as bed:
        for i in range(12):
            bed.put(f"late{i}", "--vram", "20G", mib=20 * GIB, wait=1.5, seconds=0.5)
        look = watch(bed, 80 * GIB)
        most = []
        bed.all_over(look, meanwhile=lambda: most.append(bed.running()))
        assert max(most) == 4 and look.most_promised == look.most_held == 80 * GIB and look.looks > 50


@pytest.mark.long
def test_one_mib_too_much_waits(watch):
    with Cards("1x80G", settings={"headroom_mb": 1}) as bed:
        for i in range(4):
            bed.put(f"late{i}", "--vram", "20G", mib=20 * GIB, wait=0.7, seconds=0.3)
        look = watch(bed, 80 * GIB)
        most = []
        bed.all_over(look, meanwhile=lambda: most.append(bed.running()))
        assert max(most) == 3 and look.most_promised == 60 * GIB


def test_strangers_that_come_and_go(watch):
    print(f"GPUSTOW_FAULT_SEED={SEED}")
    rng = random.Random(SEED)
    strangers = []
    with Cards("1x80G") as bed:
        for i in range(16):
            gib = rng.choice((10, 20, 30, 40))
            bed.put(f"j{i}", "--vram", f"{gib}G", mib=gib * GIB, wait=round(rng.uniform(0, 1), 1), seconds=0.3)
        look = watch(bed, 80 * GIB)

        def come_and_go():
            if strangers and rng.random() < 0.5:
                strangers.pop(rng.randrange(len(strangers))).end()
            elif len(strangers) < 3:
                strangers.append(bed.foreign({"0": rng.choice((5, 10, 15)) * GIB}))
        try:
            bed.all_over(look, meanwhile=come_and_go)
        finally:
            for one in strangers:
                one.end()
        assert look.most_promised > 40 * GIB


def test_job_that_ignores_its_card(watch):
    """Allotted card 0, it takes 60 GiB of card 1: what's measured there counts, and nobody else is put beside it."""
    with Cards("2x80G") as bed:
        bed.put("ignores", "--vram", "60G", "--node", "local", "--gpu", "0", mib=60 * GIB, seconds=4, before="CUDA_VISIBLE_DEVICES=1 ")
        bed.tick()
        wait_for(lambda: bed.tick() and list(bed.sim.glob("*.json")), 20, bed.story)
        look = watch(bed, 80 * GIB)
        for i in range(6):
            bed.put(f"beside{i}", "--vram", "30G", mib=30 * GIB, wait=0.5, seconds=0.5)
        bed.all_over(look)
        assert look.most_held >= 60 * GIB
