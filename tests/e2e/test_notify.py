"""Alerts on their way to people: a real D-Bus session with a stub that shows nothing, a real HTTP receiver that fails and hangs,
a sendmail on PATH that keeps what it gets, hooks that hang. The clock is the test's (tests/drive/drive_notify.c)."""
import email
import email.header
import email.policy
import http.server
import json
import os
import stat
import subprocess
import threading
import time

import pytest

from harness import BUILD, DEADLINE, PYTHON, ROOT, is_alive, until

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


class Receiver:
    """Answers as told: a status for each request in turn, "hang", then 200 for ever."""

    def __init__(self, *answers):
        self.answers, self.got, self.free = list(answers), [], threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = outer.answers.pop(0) if outer.answers else 200
                outer.got.append({"path": self.path, "headers": dict(self.headers), "body": body, "answer": answer})
                if answer == "hang":
                    outer.free.wait(60)
                    return
                if answer == "trickle":
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.flush()
                    outer.free.wait(60)
                    return
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=s3cret"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self):
        return [g for g in self.got if g["answer"] == 200]

    def end(self):
        self.free.set()
        self.server.shutdown()
        self.server.server_close()


class Drive:
    """The delivering part of the daemon."""

    def __init__(self, world, limit=30000, env=None):
        self.world, self.env = world, {**world.env, **(env or {})}
        self.home = world.dir / "home" / ".gpustow"
        self.start(limit)

    def start(self, limit=30000):
        self.err = open(self.world.dir / "drive.err", "ab")
        self.process = subprocess.Popen([str(BUILD / "tests" / "drive_notify"), str(self.home)], env=self.env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True)
        self.first = json.loads(self.process.stdout.readline())
        self.tell(limit=limit)

    def tell(self, **what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, (self.world.dir / "drive.err").read_text()
        return json.loads(line)

    def alert(self, title, kind="job_failed", **more):
        return self.tell(alert=kind, title=title, **more)

    def until(self, what, deadline=DEADLINE):
        return until(lambda: (lambda a: a if what(a) else None)(self.tell()), deadline, 0.05, lambda: self.tell())

    def all_delivered(self):
        return self.until(lambda a: not a["undelivered"])

    def log(self):
        path = self.home / "alerts.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            assert self.process.wait(20) == 0, (self.world.dir / "drive.err").read_text()
        self.process.stdout.close()
        self.err.close()

    def crash(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.end()


def configure(world, **notify):
    home = world.dir / "home" / ".gpustow"
    home.mkdir(exist_ok=True)
    (home / "queue.yml").write_text("queue:\n  notify: " + json.dumps({"desktop": False, **notify}) + "\n")
    return home


@pytest.fixture
def receiver(request):
    r = Receiver(*getattr(request, "param", ()))
    yield r
    r.end()


@pytest.fixture
def drive(world):
    made = []

    def make(**more):
        made.append(Drive(world, **more))
        return made[-1]

    yield make
    for d in made:
        d.end()


def sendmail(world, script="cat > $W/mail.$$; echo \"$@\" > $W/mail.args"):
    path = world.dir / "bin" / "sendmail"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def mails(world):
    return [email.message_from_bytes(p.read_bytes(), policy=email.policy.default)
            for p in sorted(world.dir.glob("mail.[0-9]*"), key=lambda p: p.stat().st_mtime_ns)]


@pytest.fixture
def bus(world):
    """A D-Bus session of the test's own, with nobody on it."""
    address = f"unix:path={world.dir}/bus"
    daemon = subprocess.Popen(["dbus-daemon", "--session", f"--address={address}", "--nofork", "--nopidfile"],
                              env=world.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: (world.dir / "bus").exists())
    yield address
    daemon.kill()
    daemon.wait()


@pytest.fixture
def stub(world, bus):
    shown = world.dir / "shown"
    process = subprocess.Popen([PYTHON, ROOT / "tests" / "lab" / "notify_stub.py", shown], stdout=subprocess.PIPE,
                               env={**world.env, "DBUS_SESSION_BUS_ADDRESS": bus}, text=True)
    assert process.stdout.readline() == "ready\n"
    yield lambda: [json.loads(line) for line in shown.read_text().splitlines()] if shown.exists() else []
    process.kill()
    process.wait()
    process.stdout.close()


def test_each_channel_gets_the_alert_once_with_its_id(world, drive, receiver, bus, stub):
    configure(world, desktop=True, command="cat > $W/hook", email=["ann@example.org", "bob"],
              webhook={"url": receiver.url, "header": "Authorization: Bearer s3cret"})
    sendmail(world)
    d = drive(env={"DBUS_SESSION_BUS_ADDRESS": bus})
    queue = d.first["queue"]
    d.alert("job 3 <b> failed: größe", detail="line 1\nline 2\n", node="n1")
    state = d.all_delivered()
    assert state["delivered"] == 1 and state["problems"] == "" and state["wait"] == -1
    uid = f"{queue}-1"
    line, hook = d.log()[0], json.loads((world.dir / "hook").read_text())
    assert line == hook and line["uid"] == uid and line["id"] == 1 and line["kind"] == "job_failed"
    assert line["title"] == "job 3 <b> failed: größe" and line["detail"] == "line 1\nline 2\n" and line["node"] == "n1"
    post = receiver.got[0]
    assert json.loads(post["body"]) == line and post["path"] == "/hook?key=s3cret"
    assert post["headers"]["Authorization"] == "Bearer s3cret" and post["headers"]["Content-Type"] == "application/json"
    m, = mails(world)
    assert m["To"] == "ann@example.org, bob" and m["Subject"] == "[gpustow] error: job 3 <b> failed: größe"
    assert uid in m["Message-ID"] and uid in m.get_content() and "line 2" in m.get_content()
    assert world.text("mail.args") == "-t -i\n"
    shown, = stub()
    assert shown["app"] == "gpustow" and shown["urgency"] == 2 and uid in shown["body"]
    assert shown["summary"] == "gpustow: job 3 <b> failed: größe" and "node n1" in shown["body"]
    assert len(receiver.got) == 1 and len(d.log()) == 1
    for name in ("alerts.log", "notify-state.json"):
        assert stat.S_IMODE((d.home / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("shape", ["slack", "ntfy"])
def test_shapes_of_webhooks(world, drive, receiver, shape):
    configure(world, webhook={"url": receiver.url, "shape": shape})
    d = drive()
    d.alert("a & b \"größe\"")
    d.all_delivered()
    post = receiver.got[0]
    uid = f"{d.first['queue']}-1"
    if shape == "slack":
        body = json.loads(post["body"])
        assert list(body) == ["text"] and "a &amp; b" in body["text"] and uid in body["text"]
    else:
        title = str(email.header.make_header(email.header.decode_header(post["headers"]["Title"])))
        assert title == "gpustow: a & b \"größe\"" and post["headers"]["Priority"] == "4"
        assert uid in post["body"].decode() and "a & b" in post["body"].decode()


def test_w40_a_hanging_hook_stalls_neither_the_loop_nor_the_other_channels(world, drive, receiver):
    configure(world, command="echo $$ > $W/pid; sleep 300 & sleep 300", email="ann", webhook=receiver.url)
    sendmail(world)
    d = drive(limit=10000)
    began = time.monotonic()
    for i in range(3):
        d.alert(f"alert {i}")
    # The loop answers, and the others have everything, while the first hook still hangs.
    until(lambda: len(receiver.taken()) == 3 and len(mails(world)) == 3 and len(d.log()) == 3)
    hung = int(world.has("pid"))
    if time.monotonic() - began < 9:
        assert is_alive(hung)
    assert d.tell()["undelivered"] == [1, 2, 3]
    state = d.until(lambda a: "command" in a["problems"])
    assert "gave no answer within 10 s" in state["problems"]
    # Its whole group is gone.
    until(lambda: not [c for c in world.processes().values() if c.startswith("sleep 300")])
    assert not is_alive(hung) and 0 < state["wait"] <= MINUTE


@pytest.mark.parametrize("receiver", [(500, 302, "hang")], indirect=True)
def test_a_webhook_that_fails_and_hangs_is_tried_again_with_growing_waits(world, drive, receiver):
    configure(world, webhook=receiver.url)
    d = drive()
    d.alert("first")
    d.until(lambda a: "500" in a["problems"])
    assert len(d.log()) == 1  # the log has it meanwhile
    d.tell(forward=MINUTE - 5000)
    time.sleep(0.3)
    assert len(receiver.got) == 1, "tried again too early"
    d.tell(forward=6000)
    d.until(lambda a: "HTTP 302" in a["problems"] and "2 times" in a["problems"])
    d.tell(forward=MINUTE + 1000)
    time.sleep(0.3)
    assert len(receiver.got) == 2, "the second wait is two minutes"
    d.tell(limit=1500)
    d.tell(forward=MINUTE)
    d.until(lambda a: "3 times" in a["problems"])
    assert len(receiver.got) == 3
    # A restart forgets neither what was taken nor how long to wait.
    now = d.tell()["now"]
    d.end()
    d.start()
    d.tell(clock=now)
    d.tell(forward=4 * MINUTE)
    time.sleep(0.3)
    assert len(receiver.got) == 3 and "3 times" in d.tell()["problems"]
    d.tell(forward=2 * MINUTE)
    state = d.all_delivered()
    assert state["problems"] == "" and len(receiver.taken()) == 1 and len(d.log()) == 1
    assert {json.loads(g["body"])["uid"] for g in receiver.got} == {f"{state['queue']}-1"}


@pytest.mark.parametrize("receiver", [("trickle", 302, 404)], indirect=True)
def test_what_a_webhook_answers_counts_and_is_said(world, drive, receiver):
    """Taken is taken, though the answer's text never ends; what else comes is told in its own words."""
    configure(world, webhook=receiver.url)
    d = drive(limit=1500)
    d.alert("first")
    d.all_delivered()
    assert len(receiver.got) == 1 and d.tell()["problems"] == ""
    d.alert("second")
    d.until(lambda a: "answered HTTP 302, a redirection" in a["problems"])
    d.tell(forward=MINUTE + 1000)
    d.until(lambda a: "the webhook answered HTTP 404" in a["problems"])
    receiver.end()
    d.tell(forward=3 * MINUTE)
    state = d.until(lambda a: "curl ended with exit code 7" in a["problems"])
    assert "HTTP 000" not in state["problems"]


def test_a_channel_that_is_down_for_a_day_is_given_up_and_told_of(world, drive):
    configure(world, command="echo no mail today >&2; exit 3")
    d = drive()
    d.alert("lost")
    d.until(lambda a: "ended with exit code 3: no mail today" in a["problems"])
    for _ in range(3):
        d.tell(forward=7 * 60 * MINUTE)
        d.until(lambda a: a["wait"] > 0)
    assert d.tell()["undelivered"] == [1]
    d.tell(forward=4 * 60 * MINUTE)
    state = d.all_delivered()
    assert "command: 1 alert given up" in state["problems"]


def test_one_alert_that_is_refused_does_not_hold_up_the_others(world, drive):
    configure(world, command="grep -q poison && exit 1; echo ok >> $W/judge", log=False)
    d = drive()
    d.alert("poison")
    d.until(lambda a: "1 time" in a["problems"])
    for i in range(3):
        d.alert(f"good {i}")
    d.tell(forward=MINUTE + 1000)
    d.until(lambda a: a["undelivered"] == [1])
    assert world.judge() == ["ok"] * 3


def test_a_crash_repeats_and_never_loses(world, drive, receiver):
    """Killed with its children in flight; what a channel had before isn't said to it again."""
    configure(world, command="echo $$ >> $W/began; [ -e $W/go ] || sleep 300", webhook=receiver.url)
    d = drive(limit=60000)
    d.alert("once")
    until(lambda: receiver.taken())
    world.has("began")
    # The webhook's outcome is on the disk before the next answer.
    until(lambda: "webhook" in json.loads((d.home / "notify-state.json").read_text())["alerts"][0]["done"])
    d.crash()
    for pid, line in world.processes().items():
        if "sleep 300" in line:
            os.kill(pid, 9)
    (world.dir / "go").write_text("")
    d.start()
    d.all_delivered()
    assert len(receiver.got) == 1 and len(d.log()) == 1 and len(world.text("began").split()) == 2


def test_quiet_hours_hold_back_and_end_in_one_message(world, drive, receiver, bus, stub):
    configure(world, desktop=True, command="cat >> $W/hook", webhook=receiver.url, email="ann",
              quiet_hours="22:00-07:00", quiet_hours_errors=True)
    sendmail(world)
    d = drive(env={"DBUS_SESSION_BUS_ADDRESS": bus})
    night = 1_800_000_000_000 // DAY * DAY + 23 * 60 * MINUTE  # TZ is UTC
    d.tell(clock=night)
    for i in range(4):
        d.alert(f"quiet {i}", kind="job_retried")
    state = d.tell()
    assert state["undelivered"] == [1, 2, 3, 4] and 7.9 * 60 * MINUTE < state["wait"] <= 8 * 60 * MINUTE
    assert len(d.log()) == 4  # nobody is woken by a file
    d.alert("loud")  # an error
    until(lambda: receiver.taken() and mails(world) and stub() and world.text("hook"))
    assert json.loads(receiver.taken()[0]["body"])["title"] == "loud"
    d.until(lambda a: a["undelivered"] == [1, 2, 3, 4])
    d.tell(clock=night + 8 * 60 * MINUTE + 1000)
    state = d.all_delivered()
    digest = json.loads(receiver.taken()[1]["body"])
    assert digest["kind"] == "digest" and [a["title"] for a in digest["alerts"]] == [f"quiet {i}" for i in range(4)]
    assert digest["uid"] == f"{state['queue']}-1-4-4" and digest["severity"] == "warning"
    hook = [json.loads(line) for line in world.text("hook").splitlines()]
    assert len(hook) == 2 and hook[1] == digest
    assert len(receiver.got) == 2 and len(mails(world)) == 2 and len(stub()) == 2 and len(d.log()) == 5
    assert "quiet 3" in mails(world)[1].get_content() and digest["uid"] in mails(world)[1].get_content()


def test_many_at_once_come_in_one_message(world, drive, receiver):
    configure(world, webhook=receiver.url, command="cat >> $W/hook")
    d = drive()
    d.end()
    # They came up while no daemon ran.
    home_db = d.home / "queue.db"
    assert home_db.exists()
    configure(world, enabled=True, webhook=receiver.url, command="cat >> $W/hook", quiet_hours="00:00-23:59")
    d.start()
    noon = 1_800_000_000_000 // DAY * DAY + 12 * 60 * MINUTE
    d.tell(clock=noon)
    for i in range(30):
        d.alert(f"a {i}")
    d.end()
    state = json.loads((d.home / "notify-state.json").read_text())
    for a in state["alerts"]:
        a.pop("held")
    (d.home / "notify-state.json").write_text(json.dumps(state))
    configure(world, webhook=receiver.url, command="cat >> $W/hook")
    d.start()
    d.all_delivered()
    assert len(receiver.got) == 1 and len(json.loads(receiver.got[0]["body"])["alerts"]) == 30
    assert len(world.text("hook").splitlines()) == 30  # a hook gets each by itself


def test_what_is_below_min_severity_or_off_is_marked_and_not_said(world, drive):
    configure(world, command="echo said >> $W/judge", min_severity="error")
    d = drive()
    d.alert("small", kind="job_retried")
    d.alert("large")
    d.all_delivered()
    assert world.judge() == ["said"] and [a["title"] for a in d.log()] == ["large"]
    d.end()
    configure(world, enabled=False, command="echo said >> $W/judge")
    d.start()
    d.alert("none")
    d.all_delivered()
    assert world.judge() == ["said"]


def test_who_has_put_an_alert_away_is_not_told_again(world, drive):
    configure(world, command="echo tried >> $W/judge; exit 1")
    d = drive()
    d.alert("seen")
    d.until(lambda a: "1 time" in a["problems"])
    d.tell(ack=1)
    d.all_delivered()
    assert world.judge() == ["tried"]


def test_a_machine_without_a_desktop_waits_for_none(world, drive, bus):
    """Neither without a bus nor on one where nobody shows notifications."""
    configure(world, desktop=True)
    d = drive()
    d.alert("headless")
    assert d.all_delivered()["problems"] == ""
    d.end()
    d.env["DBUS_SESSION_BUS_ADDRESS"] = bus
    d.start()
    d.alert("nobody")
    assert d.all_delivered()["problems"] == "" and len(d.log()) == 2


def test_nothing_secret_stands_on_a_command_line_and_no_descriptor_is_handed_on(world, drive, receiver):
    receiver.answers = ["hang"]
    configure(world, webhook={"url": receiver.url, "header": "Authorization: s3cret"},
              command="ls -l /proc/$$/fd > $W/fds; tr '\\0' '\\n' < /proc/$$/status | grep SigIgn > $W/ign; echo >> $W/fds")
    d = drive(limit=10000)
    d.alert("secret")
    until(lambda: receiver.got)
    lines = [c for c in world.processes().values() if c.startswith("curl")]
    assert lines and not any("s3cret" in c or "127.0.0.1" in c for c in lines), lines
    fds = [line.split(" -> ")[1] for line in world.has("fds").splitlines() if " -> " in line]
    assert not any("queue.db" in f or "socket" in f or "zero" in f for f in fds), fds
    assert int(world.has("ign").split()[1], 16) & 1 << 12 == 0  # SIGPIPE ends a pipe's writer as usual
    receiver.free.set()
    d.until(lambda a: "webhook" in a["problems"])


def test_the_log_is_put_aside_when_it_is_large_and_is_never_a_link(world, drive):
    home = configure(world)
    (home / "alerts.log").write_text("x" * (4 * 1024 * 1024 + 1))
    d = drive()
    d.alert("new")
    d.all_delivered()
    assert len(d.log()) == 1 and (home / "alerts.log.1").stat().st_size == 4 * 1024 * 1024 + 1
    (home / "alerts.log").unlink()
    (home / "alerts.log").symlink_to(world.dir / "victim")
    d.alert("linked")
    d.until(lambda a: "isn't a plain file" in a["problems"])
    assert not (world.dir / "victim").exists()


def test_a_broken_state_file_costs_a_repetition_and_is_told_of(world, drive):
    home = configure(world)
    (home / "notify-state.json").write_text("{\"queue\": ")
    d = drive()
    assert "notify-state.json is left out" in d.first["problems"]
    d.alert("still")
    d.all_delivered()
    assert json.loads((home / "notify-state.json").read_text())["alerts"] == []


# --- queue notify test ---


def test_notify_test_tries_each_channel_and_says_what_came_of_it(world, receiver, bus, stub):
    configure(world, desktop=True, command="cat > $W/hook", webhook=receiver.url, email="ann")
    sendmail(world, "echo no such user >&2; exit 67")
    env = {"DBUS_SESSION_BUS_ADDRESS": bus}
    answer = world.ask_json("queue", "notify", "test", "--json", code=1, env=env)
    rows = {r["channel"]: r for r in answer["channels"]}
    assert answer["ok"] is False and list(rows) == ["log", "desktop", "command", "webhook", "email"]
    assert {c: (r["on"], r["worked"]) for c, r in rows.items()} == {
        **dict.fromkeys(["log", "desktop", "command", "webhook"], (True, True)), "email": (True, False)}
    assert rows["email"]["text"] == "sendmail ended with exit code 67: no such user"
    assert stub()[0]["summary"] == "gpustow: a test of gpustow's notifications"
    assert json.loads(world.text("hook"))["kind"] == "test" == json.loads(receiver.got[0]["body"])["kind"]
    # In words, under the other name, with everything all right.
    sendmail(world)
    (world.dir / "home" / ".gpustow").rename(world.dir / "home" / ".nvidb")
    r = world.ask("queue", "notify", "test", name="nvidb", env=env)
    assert [line.split()[1] for line in r.lines()[1:]] == ["works"] * 5
    assert "nvidb" in mails(world)[0]["Subject"]


def test_notify_test_without_desktop_and_with_everything_off(world):
    home = configure(world, desktop=True)
    rows = {r["channel"]: r for r in world.ask_json("queue", "notify", "test", "--json")["channels"]}
    assert rows["log"]["worked"] and not rows["desktop"]["on"] and "no desktop session" in rows["desktop"]["text"]
    assert not rows["email"]["on"] and rows["email"]["worked"] is None
    (home / "queue.yml").write_text("queue:\n  notify: false\n")
    r = world.ask("queue", "notify", "test")
    assert r.out.count("off (notify: false)") == 5
