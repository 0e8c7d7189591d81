"""
A queue over three hosts (queue_hosts) with lanes on their cards, its daemon kept by the keeper's script on the client, and the
people and the cron that have to do with them: who submits, reorders, pauses, takes out, and sees to the keeper.
"""
import os
import threading
import time

import lane_judge
from bed import wait_for
from lane_judge import Acks, LaneWish
from queue_hosts import NODES, Hosts, cmdline, state_letter

LANES = {"key:0": 1, "key:1": 1, "jump:0": 1, "fish:0": 1, "key:0,1": 2}
HOME = "/root/.gpustow"
KEEPER = ("GPUSTOW_KEEPER_DELAY=1", "GPUSTOW_KEEPER_DELAY_MAX=1", "GPUSTOW_KEEPER_GRACE=5", "GPUSTOW_KEEPER_LOOK=1")
STUCK_S = 4
ACK_S = 8  # so long somebody waits for an acknowledgement before he goes on without


def clock():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LaneHosts(Hosts):
    def __init__(self, settings=None):
        super().__init__(settings)
        self.lane_wishes, self.acks, self.orphaned, self.assigning = {}, Acks(), set(), threading.Lock()
        self.at_lane = {lane: threading.Lock() for lane in LANES}  # whoever stops it and lets it go on

    def begin(self):
        """The nodes have their agents and their lanes, the keeper has its daemon."""
        ticks = []

        def are_known():
            ticks.append(self.tick())
            return all(self.ask("queue", "lane", lane, "concurrency", str(n), "--json")[0] == 0 for lane, n in LANES.items())
        wait_for(are_known, 60, lambda: f"{len(ticks)} passes, the last: {ticks[-1]}\n{self.story()}")
        assert self.ask("queue", "keeper", "install", "--interval", "2", "--json")[0] == 0, self.story()
        assert self.ensure()[0] == 0, self.story()
        wait_for(self.leads, 60, self.story)

    def put(self, name, lane, *options, needs=(), n=1, **more):
        """One or several jobs for that lane (None: for the pool), behind others by their numbers. Returns {name: number}."""
        names = [name] if n == 1 else [f"{name}-{i}" for i in range(1, n + 1)]
        for each in names:
            self.lane_wishes.setdefault(each, LaneWish(lane, needs))
        words = [*(["--lane", lane] if lane else []), *options]
        for job in needs.values() if needs else ():
            words += ["--after", str(job)]
        ids = self.submit(name, *words, n=n, **more)
        for each in names if ids else ():
            self.lane_wishes[each].accepted_at = clock()
        return dict(zip(names, ids))

    # --- the keeper and its daemon ---

    def ensure(self):
        return self.ask("queue", "keeper", "ensure", "--json", env=KEEPER, deadline=60)

    def leads(self):
        doc = self.ask("queue", "status", "--no-tick", "--json")[1]
        return bool(doc and (doc.get("daemon") or {}).get("leads"))

    def daemons(self):
        return [p for p in self.named("ctl", "gpustow") if b"queue\0daemon" in cmdline(p)]

    def clients(self):
        return [p for p in self.named("ctl", "gpustow") if b"queue\0daemon" not in cmdline(p)]

    def keepers(self):
        return [p for p in self.processes()["ctl"] if b"_loop" in cmdline(p) and state_letter(p) not in "ZX"]

    # --- the end ---

    def daemon_comes_back(self):
        """By the keeper's loop alone; and after that one was killed, by `ensure`."""
        for killed in (self.daemons, self.keepers):
            wait_for(self.leads, 30, lambda: f"no daemon leads\n{self.story()}")
            old = self.daemons()
            for pid in killed():
                self.kill(pid)
            if killed == self.keepers:
                self.ensure()
            wait_for(lambda: self.daemons() and not set(self.daemons()) & set(old) and self.leads(), 30,
                     lambda: f"no other daemon leads than {old}\n{self.story()}")

    def settle_alone(self, seconds):
        """
        The daemon alone brings all of it to its end: nobody makes a pass. Held jobs are let go of. What was moved before
        something it needs never starts by itself: where nothing goes on for that alone, it goes to the pool.
        """
        seen, since = None, time.monotonic()

        def is_quiet():
            nonlocal seen, since
            record = self.record()
            self.release(record)
            now = [(j["id"], j["state"], j["lane"]) for j in record.jobs.values()]
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > STUCK_S:
                self.untangle(record)
                since = time.monotonic()
            # One that was held and isn't quiet any more is told by the next look.
            return record.is_quiet() and not self.held(record)
        wait_for(is_quiet, seconds, lambda: f"quiet\n{self.story()}")
        wait_for(lambda: not any(self.claims(node) for node in NODES), 60,
                 lambda: f"no claims: {[list(map(str, self.claims(n))) for n in NODES]}\n{self.story()}")

    def untangle(self, record):
        done = {self.name_of(job) for job in record.jobs.values() if job["state"] == "completed"}
        for lane in LANES:
            waiting = [j for j in record.jobs.values() if j["lane"] == lane and j["state"] == "pending"]
            head = min(waiting, key=lambda j: (j["lane_seq"], j["id"]), default=None)
            if head and set(self.lane_wishes[self.name_of(head)].needs) - done:
                wish = self.lane_wishes[self.name_of(head)]
                wish.is_moved = wish.is_assigned = True
                self.ask("queue", "lane", lane, "assign", str(head["id"]), "--none", "--no-tick", "--json")

    @staticmethod
    def held(record):
        return [job for job in record.jobs.values() if job["state"] == "pending" and job["held_reason"]]

    def release(self, record):
        for job in self.held(record):
            self.lane_wishes[self.name_of(job)].is_released = True
            self.ask("job", "release", "--json", str(job["id"]))

    @staticmethod
    def name_of(job):
        return job["command"].split()[2]

    def end_keeper(self):
        """Complaints: is it still up, does it stop, is the database whole?"""
        wrong = []
        if self.ask("queue", "keeper", "status", "--json")[0] != 0:
            wrong.append("the keeper isn't up at the end")
        if self.ask("queue", "keeper", "stop", "--json", env=KEEPER)[0] != 0 or self.daemons() or self.keepers():
            wrong.append(f"the keeper stops, and there's left: {self.daemons()} {self.keepers()}")
        if self.ask("queue", "check", "--json")[0] != 0:
            wrong.append("`queue check` finds the database damaged")
        return wrong

    def complaints(self):
        return super().complaints() + self.lane_complaints()

    def lane_complaints(self):
        return lane_judge.complaints(self.record(), self.rows(), self.lane_wishes, LANES, self.acks, self.rebooted, self.orphaned)

    def story(self):
        log = self.path("ctl", f"{HOME}/queue-keeper.log")
        lanes = []
        for lane in LANES:
            doc = self.ask("queue", "lane", lane, "--no-tick", "--json")[1] or {}
            lanes.append(f"{lane} {[(k, doc.get(k)) for k in ('paused', 'request', 'generation', 'acked_generation', 'blocked')]} "
                         f"{[j['id'] for j in doc.get('running', [])]} {[j['id'] for j in doc.get('queued', [])]}")
        nodes = (self.ask("queue", "nodes", "--no-tick", "--json")[1] or {}).get("nodes", [])
        lanes += [str([(k, node.get(k)) for k in ("name", "state", "last_error", "probed_at", "last_seen_at")]) for node in nodes]
        return "\n".join([super().story(), "--- lanes", *lanes, "--- keeper",
                          log.read_text(errors="replace")[-3000:] if log.exists() else ""])

    def sanitizer_words(self):
        log = self.path("ctl", f"{HOME}/queue-keeper.log")
        words = log.read_text(errors="replace").splitlines() if log.exists() else []
        return super().sanitizer_words() + [f"sanitizer: {line}" for line in words
                                            if "Sanitizer" in line and "ERROR" in line or "runtime error:" in line][:3]


class Person(threading.Thread):
    """Somebody who does something to the queue now and then, until it's over. What stops him is a failure of the test."""

    def __init__(self, hosts, rng, over, failures, pause):
        super().__init__(daemon=True)
        self.hosts, self.rng, self.over, self.failures, self.pause_s, self.deeds = hosts, rng, over, failures, pause, []

    def run(self):
        try:
            while not self.over.wait(self.rng.uniform(*self.pause_s)):
                self.act()
        except BaseException as error:
            self.failures.append(f"{type(self).__name__}: {error!r}")

    def ask(self, *words):
        began = clock()
        code, doc = self.hosts.ask(*words, "--json")
        self.deeds.append((round(began, 2), round(clock() - began, 2), " ".join(words), code))
        return doc if doc and code == 0 else {}

    def waiting(self):
        """{lane or None: [row]} of what waits and isn't held, in its order."""
        found = {}
        rows = [j for j in self.hosts.record().jobs.values() if j["state"] == "pending" and not j["held_reason"]]
        for job in sorted(rows, key=lambda j: (j["lane_seq"] or 0, j["id"])):
            found.setdefault(job["lane"], []).append(job)
        return found

    def wish(self, job):
        return self.hosts.lane_wishes[self.hosts.name_of(job)]


class Cron(Person):
    """`queue keeper ensure`, again and again: what brings a killed keeper back."""

    def act(self):
        self.hosts.ensure()


class Mover(Person):
    """Reorders, takes out, cancels. Each touched job is marked before, whatever becomes of the command."""

    def move(self, lane, jobs):
        job, other = self.rng.choice(jobs), self.rng.choice(jobs)
        to = self.rng.choice((["--to", "head"], ["--to", "tail"], ["--to", "2"], ["--before", str(other["id"])],
                              ["--after", str(other["id"])]))
        self.wish(job).is_moved = True
        self.ask("queue", "lane", lane, "move", str(job["id"]), *to)

    def swap(self, lane, jobs):
        pair = [self.rng.choice(jobs), self.rng.choice(jobs)]
        for job in pair:
            self.wish(job).is_moved = True
        self.ask("queue", "lane", lane, "swap", *(str(job["id"]) for job in pair))

    def skip(self, lane, jobs):
        """Whichever is the first by then, held or not; where nobody says, it may be any of them."""
        doc = self.ask("queue", "lane", lane, "skip")
        for job in self.hosts.record().jobs.values():
            if job["lane"] == lane and (job["id"] == doc.get("skipped") or not doc):
                self.wish(job).is_moved = True

    def assign(self, lane, jobs):
        # One at a time: where a job is by now is known between two of them only.
        with self.hosts.assigning:
            self.assign_one(lane, jobs)

    def assign_one(self, lane, jobs):
        job, to = self.rng.choice(jobs), self.rng.choice([None, *LANES])
        self.wish(job).is_moved = self.wish(job).is_assigned = True
        began = clock()
        self.hosts.acks.placed = [(j, node, since, min(until, began) if j == job["id"] else until)
                                  for j, node, since, until in self.hosts.acks.placed]
        doc = self.ask("queue", "lane", to or lane or "key:0", "assign", str(job["id"]), *([] if to else ["--none"]))
        if doc.get("moved") and doc.get("lane"):
            self.hosts.acks.placed.append((job["id"], doc["lane"].split(":")[0], clock(), float("inf")))

    def cancel(self, lane, jobs):
        job = self.rng.choice(jobs)
        doc = self.ask("job", "cancel", str(job["id"]))
        if any(r.get("cancelled") for r in doc.get("results", [])):
            self.hosts.acks.cancelled[job["id"]] = clock()

    def act(self):
        waiting = self.waiting()
        if not waiting:
            return
        lane = self.rng.choice(list(waiting))
        deeds = [self.assign, self.cancel] if lane is None else [self.move, self.move, self.swap, self.skip, self.assign, self.cancel]
        self.rng.choice(deeds)(lane, waiting[lane])


class Pauser(Person):
    """Stops a lane, waits for its node's word, looks on for a while, and lets it go on."""

    def claimed(self, node):
        return {f"{c.parent.name}/{c.name}" for c in self.hosts.claims(node)}

    def is_acknowledged(self, lane, word):
        doc = self.ask("queue", "lane", lane, "--no-tick")
        return doc.get(word) is True and doc.get("request") is False

    def act(self):
        lane = self.rng.choice(list(LANES))
        with self.hosts.at_lane[lane]:
            self.pause(lane)

    def pause(self, lane):
        node = lane.split(":")[0]
        word, stop, go = self.rng.choice((("paused", ["pause"], ["resume"]), ("stopped", ["runner", "stop"], ["runner", "restart"])))
        before = self.claimed(node)
        if self.ask("queue", "lane", lane, *stop).get("ok"):
            self.ask("queue", "tick")
            end = time.monotonic() + ACK_S
            while not self.over.is_set() and time.monotonic() < end:
                before |= self.claimed(node)
                if self.is_acknowledged(lane, word):
                    since = clock()
                    before |= self.claimed(node)
                    self.over.wait(self.rng.uniform(0.2, 1.5))
                    self.hosts.acks.paused.append((lane, since, clock(), before))
                    break
        while not self.ask("queue", "lane", lane, *go).get("ok"):
            pass


class Admin(Person):
    """Takes a lane from its node or a node out of service, for a while. What runs there goes on."""

    def act(self):
        lane = self.rng.choice(list(LANES))
        with self.hosts.at_lane[lane]:
            self.take_away(lane)

    def take_away(self, lane):
        node = lane.split(":")[0]
        away, back = self.rng.choice(((("lane", lane, "runner", "off"), ("lane", lane, "runner", "on")),
                                      (("drain", node), ("resume", node))))
        self.ask("queue", *away)
        self.over.wait(self.rng.uniform(0.2, 2))
        while not self.ask("queue", *back).get("ok") and not self.over.is_set():
            pass


class Releaser(Person):
    """Lets go of what's held for a prerequisite that failed."""

    def act(self):
        self.hosts.release(self.hosts.record())


def open_lanes(hosts):
    """Whatever was done to them: all go on."""
    for lane in LANES:
        for words in (("resume",), ("runner", "restart"), ("runner", "on")):
            wait_for(lambda: hosts.ask("queue", "lane", lane, *words, "--json")[0] == 0, 60, hosts.story)
    for node in NODES:
        wait_for(lambda: hosts.ask("queue", "resume", node, "--json")[0] == 0, 60, hosts.story)


def seed_of():
    return int(os.environ.get("GPUSTOW_FAULT_SEED") or int.from_bytes(os.urandom(4), "big") % 10**9)


