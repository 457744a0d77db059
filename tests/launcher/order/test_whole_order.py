"""Orders that launchers hand on whole: those of large jobs, in several datagrams."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from jobctl.jobspec.launcher.order.autonomy_terms import HotSpare
from jobctl.jobspec.launcher.order.order import Member, Order
from jobctl.jobspec.launcher.order.whole_order import (
    PART,
    OrderPart,
    OrderParts,
    divided,
    hands_on,
    packed,
    sum_of,
    unpacked,
)
from jobctl.jobspec.launcher.peers import peers
from jobctl.jobspec.launcher.peers.lease import MajorityLease
from jobctl.jobspec.launcher.peers.peers import PeerLinks
from jobctl.jobspec.launcher.records import changed
from jobctl.jobspec.launcher.recovery import autonomy
from jobctl.jobspec.launcher.recovery.replacement import moved_to
from jobctl.jobspec.launcher.report.progress import Headway
from jobctl.jobspec.launcher.system.processes import boot_time
from jobctl.jobspec.spec.scalars import MOST_NODES
from tests.launcher.orders import order
from tests.launcher.recovery.failed_nodes import failed
from tests.tools.peer_links import links_of


def large(nodes: int, number: int = 2) -> Order:
    """An order of so many nodes, whose names no compression guesses."""
    chance = random.Random(nodes)
    members = [
        Member(
            node=node,
            rank=node,
            roles=["trainer"],
            host=f"{chance.randbytes(12).hex()}.cluster.example.com",
            address=".".join(str(chance.randrange(256)) for _ in range(4)),
            nproc=8,
            port=chance.randrange(32768, 60999),
            ports=[],
            rest={},
        )
        for node in range(nodes)
    ]
    return changed(order(number), members=members)


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the links of a launcher that is in an order, at a port of its own."""
    monkeypatch.setattr(peers, "hands_on", lambda tick, node, nodes: True)
    made = []

    def begin(node: int, of: Order) -> PeerLinks:
        made.append(links_of(tmp_path / str(node), node, of))
        return made[-1]

    yield begin
    for one in made:
        one.addresses.close()


@pytest.mark.parametrize("nodes", [3, 2000])
def test_a_launcher_hands_an_order_on_however_many_nodes_it_has(links: Any, nodes: int) -> None:
    """By real sockets: an order of 2,000 nodes is longer than a datagram may be."""
    first, second = links(0, large(nodes)), links(1, large(nodes, 1))
    assert (len(divided(packed(large(nodes)))) > 1) == (nodes > 3)
    second.last = second.lease.tick(boot_time())
    second.send(second.message(tick=second.last), ("::1", first.addresses.port))
    first.read_datagrams()
    second.read_datagrams()
    assert second.orders.order == large(nodes)


@pytest.mark.parametrize("nodes", [3, 2000])
def test_launchers_hear_where_nodes_have_moved_however_many_there_are(
    links: Any, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """News of a move has the places of all nodes. And in what follows the move, those in it still get their answers."""
    monkeypatch.setattr(autonomy, "free_port", lambda address, first, *ports: first)
    base, spare = large(nodes, 1), HotSpare("s", "127.0.0.9", 7, {})
    assert base.autonomy is not None
    moved = moved_to(changed(base, autonomy=changed(base.autonomy, spares=[spare])), {2: spare}, Headway())
    assert moved.autonomy is not None
    first, second, third = links(0, moved), links(1, base), links(1, moved)

    def tick(sender: PeerLinks) -> None:
        sender.last = sender.lease.tick(boot_time())
        sender.send(sender.message(tick=sender.last), ("::1", first.addresses.port))
        first.read_datagrams()
        sender.read_datagrams()

    def home(of: PeerLinks) -> tuple[str, str]:
        assert of.orders is not None
        assert of.orders.order is not None
        return of.orders.order.id, of.orders.order.members[2].host

    tick(second)
    assert home(second) == (moved.id, "s")
    following = failed().successor(moved, moved.autonomy)
    assert first.orders is not None
    first.orders.adopt(following)
    tick(third)
    assert third.majority is not None
    assert [*third.majority.answers] == [0]
    assert home(third) == (following.id, "s")


def test_a_launcher_is_in_the_next_order_once_what_ran_has_ended(links: Any) -> None:
    """The others wait for all that are not in it: their processes would meet those of the last one."""
    one, now = links(0, order()), order()
    assert now.autonomy is not None
    following = failed().successor(now, now.autonomy)
    one.launcher.entered, one.launcher.busy = now, True
    one.orders.adopt(following)
    assert one.message(tick="t").age == list(now.age)
    one.launcher.busy = False
    assert one.message(tick="t").age == list(following.age) > list(now.age)


def test_launchers_tell_each_other_how_far_their_order_has_come(links: Any) -> None:
    """With ticks and answers. Others know that of a launcher that is gone, and forget it in the next order."""
    first, second, third = (links(node, order()) for node in range(3))
    first.orders.own = lambda: Headway(45, 7.0)

    def talk(sender: Any, to: Any) -> None:
        sender.send(sender.message(tick=sender.lease.tick(boot_time())), ("::1", to.addresses.port))
        to.read_datagrams()
        sender.read_datagrams()

    talk(second, first)  # the answer says it
    assert (second.orders.headway, third.orders.headway) == (Headway(45, 7.0), Headway())
    first.addresses.close()
    second.orders.own = lambda: Headway(None, 8.0)
    talk(second, third)  # the tick says it
    assert third.orders.headway == Headway(45, 8.0)
    third.orders.follow(order(2))
    assert third.orders.headway == Headway()
    talk(second, third)  # which is in an older order
    assert third.orders.headway == Headway()


def test_parts_come_in_any_order_and_from_several_launchers() -> None:
    texts = [packed(large(nodes)) for nodes in (2000, 2001)]
    sent = [
        (piece, OrderPart(place, len(divided(text)), sum_of(text)))
        for text in texts
        for place, piece in enumerate(divided(text))
        for _ in range(2)
    ]
    random.Random(1).shuffle(sent)
    parts = OrderParts()
    found = [whole for piece, part in sent if (whole := parts.add(piece, part)) is not None]
    assert {*found} == {*texts}
    assert max(len(piece) for piece, _ in sent) == PART
    assert parts.add("x", OrderPart(0, 1, 5)) is None  # what is not the text that it says
    assert parts.add(texts[0], None) == texts[0]


def test_an_order_of_as_many_nodes_as_a_spec_may_have_is_read() -> None:
    every = large(MOST_NODES)
    assert unpacked(packed(every)) == every


@pytest.mark.parametrize("nodes", [3, 15, 16, 300, 2000])
def test_a_few_launchers_hand_an_order_on_and_others_with_the_next_tick(nodes: int) -> None:
    """A launcher that has missed an order asks all: a text from each of them would be more than its socket takes."""
    ticks = [MajorityLease().tick(0.0) for _ in range(200)]
    holders = [[node for node in range(nodes) if hands_on(tick, node, nodes)] for tick in ticks]
    assert {len(one) for one in holders} <= ({nodes} if nodes < 16 else set(range(8, 17)))
    assert nodes < 16 or len({min(one) for one in holders}) > 1
