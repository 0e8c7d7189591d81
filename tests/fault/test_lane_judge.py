"""The judge of lanes itself: each thing that may go wrong is seen in a record, a file and words that say so."""
import copy

import pytest

from lane_judge import Acks, LaneWish, complaints
from queue_judge import Record
from test_queue_judge import QUEUE, attempt, job

LANES = {"n1:0": 1, "n1:0,1": 2}


def line(place, word, name, number, clock, code=0, n=1):
    return (place, word, name, f"{QUEUE}/{number}.{n}", str(code), str(clock))


def world():
    """n1:0 has a, b, c one after the other, and d that was moved; n1:0,1 two at a time; x of the pool on n2 needs a."""
    jobs = [job(i, name) for i, name in enumerate("abcdpqx", 1)]
    found = {"check": ["ok"], "queue": QUEUE, "jobs": jobs, "attempts": [attempt(j["id"]) for j in jobs] + [attempt(2, 2)], "events": []}
    rows = [line("n1", "start", "a", 1, 10), line("n1", "start", "p", 5, 10.1), line("n1", "start", "q", 6, 10.2),
            line("n1", "end", "a", 1, 10.5), line("n1", "start", "d", 4, 10.6), line("n1", "end", "p", 5, 10.7),
            line("n1", "end", "d", 4, 10.8), line("n1", "start", "b", 2, 10.9), line("n1", "end", "b", 2, 11, 7),
            line("n1", "start", "c", 3, 11.1), line("n1", "end", "c", 3, 11.5), line("n1", "start", "b", 2, 11.6, n=2),
            line("n1", "end", "b", 2, 11.7, 7, n=2), line("n1", "end", "q", 6, 12),
            line("n2", "start", "x", 7, 10.5), line("n2", "end", "x", 7, 11)]
    wishes = {name: LaneWish("n1:0") for name in "abcd"} | {name: LaneWish("n1:0,1") for name in "pq"}
    wishes["x"] = LaneWish(None, ["a"])
    wishes["d"].is_moved = True
    for wish in wishes.values():
        wish.accepted_at = 5
    acks = Acks()
    acks.paused.append(("n1:0", 11.2, 11.55, set()))
    acks.placed.append((7, "n2", 9, 20))
    return found, rows, wishes, acks


def judged(found, rows, wishes, acks, **more):
    return complaints(Record(found), rows, wishes, LANES, acks, **more)


def test_what_is_well_has_no_complaint():
    assert judged(*world()) == []


def move(rows, name, n, before):
    """The job's two lines stand before those of another."""
    mine = [r for r in rows if r[2] == name and r[3].endswith(f".{n}")]
    for row in mine:
        rows.remove(row)
    at = next(i for i, r in enumerate(rows) if r[2] == before)
    rows[at:at] = mine


def spoil_order(found, rows, wishes, acks):
    move(rows, "c", 1, "b")


def spoil_retry_before_those_that_stood_there(found, rows, wishes, acks):
    move(rows, "b", 2, "c")


def spoil_two_at_a_time(found, rows, wishes, acks):
    rows[2:2] = [line("n1", "start", "b", 2, 10.2)]
    rows.remove(line("n1", "start", "b", 2, 10.9))


def spoil_moved_one_beside_another(found, rows, wishes, acks):
    rows.remove(line("n1", "start", "d", 4, 10.6))
    rows[1:1] = [line("n1", "start", "d", 4, 10)]


def spoil_three_at_a_time(found, rows, wishes, acks):
    found["jobs"].append(job(8, "r"))
    wishes["r"] = LaneWish("n1:0,1")
    rows[3:3] = [line("n1", "start", "r", 8, 10.3)]


def third_of_two(found, rows, wishes):
    """r stands behind p and q, and goes on when p has ended."""
    found["jobs"].append(job(8, "r"))
    wishes["r"] = LaneWish("n1:0,1")
    at = rows.index(line("n1", "end", "p", 5, 10.7))
    rows[at + 1:at + 1] = [line("n1", "start", "r", 8, 10.75), line("n1", "end", "r", 8, 10.78)]


def spoil_passed_in_a_lane_of_two(found, rows, wishes, acks):
    """q's turn was before r's."""
    third_of_two(found, rows, wishes)
    rows.remove(line("n1", "start", "q", 6, 10.2))
    rows[2:2] = [line("n1", "start", "r", 8, 10.2)]
    rows.remove(line("n1", "start", "r", 8, 10.75))
    rows[-3:-3] = [line("n1", "start", "q", 6, 11.9)]


def spoil_need_on_its_node(found, rows, wishes, acks):
    wishes["d"].needs = ("p",)


def spoil_need_on_another_node(found, rows, wishes, acks):
    rows[-2] = line("n2", "start", "x", 7, 10.4)


def spoil_need_that_failed(found, rows, wishes, acks):
    rows[3] = line("n1", "end", "a", 1, 10.5, 1)


def spoil_cancelled(found, rows, wishes, acks):
    acks.cancelled[3] = 11.05


def spoil_cancelled_before_it_is_tried_again(found, rows, wishes, acks):
    acks.cancelled[2] = 11.3


def spoil_paused(found, rows, wishes, acks):
    acks.paused[0] = ("n1:0", 11.05, 11.55, set())


def spoil_moved_to_another_node(found, rows, wishes, acks):
    acks.placed[0] = (7, "n1", 9, 20)


def spoil_rebooted(found, rows, wishes, acks):
    found["attempts"][3]["cause"] = "node-rebooted"


def spoil_rebooted_and_not_noticed(found, rows, wishes, acks):
    found["attempts"][3]["cause"] = "vanished"
    return {"rebooted": {f"{QUEUE}/4.1": True}}


SPOILED = [value for name, value in sorted(globals().items()) if name.startswith("spoil_")]


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__[6:])
def test_what_is_wrong_is_seen(spoil):
    args = copy.deepcopy(world())
    more = spoil(*args) or {}
    assert len(judged(*args, **more)) >= 1


@pytest.mark.parametrize("late", ["p", "q"])
def test_in_a_lane_of_two_lines_may_come_late(late):
    """Whoever has its claim may be slow: then the other place goes on alone."""
    found, rows, wishes, acks = copy.deepcopy(world())
    third_of_two(found, rows, wishes)
    assert judged(found, rows, wishes, acks) == []
    start = next(r for r in rows if r[1:3] == ("start", late))
    rows.remove(start)
    at = next(i for i, r in enumerate(rows) if r[1:3] == (("start", "q") if late == "p" else ("end", "r")))
    rows[at + 1:at + 1] = [start]
    assert judged(found, rows, wishes, acks) == []


@pytest.mark.parametrize("excuse", ["claimed", "released", "assigned", "orphaned", "rebooted"])
def test_what_only_looks_wrong_is_let_go(excuse):
    found, rows, wishes, acks = copy.deepcopy(world())
    more = {}
    if excuse == "claimed":
        acks.paused[0] = ("n1:0", 11.05, 11.55, {f"{QUEUE}/3.1"})
    elif excuse == "released":
        spoil_need_that_failed(found, rows, wishes, acks)
        wishes["x"].is_released = True
    elif excuse == "assigned":
        spoil_order(found, rows, wishes, acks)
        wishes["c"].is_moved = wishes["c"].is_assigned = True
        acks.paused.clear()
    elif excuse == "orphaned":
        rows.remove(line("n1", "end", "a", 1, 10.5))
        rows[5:5] = [line("n1", "end", "a", 1, 10.7)]
        wishes["x"].is_released = True
        more["orphaned"] = {f"{QUEUE}/1.1"}
    else:
        spoil_rebooted(found, rows, wishes, acks)
        more["rebooted"] = {f"{QUEUE}/4.1": True}
    assert judged(found, rows, wishes, acks, **more) == []
