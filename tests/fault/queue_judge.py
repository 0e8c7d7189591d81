"""
The judge of the queue: holds the record (the database, read by SQLite alone) against what the jobs wrote themselves, one
"start NAME MARK PID CLOCK" and one "end NAME MARK CODE CLOCK" each, into a file that gpustow never touches.
"""
import json
import re
import sqlite3
import sys
from collections import Counter, defaultdict

TERMINAL = {"completed", "failed", "cancelled", "timeout", "lost"}
KILLED = (137, 143, -9)
LONG_MS = 10 * 60 * 1000  # no job of the suite runs so long, whatever the wall clock did
ENDS = ("job_finished", "job_lost", "job_cancelled", "job_timeout")
NAME = re.compile(r"job\.sh (\S+) (\S+) (\S+) (\d+)")


class Wish:
    """What was submitted: a name of its own, how it'll exit, how often it may be tried again."""

    def __init__(self, name, code=0, retries=0, is_accepted=None, is_limited=False):
        self.name, self.code, self.retries, self.is_limited = name, code, retries, is_limited
        self.is_accepted = is_accepted  # True: gpustow said so; False: it didn't get that far


def read(path):
    """All of a database at one moment, as JSON can say it. A path below /proc/PID/root won't do: SQLite resolves it."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)
    db.row_factory = sqlite3.Row
    try:
        db.execute("BEGIN")
        found = {table: [dict(row) for row in db.execute(f"SELECT * FROM {table}")] for table in ("jobs", "attempts", "events")}
        found["queue"] = db.execute("SELECT value FROM meta WHERE key = 'queue'").fetchone()[0]
        found["check"] = [row[0] for row in db.execute("PRAGMA integrity_check")]
        return found
    finally:
        db.close()


class Record:
    """What `read` found."""

    def __init__(self, found):
        self.check, self.queue, self.events = found["check"], found["queue"], found["events"]
        self.jobs = {row["id"]: row for row in found["jobs"]}
        self.attempts = {(row["job"], row["attempt"]): row for row in found["attempts"]}

    def mark(self, key):
        return f"{self.queue}/{key[0]}.{key[1]}"

    def is_quiet(self):
        """Nothing waits, runs, or is to be reaped; held jobs wait for a person."""
        return all(job["state"] in TERMINAL or (job["held_reason"] and not job["is_bound"]) for job in self.jobs.values()) and \
            not any(a["wants_reap"] for a in self.attempts.values())

    def unquiet(self):
        return [{k: job[k] for k in ("id", "state", "is_bound", "attempt", "last_error", "held_reason", "cancel_ms")}
                for job in self.jobs.values() if job["state"] not in TERMINAL][:20]


def starts_and_ends(rows, record, others, wrong):
    starts, ends = defaultdict(list), {}
    for place, word, name, mark, number, *_ in rows:
        if mark.split("/")[0] not in (record.queue, *others):
            wrong.append(f"{mark} is of no queue that's known here")
        if word == "start":
            starts[mark].append(place)
        elif mark in ends:
            wrong.append(f"{mark} ended twice")
        else:
            ends[mark] = int(number)
    for mark, places in starts.items():
        if len(places) > 1:
            wrong.append(f"{mark} started {len(places)} times, on {places}")
    return starts, ends


def judge_attempt(record, key, a, starts, ends, struck, wrong):
    """struck: marks of attempts whose shim or job was killed, or which a machine's end took along."""
    mark, job = record.mark(key), record.jobs.get(key[0])
    says, is_struck = f"{mark} ({a['cause']}, exit code {a['exit_code']}, {a['error']})", mark in struck
    was_stopped = bool(job and job["cancel_ms"]) or a["cause"] in ("cancelled", "timeout", "node-lost")
    if not a["is_settled"]:
        wrong.append(f"{mark} isn't settled though nothing is left of it")
    if mark in starts and not a["started_ms"]:
        wrong.append(f"{says} started and the record doesn't say so")
    if a["started_ms"] and mark not in starts and not is_struck and not was_stopped:
        wrong.append(f"{says} counts as started and its job never ran")
    if mark in ends:
        if a["exit_code"] is None and not is_struck:
            wrong.append(f"{says} came to its end with {ends[mark]}, its shim lived, and the record has no exit code")
        elif a["exit_code"] is not None and a["exit_code"] != ends[mark] and not (
                (is_struck or was_stopped) and a["exit_code"] in KILLED):
            wrong.append(f"{says} ended with {ends[mark]}")
    elif a["exit_code"] is not None and not is_struck and not was_stopped:
        wrong.append(f"{says} has an exit code and never came to its end")
    if a["cause"] in ("vanished", "launch-failed") and not is_struck:
        wrong.append(f"{says} though nobody struck it")
    if a["elapsed_ms"] is not None and a["elapsed_ms"] > LONG_MS:
        wrong.append(f"{says} took {a['elapsed_ms']} ms")


def judge_job(record, job, tries, wish, wrong):
    says = f"job {job['id']} ({wish.name}): {job['state']}"
    if job["state"] not in TERMINAL:
        wrong.append(f"{says}, not at its end")
        return
    if len(tries) > 1 + wish.retries:
        wrong.append(f"{says} after {len(tries)} attempts")
    last = tries[-1] if tries else None
    if not last:
        if job["state"] != "cancelled":
            wrong.append(f"{says} without an attempt")
    elif job["state"] == "completed" and (last["exit_code"] != 0 or wish.code):
        wrong.append(f"{says} with exit code {last['exit_code']}, it should be {wish.code}")
    elif job["state"] == "cancelled" and not job["cancel_ms"]:
        wrong.append(f"{says} and nobody wanted that")
    elif job["state"] == "failed" and last["exit_code"] == 0:
        wrong.append(f"{says} with exit code 0")
    elif job["state"] == "timeout" and not wish.is_limited:
        wrong.append(f"{says} without a limit")
    # (job_failed is a refused launch.)
    finished = [e for e in record.events if e["job"] == job["id"] and e["kind"] in ENDS]
    if len(finished) != 1:
        wrong.append(f"{says}: events {[e['kind'] for e in finished]}")


def complaints(record, rows, wishes, struck=(), others=()):
    """
    What's wrong. rows: (place, "start"|"end", name, mark, pid or code) of all places. wishes: by name. struck: see above.
    others: uuids of other queues whose jobs write to the same file.
    """
    wrong = [] if record.check == ["ok"] else [f"the database: {record.check[:3]}"]
    starts, ends = starts_and_ends(rows, record, others, wrong)
    known = {record.mark(key) for key in record.attempts}
    for mark in starts:
        if mark not in known and mark.split("/")[0] == record.queue:
            wrong.append(f"{mark} started and isn't in the record")
    for key, a in record.attempts.items():
        judge_attempt(record, key, a, starts, ends, struck, wrong)
    begun = Counter((e["job"]) for e in record.events if e["kind"] == "job_started")
    names = Counter()
    for job in record.jobs.values():
        name = NAME.search(job["command"]).group(1)
        names[name] += 1
        tries = [a for key, a in sorted(record.attempts.items()) if key[0] == job["id"]]
        if begun[job["id"]] != sum(bool(a["started_ms"]) for a in tries):
            wrong.append(f"job {job['id']}: {begun[job['id']]} events of a start, attempts {[a['started_ms'] for a in tries]}")
        judge_job(record, job, tries, wishes[name], wrong)
    for name, wish in wishes.items():
        if names[name] > 1:
            wrong.append(f"{name} was submitted once and is {names[name]} jobs")
        if wish.is_accepted and not names[name]:
            wrong.append(f"{name} was accepted and isn't in the record")
    return wrong


if __name__ == "__main__":
    print(json.dumps(read(sys.argv[1])))
