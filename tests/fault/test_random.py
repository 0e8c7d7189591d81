"""
Kill -9 (and stop, and go on) of the scheduler, the agent, shims and jobs at random moments. GPUSTOW_FAULT_ROUNDS rounds
(30); each prints its seed, and GPUSTOW_FAULT_SEED repeats one.
"""
import os
import random
import signal
import time

import pytest

from bed import Bed, MemoryWatch

ROUNDS = int(os.environ.get("GPUSTOW_FAULT_ROUNDS", "30"))
BASE = os.environ.get("GPUSTOW_FAULT_SEED")
SEEDS = [int(BASE)] if BASE else [random.SystemRandom().randrange(10**9) for _ in range(ROUNDS)]


def fill(bed, rng):
    for i in range(8):
        kind = rng.choice(["small", "big", "big", "pair", "cpu", "whole", "limit", "oom"])
        seconds, code = round(rng.uniform(0.05, 0.7), 2), rng.choice([0, 0, 0, 1, 3, 77])
        name = f"{kind}{i}"
        if kind == "small":
            bed.add(name, "vram=3G", 3072, seconds, code)
        elif kind == "big":
            gib = rng.choice([9, 11, 13, 17])
            bed.add(name, f"vram={gib}G", gib * 1024, seconds, code)
        elif kind == "pair":
            bed.add(name, "vram=7G gpus=2", 7168, seconds, code)
        elif kind == "cpu":
            bed.add(name, "gpus=0", 0, seconds, code)
        elif kind == "whole":
            bed.add(name, "", 20000, seconds, code)
        elif kind == "limit":
            bed.add(name, "vram=2G timeout=1s", 0, 8, 0)
        else:
            bed.add(name, "vram=2G retries=1", 2048, seconds, 0, oom=True)
    bed.write_lines()


def strike(bed, rng, stopped):
    """Kills, or stops, one process of a random kind, if there is one."""
    who = rng.choice(["run", "run", "agent", "agent", "shim", "job"])
    signo = signal.SIGKILL if rng.random() < 0.8 else signal.SIGSTOP
    mark, pid = None, None
    if who == "run":
        pid = bed.run.pid if bed.run and bed.run.poll() is None else None
    elif who == "agent":
        pid = bed.agent()
    else:
        found = bed.shims() if who == "shim" else bed.members()
        if found:
            mark, pid = rng.choice(found)
    if not pid:
        return f"no {who}"
    if signo == signal.SIGKILL and who == "shim":
        bed.killed_shims.add(mark)
    if signo == signal.SIGKILL and who == "job":
        bed.killed_jobs.add(mark)
    bed.kill(pid, signo)
    if signo == signal.SIGSTOP:
        stopped.append((time.monotonic() + rng.uniform(0.1, 1.0), pid))
    return f"{signo.name} {who} {mark or pid}"


def go_on(bed, stopped, everything=False):
    for entry in list(stopped):
        if everything or time.monotonic() > entry[0]:
            bed.kill(entry[1], signal.SIGCONT)
            stopped.remove(entry)


def one_round(seed):
    rng = random.Random(seed)
    stopped, deeds = [], []
    with Bed() as bed:
        fill(bed, rng)
        watch = MemoryWatch(bed.sim)
        watch.start()
        began = time.monotonic()
        moments = sorted(rng.uniform(0, 2.5) for _ in range(rng.randrange(3, 9)))
        try:
            for moment in moments:
                if bed.is_done():
                    break
                while time.monotonic() - began < moment:
                    go_on(bed, stopped)
                    if bed.run is None or bed.run.poll() is not None:
                        bed.start()
                    time.sleep(0.01)
                deeds.append(f"{moment:.2f} {strike(bed, rng, stopped)}")
            while stopped:
                go_on(bed, stopped)
                time.sleep(0.02)
            bed.restart_until_done(40)
            wrong = bed.complaints(bed.killed_shims, bed.killed_jobs | bed.killed_shims)
            wrong += bed.end_well()
        except AssertionError as error:
            wrong = [str(error)]
        finally:
            go_on(bed, stopped, everything=True)
        wrong += watch.stop()
        if wrong:
            return f"seed {seed}: " + "\n".join(wrong[:10]) + "\ndeeds: " + "\n".join(deeds) + "\n" + bed.story()
    return None


@pytest.mark.parametrize("item", SEEDS, ids=lambda seed: f"round{SEEDS.index(seed)}")
def test_random_kills_lose_nothing_and_start_nothing_twice(item, ahead):
    print(f"GPUSTOW_FAULT_SEED={item}")
    complaint = ahead(one_round).result(item)
    if complaint:
        pytest.fail(complaint, pytrace=False)
