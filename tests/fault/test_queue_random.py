"""
Three hosts in namespaces, GPUSTOW_FAULT_JOBS short jobs (60; `./dev fault`: 1000), and meanwhile, at random: kill -9 of
clients, agents, samplers, relays, shims, jobs, sshds and ssh's; links that are cut, clocks that are set by an hour, disks that
are full under a node and under the database. Then all is calm, passes go on until everything is settled, and the jobs' own
files are the judge. The seed is printed; GPUSTOW_FAULT_SEED repeats it (as far as chance is ours).
"""
import os
import random
import threading
import time

import pytest

from queue_hosts import HOUR_MS, NODES, Hosts, PromiseWatch, cmdline, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
JOBS = int(os.environ.get("GPUSTOW_FAULT_JOBS", "60"))
STORM_S = float(os.environ.get("GPUSTOW_FAULT_STORM", "15" if JOBS < 200 else "600"))
SEED = int(os.environ.get("GPUSTOW_FAULT_SEED") or random.SystemRandom().randrange(10**9))


class Storm:
    """Strikes until told to stop, and undoes in time what has an end."""

    def __init__(self, hosts, rng):
        self.hosts, self.rng, self.deeds, self.undo = hosts, rng, [], []
        self.began, self.over = time.monotonic(), threading.Event()

    def later(self, seconds, what, *args):
        self.undo.append((time.monotonic() + seconds, what, args))

    def go_on(self, everything=False):
        for entry in list(self.undo):
            if everything or time.monotonic() > entry[0]:
                self.undo.remove(entry)
                entry[1](*entry[2])

    def one_of(self, what, pids):
        if not pids:
            return f"no {what}"
        pid = self.rng.choice(pids)
        words = cmdline(pid).replace(b"\0", b" ").decode(errors="replace")[:60]
        self.hosts.kill(pid)
        return f"kill {what} {pid} {words}"

    def kill_client(self):
        return self.one_of("client", self.hosts.named("ctl", "gpustow"))

    def kill_ssh(self):
        return self.one_of("ssh", self.hosts.named("ctl", "ssh"))

    def kill_agent(self):
        return self.one_of("agent", list(self.hosts.agents().values()))

    def kill_sampler(self):
        return self.one_of("sampler", self.hosts.named(self.rng.choice(NODES), "gpustow-sampler"))

    def kill_relay(self):
        node = self.rng.choice(NODES)
        return self.one_of("relay", [p for p in self.hosts.processes()[node] if b"attach" in cmdline(p)])

    def kill_session(self):
        node = self.rng.choice(NODES)
        return self.one_of("sshd", [p for p in self.hosts.named(node, "sshd") if b"[listener]" not in cmdline(p)])

    def kill_listener(self):
        node = self.rng.choice(NODES)
        self.later(self.rng.uniform(0.2, 2), self.start_sshd, node)
        return self.one_of("sshd", [p for p in self.hosts.named(node, "sshd") if b"[listener]" in cmdline(p)])

    def start_sshd(self, node):
        if not self.hosts.is_listening(node):
            self.hosts.start_sshd(node)

    def kill_marked(self, what, found):
        if not found:
            return f"no {what}"
        mark, pid = self.rng.choice(found)
        # Before the deed: the job may be settled in the same moment.
        self.hosts.struck.add(mark)
        self.hosts.kill(pid)
        return f"kill {what} {mark} {pid}"

    def kill_shim(self):
        return self.kill_marked("shim", self.hosts.shims())

    def kill_job(self):
        return self.kill_marked("job", self.hosts.jobs())

    def cut_link(self):
        node, seconds = self.rng.choice(NODES), self.rng.choice((0.3, 1, 1, 3, 6))
        self.hosts.cut(node, True)
        self.later(seconds, self.hosts.cut, node, False)
        return f"cut {node} for {seconds} s"

    def set_clock(self):
        host, offset = self.rng.choice(("ctl", *NODES)), self.rng.choice((-HOUR_MS, 0, HOUR_MS))
        self.hosts.set_clock(host, offset)
        return f"clock of {host} {offset} ms"

    def fill_disk(self):
        host, seconds = self.rng.choice(("ctl", *NODES)), self.rng.choice((0.3, 1, 2))
        self.hosts.fill(host)
        self.later(seconds, self.hosts.free, host)
        return f"full disk of {host} for {seconds} s"

    STRIKES = [(4, kill_client), (2, kill_ssh), (3, kill_agent), (1, kill_sampler), (2, kill_relay), (2, kill_session),
               (1, kill_listener), (3, kill_shim), (1, kill_job), (2, cut_link), (2, set_clock), (2, fill_disk)]

    def draw(self):
        return self.rng.choice([what for weight, what in self.STRIKES for _ in range(weight)])

    def run(self):
        next_at = time.monotonic() + 1.5
        while not self.over.wait(0.02):
            self.go_on()
            if time.monotonic() >= next_at:
                try:
                    deed = self.draw()(self)
                except OSError as error:
                    deed = f"{error}"
                self.deeds.append(f"{time.monotonic() - self.began:.2f} {deed}")
                next_at = time.monotonic() + self.rng.uniform(0.05, 0.8)
        self.go_on(everything=True)


def submit_all(hosts, rng, over, failures):
    """All jobs, a few at a time, in the storm or after it; those with a key until they're in, the others once."""
    try:
        n, made = 0, 0
        while made < JOBS:
            n += 1
            size = 1 if rng.random() < 0.3 else rng.randrange(2, 16)
            size = min(size, JOBS - made)
            key = f"k{n}" if rng.random() < 0.7 else None
            options = rng.choice((["--gpus", "0"], ["--vram", "6G"], ["--vram", "9G"], ["--vram", "1G"],
                                  ["--vram", "2G", "--gpus", "2"], ["--vram", "20G"]))
            options += ["--no-tick"] if rng.random() < 0.9 else []
            more = {"seconds": round(rng.uniform(0.05, 0.9), 2), "code": rng.choice((0, 0, 0, 1, 3, 77)),
                    "retries": rng.choice((0, 0, 2))}
            if rng.random() < 0.1:
                options, more["seconds"], more["is_limited"] = [*options, "--timeout", "1"], 30, True
            while not hosts.submit(f"j{n}", *options, n=size, key=key, **more) and key:
                time.sleep(0.05)
            made += size
    except BaseException as error:
        failures.append(f"submits: {error!r}")


def tick_all(hosts, over, failures):
    try:
        while not over.is_set():
            hosts.tick()
            time.sleep(0.05)
    except BaseException as error:
        failures.append(f"passes: {error!r}")


def cancel_some(hosts, rng, over, failures):
    try:
        while not over.wait(rng.uniform(1, 3)):
            jobs = [j["id"] for j in hosts.record().jobs.values() if j["state"] in ("pending", "running")] if hosts.has_record() else []
            if jobs:
                hosts.ask("job", "cancel", "--json", str(rng.choice(jobs)))
    except BaseException as error:
        failures.append(f"cancels: {error!r}")


def storm(hosts, seed):
    """Returns what's wrong, and the deeds."""
    rng = random.Random(seed)
    weather, failures, over = Storm(hosts, random.Random(rng.random())), [], threading.Event()
    watch = PromiseWatch(hosts)
    # The nodes have their agents before: the first contact has tests of its own.
    hosts.tick()
    submits = threading.Thread(target=submit_all, args=(hosts, random.Random(rng.random()), over, failures))
    others = [threading.Thread(target=tick_all, args=(hosts, over, failures)) for _ in range(2)]
    others += [threading.Thread(target=cancel_some, args=(hosts, random.Random(rng.random()), over, failures)),
               threading.Thread(target=weather.run)]
    weather.began = time.monotonic()
    watch.start()
    for thread in (submits, *others):
        thread.start()
    while time.monotonic() - weather.began < STORM_S and not failures:
        if not submits.is_alive() and hosts.record().is_quiet():
            break
        time.sleep(0.2)
    weather.over.set()
    over.set()
    for thread in others:
        thread.join()
    wrong = failures
    try:
        hosts.calm()
        submits.join()
        hosts.settle_all(60 + JOBS)
        wrong = wrong + hosts.complaints()
    except AssertionError as error:
        wrong = [*wrong, str(error)]
    wrong += watch.stop()
    return wrong, weather.deeds, watch


def test_random_strikes_lose_nothing_and_start_nothing_twice():
    print(f"GPUSTOW_FAULT_SEED={SEED} GPUSTOW_FAULT_JOBS={JOBS}")
    hosts = Hosts()
    try:
        wrong, deeds, watch = storm(hosts, SEED)
        record = hosts.record()
        kinds = sorted({a["cause"] or "well" for a in record.attempts.values()})
        print(f"{len(record.jobs)} jobs, {len(record.attempts)} attempts ({', '.join(kinds)}), {len(hosts.rows())} lines, "
              f"{len(deeds)} strikes, {watch.looks} looks at promises, at most {watch.most} MiB")
        if wrong:
            pytest.fail(f"seed {SEED}:\n" + "\n".join(wrong[:20]) + "\ndeeds:\n" + "\n".join(deeds[-200:]) + "\n" + hosts.story(),
                        pytrace=False)
        assert len(hosts.wishes) == JOBS and watch.looks
    finally:
        hosts.down()
