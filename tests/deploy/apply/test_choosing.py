"""The next generation: a meeting of its own, at ports that are free, with the checkpoints of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from jobctl.jobspec.deploy.apply.generations import KnownPorts, choose_generation, moves_of
from jobctl.jobspec.deploy.model.control import Control
from jobctl.jobspec.deploy.model.errors import DeployError
from jobctl.jobspec.deploy.model.observed import Observed, ObservedNode
from jobctl.jobspec.plan.generation import FIRST_PORT, PORTS, Generation, Moves, OldPlace, first_generation
from jobctl.jobspec.plan.types import Checkpoint, Plan, Rendezvous
from tests.deploy.apply.test_executor import TWO

KEEPS = replace(TWO, checkpoint=Checkpoint("/ckpt", True, 2))


def choose(
    plan: Plan, last: Generation | None = None, free: Callable[[str, int], bool] = lambda host, port: True
) -> Generation:
    return choose_generation(plan, last, 5.0, plan.nodes, KnownPorts(free, "h0", {0: 7000}))


def test_each_generation_has_a_meeting_of_its_own() -> None:
    first, again = choose(TWO), choose(TWO)
    second = choose(TWO, first)
    assert len({first.rendezvous.id, again.rendezvous.id, second.rendezvous.id}) == 3
    assert (first.number, second.number, second.grace) == (1, 2, 5.0)
    assert [member.port for member in first.members] == [7000, None]


def test_a_port_that_is_taken_is_not_chosen() -> None:
    first = choose(TWO).rendezvous.port
    asked: list[str] = []

    def free(host: str, port: int) -> bool:
        asked.append(host)
        return port != first

    other = choose(TWO, free=free).rendezvous.port
    assert other != first
    assert FIRST_PORT <= other < FIRST_PORT + PORTS
    assert set(asked) == {"h0"}  # where all meet


def test_a_port_that_the_spec_names_is_taken_or_an_error() -> None:
    plan = replace(TWO, rendezvous=Rendezvous(29500, 600.0))
    assert choose(plan).rendezvous.port == 29500
    with pytest.raises(DeployError, match=r"port 29500 of `rendezvous.port` is taken on h0"):
        choose(plan, free=lambda host, port: False)
    with pytest.raises(DeployError, match="no free port"):
        choose(TWO, free=lambda host, port: False)


def test_a_fresh_run_goes_on_in_its_folder_and_another_one_in_the_plans() -> None:
    first = choose(KEEPS)
    assert first.checkpoint_dir == "/ckpt"
    fresh = replace(first, checkpoint_dir="/ckpt/fresh-1")
    assert choose(KEEPS, fresh).checkpoint_dir == "/ckpt/fresh-1"
    moved = replace(KEEPS, checkpoint=Checkpoint("/ckpt2", True, 2))
    assert choose(moved, fresh).checkpoint_dir == "/ckpt2"


BOTH = first_generation(TWO)
LOST = Observed(Control(BOTH), (), True, {"h1": "not heard"}, (), ())


def at(generation: Generation, node: int, host: str) -> Generation:
    """Return a generation with a node on another host."""
    members = tuple(replace(m, host=host) if m.node == node else m for m in generation.members)
    return replace(generation, number=generation.number + 1, members=members)


def test_a_node_that_moves_away_from_a_silent_host_may_still_run_there() -> None:
    place = (OldPlace(1, "h1"),)
    assert moves_of(at(BOTH, 1, "h2"), LOST, ()) == Moves(place, 2)
    assert moves_of(at(BOTH, 1, "h2"), replace(LOST, unreachable={}), ["h1"]) == Moves(place, 2)
    assert moves_of(at(BOTH, 1, "h2"), replace(LOST, unreachable={}), ()) is None  # its container is removed there
    assert moves_of(at(BOTH, 0, "h2"), LOST, ()) is None
    assert moves_of(replace(BOTH, number=2, members=BOTH.members[:1]), LOST, ()) == Moves(place, 2)  # it is left out


def test_a_node_may_still_run_at_its_old_place_until_it_has_begun_at_its_new_one() -> None:
    moved = at(BOTH, 1, "h2")
    moved = replace(moved, moves=moves_of(moved, LOST, ()))
    waits = ObservedNode(1, "trainer", "h2", "pending", launcher=1, generation=1)
    then = replace(LOST, control=Control(moved), nodes=(waits,), unreachable={})
    assert moves_of(at(moved, 1, "h2"), then, ()) == Moves((OldPlace(1, "h1"),), 2)
    assert moves_of(at(moved, 1, "h2"), replace(then, nodes=(replace(waits, generation=2),)), ()) is None


def test_nodes_that_are_new_say_nothing_of_who_was_there_before() -> None:
    more = at(BOTH, 1, "h2")
    more = replace(more, members=(*more.members, replace(more.members[0], node=2, host="h3")))
    assert moves_of(more, LOST, ()) == Moves((OldPlace(1, "h1"),), 4)


def test_a_node_that_was_left_out_is_not_counted_as_new_and_is_not_kept_from_where_it_goes() -> None:
    """Its launcher is never clear. Counted twice, all others would be too few, and it would never begin."""
    moved = at(BOTH, 1, "h2")
    moved = replace(moved, moves=moves_of(moved, LOST, ()))
    alone = replace(moved, number=3, members=moved.members[:1])
    silent = {"h1": "not heard", "h2": "not heard"}
    then = replace(LOST, control=Control(moved), unreachable=silent)
    places = (OldPlace(1, "h1"), OldPlace(1, "h2"))
    alone = replace(alone, moves=moves_of(alone, then, ()))
    assert alone.moves == Moves(places, 2)
    back = replace(LOST, control=Control(alone))
    assert moves_of(replace(moved, number=4), back, ()) == Moves(places[:1], 2)
