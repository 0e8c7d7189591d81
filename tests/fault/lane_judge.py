"""
The judge of lanes, beside the queue's own (queue_judge): order, places, prerequisites, and what was acknowledged. All by what
the jobs wrote themselves, in the order of their node's file and by the machine's clock (seconds since its boot, 0.01 s), which
all hosts of the lab share.
"""
from collections import defaultdict

CLOCK_STEP_S = 0.01


class LaneWish:
    """Where a job was submitted to, and what was done to it since: it counts as done once it was tried."""

    def __init__(self, lane=None, needs=()):
        self.lane, self.needs = lane, tuple(needs)  # lane None: the pool; needs: names that have to end well
        self.is_moved = self.is_assigned = self.is_released = False
        self.accepted_at = None  # gpustow had said by then that it's in


class Acks:
    """What gpustow said that it's so, with the clock of the moment it had said it."""

    def __init__(self):
        self.cancelled = {}  # job: since when
        self.paused = []  # (lane, since, until, marks that had a claim by then)
        self.placed = []  # (job, node, since, until): wherever else it was, it's taken out there


class Run:
    def __init__(self, place, name, mark, at, clock):
        self.place, self.name, self.mark, self.at, self.clock = place, name, mark, at, clock
        self.job, self.attempt = (int(n) for n in mark.split("/")[1].split("."))
        self.end, self.end_clock, self.code = None, None, None


def runs_of(rows):
    """Each start with its end, if it has one. `at` and `end` are positions in the file of its node."""
    found, by_mark = [], {}
    for at, (place, word, name, mark, number, clock) in enumerate(rows):
        if word == "start" and mark not in by_mark:
            by_mark[mark] = Run(place, name, mark, at, float(clock))
            found.append(by_mark[mark])
        elif word == "end" and mark in by_mark:
            run = by_mark[mark]
            run.end, run.end_clock, run.code = at, float(clock), int(number)
    return found


def judge_order(lane, runs, wishes, wrong):
    """
    First attempts of jobs that nobody moved start in the order of their numbers. A second one stands behind what was in the lane
    before the first had ended, but before what needs it.
    """
    firsts = [r for r in runs if r.attempt == 1 and not wishes[r.name].is_moved]
    for before, after in zip(firsts, firsts[1:]):
        if after.job < before.job:
            wrong.append(f"{lane}: {after.mark} ({after.name}) stands before {before.mark} ({before.name}) and started after it")
    ended = {(r.job, r.attempt): r for r in runs if r.end is not None}
    for run in runs:
        last = ended.get((run.job, run.attempt - 1))
        if run.attempt == 1 or not last or wishes[run.name].is_moved:
            continue
        needing = min((r.job for r in runs if run.name in wishes[r.name].needs), default=float("inf"))
        for other in firsts:
            accepted = wishes[other.name].accepted_at
            if other.at > run.at and accepted and accepted < last.end_clock and other.job < needing:
                wrong.append(f"{lane}: {run.mark} ({run.name}) was tried again before {other.mark} ({other.name}), which stood there")


def judge_places(lane, concurrency, runs, orphaned, wrong):
    """orphaned: marks of jobs of which one process was killed; what's left of those counts no more."""
    for run in runs:
        beside = [r for r in runs if r.at < run.at and r.end is not None and r.end > run.at and r.mark not in orphaned]
        if len(beside) >= concurrency:
            wrong.append(f"{lane}: {run.mark} ({run.name}) started while {[(r.mark, r.name) for r in beside]} ran")


def judge_passing(lane, concurrency, runs, wishes, orphaned, wrong):
    """
    Where several run at a time, those that begin together write their lines as they come. But whoever started behind another in
    the list started after that one had its claim: from there on it holds a place, though its own line comes later.
    """
    firsts = [r for r in runs if r.attempt == 1 and not wishes[r.name].is_moved]
    for run in runs:
        begun = [r.job for r in firsts if r.at <= run.at]
        claimed = [r for r in firsts if r.at > run.at and any(r.job < job for job in begun)]
        beside = [r for r in runs if r.at < run.at and r.end is not None and r.end > run.at and r.mark not in orphaned]
        if claimed and len(beside) + len(claimed) >= concurrency:
            wrong.append(f"{lane}: {run.mark} ({run.name}) started before {[(r.mark, r.name) for r in claimed]}, which stood there first, "
                         f"beside {[(r.mark, r.name) for r in beside]}")


def judge_needs(runs, wishes, wrong):
    well = defaultdict(list)
    for run in runs:
        if run.code == 0:
            well[run.name].append(run)
    for run in runs:
        for name in () if wishes[run.name].is_released else wishes[run.name].needs:
            if not any(r.end < run.at if r.place == run.place else r.end_clock <= run.clock for r in well[name]):
                wrong.append(f"{run.mark} ({run.name}) started before {name} had ended well")


def judge_acks(runs, wishes, acks, wrong):
    for run in runs:
        since = acks.cancelled.get(run.job)
        if since is not None and run.clock > since:
            wrong.append(f"{run.mark} ({run.name}) started at {run.clock}, it was cancelled by {since}")
        for lane, since, until, claimed in acks.paused:
            # The clock of a start is rounded down: what's at the limit came before it.
            if wishes[run.name].lane == lane and not wishes[run.name].is_assigned and since < run.clock < until - CLOCK_STEP_S and \
                    run.mark not in claimed:
                wrong.append(f"{run.mark} ({run.name}) started at {run.clock}, {lane} was paused from {since} to {until}")
        for job, node, since, until in acks.placed:
            if job == run.job and since < run.clock < until - CLOCK_STEP_S and run.place != node:
                wrong.append(f"{run.mark} ({run.name}) started on {run.place} at {run.clock}, it was {node}'s from {since} to {until}")


def judge_reboots(record, rebooted, wrong):
    for key, a in record.attempts.items():
        mark = record.mark(key)
        if a["cause"] == "node-rebooted" and mark not in rebooted:
            wrong.append(f"{mark} counts as gone with its node, and it wasn't there when that went down")
        if rebooted.get(mark) and a["cause"] not in ("node-rebooted", "cancelled"):
            wrong.append(f"{mark} went down with its node and counts as {a['cause']}, exit code {a['exit_code']}")


def complaints(record, rows, wishes, lanes, acks, rebooted=None, orphaned=()):
    """
    What's wrong. rows: as queue_judge's, those of one place in their order. wishes: by name. lanes: {name: concurrency}.
    rebooted: {mark: nothing else had struck it} of what ran, or was about to, when its node went down.
    """
    wrong, runs = [], runs_of(rows)
    for lane, concurrency in lanes.items():
        own = [r for r in runs if wishes[r.name].lane == lane and not wishes[r.name].is_assigned]
        judge_places(lane, concurrency, own, orphaned, wrong)
        if concurrency == 1:
            judge_order(lane, own, wishes, wrong)
        else:
            judge_passing(lane, concurrency, own, wishes, orphaned, wrong)
    judge_needs(runs, wishes, wrong)
    judge_acks(runs, wishes, acks, wrong)
    judge_reboots(record, rebooted or {}, wrong)
    return wrong
