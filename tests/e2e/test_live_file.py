"""The jobs file while it runs: rows L, X7 to X9 (W8, W9), W24, B4 and B5."""
from harness import note, simjob, until, wait_for


def cards_used(world):
    """What the scheduler of this world believes card 0 to hold; None before it knows."""
    cards = world.ask_json("run", "status", "--json")["cards"]
    return cards[0]["used_mib"] if cards else None


def test_L1_an_appended_line_is_taken_up(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    r = world.run()
    r.sees("job 1 started")
    world.append("[vram=1G] " + note("b", "touch $W/go") + "\n")
    r.wait()
    assert world.judge() == ["a", "b"] and "all 2 jobs done — 2 ok" in r.out


def test_L1_a_change_wakes_it_at_once(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")))
    # A poll this long would never come within the deadline.
    r = world.run(poll="600")
    r.sees("job 1 started")
    # The board's last writing; nothing else wakes it then.
    until(lambda: "▶ job 1" in world.board())
    world.append("[vram=1G] " + note("b", "touch $W/go") + "\n")
    r.wait()
    assert world.judge() == ["a", "b"]


def test_L2_a_deleted_pending_line_is_not_run(world):
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=14G] " + note("b"))
    r = world.run(sim="1x24000M")
    r.sees("job 1 started")
    until(lambda: any(e["no"] == 2 for e in world.events("seen")))
    world.jobs("[vram=14G] " + note("a", wait_for("go")))
    until(lambda: world.ask_json("run", "status", "--json")["counts"]["lines"] == 1)
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a"] and "all 1 jobs done" in r.out


def test_L3_the_order_in_the_file_is_the_priority(world):
    f = world.foreign({0: 23000})
    a, b = "[vram=14G] " + note("a"), "[vram=14G] " + note("b")
    world.jobs(a, b)
    r = world.run(sim="1x24000M")
    until(lambda: len(world.events("seen")) == 2)
    world.jobs(b, a)
    until(lambda: [j["job"] for j in world.ask_json("run", "status", "--json")["jobs"]] == [2, 1])
    f.end()
    r.wait()
    assert world.judge() == ["b", "a"]


def test_L4_W24_a_broken_edit_changes_nothing(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")), "[vram=24000] echo waits")
    r = world.run()
    r.sees("job 1 started")
    world.jobs("[vram=] echo x", "[gpus=many] echo y", "[vram=1G cancel] " + note("a", wait_for("go")))
    line = r.sees(r"WARN  jobs file unreadable, keeping previous queue: (.*)").group(1)
    # All of its errors are listed (W24), and the good edit beside them waits.
    assert "jobs file line 1: cannot parse vram value '' (use MiB or a G/GiB suffix)" in line
    assert "jobs file line 2: gpus must be an integer, got 'many'" in line
    world.jobs("[vram=1G] " + note("b"))
    until(lambda: world.judge() == ["a", "b"])
    (world.dir / "go").touch()
    r.sees(r"job 1 finished \[OK\]")
    r.wait()
    assert world.judge() == ["a", "b"]


def test_L4_a_missing_file_keeps_the_queue(world):
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=14G] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    world.file.rename(world.dir / "away")
    r.sees("WARN  jobs file unreadable, keeping previous queue: cannot read jobs file")
    (world.dir / "go").touch()
    r.sees("job 2 finished")
    r.wait()
    assert world.judge() == ["a", "b"] and r.out.count("jobs file unreadable") == 1


def test_L5_the_board_and_the_file_left_as_it_was(world):
    content = "\ufeff# hello\r\n[vram=1G]   true \r\n"
    world.write(content)
    world.finish()
    assert "✓ job 1   ok (exit 0, peak 0 MiB) — true" in world.board() or "✓ job 1   unattributed (exit 0, peak 0 MiB) — true" in world.board()
    assert world.file.read_bytes() == content.encode()


def test_L6_attributes_of_a_pending_line_apply_at_once(world):
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=14G] " + note("b", "touch $W/go"))
    r = world.run()
    r.sees("job 1 started")
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=1G] " + note("b", "touch $W/go"))
    r.wait()
    assert world.judge() == ["a", "b"]


def test_L7_the_line_of_a_running_job_may_go(world):
    world.jobs("[vram=1G] " + note("a", wait_for("go")), "[vram=24000] echo keeps the run up")
    r = world.run()
    r.sees("job 1 started")
    world.jobs("[vram=2G] " + note("other", wait_for("go")))
    r.sees("job 2 started|job 3 started")
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a", "other"] and "all 2 jobs done — 2 ok" in r.out


def test_B4_the_dip_of_a_stranger_is_no_room(world):
    f = world.foreign({0: 12000})
    world.jobs("[vram=13000] " + note("a"))
    r = world.run(sim="1x24000M")
    until(lambda: cards_used(world) == 12000)
    f.set({0: 1000})
    until(lambda: cards_used(world) == 1000)
    # The turn after that sample has decided by the time of the second answer.
    assert cards_used(world) == 1000
    assert "started" not in r.out and "needs" in world.ask("run", "why", "1").out
    f.end()
    r.wait()
    assert world.judge() == ["a"]


def test_B5_nor_for_an_undeclared_job(world):
    f = world.foreign({0: 5000})
    world.jobs(note("a"))
    r = world.run(sim="1x24000M")
    until(lambda: cards_used(world) == 5000)
    f.set({0: 150})
    until(lambda: cards_used(world) == 150)
    assert cards_used(world) == 150 and "started" not in r.out
    f.end()
    r.wait()
    assert world.judge() == ["a"]


def test_X7_W8_a_file_truncated_in_place_is_not_believed_at_once(world):
    """An editor that truncates and writes; W8."""
    f = world.foreign({0: 24000})
    lines = "[vram=1G] " + note("a") + "\n[vram=1G] " + note("b") + "\n"
    world.write(lines)
    # Longer than it's empty: that's believed after a poll.
    r = world.run(poll="20")
    until(lambda: len(world.events("seen")) == 2)
    with open(world.file, "r+") as file:
        file.truncate(0)
        until(lambda: world.ask_json("run", "status", "--json")["counts"]["lines"] == 2)
        file.write(lines)
    f.end()
    r.wait()
    assert sorted(world.judge()) == ["a", "b"]


def test_X7_an_emptied_file_is_believed_after_a_poll(world):
    world.foreign({0: 24000})
    world.jobs("[vram=1G] " + note("a"))
    r = world.run()
    until(lambda: len(world.events("seen")) == 1)
    world.file.write_text("")
    r.wait()
    assert world.judge() == []


def test_X8_W8_half_a_line_is_not_run(world):
    """W8."""
    world.jobs("[vram=1G] " + wait_for("go"))
    # Longer than all of this takes: half a line is believed after a poll.
    r = world.run(poll="30")
    r.sees("job 1 started")
    world.append("[vram=1G] " + note("whole") + "\n[vram=1G] echo --lr 1")
    r.sees("job 2 finished")
    assert len(world.events("seen")) == 2
    world.append("e-4 >> $W/judge\n")
    r.sees("job 3 finished")
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["whole", "--lr 1e-4"]


def test_X8_a_last_line_without_newline_is_run_once_it_holds_still(world):
    world.jobs("[vram=1G] " + wait_for("go"))
    r = world.run()
    r.sees("job 1 started")
    world.append("[vram=1G] " + note("open", "touch $W/go"))
    r.wait()
    assert world.judge() == ["open"]


def test_X8_at_start_a_last_line_without_newline_is_believed(world):
    world.write("[vram=1G] " + note("a"))
    world.finish()
    assert world.judge() == ["a"]


def test_X9_W9_removing_a_duplicate_is_warned_of(world):
    """W9: the key is the contract; who deletes the first of two equal lines is told what that means."""
    line = "[vram=14G] " + note("x", wait_for("go"))
    world.jobs(line, line)
    r = world.run()
    r.sees("job 1 started")
    world.jobs(line)
    r.sees("WARN  1 duplicate line is gone from the file")
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["x"]


def test_cancel_word_on_a_line_and_gone_again(world):
    world.jobs("[vram=1G] " + note("a", "sleep 60"), "[vram=1G] " + note("b", wait_for("go")))
    r = world.run()
    r.sees("job 2 started")
    # Started isn't yet at its first word.
    until(lambda: "a" in world.judge())
    world.jobs("[vram=1G cancel] " + note("a", "sleep 60"), "[vram=1G] " + note("b", wait_for("go")))
    r.sees(r"job 1 finished \[CANCELLED\]")
    world.jobs("[vram=1G] " + note("a", "sleep 60"), "[vram=1G] " + note("b", wait_for("go")))
    until(lambda: world.ask_json("run", "status", "--json")["counts"]["lines"] == 2)
    (world.dir / "go").touch()
    r.wait()
    assert sorted(world.judge()) == ["a", "b"]


def test_a_thousand_lines_appended(world):
    world.jobs("[vram=1G] " + simjob(100, 0.1))
    r = world.run("--max-jobs", "4", sim="4")
    world.append("".join(f"[gpus=0] : {i}\n" for i in range(150)))
    r.wait()
    assert "all 151 jobs done — 151 ok" in r.out
