"""
Lanes on three hosts, the daemon kept by the keeper's script, GPUSTOW_FAULT_JOBS short jobs (60; `./dev fault`: 1000) in lanes
and in the pool beside them, and meanwhile, at random: kill -9 of agents, the daemon, the keeper's loop, shims, jobs, clients in
the middle of a command, relays and sshds; agents and daemons that stand still; links that are cut, clocks that are set; nodes and
the queue's own machine that go down and come up with another boot id. People submit, reorder, pause, take out and cancel all the
time. Then all is calm, the daemon alone brings everything to its end, and the jobs' own files are the judge. The seed is
printed; GPUSTOW_FAULT_SEED repeats it (as far as chance is ours).
"""
import os
import random
import signal
import threading
import time

import pytest

from lane_hosts import LANES, Admin, Cron, LaneHosts, Mover, Pauser, Person, Releaser, open_lanes, seed_of
from queue_hosts import NODES, PromiseWatch, missing
from test_queue_random import Storm

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
JOBS = int(os.environ.get("GPUSTOW_FAULT_JOBS", "60"))
STORM_S = float(os.environ.get("GPUSTOW_FAULT_STORM", "15" if JOBS < 200 else "600"))
SEED = seed_of()


class LaneStorm(Storm):
    """A deck of strikes, shuffled again when it's empty: so each kind comes, however short the storm is."""

    def __init__(self, hosts, rng, failures):
        super().__init__(hosts, rng)
        self.deck, self.failures = [], failures

    def run(self):
        try:
            super().run()
        except BaseException as error:
            self.failures.append(f"strikes: {error!r}")

    def kill_client(self):
        return self.one_of("client", self.hosts.clients())

    def kill_daemon(self):
        return self.one_of("daemon", self.hosts.daemons())

    def kill_keeper(self):
        return self.one_of("keeper", self.hosts.keepers())

    def kill_both(self):
        return f"{self.kill_keeper()}, {self.kill_daemon()}"

    def kill_job(self):
        jobs = self.hosts.jobs()
        if not jobs:
            return "no job"
        one = self.rng.choice(jobs)
        # What another process of it does from now on is nobody's any more.
        self.hosts.orphaned.add(one[0])
        return self.kill_marked("job", [one])

    def reboot_node(self):
        node = self.rng.choice(NODES)
        self.hosts.power_off(node)
        self.later(self.rng.uniform(0, 2), self.start_sshd, node)
        return f"reboot {node}"

    def reboot_client(self):
        """The keeper doesn't come back by itself: the cron sees to it."""
        self.hosts.power_off("ctl")
        return "reboot the queue's machine"

    def freeze(self, what, pids):
        """It stands still for longer than anybody waits, and goes on as if nothing had been."""
        if not pids:
            return f"no {what}"
        pid, seconds = self.rng.choice(pids), self.rng.choice((0.5, 2, 4))
        self.hosts.kill(pid, signal.SIGSTOP)
        self.later(seconds, self.hosts.kill, pid, signal.SIGCONT)
        return f"freeze {what} {pid} for {seconds} s"

    def freeze_daemon(self):
        return self.freeze("daemon", self.hosts.daemons())

    def freeze_agent(self):
        return self.freeze("agent", list(self.hosts.agents().values()))

    STRIKES = [(4, kill_client), (1, Storm.kill_ssh), (4, Storm.kill_agent), (1, Storm.kill_sampler),
               (2, Storm.kill_relay), (1, Storm.kill_session), (1, Storm.kill_listener), (3, Storm.kill_shim), (1, kill_job),
               (3, Storm.cut_link), (1, Storm.set_clock), (1, Storm.fill_disk), (3, kill_daemon), (2, kill_keeper),
               (1, kill_both), (2, freeze_daemon), (2, freeze_agent), (3, reboot_node), (1, reboot_client)]

    def draw(self):
        if not self.deck:
            self.deck = [what for weight, what in self.STRIKES for _ in range(weight)]
            self.rng.shuffle(self.deck)
        return self.deck.pop()


class Submitter(Person):
    """All jobs, a few at a time; those with a key until they're in, the others once. Some need others, of their node or not."""

    def __init__(self, *args):
        super().__init__(*args)
        self.made, self.n, self.last = 0, 0, {}

    def begin(self):
        """Half of them before the storm, so that the lanes are full when it comes."""
        while self.made < JOBS // 2:
            self.act()

    def run(self):
        try:
            while self.made < JOBS:
                self.act()
        except BaseException as error:
            self.failures.append(f"submits: {error!r}")

    def needs(self, lane):
        """One that was submitted lately: of the same lane, of the same node, of another one, of the pool."""
        if not self.last or self.rng.random() > 0.2:
            return {}
        name = self.rng.choice(list(self.last)[-10:])
        return {name: self.last[name]}

    def act(self):
        self.n += 1
        lane = self.rng.choice([*LANES, *LANES, None, None])
        n = min(JOBS - self.made, self.rng.choice((1, 2, 4, 6)))
        key = f"k{self.n}" if self.rng.random() < 0.7 else None
        size = self.rng.choice((["--vram", "1G"], ["--vram", "6G"], ["--vram", "9G"], ["--vram", "15G"], ["--gpus", "0"]))
        wide = ["--gpus", "2"] if lane == "key:0,1" and size[0] == "--vram" and self.rng.random() < 0.3 else []
        words = [*size, *wide, *(["--no-tick"] if self.rng.random() < 0.8 else [])]
        more = {"seconds": round(self.rng.uniform(0.1, 2.2), 2), "code": self.rng.choice((0, 0, 0, 0, 1, 77)),
                "retries": self.rng.choice((0, 1, 2))}
        needs = self.needs(lane)
        while True:
            ids = self.hosts.put(f"j{self.n}", lane, *words, needs=needs, n=n, key=key, **more)
            if ids or not key:
                break
            time.sleep(0.05)
        self.last.update(ids)
        self.made += n


def storm(hosts, seed):
    """Returns what's wrong, and the deeds."""
    rng = random.Random(seed)
    failures, over = [], threading.Event()
    weather = LaneStorm(hosts, random.Random(rng.random()), failures)
    watch = PromiseWatch(hosts)
    hosts.begin()

    def person(kind, *pause):
        return kind(hosts, random.Random(rng.random()), over, failures, pause)
    submits = person(Submitter, 0, 0)
    people = [person(Cron, 0.3, 1), person(Releaser, 1, 2), person(Mover, 0, 0.3), person(Mover, 0, 0.3), person(Pauser, 0, 0.5),
              person(Admin, 0.5, 2)]
    submits.begin()
    sky = threading.Thread(target=weather.run)
    weather.began = time.monotonic()
    watch.start()
    for thread in (submits, sky, *people):
        thread.start()
    while time.monotonic() - weather.began < STORM_S and not failures:
        time.sleep(0.2)
    weather.over.set()
    sky.join()
    hosts.calm()
    over.set()
    for thread in (submits, *people):
        thread.join()
    wrong = failures
    try:
        hosts.ensure()
        open_lanes(hosts)
        hosts.daemon_comes_back()
        hosts.settle_alone(60 + JOBS)
        wrong = wrong + hosts.complaints() + hosts.end_keeper()
    except AssertionError as error:
        wrong = [*wrong, *hosts.lane_complaints()[:10], str(error)]
    wrong += watch.stop()
    return wrong, weather.deeds, sorted(deed for one in people for deed in one.deeds), watch


def test_random_strikes_on_lanes_daemon_and_keeper():
    print(f"GPUSTOW_FAULT_SEED={SEED} GPUSTOW_FAULT_JOBS={JOBS}")
    hosts = LaneHosts()
    try:
        wrong, deeds, words, watch = storm(hosts, SEED)
        record = hosts.record()
        kinds = sorted({a["cause"] or "well" for a in record.attempts.values()})
        print(f"{len(record.jobs)} jobs, {len(record.attempts)} attempts ({', '.join(kinds)}), {len(hosts.rows())} lines, "
              f"{len(deeds)} strikes, {len(words)} words, {len(hosts.acks.cancelled)} cancelled, {len(hosts.acks.paused)} pauses and "
              f"{len(hosts.acks.placed)} moves acknowledged, {len(hosts.rebooted)} rebooted, {watch.looks} looks at promises")
        if wrong:
            pytest.fail(f"seed {SEED}:\n" + "\n".join(wrong[:20]) + "\ndeeds:\n" + "\n".join(deeds[-200:]) + "\n" +
                        "\n".join(map(str, words[-60:])) + "\n" + hosts.story(), pytrace=False)
        assert watch.looks
    finally:
        hosts.down()
