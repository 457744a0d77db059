"""An idle launcher on a hot spare, and three others that give it a lost node with nobody watching."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.peers.messages import PeerMessage
from jobctl.jobspec.launcher.system.files import read_json
from tests.launcher.conftest import PATIENCE, STALL, Node, lose_power
from tests.tools.waiting import promptly

from .alone import ALONE, BASE, TRAIN

HOST_TIMEOUT = STALL + 2.0


class Quartet:
    """Three launchers with a node each, and an idle one; no supervisor."""

    def __init__(self, root: Path, python: str) -> None:
        self.nodes = [Node(root / str(number), python) for number in range(4)]
        for number, node in enumerate(self.nodes):
            node.dir = node.root / (f"node-{number}" if number < 3 else "spare")
            node.launch.update(node=number if number < 3 else -1, host=f"h{number}", command=node.script(TRAIN))
            if number == 3:
                node.launch["spare"] = True
            node.start()
        self.ports = [promptly(lambda node=node: node.report().get("port")) for node in self.nodes]
        self.spare = self.nodes[3]
        self.taken = self.spare.root / "node-1"  # where the idle launcher works once it is that of node 1
        self.order()

    def order(self, number: int = 1, command: str = "run", home: int = 1, to: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        """Hand these an order; `home`: the host of node 1."""
        homes = {0: 0, 1: home, 2: 2}
        members = [
            {
                "node": node,
                "rank": node,
                "roles": ["trainer"],
                "host": f"h{at}",
                "address": "127.0.0.1",
                "nproc": 1,
                "port": self.ports[at],
            }
            for node, at in homes.items()
        ]
        spares = [{"host": "h3", "address": "127.0.0.1", "port": self.ports[3]}] if home != 3 else []
        base = {"number": number, "id": f"demo-{number}"}
        alone = {**ALONE, "base": base, "spares": spares}
        for at in to:
            self.nodes[at].order(number, command, members=members, autonomy=alone, host_timeout=HOST_TIMEOUT)

    def kill(self, *numbers: int) -> None:
        """Kill launchers with all that runs below them, as it happens to containers."""
        lose_power(*(self.nodes[number] for number in numbers))
        for number in numbers:
            self.nodes[number].started[-1].wait()

    def report_of_taken(self) -> dict[str, Any]:
        """Return what the launcher of the spare says of node 1."""
        path = self.taken / "report.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"state": None}
        return found


class Peer:
    """The launcher of a node, played by the test: its socket, and what it hears."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(PATIENCE)

    def hear(self) -> tuple[PeerMessage, Any]:
        """Return the next message, and from where it came."""
        data, sender = self.socket.recvfrom(65536)
        return PeerMessage.from_json(json.loads(data)), sender

    def answer(self, message: tuple[PeerMessage, Any], **fields: Any) -> None:
        """Say something to the launcher that was heard, in its order."""
        said = PeerMessage(message[0].generation, 1, age=message[0].age, **fields)
        self.socket.sendto(json.dumps(said.to_json()).encode(), message[1])


@pytest.fixture
def quartet(tmp_path: Path, python: str) -> Iterator[Quartet]:
    made = Quartet(tmp_path, python)
    for node in made.nodes[:3]:
        node.until("running", 1)
    yield made
    made.kill(0, 1, 2, 3)


@pytest.mark.long
def test_a_lost_node_goes_on_where_an_idle_launcher_waits(quartet: Quartet) -> None:
    """And the launcher that is lost ends up without a node, if it comes back; the spare's own remembers what it is."""
    assert (quartet.spare.report()["state"], quartet.spare.report()["node"]) == ("waiting", -1)
    quartet.kill(1)
    for node in (quartet.nodes[0], quartet.nodes[2]):
        node.until("running", 2)
    found = promptly(lambda: (r := quartet.report_of_taken())["state"] == "running" and r)
    assert (found["node"], found["generation"], found["spare"], found["port"]) == (1, 2, True, quartet.ports[3])
    assert [(m["node"], m["host"]) for m in found["order"]["members"]] == [(0, "h0"), (1, "h3"), (2, "h2")]
    assert [one["reason"] for one in found["order"]["autonomy"]["failures"]] == [
        "h1 is lost; node 1 moves from h1 to h3"
    ]
    assert (found["order"]["autonomy"]["base"], quartet.spare.report()["node"]) == (BASE, 1)
    quartet.nodes[1].start()
    promptly(lambda: quartet.nodes[1].report()["reason"] == "not part of this generation")
    quartet.kill(3)
    quartet.spare.start()
    again = promptly(lambda: (r := quartet.report_of_taken()).get("generation") == 3 and r["state"] == "running" and r)
    assert again["launcher"]["pid"] == quartet.spare.started[-1].pid


def test_a_supervisor_gives_a_node_to_an_idle_launcher_and_takes_it_back(quartet: Quartet) -> None:
    quartet.order(2, home=3)
    promptly(lambda: quartet.report_of_taken()["state"] == "running")
    assert quartet.report_of_taken()["generation"] == 2
    assert quartet.nodes[1].until("waiting")["reason"] == "not part of this generation"
    quartet.order(3)
    quartet.nodes[1].until("running", 3)
    promptly(lambda: quartet.report_of_taken()["state"] == "waiting")


def test_an_idle_launcher_tells_every_node_that_it_is_there(node: Node) -> None:
    """Node 0, too: it is the first to give a lost node to a spare."""
    peers = [Peer(), Peer()]
    with peers[0].socket, peers[1].socket:
        members = [
            {
                "node": number,
                "rank": number,
                "roles": ["trainer"],
                "host": f"h{number}",
                "address": "127.0.0.1",
                "nproc": 1,
                "port": peer.socket.getsockname()[1],
            }
            for number, peer in enumerate(peers)
        ]
        node.dir = node.root / "spare"
        node.start(node=-1, host="c", spare=2)
        node.order(1, members=members, autonomy=ALONE)
        assert [peer.hear()[0].spare for peer in peers] == ["c", "c"]


def test_an_idle_launcher_ends_with_its_job(quartet: Quartet) -> None:
    idle = quartet.spare.started[-1]

    def has_ended() -> bool:
        """A launcher passes over the first order that it reads if that is `finish`: it ended the one before."""
        quartet.order(1, "finish", to=(3,))
        return idle.poll() is not None

    quartet.order(1, "finish", to=(0, 1, 2))
    promptly(has_ended)
    assert [node.started[-1].wait() for node in quartet.nodes] == [0, 0, 0, 0]


def test_a_node_that_has_ended_well_tells_all_others(node: Node) -> None:
    """Where they may move it, they would take it for lost."""
    peer = Peer()
    with peer.socket:
        members = [
            {"node": 0, "rank": 0, "roles": ["trainer"], "host": "a", "address": "127.0.0.1", "nproc": 1},
            {"node": 1, "rank": 1, "roles": ["trainer"], "host": "b", "address": "127.0.0.1", "nproc": 1},
        ]
        members[1]["port"] = peer.socket.getsockname()[1]
        node.start()
        node.order(1, members=members, autonomy=ALONE)
        said = promptly(lambda: (one := peer.hear())[0].done and one)
        assert (said[0].node, node.report()["state"]) == (0, "succeeded")
        peer.answer(said, heard=True, done=True)
        assert node.started[-1].wait() == 0


def test_an_order_that_has_reached_one_host_reaches_all(quartet: Quartet) -> None:
    """Its command was killed. Node 1 is on the spare by it, and its launcher has no place any more."""
    quartet.order(2, home=3, to=(0,))
    for node in (quartet.nodes[0], quartet.nodes[2]):
        node.until("running", 2)
    found = promptly(lambda: (r := quartet.report_of_taken())["state"] == "running" and r)
    assert (found["node"], found["generation"], found["order"]["rendezvous"]["id"]) == (1, 2, "demo-2")
    promptly(lambda: quartet.nodes[1].report()["reason"] == "not part of this generation")
    quartet.kill(2)
    quartet.nodes[2].start()  # what others have told it is on its disk
    assert quartet.nodes[2].until("running", 3)["order"]["autonomy"]["base"] == {"number": 2, "id": "demo-2"}
    quartet.order(4, "stop", home=3, to=(0,))
    for node in (quartet.nodes[0], quartet.nodes[2]):
        node.until("stopped")


# A launcher on a spare to which a signal comes while it hands the spare over to the launcher of a node.
INTERRUPTED = """
import os, signal
from jobctl.jobspec.launcher import main
from jobctl.jobspec.launcher.node import idle
hand_over = idle.take_over
def interrupted(*given):
    written = hand_over(*given)
    os.kill(os.getpid(), signal.SIGTERM)
    return written
idle.take_over = interrupted
main.main()
"""


def test_a_spare_that_is_told_to_end_as_it_gets_a_node_ends(node: Node) -> None:
    """Neither the idle launcher nor that of the node may lose the signal: an engine would wait, and then kill."""
    node.dir = node.root / "spare"
    node.launch.update(node=-1, host="c", spare=2, command=node.script(TRAIN))
    member = {"node": 1, "rank": 0, "roles": ["trainer"], "host": "c", "address": "127.0.0.1", "nproc": 1}
    node.order(1, members=[member])
    argv = [sys.executable, "-c", INTERRUPTED, "--control", str(node.control), "--dir", str(node.dir)]
    environ = {**os.environ, "JOBCTL_LAUNCH": json.dumps(node.launch)}
    with subprocess.Popen(argv, env=environ, start_new_session=True) as process:
        taken = node.root / "node-1" / "report.json"
        try:
            promptly(lambda: process.poll() is not None or (taken.exists() and "running" in taken.read_text()))
        finally:
            process.terminate()
    said = json.loads(taken.read_text())
    assert (process.returncode, said["reason"], said["generation"]) == (143, "stopped by SIGTERM", 0)


@pytest.mark.parametrize("place", ["node-1/report.json", "spare/report.json"])
def test_a_spare_that_cannot_write_down_its_node_begins_nothing(node: Node, place: str) -> None:
    """The launcher of a node would know neither the order nor its port; an engine starts this one again, idle."""
    blocked = node.root / place
    (blocked / "in the way").mkdir(parents=True)
    node.dir = node.root / "spare"
    node.launch.update(node=-1, host="c", spare=2, command=node.script(TRAIN))
    member = {"node": 1, "rank": 0, "roles": ["trainer"], "host": "c", "address": "127.0.0.1", "nproc": 1}
    node.order(1, members=[member])
    idle = node.start()
    begun = node.root / "node-1" / "logs" / "1"
    promptly(lambda: idle.poll() is not None or begun.exists())
    assert (idle.poll(), begun.exists()) == (1, False)
    assert idle.stdout is not None
    said = idle.stdout.read()
    assert (f"cannot write {blocked}: " in said, "does not take node 1" in said, "broken" in said) == (
        True,
        True,
        False,
    )
    shutil.rmtree(blocked)
    node.start()
    taken = node.root / "node-1" / "report.json"
    promptly(lambda: taken.exists() and json.loads(taken.read_text())["state"] == "running")


def test_a_spare_that_has_forgotten_its_node_in_a_power_cut_does_not_begin_it_again(node: Node) -> None:
    """Its node has run in the order already: another launcher may have begun it since, or wait for it."""
    node.dir = node.root / "spare"
    node.launch.update(node=-1, host="c", spare=2, command=node.script(TRAIN))
    members = [{"node": 1, "rank": 0, "roles": ["trainer"], "host": "c", "address": "127.0.0.1", "nproc": 1}]
    node.order(7, members=members, base={"number": 7, "id": "demo-7"})
    taken = node.root / "node-1"
    taken.mkdir()
    (taken / "report.json").write_text("")
    (taken / "last-state.json").write_text(json.dumps({"node": 1, "generation": 7, "epoch": 0.0, "state": "running"}))
    node.dir.mkdir()
    (node.dir / "report.json").write_text("")
    (node.dir / "last-state.json").write_text(json.dumps({"node": -1, "state": "waiting"}))
    node.start()
    state = promptly(lambda: (said := read_json(str(taken / "report.json"))) and said["state"] != "waiting" and said)
    assert (state["state"], state["generation"], (taken / "logs" / "7").exists()) == ("failed", 7, False)
