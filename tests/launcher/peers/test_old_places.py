"""A node that has moved: who may answer it at its new place, and when it begins there. docs/protocol.md, rule 4."""

from __future__ import annotations

import pytest

from jobctl.jobspec.launcher.order.order import Order
from jobctl.jobspec.launcher.peers.lease import MajorityLease
from jobctl.jobspec.launcher.peers.old_places import CONFIRMED, MARGIN, OldPlaces
from jobctl.jobspec.launcher.peers.orders import PeerOrders
from tests.launcher.orders import order

TIMEOUT = 10.0
LONG = TIMEOUT + MARGIN


def moved(*nodes: int, number: int = 2) -> Order:
    """Return an order in which these of three nodes are no longer on the hosts h0, h1 and h2."""
    data = {**order(number).to_json(), "host_timeout": TIMEOUT}
    for node in nodes:
        data["members"][node]["host"] = f"new{node}"
    places = [{"node": node, "host": f"h{node}"} for node in nodes]
    return Order.from_json({**data, "moves": {"places": places, "voters": 3}})


@pytest.fixture
def places() -> OldPlaces:
    """Those of a launcher that has run for long, and has answered node 0 at 100.0."""
    made = OldPlaces(0.0)
    made.enter(order())
    made.note_answer(0, 100.0)
    return made


def test_a_node_at_its_new_place_is_answered_once_its_old_lease_is_over(places: OldPlaces) -> None:
    places.enter(moved(0))
    assert not places.is_clear(0, 100.0 + LONG - 0.1)
    assert places.clear_of(101.0) == []
    assert places.is_clear(0, 100.0 + LONG)
    places.note_answer(0, 100.0 + LONG)  # at its new place
    assert (places.is_clear(0, 101.0 + LONG), places.clear_of(101.0 + LONG)) == (True, [0])


def test_nodes_that_have_not_moved_are_answered_at_once(places: OldPlaces) -> None:
    places.enter(moved(0))
    assert places.is_clear(1, 100.0)
    places.enter(order(3))
    assert (places.is_clear(0, 100.0), places.clear_of(100.0)) == (True, None)


def by_launchers(given: Order) -> Order:
    """Return an order of launchers, who have moved nodes in it."""
    data = given.to_json()
    moved = {"number": given.number, "id": given.id, "times": 1}
    return Order.from_json(
        {**data, "autonomy": {**data["autonomy"], "base": {"number": 1, "id": "g1"}, "moved": moved}}
    )


def test_a_node_that_a_supervisor_has_elsewhere_in_ignorance_is_not_answered_at_once(places: OldPlaces) -> None:
    places.enter(by_launchers(moved(0)))
    places.note_answer(0, 200.0)
    ignorant = Order.from_json({**order(3).to_json(), "host_timeout": TIMEOUT})
    places.enter(ignorant)
    assert (places.is_clear(0, 200.0 + LONG - 0.1), places.kept(201.0), places.clear_of(201.0)) == (False, [0], None)
    places.enter(ignorant)  # as a lease is asked for again
    assert (places.left, places.is_clear(0, 200.0 + LONG), places.kept(201.0 + LONG)) == ({0}, True, [])
    assert places.is_clear(1, 200.0)


def test_a_launcher_that_was_started_again_knows_which_node_it_may_keep_elsewhere() -> None:
    places = OldPlaces(200.0)
    places.left = {0}
    places.enter(Order.from_json({**order(3).to_json(), "host_timeout": TIMEOUT}))
    assert (places.kept(200.0 + LONG - 0.1), places.kept(200.0 + LONG)) == ([0], [])


def test_a_launcher_that_was_started_again_may_have_answered_everybody_until_then() -> None:
    places = OldPlaces(200.0)
    places.enter(moved(0))
    end = 200.0 + LONG + CONFIRMED  # a supervisor may count on an answer that came just before
    assert (places.is_clear(0, end - 0.1), places.is_clear(0, end)) == (False, True)


def test_a_supervisor_that_may_not_know_of_the_move_may_answer_the_old_place(places: OldPlaces) -> None:
    places.note_supervisor("one", 300.0)
    places.enter(moved(0))
    assert not places.is_clear(0, 301.0)
    places.note_supervisor("two", 302.0)
    assert not places.is_clear(0, 303.0)
    places.note_supervisor("one", 304.0)
    assert places.is_clear(0, 304.0)


def test_a_supervisor_that_is_not_heard_any_more_may_answer_for_another_while(places: OldPlaces) -> None:
    """It counts on this launcher until it has repeated nothing for CONFIRMED seconds."""
    places.note_supervisor("one", 300.0)
    places.enter(moved(0))
    end = 300.0 + CONFIRMED + LONG
    assert (places.is_quiet(0, end - 0.1), places.is_quiet(0, end)) == (False, True)
    assert (places.is_clear(0, end - 0.1), places.is_clear(0, end)) == (False, True)


def test_a_node_that_has_moved_begins_with_a_majority_that_was_never_elsewhere() -> None:
    """Its own vote, and that of another one that has moved, say nothing of who is still where they were."""
    lease = MajorityLease()
    orders = PeerOrders(lease, lambda text: None)
    lease.begin("g2", range(3), 0, TIMEOUT, 0.0)
    orders.enter(moved(0))
    lease.answered(lease.tick(1.0), 1)
    assert not lease.held(1.0)
    lease.answered(lease.tick(2.0), 2)
    assert lease.held(2.0)
    lease.answered(lease.tick(11.5), 1)  # from now on its own vote counts
    assert lease.held(12.5)


def test_another_node_that_has_moved_gives_it_no_first_lease() -> None:
    lease = MajorityLease()
    orders = PeerOrders(lease, lambda text: None)
    lease.begin("g2", range(3), 0, TIMEOUT, 0.0)
    orders.enter(moved(0, 1))
    for other in (1, 2):
        lease.answered(lease.tick(1.0), other)
    assert not lease.held(1.0)
    lease.answered(lease.tick(2.0), None)  # a supervisor's answer is enough
    assert lease.held(2.0)


def test_leases_of_older_orders_may_be_longer(places: OldPlaces) -> None:
    longer = Order.from_json({**moved(0).to_json(), "longest_lease": 4 * TIMEOUT})
    assert (longer.lease_limit, Order.from_json(longer.to_json())) == (4 * TIMEOUT, longer)
    places.enter(longer)
    assert not places.is_clear(0, 100.0 + 4 * TIMEOUT + MARGIN - 0.1)
    assert places.is_clear(0, 100.0 + 4 * TIMEOUT + MARGIN)
