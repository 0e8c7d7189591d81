"""The judge of the queue itself: each thing that may go wrong is seen in a record and a file that say so."""
import copy

import pytest

from queue_judge import Record, Wish, complaints

QUEUE = "ab" * 16


def attempt(job, number=1, **more):
    return {"job": job, "attempt": number, "is_settled": 1, "started_ms": 1000, "exit_code": 0, "cause": None, "error": None,
            "elapsed_ms": 100, "wants_reap": 0, **more}


def job(number, name, **more):
    return {"id": number, "state": "completed", "command": f"sh /home/job.sh {name} 0 0.1 0", "cancel_ms": None, "is_bound": 0,
            "held_reason": None, "attempt": 1, "last_error": None, **more}


def world():
    found = {"check": ["ok"], "queue": QUEUE, "jobs": [job(1, "a"), job(2, "b")], "attempts": [attempt(1), attempt(2)],
             "events": [{"job": j, "kind": kind} for j in (1, 2) for kind in ("job_started", "job_finished")]}
    rows = [("here", word, name, f"{QUEUE}/{n}.1", "0") for n, name in ((1, "a"), (2, "b")) for word in ("start", "end")]
    return found, rows, {name: Wish(name, is_accepted=True) for name in "ab"}


def test_what_is_well_has_no_complaint():
    found, rows, wishes = world()
    assert complaints(Record(found), rows, wishes) == []


def spoil_twice(found, rows, wishes):
    rows.append(("there", *rows[0][1:]))


def spoil_unknown(found, rows, wishes):
    rows.append(("there", "start", "a", f"{QUEUE}/1.2", "7"))


def spoil_lost(found, rows, wishes):
    wishes["c"] = Wish("c", is_accepted=True)


def spoil_never_ran(found, rows, wishes):
    del rows[0:2]


def spoil_code(found, rows, wishes):
    found["attempts"][0]["exit_code"] = 1


def spoil_end_forgotten(found, rows, wishes):
    found["attempts"][0].update(exit_code=None, cause="vanished")


def spoil_unsettled(found, rows, wishes):
    found["jobs"][1]["state"] = "running"
    found["attempts"][1]["is_settled"] = 0


def spoil_two_jobs(found, rows, wishes):
    found["jobs"][1]["command"] = found["jobs"][0]["command"]


def spoil_database(found, rows, wishes):
    found["check"] = ["row 1 missing from index"]


def spoil_two_ends_told(found, rows, wishes):
    found["events"].append({"job": 1, "kind": "job_finished"})


def spoil_hour(found, rows, wishes):
    found["attempts"][0]["elapsed_ms"] = 3600000


@pytest.mark.parametrize("spoil", [value for name, value in sorted(globals().items()) if name.startswith("spoil_")],
                         ids=lambda f: f.__name__[6:])
def test_what_is_wrong_is_seen(spoil):
    found, rows, wishes = copy.deepcopy(world())
    spoil(found, rows, wishes)
    assert complaints(Record(found), rows, wishes)
