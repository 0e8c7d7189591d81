"""An end is acknowledged once it's on record, and what was acknowledged is retired: protocol.md 5 and 8."""
import secrets
import signal
from pathlib import Path

from bed import Bed, wait_for
from test_link import launch
from wire import Client


def claims(bed, job="*"):
    return list((bed.root / "claims").glob(f"*/{job}.*/state"))


def is_stopped(pid):
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat[stat.rindex(")") + 2] == "T"


def launch_two(bed, client, root_id):
    for number in (1, 2):
        message = launch(bed, root_id, "", name=f"wire{number}")
        message["jobs"][0].update(job=number, cards=[])
        client.send(**message)
    for number in (1, 2):
        client.until("ended")


def test_who_says_ack_and_leaves_is_heard_also_by_an_agent_that_is_writing_to_him():
    with Bed() as bed:
        bed.add("opener", "gpus=0", 0, 0.01, 0)
        bed.write_lines()
        # The opener's claim is retired at the first passage, and the client's first one at the second: there the agent stops
        # when it has looked at what came in and before it writes.
        bed.restart_until_done(30, GPUSTOW_FAULT="agent.before-retire:stop#2")
        wait_for(lambda: not claims(bed), 10, "the opener's claim stays")
        agent = bed.agent()
        with Client(bed.root) as client:
            launch_two(bed, client, client.hello("leaves", secrets.token_hex(16), [1, 1, 1])["root_id"])
            wait_for(lambda: not bed.shims(), 10, "a shim stays")
            # More answers than the socket takes, and nobody reads them: from now on the agent has something to write. All in one
            # piece, so that it has looked at everything before it stops.
            client.socket.sendall(client.frame({"op": "ack", "jobs": [[1, 1]]}) +
                                  b"".join(client.frame({"op": "observe", "id": i}) for i in range(700)))
            wait_for(lambda: is_stopped(agent), 10, "the agent doesn't come to retire anything")
            client.send(op="ack", jobs=[[2, 1]])
        bed.kill(agent, signal.SIGCONT)
        wait_for(lambda: not claims(bed), 12, lambda: f"claims are left: {claims(bed)}\n{bed.story()}")
        assert bed.agent() == agent


def test_an_end_that_an_earlier_run_settled_is_acknowledged_while_this_one_waits():
    with Bed() as bed:
        bed.add("settled", "gpus=0", 0, 0.05, 0)
        bed.write_lines()
        bed.start(GPUSTOW_FAULT="run.after-settle:kill")
        wait_for(lambda: bed.run.poll() is not None, 20, "the run isn't struck")
        assert bed.is_done() and claims(bed)
        bed.start("--watch")
        wait_for(lambda: not claims(bed), 12, lambda: f"claims are left: {claims(bed)}\n{bed.story()}")
        assert bed.run.poll() is None
        bed.run.terminate()
        bed.run.wait(20)
