"""What bad input gets: one clear sentence and exit 2 at start, a warning and the last good list in a running queue (rows P, X5,
X22; W2). Nothing that runs is abandoned by any of it."""
import os
import signal
import subprocess

import pytest

from harness import PYTHON, note, program, until, wait_for


def refused(world, *args, code=2, **more):
    """The one line on stderr of a run that didn't begin."""
    r = world.finish(*args, code=code, **more)
    assert r.out == "" and not world.logs.exists()
    return r.err


@pytest.mark.parametrize("content, line, words", [
    (b"true\necho \xff\xfe\n", 2, "not valid UTF-8|isn't UTF-8|not UTF-8"),
    (b"true\n\necho a\0b\n", 3, "NUL"),
    (b"true\n[vram=8G\n", 2, "unterminated '[...]' attribute block"),
    (b"[vram=8G]\n", 1, "attribute block present but command is empty"),
    (b"[vram=8G, gpus=2] x\n", 1, "cannot parse vram value '8G,' (use MiB or a G/GiB suffix)"),
    (b"[vram=8 G] x\n", 1, "malformed attribute 'G' (expected key=value, or bare 'cancel')"),
    (b"[vram=0] x\n", 1, "vram must be positive, got '0'"),
    (b"[timeout=soon] x\n", 1, "cannot parse duration 'soon' (use s/m/h/d)"),
    (b"[timeout=0] x\n", 1, "timeout must be positive, got '0'"),
    (b"[retries=x] x\n", 1, "retries must be an integer, got 'x'"),
    (b"[retries=-1] x\n", 1, "retries must be >= 0, got -1"),
    (b"[gpus=x] x\n", 1, "gpus must be an integer, got 'x'"),
    (b"[gpus=-1] x\n", 1, "gpus must be >= "),
    (b"[kancel] x\n", 1, "malformed attribute 'kancel'"),
    (b"[foo=1] x\n", 1, "unknown attribute 'foo' (known: vram, gpus, timeout, retries, cancel"),
    (b"[ -f x ] && y\n", 1, "malformed attribute '-f'"),
    (b"[name=a] x\n[name=a] y\n", 2, "name 'a' is taken by line 1 already"),
    (b"[after=nobody] x\n", 1, "after wants 'nobody'"),
    (b"[vram=1G] " + b"x" * (1 << 20) + b"\n", 1, "the command has 1048576 bytes and may have 524288 at most"),
])
def test_P7_X22_a_bad_line_is_named_with_its_number(world, content, line, words):
    world.write(content)
    err = refused(world)
    assert err.startswith(f"gpustow: jobs file line {line}: ") and err.count("\n") <= 2
    assert any(w in err for w in words.split("|")), err


def test_all_bad_lines_are_named(world):
    world.jobs("[vram=] a", "true", "[gpus=y] b")
    assert refused(world).splitlines() == [
        "gpustow: jobs file line 1: cannot parse vram value '' (use MiB or a G/GiB suffix)",
        "jobs file line 3: gpus must be an integer, got 'y'"]


@pytest.mark.parametrize("make, words", [
    (lambda p: None, "cannot read jobs file: [Errno 2] No such file or directory: '"),
    (lambda p: p.mkdir(), "is a directory"),
    (lambda p: os.mkfifo(p), "is a pipe"),
    (lambda p: p.symlink_to("/dev/zero"), "not a plain file"),
    (lambda p: p.write_text(""), "jobs file contains no jobs (use --watch to wait for some)"),
    (lambda p: p.write_text("# nothing\n\n"), "jobs file contains no jobs"),
])
def test_a_file_that_is_none(world, make, words):
    make(world.file)
    err = refused(world)
    assert words in err and err.count("\n") == 1


def test_a_file_without_permission(world):
    world.jobs("true")
    world.file.chmod(0)
    if os.geteuid():
        assert "[Errno 13] Permission denied" in refused(world)
        return
    world.dir.chmod(0o777)
    r = world.spawn("/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program(), "run", "--sim", "1",
                    world.file, env={"GPUSTOW_AGENT_ROOT": "/tmp/nobody-comes-here"})
    r.wait(2)
    assert "cannot read jobs file: [Errno 13] Permission denied" in r.err and r.err.count("\n") == 1


@pytest.mark.parametrize("content", [
    b"\xef\xbb\xbf[vram=1G] echo a >> $W/judge\r\n",
    b"[vram=1G] echo a >> $W/judge\r\n",
    b"[vram=1G] echo a >> $W/judge\r",
    "\u00a0[VRAM=1g] \u3000echo a >> $W/judge \u2028\n".encode(),
])
def test_line_ends_marks_and_blanks_of_other_systems(world, content):
    world.write(content)
    world.finish()
    assert world.judge() == ["a"]


@pytest.mark.parametrize("args, words", [
    (["--gpus", "abc"], "argument --gpus: 'abc' is no list of GPU indices"),
    (["--poll", "-1"], "--poll"),
    (["--poll", "nan"], "--poll"),
    (["--margin", "-1"], "--margin"),
    (["--margin", "1.5"], "--margin"),
    (["--idle-threshold", "-5"], "--idle-threshold"),
    (["--tolerance", "nan"], "--tolerance"),
    (["--tolerance", "-0.1"], "--tolerance"),
    (["--spike-buffer", "inf"], "--spike-buffer"),
    (["--sim", "0"], "--sim"),
    (["--sim", "x"], "--sim"),
    (["--oom-retries", "-1"], "--oom-retries"),
    (["--nonsense"], "--nonsense"),
])
def test_X5_W22_bad_options(world, args, words):
    world.jobs("true")
    r = world.run(*args, poll=None)
    r.wait(2)
    last = r.err.splitlines()[-1]
    assert words in last and last.startswith("gpustow") and r.out == "" and not world.logs.exists()


def test_X5_a_card_that_is_not_there(world):
    world.jobs("[vram=1G] " + note("a"))
    r = world.finish("--gpus", "0,9", sim="2", code=2)
    assert r.err == "gpustow: --gpus 9: there is no such GPU; this machine has 0, 1\n" and world.judge() == []


@pytest.mark.parametrize("content, words", [
    (b"[vram=1G] echo \xff\n", "UTF-8"),
    (b"[vram=1G] a\0b\n", "NUL"),
    (b"[vram=1G] " + b"y" * (1 << 20) + b"\n", "line 1: "),
    (b"[vram=1G\n", "unterminated"),
])
def test_X22_bad_bytes_in_a_running_queue(world, content, words):
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=14G] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    world.write(content)
    assert words in r.sees("WARN  jobs file unreadable, keeping previous queue: (.*)").group(1)
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a", "b"]


@pytest.mark.parametrize("make, words", [
    (lambda p: p.mkdir(), "directory"),
    (lambda p: os.mkfifo(p), "pipe"),
])
def test_X22_the_file_becomes_something_else(world, make, words):
    world.jobs("[vram=14G] " + note("a", wait_for("go")), "[vram=14G] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    world.file.unlink()
    make(world.file)
    r.sees("jobs file unreadable, keeping previous queue: .*" + words)
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a", "b"]


def test_a_hundred_thousand_lines(world):
    world.write("".join(f"[vram=90G] never {i}\n" for i in range(99_990)) + "".join(f"[vram=1G] echo {i} >> $W/judge\n" for i in range(10)))
    r = world.run("--check")
    r.wait(1)
    assert r.lines()[-1] == "100000 jobs: 10 would start now, 0 would wait, 99990 can never fit"
    r = world.run()
    r.wait(1, deadline=300)
    assert len(world.judge()) == 10 and "all 100000 jobs done — 10 ok, 99990 failed" in r.out


def test_X22_a_command_too_long_for_one_argument(world):
    long = "echo " + "z" * 140_000
    world.jobs(f"[vram=1G] {long} | wc -c >> $W/judge")
    world.finish()
    assert world.judge() == ["140001"]


def test_X22_stdout_closed_by_its_reader(world):
    """`gpusched ... | head -1`."""
    world.jobs("[vram=1G] " + note("a", wait_for("go")), "[vram=1G] " + note("b"))
    read, write = os.pipe()
    r = world.run(stdout=write)
    os.close(write)
    assert os.read(read, 10)
    until(lambda: world.judge() == ["a", "b"] or world.judge() == ["b", "a"])
    os.close(read)
    (world.dir / "go").touch()
    r.wait()
    assert {d["status"] for d in world.events("done")} == {"ok"} and len(world.events("done")) == 2


def test_stdout_and_stderr_not_open_at_all(world):
    world.jobs("[vram=1G] " + note("a"))
    r = world.spawn("sh", "-c", f"exec {program()} run --sim 1 --poll 0.1 {world.file} >&- 2>&- <&-")
    r.wait()
    assert world.judge() == ["a"] and world.events("done")[0]["status"] == "ok"


def test_a_log_directory_that_cannot_be_written(world):
    world.jobs("[vram=1G] " + note("a"))
    (world.dir / "file").write_text("")
    r = world.finish("--log-dir", "file", code=1)
    assert r.err.startswith("gpustow: ") and "file" in r.err and r.err.count("\n") == 1 and world.judge() == []
    world.logs.mkdir()
    if os.geteuid():
        world.logs.chmod(0o500)
        r = world.finish(code=1)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", world.logs], check=True)
        try:
            r = world.finish(code=1)
        finally:
            subprocess.run(["umount", world.logs], check=True)
    assert "gpusched_logs" in r.err and r.err.count("\n") == 1 and world.judge() == []


@pytest.fixture
def small_disk(world):
    if os.geteuid():
        pytest.skip("mounting a small disk needs root")
    world.logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,nr_inodes=1000", "tmpfs", world.logs], check=True)
    yield world.logs
    subprocess.run(["umount", "-l", world.logs], check=True)


def fill(directory):
    with open(directory / "filler", "wb", buffering=0) as f:
        try:
            while f.write(b"x" * 512):
                pass
        except OSError:
            pass


def more(world):
    """More records than what is left of the journal's last page."""
    world.append("".join(f"[gpus=0] : {i}\n" for i in range(100)))


def test_X22_a_full_disk_loses_nothing(world, small_disk):
    world.jobs("[vram=20G] " + note("a", wait_for("go") + "; exit 3"), "[vram=20G] " + note("b"))
    r = world.run()
    r.sees("job 1 started")
    until(lambda: world.events("started"))
    fill(small_disk)
    more(world)
    r.sees(r"WARN  .*No space left.*nothing new is started until it can be written")
    (world.dir / "go").touch()
    r.sees("job 1 finished .EXIT 3.")
    assert world.judge() == ["a"] and r.process.poll() is None
    (small_disk / "filler").unlink()
    r.sees("the journal can be written again")
    r.wait(3)
    assert world.judge() == ["a", "b"]
    assert len(world.events("done")) == 102 and sum(d["returncode"] for d in world.events("done")) == 3


def test_a_disk_without_room_for_another_file_makes_jobs_wait(world, small_disk):
    world.jobs("[vram=20G] " + note("a", wait_for("go")))
    r = world.run()
    r.sees("job 1 started")
    n = 0
    try:
        while True:
            os.mkfifo(small_disk / f"filler{n}")
            n += 1
    except OSError:
        pass
    world.append("[vram=1G] " + note("b") + "\n")
    until(lambda: "its log can't be written: No space left on device" in world.ask("run", "why", "2", code=None).out)
    for i in range(n):
        (small_disk / f"filler{i}").unlink()
    r.sees("job 2 finished .OK.")
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a", "b"]


def test_W2_a_scheduler_killed_on_a_full_disk_finds_its_job_again(world, small_disk):
    world.jobs("[vram=20G] " + note("a", wait_for("go") + "; exit 3"))
    r = world.run()
    until(lambda: world.events("started"))
    fill(small_disk)
    more(world)
    r.sees("No space left")
    (world.dir / "go").touch()
    r.sees("job 1 finished .EXIT 3.")
    r.process.kill()
    r.process.wait()
    (small_disk / "filler").unlink()
    r = world.finish(code=3)
    assert world.judge() == ["a"] and "job 1 finished [EXIT 3]" in r.out


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1", "xx_YY.nonsense"])
def test_W26_locales(world, locale):
    """The jobs file is UTF-8 whatever the locale says."""
    world.jobs("[vram=1G] echo 'é日' >> $W/judge")
    r = world.finish(env={"LC_ALL": locale, "LANG": locale})
    assert world.judge() == ["é日"] and "job 1 started on gpu [0] (1/1 dispatched, declared 1024 MiB/gpu) — echo 'é日'" in r.out


def test_an_environment_variable_that_is_no_text(world):
    world.jobs('[vram=1G] echo "${ODD-none}" >> $W/judge')
    r = world.spawn(PYTHON, "-c", "import os, sys; os.environb[b'ODD'] = b'\\xff'; os.execv(sys.argv[1], sys.argv[1:])",
                    program(), "run", "--sim", "1", "--poll", "0.1", world.file)
    r.wait()
    assert world.judge() == ["none"] and "WARN  the environment variable ODD is not UTF-8" in r.out


def test_control_bytes_of_a_command_do_not_reach_the_terminal(world):
    world.write(b"[vram=1G] echo '\x1b[31mred\x07' > /dev/null; " + note("a").encode() + b"\n")
    r = world.finish()
    assert world.judge() == ["a"] and "\x1b" not in r.out and "\x07" not in r.out
    assert "\x1b" not in world.board() and "\x1b" not in world.ask("run", "status").out


def test_a_cwd_that_is_gone(world):
    (world.dir / "gone").mkdir()
    world.jobs("[vram=1G] " + note("a"))
    r = world.spawn("sh", "-c", f"cd gone && rmdir ../gone && exec {program()} run --sim 1 {world.file}")
    r.wait(1)
    assert r.err.startswith("gpustow: ") and r.err.count("\n") == 1


def test_SIGPIPE_and_an_ignored_SIGCHLD_of_the_parent(world):
    world.jobs("[vram=1G] " + note("a", "sh -c 'kill -PIPE $$'; echo $? >> $W/judge"))
    world.finish(preexec_fn=lambda: (signal.signal(signal.SIGCHLD, signal.SIG_IGN), signal.signal(signal.SIGPIPE, signal.SIG_IGN)))
    # Jobs get default signals, not ours and not those of whoever started us.
    assert world.judge() == ["a", "141"]
