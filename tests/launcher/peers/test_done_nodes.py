"""What launchers tell each other about the good end of their nodes: by real sockets and without processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobctl.jobspec.launcher.peers.lease import FIRST_TICKS, SILENT_TICKS, TICK
from jobctl.jobspec.launcher.peers.messages import PeerMessage
from tests.tools.peer_links import Launchers, links_of, order
from tests.tools.ports import free_ports


def test_what_a_node_has_said_of_its_end_does_not_count_in_the_next_order(job: Launchers) -> None:
    """It has the same lease, and a datagram may come late."""
    job.begin()
    late = job.all[1].message(done=True)
    job.all[1].done.say({0})
    job.talk()
    assert (job.all[0].done.nodes, job.all[1].done.told) == ({1}, {0})
    for links in job.all:
        job.orders(links.lease.me).propose(order(3), "job-2")
        links.begin_generation()
    job.talk()
    job.all[1].send(late, job.all[1].peers[0])
    job.talk()
    assert (job.all[0].done.nodes, job.all[1].done.told) == (set(), set())


def test_a_launcher_leaves_once_all_trainers_are_done_and_know_it(job: Launchers) -> None:
    job.begin()
    first, second = job.all
    assert not first.done.are_all(order())
    job.talk()
    assert (first.done.told, second.done.nodes) == ({1}, {0})
    assert not first.done.are_all(order())
    second.done.are_all(order())
    job.talk()
    assert [links.done.are_all(order()) for links in job.all] == [True, True]


@pytest.mark.parametrize("again", [True, False], ids=["again", "lease"])
def test_a_launcher_that_no_longer_knows_who_is_done_hears_it_again(job: Launchers, again: bool) -> None:
    """Those that it has told so themselves do not say it by themselves again."""
    job.begin()
    for links in job.all:
        links.done.are_all(order())
    job.talk()
    if again:
        job.start_again(0, order())
    else:
        job.all[0].meet(order())
    assert not job.all[0].done.are_all(order())  # as it has not heard anybody
    for _ in range(2):
        job.clock.at += FIRST_TICKS + 0.01
        job.talk()
        found = [links.done.are_all(order()) for links in job.all]
    assert found == [True, True]


def test_a_launcher_of_a_server_that_is_started_again_hears_who_is_done(job: Launchers) -> None:
    """It asks nobody, and serves until all trainers are done. So it hears that each second, whatever was lost before."""
    job.begin()
    job.all[1].done.are_all(order())
    job.talk()
    job.start_again(0, order())
    job.talk()
    for _ in range(2):
        job.all[0].done.begin_generation()  # as if it had not heard it before
        job.clock.at += TICK + 0.01
        assert not job.all[1].done.are_all(order())
        job.talk()
        assert (job.all[0].done.nodes, job.all[1].done.told) == ({1}, {0})


def test_a_launcher_of_an_earlier_version_is_heard_on_hosts(tmp_path: Path) -> None:
    """It does not say in which order its node has ended well; in a cluster, it does."""
    said = PeerMessage.from_json({"done": True, "generation": order().lease, "node": 1})
    for port, nodes in ((None, {1}), (free_ports(1)[0], set())):
        names = tmp_path / "names.json"
        names.write_text(json.dumps({"node-0": ["127.0.0.2", port], "node-1": ["127.0.0.3", port]}))
        links = links_of(tmp_path / str(port), 0, order(), port, names)
        links.hear(said, ("127.0.0.1", 9))
        links.addresses.close()
        assert links.done.nodes == nodes


def test_one_that_says_with_an_answer_that_it_is_done_hears_that_this_was_heard(job: Launchers) -> None:
    """The other one may leave at once, and answers nothing more."""
    job.begin()
    first, second = job.all
    second.done.ended = True
    first.done.are_all(order())
    job.talk()
    assert first.done.are_all(order())
    assert second.done.told == {0}


def test_it_leaves_though_it_asks_for_another_lease_once_the_others_are_gone(job: Launchers) -> None:
    """Nobody is left to say again what it has heard."""
    job.begin()
    first, second = job.all
    first.done.say({1})
    job.talk()
    first.addresses.close()
    assert not second.done.are_all(order())
    job.clock.at += order().lease_limit + 1.0
    second.lease.begin(order().lease, order().nodes, 1, 30.0, job.clock.at)
    second.meet(order())
    assert not second.done.are_all(order())
    job.clock.at += order().lease_limit + 1.0
    assert second.done.are_all(order())
    assert not second.done.are_all(order(3))


def test_nor_does_it_wait_for_one_that_is_gone(job: Launchers) -> None:
    job.begin()
    job.all[1].done.say({0})
    job.talk()
    job.all[1].addresses.close()
    job.clock.at += order().lease_limit - 1.0
    assert not job.all[0].done.are_all(order())
    job.clock.at += 1.1
    assert job.all[0].done.are_all(order())


def test_a_launcher_does_not_leave_beside_one_that_is_cut_off_for_a_while(job: Launchers) -> None:
    """That one would wait for ever for what nobody can say any more."""
    job.begin()
    job.all[1].done.say({0})
    job.talk()
    job.clock.at += SILENT_TICKS * TICK + 0.1
    assert not job.all[0].done.are_all(order())
    job.talk()
    assert job.all[0].done.are_all(order())
    assert job.all[1].done.nodes == {0}
