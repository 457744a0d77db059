"""The right to run processes: nothing starts before it is given, everything ends when it runs out."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobctl.jobspec.launcher.failure import Problem
from jobctl.jobspec.launcher.peers.lease import PROBE_MARK, MajorityLease, take_answer
from jobctl.jobspec.launcher.run import run
from tests.launcher.conftest import PATIENCE, STALL, Node
from tests.launcher.orders import order
from tests.tools.launches import launch_of
from tests.tools.waiting import promptly

SLEEP = "import time; print('begins', flush=True); time.sleep(600)"


def lease_of(nodes: int, timeout: float = 30.0) -> MajorityLease:
    lease = MajorityLease()
    lease.begin("g", range(nodes), 0, timeout, 0.0)
    return lease


def test_the_only_node_needs_nobody() -> None:
    assert lease_of(1).held(1e9)


def test_an_answer_counts_from_when_its_tick_was_sent() -> None:
    lease = lease_of(2)
    assert not lease.held(0.0)
    name = lease.tick(1.0)
    lease.answered("another", None)
    assert not lease.held(1.0)
    lease.answered(name, None)
    assert (lease.renewed(), lease.held(31.0), lease.held(31.1)) == (1.0, True, False)


def test_a_probe_renews_no_lease() -> None:
    """By it a supervisor finds out whether its answers arrive."""
    lease = lease_of(2)
    name = lease.tick(1.0)
    assert not take_answer(lease, "another", f"token:7{PROBE_MARK}")
    assert (take_answer(lease, name, f"token:7{PROBE_MARK}"), lease.held(1.0), lease.supervisor) == (True, False, None)
    assert (take_answer(lease, name, "token:7"), lease.held(1.0)) == (True, True)


def test_a_supervisor_that_leaves_decisions_to_launchers_watches_all_the_same() -> None:
    """People are told by it then, not by launchers too."""
    lease = lease_of(3)
    for now in (0.0, 2.0, 4.0):
        take_answer(lease, lease.tick(now), f"token:{now}{PROBE_MARK}")
    assert (lease.supervised(5.0), lease.is_watched(5.0), lease.is_watched(8.0)) == (False, True, False)
    lease.answered(lease.tick(8.0), None)
    assert (lease.supervised(9.0), lease.is_watched(9.0)) == (True, True)


def test_what_is_over_stays_over() -> None:
    lease = lease_of(2, timeout=5.0)
    lease.answered(lease.tick(0.0), None)
    assert (lease.held(0.0), lease.held(6.0)) == (True, False)
    lease.answered(lease.tick(6.0), None)
    assert not lease.held(6.0)


def test_an_answer_that_comes_too_late_spoils_nothing() -> None:
    lease = lease_of(2, timeout=5.0)
    late = lease.tick(0.0)
    lease.ticks.sent[late] = 0.0
    lease.answered(late, None)
    assert not lease.held(9.0)
    lease.answered(lease.tick(9.0), None)
    assert lease.held(9.0)


@pytest.mark.parametrize(("nodes", "needed"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3)])
def test_launchers_need_a_strict_majority(nodes: int, needed: int) -> None:
    """Not counting the one that asks, which counts as one of them."""
    lease = lease_of(nodes)
    for node in range(1, needed + 1):
        assert not lease.held(1.0), node
        lease.answered(lease.tick(1.0), node)
    assert lease.held(1.0)


def test_the_oldest_answer_of_a_majority_counts() -> None:
    lease = lease_of(5)
    for at, node in ((1.0, 1), (4.0, 2), (2.0, 3)):
        lease.answered(lease.tick(at), node)
    lease.answered(lease.tick(3.0), 1)
    assert lease.renewed() == 3.0


def test_answers_of_strangers_and_for_other_generations_mean_nothing() -> None:
    lease = lease_of(2)
    lease.answered(lease.tick(1.0), 7)
    assert (lease.held(1.0), lease.answers) == (False, {})
    old = lease.tick(1.0)
    lease.begin("h", range(2), 0, 30.0, 2.0)
    lease.answered(old, 1)
    assert not lease.held(2.0)
    assert (lease.asked("g", 1, 2.0), lease.asked("h", 7, 2.0), lease.asked("h", 1, 2.0)) == (False, False, True)


def test_who_was_not_answered_is_told_of_with_for_how_long() -> None:
    lease = lease_of(3)
    lease.asked("g", 1, 9.0)
    assert lease.unheard(10.0) == {2: 10.0}


def two_members(address: str = "127.0.0.1", **ports: int) -> list[dict[str, Any]]:
    return [
        {"node": i, "rank": i, "roles": ["trainer"], "host": "a", "address": address, "nproc": 1, "port": port}
        for i, port in enumerate(ports.values())
    ]


def test_nothing_starts_before_an_answer(node: Node) -> None:
    node.supervisor.answering = False
    node.start(command=node.script(SLEEP))
    node.order(members=two_members(a=1, b=2))
    report = promptly(lambda: (r := node.report()).get("reason") and r)
    assert (report["state"], report["generation"], report["reason"]) == (
        "waiting",
        0,
        "waits for an answer from the supervisor or most of the launchers",
    )
    asked = len(node.supervisor.lines)
    promptly(lambda: len(node.supervisor.lines) > asked + 2)
    assert node.report()["state"] == "waiting"
    node.supervisor.answering = True
    node.until("running", 1)


@pytest.mark.every_python
def test_unanswered_processes_are_killed_without_grace(node: Node) -> None:
    ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    node.start(command=node.script(ignores))
    node.order(members=two_members(a=1, b=2), host_timeout=STALL)
    node.until("running")
    promptly(lambda: "deaf" in node.log())
    node.supervisor.answering = False
    report = node.until("fenced")
    assert (report["reason"], report["failure"]["kind"], report["exit_code"]) == (
        f"neither the supervisor nor most of the launchers have answered for {STALL:g} s",
        "fenced",
        None,
    )
    assert node.pids("script-") == []
    node.supervisor.answering = True
    node.order(2, members=two_members(a=1, b=2), host_timeout=30.0)
    node.until("running", 2)


def test_on_a_host_the_answer_is_where_no_container_can_write(node: Node) -> None:
    node.supervisor.on_host = True
    (node.root / "run" / "answers").mkdir()
    node.start(command=node.script(SLEEP))
    node.order(members=two_members(a=1, b=2), host_timeout=30.0)
    node.until("running")


def test_a_launcher_whose_files_hang_is_ended_with_its_processes_in_time(node: Node) -> None:
    """A home on NFS whose server is behind the cable that is out: to open a pipe that nobody writes into hangs as well."""
    process = node.start(command=node.script(SLEEP))
    ordered = time.monotonic()
    node.order(members=two_members(a=1, b=2), host_timeout=STALL)
    node.until("running")
    promptly(lambda: "begins" in node.log())
    node.supervisor.silence()
    os.mkfifo(node.root / "hangs")
    (node.root / "hangs").rename(node.dir / "answer")
    promptly(lambda: node.pids("script-") == [], STALL + 1.5 + STALL)  # the guard may stand still, too
    assert time.monotonic() - ordered > STALL
    assert process.wait(PATIENCE) == 137
    node.gone()


def test_setup_ends_too_when_nobody_answers(node: Node) -> None:
    node.start(setup=["sleep 600"])
    node.order(members=two_members(a=1, b=2), host_timeout=STALL)
    node.until("setup")
    node.supervisor.answering = False
    assert node.until("fenced")["failure"]["kind"] == "fenced"
    assert node.pids("sleep") == []


def test_two_generations_of_one_number(node: Node) -> None:
    """Two who were cut off from each other have begun one each: the launcher goes over to the one it is told last."""
    node.start(command=node.script(SLEEP))
    node.order(members=two_members(a=1, b=2))
    node.until("running", 1)
    (first,) = promptly(lambda: node.pids("script-"))
    node.order(members=two_members(a=1, b=2), rendezvous={"address": "127.0.0.1", "port": 29998, "id": "other"})
    promptly(lambda: node.pids("script-") not in ([], [first]))


def test_a_generation_that_has_the_node_elsewhere_is_not_for_this_launcher(node: Node) -> None:
    """It has moved: what is left on the host that it was on must not run it too."""
    node.start(command=node.script(SLEEP))
    node.order(members=two_members(a=1, b=2))
    node.until("running", 1)
    node.order(2, members=[{**two_members(a=1, b=2)[0], "host": "b"}, two_members(a=1, b=2)[1]])
    assert node.until("waiting")["reason"] == "not part of this generation"
    assert node.pids("script-") == []


def test_the_end_of_a_lease_ends_grace(node: Node) -> None:
    """Processes that save a checkpoint at SIGTERM are killed when their node may begin elsewhere."""
    ignores = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    node.start(command=node.script(ignores))
    node.order(members=two_members(a=1, b=2), host_timeout=STALL)
    node.until("running")
    promptly(lambda: "deaf" in node.log())
    node.supervisor.answering = False
    node.order(2, members=two_members(a=1, b=2), host_timeout=STALL, grace=600.0)
    promptly(lambda: node.pids("script-") == [])


@pytest.fixture
def pair(tmp_path: Path, python: str) -> Iterator[tuple[Node, Node]]:
    """Two nodes on one machine whose launchers hear each other, and no supervisor."""
    made = Node(tmp_path / "a", python), Node(tmp_path / "b", python)
    for number, node in enumerate(made):
        node.launch["node"] = number
    with made[0].supervisor, made[1].supervisor:
        made[0].supervisor.answering = made[1].supervisor.answering = False
        yield made
    for node in made:
        for process in node.started:
            process.terminate()
            process.communicate(timeout=PATIENCE)
        assert node.living() == {}


@pytest.mark.every_python
def test_launchers_answer_each_other(pair: tuple[Node, Node]) -> None:
    """Two of two are a majority; when one is killed, the other is alone and ends its processes."""
    for node in pair:
        node.start(command=node.script(SLEEP))
        node.until("waiting")
    ports = {"a": pair[0].report()["port"], "b": pair[1].report()["port"]}
    for node in pair:
        node.order(members=two_members(**ports), host_timeout=STALL)
    for node in pair:
        node.until("running", 1)
    promptly(lambda: len(pair[0].supervisor.lines) > 6)
    assert {node.report()["state"] for node in pair} == {"running"}
    promptly(lambda: pair[0].supervisor.lines[-1]["unheard"] == {})
    pair[1].started[0].kill()
    pair[1].gone()
    pair[0].until("fenced", 1)
    promptly(lambda: "1" in pair[0].supervisor.lines[-1]["unheard"])


def test_who_comes_later_is_asked_at_once(node: Node) -> None:
    """It was not there to answer before; the tick is the same, so that it counts from when it was first sent."""
    node.supervisor.answering = False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(PATIENCE)
        node.start(command=node.script(SLEEP))
        node.order(members=two_members(a=1, b=peer.getsockname()[1]))
        first, launcher = peer.recvfrom(2048)
        asked = [json.loads(first)]

        def ask(name: str) -> None:
            message = {"tick": name, "generation": asked[0]["generation"], "node": 1}
            peer.sendto(json.dumps(message).encode(), launcher)
            while asked[-1].get("answer") != name:
                asked.append(json.loads(peer.recv(2048)))

        ask("mine")
        last = [message["tick"] for message in asked if "tick" in message][-1]
        assert json.loads(peer.recv(2048)) == {"tick": last, "generation": asked[0]["generation"], "node": 0}
        peer.sendto(json.dumps({"answer": last, "generation": asked[0]["generation"], "node": 1}).encode(), launcher)
        ask("again")
        node.until("running", 1)
        asked.append(json.loads(peer.recv(2048)))  # the next one is new: who has answered is asked in its turn
        names = [message["tick"] for message in asked if "tick" in message]
        assert len(set(names)) == len(names)


def test_a_server_beside_a_trainer_gives_its_host_no_second_vote() -> None:
    """Nodes 0 and 1 train on hosts of their own, 2 serves beside 0: those two together must not keep each other."""
    trainer, server = MajorityLease(), MajorityLease()
    trainer.begin("g", range(3), 0, 30.0, 0.0, [0, 1])
    server.begin("g", range(3), 2, 30.0, 0.0, [0, 1])
    trainer.answered(trainer.tick(1.0), 2)
    server.answered(server.tick(1.0), 0)
    assert (trainer.renewed(), server.renewed()) == (None, None)
    trainer.answered(trainer.tick(2.0), 1)
    server.answered(server.tick(2.0), 1)
    assert (trainer.renewed(), server.renewed()) == (2.0, 1.0)


def test_a_server_of_one_trainer_needs_its_answer() -> None:
    lease = MajorityLease()
    lease.begin("g", [0, 1], 1, 30.0, 0.0, [0])
    assert not lease.held(1.0)
    lease.answered(lease.tick(1.0), 0)
    assert (lease.held(2.0), lease.end()) == (True, 31.0)


def test_a_node_whose_lease_was_over_begins_again_only_with_all_others(node: Node) -> None:
    """It asks for another lease, as the others may begin the next generation with it; in its own it begins nothing."""
    alone = {"restarts": 3, "rules": [], "ports": [20000, 29999], "failures": [], "base": {"number": 1, "id": "demo-1"}}
    node.start(command=node.script(SLEEP))
    node.order(members=two_members(a=1, b=2), host_timeout=STALL, autonomy=alone)
    node.until("running", 1)
    node.supervisor.answering = False
    node.until("fenced", 1)
    node.supervisor.answering = True
    node.looks()
    assert node.report()["state"] == "fenced"
    node.order(2, members=two_members(a=1, b=2), host_timeout=STALL, autonomy=alone)  # as a supervisor hands it on
    assert node.until("waiting", 1)
    promptly(lambda: node.report()["reason"] == "waits for node 1, which is not heard")
    node.order(3, members=two_members(a=1, b=2), autonomy={**alone, "base": {"number": 3, "id": "demo-3"}})
    node.until("running", 3)


def test_a_new_launcher_runs_nothing_on_the_lease_of_the_one_before(node: Node) -> None:
    alone = {"restarts": 3, "rules": [], "ports": [20000, 29999], "failures": [], "base": {"number": 1, "id": "demo-1"}}
    launcher = node.start(command=node.script(SLEEP))
    node.order(members=two_members(a=1, b=2), autonomy=alone)
    node.until("running", 1)
    launcher.kill()
    launcher.wait()
    node.supervisor.answering = False
    node.start(command=node.script(SLEEP))
    node.until("failed", 1)
    node.order(2, members=two_members(a=1, b=2), autonomy=alone)
    waits = "waits for an answer from the supervisor or most of the launchers"
    promptly(lambda: node.report()["reason"] == waits)
    assert node.report()["state"] == "waiting"


@pytest.mark.parametrize("lasts", [True, False])
def test_nothing_begins_whose_lease_is_over_before_all_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasts: bool
) -> None:
    """Names take up to five seconds where the network is gone; then the node may run elsewhere already."""
    now, lease, begun = [100.0], MajorityLease(), []

    def resolve(*given: Any) -> Any:
        now[0] += 5.0
        return SimpleNamespace(first_rank=0)

    monkeypatch.setattr(run, "boot_time", lambda: now[0])
    monkeypatch.setattr(run, "Environment", resolve)
    monkeypatch.setattr(run.Run, "start", lambda self: begun.append(now[0]) or [1])
    lease.begin("g1", [0, 1, 2], 0, 30.0, now[0])
    lease.answered(lease.tick(now[0] - (20.0 if lasts else 27.0)), None)
    assert lease.held(now[0])
    launcher: Any = SimpleNamespace(launch=launch_of(), standby=None, lease=lease, dir=str(tmp_path))
    if lasts:
        run.Run(launcher, order(), order().members[0])
        assert begun == [105.0]
        return
    with pytest.raises(Problem, match="have answered for 30 s") as found:
        run.Run(launcher, order(), order().members[0])
    assert (found.value.failure.kind, begun) == ("fenced", [])
