"""What a run does with jobs that are simply there: rows R, B6 and T2 of the table, gpusched's words, order and exit codes."""
import json
import re

from harness import note, program, simjob, until, wait_for


def finished(run, no):
    return run.sees(rf"^\[\d\d:\d\d:\d\d\] (job {no} finished .*)$").group(1)


def peak(text):
    return [int(m) for m in re.findall(r"gpu\d+:(\d+) MiB", text)]


def test_R1_a_declaration_that_fits(world):
    world.jobs("[vram=8000] " + simjob(8000, 1.0))
    r = world.finish()
    line = finished(r, 1)
    assert "finished [OK]" in line and "declared 8000 MiB → within ±10%" in line
    assert 7200 <= peak(line)[0] <= 8000
    done = world.events("done")
    assert [d["status"] for d in done] == ["ok"] and done[0]["returncode"] == 0 and 7200 <= done[0]["peak_mib"]["0"] <= 8000
    assert "all 1 jobs done — 1 ok, 0 failed, 0 cancelled, 0 under-declared vram, 0 over-declared vram" in r.out


def test_R2_more_than_declared_is_said_during_and_after(world):
    world.jobs("[vram=8000] " + simjob(12000, 1.5))
    r = world.run()
    r.sees(r"WARN  job 1 EXCEEDS declared VRAM: \d+ MiB observed on gpu 0 vs 8000 MiB declared \(\+50%\) — neighbors may OOM")
    assert "finished" not in r.out
    r.wait()
    assert "declared 8000 MiB → UNDER-DECLARED (+50%); raise it" in finished(r, 1)
    assert "1 under-declared vram" in r.out


def test_R3_less_than_declared(world):
    world.jobs("[vram=12000] " + simjob(4000, 1.0))
    r = world.finish()
    assert "over-declared (-67%); lowering it frees packing headroom" in finished(r, 1)
    assert "EXCEEDS" not in r.out and "1 over-declared vram" in r.out


def test_R4_verbose_says_growth_while_it_happens(world):
    world.jobs("[vram=4G] " + simjob(3000, 1.0, 0.5), "[vram=4G] " + simjob(3001, 1.0, 0.5))
    r = world.finish("-v")
    first = r.out.index(" vram now gpu0:")
    assert first < r.out.rindex("finished [OK]")
    assert re.search(r"job \d vram now gpu0:\d+ MiB \(peak \d+ MiB\)", r.out)


def test_R5_two_that_fit_share_a_card(world):
    # Each goes on only when the other has begun: alone, neither would end.
    world.jobs("[vram=9000] touch $W/a; " + wait_for("b"), "[vram=9000] touch $W/b; " + wait_for("a"))
    r = world.finish()
    assert r.out.count("started on gpu [0]") == 2


def test_a_job_that_ends_at_once_was_started_all_the_same(world):
    """Its start is told with its end: the words and the record are those of any other job, in their order."""
    world.jobs(*(f"[vram=100] true # {i}" for i in range(12)))
    r = world.finish()
    for no in range(1, 13):
        assert r.out.index(f"job {no} started on gpu [0] ") < r.out.index(f"job {no} finished [OK]")
    began = {s["key"]: s for s in world.events("started")}
    order = [(e["key"], e["event"]) for e in world.journal() if isinstance(e, dict) and e.get("event") in ("started", "done")]
    for end in world.events("done"):
        start = began[end["key"]]
        assert start["pgid"] > 1 and start["pid"] == start["pgid"] and start["start_ticks"] > 0 and start["attempt"] == 1
        assert order.index((end["key"], "started")) < order.index((end["key"], "done"))
    assert len(began) == 12


def test_R6_undeclared_jobs_have_the_card_alone(world):
    world.jobs(note("a", "sleep 0.3; echo A >> $W/judge"), note("b", "sleep 0.3; echo B >> $W/judge"))
    r = world.finish()
    assert world.judge() == ["a", "A", "b", "B"]
    assert "undeclared (exclusive idle GPU)) — " in r.out


def test_R7_the_small_one_overtakes(world):
    f = world.foreign({0: 18000})
    world.jobs("[vram=20000] " + note("big"), "[vram=3000] " + note("small", wait_for("go")))
    r = world.run(sim="1x24000M")
    r.sees("job 2 started")
    assert "job 1 started" not in r.out
    (world.dir / "go").touch()
    r.sees("job 2 finished")
    f.end()
    r.wait()
    assert world.judge() == ["small", "big"]


def test_R8_what_can_never_fit_fails_at_once_and_others_go_on(world):
    world.jobs("[vram=30000] " + note("never"), "[vram=2000] " + note("fits"))
    r = world.finish(code=1)
    assert re.search(r"WARN  job 1 INFEASIBLE — declared 30000 MiB \+ 512 MiB margin exceeds total capacity of 1 required "
                     r"GPU\(s\); marking failed: echo never", r.out)
    assert world.judge() == ["fits"]
    assert sorted(d["status"] for d in world.events("done")) == ["infeasible", "ok"]
    assert "  failed: job 1 (infeasible, exit 1) — echo never" in r.out


def test_R8_more_cards_than_there_are(world):
    world.jobs("[vram=1G gpus=3] " + note("never"))
    r = world.finish(sim="2", code=1)
    assert "INFEASIBLE — needs 3 GPUs but only 2 are usable; marking failed:" in r.out


def test_R9_two_cards(world):
    world.jobs("[vram=10000 gpus=2] " + simjob(10000, 1.0))
    r = world.finish(sim="2")
    assert "job 1 started on gpu [0,1] (1/1 dispatched, declared 10000 MiB/gpu) — gpustow simjob" in r.out
    assert len(peak(finished(r, 1))) == 2 and all(9000 <= p <= 10000 for p in peak(finished(r, 1)))
    assert (world.logs / "job001_gpu0-1.log").exists()


def test_R10_exit_code_of_a_failed_job(world):
    world.jobs("[vram=1G] exit 3", "[vram=1G] exit 1", "[vram=1G] kill -9 $$")
    r = world.finish(code=3)
    assert "job 1 finished [EXIT 3]" in r.out and "job 3 finished [EXIT -9]" in r.out
    assert "all 3 jobs done — 0 ok, 3 failed, 0 cancelled" in r.out
    assert "  failed: job 1 (failed, exit 3) — exit 3" in r.out and "  failed: job 3 (failed, exit -9)" in r.out


def test_R10_only_signals_give_1(world):
    world.jobs("[vram=1G] kill -9 $$")
    world.finish(code=1)


def test_R11_a_job_that_holds_nothing_was_not_sampled(world):
    world.jobs("[vram=4000] sleep 0.3")
    r = world.finish()
    assert re.search(r"finished \[OK\] in \ds — peak vram n/a", r.out)
    assert world.events("done")[0]["peak_mib"] == {}


def test_R12_memory_is_told_apart(world):
    world.jobs("[vram=9000] " + simjob(9000, 1.2), "[vram=3000] " + simjob(3000, 1.2))
    r = world.finish()
    assert 8100 <= peak(finished(r, 1))[0] <= 9000 and 2700 <= peak(finished(r, 2))[0] <= 3000


def test_B6_two_own_jobs_run_together(world):
    world.jobs("[vram=6000] " + simjob(5800, 1.2), "[vram=6000] " + simjob(5801, 1.2))
    r = world.finish(sim="1x24000M")
    assert r.out.index("job 2 started") < r.out.index("finished")
    assert all(5700 <= peak(finished(r, n))[0] <= 5900 for n in (1, 2))


def test_T2_utilisation(world):
    world.jobs("[vram=4G] " + simjob(4000, 0.8))
    r = world.finish()
    # A look before the job had begun to hold something may count in.
    said = int(re.search(r"\| avg gpu util (\d+)%", finished(r, 1)).group(1))
    assert 0 < said <= 90 and round(world.events("done")[0]["avg_util"]) in (said - 1, said, said + 1)


def test_header_and_order_of_the_words(world):
    world.jobs("# a comment", "", "[vram=8G] true", "[vram=8G cancel] echo never")
    r = world.finish(poll="0.5", sim="2")
    text = [line[11:] for line in r.lines()]
    assert text[0] == "2 jobs queued [live queue (file re-read each tick)] (poll every 0.5s; status board: gpusched_logs/status.txt)"
    assert "discovered GPUs: [0, 1]" in text
    # Lines with `cancel` are numbered first.
    assert "job 1 cancelled before start: echo never" in text
    assert any(t.startswith("job 2 started on gpu [0]") and t.endswith("declared 8192 MiB/gpu) — true") for t in text)
    assert text[-1] == "all 2 jobs done — 1 ok, 0 failed, 1 cancelled, 0 under-declared vram, 0 over-declared vram"
    assert all(re.match(r"\[\d\d:\d\d:\d\d\] ", line) for line in r.lines())
    assert r.err == ""


def test_what_a_job_gets(world):
    world.jobs("[vram=1G gpus=2 name=look] env; echo cwd=$PWD; echo in=$(wc -c); echo out; echo err >&2; ulimit -c; umask")
    world.finish(sim="3", env={"CUDA_VISIBLE_DEVICES": "7", "MINE": "é"}, stdin=None)
    log = world.log_of(1, "0-1")
    env = dict(line.split("=", 1) for line in log.splitlines() if "=" in line)
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1" and env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert env["MINE"] == "é" and env["cwd"] == str(world.dir)
    assert env["GPUSTOW_JOB_ID"] == env["NVIDB_JOB_ID"] == "1" and env["GPUSTOW_JOB_NAME"] == "look"
    assert env["GPUSTOW_JOB_GPUS"] == "0,1" and env["GPUSTOW_JOB_VRAM_MIB"] == "1024"
    assert env["GPUSTOW_JOB_LOG"] == str(world.logs / "job001_gpu0-1.log")
    assert "out\nerr\n" in log


def test_W30_attempts_share_the_file_of_an_earlier_attempt_but_not_the_rest(world):
    world.jobs("[vram=1G] echo one; exit 4")
    world.finish(code=4)
    world.finish("--retry-failed", code=4)
    assert world.log_of(1) == "one\none\n"
    assert (world.logs / "journal.jsonl").stat().st_mode & 0o77 == 0


def test_each_run_gives_its_own_environment_and_directory(world):
    """The agent outlives the run that started it; its environment is nobody's."""
    world.jobs("[vram=1G] echo $MINE in $PWD >> $W/judge")
    world.finish(env={"MINE": "one"})
    (world.dir / "sub").mkdir()
    agents = world.agents()
    world.finish("--log-dir", world.dir / "sub" / "logs", env={"MINE": "two"}, cwd=world.dir / "sub")
    assert world.judge() == [f"one in {world.dir}", f"two in {world.dir}/sub"]
    assert agents and world.agents() == agents


def test_the_agent_leaves_when_nobody_needs_it(world):
    world.env["GPUSTOW_AGENT_IDLE"] = "1"
    world.jobs("[vram=1G] " + note("a"))
    world.finish()
    until(lambda: not world.processes())
    world.jobs("[vram=1G] " + note("b"))
    world.finish()
    assert world.judge() == ["a", "b"]


def test_gpusched_by_name(world):
    assert world.ask("--version", name="gpusched").out.startswith("gpusched ")
    world.jobs("[vram=1G] " + note("a"))
    # Options behind the file, --opt=value, unambiguous prefixes.
    r = world.spawn(program("gpusched"), world.file, "--si", "2", "--pol=0.1", "--gpus", "1, 1")
    r.wait()
    assert "job 1 started on gpu [1]" in r.out and world.judge() == ["a"]
    assert world.board().startswith("gpusched status @ ")
    assert world.ask("--sim", "1", "--nonsense", world.file, name="gpusched", code=2).err.startswith("usage: gpusched")


def test_exclusive_and_max_jobs(world):
    line = "[vram=1G] " + note("s", "sleep 0.3; echo e >> $W/judge")
    world.jobs(line, line, line)
    world.finish("--exclusive")
    assert world.judge() == ["s", "e"] * 3
    world.jobs(*[line + f" # {i}" for i in range(3)])
    world.finish("--max-jobs", "1", sim="4")
    assert world.judge() == ["s", "e"] * 6


def test_W21_cpu_jobs_need_no_card(world):
    world.foreign({0: 24000})
    world.jobs("[gpus=0] echo cards=$CUDA_VISIBLE_DEVICES; " + note("cpu"))
    r = world.finish()
    assert world.judge() == ["cpu"] and "cards=\n" in world.log_of(1, "cpu")
    assert "job 1 started on cpu (1/1 dispatched, no GPU)" in r.out


def test_after_name_and_gpu(world):
    world.jobs("[vram=1G after=prep gpu=1] " + note("train"), "[gpus=0 name=prep] " + note("prep"),
               "[vram=1G after=prep] " + note("third"))
    r = world.finish(sim="2")
    assert world.judge()[:1] == ["prep"] and sorted(world.judge()) == ["prep", "third", "train"]
    assert "job 1 started on gpu [1]" in r.out


def test_after_a_failure_the_rest_is_not_run_and_named(world):
    world.jobs("[gpus=0 name=prep] exit 5", "[vram=1G after=prep] " + note("never"))
    r = world.finish(code=5)
    assert world.judge() == []
    assert "  not run: job 2 (waits for job 1, which ended badly (failed)) — echo never" in r.out


def test_W27_json_of_a_whole_run(world):
    world.jobs("[vram=1G] true", "[vram=1G] exit 2")
    r = world.finish("--json", code=2)
    document = json.loads(r.out)
    # A job's 2 can't be taken for a usage error here (W27).
    assert document["counts"]["failed"] == 1 and document["counts"]["ok"] == 1
    assert {(j["job"], j["status"], j["returncode"]) for j in document["jobs"]} == {(1, "ok", 0), (2, "failed", 2)}
    assert "job 2 finished [EXIT 2]" in r.err


def test_watch_waits_for_lines(world):
    world.jobs("[vram=1G] " + note("a"))
    r = world.run("--watch")
    r.sees("queue drained — watching jobs file for new lines")
    world.append("[vram=1G] " + note("b") + "\n")
    r.sees("job 2 finished")
    r.sees("queue drained", count=2)
    r.kill(2).wait(130)
    assert world.judge() == ["a", "b"]


def test_many_short_jobs_all_run_once(world):
    world.jobs(*[f"[vram=1G] echo {i} >> $W/judge" for i in range(60)])
    r = world.finish(sim="4")
    assert sorted(map(int, world.judge())) == list(range(60))
    assert "all 60 jobs done — 60 ok" in r.out
    assert len(world.events("done")) == 60


def test_watching_an_empty_file_looks_at_the_gpus_first(world):
    world.write("")
    r = world.run("--watch")
    r.sees("queue drained")
    said = [line.split("] ", 1)[1] for line in r.lines()]
    assert [s.split(":")[0][:13] for s in said[1:]] == ["discovered GP", "queue drained"]
    r.kill()
    r.wait(143)


def test_a_gpu_that_the_machine_does_not_have_is_infeasible(world):
    world.jobs("[vram=1G gpu=7] echo never", "[vram=1G gpu=7,0] " + note("a"))
    r = world.run()
    r.wait(1)
    assert "job 1 INFEASIBLE — no card of the list gpu=7 is in this machine" in r.out and world.judge() == ["a"]
